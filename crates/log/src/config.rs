//! How a log is kept. A plain struct: the engine that owns the log has the settings.

use std::time::Duration;

use egret_base::settings::Value;

use crate::Seq;

/// When an append counts as done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// After fdatasync: an acknowledged record survives a loss of power.
    Fsync,
    /// After the write; the owner syncs when this much time has passed since the oldest record that
    /// is not synced. A loss of power loses at most that much; a crash of the process alone,
    /// nothing.
    Interval(Duration),
    /// After the write; records are never synced unless the owner asks, or more than
    /// [`LogConfig::open_segments_max`] sealed segments wait for it. A loss of power may lose
    /// whatever the kernel had not written yet.
    None,
}

/// [`Durability`] as a setting of the engines names it; the interval is a setting of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DurabilityMode {
    /// [`Durability::Fsync`].
    #[default]
    Fsync,
    /// [`Durability::Interval`].
    Interval,
    /// [`Durability::None`].
    None,
}

impl DurabilityMode {
    /// Name of the mode, as in settings and in the status.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fsync => "fsync",
            Self::Interval => "interval",
            Self::None => "none",
        }
    }

    /// The durability, with the interval for the mode that has one.
    pub fn with_interval(self, interval: Duration) -> Durability {
        match self {
            Self::Fsync => Durability::Fsync,
            Self::Interval => Durability::Interval(interval),
            Self::None => Durability::None,
        }
    }
}

impl Value for DurabilityMode {
    fn form() -> String {
        "`fsync`, `interval` or `none`".to_owned()
    }

    fn read(text: &str) -> Result<Self, String> {
        [Self::Fsync, Self::Interval, Self::None]
            .into_iter()
            .find(|mode| mode.name() == text)
            .ok_or_else(|| format!("`{text}` is not {}", Self::form()))
    }

    fn show(&self) -> String {
        self.name().to_owned()
    }
}

/// What makes spare segments and tidies up after truncation and compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Housekeeping {
    /// A thread of the log's own.
    Thread,
    /// The owner, by calling `FileLog::housekeep`. For simulators.
    Owner,
}

/// How a log is kept, with sizes in bytes.
#[derive(Clone, Copy, Debug)]
pub struct LogConfig {
    /// When an append counts as done. Default: `Fsync`.
    pub durability: Durability,
    /// Size of a segment's file. Default: 64 MiB. At least `batch_bytes_max` and two header blocks.
    pub segment_bytes: u64,
    /// Size of the first segment of a new log, so that it opens at once. Default: 4 MiB.
    pub first_segment_bytes: u64,
    /// Segments prepared ahead. They are also the reserve on a full disk. Default: 2.
    pub spare_segments: usize,
    /// Segments kept for use again when old ones are dropped, rather than deleted. Default: 8.
    pub recycled_segments_max: usize,
    /// The largest batch, frame header included. Default: 32 MiB.
    pub batch_bytes_max: u64,
    /// Memory for the last appended batches. Default: 32 MiB.
    pub cache_bytes: usize,
    /// Memory for chunks read from files. Default: 8 MiB.
    pub chunk_cache_bytes: usize,
    /// Bytes of records between two entries of the index in memory, each of which takes 24 bytes;
    /// also the least that is read at once. Default: 16 KiB.
    pub index_stride_bytes: u64,
    /// Segments whose files are kept open, those used last, apart from the active one and the spare
    /// ones. A reader keeps what it reads open itself. Default: 32.
    pub open_segments_max: usize,
    /// Refuses to begin a log where there is none. Default: false.
    pub must_exist: bool,
    /// Every record below is known from elsewhere to have been durable: a log that ends before it
    /// is refused. Default: 0.
    pub durable_below: Seq,
    /// Refuses a log without an end mark, where it is known from elsewhere that it had one.
    /// Default: false.
    pub end_mark_must_exist: bool,
    /// What makes spare segments. Default: a thread of the log.
    pub housekeeping: Housekeeping,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            durability: Durability::Fsync,
            segment_bytes: 64 << 20,
            first_segment_bytes: 4 << 20,
            spare_segments: 2,
            recycled_segments_max: 8,
            batch_bytes_max: 32 << 20,
            cache_bytes: 32 << 20,
            chunk_cache_bytes: 8 << 20,
            index_stride_bytes: 16 << 10,
            open_segments_max: 32,
            must_exist: false,
            durable_below: Seq(0),
            end_mark_must_exist: false,
            housekeeping: Housekeeping::Thread,
        }
    }
}
