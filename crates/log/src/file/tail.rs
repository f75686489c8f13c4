//! Every record from one on, in order, in a stream.

use std::sync::Arc;

use bytes::Bytes;

use super::read::ReadState;
use super::scan::{ScannedFrame, Window, frame_at};
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
    at: Seq,
    /// The first record not wanted.
    end: Seq,
    cursor: Option<Cursor<D>>,
}

impl<D: Disk> FileTail<D> {
    pub(crate) fn new(shared: Arc<ReadState<D>>, from: Seq) -> Self {
        Self {
            at: from,
            end: shared.next(),
            cursor: None,
            shared,
        }
    }

    fn advance(&mut self) -> Result<Option<(Seq, Bytes)>, LogError> {
        while self.at < self.end {
            let cursor = match &mut self.cursor {
                Some(cursor) => cursor,
                empty => {
                    let at = self.at;
                    let begun = self
                        .shared
                        .in_segment(at, |segment| Cursor::new(Arc::clone(segment), at))?;
                    empty.insert(begun)
                }
            };
            match cursor.next(self.at)? {
                Some((seq, _)) if seq >= self.end => break,
                Some((seq, body)) => {
                    self.at = seq.next();
                    return Ok(Some((seq, body)));
                }
                None => {
                    self.at = self.at.max(cursor.after());
                    self.cursor = None;
                }
            }
        }
        self.at = self.end;
        Ok(None)
    }
}

impl<D: Disk> Iterator for FileTail<D> {
    type Item = Result<(Seq, Bytes), LogError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.advance();
        if next.is_err() {
            self.at = self.end;
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
    at: usize,
    /// Where in the file `records` begins.
    records_offset: u64,
    /// Where the next frame begins.
    frame_offset: u64,
    /// The last record seen.
    reached: Seq,
}

impl<D: Disk> Cursor<D> {
    /// A place from which every record from `from` on is found.
    pub(crate) fn new(segment: Arc<Segment<D>>, from: Seq) -> Result<Self, LogError> {
        let mut cursor = Self {
            file: segment.file()?,
            window: Window::new(segment.file_bytes),
            records: Bytes::new(),
            seal: Seal::new(segment.header.salt, 0),
            at: 0,
            records_offset: 0,
            frame_offset: SEGMENT_HEADER_BYTES,
            reached: segment.header.first.before(),
            segment,
        };
        if from <= cursor.segment.header.first {
            return Ok(cursor);
        }
        if let Some(stretch) = cursor.segment.stretch(from, 0)? {
            let begin = stretch.begin;
            let length = (begin.records_end - begin.offset) as usize;
            cursor.records_offset = u64::from(begin.offset);
            cursor.frame_offset = padded(begin.records_end as usize) as u64;
            cursor.reached = begin.seq.before();
            cursor.seal = begin.seal;
            cursor.records = cursor
                .window
                .get(&*cursor.file, cursor.records_offset, length)
                .map_err(|error| cursor.segment.io("read", error))?
                .ok_or_else(|| cursor.corrupt("the frame is longer than its file"))?;
        }
        Ok(cursor)
    }

    /// The first sequence number after this segment, once it is sealed.
    fn after(&self) -> Seq {
        self.segment
            .last
            .get()
            .map_or(self.reached, |last| *last)
            .next()
    }

    /// The next record at or above `from`; nothing at the segment's end.
    pub(crate) fn next(&mut self, from: Seq) -> Result<Option<(Seq, Bytes)>, LogError> {
        loop {
            if self.at == self.records.len() && !self.next_frame()? {
                return Ok(None);
            }
            let Some(record) = RecordHeader::check(self.seal, &self.records[self.at..]) else {
                return Err(self.corrupt("a record's checksum does not match"));
            };
            let body = self.at + RECORD_HEADER_BYTES;
            let in_order = match self.segment.header.compacted {
                None => record.seq == self.reached.next(),
                Some(_) => record.seq > self.reached,
            };
            if !in_order {
                return Err(self.corrupt("a record's sequence number is out of order"));
            }
            self.reached = record.seq;
            self.at += record.record_bytes();
            if record.seq >= from {
                return Ok(Some((record.seq, self.records.slice(body..self.at))));
            }
        }
    }

    fn next_frame(&mut self) -> Result<bool, LogError> {
        let segment = &self.segment;
        if segment.ends_at(self.frame_offset, self.reached, segment.last.get().copied()) {
            return Ok(false);
        }
        let found = frame_at(
            &mut self.window,
            &*self.file,
            segment.header.salt,
            self.frame_offset,
        )
        .map_err(|error| segment.io("read", error))?;
        self.at = 0;
        self.records_offset = self.frame_offset;
        match found {
            ScannedFrame::Frame(frame) => {
                self.records_offset += FRAME_HEADER_BYTES as u64;
                self.frame_offset += frame.header.frame_bytes();
                self.records = frame.records;
                self.seal = frame.seal;
                Ok(true)
            }
            ScannedFrame::Nothing => Err(self.corrupt("no frame where one should be")),
            ScannedFrame::Bad(what) => Err(self.corrupt(what)),
        }
    }

    fn corrupt(&self, what: &'static str) -> LogError {
        let offset = self.records_offset + self.at as u64;
        self.segment.corrupt(offset, self.reached.next(), what)
    }
}
