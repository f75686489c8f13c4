//! One segment: its file, what its header says, and a sparse index of its records.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use super::scan::{Found, Frame, Window, frame_at, record_starts};
use crate::disk::{Disk, DiskFile, read_exactly};
use crate::format::{
    BadHeader, FORMAT_VERSION, FRAME_HEADER_BYTES, SEGMENT_HEADER_BYTES, SegmentHeader,
};
use crate::{LogError, Seq};

/// The index has an entry for a record at least this far behind the last one that has one.
const INDEX_STRIDE_BYTES: u64 = 16 << 10;

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
}

/// The part of a segment between two index entries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stretch {
    pub begin: IndexEntry,
    /// Where it ends in the file.
    pub end: u64,
    /// No record at or above this is in it.
    pub before: Seq,
}

#[derive(Debug, Default)]
struct Content {
    index: Index,
    /// Where the next frame goes.
    end: u64,
    /// False until somebody has needed the index of a segment that recovery did not scan.
    indexed: bool,
}

/// One segment.
#[derive(Debug)]
pub(crate) struct Segment<F> {
    pub name: String,
    /// The directory's path, for messages.
    pub place: Arc<str>,
    pub file: F,
    pub header: SegmentHeader,
    pub file_bytes: u64,
    /// Set when the segment is sealed.
    pub last: OnceLock<Seq>,
    content: Mutex<Content>,
}

impl<F: DiskFile> Segment<F> {
    /// A segment that has just been begun.
    pub fn begun(place: Arc<str>, file: F, header: SegmentHeader, file_bytes: u64) -> Self {
        Self {
            name: segment_name(header.first),
            place,
            file,
            header,
            file_bytes,
            last: OnceLock::new(),
            content: Mutex::new(Content {
                index: Index::default(),
                end: SEGMENT_HEADER_BYTES,
                indexed: true,
            }),
        }
    }

    /// A segment that a compaction has written.
    pub fn compacted(
        place: Arc<str>,
        file: F,
        header: SegmentHeader,
        index: Index,
        used_bytes: u64,
    ) -> Self {
        let segment = Self::begun(place, file, header, used_bytes);
        *segment.content() = Content {
            index,
            end: used_bytes,
            indexed: true,
        };
        if let Some(extent) = header.compacted {
            segment.last.set(extent.last).expect("the lock is new");
        }
        segment
    }

    /// Opens the segment whose file is `name`.
    pub fn open<D: Disk<File = F>>(
        disk: &D,
        place: Arc<str>,
        name: String,
        first: Seq,
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
        let file = disk.open(&name).map_err(failed("open"))?;
        let file_bytes = file.size_bytes().map_err(failed("stat"))?;
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
                "the header is of another segment than the file's name",
            ));
        }
        let last = OnceLock::new();
        if let Some(extent) = header.compacted {
            if extent.last < first || extent.used_bytes != file_bytes {
                return Err(corrupt(
                    "the compacted file's length is not what its header says",
                ));
            }
            last.set(extent.last).expect("the lock is new");
        }
        Ok(Self {
            name,
            place,
            file,
            header,
            file_bytes,
            last,
            content: Mutex::new(Content {
                end: SEGMENT_HEADER_BYTES,
                ..Content::default()
            }),
        })
    }

    /// Marks the segment as indexed up to what has been noted.
    pub fn complete(&self) {
        self.content().indexed = true;
    }

    /// Where the next frame goes.
    pub fn end(&self) -> u64 {
        self.content().end
    }

    /// Bytes of header and frames, where known.
    pub fn used_bytes(&self) -> Option<u64> {
        let content = self.content();
        match self.header.compacted {
            Some(extent) => Some(extent.used_bytes),
            None => content.indexed.then_some(content.end),
        }
    }

    /// Notes a frame that has been written at the end, with its records' starts counted from the
    /// frame's, and the sequence number each has.
    pub fn note(&self, frame_bytes: u64, record_bytes: u32, starts: &[u32], first: Seq) {
        let mut content = self.content();
        let offset = content.end;
        content
            .index
            .note_starts(offset, record_bytes, starts, first);
        content.end += frame_bytes;
    }

    /// Notes a frame found on disk at the end.
    pub fn note_found(&self, frame: &Frame) {
        self.content().note_found(frame);
    }

    /// The stretch in which `seq` is, if it is anywhere here; `ahead` index entries longer than
    /// needed.
    pub fn stretch(&self, seq: Seq, ahead: usize) -> Result<Option<Stretch>, LogError> {
        let mut content = self.content();
        if !content.indexed {
            self.build_index(&mut content)?;
        }
        Ok(content.index.stretch(seq, ahead, content.end))
    }

    /// Reads the segment once to learn where its records are. Their checksums are looked at when
    /// they are read.
    fn build_index(&self, content: &mut Content) -> Result<(), LogError> {
        let mut window = Window::default();
        let last = self.last.get().copied();
        let mut reached = self.header.first.before();
        content.index = Index::default();
        content.end = SEGMENT_HEADER_BYTES;
        while !self.ends_at(content.end, reached, last) {
            let found = frame_at(&mut window, &self.file, self.header.salt, content.end)
                .map_err(|error| self.io("read", error))?;
            let frame = match found {
                Found::Frame(frame) => frame,
                Found::Nothing => {
                    return Err(self.corrupt(
                        content.end,
                        reached.next(),
                        "no frame where one should be",
                    ));
                }
                Found::Bad(what) => return Err(self.corrupt(content.end, reached.next(), what)),
            };
            reached = record_starts(&frame.records)
                .last()
                .map_or(reached, |(seq, _)| seq);
            content.note_found(&frame);
        }
        content.indexed = true;
        Ok(())
    }

    /// Whether nothing follows a frame that ended at `end` and whose last record was `reached`.
    pub fn ends_at(&self, end: u64, reached: Seq, last: Option<Seq>) -> bool {
        match self.header.compacted {
            Some(extent) => end >= extent.used_bytes,
            None => last.is_some_and(|last| reached >= last),
        }
    }

    pub fn path(&self) -> String {
        format!("{}/{}", self.place, self.name)
    }

    pub fn io(&self, action: &'static str, source: io::Error) -> LogError {
        LogError::Io {
            action,
            file: self.path(),
            source: Arc::new(source),
        }
    }

    pub fn corrupt(&self, offset: u64, seq: Seq, what: &'static str) -> LogError {
        LogError::Corrupt {
            file: self.path(),
            offset,
            seq,
            what,
        }
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        self.content
            .lock()
            .expect("no holder of this lock can panic")
    }
}

impl Content {
    fn note_found(&mut self, frame: &Frame) {
        self.index.note_records(frame.offset, &frame.records);
        self.end = frame.offset + frame.header.frame_bytes();
    }
}

/// Where some of a segment's records are, in order.
#[derive(Debug, Default)]
pub(crate) struct Index(Vec<IndexEntry>);

impl Index {
    /// Notes a frame at `offset` whose records begin at `starts`, counted from the frame's start,
    /// and have sequence numbers from `first` on.
    fn note_starts(&mut self, offset: u64, record_bytes: u32, starts: &[u32], first: Seq) {
        let records_end = offset as u32 + FRAME_HEADER_BYTES as u32 + record_bytes;
        let mut at = 0;
        loop {
            let wanted = self.next_due().saturating_sub(offset);
            at += starts[at..].partition_point(|start| u64::from(*start) < wanted);
            let Some(start) = starts.get(at) else { return };
            self.0.push(IndexEntry {
                seq: first.plus(at as u64),
                offset: offset as u32 + start,
                records_end,
            });
            at += 1;
        }
    }

    /// Notes a frame at `offset` with these records.
    pub fn note_records(&mut self, offset: u64, records: &[u8]) {
        let records_end = offset as u32 + (FRAME_HEADER_BYTES + records.len()) as u32;
        for (seq, start) in record_starts(records) {
            let offset = offset + (FRAME_HEADER_BYTES + start) as u64;
            if offset >= self.next_due() {
                self.0.push(IndexEntry {
                    seq,
                    offset: offset as u32,
                    records_end,
                });
            }
        }
    }

    fn next_due(&self) -> u64 {
        self.0
            .last()
            .map_or(0, |entry| u64::from(entry.offset) + INDEX_STRIDE_BYTES)
    }

    fn stretch(&self, seq: Seq, ahead: usize, segment_end: u64) -> Option<Stretch> {
        let after = self.0.partition_point(|entry| entry.seq <= seq);
        let begin = self.0[after.checked_sub(1)?];
        let (end, before) = match self.0.get(after + ahead) {
            Some(next) => (u64::from(next.offset), next.seq),
            None => (segment_end, Seq(u64::MAX)),
        };
        Some(Stretch { begin, end, before })
    }
}
