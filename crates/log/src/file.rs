//! The log in local files.

mod append;
mod compact;
pub(crate) mod end_mark;
mod file_error;
mod handles;
mod open;
mod read;
mod recent;
mod recover;
pub(crate) mod salvage;
mod scan;
mod segment;
pub(crate) mod segment_pool;
mod tail;

use std::io;
use std::sync::Arc;
use std::time::Instant;

use egret_base::Entropy;
use egret_base::sync::{read_lock, write_lock};

pub use compact::{CompactionResult, FileCompaction};
pub use read::FileReader;
pub use recover::{Recovery, TornTail};
pub use tail::FileTail;

use crate::disk::Disk;
use crate::format::{SEGMENT_BYTES_MAX, SEGMENT_HEADER_BYTES};
use crate::{
    AppendResult, Batch, Directory, Durability, Log, LogConfig, LogError, SegmentInfo, Seq,
};
use append::random_salt;
use end_mark::EndMark;
use file_error::io_error;
use read::ReadState;
use segment::{OpenSegment, Segment};
use segment_pool::{HousekeepingThread, RetiredFile, SegmentPool, Task};

/// A log in the files of one directory, with one writer.
pub struct FileLog<D: Disk = Directory> {
    disk: D,
    config: LogConfig,
    entropy: Arc<dyn Entropy>,
    shared: Arc<ReadState<D>>,
    active: Arc<Segment<D>>,
    active_file: Arc<D::File>,
    next: Seq,
    /// Every record below is durable.
    synced_below: Seq,
    /// Sealed segments with records that are not durable yet. Includes deleted segments whose
    /// deletion is not durable.
    unsynced: Vec<OpenSegment<D>>,
    /// A segment's name is not durable yet.
    directory_unsynced: bool,
    /// When the oldest record that is not synced was appended.
    unsynced_since: Option<Instant>,
    stop_error: Option<LogError>,
    compactions: u64,
    /// Nonce of the last frame that was written or attempted.
    nonce: u64,
    /// None when the disk had no room for it.
    end_mark: Option<EndMark<D::File>>,
    segment_pool: Arc<SegmentPool<D>>,
    // Fields are dropped in order: the thread's last work is done while the lock is held.
    _thread: Option<HousekeepingThread<D>>,
    _lock: D::Lock,
}

impl<D: Disk> FileLog<D> {
    /// Every record below is known to survive a loss of power.
    pub fn synced_below(&self) -> Seq {
        self.synced_below
    }

    /// Does one piece of what the housekeeping thread would do and answers whether there was any.
    /// For [`Housekeeping::Owner`].
    ///
    /// # Errors
    /// What that piece failed with; calling again tries it again.
    pub fn housekeep(&self) -> Result<bool, LogError> {
        self.segment_pool.step()
    }

    fn check_running(&self) -> Result<(), LogError> {
        match &self.stop_error {
            None => Ok(()),
            Some(stopped) => Err(stopped.clone()),
        }
    }

    /// Ends the log for good: what is on disk is not known any more.
    fn stop(&mut self, action: &str, error: &io::Error) -> LogError {
        let reason = format!("{action} {}: {error}", self.active.name);
        let stopped =
            LogError::Stopped { place: self.shared.place.to_string(), reason: reason.into() };
        self.stop_error = Some(stopped.clone());
        stopped
    }

    /// Lets the next start know how far the log is durable.
    fn update_end_mark(&mut self) {
        if let Some(end_mark) = &mut self.end_mark {
            end_mark.update(self.synced_below);
        }
    }

    /// Whether it has an end mark: one that was opened on a full disk may have none until it is
    /// opened again.
    pub fn has_end_mark(&self) -> bool {
        self.end_mark.is_some()
    }

    /// Makes everything durable, and the mark that says so: what is bad below it afterwards is
    /// damage and no interrupted write. Dropping the log does the same.
    ///
    /// # Errors
    /// [`LogError::Stopped`], and [`LogError::Io`] when only the mark could not be synced.
    pub fn seal(&mut self) -> Result<(), LogError> {
        self.sync()?;
        let path = format!("{}/{}", self.shared.place, end_mark::END_NAME);
        match &mut self.end_mark {
            Some(end_mark) => {
                end_mark.seal(self.synced_below).map_err(|error| io_error(&path, "sync", error))
            }
            None => Ok(()),
        }
    }

    fn full_error(&self, needed_bytes: u64) -> LogError {
        LogError::Full { place: self.shared.place.to_string(), needed_bytes }
    }

    /// Where in the table a run of sealed segments that covers exactly these records is.
    fn find_run(&self, first: Seq, last: Seq) -> Option<std::ops::Range<usize>> {
        let segments = read_lock(&self.shared.segments);
        let begin = segments.iter().position(|segment| segment.header.first == first)?;
        let length =
            segments[begin..].iter().position(|segment| segment.last.get() == Some(&last))?;
        Some(begin..begin + length + 1)
    }
}

impl<D: Disk> Log for FileLog<D> {
    type Reader = FileReader<D>;
    type Compaction = FileCompaction<D>;

    fn append(&mut self, batch: &mut Batch, expected: Seq) -> Result<AppendResult, LogError> {
        self.check_running()?;
        if expected != self.next {
            return Ok(AppendResult::Fenced);
        }
        if !batch.is_empty() {
            self.append_frame(batch)?;
        }
        Ok(AppendResult::Committed(self.next.previous()))
    }

    fn resolve(&mut self, batch: &mut Batch, expected: Seq) -> Result<AppendResult, LogError> {
        // An append to a local file always answers, so that nothing can arrive late.
        self.append(batch, expected)
    }

    fn sync_deadline(&self) -> Option<Instant> {
        match self.config.durability {
            Durability::Interval(interval) => Some(self.unsynced_since? + interval),
            Durability::Fsync | Durability::None => None,
        }
    }

    fn batch_bytes_max(&self) -> usize {
        self.config.batch_bytes_max as usize
    }

    fn sync(&mut self) -> Result<(), LogError> {
        self.check_running()?;
        if self.synced_below < self.next {
            self.sync_all()?;
            self.synced_below = self.next;
            self.update_end_mark();
        }
        Ok(())
    }

    fn next_seq(&self) -> Seq {
        self.next
    }

    fn first_seq(&self) -> Seq {
        self.shared.first()
    }

    fn reader(&self) -> FileReader<D> {
        FileReader { shared: Arc::clone(&self.shared) }
    }

    fn prepare_compaction(&mut self, first: Seq, last: Seq) -> Result<FileCompaction<D>, LogError> {
        let run =
            self.find_run(first, last).ok_or(LogError::NotSealed { from: first, to: last })?;
        let segments = read_lock(&self.shared.segments);
        self.compactions += 1;
        Ok(FileCompaction {
            handles: Arc::clone(&self.shared.handles),
            place: Arc::clone(&self.shared.place),
            sources: segments[run].to_vec(),
            salt: random_salt(&*self.entropy),
            index_stride_bytes: self.config.index_stride_bytes,
            bytes_max: SEGMENT_BYTES_MAX,
            temporary_name: format!("{}{:08}", compact::TEMPORARY_PREFIX, self.compactions),
        })
    }

    fn finish_compaction(&mut self, compacted: CompactionResult<D>) -> Result<bool, LogError> {
        self.check_running()?;
        let header = compacted.segment.header;
        let first = header.first;
        let last = *compacted.segment.last.get().expect("a compacted segment is sealed");
        let mut segments = write_lock(&self.shared.segments);
        let begin = segments.partition_point(|segment| segment.header.first < first);
        let run = begin..(begin + compacted.sources.len()).min(segments.len());
        let is_unchanged = run.len() == compacted.sources.len()
            && std::iter::zip(&segments[run.clone()], &compacted.sources)
                .all(|(here, read)| Arc::ptr_eq(here, read));
        if !is_unchanged {
            drop(segments);
            self.segment_pool.submit(Task::Discard(compacted.temporary_name));
            return Ok(false);
        }
        let name = compacted.segment.name.clone();
        let replaced = &segments[run.clone()];
        let superseded_names =
            replaced.iter().skip(1).map(|segment| segment.name.clone()).collect();
        let removal_flags =
            replaced.iter().map(|segment| Arc::clone(&segment.removal_flag)).collect();
        segments.splice(run, [Arc::new(compacted.segment)]);
        drop(segments);
        self.shared.evict_chunks(first, last);
        self.segment_pool.submit(Task::Replace {
            temporary_name: compacted.temporary_name,
            name,
            superseded_names,
            removal_flags,
        });
        Ok(true)
    }

    fn truncate_below(&mut self, seq: Seq) -> Result<(), LogError> {
        self.check_running()?;
        let mut segments = write_lock(&self.shared.segments);
        let dropped_count = segments
            .iter()
            .take_while(|segment| segment.last.get().is_some_and(|last| *last < seq))
            .count();
        let dropped: Vec<_> = segments.drain(..dropped_count).collect();
        drop(segments);
        let first = self.shared.first();
        if dropped_count > 0 {
            self.shared.evict_chunks(Seq(0), first.previous());
        }
        for segment in dropped {
            // Only a file that no reader has open may be written to again. Until its new name is
            // durable a crash can bring the old one back, so it is still synced with the others.
            let is_unsynced = self.unsynced.iter().any(|held| Arc::ptr_eq(&held.segment, &segment));
            let is_reusable = segment.file_bytes == self.config.segment_bytes
                && Arc::strong_count(&segment) == 1 + usize::from(is_unsynced);
            self.segment_pool.submit(Task::Retire(RetiredFile {
                name: segment.name.clone(),
                is_reusable,
                removal_flag: Arc::clone(&segment.removal_flag),
            }));
        }
        Ok(())
    }

    fn segments(&self) -> Vec<SegmentInfo> {
        let segments = read_lock(&self.shared.segments);
        segments
            .iter()
            .map(|segment| {
                let first = segment.header.first;
                let last = segment.last.get().copied().unwrap_or(self.next.previous());
                let compacted = segment.header.compacted;
                SegmentInfo {
                    first,
                    last,
                    file_bytes: segment.file_bytes,
                    used_bytes: segment.used_bytes(),
                    records: compacted.map_or(last.0 + 1 - first.0, |kept| kept.records),
                    is_sealed: segment.last.get().is_some(),
                    is_compacted: compacted.is_some(),
                }
            })
            .collect()
    }

    fn reserve(&self, bytes: u64) -> Result<(), LogError> {
        let active_bytes_left = self.active.file_bytes - self.active.end();
        let bytes_per_spare = self.config.segment_bytes - SEGMENT_HEADER_BYTES;
        self.segment_pool.reserve(bytes.saturating_sub(active_bytes_left).div_ceil(bytes_per_spare))
    }

    fn space_error(&self) -> Option<LogError> {
        self.segment_pool.failure()
    }
}

impl<D: Disk> Drop for FileLog<D> {
    fn drop(&mut self) {
        // The owner may have been told already; without the mark a start proves less.
        let _ = self.seal();
    }
}

#[cfg(test)]
mod tests;
