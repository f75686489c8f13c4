//! The content of a simulated file: as processes see it, and as it would survive.

use std::collections::BTreeMap;

use super::SplitMix64;

/// What is written as one or not at all.
const SECTOR_BYTES: u64 = 512;

#[derive(Debug, Default)]
pub(super) struct Inode {
    /// As processes see it.
    pub content: Vec<u8>,
    /// As it would be found after a loss of power, without luck.
    pub durable: Vec<u8>,
    /// What was written since the last sync, in order.
    pub pending: Vec<(u64, Vec<u8>)>,
}

impl Inode {
    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) {
        put(&mut self.content, offset, bytes);
        self.pending.push((offset, bytes.to_vec()));
    }

    /// What is cut off is not found after a loss of power either.
    pub(crate) fn truncate(&mut self, size_bytes: usize) {
        self.content.truncate(size_bytes);
        self.durable.truncate(size_bytes);
        for (offset, bytes) in &mut self.pending {
            bytes.truncate(size_bytes.saturating_sub(*offset as usize));
        }
        self.pending.retain(|(_, bytes)| !bytes.is_empty());
    }

    pub(crate) fn sync(&mut self) {
        for (offset, bytes) in self.pending.drain(..) {
            put(&mut self.durable, offset, &bytes);
        }
    }

    /// Per sector, some of the writes to it are found, in their order, and perhaps a part of one
    /// more.
    pub(crate) fn lose_power(&mut self, random: &mut SplitMix64) {
        let mut sectors: BTreeMap<u64, Vec<(u64, &[u8])>> = BTreeMap::new();
        for (offset, bytes) in &self.pending {
            let mut processed = 0;
            while processed < bytes.len() {
                let position = offset + processed as u64;
                let bytes_left = (SECTOR_BYTES - position % SECTOR_BYTES) as usize;
                let end = (processed + bytes_left).min(bytes.len());
                let sector = sectors.entry(position / SECTOR_BYTES).or_default();
                sector.push((position, &bytes[processed..end]));
                processed = end;
            }
        }
        for writes in sectors.values() {
            let write_count = random.next_below(writes.len() as u64 + 1) as usize;
            for (offset, bytes) in &writes[..write_count] {
                put(&mut self.durable, *offset, bytes);
            }
            if let Some((offset, bytes)) = writes.get(write_count)
                && random.percent(20)
            {
                let partial_length = random.next_below(bytes.len() as u64) as usize;
                put(&mut self.durable, *offset, &bytes[..partial_length]);
            }
        }
        self.pending.clear();
        self.content.clone_from(&self.durable);
    }
}

fn put(content: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
    let end = offset as usize + bytes.len();
    if content.len() < end {
        content.resize(end, 0);
    }
    content[offset as usize..end].copy_from_slice(bytes);
}
