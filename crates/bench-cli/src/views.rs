//! Arguments of `egret bench views`.

use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use super::{EXIT_CODES, RunArgs, rate, seconds};

/// `egret bench views …`
#[derive(Clone, Debug, Args, Serialize, Deserialize)]
#[command(after_help = format!("{EXIT_CODES}\n\nExample: egret bench views --private --rows 10000 --rates 0,1 --parts refresh,lag --out views.json"))]
pub struct ViewsArgs {
    /// Scenario that is measured
    #[arg(long, value_enum, default_value_t)]
    pub scenario: ViewsScenario,
    /// Number of rows of each base table [default: 100000; with fan 10000, with idle 1000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(100..=100_000_000))]
    pub rows: Option<u32>,
    /// Percentages of rows changed before each refresh [default: 0,1,10,50; with wide 1]
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', value_parser = percentage)]
    pub rates: Vec<f64>,
    /// Shapes of the queries, with `--scenario matrix`
    #[arg(
        long,
        value_enum,
        value_name = "SHAPE",
        value_delimiter = ',',
        default_value = "scan,filter,aggregate,join,join_aggregate"
    )]
    pub shapes: Vec<ViewsShape>,
    /// Number of measured refreshes of each kind, after two for warm-up, and of rounds of writes
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(2..=10_000))]
    pub cycles: u32,
    /// Parts to measure, with `--scenario matrix`
    #[arg(
        long,
        value_enum,
        value_name = "PART",
        value_delimiter = ',',
        default_value = "refresh,write,lag"
    )]
    pub parts: Vec<ViewsPart>,
    /// Rate of commits of one row each, per second, with `lag`
    #[arg(long, value_name = "R", default_value = "2000", value_parser = rate)]
    pub commit_rate: f64,
    /// Duration of the commits, with `lag`, or of the idle time, with `idle`
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub seconds: Duration,
    /// Scale factor of TPC-H: 1 is six million rows of lineitem
    #[arg(long, value_name = "FACTOR", default_value = "0.1", value_parser = scale)]
    pub scale: f64,
    /// Numbers of the TPC-H queries [default: all 22]
    #[arg(long, value_name = "NUMBER", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=QUERIES_MAX.into()))]
    pub queries: Vec<u32>,
    /// Number of views [default: with fan 60, with idle 200]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub views: Option<u32>,
    /// Connection string of a database in which the running server maintains views [default: a
    /// temporary one on the embedded server]
    #[arg(long = "url", id = "url", value_name = "URL", conflicts_with = "private")]
    pub postgres: Option<String>,
    /// Options of every scenario.
    #[command(flatten)]
    pub run: RunArgs,
}

/// Number of queries of TPC-H.
pub const QUERIES_MAX: u32 = 22;

/// Scenarios of `egret bench views`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum ViewsScenario {
    /// Duration of refreshes by shape of query and rate of changes, overhead of writes, lag
    #[default]
    Matrix,
    /// The 22 queries of TPC-H, refreshed after inserts and deletes of orders
    Tpch,
    /// Refreshes of a chain of ten views that read each other
    Chain,
    /// Concurrent refreshes of many views, each with its own table
    Fan,
    /// Processor time of many views without changes
    Idle,
    /// Lag of a view, and the rate of commits to its table
    Lag,
    /// Overhead of writes, by kind of write and number of writers
    Overhead,
    /// Refreshes of a view with sixty columns
    Wide,
}

impl ViewsScenario {
    /// Name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Matrix => "matrix",
            Self::Tpch => "tpch",
            Self::Chain => "chain",
            Self::Fan => "fan",
            Self::Idle => "idle",
            Self::Lag => "lag",
            Self::Overhead => "overhead",
            Self::Wide => "wide",
        }
    }
}

/// Shape of the query of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[value(rename_all = "snake_case")]
pub enum ViewsShape {
    /// All rows of a table
    Scan,
    /// Half of the rows of a table
    Filter,
    /// Sums and counts of five groups
    Aggregate,
    /// Inner join of two tables
    Join,
    /// Sums and counts over a join
    JoinAggregate,
    /// Rank of each row within its group
    Window,
    /// Lateral join with a correlated subquery
    Lateral,
    /// Common table expression of sums and counts, joined with a table
    Cte,
    /// UNION ALL of two queries
    UnionAll,
    /// Semi-join of two tables by EXISTS
    Exists,
    /// Left outer join of two tables
    OuterJoin,
    /// First hundred rows of an order
    TopK,
    /// All rows of a table with sixty columns
    Wide,
}

impl ViewsShape {
    /// Name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Scan => "scan",
            Self::Filter => "filter",
            Self::Aggregate => "aggregate",
            Self::Join => "join",
            Self::JoinAggregate => "join_aggregate",
            Self::Window => "window",
            Self::Lateral => "lateral",
            Self::Cte => "cte",
            Self::UnionAll => "union_all",
            Self::Exists => "exists",
            Self::OuterJoin => "outer_join",
            Self::TopK => "top_k",
            Self::Wide => "wide",
        }
    }
}

/// Part of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum ViewsPart {
    /// Duration of a refresh
    Refresh,
    /// Overhead of a write to a table of a view
    Write,
    /// Time from the commit of a row until the view shows it
    Lag,
}

impl ViewsPart {
    /// Name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Refresh => "refresh",
            Self::Write => "write",
            Self::Lag => "lag",
        }
    }
}

/// Parses a percentage from 0 to 100.
fn percentage(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent),
        _ => Err(format!("`{text}` is not a percentage between 0 and 100")),
    }
}

/// Reads a scale factor.
fn scale(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(scale) if (0.001..=100.0).contains(&scale) => Ok(scale),
        _ => Err(format!("`{text}` is not a scale between 0.001 and 100")),
    }
}
