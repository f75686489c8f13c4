//! Errors of the views engine, with their codes and kinds.

use egret_base::{CodedError, Kind};
use egret_postgres::PostgresError;
use egret_postgres::databases::DatabasesError;
use egret_postgres::tokio_postgres;
use egret_postgres::tokio_postgres::error::SqlState;

use crate::core::locate::locate_position;
use crate::core::refusal::Refusal;
use crate::model::ParseError;

/// An object that depends on a view, so that the view cannot be dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dependent {
    /// Another view of Egret's, by its name.
    View(String),
    /// A user's object, as PostgreSQL describes it; a trigger or rule with the statement that drops
    /// it.
    Object(String),
}

impl std::fmt::Display for Dependent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Self::View(text) | Self::Object(text)) = self;
        f.write_str(text)
    }
}

fn join_dependents(dependents: &[Dependent]) -> String {
    let dependents: Vec<String> = dependents.iter().map(ToString::to_string).collect();
    dependents.join(", ")
}

/// An error of the views engine.
#[derive(Debug, thiserror::Error)]
pub enum ViewsError {
    /// The query uses a construct that Egret does not support.
    #[error("{0}")]
    Refused(Refusal),
    /// The query or request involves an object that Egret does not support.
    #[error("{what} is not supported: {advice}")]
    Unsupported {
        /// The construct or object, named in the message.
        what: String,
        /// What the caller can do instead.
        advice: String,
    },
    /// The query calls code of a role that is not a superuser, but another role refreshes the view.
    #[error(
        "{what} belongs to a role that is not a superuser, and this view is refreshed by another role: {advice}"
    )]
    UntrustedCode {
        /// The function, and where it is called from.
        what: String,
        /// What the caller can do instead.
        advice: String,
    },
    /// PostgreSQL refuses the query.
    #[error("the query is refused by PostgreSQL: {}", describe_server_error(.error))]
    Query {
        /// The server's error, with its SQLSTATE.
        error: tokio_postgres::Error,
        /// Offset in the query, in bytes from 1, if the server reports one.
        position: Option<usize>,
    },
    /// A parameter is not valid.
    #[error("{what}: {reason}")]
    Invalid {
        /// Name of the parameter in messages.
        what: &'static str,
        /// Why the value is not valid.
        reason: String,
    },
    /// A view of this name exists.
    #[error("view `{name}` exists: choose another name, or drop it first")]
    Exists {
        /// The view as `schema.name`.
        name: String,
    },
    /// No view has this name.
    #[error("view `{name}` does not exist")]
    NotFound {
        /// The view as `schema.name`.
        name: String,
    },
    /// No database that accepts sessions has a view of this name, but some databases accept none.
    #[error(
        "view `{name}` was not found, and not every database accepts sessions at present: name its database"
    )]
    DatabaseUnreachable {
        /// The view as `schema.name`.
        name: String,
    },
    /// Several databases have a view of this name.
    #[error("view `{name}` exists in several databases, name one: {}", databases.join(", "))]
    Ambiguous {
        /// The view as `schema.name`.
        name: String,
        /// The databases that have a view of this name.
        databases: Vec<String>,
    },
    /// Other objects depend on the view: another view, a user's object, or a trigger on a function
    /// of the view.
    #[error(
        "other objects depend on view `{name}`, drop them first: {}",
        join_dependents(dependents)
    )]
    InUse {
        /// The view as `schema.name`.
        name: String,
        /// The objects that depend on the view.
        dependents: Vec<Dependent>,
    },
    /// Views are left in a database from which the engine is to be uninstalled.
    #[error("database `{database}` has {views} views: set `force` to delete them too")]
    ViewsRemain {
        /// Name of the database.
        database: String,
        /// Number of views in it.
        views: i64,
    },
    /// The database has as many views as `views.views_max` allows.
    #[error("the database already has {max} views (`views.views_max`)")]
    TooManyViews {
        /// Value of the setting `views.views_max`.
        max: u32,
    },
    /// The view has no change sets, and the caller may not start their retention.
    #[error(
        "the changes of view `{name}` are not kept: run `egret view alter {name} --keep-changes \
         1d`, or follow it with scope views:write"
    )]
    NotFollowed {
        /// The view as `schema.name`.
        name: String,
    },
    /// The change sets after the follower's position are not retained any more, or never were.
    #[error(
        "the changes of view `{name}` after {after} are not kept{}: read the view, and follow it \
         from there", first_kept_clause(.first)
    )]
    ChangesGone {
        /// The view as `schema.name`.
        name: String,
        /// Number of the last change set that the follower has.
        after: i64,
        /// Number of the first retained change set, if there is one.
        first: Option<i64>,
    },
    /// As many followers are connected as `views.followers_max` allows.
    #[error("views already have {max} followers (`views.followers_max`): retry later")]
    TooManyFollowers {
        /// Value of the setting `views.followers_max`.
        max: u32,
    },
    /// A privilege is missing.
    #[error("{what}; to allow it: {grant}")]
    PrivilegeMissing {
        /// What is not allowed, and to which role.
        what: String,
        /// The statement that grants it.
        grant: String,
    },
    /// The caller may not read a view that the query reads.
    #[error(
        "`{relation}` is or reads a view that this token may not read: a view of it would show \
         its rows; use a token that may read it"
    )]
    ReadDenied {
        /// The relation that the query names.
        relation: String,
    },
    /// Stored rows do not fit the recorded changes.
    #[error(
        "the stored state of the view does not match the changes in {rows} rows: the view is \
         rebuilt"
    )]
    Drifted {
        /// Number of the view.
        view: i64,
        /// Number of rows that do not fit.
        rows: i64,
    },
    /// A join of changes has more rows than `views.delta_rows_max`.
    #[error(
        "the changes lead to more than {rows_max} rows in a join (`views.delta_rows_max`): the \
         view is rebuilt"
    )]
    FannedOut {
        /// Number of the view.
        view: i64,
        /// Value of the setting `views.delta_rows_max`.
        rows_max: u64,
    },
    /// The changes could not be computed. The cause may be rows that the view never has: between
    /// two states of several tables, rows of one are joined with rows of another that never existed
    /// together.
    #[error("the change of the view could not be computed: the view is recomputed as a whole")]
    DeltaFailed {
        /// Number of the view.
        view: i64,
        /// The server's error of the statement.
        #[source]
        error: egret_postgres::tokio_postgres::Error,
    },
    /// More rows have changed than `views.fuse_changes` allows.
    #[error(
        "{changes} changes exceed the maximum of {changes_max} (`views.fuse_changes`) and are \
         not applied: the view is rebuilt when it is resumed"
    )]
    FuseBlown {
        /// Number of recorded changes.
        changes: i64,
        /// Value of the setting `views.fuse_changes`.
        changes_max: u64,
    },
    /// A table got another partition or file during the refresh.
    #[error(
        "a table of the view was rewritten, or a partition was added or removed, while it was \
         read: it is read again"
    )]
    SourceChanged,
    /// A table has other columns or another name than when the view was loaded.
    #[error("a table of the view was altered: the view is reloaded")]
    SourceAltered {
        /// Number of the view.
        view: i64,
    },
    /// A table is gone, or does not fit the query any more.
    #[error(
        "an object that the view reads was dropped or changed: {reason}; undo the change and \
         repair the view, or drop the view"
    )]
    SourceGone {
        /// The server's message about the query.
        reason: String,
    },
    /// A view that this view reads was not refreshed.
    #[error("a view that it reads was not refreshed")]
    SourceFailed {
        /// Number of the view that was not refreshed.
        view: i64,
    },
    /// The first refresh of a new view failed, and the view was removed.
    #[error("the view could not be filled and was not created: {reason}")]
    NotFilled {
        /// Error message of the refresh.
        reason: String,
    },
    /// A refresh failed. The view shows the rows that it had before.
    #[error(
        "view `{name}` could not be refreshed and has its previous content: {reason}{}",
        suspension_advice(*is_suspended)
    )]
    Failed {
        /// The view as `schema.name`.
        name: String,
        /// Error message of the refresh.
        reason: String,
        /// Whether the view is suspended now, so that another refresh does not help.
        is_suspended: bool,
    },
    /// The view is suspended and is not refreshed.
    #[error("view `{name}` is suspended: {reason}; repair it, or resume it")]
    Suspended {
        /// The view as `schema.name`.
        name: String,
        /// Why the view was suspended.
        reason: String,
    },
    /// The refresh took longer than `views.refresh_timeout` and was cancelled.
    #[error("the refresh took longer than {seconds} s (`views.refresh_timeout`) and was cancelled")]
    RefreshTimeout {
        /// Value of the setting `views.refresh_timeout`, in seconds.
        seconds: u64,
    },
    /// PostgreSQL refuses a request, or cannot be reached.
    #[error(transparent)]
    Postgres(#[from] PostgresError),
    /// A statement of the engine failed.
    #[error("{}", egret_base::error::chain(.0))]
    Statement(#[from] tokio_postgres::Error),
}

fn first_kept_clause(first: &Option<i64>) -> String {
    first.map_or_else(String::new, |first| format!(", but those from {first} on"))
}

/// What to do about a refresh that failed.
fn suspension_advice(is_suspended: bool) -> &'static str {
    if is_suspended { "; it is suspended now: repair it, or resume it" } else { "" }
}

/// The server's error on one line.
fn describe_server_error(error: &tokio_postgres::Error) -> String {
    let Some(db_error) = error.as_db_error() else {
        return egret_base::error::chain(error);
    };
    let hint = db_error.hint().map(|hint| format!(": {hint}"));
    format!(
        "{}{} (SQLSTATE {})",
        db_error.message(),
        hint.unwrap_or_default(),
        db_error.code().code()
    )
}

impl From<DatabasesError> for ViewsError {
    fn from(error: DatabasesError) -> Self {
        match error {
            DatabasesError::Postgres(error) => error.into(),
            // The same error as for removing an object from a database that does not exist.
            error @ DatabasesError::Unknown { .. } => {
                PostgresError::DatabaseNotFound { reason: format!("database: {error}") }.into()
            }
            error => Self::Invalid { what: "database", reason: error.to_string() },
        }
    }
}

impl From<ParseError> for ViewsError {
    fn from(error: ParseError) -> Self {
        Self::Invalid { what: "view", reason: error.0 }
    }
}

impl ViewsError {
    /// Moves the position in a query with resolved names to the query as the caller wrote it.
    pub(crate) fn map_position(self, resolved: &str, written: &str) -> Self {
        match self {
            Self::Refused(refusal) => Self::Refused(Refusal {
                position: refusal
                    .position
                    .and_then(|position| locate_position(resolved, position, written)),
                ..refusal
            }),
            other => other,
        }
    }

    /// Whether the error persists until a user changes the view or what it reads.
    pub fn is_permanent(&self) -> bool {
        matches!(
            self,
            Self::SourceGone { .. }
                | Self::Refused(_)
                | Self::Unsupported { .. }
                | Self::UntrustedCode { .. }
                | Self::FuseBlown { .. }
        )
    }

    /// Whether a cached record may be stale: the view may be another one, resumed, or gone.
    pub(crate) fn can_mean_stale_record(&self) -> bool {
        match self {
            Self::NotFound { .. } | Self::Suspended { .. } => true,
            Self::Statement(error) => matches!(
                error.code(),
                Some(
                    &SqlState::UNDEFINED_TABLE
                        | &SqlState::UNDEFINED_FUNCTION
                        | &SqlState::INVALID_SCHEMA_NAME
                )
            ),
            _ => false,
        }
    }

    /// Whether a lock could not be obtained.
    pub fn is_lock_not_available(&self) -> bool {
        match self {
            Self::Statement(error) => error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE),
            _ => false,
        }
    }

    /// Whether an immediate retry may succeed.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Drifted { .. }
            | Self::FannedOut { .. }
            | Self::DeltaFailed { .. }
            | Self::SourceChanged
            | Self::SourceAltered { .. } => true,
            Self::Statement(error) => matches!(
                error.code(),
                Some(&SqlState::T_R_SERIALIZATION_FAILURE | &SqlState::T_R_DEADLOCK_DETECTED)
            ),
            _ => false,
        }
    }
}

impl CodedError for ViewsError {
    fn code(&self) -> &'static str {
        match self {
            Self::Refused(_) | Self::Unsupported { .. } | Self::UntrustedCode { .. } => {
                "view_unsupported"
            }
            Self::Query { .. } => "view_query_refused",
            Self::Invalid { .. } => "invalid_request",
            Self::Drifted { .. } => "view_drifted",
            Self::FannedOut { .. } => "view_fanned_out",
            Self::DeltaFailed { .. } => "view_delta_failed",
            Self::FuseBlown { .. } => "view_fuse_blown",
            Self::Exists { .. } => "view_exists",
            Self::NotFound { .. } => "view_not_found",
            Self::DatabaseUnreachable { .. } => "postgres_database_unreachable",
            Self::Ambiguous { .. } => "view_ambiguous",
            Self::InUse { .. } => "view_in_use",
            Self::ViewsRemain { .. } => "views_installed",
            Self::TooManyViews { .. } | Self::TooManyFollowers { .. } => "limit_exceeded",
            Self::NotFollowed { .. } => "view_not_followed",
            Self::ChangesGone { .. } => "view_changes_gone",
            Self::PrivilegeMissing { .. } => "view_right_missing",
            Self::ReadDenied { .. } => "view_read_denied",
            Self::SourceChanged | Self::SourceAltered { .. } => "view_source_changed",
            Self::SourceGone { .. } => "view_source_gone",
            Self::SourceFailed { .. } => "view_source_failed",
            Self::NotFilled { .. } => "view_not_filled",
            Self::Failed { .. } => "view_refresh_failed",
            Self::Suspended { .. } => "view_suspended",
            Self::RefreshTimeout { .. } => "view_refresh_timeout",
            Self::Postgres(error) => error.code(),
            Self::Statement(_) => "view_statement_failed",
        }
    }

    fn kind(&self) -> Kind {
        match self {
            Self::Refused(_)
            | Self::Unsupported { .. }
            | Self::UntrustedCode { .. }
            | Self::Query { .. }
            | Self::Invalid { .. } => Kind::Invalid,
            Self::Drifted { .. } => Kind::Internal,
            Self::Exists { .. }
            | Self::InUse { .. }
            | Self::ViewsRemain { .. }
            | Self::Ambiguous { .. }
            | Self::SourceGone { .. }
            | Self::FuseBlown { .. }
            | Self::NotFilled { .. }
            | Self::NotFollowed { .. }
            | Self::Failed { is_suspended: true, .. }
            | Self::Suspended { .. } => Kind::Conflict,
            Self::NotFound { .. } => Kind::NotFound,
            Self::PrivilegeMissing { .. } | Self::ReadDenied { .. } => Kind::Denied,
            Self::TooManyViews { .. } | Self::TooManyFollowers { .. } => Kind::LimitReached,
            Self::ChangesGone { .. } => Kind::Gone,
            Self::SourceChanged
            | Self::FannedOut { .. }
            | Self::DeltaFailed { .. }
            | Self::SourceAltered { .. }
            | Self::SourceFailed { .. }
            | Self::DatabaseUnreachable { .. }
            | Self::Failed { .. } => Kind::Unavailable,
            Self::RefreshTimeout { .. } => Kind::TimedOut,
            Self::Postgres(error) => error.kind(),
            Self::Statement(_) => Kind::Unavailable,
        }
    }
}
