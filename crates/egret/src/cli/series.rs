//! `egret series …`

mod monitor;

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use egret_base::settings::Span;

pub use self::monitor::Monitor;
use super::value;

/// `egret series …`
#[derive(Debug, Subcommand)]
pub enum Series {
    /// Evaluate PromQL at one time
    Query {
        /// PromQL, e.g. 'sum by (job) (rate(http_requests_total[5m]))'
        query: String,
        /// When: seconds since 1970, or RFC 3339 [default: now]
        #[arg(long, value_name = "TIME")]
        at: Option<String>,
    },
    /// Evaluate PromQL over a range of time and draw it
    Range(Range),
    /// List the names of labels, or the values of one
    Labels {
        /// The label [default: list the names]
        label: Option<String>,
        /// Only of these series, e.g. 'up{job="node"}'; may be repeated
        #[arg(long = "match", value_name = "SELECTOR")]
        selectors: Vec<String>,
    },
    /// Write the samples of a file
    Import {
        /// The file, plain or in gzip; `-` for standard input
        file: PathBuf,
        /// What it is [default: by its name; jsonl for standard input]
        #[arg(long, value_enum)]
        format: Option<ImportFormat>,
    },
    /// Read samples as they are
    Export(Export),
    /// Delete samples for good; says of how many series without --yes
    Delete(Delete),
    /// Copy all samples to a directory that an Egret can begin with
    Snapshot {
        /// Leave out what is in no block yet: the last hours, mostly
        #[arg(long)]
        skip_head: bool,
    },
    /// Show which metrics, labels and values there are most series of, which are new, and what they cost
    Cardinality {
        /// How many of each to show
        #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        top: u32,
        /// How far back
        #[arg(long, default_value = "1d", value_name = "DURATION", value_parser = value::<Span>)]
        last: Span,
    },
    /// What is scraped, and which rules are evaluated
    #[command(flatten)]
    Monitor(Monitor),
    /// Run files of Prometheus's tests of PromQL; needs no server
    Promqltest {
        /// Files, or directories with files that end in .test
        #[arg(required = true)]
        paths: Vec<PathBuf>,
    },
}

/// `egret series range …`
#[derive(Debug, Args)]
pub struct Range {
    /// PromQL
    pub query: String,
    /// The first time: seconds since 1970, or RFC 3339 [default: --last before the end]
    #[arg(long, value_name = "TIME", conflicts_with = "last")]
    pub start: Option<String>,
    /// The last time [default: now]
    #[arg(long, value_name = "TIME")]
    pub end: Option<String>,
    /// How long before the end to begin
    #[arg(long, default_value = "1h", value_name = "DURATION", value_parser = value::<Span>)]
    pub last: Span,
    /// Time between two values [default: so that there are 60]
    #[arg(long, value_name = "DURATION", value_parser = value::<Span>)]
    pub step: Option<Span>,
}

/// `egret series export …`
#[derive(Debug, Args)]
pub struct Export {
    /// Only these series, e.g. 'up{job="node"}'; may be repeated [default: all]
    #[arg(long = "match", value_name = "SELECTOR")]
    pub selectors: Vec<String>,
    /// No sample before: seconds since 1970, or RFC 3339
    #[arg(long, value_name = "TIME")]
    pub start: Option<String>,
    /// No sample after
    #[arg(long, value_name = "TIME")]
    pub end: Option<String>,
    /// As what
    #[arg(long, value_enum, default_value_t)]
    pub format: ExportFormat,
    /// Where to [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// `egret series delete …`
#[derive(Debug, Args)]
pub struct Delete {
    /// Which series, e.g. 'up{job="node"}'
    #[arg(required = true, value_name = "SELECTOR")]
    pub selectors: Vec<String>,
    /// No sample before: seconds since 1970, or RFC 3339 [default: from the first]
    #[arg(long, value_name = "TIME")]
    pub start: Option<String>,
    /// No sample after [default: to the last]
    #[arg(long, value_name = "TIME")]
    pub end: Option<String>,
    /// Do it
    #[arg(long)]
    pub yes: bool,
}

/// Forms of samples that come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ImportFormat {
    /// A series a line, as JSON
    Jsonl,
    /// Columns time, metric, value, and one for each label
    Csv,
    /// Prometheus's text format
    Prometheus,
    /// OpenMetrics
    Openmetrics,
}

/// Forms of samples that go out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// A series a line, as JSON: the one that loses nothing
    #[default]
    Jsonl,
    /// Columns time, metric, value, and one for each label
    Csv,
    /// Prometheus's text format
    Prometheus,
    /// A table of Apache Parquet, for DuckDB, Spark and others
    Parquet,
}
