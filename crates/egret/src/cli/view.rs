//! `egret view …`

use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand};
use egret_base::settings::Span;

use super::value;

/// `egret view …`
#[derive(Debug, Subcommand)]
pub enum View {
    /// Make a view and fill it
    Create(Box<Create>),
    /// List the views
    List {
        /// Only those of this database
        #[arg(long, short)]
        database: Option<String>,
    },
    /// Show which views read which, and how each of them stands
    Graph {
        /// Only those of this database
        #[arg(long, short)]
        database: Option<String>,
    },
    /// Show a view: its state, how far it is behind, what its refreshes take
    Show(Named),
    /// Show how a view is kept, or how one of a query would be: operators, what is kept, SQL
    Explain(Explain),
    /// Say whether a view of a query can be kept, and if not, why; makes nothing
    #[command(group(ArgGroup::new("query").args(["sql", "file"]).required(true)))]
    Validate {
        /// Its query.
        #[command(flatten)]
        query: Query,
        /// The database [default: the only one, where there is one]
        #[arg(long, short)]
        database: Option<String>,
    },
    /// Bring a view up to date now
    Refresh {
        /// Which view.
        #[command(flatten)]
        view: Named,
        /// Keep the plans of its statements and show them; each statement is done twice for that
        #[arg(long)]
        explain: bool,
    },
    /// Bring a view up to date and compare it with its query; exit code 1 when they differ
    Verify(Named),
    /// Show what refreshes change in a view as they do: rows that go (-) and come (+)
    Tail {
        /// Which view.
        #[command(flatten)]
        view: Named,
        /// Go on after the change set with this number [default: what changes from now on]
        #[arg(long, value_name = "NUMBER")]
        after: Option<i64>,
        /// End after this many change sets
        #[arg(long, value_name = "CHANGE SETS")]
        limit: Option<u64>,
    },
    /// Change how or when a view is refreshed, or whether it is, or what is kept of its changes
    Alter(Alter),
    /// Make a view's storage anew from its query; ends a suspension
    Repair(Named),
    /// Drop a view that no other view reads
    Drop(Named),
    /// Let roles ask for views from SQL: egret.create_view, egret.refresh and the like
    Allow {
        /// Roles; public is everybody
        #[arg(required = true, value_name = "ROLE")]
        roles: Vec<String>,
        /// The database [default: the only one, where there is one]
        #[arg(long, short)]
        database: Option<String>,
    },
    /// List the latest refreshes of a view that found changes or failed
    History {
        /// Which view.
        #[command(flatten)]
        view: Named,
        /// How many at most
        #[arg(long, default_value_t = 20, value_name = "REFRESHES")]
        limit: u32,
        /// Show the plans that were kept of them instead, by egret view refresh --explain
        #[arg(long)]
        plans: bool,
    },
}

/// A view by its name.
#[derive(Debug, Args)]
pub struct Named {
    /// The view; SCHEMA.NAME where it is not in schema public
    pub name: String,
    /// The database [default: the only one that has such a view]
    #[arg(long, short)]
    pub database: Option<String>,
}

/// A query, as text or in a file.
#[derive(Debug, Args)]
#[group(skip)]
pub struct Query {
    /// The query, one SELECT
    #[arg(long, value_name = "QUERY")]
    pub sql: Option<String>,
    /// A file that holds the query; `-` for standard input
    #[arg(long, value_name = "FILE", conflicts_with = "sql")]
    pub file: Option<PathBuf>,
}

/// When a view is refreshed.
#[derive(Debug, Args)]
#[group(skip)]
pub struct When {
    /// So that it is never further behind than this, e.g. 5s
    #[arg(long, value_name = "DURATION", value_parser = value::<Span>, group = "when")]
    pub lag: Option<Span>,
    /// At the times of a cron expression with five fields, in UTC
    #[arg(long, value_name = "EXPRESSION", group = "when")]
    pub cron: Option<String>,
    /// Only when it is asked for
    #[arg(long, group = "when")]
    pub manual: bool,
}

/// The ways in which a view is brought up to date.
const MODES: [&str; 4] = ["auto", "incremental", "full", "immediate"];

/// `egret view create …`
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("query").args(["sql", "file"]).required(true)))]
pub struct Create {
    /// Where it will be read; SCHEMA.NAME for another schema than public
    pub name: String,
    /// Its query.
    #[command(flatten)]
    pub query: Query,
    /// By what changed, by computing all of it anew, by whichever takes less, or within the transactions that write [default: auto]
    #[arg(long, value_parser = MODES)]
    pub mode: Option<String>,
    /// When it is refreshed; without any, with the views that read it, or after `views.default_lag`.
    #[command(flatten)]
    pub when: When,
    /// Columns that get an index; may be repeated
    #[arg(long = "index", value_name = "COLUMN[,COLUMN]")]
    pub indexes: Vec<String>,
    /// How long what changes in it is kept for those who follow it [default: from when somebody does, for `views.change_sets_kept`]
    #[arg(long, value_name = "DURATION", value_parser = value::<Span>)]
    pub keep_changes: Option<Span>,
    /// The queue that gets a task for every change
    #[arg(long, value_name = "QUEUE")]
    pub on_change_enqueue: Option<String>,
    /// The role whose rights the query has; takes an admin [default: the one that Egret connects as]
    #[arg(long, value_name = "ROLE")]
    pub owner: Option<String>,
    /// The database [default: the only one, where there is one]
    #[arg(long, short)]
    pub database: Option<String>,
}

/// `egret view explain …`
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("query").args(["name", "sql", "file"]).required(true)))]
pub struct Explain {
    /// The view; SCHEMA.NAME where it is not in schema public
    pub name: Option<String>,
    /// A query instead.
    #[command(flatten)]
    pub query: Query,
    /// The database [default: the only one that has such a view, or the only one there is]
    #[arg(long, short)]
    pub database: Option<String>,
}

/// `egret view alter …`
#[derive(Debug, Args)]
#[command(group(
    ArgGroup::new("change")
        .args(["mode", "lag", "cron", "manual", "default_schedule", "suspend", "resume", "keep_changes", "on_change_enqueue"])
        .required(true)
        .multiple(true)
))]
pub struct Alter {
    /// Which view.
    #[command(flatten)]
    pub view: Named,
    /// By what changed, by computing all of it anew, by whichever takes less, or within the transactions that write
    #[arg(long, value_parser = MODES)]
    pub mode: Option<String>,
    /// When it is refreshed.
    #[command(flatten)]
    pub when: When,
    /// With the views that read it, or after `views.default_lag` where there are none
    #[arg(long, group = "when")]
    pub default_schedule: bool,
    /// Leave it as it is until it is resumed
    #[arg(long, conflicts_with = "resume")]
    pub suspend: bool,
    /// Refresh it again
    #[arg(long)]
    pub resume: bool,
    /// How long what changes in it is kept for those who follow it; off: not at all
    #[arg(long, value_name = "DURATION|off", value_parser = kept)]
    pub keep_changes: Option<Kept>,
    /// The queue that gets a task for every change; none: no queue
    #[arg(long, value_name = "QUEUE|none")]
    pub on_change_enqueue: Option<String>,
}

/// How long changes are kept.
#[derive(Clone, Copy, Debug)]
pub enum Kept {
    /// So long.
    For(Span),
    /// They are not.
    Off,
}

fn kept(text: &str) -> Result<Kept, String> {
    match text {
        "off" => Ok(Kept::Off),
        text => value::<Span>(text).map(Kept::For),
    }
}
