//! Appending a frame: write, sync, show it to readers; and beginning the next segment.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use egret_base::sync::{lock, write_lock};
use egret_base::{Entropy, Limit};

use super::FileLog;
use super::file_error::io_error;
use super::handles::{Handles, Identity};
use super::segment::{Index, OpenSegment, Segment, segment_name};
use super::segment_pool::{SegmentPool, Spare};
use crate::disk::{Disk, DiskFile, is_full, write_all, write_zeros};
use crate::format::{FRAME_HEADER_BYTES, FrameHeader, SEGMENT_HEADER_BYTES, Salt, SegmentHeader};
use crate::{Batch, Durability, LogError, Seq};

impl<D: Disk> FileLog<D> {
    pub(super) fn append_frame(&mut self, batch: &mut Batch) -> Result<(), LogError> {
        let frame_bytes = batch.frame_bytes() as u64;
        Limit::new("batch_bytes_max", self.config.batch_bytes_max)
            .check(frame_bytes)
            .map_err(LogError::BatchTooLarge)?;
        if self.active.end() + frame_bytes > self.active.file_bytes {
            self.roll_segment()?;
        }
        let offset = self.active.end();
        self.nonce = self.nonce.wrapping_add(1);
        let salt = self.active.header.salt;
        let frame = batch.seal(salt, self.nonce, self.next, self.synced_below);
        let unpadded_length = frame.len();
        frame.resize(frame_bytes as usize, 0);
        let result = write_all(&*self.active_file, frame, offset);
        frame.truncate(unpadded_length);
        if let Err(error) = result {
            return Err(self.handle_write_error(frame_bytes, offset, &error));
        }
        match self.config.durability {
            Durability::Fsync => self.sync_all()?,
            Durability::Interval(_) if self.unsynced_since.is_none() => {
                self.unsynced_since = Some(Instant::now());
            }
            Durability::Interval(_) | Durability::None => {}
        }
        self.publish(batch);
        Ok(())
    }

    /// Handles a failed write. On a full disk the log stays usable after the header of the partial
    /// frame is zeroed, so that recovery cannot take it for a whole frame. Any other error stops
    /// the log.
    fn handle_write_error(
        &mut self,
        frame_bytes: u64,
        offset: u64,
        error: &std::io::Error,
    ) -> LogError {
        if !is_full(error) {
            return self.stop("write", error);
        }
        let file = &*self.active_file;
        let end = offset + FRAME_HEADER_BYTES as u64;
        match write_zeros(file, offset, end).and_then(|()| file.sync_data()) {
            Ok(()) => self.full_error(frame_bytes),
            Err(error) => self.stop("clear a refused frame in", &error),
        }
    }

    /// Lets readers see what has been appended.
    fn publish(&mut self, batch: &mut Batch) {
        let (frame, starts) = batch.frame_and_starts();
        let header = FrameHeader::decode(self.active.header.salt, frame)
            .expect("the frame was sealed for this segment");
        self.active.index_written_frame(&header, starts);
        let first = self.next;
        self.next = first.plus(batch.len() as u64);
        if self.config.durability == Durability::Fsync {
            self.synced_below = self.next;
            self.update_end_mark();
        }
        let mut recent = lock(&self.shared.recent);
        recent.push(batch, first);
        drop(recent);
        self.shared.next.store(self.next.0, Ordering::Release);
    }

    /// Seals the active segment and begins the next one.
    fn roll_segment(&mut self) -> Result<(), LogError> {
        let spare = self.segment_pool.take_spare()?;
        let header = new_header(&*self.entropy, self.next, self.synced_below);
        let index = Index::new(self.config.index_stride_bytes);
        let result = begin_segment(&self.shared.handles, &self.segment_pool, spare, header, index);
        let OpenSegment { segment, file } = match result {
            Ok(open_segment) => open_segment,
            Err(LogError::Io { action, source, .. }) => return Err(self.stop(action, &source)),
            Err(error) => return Err(error),
        };
        self.directory_unsynced = true;
        self.unsynced.retain(|held| !held.segment.removal_flag.load(Ordering::Acquire));
        let replaced = std::mem::replace(&mut self.active, Arc::clone(&segment));
        let sealed_file = std::mem::replace(&mut self.active_file, file);
        let mut segments = write_lock(&self.shared.segments);
        if replaced.header.first == self.next {
            // The replaced segment is empty, and the new one has the same name.
            segments.pop();
        } else {
            replaced.last.set(self.next.previous()).expect("a segment is sealed once");
            if self.synced_below < self.next {
                self.unsynced.push(OpenSegment { segment: replaced, file: sealed_file });
            }
        }
        segments.push(segment);
        drop(segments);
        self.limit_unsynced()
    }

    /// A file that is not synced stays open, so that no failure to write it is missed: no more of
    /// them than of those that are read.
    fn limit_unsynced(&mut self) -> Result<(), LogError> {
        while self.unsynced.len() > self.config.open_segments_max {
            if let Err(error) = self.unsynced[0].file.sync_data() {
                return Err(self.stop("sync", &error));
            }
            self.unsynced.remove(0);
        }
        Ok(())
    }

    pub(super) fn sync_all(&mut self) -> Result<(), LogError> {
        for index in 0..self.unsynced.len() {
            if let Err(error) = self.unsynced[index].file.sync_data() {
                return Err(self.stop("sync", &error));
            }
        }
        self.unsynced.clear();
        if let Err(error) = self.active_file.sync_data() {
            return Err(self.stop("sync", &error));
        }
        if self.directory_unsynced {
            if let Err(error) = self.disk.sync_directory() {
                return Err(self.stop("sync the directory of", &error));
            }
            self.directory_unsynced = false;
        }
        self.unsynced_since = None;
        Ok(())
    }
}

/// Makes a segment of a spare file. Its header is durable before it gets its name, so that a file
/// with a segment's name always has a header.
pub(super) fn begin_segment<D: Disk>(
    handles: &Arc<Handles<D>>,
    pool: &SegmentPool<D>,
    spare: Spare<D::File>,
    mut header: SegmentHeader,
    index: Index,
) -> Result<OpenSegment<D>, LogError> {
    let place = &pool.place;
    let begin_failed = |error| io_error(place, "begin a segment in", error);
    header.file_bytes = spare.file.size_bytes().map_err(begin_failed)?;
    let write_result = write_all(&spare.file, &header.encode(), 0);
    if let Err(error) = write_result.as_ref()
        && is_full(error)
    {
        pool.return_spare(spare);
        return Err(LogError::Full {
            place: place.to_string(),
            needed_bytes: SEGMENT_HEADER_BYTES,
        });
    }
    let name = segment_name(header.first);
    write_result
        .and_then(|()| spare.file.sync_data())
        .and_then(|()| handles.disk.rename(&spare.name, &name))
        .map_err(begin_failed)?;
    let file = handles.insert(Identity::from_header(&header), Arc::new(spare.file));
    let segment = Segment::new_active(Arc::clone(place), Arc::clone(handles), header, index);
    Ok(OpenSegment { segment: Arc::new(segment), file })
}

pub(super) fn new_header(entropy: &dyn Entropy, first: Seq, synced_below: Seq) -> SegmentHeader {
    SegmentHeader {
        salt: random_salt(entropy),
        first,
        synced_below,
        compacted: None,
        file_bytes: 0,
    }
}

pub(super) fn random_salt(entropy: &dyn Entropy) -> Salt {
    let mut bytes = [0; 8];
    entropy.fill(&mut bytes);
    // Zero is what unwritten space holds.
    Salt(u64::from_le_bytes(bytes).max(1))
}
