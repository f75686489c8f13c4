//! What may be typed behind `egret bench series`.

use std::time::Duration;

use clap::{Args, ValueEnum};

use super::{EXIT_CODES, RunArgs, seconds};

/// `egret bench series …`
#[derive(Clone, Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct SeriesArgs {
    /// What is measured
    #[arg(long, value_enum, default_value_t)]
    pub scenario: SeriesScenario,
    /// Senders, each with a connection and a share of the series of its own
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1_024))]
    pub writers: u32,
    /// Connections that ask queries; 0 measures writes alone
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(0..=1_024))]
    pub readers: u32,
    /// Active series
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1_000..=10_000_000))]
    pub series: u32,
    /// Samples in each request at most
    #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub batch: u32,
    /// How long to measure, after the warm-up
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    pub seconds: Duration,
    /// Samples that are written beforehand, 15 s apart
    #[arg(long, value_name = "SAMPLES", default_value_t = 10_000_000)]
    pub preload: u64,
    /// Samples per second, sent by a schedule that waits for no acknowledgement
    #[arg(long, value_name = "R", value_parser = rate)]
    pub rate: Option<f64>,
    /// Queries per second, asked by a schedule that waits for no answer
    #[arg(long, value_name = "R", value_parser = rate)]
    pub read_rate: Option<f64>,
    /// Version of remote write
    #[arg(long, value_enum, default_value_t)]
    pub protocol: Protocol,
    /// New series per second, with `--scenario churn`
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    pub churn: u32,
    /// Measure this one too, with the same bytes and the same queries; may be repeated
    #[arg(long = "peer", value_enum, value_name = "PEER")]
    pub peers: Vec<SeriesPeer>,
    /// How it is run.
    #[command(flatten)]
    pub run: RunArgs,
}

/// What is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum SeriesScenario {
    /// Samples in and queries out at the same time
    #[default]
    Load,
    /// Each kind of query alone, over what was preloaded; every answer is checked
    Queries,
    /// From `kill -9` to the first right answer, with what was preloaded in the log
    Restart,
    /// Memory with this many active series
    Cardinality,
    /// Latencies of writes while new series come
    Churn,
    /// What samples take on disk when all that was preloaded is in blocks
    Disk,
}

impl SeriesScenario {
    /// As it is typed.
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

/// Version of remote write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Protocol {
    /// 1.0
    #[default]
    Rw1,
    /// 2.0
    Rw2,
}

impl Protocol {
    /// As it is typed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rw1 => "rw1",
            Self::Rw2 => "rw2",
        }
    }
}

/// Another database of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SeriesPeer {
    /// Prometheus with its remote-write receiver
    Prometheus,
    /// VictoriaMetrics, single node
    VictoriaMetrics,
}

/// Reads a rate per second.
fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate > 0.0 && rate <= 1e9 => Ok(rate),
        _ => Err(format!(
            "`{text}` is not a number per second between 0 and 1000000000"
        )),
    }
}
