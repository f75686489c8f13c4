//! Whether a series has a key that is at hand, without putting its own together.
//!
//! A sender repeats its series in the same order, so which one comes is mostly known before it is read. Then its
//! strings are compared where they stand in the table, and nothing is copied, hashed or looked up.

use egret_base::codec::put_varint;

use super::symbols::{COPY_BYTES, SHORT, Symbol};
use super::{ROOM, Series, reference};
use crate::wire::error::WireError;
use crate::wire::labels::{LABEL_KEY, NAME_KEY, VALUE_KEY, part_bytes};

/// From the place `COPY_BYTES - n` on, `n` bytes of ones and then zeros.
const MASKS: [u8; 2 * COPY_BYTES] = {
    let mut masks = [0; 2 * COPY_BYTES];
    let mut at = 0;
    while at < COPY_BYTES {
        masks[at] = 0xff;
        at += 1;
    }
    masks
};

/// Whether the first `bytes` of both are the same, at most as many as there are.
#[inline(always)]
fn starts_alike(one: &[u8; COPY_BYTES], other: &[u8; COPY_BYTES], bytes: usize) -> bool {
    let from = COPY_BYTES - bytes.min(COPY_BYTES);
    let mask: &[u8; COPY_BYTES] = MASKS[from..]
        .first_chunk()
        .expect("there are twice as many");
    let mut differences = 0;
    for at in 0..COPY_BYTES {
        differences |= (one[at] ^ other[at]) & mask[at];
    }
    differences == 0
}

impl Series<'_, '_> {
    /// Whether [`Series::key`] would say `key`. A series of which no key can be made has none.
    ///
    /// # Errors
    /// [`WireError`] when all keys of the request are too large.
    #[inline]
    pub fn has_key(&self, key: &[u8]) -> Result<bool, WireError> {
        let references = &*self.references;
        let (mut from, mut at) = (0, 0);
        while from < references.len() {
            let (name, after) = reference(references, from);
            let (value, next) = reference(references, after);
            let symbols = (self.symbols.get(name), self.symbols.get(value));
            let (Some(&name), Some(&value)) = symbols else {
                return Ok(false);
            };
            from = next;
            match self.label_end(name, value, key, at) {
                Some(end) => at = end,
                None => return Ok(false),
            }
        }
        if at != key.len() {
            return Ok(false);
        }
        self.spend(at)?;
        Ok(true)
    }

    /// Where the label ends in `key` that begins at `at`, when it is this one.
    #[inline(always)]
    fn label_end(&self, name: Symbol, value: Symbol, key: &[u8], at: usize) -> Option<usize> {
        let window = |symbol: Symbol| -> Option<&[u8; COPY_BYTES]> {
            self.whole.get(symbol.at()..)?.first_chunk()
        };
        if name.0 & value.0 & SHORT != 0
            && let Some(name_window) = window(name)
            && let Some(value_window) = window(value)
            && let Some(label) = key.get(at..).and_then(|rest| rest.first_chunk::<ROOM>())
        {
            let name_bytes = name.length().min(COPY_BYTES);
            let value_bytes = value.length().min(COPY_BYTES);
            let after = 4 + name_bytes;
            let bytes = (name_bytes + value_bytes + 4) as u8;
            let begins = [LABEL_KEY, bytes, NAME_KEY, name_bytes as u8];
            let there = label[4..].first_chunk()?;
            let value_there = label[after + 2..].first_chunk()?;
            let is_same = label[..4] == begins
                && label[after..after + 2] == [VALUE_KEY, value_bytes as u8]
                && starts_alike(name_window, there, name_bytes)
                && starts_alike(value_window, value_there, value_bytes);
            return is_same.then_some(at + after + 2 + value_bytes);
        }
        self.long_label_end(name, value, key, at)
    }

    /// The same of any label: what is written field by field is compared field by field.
    #[inline(never)]
    fn long_label_end(&self, name: Symbol, value: Symbol, key: &[u8], at: usize) -> Option<usize> {
        let (name, value) = (name.bytes(self.whole), value.bytes(self.whole));
        let rest = key.get(at..)?.strip_prefix(&[LABEL_KEY])?;
        let rest = after_varint(rest, part_bytes(name) + part_bytes(value))?;
        let rest = after_part(rest, NAME_KEY, name)?;
        let rest = after_part(rest, VALUE_KEY, value)?;
        Some(key.len() - rest.len())
    }
}

/// What is after this number.
fn after_varint(rest: &[u8], number: usize) -> Option<&[u8]> {
    let mut written = Vec::with_capacity(10);
    put_varint(&mut written, number as u64);
    rest.strip_prefix(&*written)
}

/// What is after a string with its key and length.
fn after_part<'k>(rest: &'k [u8], key: u8, text: &[u8]) -> Option<&'k [u8]> {
    match text {
        [] => Some(rest),
        _ => after_varint(rest.strip_prefix(&[key])?, text.len())?.strip_prefix(text),
    }
}
