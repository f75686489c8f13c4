//! The last appended frames, kept in memory so that what has just been written is not read back.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::format::{RECORD_HEADER_BYTES, RecordHeader};
use crate::{Batch, Seq};

/// What a frame costs besides its bytes.
const FRAME_OVERHEAD_BYTES: usize = 128;
/// Buffers kept for the next batches.
const SPARE_BUFFERS_MAX: usize = 4;

#[derive(Debug)]
struct RecentFrame {
    first: Seq,
    bytes: Bytes,
    /// Where each record begins in `bytes`.
    starts: Vec<u32>,
    weight: usize,
}

/// Frames with contiguous sequence numbers, oldest first, bounded by their bytes.
#[derive(Debug)]
pub(crate) struct RecentFrames {
    frames: VecDeque<RecentFrame>,
    weight: usize,
    weight_max: usize,
    spare_buffers: Vec<(Vec<u8>, Vec<u32>)>,
}

impl RecentFrames {
    pub(crate) fn new(weight_max: usize) -> Self {
        Self { frames: VecDeque::new(), weight: 0, weight_max, spare_buffers: Vec::new() }
    }

    /// Takes over what a sealed batch holds, and leaves it empty.
    pub(crate) fn push(&mut self, batch: &mut Batch, first: Seq) {
        let (frame, starts) = batch.frame_and_starts();
        // A buffer that is mostly empty would hold more memory than is counted for it.
        let (bytes, starts) = if frame.len() * 2 < batch.capacity() {
            let copied = (Bytes::copy_from_slice(frame), starts.to_vec());
            batch.clear();
            copied
        } else {
            let size = frame.len();
            let (buffer, offsets) =
                self.spare_buffers.pop().unwrap_or_else(|| (Vec::with_capacity(size), Vec::new()));
            let (frame, starts) = batch.swap_buffers(buffer, offsets);
            (Bytes::from(frame), starts)
        };
        let weight = bytes.len() + starts.len() * size_of::<u32>() + FRAME_OVERHEAD_BYTES;
        self.weight += weight;
        self.frames.push_back(RecentFrame { first, bytes, starts, weight });
        while self.weight > self.weight_max {
            let Some(oldest) = self.frames.pop_front() else {
                break;
            };
            self.weight -= oldest.weight;
            self.reclaim_buffers(oldest);
        }
    }

    /// The body of the record `seq`, if it is here.
    pub(crate) fn get(&self, seq: Seq) -> Option<Bytes> {
        let after = self.frames.partition_point(|frame| frame.first <= seq);
        let frame = &self.frames[after.checked_sub(1)?];
        let start = *frame.starts.get((seq.0 - frame.first.0) as usize)? as usize;
        let header = RecordHeader::decode(&frame.bytes[start..])?;
        let body = start + RECORD_HEADER_BYTES;
        Some(frame.bytes.slice(body..body + header.body_bytes))
    }

    /// Keeps a frame's buffers for another batch, unless a reader still uses them.
    fn reclaim_buffers(&mut self, frame: RecentFrame) {
        if self.spare_buffers.len() >= SPARE_BUFFERS_MAX {
            return;
        }
        if let Ok(mut buffer) = frame.bytes.try_into_mut() {
            buffer.clear();
            self.spare_buffers.push((buffer.into(), frame.starts));
        }
    }
}
