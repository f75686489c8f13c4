//! What can go wrong with the series engine.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use egret_base::codec::Malformed;
use egret_base::{Coded, Kind, LimitExceeded};
use egret_log::LogError;

use crate::core::promql::QueryError;
use crate::store::block::BlockError;
use crate::wire::WireError;

/// An error of the series engine. Cheap to clone: everybody who waited for one append is told the same.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SeriesError {
    /// A body cannot be read. Nothing of it was taken in.
    #[error("the request cannot be read: {0}")]
    Wire(Arc<WireError>),
    /// A value of the request, or a setting, cannot be used.
    #[error("{what}: {reason}")]
    Invalid {
        /// Which.
        what: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// A query has no answer.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// More waits than may wait.
    #[error("too much waits to be written: {0}; send it again after a moment")]
    Overloaded(LimitExceeded),
    /// There may be no more series.
    #[error(
        "limit series.series_max is {max}: delete series, wait until unused ones are let go, or raise the setting"
    )]
    TooManySeries {
        /// The limit.
        max: u64,
    },
    /// There may be no more clusters of replicas.
    #[error(
        "limit series.ha_clusters_max is {max}: send with fewer values of series.ha_cluster_label, or raise the setting"
    )]
    TooManyClusters {
        /// The limit.
        max: u64,
    },
    /// The disk is full.
    #[error("the disk has no room for new samples: free some in {place}")]
    DiskFull {
        /// Where.
        place: String,
    },
    /// The log failed.
    #[error("the log of series failed: {0}")]
    Log(LogError),
    /// A block cannot be written or read.
    #[error(transparent)]
    Block(#[from] BlockError),
    /// A file cannot be written or read.
    #[error("{action} {path} failed: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// With which file.
        path: PathBuf,
        /// Why it failed.
        source: Arc<std::io::Error>,
    },
    /// What is on disk is not what was written.
    #[error("{place}: {malformed}: restore it from a backup")]
    Malformed {
        /// Which file.
        place: String,
        /// What of it.
        malformed: Malformed,
    },
    /// A shard could not be started with what is on disk.
    #[error("shard {shard} of the series could not start, the others serve: {reason}")]
    ShardUnusable {
        /// Which.
        shard: u16,
        /// What is wrong.
        reason: String,
    },
    /// A shard ended after an error, and takes nothing until Egret is started again.
    #[error("shard {shard} of the series has ended: see the log, then restart egret")]
    ShardFailed {
        /// Which.
        shard: u16,
    },
    /// The thread that writes and merges blocks ended after an error. Samples are still taken in and found.
    #[error("the upkeep of the series has ended: see the log, then restart egret")]
    UpkeepFailed,
    /// Egret stops, or has not started yet.
    #[error("egret is starting or stopping: try again")]
    Stopping,
}

impl SeriesError {
    pub(crate) fn io(action: &'static str, path: &Path, error: std::io::Error) -> Self {
        Self::Io {
            action,
            path: path.to_owned(),
            source: Arc::new(error),
        }
    }
}

impl From<WireError> for SeriesError {
    fn from(error: WireError) -> Self {
        Self::Wire(Arc::new(error))
    }
}

impl From<LogError> for SeriesError {
    fn from(error: LogError) -> Self {
        match error {
            LogError::Full { place, .. } => Self::DiskFull {
                place: place.to_string(),
            },
            other => Self::Log(other),
        }
    }
}

impl Coded for SeriesError {
    fn code(&self) -> &'static str {
        match self {
            Self::Wire(_) => "series_request_malformed",
            Self::Invalid { .. } => "series_invalid",
            Self::Query(error) => error.code(),
            Self::Overloaded(_) => "series_overloaded",
            Self::TooManySeries { .. } => "series_limit",
            Self::TooManyClusters { .. } => "series_clusters_limit",
            Self::DiskFull { .. } => "series_disk_full",
            Self::Log(_) => "series_log_failed",
            Self::Block(error) => error.code(),
            Self::Io { .. } => "series_io",
            Self::Malformed { .. } => "series_malformed",
            Self::ShardFailed { .. } | Self::ShardUnusable { .. } => "series_shard_failed",
            Self::UpkeepFailed => "series_upkeep_failed",
            Self::Stopping => "series_stopping",
        }
    }

    fn kind(&self) -> Kind {
        match self {
            Self::Wire(error) => error.kind(),
            Self::Invalid { .. } => Kind::Invalid,
            Self::Query(error) => error.kind(),
            Self::Block(error) => error.kind(),
            Self::TooManySeries { .. } | Self::TooManyClusters { .. } => Kind::LimitReached,
            Self::Overloaded(_)
            | Self::DiskFull { .. }
            | Self::ShardFailed { .. }
            | Self::ShardUnusable { .. }
            | Self::UpkeepFailed
            | Self::Stopping => Kind::Unavailable,
            Self::Log(_) | Self::Io { .. } | Self::Malformed { .. } => Kind::Internal,
        }
    }

    fn retryable(&self) -> bool {
        match self {
            Self::Query(error) => error.retryable(),
            Self::Block(error) => error.retryable(),
            // Somebody has to do something first.
            Self::TooManySeries { .. } | Self::TooManyClusters { .. } => false,
            other => matches!(other.kind(), Kind::Unavailable | Kind::TimedOut),
        }
    }
}
