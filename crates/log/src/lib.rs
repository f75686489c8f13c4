//! An append-only, checksummed, segmented log with group commit, addressed by sequence number only.
//!
//! [`Log`] is what an engine sees; [`FileLog`] keeps it in local files through a [`Disk`]. An owner
//! with a loop of its own gathers in an [`Inbox`] and appends one [`Batch`] at a time; callers
//! without a loop share a [`group::GroupCommitter`].

mod batch;
mod config;
mod disk;
mod error;
mod file;
mod format;
pub mod group;
mod inbox;
mod known_parts;
mod log;
pub mod repair;
mod seq;
pub mod simulated;

pub use batch::Batch;
pub use config::{Durability, DurabilityMode, Housekeeping, LogConfig};
pub use disk::{Directory, Disk, DiskFile, is_full, is_media_error, read_exactly, write_all};
pub use error::LogError;
pub use file::{
    CompactionResult, FileCompaction, FileLog, FileReader, FileTail, Recovery, TornTail,
};
pub use inbox::{DrainResult, Inbox, InboxLimits, InboxRejection};
pub use known_parts::{KnownLog, KnownLogs};
pub use log::{AppendResult, Compaction, Log, LogReader, SegmentInfo};
pub use seq::Seq;
