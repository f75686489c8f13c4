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
    pub below: Seq,
    /// Where the last thing found ends.
    pub end: u64,
    /// Bytes from where the log ends up to `end`, later segments included.
    pub bytes: u64,
    /// Offsets at which something begins like a frame.
    places: Vec<u64>,
}

impl TrailingData {
    pub(crate) fn find<D: Disk>(segment: &Segment<D>, from: u64) -> Result<Self, LogError> {
        let file = segment.file()?;
        let salt = segment.header.salt;
        let mut later = Self::default();
        let mut offset = from;
        while offset < segment.file_bytes {
            let rest = (segment.file_bytes - offset) as usize;
            let length = rest.min(WINDOW_BYTES + FRAME_HEADER_BYTES);
            let piece =
                read_exactly(&*file, offset, length).map_err(|error| segment.io("read", error))?;
            later.search(salt, &piece, offset);
            offset += WINDOW_BYTES as u64;
        }
        later.end = later.end.min(segment.file_bytes);
        Ok(later)
    }

    /// Adds a whole segment that follows.
    pub(crate) fn add<D: Disk>(&mut self, following: &Segment<D>) -> Result<(), LogError> {
        let SegmentHeader {
            first,
            synced_below,
            compacted,
            ..
        } = following.header;
        let covered = compacted.map_or(first, |covered| covered.last.next());
        let inside = Self::find(following, SEGMENT_HEADER_BYTES)?;
        self.synced_below = self.synced_below.max(synced_below).max(inside.synced_below);
        self.below = self.below.max(inside.below).max(covered);
        self.bytes += inside.end.max(SEGMENT_HEADER_BYTES);
        Ok(())
    }

    fn search(&mut self, salt: Salt, piece: &[u8], offset: u64) {
        let ours = &piece[..piece.len().min(WINDOW_BYTES)];
        for (index, place) in ours.chunks(FRAME_ALIGNMENT).enumerate() {
            if !FrameHeader::begins(salt, place) {
                continue;
            }
            let start = index * FRAME_ALIGNMENT;
            let place = offset + start as u64;
            self.places.push(place);
            self.end = self.end.max(place + FRAME_HEADER_BYTES as u64);
            if let Some(header) = FrameHeader::decode(salt, &piece[start..]) {
                self.synced_below = self.synced_below.max(header.synced_below);
                self.below = self.below.max(header.first.plus(u64::from(header.count)));
                self.end = self.end.max(place + header.frame_bytes());
            }
        }
    }

    /// Makes sure that nothing found ever checks again, once other frames lie before it.
    pub(crate) fn wipe<D: Disk>(&self, segment: &Segment<D>, from: u64) -> Result<(), LogError> {
        if self.places.is_empty() {
            return Ok(());
        }
        let file = segment.file()?;
        let failed = |error| segment.io("write", error);
        for place in &self.places {
            let end = (place + FRAME_HEADER_BYTES as u64).min(segment.file_bytes);
            write_zeros(&*file, (*place).max(from), end).map_err(failed)?;
        }
        file.sync_data().map_err(failed)
    }
}
