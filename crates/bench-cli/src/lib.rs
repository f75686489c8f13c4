//! Arguments of `egret bench`.

mod compare;
mod documents;
mod job;
mod queue;
mod report;
mod series;
mod views;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};

pub use compare::CompareArgs;
pub use documents::{DocumentsArgs, DocumentsScenario, Switch};
pub use job::{DESCRIPTOR_ARGUMENT, Job, ServerAccess};
pub use queue::{Durability, LogArgs, Peer, QueueArgs, QueueScenario};
pub use report::ReportArgs;
pub use series::{Protocol, SeriesArgs, SeriesPeer, SeriesScenario};
pub use views::{QUERIES_MAX, ViewsArgs, ViewsPart, ViewsScenario, ViewsShape};

/// Printed at the end of `egret bench --help`.
pub const EXIT_CODES: &str = "\
Exit codes of a scenario: 0 measured, 1 failed, 2 wrong usage or workload file, 3 server unreachable.
Exit codes of compare: 0 better or equivalent, 1 worse, 2 inconclusive, 3 cannot compare.";

/// `egret bench …`
#[derive(Debug, Subcommand, Serialize, Deserialize)]
pub enum BenchCommand {
    /// Measure bursts of clients that each create a branch, use it and destroy it
    Branches(BranchesArgs),
    /// Measure cycles of the task queue: enqueue a task, lease it, complete it
    Queue(QueueArgs),
    /// Measure writes of samples and PromQL queries
    Series(SeriesArgs),
    /// Measure views: duration of refreshes, overhead of writes, lag
    Views(ViewsArgs),
    /// Measure writes and reads of documents with references
    Documents(DocumentsArgs),
    /// Measure the log of the queue against the bare disk
    Log(LogArgs),
    /// Measure any PostgreSQL with the transactions of a workload file
    Sql(SqlArgs),
    /// Compare two results, or two commands that run in turn
    Compare(CompareArgs),
    /// Write a page with tables and plots of result files
    Report(ReportArgs),
}

impl BenchCommand {
    /// The server that the command line names with `--server`.
    pub fn server(&self) -> Option<&str> {
        match self {
            Self::Branches(args) => args.run.server.as_deref(),
            Self::Queue(args) => args.run.server.as_deref(),
            Self::Series(args) => args.run.server.as_deref(),
            Self::Views(args) => args.run.server.as_deref(),
            Self::Documents(args) => args.run.server.as_deref(),
            Self::Sql(args) => args.run.server.as_deref(),
            Self::Log(_) | Self::Compare(_) | Self::Report(_) => None,
        }
    }
}

/// `egret bench branches …`
#[derive(Clone, Debug, Args, Serialize, Deserialize)]
#[command(after_help = format!("{EXIT_CODES}\n\nExample: egret bench branches --private --branches 25 --psql --out branches.json"))]
pub struct BranchesArgs {
    /// Number of clients in each burst
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub branches: u32,
    /// Number of bursts; before each one the pool is filled
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub bursts: u32,
    /// Statements that each client executes
    #[arg(long, value_enum, default_value_t)]
    pub mode: BranchMode,
    /// Size of the source database, to which rows are added until it is reached
    #[arg(long, value_name = "SIZE", default_value = "100MB", value_parser = size)]
    pub source_size: u64,
    /// Number of ready branches before a burst [default: one for each client]
    #[arg(long, value_name = "N")]
    pub pool: Option<u32>,
    /// Preset of the branches
    #[arg(long, value_name = "PRESET", default_value = "small")]
    pub preset: String,
    /// Source database; created if it does not exist
    #[arg(long, value_name = "NAME", default_value = "bench")]
    pub database: String,
    /// Also measure the first query of new connections through the PostgreSQL proxy, in separate
    /// bursts
    #[arg(long)]
    pub proxy: bool,
    /// Also measure the first query of new psql processes, in separate bursts
    #[arg(long)]
    pub psql: bool,
    /// Number of sequential copies, with Egret and without; 0 skips these arms
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub arms: u32,
    /// Setting of the private server, e.g. --setting branches.pool_refill=interleaved; may be
    /// repeated
    #[arg(long = "setting", value_name = "SECTION.KEY=VALUE", value_parser = variable)]
    pub settings: Vec<(String, String)>,
    /// Options of every scenario.
    #[command(flatten)]
    pub run: RunArgs,
}

/// Statements of a client in its branch besides two queries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum BranchMode {
    /// Insert one row into an existing table
    #[default]
    Event,
    /// Create a table with an index, alter it, and insert a row
    Ddl,
    /// Execute no further statement
    Read,
}

/// `egret bench sql …`
#[derive(Clone, Debug, Args, Serialize, Deserialize)]
#[command(after_help = format!("{EXIT_CODES}\n\nExample: egret bench sql --private --file select-only.toml --duration 5s --out sql.json"))]
pub struct SqlArgs {
    /// Workload file, or a built-in one: tpcb-like.toml, select-only.toml
    #[arg(long, value_name = "FILE")]
    pub file: PathBuf,
    /// Connection string of the PostgreSQL to measure
    #[arg(long = "url", id = "url", value_name = "URL", required_unless_present = "private")]
    pub postgres: Option<String>,
    /// Variable of the workload to override, e.g. --variable scale=10; may be repeated
    #[arg(long = "variable", value_name = "NAME=VALUE", value_parser = variable)]
    pub variables: Vec<(String, String)>,
    /// Options of the load.
    #[command(flatten)]
    pub load: LoadArgs,
    /// Options of every scenario.
    #[command(flatten)]
    pub run: RunArgs,
}

/// Load of scenarios that run for a given time.
#[derive(Clone, Debug, Args, Serialize, Deserialize)]
#[command(next_help_heading = "Load")]
pub struct LoadArgs {
    /// Number of connections; without --rate, each starts its next operation when the previous one
    /// ends [default: 1, with --rate 16]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub clients: Option<u32>,
    /// Rate of an open loop, in operations per second, independent of earlier operations [default:
    /// closed loop]
    #[arg(long, value_name = "R", value_parser = rate)]
    pub rate: Option<f64>,
    /// Distribution of arrivals in an open loop
    #[arg(long, value_enum, default_value_t, requires = "rate")]
    pub arrivals: ArrivalSpacing,
    /// Duration of the measurement, after the warm-up
    #[arg(long, value_name = "DURATION", default_value = "20s", value_parser = duration)]
    pub duration: Duration,
    /// Maximum duration of the warm-up, which ends when the load is steady
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub warmup_max: Duration,
    /// Number of threads that generate load; each takes a processor from a local server
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub threads: u32,
}

/// Distribution of arrivals over time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum ArrivalSpacing {
    /// Independent arrivals (exponential gaps), as of many clients
    #[default]
    Poisson,
    /// Constant gaps between arrivals
    Constant,
}

/// Options of every scenario.
#[derive(Clone, Debug, Args, Serialize, Deserialize)]
#[command(next_help_heading = "Run")]
pub struct RunArgs {
    /// Start a private server in a temporary directory, and remove it after the measurement
    #[arg(long, conflicts_with = "server")]
    pub private: bool,
    /// Address of the running server to measure or profile, with the token of --token-file or
    /// EGRET_TOKEN
    #[arg(long, value_name = "URL")]
    pub server: Option<String>,
    /// Number of runs; the result holds the median run and the spread
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub repeat: u32,
    /// Seed of schedules and values: the same seed generates the same load
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// File to write the result to
    #[arg(long, short, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Write a CPU profile of the server during the measurement, beside the result
    #[arg(long, requires = "out")]
    pub profile: bool,
    /// Write EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) of the statements, beside the result
    #[arg(long, requires = "out")]
    pub explain: bool,
}

/// Reads a duration such as 500ms, 30s or 5min.
fn duration(text: &str) -> Result<Duration, String> {
    let parse_error = || format!("`{text}` is not a duration such as 500ms, 30s or 5min");
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.');
    let (number, unit) = text.split_at(digits.ok_or_else(parse_error)?);
    let seconds = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "min" => 60.0,
        "h" => 3_600.0,
        _ => return Err(parse_error()),
    };
    let number: f64 = number.parse().map_err(|_| parse_error())?;
    match number * seconds {
        seconds if seconds > 0.0 && seconds <= 86_400.0 => Ok(Duration::from_secs_f64(seconds)),
        _ => Err(format!("`{text}` is not between 1ms and 24h")),
    }
}

/// Reads seconds, as a plain number or a duration.
fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(_) => duration(&format!("{text}s")),
        Err(_) => duration(text),
    }
}

/// Reads a size such as 100MB or 10GB, in bytes.
fn size(text: &str) -> Result<u64, String> {
    let parse_error = || format!("`{text}` is not a size such as 100MB or 10GB");
    let (number, shift) = match text {
        text if text.ends_with("MB") => (text.trim_end_matches("MB"), 20),
        text if text.ends_with("GB") => (text.trim_end_matches("GB"), 30),
        _ => return Err(parse_error()),
    };
    let number: f64 = number.parse().map_err(|_| parse_error())?;
    match number * f64::from(1_u32 << shift) {
        bytes if (0.0..=1e13).contains(&bytes) => Ok(bytes as u64),
        _ => Err(parse_error()),
    }
}

/// Reads a rate per second.
fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate > 0.0 && rate <= 1e6 => Ok(rate),
        _ => {
            Err(format!("`{text}` is not a number of operations per second between 0 and 1000000"))
        }
    }
}

/// Parses an argument of the form `name=value`.
fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(format!("`{text}` is not of the form NAME=VALUE")),
    }
}

#[cfg(test)]
mod tests;
