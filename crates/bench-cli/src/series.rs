//! Arguments of `egret bench series`.

use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use super::{EXIT_CODES, RunArgs, seconds};

/// `egret bench series …`
#[derive(Clone, Debug, Args, Serialize, Deserialize)]
#[command(after_help = format!("{EXIT_CODES}\n\nExample: egret bench series --private --writers 4 --readers 2 --seconds 30 --out series.json"))]
pub struct SeriesArgs {
    /// Scenario that is measured
    #[arg(long, value_enum, default_value_t)]
    pub scenario: SeriesScenario,
    /// Number of senders, each with its own connection and share of the series
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1_024))]
    pub writers: u32,
    /// Number of connections that send queries; 0 measures only writes
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(0..=1_024))]
    pub readers: u32,
    /// Number of active series
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1_000..=10_000_000))]
    pub series: u32,
    /// Maximum number of samples in a request
    #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub batch: u32,
    /// Duration of the measurement, after the warm-up
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    pub seconds: Duration,
    /// Number of samples written before the measurement, 15 s apart
    #[arg(long, value_name = "SAMPLES", default_value_t = 10_000_000)]
    pub preload: u64,
    /// Rate of an open loop, in samples per second, independent of acknowledgements [default:
    /// closed loop]
    #[arg(long, value_name = "R", value_parser = rate)]
    pub rate: Option<f64>,
    /// Rate of an open loop, in queries per second, independent of results [default: closed loop]
    #[arg(long, value_name = "R", value_parser = rate)]
    pub read_rate: Option<f64>,
    /// Version of the remote-write protocol
    #[arg(long, value_enum, default_value_t)]
    pub protocol: Protocol,
    /// Rate of new series, per second, with `--scenario churn`
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    pub churn: u32,
    /// Other database to measure with the same bytes and queries; may be repeated
    #[arg(long = "peer", value_enum, value_name = "PEER")]
    pub peers: Vec<SeriesPeer>,
    /// Options of every scenario.
    #[command(flatten)]
    pub run: RunArgs,
}

/// Scenarios of `egret bench series`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum SeriesScenario {
    /// Concurrent writes and queries
    #[default]
    Load,
    /// Each kind of query over the preloaded samples; every result is checked
    Queries,
    /// Time from `kill -9` to the first correct result, with the preloaded samples in the log
    Restart,
    /// Memory with this number of active series
    Cardinality,
    /// Latencies of writes while new series are created
    Churn,
    /// Disk space of a sample when all preloaded samples are in blocks
    Disk,
}

impl SeriesScenario {
    /// Name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Queries => "queries",
            Self::Restart => "restart",
            Self::Cardinality => "cardinality",
            Self::Churn => "churn",
            Self::Disk => "disk",
        }
    }
}

/// Version of the remote-write protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum Protocol {
    /// Remote write 1.0
    #[default]
    Rw1,
    /// Remote write 2.0
    Rw2,
}

impl Protocol {
    /// Name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rw1 => "rw1",
            Self::Rw2 => "rw2",
        }
    }
}

/// Another database of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum SeriesPeer {
    /// Prometheus with its remote-write receiver
    Prometheus,
    /// VictoriaMetrics, single node
    VictoriaMetrics,
}

impl SeriesPeer {
    /// Name of the peer on the command line, of its program and of its package.
    pub fn name(self) -> &'static str {
        match self {
            Self::Prometheus => "prometheus",
            Self::VictoriaMetrics => "victoria-metrics",
        }
    }
}

/// Reads a rate per second.
fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate > 0.0 && rate <= 1e9 => Ok(rate),
        _ => Err(format!("`{text}` is not a number per second between 0 and 1000000000")),
    }
}
