//! Bits in words that others read meanwhile, the first bit the highest of its word.

use std::sync::atomic::{AtomicU64, Ordering};

/// Writes bits one after another. The word that is being filled is kept beside the atomic one.
#[derive(Debug, Default)]
pub(super) struct BitWriter {
    len: usize,
    word: u64,
}

impl BitWriter {
    /// Number of bits written so far.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Writes the lowest `count` bits of `value`; there must be room. Others see them when they are
    /// told that they are there.
    pub(crate) fn write(&mut self, words: &[AtomicU64], value: u64, count: u32) {
        let value = match count {
            64 => value,
            count => value & ((1 << count) - 1),
        };
        let (index, used) = (self.len / 64, (self.len % 64) as u32);
        let free = 64 - used;
        if count < free {
            self.word |= value << (free - count);
            words[index].store(self.word, Ordering::Relaxed);
        } else {
            let remaining = count - free;
            words[index].store(self.word | value >> remaining, Ordering::Relaxed);
            self.word = match remaining {
                0 => 0,
                rest => value << (64 - rest),
            };
            if remaining > 0 {
                words[index + 1].store(self.word, Ordering::Relaxed);
            }
        }
        self.len += count as usize;
    }
}

/// Reads bits one after another; past the end they are zeros.
#[derive(Debug)]
pub(super) struct BitReader<'words> {
    words: &'words [AtomicU64],
    position: usize,
}

impl<'words> BitReader<'words> {
    pub(crate) fn new(words: &'words [AtomicU64]) -> Self {
        Self { words, position: 0 }
    }

    /// Number of bits read so far.
    pub(crate) fn position(&self) -> usize {
        self.position
    }

    #[inline(always)]
    fn word(&self, index: usize) -> u64 {
        self.words.get(index).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// The next 64 bits, without going on.
    #[inline(always)]
    pub(crate) fn peek(&self) -> u64 {
        let (index, used) = (self.position / 64, self.position % 64);
        match used {
            0 => self.word(index),
            used => self.word(index) << used | self.word(index + 1) >> (64 - used),
        }
    }

    /// Goes on after `count` bits.
    #[inline(always)]
    pub(crate) fn skip(&mut self, count: u32) {
        self.position += count as usize;
    }

    /// The next `count` bits, of which there is at least one.
    #[inline(always)]
    pub(crate) fn read(&mut self, count: u32) -> u64 {
        let bits = self.peek() >> (64 - count);
        self.position += count as usize;
        bits
    }
}
