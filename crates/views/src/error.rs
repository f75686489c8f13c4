//! What can go wrong with views.

use egret_base::{Coded, Kind};
use egret_postgres::PostgresError;
use egret_postgres::tokio_postgres;

use crate::core::refusal::Refusal;

/// An error of the views engine.
#[derive(Debug, thiserror::Error)]
pub enum ViewsError {
    /// The query has something that is not covered.
    #[error("{0}")]
    Refused(Refusal),
    /// The query reads something that is not covered.
    #[error("{what} is not maintained incrementally: {advice}")]
    Unsupported {
        /// What.
        what: String,
        /// What to do.
        advice: String,
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
    /// What was kept does not fit with what changed.
    #[error(
        "what is kept of the view does not fit with what changed, in {rows} rows: it is computed anew"
    )]
    Drifted {
        /// In how many rows.
        rows: i64,
    },
    /// A table that is read got another partition or file while it was read.
    #[error(
        "a table of the view was rewritten, or got or lost a partition, while it was read: it is read again"
    )]
    SourceChanged,
    /// The server refuses something, or cannot be reached.
    #[error(transparent)]
    Postgres(#[from] PostgresError),
    /// A statement failed.
    #[error("{}", egret_base::error::chain(.0))]
    Statement(#[from] tokio_postgres::Error),
}

impl Coded for ViewsError {
    fn code(&self) -> &'static str {
        match self {
            Self::Refused(_) | Self::Unsupported { .. } => "view_unsupported",
            Self::Drifted { .. } => "view_drifted",
            Self::Exists { .. } => "view_exists",
            Self::NotFound { .. } => "view_not_found",
            Self::SourceChanged => "view_source_changed",
            Self::Postgres(error) => error.code(),
            Self::Statement(_) => "view_statement_failed",
        }
    }

    fn kind(&self) -> Kind {
        match self {
            Self::Refused(_) | Self::Unsupported { .. } => Kind::Invalid,
            Self::Drifted { .. } => Kind::Internal,
            Self::Exists { .. } => Kind::Conflict,
            Self::NotFound { .. } => Kind::NotFound,
            Self::SourceChanged => Kind::Unavailable,
            Self::Postgres(error) => error.kind(),
            Self::Statement(_) => Kind::Unavailable,
        }
    }
}
