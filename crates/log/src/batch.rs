//! Records on their way into a log, laid out as they will be on disk, so that an append is one
//! write of one buffer.

use crate::Seq;
use crate::format::{
    FRAME_HEADER_BYTES, FrameHeader, RECORD_HEADER_BYTES, Salt, Seal, padded, seal_record,
};

/// Builds the records of one append. Reuse it: its buffers keep their size.
#[derive(Debug)]
pub struct Batch {
    /// Room for a frame's header, then the records. Headers are filled in when the batch is sealed.
    buffer: Vec<u8>,
    /// Where each record begins in the buffer.
    starts: Vec<u32>,
}

impl Default for Batch {
    fn default() -> Self {
        Self::new()
    }
}

impl Batch {
    /// A batch without records.
    pub fn new() -> Self {
        Self { buffer: vec![0; FRAME_HEADER_BYTES], starts: Vec::new() }
    }

    /// Appends one record to the batch.
    pub fn push(&mut self, record: &[u8]) {
        self.push_with(|buffer| buffer.extend_from_slice(record));
    }

    /// Adds a record, which `encode` appends to the buffer. It must only append: the buffer holds
    /// earlier records.
    ///
    /// # Panics
    /// When `encode` shortens the buffer, or the batch reaches 4 GiB.
    pub fn push_with(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        let result: Result<(), std::convert::Infallible> = self.try_push_with(|buffer| {
            encode(buffer);
            Ok(())
        });
        result.expect("an encoder that cannot fail does not");
    }

    /// Adds a record that `encode` appends to the buffer it is given, or nothing when it fails.
    ///
    /// # Errors
    /// What `encode` answers.
    ///
    /// # Panics
    /// When `encode` shortens the buffer, or the batch reaches 4 GiB.
    pub(crate) fn try_push_with<E>(
        &mut self,
        encode: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        let start = self.buffer.len();
        self.buffer.extend_from_slice(&[0; RECORD_HEADER_BYTES]);
        if let Err(error) = encode(&mut self.buffer) {
            self.buffer.truncate(start);
            return Err(error);
        }
        assert!(self.buffer.len() >= start + RECORD_HEADER_BYTES, "an encoder only appends");
        assert!(u32::try_from(self.buffer.len()).is_ok(), "a batch stays below 4 GiB");
        self.starts.push(start as u32);
        Ok(())
    }

    /// Number of records in the batch.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// Bytes an append of this batch takes in a log, headers included.
    pub fn frame_bytes(&self) -> usize {
        padded(self.buffer.len())
    }

    /// [`Batch::frame_bytes`] after one more record with a body of so many bytes.
    pub fn frame_bytes_with(&self, body_bytes: usize) -> usize {
        padded(self.buffer.len() + RECORD_HEADER_BYTES + body_bytes)
    }

    /// The body of the record that was pushed as number `index`, counted from 0.
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        let start = *self.starts.get(index)? as usize;
        Some(&self.buffer[start + RECORD_HEADER_BYTES..self.record_end(index)])
    }

    /// The bodies in the order they were pushed.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len())
            .map(|index| self.get(index).expect("the index is below the number of records"))
    }

    /// Removes every record and keeps the buffers.
    pub fn clear(&mut self) {
        self.buffer.truncate(FRAME_HEADER_BYTES);
        self.starts.clear();
    }

    /// Fills in the headers and answers the frame without its padding.
    pub(crate) fn seal(
        &mut self,
        salt: Salt,
        nonce: u64,
        first: Seq,
        synced_below: Seq,
    ) -> &mut Vec<u8> {
        let seal = Seal::new(salt, nonce);
        for (index, &start) in self.starts.iter().enumerate() {
            let end = self.record_end(index);
            let record = &mut self.buffer[start as usize..end];
            seal_record(seal, first.plus(index as u64), record);
        }
        let header = FrameHeader {
            nonce,
            first,
            synced_below,
            count: self.starts.len() as u32,
            record_bytes: (self.buffer.len() - FRAME_HEADER_BYTES) as u32,
        };
        header.encode(salt, &mut self.buffer);
        &mut self.buffer
    }

    /// Gives the sealed frame away and takes buffers for the next one, whose content is dropped.
    pub(crate) fn swap_buffers(
        &mut self,
        mut buffer: Vec<u8>,
        mut starts: Vec<u32>,
    ) -> (Vec<u8>, Vec<u32>) {
        buffer.clear();
        buffer.resize(FRAME_HEADER_BYTES, 0);
        starts.clear();
        (std::mem::replace(&mut self.buffer, buffer), std::mem::replace(&mut self.starts, starts))
    }

    /// The frame as it stands, and where its records begin.
    pub(crate) fn frame_and_starts(&self) -> (&[u8], &[u32]) {
        (&self.buffer, &self.starts)
    }

    /// Capacity of the buffer.
    pub(crate) fn capacity(&self) -> usize {
        self.buffer.capacity()
    }

    fn record_end(&self, index: usize) -> usize {
        self.starts.get(index + 1).map_or(self.buffer.len(), |next| *next as usize)
    }
}

#[cfg(test)]
mod tests;
