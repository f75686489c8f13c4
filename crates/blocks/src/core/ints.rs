//! Columns of integers: differences of first or second order where that is smaller, then packed
//! into bits.
//!
//! | | |
//! |---|---|
//! | head | a byte: the order of the differences (2 bits), how they are kept (6 bits, below) |
//! | leads | signed: the first number, the first difference; as many as the order |
//! | 0 | all that follow are this one (signed) |
//! | 1 | packed in frames of 128 |
//! | 2 | packed in frames of 1024 |
//! | 3 | compressed by pco |
//!
//! A packed frame has a base (signed), a byte with the width of its numbers and whether some are
//! exceptions, then those (how many, and for each the steps from the place of the one before and
//! the difference to the base, signed), then what all numbers are above the base, in so many bits
//! each. What does not fit is an exception and zero there, so that a counter that begins anew costs
//! a few bytes and does not widen the rest.

use egret_base::codec::{DecodeError, Reader, put_varint, unzigzag, zigzag};

use super::Effort;
use crate::core::pack::{pack, unpack};

const WHAT: &str = "a column of integers";

const SAME: u8 = 0;
const FRAME_METHODS: [(u8, usize); 2] = [(1, 128), (2, 1024)];
const PCO: u8 = 3;

const EXCEPTIONS: u8 = 0x80;

/// Columns shorter than this are not compressed by pco: its header costs more
/// than it saves.
const PCO_NUMBERS_MIN: usize = 64;

fn put_signed(out: &mut Vec<u8>, value: i64) {
    put_varint(out, zigzag(value));
}

/// Appends a column. It does not store the number of its values: the reader must know it.
pub fn encode(numbers: &[i64], effort: Effort, out: &mut Vec<u8>) {
    let mut residuals = numbers.to_vec();
    let order = apply_best_differences(&mut residuals);
    let (leads, residuals) = residuals.split_at(order);
    let head = out.len();
    out.push(order as u8);
    leads.iter().for_each(|lead| put_signed(out, *lead));
    let first = residuals.first().copied().unwrap_or(0);
    if residuals.iter().all(|residual| *residual == first) {
        out[head] |= SAME << 2;
        if !residuals.is_empty() {
            put_signed(out, first);
        }
        return;
    }
    let (method, mut best) = FRAME_METHODS
        .iter()
        .take(if residuals.len() > FRAME_METHODS[0].1 { 2 } else { 1 })
        .map(|(how, length)| (*how, pack_frames(residuals, *length)))
        .min_by_key(|(_, bytes)| bytes.len())
        .expect("there are two lengths of frames");
    let mut how = method;
    if effort == Effort::Thorough && residuals.len() >= PCO_NUMBERS_MIN {
        let config = pco::ChunkConfig::default().with_delta_spec(pco::DeltaSpec::NoOp);
        let bytes = super::pco_bytes::compress(residuals, &config);
        // Accept pco only if it is clearly smaller, because it is slower to read.
        if bytes.len() * 32 < best.len() * 31 {
            (how, best) = (PCO, bytes);
        }
    }
    out[head] |= how << 2;
    out.extend_from_slice(&best);
}

/// Replaces all but the first numbers by their differences, of the order that makes them smallest.
/// Returns the order.
fn apply_best_differences(numbers: &mut [i64]) -> usize {
    let differences = |numbers: &[i64], at: usize| -> [i64; 3] {
        let delta = numbers[at].wrapping_sub(numbers[at - 1]);
        let previous_delta = numbers[at - 1].wrapping_sub(numbers[at - 2]);
        [numbers[at], delta, delta.wrapping_sub(previous_delta)]
    };
    // A common offset costs nothing, because frames have a base: estimate it by the median of
    // three numbers.
    let [mut first, mut middle, mut last] = [[0; 3]; 3];
    if numbers.len() > 2 {
        first = differences(numbers, 2);
        middle = differences(numbers, numbers.len() / 2 + 1);
        last = differences(numbers, numbers.len() - 1);
    }
    let median = |order: usize| {
        let mut three = [first[order], middle[order], last[order]];
        three.sort_unstable();
        three[1]
    };
    let bases = [median(0), median(1), 0];
    let mut sums = [0; 3];
    for index in 2..numbers.len() {
        let differences = differences(numbers, index);
        for order in 0..3 {
            let distance = differences[order].wrapping_sub(bases[order]);
            sums[order] += u64::from(64 - zigzag(distance).leading_zeros());
        }
    }
    let order = (0..3).min_by_key(|order| sums[*order]).expect("there are three");
    let order = order.min(numbers.len());
    for from in 1..=order {
        for at in (from..numbers.len()).rev() {
            numbers[at] = numbers[at].wrapping_sub(numbers[at - 1]);
        }
    }
    order
}

/// Parameters of a packed frame.
struct Frame {
    base: i64,
    width: u32,
    cost_bits: usize,
}

/// The base and width that take least, by an estimate: of the smallest numbers none or a few are
/// exceptions, and of the largest whatever does not fit.
fn best_frame(sorted: &[i64]) -> Frame {
    let count = sorted.len();
    let offset_from = |base: i64, number: i64| number.wrapping_sub(base) as u64;
    let mut best = Frame { base: sorted[0], width: 64, cost_bits: usize::MAX };
    let mut skipped = 0;
    while skipped <= count / 8 {
        let base = sorted[skipped];
        let widest = 64 - offset_from(base, sorted[count - 1]).leading_zeros();
        for width in 0..=widest {
            let fitting = match width {
                64 => count - skipped,
                _ => sorted[skipped..]
                    .partition_point(|number| offset_from(base, *number) >> width == 0),
            };
            let exceptions = count - fitting;
            let exception_bits = 16 + widest as usize + widest as usize / 7;
            let cost_bits = width as usize * count + exceptions * exception_bits;
            if cost_bits < best.cost_bits {
                best = Frame { base, width, cost_bits };
            }
        }
        skipped = (skipped * 2).max(1);
    }
    best
}

fn pack_frames(residuals: &[i64], frame_length: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let mut sorted = Vec::with_capacity(frame_length);
    let mut offsets = Vec::with_capacity(frame_length);
    for numbers in residuals.chunks(frame_length) {
        sorted.clear();
        sorted.extend_from_slice(numbers);
        sorted.sort_unstable();
        let Frame { base, width, .. } = best_frame(&sorted);
        let fits = |number: i64| width == 64 || (number.wrapping_sub(base) as u64) >> width == 0;
        let exceptions = numbers.iter().filter(|number| !fits(**number)).count();
        put_signed(&mut out, base);
        out.push(width as u8 | if exceptions > 0 { EXCEPTIONS } else { 0 });
        if exceptions > 0 {
            put_varint(&mut out, exceptions as u64);
        }
        let mut next = 0;
        offsets.clear();
        for (index, number) in numbers.iter().enumerate() {
            let offset = number.wrapping_sub(base);
            if fits(*number) {
                offsets.push(offset as u64)
            } else {
                put_varint(&mut out, (index - next) as u64);
                put_signed(&mut out, offset);
                next = index + 1;
                offsets.push(0);
            }
        }
        pack(&offsets, width, &mut out);
    }
    out
}

/// Reads a column of so many numbers and appends them.
///
/// # Errors
/// [`DecodeError`] for anything that is not such a column.
pub fn decode(
    reader: &mut Reader<'_>,
    count: usize,
    out: &mut Vec<i64>,
) -> Result<(), DecodeError> {
    let head = reader.u8()?;
    let (order, method) = (usize::from(head & 3), head >> 2);
    if order > 2 || order > count {
        return Err(reader.malformed());
    }
    let start = out.len();
    out.reserve(count);
    for _ in 0..order {
        out.push(unzigzag(reader.varint()?));
    }
    let count = count - order;
    match method {
        SAME if count == 0 => {}
        SAME => {
            let same = unzigzag(reader.varint()?);
            out.resize(out.len() + count, same);
        }
        PCO => {
            let at = out.len();
            out.resize(at + count, 0);
            super::pco_bytes::decompress(reader, &mut out[at..])?;
        }
        how => {
            let frame_method = FRAME_METHODS.iter().find(|(other, _)| *other == how);
            let (_, frame_length) = frame_method.ok_or(DecodeError { what: WHAT })?;
            let mut remaining = count;
            while remaining > 0 {
                let length = remaining.min(*frame_length);
                unpack_frame(reader, length, out)?;
                remaining -= length;
            }
        }
    }
    for first in (1..=order).rev() {
        let mut sum = out[start + first - 1];
        for number in &mut out[start + first..] {
            sum = sum.wrapping_add(*number);
            *number = sum;
        }
    }
    Ok(())
}

fn unpack_frame(
    reader: &mut Reader<'_>,
    length: usize,
    out: &mut Vec<i64>,
) -> Result<(), DecodeError> {
    let base = unzigzag(reader.varint()?);
    let head = reader.u8()?;
    let width = u32::from(head & !EXCEPTIONS);
    if width > 64 {
        return Err(reader.malformed());
    }
    let mut exceptions = Reader::new(&[], WHAT);
    let mut exception_count = 0;
    if head & EXCEPTIONS != 0 {
        exception_count = reader.varint_as()?;
        exceptions = *reader;
        for _ in 0..exception_count {
            reader.varint()?;
            reader.varint()?;
        }
    }
    let packed = reader.take((length * width as usize).div_ceil(8))?;
    let start = out.len();
    unpack(packed, width, length, |offset| out.push(base.wrapping_add(offset as i64)));
    let mut next = 0_usize;
    for _ in 0..exception_count {
        let step: usize = exceptions.varint_as()?;
        let index = next.saturating_add(step);
        let offset = unzigzag(exceptions.varint()?);
        if index >= length {
            return Err(exceptions.malformed());
        }
        out[start + index] = base.wrapping_add(offset);
        next = index + 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
