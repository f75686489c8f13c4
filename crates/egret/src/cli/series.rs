//! `egret series …`

mod monitor;

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use egret_base::settings::ConfigDuration;

pub use self::monitor::Monitor;
use super::value_parsers::value;

/// Subcommands of `egret series …`.
#[derive(Debug, Subcommand)]
pub enum SeriesCommand {
    /// Evaluate a PromQL expression at one time
    #[command(
        after_help = "Example: egret series query 'sum by (job) (rate(http_requests_total[5m]))'"
    )]
    Query {
        /// PromQL expression to evaluate
        query: String,
        /// Evaluation time: seconds since 1970, or RFC 3339 [default: now]
        #[arg(long, value_name = "TIME")]
        at: Option<String>,
    },
    /// Evaluate a PromQL expression over a range of time and plot it
    #[command(
        after_help = "Example: egret series range 'sum(rate(http_requests_total[5m]))' --last 6h"
    )]
    Range(Range),
    /// List the names of labels, or the values of one label
    #[command(after_help = "Example: egret series labels job --match up")]
    Labels {
        /// Label whose values to list [default: list the names of labels]
        label: Option<String>,
        /// Only labels of these series, e.g. 'up{job="node"}'; may be repeated [default: all]
        #[arg(long = "match", value_name = "SELECTOR")]
        selectors: Vec<String>,
    },
    /// Import the samples of a file
    #[command(after_help = "Example: egret series import temperature.jsonl")]
    Import {
        /// File to read, plain or compressed by gzip; `-` for standard input
        file: PathBuf,
        /// Format of the file [default: by the name of the file; jsonl for standard input]
        #[arg(long, value_enum)]
        format: Option<ImportFormat>,
    },
    /// Export the raw samples of series
    #[command(
        after_help = "Example: egret series export --match temperature --format csv --out temperature.csv"
    )]
    Export(Export),
    /// Delete samples of series permanently
    #[command(
        after_help = "Example: egret series delete 'temperature{room=\"attic\"}' --end 2026-01-01T00:00:00Z --yes"
    )]
    Delete(Delete),
    /// Write a snapshot of all samples, from which a server can start
    #[command(after_help = "Example: egret series snapshot")]
    Snapshot {
        /// Omit the head: the samples that are in no block yet, usually of the last hours
        #[arg(long)]
        skip_head: bool,
    },
    /// Show the cardinality of metrics, labels and values, their growth, and their size
    #[command(after_help = "Example: egret series cardinality --top 3 --last 1h")]
    Cardinality {
        /// Number of entries in each list
        #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        top: u32,
        /// Time before now in which a series counts as new
        #[arg(long, default_value = "1d", value_name = "DURATION", value_parser = value::<ConfigDuration>)]
        last: ConfigDuration,
    },
    /// Targets that are scraped, and rules that are evaluated.
    #[command(flatten)]
    Monitor(Monitor),
    /// Run test files of Prometheus's promqltest, without a server
    #[command(after_help = "Example: egret series promqltest testdata/operators.test")]
    Promqltest {
        /// Test files, or directories with files that end in .test
        #[arg(required = true)]
        paths: Vec<PathBuf>,
    },
}

/// Arguments of `egret series range …`.
#[derive(Debug, Args)]
pub struct Range {
    /// PromQL expression to evaluate
    pub query: String,
    /// First evaluation time: seconds since 1970, or RFC 3339 [default: --last before the end]
    #[arg(long, value_name = "TIME", conflicts_with = "last")]
    pub start: Option<String>,
    /// Last evaluation time: seconds since 1970, or RFC 3339 [default: now]
    #[arg(long, value_name = "TIME")]
    pub end: Option<String>,
    /// Length of the range, if --start is not given
    #[arg(long, default_value = "1h", value_name = "DURATION", value_parser = value::<ConfigDuration>)]
    pub last: ConfigDuration,
    /// Step between two evaluation times [default: a 60th of the range]
    #[arg(long, value_name = "DURATION", value_parser = value::<ConfigDuration>)]
    pub step: Option<ConfigDuration>,
}

/// Arguments of `egret series export …`.
#[derive(Debug, Args)]
pub struct Export {
    /// Only samples of these series, e.g. 'up{job="node"}'; may be repeated [default: all]
    #[arg(long = "match", value_name = "SELECTOR")]
    pub selectors: Vec<String>,
    /// Earliest time of a sample: seconds since 1970, or RFC 3339 [default: no limit]
    #[arg(long, value_name = "TIME")]
    pub start: Option<String>,
    /// Latest time of a sample: seconds since 1970, or RFC 3339 [default: no limit]
    #[arg(long, value_name = "TIME")]
    pub end: Option<String>,
    /// Format of the output
    #[arg(long, value_enum, default_value_t)]
    pub format: ExportFormat,
    /// File to write [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// Arguments of `egret series delete …`.
#[derive(Debug, Args)]
pub struct Delete {
    /// Series whose samples to delete, e.g. 'up{job="node"}'
    #[arg(required = true, value_name = "SELECTOR")]
    pub selectors: Vec<String>,
    /// Earliest time of a sample: seconds since 1970, or RFC 3339 [default: no limit]
    #[arg(long, value_name = "TIME")]
    pub start: Option<String>,
    /// Latest time of a sample: seconds since 1970, or RFC 3339 [default: no limit]
    #[arg(long, value_name = "TIME")]
    pub end: Option<String>,
    /// Delete the samples instead of counting their series
    #[arg(long)]
    pub yes: bool,
}

/// Formats of imported samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ImportFormat {
    /// JSON, one series a line
    Jsonl,
    /// CSV with columns time, metric, value, and one for each label
    Csv,
    /// Text format of Prometheus
    Prometheus,
    /// Text format of OpenMetrics
    Openmetrics,
}

/// Formats of exported samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// JSON, one series a line, without loss
    #[default]
    Jsonl,
    /// CSV with columns time, metric, value, and one for each label
    Csv,
    /// Text format of Prometheus
    Prometheus,
    /// Apache Parquet, for DuckDB, Spark and others
    Parquet,
}
