//! Errors of queries, and their types in Prometheus's API.

use egret_base::{CodedError, Kind};
use egret_metrics_model::MatcherError;

/// Why a query has no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum QueryError {
    /// The text is not PromQL. Where it is known, the message begins with line and column.
    #[error("{message}")]
    Parse {
        /// What is wrong, and where.
        message: String,
    },
    /// A parameter of the request is of no use.
    #[error("{message}")]
    Invalid {
        /// Which part of the query is invalid, and why.
        message: String,
    },
    /// The query cannot be evaluated over this data. The wording is Prometheus's.
    #[error("{message}")]
    Execution {
        /// Message of the failure, worded as in Prometheus.
        message: String,
    },
    /// A budget was used up.
    #[error(
        "the query needs more than {budget} {what} ({limit}): select fewer series or less time, or raise {limit}"
    )]
    OverBudget {
        /// Setting that sets the budget.
        limit: &'static str,
        /// Value of the setting.
        budget: u64,
        /// What the budget counts.
        what: &'static str,
    },
    /// The time allowed has passed.
    #[error(
        "query timed out in expression evaluation: select fewer series or less time, or raise series.query_timeout, or `timeout` where the request has one"
    )]
    TimedOut,
    /// The caller no longer waits for the answer.
    #[error("query was canceled in expression evaluation")]
    Canceled,
    /// The data cannot be read.
    #[error("cannot read the samples of a query: {message}")]
    Source {
        /// Why the samples cannot be read.
        message: String,
    },
}

impl QueryError {
    /// An error of evaluation.
    pub(crate) fn execution(message: impl Into<String>) -> Self {
        let message = message.into();
        Self::Execution { message }
    }

    /// What Prometheus's API calls it: the `errorType` of an answer.
    pub fn error_type(&self) -> &'static str {
        match self {
            Self::Parse { .. } | Self::Invalid { .. } => "bad_data",
            Self::Execution { .. } | Self::OverBudget { .. } => "execution",
            Self::TimedOut => "timeout",
            Self::Canceled => "canceled",
            Self::Source { .. } => "internal",
        }
    }
}

impl From<MatcherError> for QueryError {
    fn from(error: MatcherError) -> Self {
        let message = error.message;
        Self::Parse { message }
    }
}

impl CodedError for QueryError {
    fn code(&self) -> &'static str {
        match self {
            Self::Parse { .. } => "query_malformed",
            Self::Invalid { .. } => "query_invalid",
            Self::Execution { .. } => "query_failed",
            Self::OverBudget { .. } => "query_over_budget",
            Self::TimedOut => "query_timed_out",
            Self::Canceled => "query_canceled",
            Self::Source { .. } => "query_unreadable",
        }
    }

    fn kind(&self) -> Kind {
        match self {
            Self::Parse { .. } | Self::Invalid { .. } => Kind::Invalid,
            Self::Execution { .. } => Kind::Conflict,
            Self::OverBudget { .. } => Kind::TooLarge,
            Self::TimedOut | Self::Canceled => Kind::TimedOut,
            Self::Source { .. } => Kind::Internal,
        }
    }

    fn retryable(&self) -> bool {
        matches!(self, Self::TimedOut)
    }
}
