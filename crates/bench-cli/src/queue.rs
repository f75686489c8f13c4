//! Arguments of `egret bench queue` and `egret bench log`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use super::{ArrivalSpacing, EXIT_CODES, RunArgs, duration, rate, seconds};

/// `egret bench queue …`
#[derive(Clone, Debug, Args, Serialize, Deserialize)]
#[command(after_help = format!("{EXIT_CODES}\n\nExample: egret bench queue --private --durability fsync --out queue.json"))]
pub struct QueueArgs {
    /// Scenario that is measured
    #[arg(long, value_enum, default_value_t)]
    pub scenario: QueueScenario,
    /// Number of callers on the producer connection; each enqueues its next task when the previous
    /// one is acknowledged
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub producers: u32,
    /// Maximum number of tasks leased to the worker connection
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub slots: u32,
    /// Number of tasks in each call
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub batch: u32,
    /// Size of a payload, in bytes
    #[arg(long, value_name = "N", default_value_t = 14, value_parser = clap::value_parser!(u32).range(8..=1 << 20))]
    pub payload_bytes: u32,
    /// Number of partitions of the private server [default: its setting]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub partitions: Option<u32>,
    /// Durability of the private server: when it acknowledges [default: its setting]
    #[arg(long, value_enum)]
    pub durability: Option<Durability>,
    /// Rate of an open loop, in tasks per second, independent of acknowledgements [default:
    /// closed loop]
    #[arg(long, value_name = "R", value_parser = rate)]
    pub rate: Option<f64>,
    /// Distribution of arrivals in an open loop
    #[arg(long, value_enum, default_value_t, requires = "rate")]
    pub arrivals: ArrivalSpacing,
    /// Duration of the measurement, after the warm-up
    #[arg(long, value_name = "SECONDS", default_value = "20", value_parser = seconds)]
    pub seconds: Duration,
    /// Number of cycles to measure, instead of a duration
    #[arg(long, value_name = "N", conflicts_with = "seconds")]
    pub cycles: Option<u64>,
    /// Number of waiting tasks, with `--scenario backlog`
    #[arg(long, value_name = "N", default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub backlog: u64,
    /// Number of leases that expire at the same time, with `--scenario lease-expiry`
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub leases: u64,
    /// Number of keep-alive connections, with `--scenario rest`
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub connections: u32,
    /// Other task queue to measure under the same load; may be repeated
    #[arg(long = "peer", value_enum, value_name = "PEER")]
    pub peers: Vec<Peer>,
    /// Maximum duration of the warm-up, which ends when the load is steady
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub warmup_max: Duration,
    /// Options of every scenario.
    #[command(flatten)]
    pub run: RunArgs,
}

/// Scenarios of `egret bench queue`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum QueueScenario {
    /// Rate and latencies of full cycles
    #[default]
    Cycle,
    /// Rate and latencies with 1, 2 and 4 partitions
    Sweep,
    /// Memory, restart time and rate with millions of waiting tasks
    Backlog,
    /// Many leases that expire in the same second
    LeaseExpiry,
    /// Latencies of one tenant while another one saturates the server
    Tenants,
    /// Enqueues and cycles by HTTP requests
    Rest,
    /// Time from the start of an empty server to its first acknowledged task
    Start,
}

impl QueueScenario {
    /// Name of the scenario on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cycle => "cycle",
            Self::Sweep => "sweep",
            Self::Backlog => "backlog",
            Self::LeaseExpiry => "lease-expiry",
            Self::Tenants => "tenants",
            Self::Rest => "rest",
            Self::Start => "start",
        }
    }
}

/// Another task queue to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum Peer {
    /// beanstalkd with its binlog
    Beanstalkd,
    /// Redis Streams with an append-only file
    Redis,
    /// NATS JetStream, a work queue in files
    Nats,
}

impl Peer {
    /// Name of the peer, as in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Beanstalkd => "beanstalkd",
            Self::Redis => "redis",
            Self::Nats => "nats",
        }
    }
}

/// When an enqueue or a completion is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum Durability {
    /// After the write and an fsync
    Fsync,
    /// After the write; an fsync follows at an interval
    Interval,
    /// After the write, without an fsync
    None,
}

impl QueueArgs {
    /// Value of the server's setting `queue.durability`.
    pub fn durability(&self) -> Option<&'static str> {
        self.durability.map(|durability| match durability {
            Durability::Fsync => "fsync",
            Durability::Interval => "interval",
            Durability::None => "none",
        })
    }

    /// Spacing of the arrivals, as results name it; nothing in a closed loop.
    pub fn arrivals(&self) -> Option<&'static str> {
        self.rate.map(|_| match self.arrivals {
            ArrivalSpacing::Poisson => "poisson",
            ArrivalSpacing::Constant => "constant",
        })
    }
}

/// `egret bench log …`
#[derive(Clone, Debug, Args, Serialize, Deserialize)]
#[command(after_help = format!("{EXIT_CODES}\n\nExample: egret bench log --record-bytes 256 --seconds 3 --out log.json"))]
pub struct LogArgs {
    /// Directory of the log, removed afterwards [default: the directory for temporary files]
    #[arg(long, value_name = "DIRECTORY")]
    pub directory: Option<PathBuf>,
    /// Size of a record, in bytes
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub record_bytes: u32,
    /// Number of threads that append concurrently
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub threads: u32,
    /// Duration of each measurement
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    pub seconds: Duration,
    /// Options of every scenario.
    #[command(flatten)]
    pub run: RunArgs,
}
