//! Lists of series, ascending: those that have a value of a label.
//!
//! - 0: runs: for each a varint `gap << 1 | is_run`, where `gap` counts from one past the previous
//!   number; if `is_run`, a varint of its length minus 2
//! - 1: a roaring bitmap in its own portable format

use egret_base::codec::{DecodeError, Reader, put_varint};
use roaring::RoaringBitmap;

const WHAT: &str = "a list of series";

const RUNS: u8 = 0;
const ROARING: u8 = 1;

/// Builds a list of series, encoding it as it grows.
#[derive(Debug, Default)]
pub(crate) struct PostingsBuilder {
    runs: Vec<u8>,
    /// The first number above all those in `runs`.
    next: u32,
    /// The run that may still grow: its first and last number.
    open_run: Option<(u32, u32)>,
    count: u32,
}

impl PostingsBuilder {
    /// Adds a series with a higher number than all before.
    pub(crate) fn push(&mut self, series: u32) {
        self.count += 1;
        match &mut self.open_run {
            Some((_, last)) if *last + 1 == series => *last = series,
            _ => {
                self.close_run();
                self.open_run = Some((series, series));
            }
        }
    }

    fn close_run(&mut self) {
        let Some((first, last)) = self.open_run.take() else {
            return;
        };
        let step = u64::from(first - self.next) << 1;
        if first == last {
            put_varint(&mut self.runs, step);
        } else {
            put_varint(&mut self.runs, step | 1);
            put_varint(&mut self.runs, u64::from(last - first - 1));
        }
        self.next = last + 1;
    }

    /// Number of series in the list.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// The list, in whichever encoding takes less.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        /// A bitmap takes a bit for each series in the best case, and some bytes before: below that
        /// it is not tried.
        const BITMAP_MIN: usize = 256;
        self.close_run();
        let mut bytes = vec![RUNS];
        bytes.append(&mut self.runs);
        if bytes.len() < BITMAP_MIN {
            return bytes;
        }
        let Ok(mut bitmap) = decode(&bytes, self.next) else {
            return bytes;
        };
        bitmap.optimize();
        if bitmap.serialized_size() + 1 < bytes.len() {
            bytes.clear();
            bytes.push(ROARING);
            bitmap.serialize_into(&mut bytes).expect("memory takes any bytes");
        }
        bytes
    }
}

/// Reads a list of series that are all below `end`, and adds them.
///
/// # Errors
/// [`DecodeError`] for anything that is not such a list.
pub(crate) fn decode_into(
    bytes: &[u8],
    end: u32,
    target: &mut RoaringBitmap,
) -> Result<(), DecodeError> {
    let mut reader = Reader::new(bytes, WHAT);
    match reader.u8()? {
        RUNS => {
            let mut next = 0_u64;
            while !reader.rest().is_empty() {
                let step = reader.varint()?;
                let length = match step & 1 {
                    0 => 0,
                    _ => reader.varint()?.saturating_add(1),
                };
                let first = next.saturating_add(step >> 1);
                let last = first.saturating_add(length);
                // Before anything is allocated for it.
                if last >= u64::from(end) {
                    return Err(reader.malformed());
                }
                target.insert_range(first as u32..=last as u32);
                next = last + 1;
            }
        }
        ROARING => {
            let read = RoaringBitmap::deserialize_from(reader.rest());
            let bitmap = read.map_err(|_| reader.malformed())?;
            if bitmap.max().is_some_and(|max| max >= end) {
                return Err(reader.malformed());
            }
            *target |= bitmap;
        }
        _ => return Err(reader.malformed()),
    }
    Ok(())
}

/// Reads a list of series that are all below `end`.
///
/// # Errors
/// [`DecodeError`] for anything that is not such a list.
pub fn decode(bytes: &[u8], end: u32) -> Result<RoaringBitmap, DecodeError> {
    let mut bitmap = RoaringBitmap::new();
    decode_into(bytes, end, &mut bitmap)?;
    Ok(bitmap)
}

#[cfg(test)]
mod tests;
