//! The interface of a log, independent of where it is stored. Records are addressed by sequence
//! number only, so that a log in local files and one in a cluster look the same to an engine.

use std::time::Instant;

use bytes::Bytes;

use crate::{Batch, LogError, Seq};

/// The outcome of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum AppendResult {
    /// The batch is in the log, as durable as the log was configured to be. Holds the sequence
    /// number of its last record.
    Committed(Seq),
    /// Another writer has appended since: this writer has been deposed and must stop. Nothing of
    /// the batch is in the log.
    Fenced,
    /// No answer came. The batch may be in the log or may still get there: acknowledge nothing,
    /// append nothing else, and call [`Log::resolve`] with the same batch until the outcome is
    /// known.
    Unknown,
}

/// A segment, as shown to the code that decides what to compact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    /// The first sequence number it covers.
    pub first: Seq,
    /// The last sequence number it covers; of the active segment, the last one written (one less
    /// than `first` while there is none).
    pub last: Seq,
    /// Bytes it occupies on disk.
    pub file_bytes: u64,
    /// Bytes of its frames, where that is known without reading it.
    pub used_bytes: Option<u64>,
    /// Number of records that it holds.
    pub records: u64,
    /// Whether nothing is appended to it any more.
    pub is_sealed: bool,
    /// Whether a compaction has already been through it.
    pub is_compacted: bool,
}

/// An append-only sequence of records with one writer.
pub trait Log: Send {
    /// Reads from any thread while the owner appends.
    type Reader: LogReader;
    /// A compaction that is prepared here, run on another thread and finished here.
    type Compaction: Compaction;

    /// Appends everything in `batch`, or nothing of it. Its first record gets the sequence number
    /// `expected`. The batch is cleared when it was committed and kept as it was otherwise.
    ///
    /// # Errors
    /// [`LogError::Full`] and [`LogError::BatchTooLarge`] leave the log as it was.
    /// [`LogError::Stopped`] is final: the log takes no more appends.
    fn append(&mut self, batch: &mut Batch, expected: Seq) -> Result<AppendResult, LogError>;

    /// Resolves [`AppendResult::Unknown`]: reads whether `batch` is in the log and, if not, appends
    /// it with the same `expected`. A read is not enough, since the first append may still arrive.
    /// Of two appends with one `expected` only one is accepted: if the second is rejected, the log
    /// is read again to find out whose batch was first.
    ///
    /// # Errors
    /// As [`Log::append`].
    fn resolve(&mut self, batch: &mut Batch, expected: Seq) -> Result<AppendResult, LogError>;

    /// Makes everything appended so far durable.
    ///
    /// # Errors
    /// [`LogError::Stopped`]: what was not synced before may be lost.
    fn sync(&mut self) -> Result<(), LogError>;

    /// When the owner has to call [`Log::sync`] at the latest, where that is left to it.
    fn sync_deadline(&self) -> Option<Instant>;

    /// The largest batch that can be appended, as [`Batch::frame_bytes`] counts it. Larger ones are
    /// to be split, and so is a record that is larger by itself.
    fn batch_bytes_max(&self) -> usize;

    /// The sequence number the next record will get.
    fn next_seq(&self) -> Seq;

    /// The first sequence number the log still covers; equal to `next_seq` when there is none.
    fn first_seq(&self) -> Seq;

    /// A handle for reading.
    fn reader(&self) -> Self::Reader;

    /// Every record from `from` to the present end, in order; those dropped by a compaction are
    /// left out.
    fn read_from(&self, from: Seq) -> <Self::Reader as LogReader>::Tail {
        self.reader().read_from(from)
    }

    /// Prepares a rewrite of the sealed segments that cover exactly `first` to `last`.
    ///
    /// # Errors
    /// [`LogError::NotSealed`] when there is no such run of segments.
    fn prepare_compaction(&mut self, first: Seq, last: Seq) -> Result<Self::Compaction, LogError>;

    /// Puts what a compaction wrote in the place of the segments it read. Answers false, and drops
    /// what was written, when those segments have gone meanwhile.
    ///
    /// # Errors
    /// [`LogError::Stopped`], and [`LogError::Io`].
    fn finish_compaction(
        &mut self,
        compacted: <Self::Compaction as Compaction>::Output,
    ) -> Result<bool, LogError>;

    /// Drops whole segments in which every record is below `seq`.
    ///
    /// # Errors
    /// [`LogError::Stopped`].
    fn truncate_below(&mut self, seq: Seq) -> Result<(), LogError>;

    /// Every segment, oldest first; the last one is active.
    fn segments(&self) -> Vec<SegmentInfo>;

    /// Ensures that `bytes` can be appended without allocating disk space: in the tail of the
    /// active segment and in spare segments. Waits for a spare segment that is being created, or
    /// creates one. A batch that does not fit the active segment leaves its tail unused: reserve
    /// one batch size more than needed.
    ///
    /// # Errors
    /// What [`Log::space_error`] says: nothing is tried here while that is known.
    fn reserve(&self, bytes: u64) -> Result<(), LogError>;

    /// Why more room could not be made lately, such as a full disk. It is tried again.
    fn space_error(&self) -> Option<LogError>;
}

/// Reads records, from any thread. Cheap to clone.
pub trait LogReader: Clone + Send + Sync + 'static {
    /// Iterator over records in order of their sequence numbers.
    type Tail: Iterator<Item = Result<(Seq, Bytes), LogError>> + Send;

    /// The record `seq`.
    ///
    /// # Errors
    /// [`LogError::Truncated`], [`LogError::Compacted`], [`LogError::Ahead`],
    /// [`LogError::Corrupt`], [`LogError::Io`].
    fn read(&self, seq: Seq) -> Result<Bytes, LogError>;

    /// Every record from `from` to the present end, in order. Ends after an error.
    fn read_from(&self, from: Seq) -> Self::Tail;

    /// Bytes that all reads of single records have taken from disk so far, as opposed to memory.
    /// What a read adds to it is what it cost.
    fn fetched_bytes(&self) -> u64;
}

/// The part of a compaction that takes long.
pub trait Compaction: Send + 'static {
    /// What was written, to be handed to [`Log::finish_compaction`].
    type Output: Send + 'static;

    /// Writes a copy that holds only the records for which `keep` says so. Blocks.
    ///
    /// # Errors
    /// [`LogError::Full`], [`LogError::CompactionTooLarge`], [`LogError::Corrupt`],
    /// [`LogError::Io`]; the log is as it was.
    fn run(self, keep: impl FnMut(Seq) -> bool) -> Result<Self::Output, LogError>;
}
