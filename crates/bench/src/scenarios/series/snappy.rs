//! Snappy with placeholders: a compressed body in which some bytes can be exchanged without
//! compressing it again.
//!
//! The generator shares its processors with the server, so it must not compress millions of samples
//! a second. Labels are compressed as senders do; values and times (the placeholders) stand in the
//! stream as they are, and no copy refers to them. Format:
//! <https://github.com/google/snappy/blob/main/format_description.txt>.

use std::ops::Range;

/// A copy reaches back so far at most: what two bytes hold.
const OFFSET_MAX: usize = 65_535;

/// The shortest that is worth a copy, and the longest that one carries.
const COPY_MIN: usize = 4;
const COPY_MAX: usize = 64;

/// Bits of the table that finds what has been there before.
const TABLE_BITS: u32 = 14;

/// What was compressed, and where its placeholders are now.
pub(super) struct SnappyBody {
    pub(super) bytes: Vec<u8>,
    /// Offset of each placeholder.
    pub(super) holes: Vec<usize>,
}

/// Compresses `raw`; `placeholders` are ranges of it, ascending.
pub(super) fn compress(raw: &[u8], holes: &[Range<usize>]) -> SnappyBody {
    let mut fixed = vec![true; raw.len()];
    for hole in holes {
        fixed[hole.clone()].fill(false);
    }
    let mut stream = SnappyEncoder {
        raw,
        holes,
        next_hole: 0,
        done: SnappyBody {
            bytes: Vec::with_capacity(raw.len() / 2),
            holes: Vec::with_capacity(holes.len()),
        },
    };
    varint(&mut stream.done.bytes, raw.len() as u64);
    let mut table = vec![0_usize; 1 << TABLE_BITS];
    let (mut position, mut literal) = (0, 0);
    while position + COPY_MIN <= raw.len() {
        let word = [
            raw[position],
            raw[position + 1],
            raw[position + 2],
            raw[position + 3],
        ];
        let hash = u32::from_le_bytes(word).wrapping_mul(0x1e35_a7bd) >> (32 - TABLE_BITS);
        let before = std::mem::replace(&mut table[hash as usize], position);
        let length = if before < position && position - before <= OFFSET_MAX {
            alike(raw, &fixed, before, position)
        } else {
            0
        };
        if length < COPY_MIN {
            position += 1;
            continue;
        }
        stream.literal(literal..position);
        stream.copy(position - before, length);
        position += length;
        literal = position;
    }
    stream.literal(literal..raw.len());
    stream.done
}

/// How many bytes at two places are the same and in no placeholder.
fn alike(raw: &[u8], fixed: &[bool], before: usize, position: usize) -> usize {
    (0..raw.len() - position)
        .take_while(|&at| {
            fixed[before + at] && fixed[position + at] && raw[before + at] == raw[position + at]
        })
        .count()
}

struct SnappyEncoder<'a> {
    raw: &'a [u8],
    holes: &'a [Range<usize>],
    next_hole: usize,
    done: SnappyBody,
}

impl SnappyEncoder<'_> {
    fn literal(&mut self, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        let out = &mut self.done.bytes;
        let less_one = range.len() - 1;
        match less_one {
            0..60 => out.push((less_one as u8) << 2),
            60..256 => out.extend([60 << 2, less_one as u8]),
            256..65_536 => {
                out.push(61 << 2);
                out.extend_from_slice(&(less_one as u16).to_le_bytes());
            }
            _ => {
                out.push(63 << 2);
                out.extend_from_slice(&(less_one as u32).to_le_bytes());
            }
        }
        while let Some(hole) = self.holes.get(self.next_hole)
            && hole.start < range.end
        {
            self.done.holes.push(out.len() + hole.start - range.start);
            self.next_hole += 1;
        }
        out.extend_from_slice(&self.raw[range]);
    }

    fn copy(&mut self, offset: usize, mut length: usize) {
        while length > 0 {
            let part = length.min(COPY_MAX);
            self.done.bytes.push(((part - 1) as u8) << 2 | 2);
            let offset = offset as u16;
            self.done.bytes.extend_from_slice(&offset.to_le_bytes());
            length -= part;
        }
    }
}

/// A number in groups of seven bits, the lowest first.
pub(super) fn varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

#[cfg(test)]
mod tests;
