//! What can go wrong with views.

use egret_base::{Coded, Kind};
use egret_postgres::PostgresError;
use egret_postgres::databases::DatabasesError;
use egret_postgres::tokio_postgres;
use egret_postgres::tokio_postgres::error::SqlState;

use crate::core::locate::locate;
use crate::core::refusal::Refusal;
use crate::model::NotUnderstood;

/// What needs a view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dependent {
    /// Another view of Egret's, by its name.
    View(String),
    /// An object of a user's, as PostgreSQL describes it; a trigger or rule with the statement that drops it.
    Object(String),
}

impl std::fmt::Display for Dependent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Self::View(text) | Self::Object(text)) = self;
        f.write_str(text)
    }
}

fn listed(dependents: &[Dependent]) -> String {
    let dependents: Vec<String> = dependents.iter().map(ToString::to_string).collect();
    dependents.join(", ")
}

/// An error of the views engine.
#[derive(Debug, thiserror::Error)]
pub enum ViewsError {
    /// The query has something that is not covered.
    #[error("{0}")]
    Refused(Refusal),
    /// The query reads something that is not covered.
    #[error("{what} is not supported: {advice}")]
    Unsupported {
        /// What.
        what: String,
        /// What to do.
        advice: String,
    },
    /// The query calls code of a role that is not a superuser, in a view that another role refreshes.
    #[error(
        "{what} belongs to a role that is not a superuser, and this view is refreshed by another role: {advice}"
    )]
    UntrustedCode {
        /// The function, and where it is called from.
        what: String,
        /// What to do.
        advice: String,
    },
    /// The server refuses the query.
    #[error("the query is refused by PostgreSQL: {}", said(.error))]
    Query {
        /// What it says.
        error: tokio_postgres::Error,
        /// Where in the query, in bytes from 1, as far as it says that.
        position: Option<usize>,
    },
    /// Something that was given is not what it should be.
    #[error("{what}: {reason}")]
    Invalid {
        /// What.
        what: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// There is a view of this name.
    #[error("view `{name}` exists: choose another name, or drop it first")]
    Exists {
        /// The name.
        name: String,
    },
    /// No view has this name.
    #[error("view `{name}` does not exist")]
    NotFound {
        /// The name.
        name: String,
    },
    /// No database that accepts sessions has a view of this name, and there are others.
    #[error(
        "view `{name}` was not found, and not every database accepts sessions at present: name its database"
    )]
    NotKnown {
        /// The name.
        name: String,
    },
    /// Several databases have a view of this name.
    #[error("view `{name}` is in several databases, name one of them: {}", databases.join(", "))]
    Ambiguous {
        /// The name.
        name: String,
        /// Where it is.
        databases: Vec<String>,
    },
    /// Something else needs it: another view, an object of a user's, or a trigger on a function of the view.
    #[error(
        "view `{name}` is needed by others, drop them first: {}",
        listed(dependents)
    )]
    InUse {
        /// The name.
        name: String,
        /// What needs it.
        dependents: Vec<Dependent>,
    },
    /// There are views in a database from which everything is to be removed.
    #[error("database `{database}` has {views} views: they go with it only when that is forced")]
    Installed {
        /// The database.
        database: String,
        /// How many views.
        views: i64,
    },
    /// There are as many views as may be.
    #[error("there are {max} views in this database already, `views.views_max`")]
    TooMany {
        /// How many there may be.
        max: u32,
    },
    /// Its changes are not kept, and whoever asks cannot have them kept.
    #[error(
        "the changes of view `{name}` are not kept: have them kept by `egret view alter {name} --keep-changes 1d`, or follow it with scope views:write"
    )]
    NotFollowed {
        /// The name.
        name: String,
    },
    /// What somebody wants to be told is not kept any more, or never was.
    #[error(
        "the changes of view `{name}` after {after} are not kept{}: read the view, and follow it from now on", kept_from(.first)
    )]
    ChangesGone {
        /// The name.
        name: String,
        /// After which change set.
        after: i64,
        /// The first that is kept.
        first: Option<i64>,
    },
    /// As many follow views as may.
    #[error("{max} follow views already, `views.followers_max`: come again later")]
    TooManyFollowers {
        /// How many there may be.
        max: u32,
    },
    /// A right is missing.
    #[error("{what}; to allow it: {grant}")]
    Right {
        /// What is not allowed.
        what: String,
        /// The statement that allows it.
        grant: String,
    },
    /// The caller may not read a view that the query reads.
    #[error(
        "`{relation}` is or reads a view that this token may not read: a view of it would show its rows; use a token that reads it"
    )]
    ReadDenied {
        /// The relation that the query names.
        relation: String,
    },
    /// What was kept does not fit with what changed.
    #[error(
        "what is kept of the view does not fit with what changed, in {rows} rows: it is computed anew"
    )]
    Drifted {
        /// The number of the view.
        view: i64,
        /// In how many rows.
        rows: i64,
    },
    /// A join of what changed has more rows than may be.
    #[error(
        "what changed comes to more than {rows_max} rows in a join, `views.delta_rows_max`: the view is computed anew"
    )]
    FannedOut {
        /// The number of the view.
        view: i64,
        /// How many rows there may be.
        rows_max: u64,
    },
    /// What changed could not be computed. It may be due to rows that the view never has: between two states of several tables there are
    /// rows of one with those of another as they never were together.
    #[error("what changed could not be computed by itself: the view is computed as a whole")]
    DeltaFailed {
        /// The number of the view.
        view: i64,
        /// What the server says.
        #[source]
        error: egret_postgres::tokio_postgres::Error,
    },
    /// More has changed than is taken for right.
    #[error(
        "{changes} changes are more than {changes_max}, `views.fuse_changes`, and are not applied: the view is computed anew once it is made active"
    )]
    FuseBlown {
        /// How many there are.
        changes: i64,
        /// How many there may be.
        changes_max: u64,
    },
    /// A table that is read got another partition or file while it was read.
    #[error(
        "a table of the view was rewritten, or got or lost a partition, while it was read: it is read again"
    )]
    SourceChanged,
    /// A table that is read has other columns or another name than when the view was loaded.
    #[error("a table of the view was altered: it is looked at again")]
    SourceAltered {
        /// The number of the view.
        view: i64,
    },
    /// A table that is read is not there any more, or not as the query needs it.
    #[error(
        "what the view reads is not what it was: {reason}; drop the view, or change that back and repair the view"
    )]
    SourceGone {
        /// What the server says of the query.
        reason: String,
    },
    /// A view that it reads was not refreshed.
    #[error("a view that it reads was not refreshed")]
    SourceFailed {
        /// The number of that view.
        view: i64,
    },
    /// A view that was made could not be filled, and is not there any more.
    #[error("the view could not be filled, and is not made: {reason}")]
    NotFilled {
        /// What went wrong.
        reason: String,
    },
    /// A refresh failed. The view shows what it showed before.
    #[error(
        "view `{name}` could not be refreshed, and shows what it showed before: {reason}{}",
        remedy(*is_suspended)
    )]
    Failed {
        /// The name.
        name: String,
        /// What went wrong.
        reason: String,
        /// Whether the view is suspended by now, so that to refresh it again does not help.
        is_suspended: bool,
    },
    /// It is suspended.
    #[error("view `{name}` is suspended: {reason}; repair it, or make it active again")]
    Suspended {
        /// The name.
        name: String,
        /// Why.
        reason: String,
    },
    /// It takes longer than it may.
    #[error("the refresh took longer than {seconds} s, `views.refresh_timeout`, and was ended")]
    TooLong {
        /// How long it may take, in seconds.
        seconds: u64,
    },
    /// The server refuses something, or cannot be reached.
    #[error(transparent)]
    Postgres(#[from] PostgresError),
    /// A statement failed.
    #[error("{}", egret_base::error::chain(.0))]
    Statement(#[from] tokio_postgres::Error),
}

fn kept_from(first: &Option<i64>) -> String {
    first.map_or_else(String::new, |first| format!(", but those from {first} on"))
}

/// What to do about a refresh that failed.
fn remedy(is_suspended: bool) -> &'static str {
    match is_suspended {
        true => "; it is suspended now: repair it, or make it active again",
        false => "",
    }
}

/// What the server says, on one line.
fn said(error: &tokio_postgres::Error) -> String {
    let Some(told) = error.as_db_error() else {
        return egret_base::error::chain(error);
    };
    let hint = told.hint().map(|hint| format!(": {hint}"));
    format!(
        "{}{} (SQLSTATE {})",
        told.message(),
        hint.unwrap_or_default(),
        told.code().code()
    )
}

impl From<DatabasesError> for ViewsError {
    fn from(error: DatabasesError) -> Self {
        match error {
            DatabasesError::Postgres(error) => error.into(),
            // As where something is removed from a database.
            error @ DatabasesError::Unknown { .. } => PostgresError::DatabaseNotFound {
                reason: format!("database: {error}"),
            }
            .into(),
            error => Self::Invalid {
                what: "database",
                reason: error.to_string(),
            },
        }
    }
}

impl From<NotUnderstood> for ViewsError {
    fn from(error: NotUnderstood) -> Self {
        Self::Invalid {
            what: "view",
            reason: error.0,
        }
    }
}

impl ViewsError {
    /// The same of a query as it was written, where it is of one with every name resolved.
    pub(crate) fn located(self, resolved: &str, written: &str) -> Self {
        match self {
            Self::Refused(refusal) => Self::Refused(Refusal {
                position: refusal
                    .position
                    .and_then(|position| locate(resolved, position, written)),
                ..refusal
            }),
            other => other,
        }
    }

    /// Whether it does not pass until somebody changes the view or what it reads.
    pub fn is_lasting(&self) -> bool {
        matches!(
            self,
            Self::SourceGone { .. }
                | Self::Refused(_)
                | Self::Unsupported { .. }
                | Self::UntrustedCode { .. }
                | Self::FuseBlown { .. }
        )
    }

    /// Whether the view may be another than the one that was known, going on, or not there at all.
    pub fn may_be_of_another(&self) -> bool {
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

    /// Whether a lock was waited for in vain.
    pub fn is_busy(&self) -> bool {
        match self {
            Self::Statement(error) => error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE),
            _ => false,
        }
    }

    /// Whether it may go well when it is done again at once.
    pub fn is_passing(&self) -> bool {
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

impl Coded for ViewsError {
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
            Self::NotKnown { .. } => "postgres_database_unreachable",
            Self::Ambiguous { .. } => "view_ambiguous",
            Self::InUse { .. } => "view_in_use",
            Self::Installed { .. } => "views_installed",
            Self::TooMany { .. } | Self::TooManyFollowers { .. } => "limit_exceeded",
            Self::NotFollowed { .. } => "view_not_followed",
            Self::ChangesGone { .. } => "view_changes_gone",
            Self::Right { .. } => "view_right_missing",
            Self::ReadDenied { .. } => "view_read_denied",
            Self::SourceChanged | Self::SourceAltered { .. } => "view_source_changed",
            Self::SourceGone { .. } => "view_source_gone",
            Self::SourceFailed { .. } => "view_source_failed",
            Self::NotFilled { .. } => "view_not_filled",
            Self::Failed { .. } => "view_refresh_failed",
            Self::Suspended { .. } => "view_suspended",
            Self::TooLong { .. } => "view_refresh_timeout",
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
            | Self::Installed { .. }
            | Self::Ambiguous { .. }
            | Self::SourceGone { .. }
            | Self::FuseBlown { .. }
            | Self::NotFilled { .. }
            | Self::NotFollowed { .. }
            | Self::Failed {
                is_suspended: true, ..
            }
            | Self::Suspended { .. } => Kind::Conflict,
            Self::NotFound { .. } => Kind::NotFound,
            Self::Right { .. } | Self::ReadDenied { .. } => Kind::Denied,
            Self::TooMany { .. } | Self::TooManyFollowers { .. } => Kind::LimitReached,
            Self::ChangesGone { .. } => Kind::Gone,
            Self::SourceChanged
            | Self::FannedOut { .. }
            | Self::DeltaFailed { .. }
            | Self::SourceAltered { .. }
            | Self::SourceFailed { .. }
            | Self::NotKnown { .. }
            | Self::Failed { .. } => Kind::Unavailable,
            Self::TooLong { .. } => Kind::TimedOut,
            Self::Postgres(error) => error.kind(),
            Self::Statement(_) => Kind::Unavailable,
        }
    }
}
