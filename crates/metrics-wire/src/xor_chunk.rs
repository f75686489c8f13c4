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
    free_bits: u32,
}

impl Bits<'_> {
    /// Writes the lowest `count` bits.
    fn write(&mut self, bits: u64, count: u32) {
        let mut remaining = count;
        while remaining > 0 {
            if self.free_bits == 0 {
                self.out.push(0);
                self.free_bits = 8;
            }
            let written = remaining.min(self.free_bits);
            remaining -= written;
            self.free_bits -= written;
            let piece = (bits >> remaining) as u8 & (0xff >> (8 - written));
            let last = self.out.last_mut().expect("one was pushed");
            *last |= piece << self.free_bits;
        }
    }

    fn write_difference(&mut self, difference: i64) {
        if difference == 0 {
            return self.write(0, 1);
        }
        for (ones, bits) in (1..).zip(DIFFERENCE_BITS) {
            let half = 1_i64 << (bits - 1);
            if (1 - half..=half).contains(&difference) {
                // The ones, and a zero after them.
                self.write((1 << (ones + 1)) - 2, ones + 1);
                return self.write(difference as u64, bits);
            }
        }
        self.write(0b1111, 4);
        self.write(difference as u64, 64);
    }

    fn write_value(&mut self, xor: u64, window: &mut Option<BitWindow>) {
        if xor == 0 {
            return self.write(0, 1);
        }
        let leading = xor.leading_zeros().min(31);
        let trailing = xor.trailing_zeros();
        if let Some(BitWindow { leading: before, trailing: after }) = *window
            && leading >= before
            && trailing >= after
        {
            self.write(0b10, 2);
            return self.write(xor >> after, 64 - before - after);
        }
        *window = Some(BitWindow { leading, trailing });
        let length = 64 - leading - trailing;
        self.write(0b11, 2);
        self.write(leading.into(), 5);
        self.write(u64::from(length % 64), 6);
        self.write(xor >> trailing, length);
    }
}

/// Appends a chunk of samples, of which there are at most 65,535; times and values are as many, and
/// times ascend.
pub(crate) fn append_chunk(times_ms: &[TimeMs], values: &[f64], out: &mut Vec<u8>) {
    out.extend_from_slice(&(times_ms.len() as u16).to_be_bytes());
    let mut bits = Bits { out, free_bits: 0 };
    let (mut last_ms, mut last_difference, mut last_value) = (0, 0, 0);
    let mut window = None;
    for (index, (time_ms, value)) in times_ms.iter().zip(values).enumerate() {
        let value = value.to_bits();
        let difference = time_ms.wrapping_sub(last_ms);
        match index {
            0 => {
                put_varint(bits.out, zigzag(*time_ms));
                bits.write(value, 64);
            }
            1 => {
                // All before are whole bytes.
                put_varint(bits.out, difference as u64);
                bits.write_value(value ^ last_value, &mut window);
            }
            _ => {
                bits.write_difference(difference.wrapping_sub(last_difference));
                bits.write_value(value ^ last_value, &mut window);
            }
        }
        (last_ms, last_difference, last_value) = (*time_ms, difference, value);
    }
}

#[cfg(test)]
pub(super) mod tests;
