//! Prometheus's chunk of numbers: what a stream of remote read is made of.
//!
//! Two bytes say how many samples there are (big endian), then come bits, the highest of each byte
//! first. Of the first sample: its time (a zigzag varint) and its value (64 bits). Of the second:
//! the difference of its time (a varint), then its value as below. Of all others:
//!
//! | difference from the difference before | bits |
//! |---|---|
//! | none | `0` |
//! | fits 14 bits, 17 bits, 20 bits | `10`, `110`, `1110`, then so many bits |
//! | else | `1111`, then 64 bits |
//!
//! A value is the exclusive-or of its bits with those of the value before:
//!
//! - zero: `0`
//! - within the window of the one before: `10`, then the bits of that window
//! - else: `11`, leading zeros (5 bits, at most 31), length of the new window (6 bits, 64 is 0),
//!   its bits
//!
//! Where this is from: `tsdb/chunkenc/xor.go` and `tsdb/docs/format/chunks.md` of Prometheus.

use egret_base::codec::{put_varint, zigzag};

use egret_metrics_model::TimeMs;

/// Samples of a chunk, as Prometheus cuts them.
pub(crate) const SAMPLES_MAX: usize = 120;

/// Bits after a prefix, which has as many ones as there are sizes before it.
const DIFFERENCE_BITS: [u32; 3] = [14, 17, 20];

/// The bits of a value that differ from the one before.
#[derive(Clone, Copy)]
struct BitWindow {
    leading: u32,
    trailing: u32,
}

/// Writes single bits to the end of a vector of bytes.
struct Bits<'out> {
    out: &'out mut Vec<u8>,
    /// Bits of the last byte that are not written yet.
    free: u32,
}

impl Bits<'_> {
    /// Writes the lowest `count` bits.
    fn put(&mut self, bits: u64, count: u32) {
        let mut left = count;
        while left > 0 {
            if self.free == 0 {
                self.out.push(0);
                self.free = 8;
            }
            let taken = left.min(self.free);
            left -= taken;
            self.free -= taken;
            let piece = (bits >> left) as u8 & (0xff >> (8 - taken));
            let last = self.out.last_mut().expect("one was pushed");
            *last |= piece << self.free;
        }
    }

    fn put_difference(&mut self, difference: i64) {
        if difference == 0 {
            return self.put(0, 1);
        }
        for (ones, bits) in (1..).zip(DIFFERENCE_BITS) {
            let half = 1_i64 << (bits - 1);
            if (1 - half..=half).contains(&difference) {
                // The ones, and a zero after them.
                self.put((1 << (ones + 1)) - 2, ones + 1);
                return self.put(difference as u64, bits);
            }
        }
        self.put(0b1111, 4);
        self.put(difference as u64, 64);
    }

    fn put_value(&mut self, changed: u64, window: &mut Option<BitWindow>) {
        if changed == 0 {
            return self.put(0, 1);
        }
        let leading = changed.leading_zeros().min(31);
        let trailing = changed.trailing_zeros();
        if let Some(BitWindow {
            leading: before,
            trailing: after,
        }) = *window
            && leading >= before
            && trailing >= after
        {
            self.put(0b10, 2);
            return self.put(changed >> after, 64 - before - after);
        }
        *window = Some(BitWindow { leading, trailing });
        let length = 64 - leading - trailing;
        self.put(0b11, 2);
        self.put(leading.into(), 5);
        self.put(u64::from(length % 64), 6);
        self.put(changed >> trailing, length);
    }
}

/// Appends a chunk of samples, of which there are at most 65,535; times and values are as many, and
/// times ascend.
pub fn append(times_ms: &[TimeMs], values: &[f64], out: &mut Vec<u8>) {
    out.extend_from_slice(&(times_ms.len() as u16).to_be_bytes());
    let mut bits = Bits { out, free: 0 };
    let (mut last_ms, mut last_difference, mut last_value) = (0, 0, 0);
    let mut window = None;
    for (at, (time_ms, value)) in times_ms.iter().zip(values).enumerate() {
        let value = value.to_bits();
        let difference = time_ms.wrapping_sub(last_ms);
        match at {
            0 => {
                put_varint(bits.out, zigzag(*time_ms));
                bits.put(value, 64);
            }
            1 => {
                // All before are whole bytes.
                put_varint(bits.out, difference as u64);
                bits.put_value(value ^ last_value, &mut window);
            }
            _ => {
                bits.put_difference(difference.wrapping_sub(last_difference));
                bits.put_value(value ^ last_value, &mut window);
            }
        }
        (last_ms, last_difference, last_value) = (*time_ms, difference, value);
    }
}

#[cfg(test)]
pub(super) mod tests;
