//! What may be typed behind `egret bench views`.

use std::time::Duration;

use clap::{Args, ValueEnum};

use super::{EXIT_CODES, RunArgs, rate, seconds};

/// `egret bench views …`
#[derive(Clone, Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct ViewsArgs {
    /// What is measured
    #[arg(long, value_enum, default_value_t)]
    pub scenario: ViewsScenario,
    /// Rows of each table that views read [default: 100000; with fan 10000, with idle 1000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(100..=100_000_000))]
    pub rows: Option<u32>,
    /// How many of them change before each refresh, in percent [default: 0,1,10,50; with wide 1]
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', value_parser = percentage)]
    pub rates: Vec<f64>,
    /// What the views of the matrix compute
    #[arg(
        long,
        value_enum,
        value_name = "SHAPE",
        value_delimiter = ',',
        default_value = "scan,filter,aggregate,join,join_aggregate"
    )]
    pub shapes: Vec<ViewsShape>,
    /// Refreshes of each kind, after two that do not count; and rounds of writes
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(2..=10_000))]
    pub cycles: u32,
    /// What is measured of the matrix
    #[arg(
        long,
        value_enum,
        value_name = "PART",
        value_delimiter = ',',
        default_value = "refresh,write,lag"
    )]
    pub parts: Vec<ViewsPart>,
    /// Commits of a row each per second, with `lag`
    #[arg(long, value_name = "R", default_value = "2000", value_parser = rate)]
    pub commit_rate: f64,
    /// How long rows are committed, with `lag`; how long nothing is done, with `idle`
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub seconds: Duration,
    /// Size of the data of TPC-H: 1 is six million lines of orders
    #[arg(long, value_name = "FACTOR", default_value = "0.1", value_parser = scale)]
    pub scale: f64,
    /// Which queries of TPC-H [default: all 22]
    #[arg(long, value_name = "NUMBER", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=QUERIES_MAX.into()))]
    pub queries: Vec<u32>,
    /// Views beside each other [default: with fan 60, with idle 200]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub views: Option<u32>,
    /// The database in which a running Egret keeps views: its connection string [default: one that is made for the
    /// measurement, on the embedded server]
    #[arg(
        long = "url",
        id = "url",
        value_name = "URL",
        conflicts_with = "private"
    )]
    pub postgres: Option<String>,
    /// How it is run.
    #[command(flatten)]
    pub run: RunArgs,
}

/// Queries of TPC-H.
pub(crate) const QUERIES_MAX: u32 = 22;

/// What is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ViewsScenario {
    /// Refreshes of shapes of queries at rates of changes, what writers pay, how far behind a view is
    #[default]
    Matrix,
    /// The 22 queries of TPC-H, refreshed after orders have come and gone
    Tpch,
    /// Ten views that read each other, refreshed together
    Chain,
    /// Many views of tables of their own, all refreshed at a time
    Fan,
    /// Many views of which nothing changes: processor time
    Idle,
    /// How far behind a view is, and how many rows can be committed beside it
    Lag,
    /// What writers pay, kind by kind, one by one and beside each other
    Overhead,
    /// Refreshes of rows of sixty columns
    Wide,
}

impl ViewsScenario {
    /// As it is typed.
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

/// What a view computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum ViewsShape {
    /// Every row of a table
    Scan,
    /// Half of its rows
    Filter,
    /// Sums and counts of five groups
    Aggregate,
    /// Every row with one of another table
    Join,
    /// Sums and counts of a join
    JoinAggregate,
    /// The rank of every row among those of its group
    Window,
    /// Every row with what a subquery computes for it
    Lateral,
    /// Sums and counts by a name, with another table
    Cte,
    /// The rows of two queries
    UnionAll,
    /// Rows for which another table has one
    Exists,
    /// Every row with one of another table, if there is one
    OuterJoin,
    /// The first hundred of an order
    TopK,
    /// Every row of a table of sixty columns
    Wide,
}

impl ViewsShape {
    /// As it is typed.
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

/// A part of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ViewsPart {
    /// What a refresh takes
    Refresh,
    /// What a write takes longer for a view
    Write,
    /// How long a row takes from its commit to the view
    Lag,
}

impl ViewsPart {
    /// As it is typed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Refresh => "refresh",
            Self::Write => "write",
            Self::Lag => "lag",
        }
    }
}

/// Reads a percentage.
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
