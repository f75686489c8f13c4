//! The log in local files.

mod append;
mod compact;
pub(crate) mod end;
mod file_error;
mod handles;
pub(crate) mod keeper;
mod open;
mod read;
mod recent;
mod recover;
pub(crate) mod salvage;
mod scan;
mod segment;
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
use end::EndMark;
use file_error::failed;
use keeper::{HousekeepingThread, RetiredFile, SegmentPool, Task};
use read::ReadState;
use segment::{OpenSegment, Segment};

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
    /// Sealed segments that hold records which are not; dropped ones too, while a crash can bring
    /// them back.
    unsynced: Vec<OpenSegment<D>>,
    /// A segment's name is not durable yet.
    directory_unsynced: bool,
    /// When the oldest record that is not synced was appended.
    unsynced_since: Option<Instant>,
    stopped: Option<LogError>,
    compactions: u64,
    /// Of the last frame written, or tried to.
    nonce: u64,
    /// None when the disk had no room for it.
    end: Option<EndMark<D::File>>,
    keeper: Arc<SegmentPool<D>>,
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
        self.keeper.step()
    }

    fn check_running(&self) -> Result<(), LogError> {
        match &self.stopped {
            None => Ok(()),
            Some(stopped) => Err(stopped.clone()),
        }
    }

    /// Ends the log for good: what is on disk is not known any more.
    fn stop(&mut self, action: &str, error: &io::Error) -> LogError {
        let reason = format!("{action} {}: {error}", self.active.name);
        let stopped = LogError::Stopped {
            place: self.shared.place.to_string(),
            reason: reason.into(),
        };
        self.stopped = Some(stopped.clone());
        stopped
    }

    /// Lets the next start know how far the log is durable.
    fn note_end(&mut self) {
        if let Some(end) = &mut self.end {
            end.note(self.synced_below);
        }
    }

    /// Whether it has an end mark: one that was opened on a full disk may have none until it is
    /// opened again.
    pub fn has_end_mark(&self) -> bool {
        self.end.is_some()
    }

    /// Makes everything durable, and the mark that says so: what is bad below it afterwards is
    /// damage and no interrupted write. Dropping the log does the same.
    ///
    /// # Errors
    /// [`LogError::Stopped`], and [`LogError::Io`] when only the mark could not be synced.
    pub fn seal(&mut self) -> Result<(), LogError> {
        self.sync()?;
        let path = format!("{}/{}", self.shared.place, end::END_NAME);
        match &mut self.end {
            Some(end) => end
                .seal(self.synced_below)
                .map_err(|error| failed(&path, "sync", error)),
            None => Ok(()),
        }
    }

    fn full(&self, needed_bytes: u64) -> LogError {
        LogError::Full {
            place: self.shared.place.to_string(),
            needed_bytes,
        }
    }

    /// Where in the table a run of sealed segments that covers exactly these records is.
    fn run_of(&self, first: Seq, last: Seq) -> Option<std::ops::Range<usize>> {
        let segments = read_lock(&self.shared.segments);
        let begin = segments
            .iter()
            .position(|segment| segment.header.first == first)?;
        let length = segments[begin..]
            .iter()
            .position(|segment| segment.last.get() == Some(&last))?;
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
        Ok(AppendResult::Committed(self.next.before()))
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
            self.sync_everything()?;
            self.synced_below = self.next;
            self.note_end();
        }
        Ok(())
    }

    fn next(&self) -> Seq {
        self.next
    }

    fn first(&self) -> Seq {
        self.shared.first()
    }

    fn reader(&self) -> FileReader<D> {
        FileReader {
            shared: Arc::clone(&self.shared),
        }
    }

    fn compact(&mut self, first: Seq, last: Seq) -> Result<FileCompaction<D>, LogError> {
        let run = self.run_of(first, last).ok_or(LogError::NotSealed {
            from: first,
            to: last,
        })?;
        let segments = read_lock(&self.shared.segments);
        self.compactions += 1;
        Ok(FileCompaction {
            handles: Arc::clone(&self.shared.handles),
            place: Arc::clone(&self.shared.place),
            sources: segments[run].to_vec(),
            salt: random_salt(&*self.entropy),
            index_stride_bytes: self.config.index_stride_bytes,
            bytes_max: SEGMENT_BYTES_MAX,
            temporary: format!("{}{:08}", compact::TEMPORARY_PREFIX, self.compactions),
        })
    }

    fn finish(&mut self, compacted: CompactionResult<D>) -> Result<bool, LogError> {
        self.check_running()?;
        let header = compacted.segment.header;
        let first = header.first;
        let last = *compacted
            .segment
            .last
            .get()
            .expect("a compacted segment is sealed");
        let mut segments = write_lock(&self.shared.segments);
        let begin = segments.partition_point(|segment| segment.header.first < first);
        let run = begin..(begin + compacted.sources.len()).min(segments.len());
        let same = run.len() == compacted.sources.len()
            && std::iter::zip(&segments[run.clone()], &compacted.sources)
                .all(|(here, read)| Arc::ptr_eq(here, read));
        if !same {
            drop(segments);
            self.keeper.ask(Task::Discard(compacted.temporary));
            return Ok(false);
        }
        let name = compacted.segment.name.clone();
        let replaced = &segments[run.clone()];
        let others = replaced
            .iter()
            .skip(1)
            .map(|segment| segment.name.clone())
            .collect();
        let gone = replaced
            .iter()
            .map(|segment| Arc::clone(&segment.gone))
            .collect();
        segments.splice(run, [Arc::new(compacted.segment)]);
        drop(segments);
        self.shared.forget(first, last);
        self.keeper.ask(Task::Replace {
            temporary: compacted.temporary,
            name,
            others,
            gone,
        });
        Ok(true)
    }

    fn truncate_below(&mut self, seq: Seq) -> Result<(), LogError> {
        self.check_running()?;
        let mut segments = write_lock(&self.shared.segments);
        let gone = segments
            .iter()
            .take_while(|segment| segment.last.get().is_some_and(|last| *last < seq))
            .count();
        let dropped: Vec<_> = segments.drain(..gone).collect();
        drop(segments);
        let first = self.shared.first();
        if gone > 0 {
            self.shared.forget(Seq(0), first.before());
        }
        for segment in dropped {
            // Only a file that no reader has open may be written to again. Until its new name is
            // durable a crash can bring the old one back, so it is still synced with the others.
            let unsynced = self
                .unsynced
                .iter()
                .any(|held| Arc::ptr_eq(&held.segment, &segment));
            let reusable = segment.file_bytes == self.config.segment_bytes
                && Arc::strong_count(&segment) == 1 + usize::from(unsynced);
            self.keeper.ask(Task::Retire(RetiredFile {
                name: segment.name.clone(),
                reusable,
                gone: Arc::clone(&segment.gone),
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
                let last = segment.last.get().copied().unwrap_or(self.next.before());
                let compacted = segment.header.compacted;
                SegmentInfo {
                    first,
                    last,
                    file_bytes: segment.file_bytes,
                    used_bytes: segment.used_bytes(),
                    records: compacted.map_or(last.0 + 1 - first.0, |kept| kept.records),
                    sealed: segment.last.get().is_some(),
                    compacted: compacted.is_some(),
                }
            })
            .collect()
    }

    fn reserve(&self, bytes: u64) -> Result<(), LogError> {
        let rest = self.active.file_bytes - self.active.end();
        let spare = self.config.segment_bytes - SEGMENT_HEADER_BYTES;
        self.keeper
            .reserve(bytes.saturating_sub(rest).div_ceil(spare))
    }

    fn space_error(&self) -> Option<LogError> {
        self.keeper.failure()
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
