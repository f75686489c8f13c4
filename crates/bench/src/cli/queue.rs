//! What may be typed behind `egret bench queue` and `egret bench log`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::{Arrivals, EXIT_CODES, RunArgs, duration, rate, seconds};

/// `egret bench queue …`
#[derive(Clone, Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct QueueArgs {
    /// What is measured
    #[arg(long, value_enum, default_value_t)]
    pub scenario: QueueScenario,
    /// Callers on the one producer connection; each calls again when its task is acknowledged
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub producers: u32,
    /// Tasks that the one worker connection has room for
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub slots: u32,
    /// Tasks in each call
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub batch: u32,
    /// Bytes of a task's payload
    #[arg(long, value_name = "N", default_value_t = 14, value_parser = clap::value_parser!(u32).range(8..=1 << 20))]
    pub payload_bytes: u32,
    /// Partitions of the private Egret's queue engine
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub partitions: Option<u32>,
    /// When the private Egret acknowledges
    #[arg(long, value_enum)]
    pub durability: Option<Durability>,
    /// Tasks per second, made by a schedule that waits for no acknowledgement
    #[arg(long, value_name = "R", value_parser = rate)]
    pub rate: Option<f64>,
    /// How the schedule spaces them
    #[arg(long, value_enum, default_value_t, requires = "rate")]
    pub arrivals: Arrivals,
    /// How long to measure, after the warm-up
    #[arg(long, value_name = "SECONDS", default_value = "20", value_parser = seconds)]
    pub seconds: Duration,
    /// Measure this many cycles instead, however long they take
    #[arg(long, value_name = "N", conflicts_with = "seconds")]
    pub cycles: Option<u64>,
    /// Tasks that wait, with `--scenario backlog`
    #[arg(long, value_name = "N", default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub backlog: u64,
    /// Leases that end at once, with `--scenario lease-expiry`
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub leases: u64,
    /// Connections that are kept alive, with `--scenario rest`
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub connections: u32,
    /// Measure this task queue too, under the same load; may be repeated
    #[arg(long = "peer", value_enum, value_name = "PEER")]
    pub peers: Vec<Peer>,
    /// End the warm-up after this time even if the load is not steady
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub warmup_max: Duration,
    /// How it is run.
    #[command(flatten)]
    pub run: RunArgs,
}

/// What is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum QueueScenario {
    /// Full cycles: their rate, and the latencies
    #[default]
    Cycle,
    /// The same with 1, 2 and 4 partitions
    Sweep,
    /// Memory, restart and rate with very many tasks that wait
    Backlog,
    /// Very many leases that end in the same second
    LeaseExpiry,
    /// Latencies of a tenant beside another one that sends all it can
    Tenants,
    /// Enqueues and cycles by plain HTTP requests
    Rest,
    /// From the start of an empty server to its first acknowledged task
    Start,
}

impl QueueScenario {
    /// As it is typed.
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

/// Another task queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Peer {
    /// beanstalkd with its binlog
    Beanstalkd,
    /// Redis Streams with an append-only file
    Redis,
    /// NATS JetStream, a work queue in files
    Nats,
}

/// When an enqueue or a completion is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Durability {
    /// When it is on disk
    Fsync,
    /// When it is written; it is on disk soon after
    Interval,
    /// When it is written
    None,
}

impl QueueArgs {
    /// As the server's setting has it.
    pub fn durability(&self) -> Option<&'static str> {
        self.durability.map(|durability| match durability {
            Durability::Fsync => "fsync",
            Durability::Interval => "interval",
            Durability::None => "none",
        })
    }

    /// As results have it; nothing in a closed loop.
    pub fn arrivals(&self) -> Option<&'static str> {
        self.rate.map(|_| match self.arrivals {
            Arrivals::Poisson => "poisson",
            Arrivals::Constant => "constant",
        })
    }
}

/// `egret bench log …`
#[derive(Clone, Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct LogArgs {
    /// Where the log is made, and removed again [default: the directory for temporary files]
    #[arg(long, value_name = "DIRECTORY")]
    pub directory: Option<PathBuf>,
    /// Bytes of a record
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub record_bytes: u32,
    /// Threads that append, where many records are on the way
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub threads: u32,
    /// How long to measure each arm
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    pub seconds: Duration,
    /// How it is run.
    #[command(flatten)]
    pub run: RunArgs,
}
