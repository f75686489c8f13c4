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
    pub(super) placeholders: Vec<usize>,
}

/// Compresses `raw`; `placeholders` are ranges of it, ascending.
pub(super) fn compress(raw: &[u8], placeholders: &[Range<usize>]) -> SnappyBody {
    let mut is_fixed = vec![true; raw.len()];
    for placeholder in placeholders {
        is_fixed[placeholder.clone()].fill(false);
    }
    let mut encoder = SnappyEncoder {
        raw,
        placeholders,
        next_placeholder: 0,
        body: SnappyBody {
            bytes: Vec::with_capacity(raw.len() / 2),
            placeholders: Vec::with_capacity(placeholders.len()),
        },
    };
    push_varint(&mut encoder.body.bytes, raw.len() as u64);
    let mut table = vec![0_usize; 1 << TABLE_BITS];
    let (mut position, mut literal) = (0, 0);
    while position + COPY_MIN <= raw.len() {
        let word = [raw[position], raw[position + 1], raw[position + 2], raw[position + 3]];
        let hash = u32::from_le_bytes(word).wrapping_mul(0x1e35_a7bd) >> (32 - TABLE_BITS);
        let before = std::mem::replace(&mut table[hash as usize], position);
        let length = if before < position && position - before <= OFFSET_MAX {
            match_length(raw, &is_fixed, before, position)
        } else {
            0
        };
        if length < COPY_MIN {
            position += 1;
            continue;
        }
        encoder.push_literal(literal..position);
        encoder.push_copy(position - before, length);
        position += length;
        literal = position;
    }
    encoder.push_literal(literal..raw.len());
    encoder.body
}

/// How many bytes at two places are the same and in no placeholder.
fn match_length(raw: &[u8], is_fixed: &[bool], before: usize, position: usize) -> usize {
    (0..raw.len() - position)
        .take_while(|&offset| {
            is_fixed[before + offset]
                && is_fixed[position + offset]
                && raw[before + offset] == raw[position + offset]
        })
        .count()
}

struct SnappyEncoder<'a> {
    raw: &'a [u8],
    placeholders: &'a [Range<usize>],
    next_placeholder: usize,
    body: SnappyBody,
}

impl SnappyEncoder<'_> {
    fn push_literal(&mut self, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        let out = &mut self.body.bytes;
        let length_minus_one = range.len() - 1;
        match length_minus_one {
            0..60 => out.push((length_minus_one as u8) << 2),
            60..256 => out.extend([60 << 2, length_minus_one as u8]),
            256..65_536 => {
                out.push(61 << 2);
                out.extend_from_slice(&(length_minus_one as u16).to_le_bytes());
            }
            _ => {
                out.push(63 << 2);
                out.extend_from_slice(&(length_minus_one as u32).to_le_bytes());
            }
        }
        while let Some(placeholder) = self.placeholders.get(self.next_placeholder)
            && placeholder.start < range.end
        {
            self.body.placeholders.push(out.len() + placeholder.start - range.start);
            self.next_placeholder += 1;
        }
        out.extend_from_slice(&self.raw[range]);
    }

    fn push_copy(&mut self, offset: usize, mut length: usize) {
        while length > 0 {
            let chunk_length = length.min(COPY_MAX);
            self.body.bytes.push(((chunk_length - 1) as u8) << 2 | 2);
            let offset = offset as u16;
            self.body.bytes.extend_from_slice(&offset.to_le_bytes());
            length -= chunk_length;
        }
    }
}

/// A number in groups of seven bits, the lowest first.
pub(super) fn push_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

#[cfg(test)]
mod tests;
