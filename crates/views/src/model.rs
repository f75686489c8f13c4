//! Types that describe views: modes, schedules, names, definitions and reports.

mod limits;
mod maker;

use std::fmt;
use std::str::FromStr;

use egret_base::settings::{ConfigDuration, Value};

use crate::core::expression::quote_identifier;

pub(crate) use limits::Limits;
pub use maker::{Grants, MakerRights, ReadableViews, ViewFilter};

/// How a view is refreshed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Incremental or full, whichever is estimated to take less.
    #[default]
    Auto,
    /// Applies the changes of the tables that the view reads.
    Incremental,
    /// Recomputes the query; writes only rows that differ.
    Full,
    /// Applies changes within the transaction that makes them.
    Immediate,
}

/// When a view is refreshed. A view without a schedule is refreshed when a view that reads it is;
/// one in mode immediate has no schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// So often that the view is never further behind than this.
    Lag(ConfigDuration),
    /// At the times of a cron expression with five fields, in UTC.
    Cron(String),
    /// Only on an explicit request.
    Manual,
}

/// State of a view's maintenance.
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
    /// Schema in which the view is.
    pub schema: String,
    /// Name within the schema.
    pub name: String,
}

/// Reason why a text is not a valid word or name, as a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseError(pub String);

impl Mode {
    /// The word of the mode in the API, the command line and the catalogue.
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
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let all = [Self::Auto, Self::Incremental, Self::Full, Self::Immediate];
        let found = all.into_iter().find(|mode| mode.as_str() == text);
        found.ok_or_else(|| {
            ParseError(format!("`{text}` is not a mode: use auto, incremental, full or immediate"))
        })
    }
}

impl State {
    /// The word of the state in the API, the command line and the catalogue.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Active => "active",
            Self::Failing => "failing",
            Self::Suspended => "suspended",
        }
    }

    /// The state of a word; [`Self::New`] for any other.
    pub(crate) fn from_word(word: &str) -> Self {
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
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let text = text.trim();
        if text == "manual" {
            return Ok(Self::Manual);
        }
        if text.split_whitespace().count() == 5 {
            return Ok(Self::Cron(text.to_owned()));
        }
        match ConfigDuration::read(text) {
            Ok(lag) => Ok(Self::Lag(lag)),
            Err(_) => Err(ParseError(format!(
                "`{text}` is not a schedule: give the maximum lag, such as `5s`, a cron \
                 expression with five fields, or `manual`"
            ))),
        }
    }
}

impl ViewName {
    /// Schema and name, quoted for SQL.
    pub(crate) fn sql(&self) -> String {
        format!("{}.{}", quote_identifier(&self.schema), quote_identifier(&self.name))
    }
}

/// In double quotes where a part has a dot or a quote.
impl fmt::Display for ViewName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quote_if_needed = |name: &str| {
            if name.contains(['.', '"']) {
                format!("\"{}\"", name.replace('"', "\"\""))
            } else {
                name.to_owned()
            }
        };
        write!(f, "{}.{}", quote_if_needed(&self.schema), quote_if_needed(&self.name))
    }
}

/// `name`, which is in schema `public`, or `schema.name`; with double quotes as in SQL, or taken
/// literally.
impl FromStr for ViewName {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let refuse =
            |reason: &str| Err(ParseError(format!("`{text}` is not a valid view name: {reason}")));
        let mut parts = vec![String::new()];
        let mut is_quoted = false;
        let mut characters = text.chars().peekable();
        while let Some(letter) = characters.next() {
            let part = parts.last_mut().expect("there is at least one part");
            match letter {
                '"' if is_quoted && characters.peek() == Some(&'"') => {
                    characters.next();
                    part.push('"');
                }
                '"' => is_quoted = !is_quoted,
                '.' if !is_quoted => parts.push(String::new()),
                '\0' => return refuse("it contains a NUL character"),
                letter => part.push(letter),
            }
        }
        if is_quoted {
            return refuse("a quote is not closed");
        }
        let (schema, name) = match parts.as_slice() {
            [name] => ("public", name),
            [schema, name] => (schema.as_str(), name),
            _ => return refuse("it has more parts than a schema and a name"),
        };
        for part in [schema, name] {
            if part.is_empty() || part.len() > NAME_BYTES_MAX {
                return refuse("each part must have 1 to 63 bytes");
            }
        }
        if schema == "egret" {
            return refuse("schema egret is reserved for Egret");
        }
        Ok(Self { schema: schema.to_owned(), name: name.clone() })
    }
}

/// PostgreSQL's own bound on names, in bytes.
pub const NAME_BYTES_MAX: usize = 63;

/// Definition of a view that is to be created.
#[derive(Clone, Debug)]
pub struct NewView {
    /// Schema and name under which users read the view.
    pub name: ViewName,
    /// The query, one SELECT.
    pub query: String,
    /// How the view is refreshed.
    pub mode: Mode,
    /// When it is refreshed; none: when a view that reads it is, or after the default lag.
    pub schedule: Option<Schedule>,
    /// Indexes on the view, each a list of column names.
    pub indexes: Vec<Vec<String>>,
    /// Role whose rights the query has; none: the role as which Egret connects.
    pub owner: Option<String>,
    /// Rights of the view's creator.
    pub rights: MakerRights,
    /// Retention and queue of its change sets.
    pub follow_settings: FollowSettings,
}

/// Settings for followers of a view: retention and queue of its change sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FollowSettings {
    /// Retention of change sets; none: the default where there is a queue, else there are no change
    /// sets.
    pub retention: Option<ConfigDuration>,
    /// Queue that gets a task for each change set.
    pub queue: Option<String>,
}

/// What an alteration changes in a view. A field that is none leaves its setting as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Alteration {
    /// How the view is refreshed.
    pub mode: Option<Mode>,
    /// When it is refreshed; `Some(None)`: when a view that reads it is, or after the default lag.
    pub schedule: Option<Option<Schedule>>,
    /// Whether the view is maintained: false suspends it, true ends any suspension.
    pub is_active: Option<bool>,
    /// Retention of change sets; `Some(None)`: there are none any more.
    pub retention: Option<Option<ConfigDuration>>,
    /// Queue that gets a task for each change set; `Some(None)`: none.
    pub queue: Option<Option<String>>,
}

/// A view with its settings, state and figures, as users see it.
#[derive(Clone, Debug, PartialEq)]
pub struct ViewReport {
    /// The database that it is in.
    pub database: String,
    /// Schema and name of the view.
    pub name: ViewName,
    /// The query as the caller wrote it.
    pub query: String,
    /// Role whose rights the query has.
    pub owner: String,
    /// How the view is refreshed.
    pub mode: Mode,
    /// When it is refreshed; none: with the views that read it.
    pub schedule: Option<Schedule>,
    /// State of the view's maintenance.
    pub state: State,
    /// Why the view fails or is suspended.
    pub reason: Option<String>,
    /// Failed refreshes since the last successful one.
    pub failures: u32,
    /// The tables and views that it reads, as `schema.name`.
    pub reads: Vec<String>,
    /// The views that read it.
    pub read_by: Vec<String>,
    /// Snapshot that the view shows, as text of `pg_snapshot`; none until it is filled.
    pub snapshot: Option<String>,
    /// Last moment at which the view was known to be fresh, in milliseconds of Unix time.
    pub fresh_at_ms: Option<i64>,
    /// Whether the query depends on the clock.
    pub has_clock: bool,
    /// Whether the view is known to be fresh: no source has changed since, and its query does not
    /// depend on the clock.
    pub is_current: bool,
    /// Recorded change rows that the view has not applied yet.
    pub waiting_changes: i64,
    /// Size of its storage in bytes, indexes included.
    pub size_bytes: i64,
    /// Durations of its latest successful refreshes; none if there were none.
    pub durations: Option<Durations>,
    /// Its retained change sets; none: the view is not followed.
    pub changes: Option<KeptChanges>,
    /// The last refresh that changed something or failed.
    pub last_refresh: Option<RefreshReport>,
    /// Indexes that the view lacks; none if they were not determined, as in a list, or could not
    /// be.
    pub advice: Option<Vec<Advice>>,
}

/// The retained change sets of a view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptChanges {
    /// Retention of a change set.
    pub retention: ConfigDuration,
    /// Number of the latest change set.
    pub sequence: i64,
    /// Number of retained change sets.
    pub sets: i64,
    /// Size of their rows in bytes.
    pub size_bytes: i64,
    /// Queue that gets a task for each change set.
    pub queue: Option<String>,
    /// Retained change sets without a task yet.
    pub waiting_tasks: i64,
}

/// A change set of a view, or one page of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangePage {
    /// Number of the change set.
    pub sequence: i64,
    /// When the change set was written, in milliseconds of Unix time.
    pub at_ms: i64,
    /// Snapshot that the view shows after it, as text of `pg_snapshot`.
    pub snapshot: String,
    /// Reason of a reset: the follower must read the whole view again.
    pub reset: Option<String>,
    /// Rows of the whole change set.
    pub changes: i64,
    /// Rows of this page, removed ones first; equal rows are one, with the sum of their weights.
    pub rows: Vec<ChangedRow>,
    /// Whether the change set has more pages.
    pub has_more: bool,
}

/// A row with the change of its count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedRow {
    /// How many more copies of the row there are; negative: fewer.
    pub weight: i64,
    /// The row as a JSON object, on one line.
    pub content: String,
}

/// An index that a view lacks: without it each refresh scans the whole table, however little
/// changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// The table, as `schema.name`.
    pub table: String,
    /// Columns of the table that the index needs, in order.
    pub columns: Vec<String>,
    /// The statement that creates the index.
    pub statement: String,
    /// Which lookups need the index, in words.
    pub reason: String,
    /// Estimated rows of the table; none where that is not known.
    pub rows: Option<i64>,
}

/// Durations of the refreshes of a view, by phase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Durations {
    /// Time spent waiting for locks.
    pub waiting: Quantiles,
    /// Time spent computing and writing.
    pub applying: Quantiles,
    /// The remaining time: reading the view's status, and refreshing the views of its component
    /// that come before it. The commit, which also stores these figures, is in none of them.
    pub other: Quantiles,
    /// Duration of whole refreshes, commit excluded.
    pub total: Quantiles,
}

/// Median and 95th percentile of durations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantiles {
    /// The median, in milliseconds.
    pub p50_ms: f64,
    /// The 95th percentile, in milliseconds.
    pub p95_ms: f64,
}

/// Report of one refresh of a view.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RefreshReport {
    /// When the refresh began, in milliseconds of Unix time.
    pub at_ms: i64,
    /// `nothing` (nothing had changed), `incremental`, `full`, or `failed`.
    pub outcome: String,
    /// Why it was incremental or full, in words.
    pub strategy_reason: String,
    /// The snapshot that it reached, as `pg_snapshot` is written.
    pub snapshot: String,
    /// Recorded change rows that were applied; an update counts as two.
    pub changes: i64,
    /// Rows that were added to the view.
    pub added: i64,
    /// Rows that were changed in place.
    pub changed: i64,
    /// Rows that were removed from the view.
    pub removed: i64,
    /// Duration of the whole refresh in milliseconds.
    pub took_ms: f64,
    /// Time spent waiting for locks, in milliseconds.
    pub waited_ms: f64,
    /// Time spent computing and writing, in milliseconds.
    pub applied_ms: f64,
    /// Error message of a failed refresh.
    pub error: Option<String>,
    /// Plans of its statements, as `EXPLAIN` prints them, if they were asked for.
    pub plans: Option<String>,
}

/// How a view is maintained: of an existing one, or of a query that is validated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The query with every name resolved.
    pub definition: String,
    /// Names and types of its columns.
    pub columns: Vec<(String, String)>,
    /// The tables and views that it reads, as `schema.name`.
    pub reads: Vec<String>,
    /// The stages of the view, in the order in which they are maintained.
    pub stages: Vec<StageExplanation>,
    /// The indexes that the view lacks.
    pub advice: Vec<Advice>,
}

/// One stage of a view, explained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageExplanation {
    /// Name of the stage's table.
    pub table: String,
    /// Its operators as a tree, one a line, indented by two spaces a level.
    pub operators: String,
    /// Its columns and how they are maintained, in words, one a line.
    pub column_maintenance: Vec<String>,
    /// The statement that applies changes of all sources.
    pub sql: String,
}

/// Result of comparing a view with its query, in numbers of rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verification {
    /// Snapshot at which they were compared, as text of `pg_snapshot`.
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
