//! One segment: its file, what its header says, and a sparse index of its records. The file is
//! opened when it is read, and closed when others are read more.

use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use egret_base::sync::lock;

use super::handles::{Handles, Identity};
use super::scan::{Frame, ScannedFrame, WINDOW_BYTES, Window, read_frame, record_starts};
use crate::disk::{Disk, DiskFile, read_exactly, write_all};
use crate::format::{
    BadHeader, CompactedRange, FORMAT_VERSION, FRAME_HEADER_BYTES, FrameHeader, SEGMENT_BYTES_MAX,
    SEGMENT_HEADER_BYTES, Salt, Seal, SegmentHeader,
};
use crate::{LogError, Seq};

const SUFFIX: &str = ".log";

/// The file name of the segment that begins at `first`.
pub(crate) fn segment_name(first: Seq) -> String {
    format!("{:020}{SUFFIX}", first.0)
}

/// The first sequence number that a file name stands for, if it is one of a segment.
pub(crate) fn parse_segment_name(name: &str) -> Option<Seq> {
    let digits = name.strip_suffix(SUFFIX)?;
    let is_sequence = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_sequence.then(|| digits.parse().ok().map(Seq)).flatten()
}

/// A record that the index knows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IndexEntry {
    pub seq: Seq,
    /// Where the record begins in the file.
    pub offset: u32,
    /// Where the records of its frame end.
    pub records_end: u32,
    /// How they are sealed.
    pub seal: Seal,
}

/// The part of a segment between two index entries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IndexSpan {
    pub begin: IndexEntry,
    /// Where it ends in the file.
    pub end: u64,
    /// No record at or above this is in it.
    pub end_seq: Seq,
}

#[derive(Debug)]
struct SegmentContent {
    index: Index,
    /// Where the next frame goes.
    end: u64,
    /// Whether the index reaches to the end. That of a segment which recovery did not scan grows as
    /// its records are asked for.
    is_indexed: bool,
    /// The last record that such an index has passed.
    indexed_to: Seq,
    /// The first record that the index could not reach, and why.
    damage: Option<(Seq, &'static str)>,
}

pub(crate) struct Segment<D: Disk> {
    pub name: String,
    /// What the file is called until a compaction's result has been put in its place.
    temporary_name: Option<String>,
    /// The directory's path, for messages.
    pub place: Arc<str>,
    pub handles: Arc<Handles<D>>,
    pub header: SegmentHeader,
    pub file_bytes: u64,
    /// How long the file was found: other than its header says in a repair only.
    pub found_bytes: u64,
    /// Set when the segment is sealed.
    pub last: OnceLock<Seq>,
    /// Set when the file is durably no longer part of the log.
    pub removal_flag: Arc<AtomicBool>,
    content: Mutex<SegmentContent>,
}

/// A segment with its file, which stays open for as long as this is held.
pub(crate) struct OpenSegment<D: Disk> {
    pub segment: Arc<Segment<D>>,
    pub file: Arc<D::File>,
}

impl<D: Disk> Segment<D> {
    /// A segment that has just been begun.
    pub(crate) fn new_active(
        place: Arc<str>,
        handles: Arc<Handles<D>>,
        header: SegmentHeader,
        index: Index,
    ) -> Self {
        Self {
            name: segment_name(header.first),
            temporary_name: None,
            place,
            handles,
            header,
            file_bytes: header.file_bytes,
            found_bytes: header.file_bytes,
            last: OnceLock::new(),
            removal_flag: Arc::default(),
            content: Mutex::new(SegmentContent {
                index,
                end: SEGMENT_HEADER_BYTES,
                is_indexed: true,
                indexed_to: header.first.previous(),
                damage: None,
            }),
        }
    }

    /// A segment that a compaction has written to the file `temporary_name`.
    pub(crate) fn new_compacted(
        place: Arc<str>,
        handles: Arc<Handles<D>>,
        temporary_name: String,
        header: SegmentHeader,
        index: Index,
    ) -> Self {
        let mut segment = Self::new_active(place, handles, header, index);
        segment.temporary_name = Some(temporary_name);
        segment.lock_content().end = header.file_bytes;
        if let Some(compacted) = header.compacted {
            segment.last.set(compacted.last).expect("the lock is new");
        }
        segment
    }

    /// Opens the segment whose file is `name`. A repair sets `allows_any_length`: the file has what
    /// there is of its frames.
    pub(crate) fn open(
        handles: Arc<Handles<D>>,
        place: Arc<str>,
        name: &str,
        first: Seq,
        index: Index,
        allows_any_length: bool,
    ) -> Result<Self, LogError> {
        let path = format!("{place}/{name}");
        let to_error = |action| {
            let file = path.clone();
            move |source: io::Error| LogError::Io { action, file, source: Arc::new(source) }
        };
        let file = handles.disk.open(name).map_err(to_error("open"))?;
        let found_bytes = file.size_bytes().map_err(to_error("stat"))?;
        let block =
            read_exactly(&file, 0, SEGMENT_HEADER_BYTES as usize).map_err(to_error("read"))?;
        let corrupt_error =
            |what| LogError::Corrupt { file: path.clone(), offset: 0, seq: first, what };
        let header = SegmentHeader::decode(&block).map_err(|problem| match problem {
            BadHeader::Corrupt(what) => corrupt_error(what),
            BadHeader::Version(version) => {
                LogError::UnknownVersion { file: path.clone(), version, known: FORMAT_VERSION }
            }
        })?;
        if header.first != first {
            return Err(corrupt_error(
                "the header belongs to another segment than the file name says",
            ));
        }
        if found_bytes != header.file_bytes && !allows_any_length {
            return Err(corrupt_error("the file is not as long as its header says"));
        }
        if header.file_bytes > SEGMENT_BYTES_MAX {
            return Err(corrupt_error("the file is larger than any segment"));
        }
        if header.compacted.is_some_and(|range| range.last < first) {
            return Err(corrupt_error("the segment ends before it begins"));
        }
        handles.insert(Identity::from_header(&header), Arc::new(file));
        let mut segment = Self::new_active(place, handles, header, index);
        segment.found_bytes = found_bytes;
        segment.file_bytes = found_bytes.min(header.file_bytes);
        segment.lock_content().is_indexed = false;
        if let Some(CompactedRange { last, .. }) = header.compacted {
            segment.last.set(last).expect("the lock is new");
        }
        Ok(segment)
    }

    /// The segment's file, opened if it is not. It stays the same file for as long as it is held.
    ///
    /// # Errors
    /// Those of opening it; also when the segment is no part of the log any more.
    pub(crate) fn file(&self) -> Result<Arc<D::File>, LogError> {
        let identity = Identity::from_header(&self.header);
        match self.handles.get(identity) {
            Some(file) => Ok(file),
            None => Ok(self.handles.insert(identity, Arc::new(self.reopen()?))),
        }
    }

    /// Another segment may have taken the name meanwhile: what the file says of itself decides.
    fn reopen(&self) -> Result<D::File, LogError> {
        let mut is_replaced = false;
        // It may be renamed between the first two attempts.
        let names = [Some(&self.name), self.temporary_name.as_ref(), Some(&self.name)];
        for name in names.into_iter().flatten() {
            let file = match self.handles.disk.open(name) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(self.io_error("open", error)),
            };
            let block = read_exactly(&file, 0, SEGMENT_HEADER_BYTES as usize)
                .map_err(|error| self.io_error("read", error))?;
            let header = SegmentHeader::decode(&block);
            if header.is_ok_and(|header| {
                Identity::from_header(&header) == Identity::from_header(&self.header)
            }) {
                return Ok(file);
            }
            is_replaced = true;
        }
        if is_replaced {
            Err(self.corrupt_error(
                0,
                self.header.first,
                "the header is not the one that the segment had",
            ))
        } else {
            Err(self.io_error("open", io::ErrorKind::NotFound.into()))
        }
    }

    /// Makes it a compacted segment of the `records` that have been noted, which covers all up to
    /// `last`. Only the file is left to be changed.
    pub(crate) fn convert_to_compacted(&mut self, last: Seq, records: u64) {
        self.header.compacted = Some(CompactedRange { last, records });
        self.header.file_bytes = self.end();
        self.file_bytes = self.header.file_bytes;
        self.last = OnceLock::from(last);
    }

    /// Marks the segment as indexed up to what has been noted.
    pub(crate) fn mark_indexed(&self) {
        self.lock_content().is_indexed = true;
    }

    /// Where the next frame goes.
    pub(crate) fn end(&self) -> u64 {
        self.lock_content().end
    }

    /// Bytes of header and frames, where known.
    pub(crate) fn used_bytes(&self) -> Option<u64> {
        let content = self.lock_content();
        match self.header.compacted {
            Some(_) => Some(self.file_bytes),
            None => content.is_indexed.then_some(content.end),
        }
    }

    /// Notes a frame that has been written at the end, with its records' starts counted from the
    /// frame's.
    pub(crate) fn index_written_frame(&self, header: &FrameHeader, starts: &[u32]) {
        let mut content = self.lock_content();
        let offset = content.end;
        content.index.add_starts(offset, header, self.header.salt, starts);
        content.end += header.frame_bytes();
    }

    /// Notes a frame found on disk at the end.
    pub(crate) fn index_found_frame(&self, frame: &Frame) {
        self.lock_content().index_frame(frame);
    }

    /// The stretch in which `seq` is, if it is anywhere here; `ahead` index entries longer than
    /// needed.
    pub(crate) fn index_span(&self, seq: Seq, ahead: usize) -> Result<Option<IndexSpan>, LogError> {
        let mut content = self.lock_content();
        if !content.is_indexed && !content.index.has_span(seq, ahead) {
            let mut window = Window::new(self.file_bytes);
            let result = self.extend_index(&mut content, &mut window, seq, ahead);
            self.handles.add_fetched_bytes(window.read_bytes());
            result?;
        }
        if let Some((from, what)) = content.damage
            && seq >= from
        {
            return Err(self.corrupt_error(content.end, from, what));
        }
        let mut span = content.index.span(seq, ahead, content.end);
        if let (Some(stretch), Some((damaged, _))) = (&mut span, content.damage) {
            stretch.end_seq = stretch.end_seq.min(damaged);
        }
        Ok(span)
    }

    /// Reads on to learn where records are, to the end of the stretch in which `seq` is or as far
    /// as the segment is whole. Their checksums are looked at when they are read.
    fn extend_index(
        &self,
        content: &mut SegmentContent,
        window: &mut Window,
        seq: Seq,
        ahead: usize,
    ) -> Result<(), LogError> {
        let file = self.file()?;
        let salt = self.header.salt;
        let last = self.last.get().copied();
        while !self.is_end(content.end, content.indexed_to, last) {
            // What has been read for it anyway is noted too.
            if content.index.has_span(seq, ahead) && !window.holds_frame(salt, content.end) {
                return Ok(());
            }
            let scanned = read_frame(window, &*file, salt, content.end)
                .map_err(|error| self.io_error("read", error))?;
            let what = match scanned {
                ScannedFrame::Frame(frame) if frame.header.first > content.indexed_to => {
                    let end = record_starts(&frame.records).last();
                    content.indexed_to = end.map_or(content.indexed_to, |(seq, _)| seq);
                    content.index_frame(&frame);
                    continue;
                }
                ScannedFrame::Frame(_) => "a frame's sequence number is out of order",
                ScannedFrame::Nothing => "no frame where one should be",
                ScannedFrame::Bad(what) => what,
            };
            content.damage = Some((content.indexed_to.next(), what));
            break;
        }
        content.is_indexed = true;
        Ok(())
    }

    /// Writes the records from `from` on once more, as they are. After a failed sync the kernel may
    /// show what it never wrote and believe that it did; a sync alone would do nothing.
    pub(crate) fn rewrite(&self, file: &D::File, from: Seq) -> io::Result<()> {
        let content = self.lock_content();
        if self.header.compacted.is_some() {
            return Ok(());
        }
        let span = content.index.span(from, 0, content.end);
        // With the frame's header, should the record be its first.
        let mut offset = span.map_or(SEGMENT_HEADER_BYTES, |stretch| {
            u64::from(stretch.begin.offset) - FRAME_HEADER_BYTES as u64
        });
        while offset < content.end {
            let length = (content.end - offset).min(WINDOW_BYTES as u64) as usize;
            write_all(file, &read_exactly(file, offset, length)?, offset)?;
            offset += length as u64;
        }
        Ok(())
    }

    /// Whether nothing follows a frame that ended at `end` and whose last record was `reached`.
    pub(crate) fn is_end(&self, end: u64, reached: Seq, last: Option<Seq>) -> bool {
        match self.header.compacted {
            Some(_) => end >= self.file_bytes,
            None => last.is_some_and(|last| reached >= last),
        }
    }

    pub(crate) fn path(&self) -> String {
        format!("{}/{}", self.place, self.name)
    }

    pub(crate) fn io_error(&self, action: &'static str, source: io::Error) -> LogError {
        LogError::Io { action, file: self.path(), source: Arc::new(source) }
    }

    pub(crate) fn corrupt_error(&self, offset: u64, seq: Seq, what: &'static str) -> LogError {
        LogError::Corrupt { file: self.path(), offset, seq, what }
    }

    fn lock_content(&self) -> MutexGuard<'_, SegmentContent> {
        lock(&self.content)
    }
}

impl<D: Disk> Drop for Segment<D> {
    fn drop(&mut self) {
        self.handles.evict(Identity::from_header(&self.header));
    }
}

impl SegmentContent {
    fn index_frame(&mut self, frame: &Frame) {
        self.index.add_records(frame.offset, frame.seal, &frame.records);
        self.end = frame.offset + frame.header.frame_bytes();
    }
}

/// Where some of a segment's records are, in order.
#[derive(Debug)]
pub(crate) struct Index {
    entries: Vec<IndexEntry>,
    /// There is an entry for each record at least this many bytes behind the last that has one.
    stride_bytes: u64,
}

impl Index {
    /// An index without entries.
    pub(crate) fn new(stride_bytes: u64) -> Self {
        Self { entries: Vec::new(), stride_bytes }
    }

    /// Notes a frame at `offset` whose records begin at `starts`, counted from the frame's start.
    fn add_starts(&mut self, offset: u64, header: &FrameHeader, salt: Salt, starts: &[u32]) {
        let records_end = offset as u32 + FRAME_HEADER_BYTES as u32 + header.record_bytes;
        let mut index = 0;
        loop {
            let next_offset = self.next_entry_offset().saturating_sub(offset);
            index += starts[index..].partition_point(|start| u64::from(*start) < next_offset);
            let Some(start) = starts.get(index) else {
                return;
            };
            self.entries.push(IndexEntry {
                seq: header.first.plus(index as u64),
                offset: offset as u32 + start,
                records_end,
                seal: Seal::new(salt, header.nonce),
            });
            index += 1;
        }
    }

    /// Notes a frame at `offset` with these records.
    pub(crate) fn add_records(&mut self, offset: u64, seal: Seal, records: &[u8]) {
        let records_end = offset as u32 + (FRAME_HEADER_BYTES + records.len()) as u32;
        for (seq, start) in record_starts(records) {
            let offset = offset + (FRAME_HEADER_BYTES + start) as u64;
            if offset >= self.next_entry_offset() {
                self.entries.push(IndexEntry { seq, offset: offset as u32, records_end, seal });
            }
        }
    }

    fn next_entry_offset(&self) -> u64 {
        self.entries.last().map_or(0, |entry| u64::from(entry.offset) + self.stride_bytes)
    }

    /// Whether it is known where the stretch ends in which `seq` is.
    fn has_span(&self, seq: Seq, ahead: usize) -> bool {
        let after = self.entries.partition_point(|entry| entry.seq <= seq);
        after + ahead < self.entries.len()
    }

    fn span(&self, seq: Seq, ahead: usize, segment_end: u64) -> Option<IndexSpan> {
        let after = self.entries.partition_point(|entry| entry.seq <= seq);
        let begin = self.entries[after.checked_sub(1)?];
        let (end, end_seq) = match self.entries.get(after + ahead) {
            Some(next) => (u64::from(next.offset), next.seq),
            None => (segment_end, Seq(u64::MAX)),
        };
        Some(IndexSpan { begin, end, end_seq })
    }
}
