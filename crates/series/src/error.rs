//! Errors of the series engine, and their codes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use egret_base::codec::DecodeError;
use egret_base::{CodedError, Kind, LimitExceeded};
use egret_log::LogError;
use egret_metrics_model::MatcherError;
use egret_metrics_wire::WireError;
use egret_promql::QueryError;

use egret_blocks::block::BlockError;

/// An error of the series engine. Cheap to clone: all requests of one append get the same.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SeriesError {
    /// A body cannot be read. Nothing of it was taken in.
    #[error("the request cannot be read: {0}")]
    Wire(Arc<WireError>),
    /// A value of the request, or a setting, cannot be used.
    #[error("{what}: {reason}")]
    Invalid {
        /// The setting or parameter.
        what: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// A query has no answer.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// More waits than may wait.
    #[error("too many samples are queued: {0}; send the request again after a moment")]
    Overloaded(LimitExceeded),
    /// There may be no more series.
    #[error(
        "limit series.series_max is {max}: delete series, wait until unused ones expire, or \
         raise the setting"
    )]
    TooManySeries {
        /// Most series there may be.
        max: u64,
    },
    /// There may be no more clusters of replicas.
    #[error(
        "limit series.ha_clusters_max is {max}: use fewer values of the label \
         series.ha_cluster_label, or raise the setting"
    )]
    TooManyClusters {
        /// Most clusters there may be.
        max: u64,
    },
    /// The disk is full.
    #[error("the disk has no space for new samples: free some in {place}")]
    DiskFull {
        /// Where the disk is full.
        place: String,
    },
    /// The log failed to append or read.
    #[error("the log of series failed: {0}")]
    Log(LogError),
    /// A block cannot be written or read.
    #[error(transparent)]
    Block(#[from] BlockError),
    /// A file cannot be written or read.
    #[error("{action} {path} failed: {source}")]
    Io {
        /// What was tried, such as `reading`.
        action: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: Arc<std::io::Error>,
    },
    /// What is on disk is not what was written.
    #[error("{place}: {malformed}: restore it from a backup")]
    Malformed {
        /// The malformed file or record.
        place: String,
        /// What of it is malformed.
        malformed: DecodeError,
    },
    /// A file has a format that this version does not know.
    #[error("{file} has format version {version}, this program reads {known}: use a newer one")]
    UnknownVersion {
        /// The file, with its directory.
        file: String,
        /// The version it has.
        version: u64,
        /// The version this program knows.
        known: u64,
    },
    /// A shard could not be started with what is on disk.
    #[error("shard {shard} of the series cannot start, the others serve: {reason}")]
    ShardUnusable {
        /// Number of the shard.
        shard: u16,
        /// Why it could not start.
        reason: String,
    },
    /// A shard ended after an error, and takes nothing until Egret is started again.
    #[error("shard {shard} of the series has stopped: see the log, then restart egret")]
    ShardFailed {
        /// Number of the shard.
        shard: u16,
    },
    /// The thread that writes and merges blocks ended after an error. Samples are still taken in
    /// and found.
    #[error("the maintenance of the series has stopped: see the log, then restart egret")]
    UpkeepFailed,
    /// Egret stops, or has not started yet.
    #[error("egret is starting or stopping: try again")]
    Stopping,
}

impl SeriesError {
    pub(crate) fn io(action: &'static str, path: &Path, error: std::io::Error) -> Self {
        Self::Io { action, path: path.to_owned(), source: Arc::new(error) }
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
            LogError::Full { place, .. } => Self::DiskFull { place: place.to_string() },
            other => Self::Log(other),
        }
    }
}

impl From<MatcherError> for SeriesError {
    fn from(error: MatcherError) -> Self {
        Self::Query(error.into())
    }
}

impl CodedError for SeriesError {
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
            Self::UnknownVersion { .. } => "series_unknown_version",
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
            Self::Log(_)
            | Self::Io { .. }
            | Self::Malformed { .. }
            | Self::UnknownVersion { .. } => Kind::Internal,
        }
    }

    fn retryable(&self) -> bool {
        match self {
            Self::Query(error) => error.retryable(),
            Self::Block(error) => error.retryable(),
            // Retrying helps only after an operator has changed something.
            Self::TooManySeries { .. } | Self::TooManyClusters { .. } => false,
            other => matches!(other.kind(), Kind::Unavailable | Kind::TimedOut),
        }
    }
}
