//! What lies in a segment after its end, or after the place where it was damaged.

use crate::disk::{Disk, DiskFile, read_exactly, write_zeros};
use crate::file::scan::WINDOW_BYTES;
use crate::file::segment::Segment;
use crate::format::{
    FRAME_ALIGNMENT, FRAME_HEADER_BYTES, FrameHeader, SEGMENT_HEADER_BYTES, Salt, SegmentHeader,
};
use crate::{LogError, Seq};

/// What is found of a segment's life after the place where it should end.
#[derive(Default)]
pub(super) struct TrailingData {
    /// The highest `synced_below` found.
    pub synced_below: Seq,
    /// One more than the last record of any frame that is found.
    pub end_seq: Seq,
    /// Where the last thing found ends.
    pub end: u64,
    /// Bytes from where the log ends up to `end`, later segments included.
    pub bytes: u64,
    /// Offsets at which something begins like a frame.
    frame_offsets: Vec<u64>,
}

impl TrailingData {
    pub(crate) fn scan<D: Disk>(segment: &Segment<D>, from: u64) -> Result<Self, LogError> {
        let file = segment.file()?;
        let salt = segment.header.salt;
        let mut trailing = Self::default();
        let mut offset = from;
        while offset < segment.file_bytes {
            let bytes_left = (segment.file_bytes - offset) as usize;
            let length = bytes_left.min(WINDOW_BYTES + FRAME_HEADER_BYTES);
            let piece = read_exactly(&*file, offset, length)
                .map_err(|error| segment.io_error("read", error))?;
            trailing.find_frames(salt, &piece, offset);
            offset += WINDOW_BYTES as u64;
        }
        trailing.end = trailing.end.min(segment.file_bytes);
        Ok(trailing)
    }

    /// Adds a whole segment that follows.
    pub(crate) fn add_segment<D: Disk>(&mut self, following: &Segment<D>) -> Result<(), LogError> {
        let SegmentHeader { first, synced_below, compacted, .. } = following.header;
        let end_seq = compacted.map_or(first, |covered| covered.last.next());
        let contained = Self::scan(following, SEGMENT_HEADER_BYTES)?;
        self.synced_below = self.synced_below.max(synced_below).max(contained.synced_below);
        self.end_seq = self.end_seq.max(contained.end_seq).max(end_seq);
        self.bytes += contained.end.max(SEGMENT_HEADER_BYTES);
        Ok(())
    }

    fn find_frames(&mut self, salt: Salt, piece: &[u8], offset: u64) {
        let searched = &piece[..piece.len().min(WINDOW_BYTES)];
        for (index, block) in searched.chunks(FRAME_ALIGNMENT).enumerate() {
            if !FrameHeader::has_frame_start(salt, block) {
                continue;
            }
            let start = index * FRAME_ALIGNMENT;
            let position = offset + start as u64;
            self.frame_offsets.push(position);
            self.end = self.end.max(position + FRAME_HEADER_BYTES as u64);
            if let Some(header) = FrameHeader::decode(salt, &piece[start..]) {
                self.synced_below = self.synced_below.max(header.synced_below);
                self.end_seq = self.end_seq.max(header.first.plus(u64::from(header.count)));
                self.end = self.end.max(position + header.frame_bytes());
            }
        }
    }

    /// Makes sure that nothing found ever checks again, once other frames lie before it.
    pub(crate) fn wipe<D: Disk>(&self, segment: &Segment<D>, from: u64) -> Result<(), LogError> {
        if self.frame_offsets.is_empty() {
            return Ok(());
        }
        let file = segment.file()?;
        let write_error = |error| segment.io_error("write", error);
        for frame_offset in &self.frame_offsets {
            let end = (frame_offset + FRAME_HEADER_BYTES as u64).min(segment.file_bytes);
            write_zeros(&*file, (*frame_offset).max(from), end).map_err(write_error)?;
        }
        file.sync_data().map_err(write_error)
    }
}
