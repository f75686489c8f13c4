//! Every record from one on, in order, in a stream.

use std::sync::Arc;

use bytes::Bytes;

use super::read::ReadState;
use super::scan::{ScannedFrame, Window, read_frame};
use super::segment::Segment;
use crate::disk::Disk;
use crate::format::{
    FRAME_HEADER_BYTES, RECORD_HEADER_BYTES, RecordHeader, SEGMENT_HEADER_BYTES, Seal, padded,
};
use crate::{Directory, LogError, Seq};

/// The records of a [`crate::FileLog`] from one sequence number to the end it had when asked, in
/// order. Ends after an error.
pub struct FileTail<D: Disk = Directory> {
    shared: Arc<ReadState<D>>,
    /// The next record wanted.
    next_seq: Seq,
    /// The first record not wanted.
    end: Seq,
    cursor: Option<Cursor<D>>,
}

impl<D: Disk> FileTail<D> {
    pub(crate) fn new(shared: Arc<ReadState<D>>, from: Seq) -> Self {
        Self { next_seq: from, end: shared.next(), cursor: None, shared }
    }

    fn advance(&mut self) -> Result<Option<(Seq, Bytes)>, LogError> {
        while self.next_seq < self.end {
            let cursor = match &mut self.cursor {
                Some(cursor) => cursor,
                empty => {
                    let at = self.next_seq;
                    let new_cursor = self
                        .shared
                        .with_segment(at, |segment| Cursor::new(Arc::clone(segment), at))?;
                    empty.insert(new_cursor)
                }
            };
            match cursor.next(self.next_seq)? {
                Some((seq, _)) if seq >= self.end => break,
                Some((seq, body)) => {
                    self.next_seq = seq.next();
                    return Ok(Some((seq, body)));
                }
                None => {
                    self.next_seq = self.next_seq.max(cursor.end_seq());
                    self.cursor = None;
                }
            }
        }
        self.next_seq = self.end;
        Ok(None)
    }
}

impl<D: Disk> Iterator for FileTail<D> {
    type Item = Result<(Seq, Bytes), LogError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.advance();
        if next.is_err() {
            self.next_seq = self.end;
        }
        next.transpose()
    }
}

/// A place in one segment.
pub(crate) struct Cursor<D: Disk> {
    segment: Arc<Segment<D>>,
    file: Arc<D::File>,
    window: Window,
    /// The records of the present frame.
    records: Bytes,
    seal: Seal,
    /// Where in `records` the next one begins.
    position: usize,
    /// Where in the file `records` begins.
    records_offset: u64,
    /// Where the next frame begins.
    frame_offset: u64,
    /// The last record seen.
    last_seq: Seq,
}

impl<D: Disk> Cursor<D> {
    /// A place from which every record from `from` on is found.
    pub(crate) fn new(segment: Arc<Segment<D>>, from: Seq) -> Result<Self, LogError> {
        let mut cursor = Self {
            file: segment.file()?,
            window: Window::new(segment.file_bytes),
            records: Bytes::new(),
            seal: Seal::new(segment.header.salt, 0),
            position: 0,
            records_offset: 0,
            frame_offset: SEGMENT_HEADER_BYTES,
            last_seq: segment.header.first.previous(),
            segment,
        };
        if from <= cursor.segment.header.first {
            return Ok(cursor);
        }
        if let Some(span) = cursor.segment.index_span(from, 0)? {
            let begin = span.begin;
            let length = (begin.records_end - begin.offset) as usize;
            cursor.records_offset = u64::from(begin.offset);
            cursor.frame_offset = padded(begin.records_end as usize) as u64;
            cursor.last_seq = begin.seq.previous();
            cursor.seal = begin.seal;
            cursor.records = cursor
                .window
                .get(&*cursor.file, cursor.records_offset, length)
                .map_err(|error| cursor.segment.io_error("read", error))?
                .ok_or_else(|| cursor.corrupt_error("the frame is longer than its file"))?;
        }
        Ok(cursor)
    }

    /// The first sequence number after this segment, once it is sealed.
    fn end_seq(&self) -> Seq {
        self.segment.last.get().map_or(self.last_seq, |last| *last).next()
    }

    /// The next record at or above `from`; nothing at the segment's end.
    pub(crate) fn next(&mut self, from: Seq) -> Result<Option<(Seq, Bytes)>, LogError> {
        loop {
            if self.position == self.records.len() && !self.load_next_frame()? {
                return Ok(None);
            }
            let Some(record) =
                RecordHeader::decode_checked(self.seal, &self.records[self.position..])
            else {
                return Err(self.corrupt_error("a record's checksum does not match"));
            };
            let body = self.position + RECORD_HEADER_BYTES;
            let is_in_order = match self.segment.header.compacted {
                None => record.seq == self.last_seq.next(),
                Some(_) => record.seq > self.last_seq,
            };
            if !is_in_order {
                return Err(self.corrupt_error("a record's sequence number is out of order"));
            }
            self.last_seq = record.seq;
            self.position += record.record_bytes();
            if record.seq >= from {
                return Ok(Some((record.seq, self.records.slice(body..self.position))));
            }
        }
    }

    fn load_next_frame(&mut self) -> Result<bool, LogError> {
        let segment = &self.segment;
        if segment.is_end(self.frame_offset, self.last_seq, segment.last.get().copied()) {
            return Ok(false);
        }
        let scanned =
            read_frame(&mut self.window, &*self.file, segment.header.salt, self.frame_offset)
                .map_err(|error| segment.io_error("read", error))?;
        self.position = 0;
        self.records_offset = self.frame_offset;
        match scanned {
            ScannedFrame::Frame(frame) => {
                self.records_offset += FRAME_HEADER_BYTES as u64;
                self.frame_offset += frame.header.frame_bytes();
                self.records = frame.records;
                self.seal = frame.seal;
                Ok(true)
            }
            ScannedFrame::Nothing => Err(self.corrupt_error("no frame where one should be")),
            ScannedFrame::Bad(what) => Err(self.corrupt_error(what)),
        }
    }

    fn corrupt_error(&self, what: &'static str) -> LogError {
        let offset = self.records_offset + self.position as u64;
        self.segment.corrupt_error(offset, self.last_seq.next(), what)
    }
}
