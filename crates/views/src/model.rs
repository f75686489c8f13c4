//! The nouns of views.

mod maker;

use std::fmt;
use std::str::FromStr;

use egret_base::settings::{Span, Value};

pub use maker::{Grants, MakerRights, ReadableViews, ViewFilter};

/// How a view is brought up to date.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Whatever takes less, each time.
    #[default]
    Auto,
    /// By what changed.
    Incremental,
    /// By computing all of it anew; only what differs is written.
    Full,
    /// By what changed, within the transaction that changes it.
    Immediate,
}

/// When a view is brought up to date. One without a schedule is when a view that reads it is; one in mode immediate has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// So that it is never further behind than this.
    Lag(Span),
    /// At the times of a cron expression with five fields, in UTC.
    Cron(String),
    /// When it is asked for.
    Manual,
}

/// What a view is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It has not been filled yet.
    New,
    /// It is kept fresh.
    Active,
    /// Its last refresh failed; it shows what it showed before, and is tried again.
    Failing,
    /// It is not tried any more until it is repaired or altered; it shows what it showed last.
    Suspended,
}

/// Where a view is: its schema and its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ViewName {
    /// The schema.
    pub schema: String,
    /// The name in it.
    pub name: String,
}

/// Why a text is none of the words, or not a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotUnderstood(pub String);

impl Mode {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Incremental => "incremental",
            Self::Full => "full",
            Self::Immediate => "immediate",
        }
    }
}

impl FromStr for Mode {
    type Err = NotUnderstood;

    fn from_str(text: &str) -> Result<Self, NotUnderstood> {
        let all = [Self::Auto, Self::Incremental, Self::Full, Self::Immediate];
        let found = all.into_iter().find(|mode| mode.as_str() == text);
        found.ok_or_else(|| {
            NotUnderstood(format!(
                "`{text}` is no mode: there are auto, incremental, full and immediate"
            ))
        })
    }
}

impl State {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Active => "active",
            Self::Failing => "failing",
            Self::Suspended => "suspended",
        }
    }

    /// What a word says; [`Self::New`] for any other.
    pub fn named(word: &str) -> Self {
        let all = [Self::Active, Self::Failing, Self::Suspended];
        let found = all.into_iter().find(|state| state.as_str() == word);
        found.unwrap_or(Self::New)
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lag(lag) => f.write_str(&lag.show()),
            Self::Cron(cron) => f.write_str(cron),
            Self::Manual => f.write_str("manual"),
        }
    }
}

/// `manual`, a duration such as `5s`, or a cron expression.
impl FromStr for Schedule {
    type Err = NotUnderstood;

    fn from_str(text: &str) -> Result<Self, NotUnderstood> {
        let text = text.trim();
        if text == "manual" {
            return Ok(Self::Manual);
        }
        if text.split_whitespace().count() == 5 {
            return Ok(Self::Cron(text.to_owned()));
        }
        match Span::read(text) {
            Ok(lag) => Ok(Self::Lag(lag)),
            Err(_) => Err(NotUnderstood(format!(
                "`{text}` is no schedule: give the lag that is allowed, such as `5s`, a cron expression with five fields, or `manual`"
            ))),
        }
    }
}

/// With double quotes where it would be read as something else without.
impl fmt::Display for ViewName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = |name: &str| match name.contains(['.', '"']) {
            true => format!("\"{}\"", name.replace('"', "\"\"")),
            false => name.to_owned(),
        };
        write!(f, "{}.{}", part(&self.schema), part(&self.name))
    }
}

/// `name`, which is in schema `public`, or `schema.name`; with double quotes as in SQL, or taken literally.
impl FromStr for ViewName {
    type Err = NotUnderstood;

    fn from_str(text: &str) -> Result<Self, NotUnderstood> {
        let refuse = |why: &str| {
            Err(NotUnderstood(format!(
                "`{text}` is no name of a view: {why}"
            )))
        };
        let mut parts = vec![String::new()];
        let mut is_quoted = false;
        let mut letters = text.chars().peekable();
        while let Some(letter) = letters.next() {
            let part = parts.last_mut().expect("there is one at least");
            match letter {
                '"' if is_quoted && letters.peek() == Some(&'"') => {
                    letters.next();
                    part.push('"');
                }
                '"' => is_quoted = !is_quoted,
                '.' if !is_quoted => parts.push(String::new()),
                '\0' => return refuse("it has a NUL"),
                letter => part.push(letter),
            }
        }
        if is_quoted {
            return refuse("a quote is not closed");
        }
        let (schema, name) = match parts.as_slice() {
            [name] => ("public", name),
            [schema, name] => (schema.as_str(), name),
            _ => return refuse("it has more than a schema and a name"),
        };
        for part in [schema, name] {
            if part.is_empty() || part.len() > NAME_BYTES_MAX {
                return refuse("each part has 1 to 63 bytes");
            }
        }
        if schema == "egret" {
            return refuse("what is in schema egret is Egret's own");
        }
        Ok(Self {
            schema: schema.to_owned(),
            name: name.clone(),
        })
    }
}

/// PostgreSQL's own bound on names.
pub const NAME_BYTES_MAX: usize = 63;

/// A view to be made.
#[derive(Clone, Debug)]
pub struct NewView {
    /// Where users will read it.
    pub name: ViewName,
    /// The query, one SELECT.
    pub query: String,
    /// How it is brought up to date.
    pub mode: Mode,
    /// When; none: when a view that reads it is, or after the default lag.
    pub schedule: Option<Schedule>,
    /// Lists of its columns, for each of which its storage gets an index.
    pub indexes: Vec<Vec<String>>,
    /// The role that it is of, whose rights its query has; none: the one that Egret connects as.
    pub owner: Option<String>,
    /// What its maker may have it read.
    pub rights: MakerRights,
    /// What is kept of its changes.
    pub following: Following,
}

/// What is kept of the changes of a view, for those who follow it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Following {
    /// For how long change sets are kept; none: they are not, or for the usual time where tasks are made of them.
    pub kept: Option<Span>,
    /// The queue that gets a task for each.
    pub queue: Option<String>,
}

/// What changes of a view. What is none stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Alteration {
    /// How it is brought up to date.
    pub mode: Option<Mode>,
    /// When; `Some(None)`: when a view that reads it is, or after the default lag.
    pub schedule: Option<Option<Schedule>>,
    /// Whether it is kept fresh: false suspends it, true ends any suspension.
    pub is_active: Option<bool>,
    /// For how long change sets are kept; `Some(None)`: they are not.
    pub kept: Option<Option<Span>>,
    /// The queue that gets a task for each; `Some(None)`: none.
    pub queue: Option<Option<String>>,
}

/// A view as people see it.
#[derive(Clone, Debug, PartialEq)]
pub struct ViewReport {
    /// The database that it is in.
    pub database: String,
    /// Its name.
    pub name: ViewName,
    /// The query, as it was given.
    pub query: String,
    /// The role whose rights its query has.
    pub owner: String,
    /// How it is brought up to date.
    pub mode: Mode,
    /// When; none: by those that read it.
    pub schedule: Option<Schedule>,
    /// What it is doing.
    pub state: State,
    /// Why it fails or is suspended.
    pub reason: Option<String>,
    /// Refreshes that failed since one did not.
    pub failures: u32,
    /// The tables and views that it reads, as `schema.name`.
    pub reads: Vec<String>,
    /// The views that read it.
    pub read_by: Vec<String>,
    /// The snapshot that it shows, as `pg_snapshot` is written; none until it is filled.
    pub snapshot: Option<String>,
    /// When it was known to be up to date last, in milliseconds of Unix time.
    pub fresh_at_ms: Option<i64>,
    /// Whether what it shows changes as time passes.
    pub has_clock: bool,
    /// Whether nothing that it reads has changed since, nor has time passed that it depends on.
    pub is_current: bool,
    /// Rows of changes that it has not seen yet.
    pub waiting_changes: i64,
    /// What its storage takes, in bytes, indexes included.
    pub size_bytes: i64,
    /// What its latest refreshes took, without those that failed; none where there were none.
    pub durations: Option<Durations>,
    /// What is kept of its changes; none: it is not followed.
    pub changes: Option<KeptChanges>,
    /// The last refresh that changed something or failed.
    pub last: Option<RefreshReport>,
    /// The indexes that it lacks; none where it was not looked for them, as in a list, or could not be.
    pub advice: Option<Vec<Advice>>,
}

/// What is kept of the changes of a view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptChanges {
    /// For how long.
    pub kept: Span,
    /// The number of the last change set.
    pub sequence: i64,
    /// How many are kept.
    pub sets: i64,
    /// What is in them, in bytes.
    pub size_bytes: i64,
    /// The queue that gets a task for each.
    pub queue: Option<String>,
    /// How many of them have no task yet.
    pub waiting_tasks: i64,
}

/// What a refresh changed in a view, or a part of that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangePage {
    /// The number of the change set.
    pub sequence: i64,
    /// When it was made, in milliseconds of Unix time.
    pub at_ms: i64,
    /// The snapshot that the view shows with it, as `pg_snapshot` is written.
    pub snapshot: String,
    /// Why the view is to be read anew, and nothing that came before counts.
    pub reset: Option<String>,
    /// How many rows all of it has.
    pub changes: i64,
    /// Some of them, the removed ones first; those with the same values are one.
    pub rows: Vec<ChangedRow>,
    /// Whether there are more.
    pub has_more: bool,
}

/// A row that there is more often than before, or less.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedRow {
    /// How much more often; below zero: less.
    pub weight: i64,
    /// The row as a JSON object, in one line.
    pub content: String,
}

/// An index that a view lacks: without it a refresh reads a table as a whole, however little changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// The table, as `schema.name`.
    pub table: String,
    /// Its columns that the index is to be of.
    pub columns: Vec<String>,
    /// The statement that makes it.
    pub statement: String,
    /// What looks rows up by these columns, in words.
    pub reason: String,
    /// How many rows the table has, about; none where that is not known.
    pub rows: Option<i64>,
}

/// What refreshes took, phase by phase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Durations {
    /// Waiting for locks.
    pub waiting: Quantiles,
    /// Computing and writing.
    pub applying: Quantiles,
    /// The rest: looking at how the view stands, and those of its component that come before it. The commit, with which this is remembered, is in
    /// none of them.
    pub other: Quantiles,
    /// All of it.
    pub all: Quantiles,
}

/// What half of the times, and what 95 in a hundred, do not exceed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantiles {
    /// The median, in milliseconds.
    pub p50_ms: f64,
    /// The 95th percentile, in milliseconds.
    pub p95_ms: f64,
}

/// What a refresh did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RefreshReport {
    /// When it began, in milliseconds of Unix time.
    pub at_ms: i64,
    /// `nothing` (nothing had changed), `incremental`, `full`, or `failed`.
    pub outcome: String,
    /// What chose between incremental and full, in words.
    pub why: String,
    /// The snapshot that it reached, as `pg_snapshot` is written.
    pub snapshot: String,
    /// Rows of changes that it read, each side of an update being one.
    pub changes: i64,
    /// Rows that were added, …
    pub added: i64,
    /// … changed, …
    pub changed: i64,
    /// … and removed.
    pub removed: i64,
    /// How long it took, in milliseconds: all of it, …
    pub took_ms: f64,
    /// … waiting for locks, …
    pub waited_ms: f64,
    /// … and computing and writing.
    pub applied_ms: f64,
    /// What went wrong.
    pub error: Option<String>,
    /// The plans of its statements, as the server explains them, where that was asked for.
    pub plans: Option<String>,
}

/// What is known of a query before a view of it is made, or of one that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The query with every name resolved.
    pub definition: String,
    /// Its columns, with their types.
    pub columns: Vec<(String, String)>,
    /// The tables and views that it reads, as `schema.name`.
    pub reads: Vec<String>,
    /// The stages in which it is kept, from the first to the last.
    pub stages: Vec<StageExplanation>,
    /// The indexes that it lacks.
    pub advice: Vec<Advice>,
}

/// A stage of a view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageExplanation {
    /// Its table.
    pub table: String,
    /// Its operators as a tree, a line each, indented by two spaces a level.
    pub operators: String,
    /// What it keeps, and how that is maintained, in words; a line each.
    pub keeps: Vec<String>,
    /// The statement that applies changes of all that it reads.
    pub sql: String,
}

/// How the rows of a view compare with its query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verification {
    /// The snapshot at which they were compared.
    pub snapshot: String,
    /// Rows that both have.
    pub same: i64,
    /// Rows that the query has and the view does not.
    pub missing: i64,
    /// Rows that the view has and the query does not.
    pub extra: i64,
}

#[cfg(test)]
mod tests;
