//! `egret view …`

use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand};
use egret_base::settings::ConfigDuration;

use super::value_parsers::value;

/// Subcommands of `egret view …`.
#[derive(Debug, Subcommand)]
pub enum ViewCommand {
    /// Create a view and fill it
    Create(Box<CreateView>),
    /// List views
    #[command(after_help = "Example: egret view list --database flights")]
    List {
        /// Only views of this database [default: all databases]
        #[arg(long, short)]
        database: Option<String>,
    },
    /// Show the dependencies between views, and the state of each view
    #[command(after_help = "Example: egret view graph")]
    Graph {
        /// Only views of this database [default: all databases]
        #[arg(long, short)]
        database: Option<String>,
    },
    /// Show the state of a view, its lag, and the cost of its refreshes
    #[command(after_help = "Example: egret view show late_by_carrier")]
    Show(ViewArgs),
    /// Explain the maintenance of a view, or of a query: operators, stored results, SQL
    #[command(
        after_help = "Example: egret view explain --sql 'SELECT carrier, count(*) FROM flights GROUP BY carrier'"
    )]
    Explain(ExplainView),
    /// Check whether a query can be maintained incrementally, without creating a view
    #[command(
        after_help = "Example: egret view validate --sql 'SELECT carrier, count(*) FROM flights GROUP BY carrier'"
    )]
    #[command(group(ArgGroup::new("query").args(["sql", "file"]).required(true)))]
    Validate {
        /// The query, as text or in a file.
        #[command(flatten)]
        query: ViewQuery,
        /// Database of the view [default: the only one]
        #[arg(long, short)]
        database: Option<String>,
    },
    /// Refresh a view now
    #[command(after_help = "Example: egret view refresh late_by_carrier")]
    Refresh {
        /// Selects the view by its name.
        #[command(flatten)]
        view: ViewArgs,
        /// Store and print the plans of the statements, each of which is executed twice
        #[arg(long)]
        explain: bool,
    },
    /// Refresh a view and compare it with its query; exit with 1 if they differ
    #[command(after_help = "Example: egret view verify late_by_carrier")]
    Verify(ViewArgs),
    /// Follow the changes of a view: deleted rows (-) and inserted rows (+)
    #[command(after_help = "Example: egret view tail big_spenders --after 1795415663891")]
    Tail {
        /// Selects the view by its name.
        #[command(flatten)]
        view: ViewArgs,
        /// Number of the change set to start after [default: the latest]
        #[arg(long, value_name = "NUMBER")]
        after: Option<i64>,
        /// Number of change sets after which to exit [default: no limit]
        #[arg(long, value_name = "CHANGE SETS")]
        limit: Option<u64>,
    },
    /// Change the mode, schedule, suspension or change retention of a view
    #[command(after_help = "Example: egret view alter late_by_carrier --lag 1min")]
    Alter(Alter),
    /// Rebuild the storage of a view from its query, and end a suspension
    #[command(after_help = "Example: egret view repair late_by_carrier")]
    Repair(ViewArgs),
    /// Drop a view that no other view reads
    #[command(after_help = "Example: egret view drop late_by_carrier")]
    Drop(ViewArgs),
    /// Grant roles the SQL functions of views, such as egret.create_view and egret.refresh
    #[command(after_help = "Example: egret view allow app --database flights")]
    Allow {
        /// Roles to grant to; public stands for all roles
        #[arg(required = true, value_name = "ROLE")]
        roles: Vec<String>,
        /// Database of the view [default: the only one]
        #[arg(long, short)]
        database: Option<String>,
    },
    /// List the latest refreshes of a view that found changes or failed
    #[command(after_help = "Example: egret view history late_by_carrier --limit 5")]
    History {
        /// Selects the view by its name.
        #[command(flatten)]
        view: ViewArgs,
        /// Maximum number of refreshes
        #[arg(long, default_value_t = 20, value_name = "REFRESHES")]
        limit: u32,
        /// Show the plans that `egret view refresh --explain` has stored instead
        #[arg(long)]
        plans: bool,
    },
}

/// A view by its name.
#[derive(Debug, Args)]
pub struct ViewArgs {
    /// Name of the view; SCHEMA.NAME if it is not in schema public
    pub name: String,
    /// Database of the view [default: the only one that has a view of this name]
    #[arg(long, short)]
    pub database: Option<String>,
}

/// A query, as text or in a file.
#[derive(Debug, Args)]
#[group(skip)]
pub struct ViewQuery {
    /// Query: one SELECT statement
    #[arg(long, value_name = "QUERY")]
    pub sql: Option<String>,
    /// File that holds the query; `-` for standard input
    #[arg(long, value_name = "FILE", conflicts_with = "sql")]
    pub file: Option<PathBuf>,
}

/// Schedule of the refreshes of a view.
#[derive(Debug, Args)]
#[group(skip)]
pub struct ScheduleArgs {
    /// Maximum lag behind the tables, e.g. 5s
    #[arg(long, value_name = "DURATION", value_parser = value::<ConfigDuration>, group = "when")]
    pub lag: Option<ConfigDuration>,
    /// Cron expression with five fields, in UTC, at whose ticks the view is refreshed
    #[arg(long, value_name = "EXPRESSION", group = "when")]
    pub cron: Option<String>,
    /// Refresh the view only on request
    #[arg(long, group = "when")]
    pub manual: bool,
}

/// Modes of refreshing a view.
const MODES: [&str; 4] = ["auto", "incremental", "full", "immediate"];

/// Arguments of `egret view create …`.
#[derive(Debug, Args)]
#[command(
    group(ArgGroup::new("query").args(["sql", "file"]).required(true)),
    after_help = "Example: egret view create origins --lag 5s --sql 'SELECT origin, count(*) FROM flights GROUP BY 1'"
)]
pub struct CreateView {
    /// Name of the view; SCHEMA.NAME for another schema than public
    pub name: String,
    /// The query, as text or in a file.
    #[command(flatten)]
    pub query: ViewQuery,
    /// Mode of refreshing: from the changes (incremental), by recomputing the query (full), the
    /// faster of both (auto), or within the writing transactions (immediate) [default: auto]
    #[arg(long, value_parser = MODES)]
    pub mode: Option<String>,
    /// Schedule of refreshes; without one, with the views that read the view, or after
    /// `views.default_lag`.
    #[command(flatten)]
    pub when: ScheduleArgs,
    /// Columns of an index to create; may be repeated
    #[arg(long = "index", value_name = "COLUMN[,COLUMN]")]
    pub indexes: Vec<String>,
    /// Retention of change sets for followers [default: views.change_sets_kept, from the first
    /// follower on]
    #[arg(long, value_name = "DURATION", value_parser = value::<ConfigDuration>)]
    pub keep_changes: Option<ConfigDuration>,
    /// Queue that receives a task for every change set
    #[arg(long, value_name = "QUEUE")]
    pub on_change_enqueue: Option<String>,
    /// Role whose privileges the query has; requires scope admin [default: the role that Egret
    /// connects as, or egret_views if that is a superuser]
    #[arg(long, value_name = "ROLE")]
    pub owner: Option<String>,
    /// Database of the view [default: the only one]
    #[arg(long, short)]
    pub database: Option<String>,
}

/// Arguments of `egret view explain …`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("query").args(["name", "sql", "file"]).required(true)))]
pub struct ExplainView {
    /// Name of the view; SCHEMA.NAME if it is not in schema public
    pub name: Option<String>,
    /// Query to explain, unless a view is named.
    #[command(flatten)]
    pub query: ViewQuery,
    /// Database of the view [default: the only one that has a view of this name, or the only one]
    #[arg(long, short)]
    pub database: Option<String>,
}

/// Arguments of `egret view alter …`.
#[derive(Debug, Args)]
#[command(group(
    ArgGroup::new("change")
        .args(["mode", "lag", "cron", "manual", "default_schedule", "suspend", "resume", "keep_changes", "on_change_enqueue"])
        .required(true)
        .multiple(true)
))]
pub struct Alter {
    /// Selects the view by its name.
    #[command(flatten)]
    pub view: ViewArgs,
    /// Mode of refreshing: from the changes (incremental), by recomputing the query (full), the
    /// faster of both (auto), or within the writing transactions (immediate)
    #[arg(long, value_parser = MODES)]
    pub mode: Option<String>,
    /// Schedule of the refreshes.
    #[command(flatten)]
    pub when: ScheduleArgs,
    /// Refresh the view with the views that read it, or without any after `views.default_lag`
    #[arg(long, group = "when")]
    pub default_schedule: bool,
    /// Suspend the refreshes of the view
    #[arg(long, conflicts_with = "resume")]
    pub suspend: bool,
    /// Resume the refreshes of the view
    #[arg(long)]
    pub resume: bool,
    /// Retention of change sets for followers, or `off` to keep none
    #[arg(long, value_name = "DURATION|off", value_parser = kept)]
    pub keep_changes: Option<ChangeRetention>,
    /// Queue that receives a task for every change set, or `none`
    #[arg(long, value_name = "QUEUE|none")]
    pub on_change_enqueue: Option<String>,
}

/// How long changes of a view are kept for its followers.
#[derive(Clone, Copy, Debug)]
pub enum ChangeRetention {
    /// Kept for this duration.
    For(ConfigDuration),
    /// Changes are not kept.
    Off,
}

fn kept(text: &str) -> Result<ChangeRetention, String> {
    match text {
        "off" => Ok(ChangeRetention::Off),
        text => value::<ConfigDuration>(text).map(ChangeRetention::For),
    }
}
