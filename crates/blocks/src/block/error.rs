//! Errors of reading and writing blocks.

use std::io;
use std::sync::Arc;

use egret_base::{CodedError, Kind};

use crate::core::BlockId;

/// Extent of the damage of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DamageExtent {
    /// The index, which finds series: the block is unusable and should be quarantined.
    Index,
    /// Samples of some series; others can be read.
    Samples,
}

/// Error of an operation on blocks. Cheap to clone.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BlockError {
    /// A call of the file system failed.
    #[error("blocks: {action} {file} failed: {source}")]
    Io {
        /// The attempted action, such as `read`.
        action: &'static str,
        /// The file's name, with its directory.
        file: String,
        /// Error of the operating system.
        source: Arc<io::Error>,
    },
    /// There is no space for a block; nothing of it was kept.
    #[error("blocks: no space left for {file}: free some disk space, or shorten the retention")]
    Full {
        /// The file that did not fit.
        file: String,
    },
    /// A part of the index of a block is larger than one may be; nothing of the block was kept.
    #[error(
        "blocks: a part of the index of {file} would have {size_bytes} bytes, at most \
         {size_bytes_max} are allowed: delete series with a large number of labels or values"
    )]
    TooLarge {
        /// Path of the file.
        file: String,
        /// Size of the file, in bytes.
        size_bytes: u64,
        /// Largest allowed size, in bytes.
        size_bytes_max: u64,
    },
    /// Bytes on disk differ from those written.
    #[error(
        "blocks: block {block} is damaged at offset {offset}: {what}; restore it from a backup"
    )]
    Corrupt {
        /// Id of the damaged block.
        block: BlockId,
        /// Offset of the damage in its file, in bytes.
        offset: u64,
        /// Name of the part that cannot be read.
        what: &'static str,
        /// How much of the block is unusable.
        damage: DamageExtent,
    },
    /// A block of a format that this version does not know.
    #[error(
        "blocks: {file} has format version {version}, this program reads {known}: use a newer one"
    )]
    UnknownVersion {
        /// The block's file, with its directory.
        file: String,
        /// The version it has.
        version: u32,
        /// The version this program knows.
        known: u32,
    },
    /// A block changed or went away since the work on it began.
    #[error("blocks: block {block} was changed concurrently: start the work on it again")]
    Changed {
        /// Id of the changed block.
        block: BlockId,
    },
    /// The work was ended before it was done; nothing has changed.
    #[error("blocks: the work was interrupted: it will be started again")]
    Interrupted,
    /// It is unknown which writes of the catalog reached the disk.
    #[error(
        "blocks: {place} accepts no more changes after: {reason}; check the disk, then start \
         again"
    )]
    Stopped {
        /// Directory of the blocks.
        place: String,
        /// The failure that stopped it.
        reason: Arc<str>,
    },
}

impl CodedError for BlockError {
    fn code(&self) -> &'static str {
        match self {
            Self::Io { .. } => "block_io",
            Self::Full { .. } => "block_disk_full",
            Self::TooLarge { .. } => "block_too_large",
            Self::Corrupt { .. } => "block_corrupt",
            Self::UnknownVersion { .. } => "block_unknown_version",
            Self::Changed { .. } => "block_changed",
            Self::Interrupted => "block_work_ended",
            Self::Stopped { .. } => "block_stopped",
        }
    }

    fn kind(&self) -> Kind {
        match self {
            Self::Full { .. } | Self::Interrupted | Self::Stopped { .. } => Kind::Unavailable,
            Self::Changed { .. } => Kind::Conflict,
            Self::Io { .. }
            | Self::TooLarge { .. }
            | Self::Corrupt { .. }
            | Self::UnknownVersion { .. } => Kind::Internal,
        }
    }

    fn retryable(&self) -> bool {
        matches!(self, Self::Full { .. } | Self::Changed { .. } | Self::Interrupted)
    }
}

/// Wraps an error of the operating system about `file`.
pub(crate) fn io(action: &'static str, file: String) -> impl FnOnce(io::Error) -> BlockError {
    move |error| {
        if egret_log::is_full(&error) {
            BlockError::Full { file }
        } else {
            BlockError::Io { action, file, source: Arc::new(error) }
        }
    }
}
