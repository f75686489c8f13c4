//! Reading a segment's frames in order, in large pieces.

use std::io;

use bytes::Bytes;

use crate::Seq;
use crate::disk::{DiskFile, read_exactly};
use crate::format::{FRAME_HEADER_BYTES, FrameHeader, RecordHeader, Salt, Seal};

/// How much is read at once.
pub(crate) const WINDOW_BYTES: usize = 512 << 10;

/// The part of a file that is in memory.
#[derive(Debug)]
pub(crate) struct Window {
    bytes: Bytes,
    start: u64,
    file_bytes: u64,
    read_bytes: u64,
}

impl Window {
    /// A window on a file of this size.
    pub(crate) fn new(file_bytes: u64) -> Self {
        Self { bytes: Bytes::new(), start: 0, file_bytes, read_bytes: 0 }
    }

    /// Bytes read from the file so far.
    pub(crate) fn read_bytes(&self) -> u64 {
        self.read_bytes
    }

    /// Whether the whole frame at `offset` is in memory.
    pub(crate) fn holds_frame(&self, salt: Salt, offset: u64) -> bool {
        let frame = offset
            .checked_sub(self.start)
            .and_then(|from| self.bytes.get(from as usize..))
            .unwrap_or_default();
        let header =
            frame.get(..FRAME_HEADER_BYTES).and_then(|head| FrameHeader::decode(salt, head));
        header.is_some_and(|header| header.frame_bytes() <= frame.len() as u64)
    }

    /// The `length` bytes at `offset`, or nothing where the file ends before.
    pub(crate) fn get(
        &mut self,
        file: &impl DiskFile,
        offset: u64,
        length: usize,
    ) -> io::Result<Option<Bytes>> {
        let end = offset + length as u64;
        if end > self.file_bytes {
            return Ok(None);
        }
        let held_range = self.start..self.start + self.bytes.len() as u64;
        if !(held_range.contains(&offset) && end <= held_range.end) {
            let window_bytes = (self.file_bytes - offset).min(WINDOW_BYTES as u64) as usize;
            self.bytes = read_exactly(file, offset, length.max(window_bytes))?.into();
            self.read_bytes += self.bytes.len() as u64;
            self.start = offset;
        }
        let from = (offset - self.start) as usize;
        Ok((self.bytes.len() >= from + length).then(|| self.bytes.slice(from..from + length)))
    }
}

/// A frame in memory, its records not yet checked.
#[derive(Debug)]
pub(crate) struct Frame {
    pub header: FrameHeader,
    /// Where the frame begins in its file.
    pub offset: u64,
    pub records: Bytes,
    pub seal: Seal,
}

/// Result of reading at an offset where a frame should begin.
#[derive(Debug)]
pub(crate) enum ScannedFrame {
    Frame(Frame),
    /// No frame of this life.
    Nothing,
    /// A frame whose records do not check.
    Bad(&'static str),
}

/// The frame at `offset`, its records not yet checked.
pub(crate) fn read_frame(
    window: &mut Window,
    file: &impl DiskFile,
    salt: Salt,
    offset: u64,
) -> io::Result<ScannedFrame> {
    let Some(head) = window.get(file, offset, FRAME_HEADER_BYTES)? else {
        return Ok(ScannedFrame::Nothing);
    };
    let Some(header) = FrameHeader::decode(salt, &head) else {
        return Ok(ScannedFrame::Nothing);
    };
    let records_offset = offset + FRAME_HEADER_BYTES as u64;
    match window.get(file, records_offset, header.record_bytes as usize)? {
        Some(records) => Ok(ScannedFrame::Frame(Frame {
            header,
            offset,
            records,
            seal: Seal::new(salt, header.nonce),
        })),
        None => Ok(ScannedFrame::Bad("the frame is longer than its file")),
    }
}

impl Frame {
    /// Checks every record; `is_contiguous` where the segment has not been compacted.
    pub(crate) fn check(&self, is_contiguous: bool) -> Result<(), &'static str> {
        let mut offset = 0;
        let mut expected = self.header.first;
        for _ in 0..self.header.count {
            let record = RecordHeader::decode_checked(self.seal, &self.records[offset..])
                .ok_or("a record's checksum does not match")?;
            let is_in_order =
                if is_contiguous { record.seq == expected } else { record.seq >= expected };
            if !is_in_order {
                return Err("a record's sequence number is out of order");
            }
            expected = record.seq.next();
            offset += record.record_bytes();
        }
        if offset != self.records.len() {
            return Err("the frame's length is not that of its records");
        }
        Ok(())
    }
}

/// Sequence number and start of each of a frame's records. Stops early at one that does not fit.
pub(crate) fn record_starts(records: &[u8]) -> impl Iterator<Item = (Seq, usize)> {
    let mut offset = 0;
    std::iter::from_fn(move || {
        let record = RecordHeader::decode(records.get(offset..)?)?;
        let start = offset;
        offset += record.record_bytes();
        Some((record.seq, start))
    })
}
