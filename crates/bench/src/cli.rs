//! What may be typed behind `egret bench`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

mod documents;
mod queue;
mod series;
mod views;

use crate::compare::CompareArgs;
use crate::report::ReportArgs;

pub use documents::{DocumentsArgs, DocumentsScenario, Switch};
pub use queue::{Durability, LogArgs, Peer, QueueArgs, QueueScenario};
pub use series::{Protocol, SeriesArgs, SeriesPeer, SeriesScenario};
pub(crate) use views::QUERIES_MAX;
pub use views::{ViewsArgs, ViewsPart, ViewsScenario, ViewsShape};

/// Printed at the end of `egret bench --help`.
pub const EXIT_CODES: &str = "\
Exit codes of a scenario: 0 measured, 1 failed, 2 wrong usage or workload file, 3 server unreachable.
Exit codes of compare: 0 better or equivalent, 1 worse, 2 inconclusive, 3 cannot compare.";

/// `egret bench …`
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Bursts of users who each make a branch, work in it and destroy it
    Branches(BranchesArgs),
    /// Full cycles of the task queue: make a task, hand it out, complete it
    Queue(QueueArgs),
    /// Metrics: samples in, PromQL out
    Series(SeriesArgs),
    /// Views of queries: what a refresh takes, what writers pay, how far behind they are
    Views(ViewsArgs),
    /// Documents: JSON that refers to other JSON, written and read
    Documents(DocumentsArgs),
    /// The log under every queue, beside the bare disk
    Log(LogArgs),
    /// Load any PostgreSQL with the transactions of a workload file
    Sql(SqlArgs),
    /// Compare two results, or two commands run in turn
    Compare(CompareArgs),
    /// Make a page with tables and plots of result files
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
#[derive(Clone, Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct BranchesArgs {
    /// Users at once in each burst
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub branches: u32,
    /// Bursts; before each the pool is full
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub bursts: u32,
    /// What each user writes
    #[arg(long, value_enum, default_value_t)]
    pub mode: BranchMode,
    /// The source's size: rows are added until it has this
    #[arg(long, value_name = "SIZE", default_value = "100MB", value_parser = size)]
    pub source_size: u64,
    /// Branches that the pool has at the begin of a burst [default: one for each user]
    #[arg(long, value_name = "N")]
    pub pool: Option<u32>,
    /// The preset of the branches
    #[arg(long, value_name = "PRESET", default_value = "small")]
    pub preset: String,
    /// The source's database; made if it is not there
    #[arg(long, value_name = "NAME", default_value = "bench")]
    pub database: String,
    /// Measure the first query of fresh drivers through the PostgreSQL door too, in bursts of their own
    #[arg(long)]
    pub proxy: bool,
    /// Measure the first query of psql processes too, in bursts of their own
    #[arg(long)]
    pub psql: bool,
    /// Copies made one by one, with Egret and without; 0 leaves these arms out
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub arms: u32,
    /// A setting of the private Egret, e.g. --setting branches.pool_refill=interleaved; may be repeated
    #[arg(long = "setting", value_name = "SECTION.KEY=VALUE", value_parser = variable)]
    pub settings: Vec<(String, String)>,
    /// How it is run.
    #[command(flatten)]
    pub run: RunArgs,
}

/// What a user does in its branch besides two queries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum BranchMode {
    /// Inserts one row into a table that is there
    #[default]
    Event,
    /// Makes a table with an index, alters it, and inserts a row
    Ddl,
    /// Nothing
    Read,
}

/// `egret bench sql …`
#[derive(Clone, Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct SqlArgs {
    /// The workload: a file, or one that is built in: tpcb-like.toml, select-only.toml
    #[arg(long, value_name = "FILE")]
    pub file: PathBuf,
    /// The PostgreSQL to load: its connection string
    #[arg(
        long = "url",
        id = "url",
        value_name = "URL",
        required_unless_present = "private"
    )]
    pub postgres: Option<String>,
    /// Override a variable of the workload, e.g. --variable scale=10; may be repeated
    #[arg(long = "variable", value_name = "NAME=VALUE", value_parser = variable)]
    pub variables: Vec<(String, String)>,
    /// How much load.
    #[command(flatten)]
    pub load: LoadArgs,
    /// How it is run.
    #[command(flatten)]
    pub run: RunArgs,
}

/// How much load, for scenarios that run steadily for some time.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Load")]
pub struct LoadArgs {
    /// Connections; without --rate each begins its next operation when the last one ends [default: 1,
    /// with --rate 16]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub clients: Option<u32>,
    /// Operations per second, begun by a schedule that waits for nobody
    #[arg(long, value_name = "R", value_parser = rate)]
    pub rate: Option<f64>,
    /// How the schedule spaces them
    #[arg(long, value_enum, default_value_t, requires = "rate")]
    pub arrivals: Arrivals,
    /// How long to measure, after the warm-up
    #[arg(long, value_name = "DURATION", default_value = "20s", value_parser = duration)]
    pub duration: Duration,
    /// End the warm-up after this time even if the load is not steady
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub warmup_max: Duration,
    /// Threads that generate load; each is a processor taken from the server on the same machine
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub threads: u32,
}

/// How arrivals are spaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Arrivals {
    /// At random and independently, as many users do
    #[default]
    Poisson,
    /// Evenly
    Constant,
}

/// How a scenario is run, whatever it does.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Run")]
pub struct RunArgs {
    /// Start an Egret in a temporary directory for this measurement, and remove it afterwards
    #[arg(long, conflicts_with = "server")]
    pub private: bool,
    /// The running Egret to measure or to profile, with the token of --token-file or EGRET_TOKEN
    #[arg(long, value_name = "URL")]
    pub server: Option<String>,
    /// Measure this often; the result holds the median run and the spread
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub repeat: u32,
    /// Where schedules and values come from: the same seed makes the same load
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Write the result to this file
    #[arg(long, short, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Keep a CPU profile of the Egret server over the window beside the result
    #[arg(long, requires = "out")]
    pub profile: bool,
    /// Keep EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) of the scenario's statements beside the result
    #[arg(long, requires = "out")]
    pub explain: bool,
}

/// Reads a duration such as 500ms, 30s or 5min.
fn duration(text: &str) -> Result<Duration, String> {
    let refused = || format!("`{text}` is not a duration such as 500ms, 30s or 5min");
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.');
    let (number, unit) = text.split_at(digits.ok_or_else(refused)?);
    let seconds = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "min" => 60.0,
        "h" => 3_600.0,
        _ => return Err(refused()),
    };
    let number: f64 = number.parse().map_err(|_| refused())?;
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
    let refused = || format!("`{text}` is not a size such as 100MB or 10GB");
    let (number, shift) = match text {
        text if text.ends_with("MB") => (text.trim_end_matches("MB"), 20),
        text if text.ends_with("GB") => (text.trim_end_matches("GB"), 30),
        _ => return Err(refused()),
    };
    let number: f64 = number.parse().map_err(|_| refused())?;
    match number * f64::from(1_u32 << shift) {
        bytes if (0.0..=1e13).contains(&bytes) => Ok(bytes as u64),
        _ => Err(refused()),
    }
}

/// Reads a rate per second.
fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate > 0.0 && rate <= 1e6 => Ok(rate),
        _ => Err(format!(
            "`{text}` is not a number of operations per second between 0 and 1000000"
        )),
    }
}

/// Reads `name=value`.
fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(format!("`{text}` is not of the form NAME=VALUE")),
    }
}

#[cfg(test)]
mod tests;
