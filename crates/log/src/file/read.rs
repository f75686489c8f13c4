//! Reading while the owner appends: what the owner and its readers share, and the chunk cache.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use bytes::Bytes;
use egret_base::sync::{lock, read_lock};

use super::handles::Handles;
use super::recent::RecentFrames;
use super::segment::{IndexSpan, Segment};
use super::tail::FileTail;
use crate::disk::{Disk, read_exactly};
use crate::format::{
    FRAME_HEADER_BYTES, FrameHeader, RECORD_HEADER_BYTES, RecordHeader, Salt, Seal, padded,
};
use crate::{Directory, LogConfig, LogError, LogReader, Seq};

/// How many index entries more are read when the chunk before was read too.
const READ_AHEAD_ENTRIES: usize = 15;

/// State shared by the owner of a log and its readers.
pub(crate) struct ReadState<D: Disk> {
    pub place: Arc<str>,
    pub handles: Arc<Handles<D>>,
    /// Oldest first; the last one is active.
    pub segments: RwLock<Vec<Arc<Segment<D>>>>,
    /// Nothing at or above this may be read yet.
    pub next: AtomicU64,
    pub recent: Mutex<RecentFrames>,
    chunks: Mutex<Chunks>,
}

impl<D: Disk> ReadState<D> {
    pub(crate) fn new(
        place: Arc<str>,
        handles: Arc<Handles<D>>,
        config: &LogConfig,
        segments: Vec<Arc<Segment<D>>>,
        next: Seq,
    ) -> Self {
        Self {
            place,
            handles,
            segments: RwLock::new(segments),
            next: AtomicU64::new(next.0),
            recent: Mutex::new(RecentFrames::new(config.cache_bytes)),
            chunks: Mutex::new(Chunks::new(config.chunk_cache_bytes)),
        }
    }

    pub(crate) fn next(&self) -> Seq {
        Seq(self.next.load(Ordering::Acquire))
    }

    pub(crate) fn first(&self) -> Seq {
        let segments = read_lock(&self.segments);
        segments.first().map_or_else(|| self.next(), |segment| segment.header.first)
    }

    /// The segment that covers `seq`.
    ///
    /// # Errors
    /// [`LogError::Truncated`] and [`LogError::Ahead`].
    pub(crate) fn segment(&self, seq: Seq) -> Result<Arc<Segment<D>>, LogError> {
        let next = self.next();
        if seq >= next {
            return Err(LogError::Ahead { seq, next });
        }
        let segments = read_lock(&self.segments);
        let index_after = segments.partition_point(|segment| segment.header.first <= seq);
        match index_after.checked_sub(1) {
            Some(index) => Ok(Arc::clone(&segments[index])),
            None => Err(LogError::Truncated {
                seq,
                first: segments.first().map_or(next, |segment| segment.header.first),
            }),
        }
    }

    /// Forgets chunks of records from `first` to `last`.
    pub(crate) fn evict_chunks(&self, first: Seq, last: Seq) {
        lock(&self.chunks).evict(first, last);
    }

    /// Does something with the segment that covers `seq`. When that fails and the log has another
    /// one in its place meanwhile, the file of the first had gone, and the other is taken.
    pub(crate) fn with_segment<R>(
        &self,
        seq: Seq,
        mut work: impl FnMut(&Arc<Segment<D>>) -> Result<R, LogError>,
    ) -> Result<R, LogError> {
        let mut segment = self.segment(seq)?;
        loop {
            let error = match work(&segment) {
                Ok(result) => return Ok(result),
                Err(error) => error,
            };
            let current = self.segment(seq)?;
            if Arc::ptr_eq(&current, &segment) {
                return Err(error);
            }
            segment = current;
        }
    }

    fn read(&self, seq: Seq) -> Result<Bytes, LogError> {
        let recent = lock(&self.recent).get(seq);
        match recent {
            Some(body) => Ok(body),
            None => self.with_segment(seq, |segment| self.read_from_segment(segment, seq)),
        }
    }

    fn read_from_segment(&self, segment: &Segment<D>, seq: Seq) -> Result<Bytes, LogError> {
        let salt = segment.header.salt.0;
        let mut chunks = lock(&self.chunks);
        if let Some(cached) = chunks.get(salt, seq) {
            return cached.ok_or(LogError::Compacted { seq });
        }
        let is_sequential = chunks.ends_before(salt, seq);
        // Other readers must not wait for this thread's disk access.
        drop(chunks);
        let ahead = if is_sequential { READ_AHEAD_ENTRIES } else { 0 };
        let Some(span) = segment.index_span(seq, ahead)? else {
            return Err(self.missing_record_error(segment, seq));
        };
        let chunk = Chunk::load(segment, span, seq, self.next())?;
        let body = chunk.get(seq);
        let mut chunks = lock(&self.chunks);
        chunks.insert(chunk);
        drop(chunks);
        body.ok_or_else(|| self.missing_record_error(segment, seq))
    }

    fn missing_record_error(&self, segment: &Segment<D>, seq: Seq) -> LogError {
        if segment.header.compacted.is_some() {
            return LogError::Compacted { seq };
        }
        segment.corrupt_error(
            segment.end(),
            seq,
            "the record is not where its segment should have it",
        )
    }
}

/// Reads a [`crate::FileLog`] from any thread.
pub struct FileReader<D: Disk = Directory> {
    pub(crate) shared: Arc<ReadState<D>>,
}

impl<D: Disk> Clone for FileReader<D> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<D: Disk> LogReader for FileReader<D> {
    type Tail = FileTail<D>;

    fn read(&self, seq: Seq) -> Result<Bytes, LogError> {
        self.shared.read(seq)
    }

    fn read_from(&self, from: Seq) -> FileTail<D> {
        FileTail::new(Arc::clone(&self.shared), from)
    }

    fn fetched_bytes(&self) -> u64 {
        self.shared.handles.fetched_bytes()
    }
}

/// Checked records of a stretch of one segment.
#[derive(Debug)]
struct Chunk {
    /// The segment's salt, which no other segment has.
    salt: u64,
    first: Seq,
    /// No record at or above this is in the chunk.
    end_seq: Seq,
    bytes: Bytes,
    /// Sequence number and start in `bytes` of each record.
    records: Vec<(Seq, u32)>,
}

impl Chunk {
    /// Reads and checks a stretch, for the record `wanted`; damage after it ends the chunk. Records
    /// at and above `next` are not committed.
    fn load<D: Disk>(
        segment: &Segment<D>,
        span: IndexSpan,
        wanted: Seq,
        next: Seq,
    ) -> Result<Self, LogError> {
        let base = u64::from(span.begin.offset);
        let length = (span.end - base) as usize;
        let file = segment.file()?;
        let bytes: Bytes = read_exactly(&*file, base, length)
            .map_err(|error| segment.io_error("read", error))?
            .into();
        segment.handles.add_fetched_bytes(length as u64);
        let mut cursor = RecordCursor {
            salt: segment.header.salt,
            is_contiguous: segment.header.compacted.is_none(),
            seal: span.begin.seal,
            file_offset: base,
            length,
            position: 0,
            records_end: (u64::from(span.begin.records_end) - base) as usize,
            expected: span.begin.seq,
        };
        let mut records = Vec::new();
        let end_seq = loop {
            match cursor.next(&bytes) {
                Ok(Some(record)) => records.push(record),
                Ok(None) => break span.end_seq,
                Err(_) if cursor.expected > wanted => break cursor.expected,
                Err(what) => {
                    return Err(segment.corrupt_error(
                        base + cursor.position as u64,
                        cursor.expected,
                        what,
                    ));
                }
            }
        };
        // Only where records may be missing does their absence mean anything.
        let before = match (&segment.header.compacted, end_seq) {
            (None, _) => cursor.expected,
            (Some(range), Seq(u64::MAX)) => range.last.next(),
            (Some(_), before) => before,
        };
        Ok(Self {
            salt: segment.header.salt.0,
            first: span.begin.seq,
            end_seq: before.min(next),
            bytes,
            records,
        })
    }

    fn covers(&self, salt: u64, seq: Seq) -> bool {
        self.salt == salt && self.first <= seq && seq < self.end_seq
    }

    fn get(&self, seq: Seq) -> Option<Bytes> {
        let index = self.records.binary_search_by_key(&seq, |(seq, _)| *seq).ok()?;
        let start = self.records[index].1 as usize;
        let header = RecordHeader::decode(&self.bytes[start..])?;
        let body = start + RECORD_HEADER_BYTES;
        Some(self.bytes.slice(body..body + header.body_bytes))
    }

    fn weight(&self) -> usize {
        self.bytes.len() + self.records.len() * size_of::<(Seq, u32)>()
    }
}

/// Cursor over the records of a stretch.
struct RecordCursor {
    salt: Salt,
    is_contiguous: bool,
    seal: Seal,
    /// Where in the file the stretch begins.
    file_offset: u64,
    length: usize,
    /// Where in the stretch the next record is.
    position: usize,
    /// Where in the stretch the records of the present frame end.
    records_end: usize,
    expected: Seq,
}

impl RecordCursor {
    /// Sequence number and start of the next record, checked.
    fn next(&mut self, bytes: &[u8]) -> Result<Option<(Seq, u32)>, &'static str> {
        if self.position >= self.records_end {
            let frame =
                padded(self.file_offset as usize + self.records_end) - self.file_offset as usize;
            if frame + FRAME_HEADER_BYTES >= self.length {
                return Ok(None);
            }
            let header = bytes
                .get(frame..)
                .and_then(|rest| FrameHeader::decode(self.salt, rest))
                .ok_or("no frame where one should be")?;
            self.position = frame + FRAME_HEADER_BYTES;
            self.records_end = self.position + header.record_bytes as usize;
            self.seal = Seal::new(self.salt, header.nonce);
        }
        if self.position >= self.length {
            return Ok(None);
        }
        let record = bytes
            .get(self.position..self.records_end.min(bytes.len()))
            .and_then(|rest| RecordHeader::decode_checked(self.seal, rest))
            .ok_or("a record's checksum does not match")?;
        if record.seq < self.expected || (self.is_contiguous && record.seq > self.expected) {
            return Err("a record's sequence number is out of order");
        }
        let start = self.position as u32;
        self.expected = record.seq.next();
        self.position += record.record_bytes();
        Ok(Some((record.seq, start)))
    }
}

/// Chunks read lately, the last used one first, bounded by their bytes.
#[derive(Debug)]
struct Chunks {
    chunks: VecDeque<Chunk>,
    weight: usize,
    weight_max: usize,
}

impl Chunks {
    fn new(weight_max: usize) -> Self {
        Self { chunks: VecDeque::new(), weight: 0, weight_max }
    }

    /// The record if its chunk is here; `Some(None)` when the chunk is here and the record is not
    /// in it.
    fn get(&mut self, salt: u64, seq: Seq) -> Option<Option<Bytes>> {
        let index = self.chunks.iter().position(|chunk| chunk.covers(salt, seq))?;
        if index > 0 {
            let chunk = self.chunks.remove(index)?;
            self.chunks.push_front(chunk);
        }
        Some(self.chunks[0].get(seq))
    }

    /// Whether the record before `seq` ends a cached chunk: then the log is being read in order.
    fn ends_before(&self, salt: u64, seq: Seq) -> bool {
        self.chunks.iter().any(|chunk| chunk.salt == salt && chunk.end_seq == seq)
    }

    fn insert(&mut self, chunk: Chunk) {
        self.weight += chunk.weight();
        self.chunks.push_front(chunk);
        while self.weight > self.weight_max && self.chunks.len() > 1 {
            if let Some(oldest) = self.chunks.pop_back() {
                self.weight -= oldest.weight();
            }
        }
    }

    fn evict(&mut self, first: Seq, last: Seq) {
        self.chunks.retain(|chunk| chunk.end_seq <= first || chunk.first > last);
        self.weight = self.chunks.iter().map(Chunk::weight).sum();
    }
}
