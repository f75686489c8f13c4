//! An append-only, checksummed, segmented log with group commit, addressed by sequence number only.
//!
//! [`Log`] is what an engine sees; [`FileLog`] keeps it in local files through a [`Disk`]. An owner
//! with a loop of its own gathers in an [`Inbox`] and appends one [`Batch`] at a time; whoever
//! has none shares a [`group::Group`].

mod batch;
mod config;
mod disk;
mod error;
mod file;
mod format;
pub mod group;
mod inbox;
mod log;
pub mod repair;
mod seq;
pub mod simulated;

pub use batch::Batch;
pub use config::{Durability, Housekeeping, LogConfig};
pub use disk::{Directory, Disk, DiskFile, is_full, read_exactly, write_all};
pub use error::LogError;
pub use file::{Compacted, FileCompaction, FileLog, FileReader, FileTail, Recovery, Torn};
pub use inbox::{Inbox, InboxLimits, Refused, Taken};
pub use log::{Appended, Compaction, Log, LogReader, SegmentInfo};
pub use seq::Seq;
