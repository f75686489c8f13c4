//! What can go wrong with a log.

use std::io;
use std::sync::Arc;

use egret_base::{CodedError, Kind, LimitExceeded};
use rustix::io::Errno;

use crate::Seq;
use crate::file::end_mark::END_NAME;

/// Why an operation of a log failed. Cheap to clone: all callers that waited for one batch get the
/// same error.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// A call of the file system failed; the log itself is as it was.
    #[error("log: {action} {file} failed: {source}")]
    Io {
        /// What was tried, such as `read`.
        action: &'static str,
        /// The file's name, with its directory.
        file: String,
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// There is no space for the batch; nothing of it was kept.
    #[error("log: no space left for {needed_bytes} bytes in {place}: free some disk space")]
    Full {
        /// Path of the log's directory.
        place: String,
        /// The size of what was refused.
        needed_bytes: u64,
    },
    /// The batch is over its limit; nothing of it was kept.
    #[error(transparent)]
    BatchTooLarge(LimitExceeded),
    /// Too much waits for the log already.
    #[error(transparent)]
    Busy(LimitExceeded),
    /// The log takes no more appends, because it cannot know what reached the disk.
    #[error("log: {place} has stopped after: {reason}; check the disk, then start again")]
    Stopped {
        /// Path of the log's directory.
        place: String,
        /// The failure that stopped it.
        reason: Arc<str>,
    },
    /// Bytes on disk are not what was written there.
    #[error(
        "log: corrupt segment {file} at offset {offset}, record {seq}: {what}; restore it from a backup"
    )]
    Corrupt {
        /// The segment's file, with its directory.
        file: String,
        /// Where in the file.
        offset: u64,
        /// The first record concerned.
        seq: Seq,
        /// What does not hold.
        what: &'static str,
    },
    /// Segments between two others are gone.
    #[error(
        "log: records {from} to {to} are missing from {place}: a segment's file was removed; restore it from a backup"
    )]
    Missing {
        /// Path of the log's directory.
        place: String,
        /// The first record missing.
        from: Seq,
        /// The last record missing.
        to: Seq,
    },
    /// The log ends before the record from which it was to be replayed.
    #[error(
        "log: {place} ends before record {next}, but {replay_from} is needed: it is older than \
         its snapshot"
    )]
    Behind {
        /// Path of the log's directory.
        place: String,
        /// The sequence number the next append would get.
        next: Seq,
        /// What was asked for.
        replay_from: Seq,
    },
    /// The log ends before records that were durable, at a place where nothing is damaged.
    #[error(
        "log: {place} ends before record {next}, but every record below {durable_below} was durable: its last segments were removed or are an older copy; restore them"
    )]
    Shortened {
        /// Path of the log's directory.
        place: String,
        /// The sequence number the next append would get.
        next: Seq,
        /// What is known to have been durable.
        durable_below: Seq,
    },
    /// There is no log where there must be one.
    #[error(
        "log: {place} has no segments, but records from {replay_from} on are needed: they were \
         removed; restore them from a backup"
    )]
    Absent {
        /// Path of the log's directory.
        place: String,
        /// What was asked for.
        replay_from: Seq,
    },
    /// The record was in a segment that has been dropped.
    #[error("log: record {seq} has been truncated: the log begins at {first}")]
    Truncated {
        /// The record asked for.
        seq: Seq,
        /// The first record there is.
        first: Seq,
    },
    /// The record has been dropped by a compaction.
    #[error("log: record {seq} has been dropped by a compaction")]
    Compacted {
        /// The record asked for.
        seq: Seq,
    },
    /// The record has not been written yet.
    #[error("log: record {seq} is not written yet: the log ends before {next}")]
    Ahead {
        /// The record asked for.
        seq: Seq,
        /// The sequence number the next append will get.
        next: Seq,
    },
    /// What a compaction keeps is larger than a segment can be.
    #[error(
        "log: the kept records among {from} to {to} are larger than {max_bytes} bytes: compact \
         fewer segments at once"
    )]
    CompactionTooLarge {
        /// The first record of the run.
        from: Seq,
        /// The last record of the run.
        to: Seq,
        /// Size of the largest segment, in bytes.
        max_bytes: u64,
    },
    /// Another process has the log open.
    #[error("log: {place} is in use by process {holder}: stop it, or use another directory")]
    Locked {
        /// Path of the log's directory.
        place: String,
        /// The process id that the holder left, or `unknown`.
        holder: String,
    },
    /// A segment of a format that this version does not know.
    #[error(
        "log: {file} has format version {version}, this program reads {known}: use a newer one"
    )]
    UnknownVersion {
        /// The segment's file, with its directory.
        file: String,
        /// The version it has.
        version: u32,
        /// The version this program knows.
        known: u32,
    },
    /// The segments named are not, or no longer, whole sealed segments of this log.
    #[error(
        "log: records {from} to {to} are not a run of whole sealed segments: list the segments again"
    )]
    NotSealed {
        /// The first record of the run.
        from: Seq,
        /// The last record of the run.
        to: Seq,
    },
    /// The log or its inbox has been closed.
    #[error("log: {name} is closed")]
    Closed {
        /// What is closed: the log or its inbox.
        name: &'static str,
    },
    /// Another writer has taken the log over.
    #[error("log: another writer has taken it over: this one must stop")]
    Fenced,
    /// The configuration does not fit together.
    #[error("log: {0}")]
    Config(String),
}

impl LogError {
    /// Whether a record of the log is damaged. A missing end mark is not: the whole file may come
    /// back.
    pub fn is_damaged_record(&self) -> bool {
        let is_end_mark = |file: &str| file.rsplit('/').next() == Some(END_NAME);
        matches!(self, Self::Corrupt { file, .. } if !is_end_mark(file))
    }
}

impl CodedError for LogError {
    fn code(&self) -> &'static str {
        match self {
            Self::Io { .. } => "log_io",
            Self::Full { .. } => "log_full",
            Self::BatchTooLarge(_) => "log_batch_too_large",
            Self::Busy(_) => "log_busy",
            Self::Stopped { .. } => "log_stopped",
            Self::Corrupt { .. } => "log_corrupt",
            Self::Missing { .. } => "log_segment_missing",
            Self::Behind { .. } => "log_behind",
            Self::Shortened { .. } => "log_shortened",
            Self::Absent { .. } => "log_absent",
            Self::Truncated { .. } => "log_truncated",
            Self::Compacted { .. } => "log_compacted",
            Self::Ahead { .. } => "log_ahead",
            Self::CompactionTooLarge { .. } => "log_compaction_too_large",
            Self::Locked { .. } => "log_locked",
            Self::UnknownVersion { .. } => "log_unknown_version",
            Self::NotSealed { .. } => "log_not_sealed",
            Self::Closed { .. } => "log_closed",
            Self::Fenced => "log_fenced",
            Self::Config(_) => "log_config",
        }
    }

    fn kind(&self) -> Kind {
        match self {
            Self::Full { .. } | Self::Stopped { .. } | Self::Closed { .. } | Self::Fenced => {
                Kind::Unavailable
            }
            Self::BatchTooLarge(_) | Self::CompactionTooLarge { .. } => Kind::TooLarge,
            Self::Busy(_) => Kind::LimitReached,
            Self::Truncated { .. } | Self::Compacted { .. } | Self::Ahead { .. } => Kind::NotFound,
            Self::Locked { .. } | Self::NotSealed { .. } => Kind::Conflict,
            Self::Config(_) => Kind::Invalid,
            Self::Io { .. }
            | Self::Corrupt { .. }
            | Self::Missing { .. }
            | Self::Behind { .. }
            | Self::Shortened { .. }
            | Self::Absent { .. }
            | Self::UnknownVersion { .. } => Kind::Internal,
        }
    }

    fn retryable(&self) -> bool {
        match self {
            Self::Full { .. } | Self::Busy(_) => true,
            // For want of something that others give back; what the disk itself refuses it refuses
            // again.
            Self::Io { source, .. } => {
                let wants = [Errno::MFILE, Errno::NFILE, Errno::NOMEM];
                wants.iter().any(|errno| source.raw_os_error() == Some(errno.raw_os_error()))
            }
            _ => false,
        }
    }
}
