//! One segment: its file, what its header says, and a sparse index of its records. The file is
//! opened when it is read, and closed when others are read more.

use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use egret_base::sync::lock;

use super::handles::{Handles, Identity};
use super::scan::{Frame, ScannedFrame, WINDOW_BYTES, Window, frame_at, record_starts};
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
    let plain = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| digits.parse().ok().map(Seq)).flatten()
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
    pub before: Seq,
}

#[derive(Debug)]
struct SegmentContent {
    index: Index,
    /// Where the next frame goes.
    end: u64,
    /// Whether the index reaches to the end. That of a segment which recovery did not scan grows as
    /// its records are asked for.
    indexed: bool,
    /// The last record that such an index has passed.
    reached: Seq,
    /// The first record that the index could not reach, and why.
    damage: Option<(Seq, &'static str)>,
}

pub(crate) struct Segment<D: Disk> {
    pub name: String,
    /// What the file is called until a compaction's result has been put in its place.
    temporary: Option<String>,
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
    pub gone: Arc<AtomicBool>,
    content: Mutex<SegmentContent>,
}

/// A segment with its file, which stays open for as long as this is held.
pub(crate) struct OpenSegment<D: Disk> {
    pub segment: Arc<Segment<D>>,
    pub file: Arc<D::File>,
}

impl<D: Disk> Segment<D> {
    /// A segment that has just been begun.
    pub(crate) fn begun(
        place: Arc<str>,
        handles: Arc<Handles<D>>,
        header: SegmentHeader,
        index: Index,
    ) -> Self {
        Self {
            name: segment_name(header.first),
            temporary: None,
            place,
            handles,
            header,
            file_bytes: header.file_bytes,
            found_bytes: header.file_bytes,
            last: OnceLock::new(),
            gone: Arc::default(),
            content: Mutex::new(SegmentContent {
                index,
                end: SEGMENT_HEADER_BYTES,
                indexed: true,
                reached: header.first.before(),
                damage: None,
            }),
        }
    }

    /// A segment that a compaction has written to the file `temporary_name`.
    pub(crate) fn compacted(
        place: Arc<str>,
        handles: Arc<Handles<D>>,
        temporary: String,
        header: SegmentHeader,
        index: Index,
    ) -> Self {
        let mut segment = Self::begun(place, handles, header, index);
        segment.temporary = Some(temporary);
        segment.content().end = header.file_bytes;
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
        any_length: bool,
    ) -> Result<Self, LogError> {
        let path = format!("{place}/{name}");
        let failed = |action| {
            let file = path.clone();
            move |source: io::Error| LogError::Io {
                action,
                file,
                source: Arc::new(source),
            }
        };
        let file = handles.disk.open(name).map_err(failed("open"))?;
        let found_bytes = file.size_bytes().map_err(failed("stat"))?;
        let block =
            read_exactly(&file, 0, SEGMENT_HEADER_BYTES as usize).map_err(failed("read"))?;
        let corrupt = |what| LogError::Corrupt {
            file: path.clone(),
            offset: 0,
            seq: first,
            what,
        };
        let header = SegmentHeader::decode(&block).map_err(|bad| match bad {
            BadHeader::Corrupt(what) => corrupt(what),
            BadHeader::Version(version) => LogError::UnknownVersion {
                file: path.clone(),
                version,
                known: FORMAT_VERSION,
            },
        })?;
        if header.first != first {
            return Err(corrupt(
                "the header belongs to another segment than the file name says",
            ));
        }
        if found_bytes != header.file_bytes && !any_length {
            return Err(corrupt("the file is not as long as its header says"));
        }
        if header.file_bytes > SEGMENT_BYTES_MAX {
            return Err(corrupt("the file is larger than any segment"));
        }
        if header.compacted.is_some_and(|covered| covered.last < first) {
            return Err(corrupt("the segment ends before it begins"));
        }
        handles.keep(Identity::of(&header), Arc::new(file));
        let mut segment = Self::begun(place, handles, header, index);
        segment.found_bytes = found_bytes;
        segment.file_bytes = found_bytes.min(header.file_bytes);
        segment.content().indexed = false;
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
        let identity = Identity::of(&self.header);
        match self.handles.get(identity) {
            Some(file) => Ok(file),
            None => Ok(self.handles.keep(identity, Arc::new(self.open_again()?))),
        }
    }

    /// Another segment may have taken the name meanwhile: what the file says of itself decides.
    fn open_again(&self) -> Result<D::File, LogError> {
        let mut another = false;
        // It may be renamed between the first two attempts.
        let names = [Some(&self.name), self.temporary.as_ref(), Some(&self.name)];
        for name in names.into_iter().flatten() {
            let file = match self.handles.disk.open(name) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(self.io("open", error)),
            };
            let block = read_exactly(&file, 0, SEGMENT_HEADER_BYTES as usize)
                .map_err(|error| self.io("read", error))?;
            let header = SegmentHeader::decode(&block);
            if header.is_ok_and(|header| Identity::of(&header) == Identity::of(&self.header)) {
                return Ok(file);
            }
            another = true;
        }
        if another {
            Err(self.corrupt(
                0,
                self.header.first,
                "the header is not the one that the segment had",
            ))
        } else {
            Err(self.io("open", io::ErrorKind::NotFound.into()))
        }
    }

    /// Makes it a compacted segment of the `records` that have been noted, which covers all up to
    /// `last`. Only the file is left to be changed.
    pub(crate) fn close(&mut self, last: Seq, records: u64) {
        self.header.compacted = Some(CompactedRange { last, records });
        self.header.file_bytes = self.end();
        self.file_bytes = self.header.file_bytes;
        self.last = OnceLock::from(last);
    }

    /// Marks the segment as indexed up to what has been noted.
    pub(crate) fn complete(&self) {
        self.content().indexed = true;
    }

    /// Where the next frame goes.
    pub(crate) fn end(&self) -> u64 {
        self.content().end
    }

    /// Bytes of header and frames, where known.
    pub(crate) fn used_bytes(&self) -> Option<u64> {
        let content = self.content();
        match self.header.compacted {
            Some(_) => Some(self.file_bytes),
            None => content.indexed.then_some(content.end),
        }
    }

    /// Notes a frame that has been written at the end, with its records' starts counted from the
    /// frame's.
    pub(crate) fn note(&self, header: &FrameHeader, starts: &[u32]) {
        let mut content = self.content();
        let offset = content.end;
        content
            .index
            .note_starts(offset, header, self.header.salt, starts);
        content.end += header.frame_bytes();
    }

    /// Notes a frame found on disk at the end.
    pub(crate) fn note_found(&self, frame: &Frame) {
        self.content().note_found(frame);
    }

    /// The stretch in which `seq` is, if it is anywhere here; `ahead` index entries longer than
    /// needed.
    pub(crate) fn stretch(&self, seq: Seq, ahead: usize) -> Result<Option<IndexSpan>, LogError> {
        let mut content = self.content();
        if !content.indexed && !content.index.has_stretch(seq, ahead) {
            let mut window = Window::new(self.file_bytes);
            let extended = self.extend_index(&mut content, &mut window, seq, ahead);
            self.handles.note_fetched(window.read_bytes());
            extended?;
        }
        if let Some((from, what)) = content.damage
            && seq >= from
        {
            return Err(self.corrupt(content.end, from, what));
        }
        let mut stretch = content.index.stretch(seq, ahead, content.end);
        if let (Some(stretch), Some((damaged, _))) = (&mut stretch, content.damage) {
            stretch.before = stretch.before.min(damaged);
        }
        Ok(stretch)
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
        while !self.ends_at(content.end, content.reached, last) {
            // What has been read for it anyway is noted too.
            if content.index.has_stretch(seq, ahead) && !window.holds_frame(salt, content.end) {
                return Ok(());
            }
            let found = frame_at(window, &*file, salt, content.end)
                .map_err(|error| self.io("read", error))?;
            let what = match found {
                ScannedFrame::Frame(frame) if frame.header.first > content.reached => {
                    let end = record_starts(&frame.records).last();
                    content.reached = end.map_or(content.reached, |(seq, _)| seq);
                    content.note_found(&frame);
                    continue;
                }
                ScannedFrame::Frame(_) => "a frame's sequence number is out of order",
                ScannedFrame::Nothing => "no frame where one should be",
                ScannedFrame::Bad(what) => what,
            };
            content.damage = Some((content.reached.next(), what));
            break;
        }
        content.indexed = true;
        Ok(())
    }

    /// Writes the records from `from` on once more, as they are. After a failed sync the kernel may
    /// show what it never wrote and believe that it did; a sync alone would do nothing.
    pub(crate) fn rewrite(&self, file: &D::File, from: Seq) -> io::Result<()> {
        let content = self.content();
        if self.header.compacted.is_some() {
            return Ok(());
        }
        let known = content.index.stretch(from, 0, content.end);
        // With the frame's header, should the record be its first.
        let mut offset = known.map_or(SEGMENT_HEADER_BYTES, |stretch| {
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
    pub(crate) fn ends_at(&self, end: u64, reached: Seq, last: Option<Seq>) -> bool {
        match self.header.compacted {
            Some(_) => end >= self.file_bytes,
            None => last.is_some_and(|last| reached >= last),
        }
    }

    pub(crate) fn path(&self) -> String {
        format!("{}/{}", self.place, self.name)
    }

    pub(crate) fn io(&self, action: &'static str, source: io::Error) -> LogError {
        LogError::Io {
            action,
            file: self.path(),
            source: Arc::new(source),
        }
    }

    pub(crate) fn corrupt(&self, offset: u64, seq: Seq, what: &'static str) -> LogError {
        LogError::Corrupt {
            file: self.path(),
            offset,
            seq,
            what,
        }
    }

    fn content(&self) -> MutexGuard<'_, SegmentContent> {
        lock(&self.content)
    }
}

impl<D: Disk> Drop for Segment<D> {
    fn drop(&mut self) {
        self.handles.forget(Identity::of(&self.header));
    }
}

impl SegmentContent {
    fn note_found(&mut self, frame: &Frame) {
        self.index
            .note_records(frame.offset, frame.seal, &frame.records);
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
        Self {
            entries: Vec::new(),
            stride_bytes,
        }
    }

    /// Notes a frame at `offset` whose records begin at `starts`, counted from the frame's start.
    fn note_starts(&mut self, offset: u64, header: &FrameHeader, salt: Salt, starts: &[u32]) {
        let records_end = offset as u32 + FRAME_HEADER_BYTES as u32 + header.record_bytes;
        let mut at = 0;
        loop {
            let wanted = self.next_due().saturating_sub(offset);
            at += starts[at..].partition_point(|start| u64::from(*start) < wanted);
            let Some(start) = starts.get(at) else { return };
            self.entries.push(IndexEntry {
                seq: header.first.plus(at as u64),
                offset: offset as u32 + start,
                records_end,
                seal: Seal::new(salt, header.nonce),
            });
            at += 1;
        }
    }

    /// Notes a frame at `offset` with these records.
    pub(crate) fn note_records(&mut self, offset: u64, seal: Seal, records: &[u8]) {
        let records_end = offset as u32 + (FRAME_HEADER_BYTES + records.len()) as u32;
        for (seq, start) in record_starts(records) {
            let offset = offset + (FRAME_HEADER_BYTES + start) as u64;
            if offset >= self.next_due() {
                self.entries.push(IndexEntry {
                    seq,
                    offset: offset as u32,
                    records_end,
                    seal,
                });
            }
        }
    }

    fn next_due(&self) -> u64 {
        self.entries
            .last()
            .map_or(0, |entry| u64::from(entry.offset) + self.stride_bytes)
    }

    /// Whether it is known where the stretch ends in which `seq` is.
    fn has_stretch(&self, seq: Seq, ahead: usize) -> bool {
        let after = self.entries.partition_point(|entry| entry.seq <= seq);
        after + ahead < self.entries.len()
    }

    fn stretch(&self, seq: Seq, ahead: usize, segment_end: u64) -> Option<IndexSpan> {
        let after = self.entries.partition_point(|entry| entry.seq <= seq);
        let begin = self.entries[after.checked_sub(1)?];
        let (end, before) = match self.entries.get(after + ahead) {
            Some(next) => (u64::from(next.offset), next.seq),
            None => (segment_end, Seq(u64::MAX)),
        };
        Some(IndexSpan { begin, end, before })
    }
}
