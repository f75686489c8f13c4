//! Whether a series has a key that is at hand, without putting its own together.
//!
//! A sender repeats its series in the same order, so which one comes is mostly known before it is
//! read. Then its strings are compared where they stand in the table, and nothing is copied, hashed
//! or looked up.

use egret_base::codec::put_varint;

use super::symbols::Symbol;
use super::{WrittenSeriesV2, reference};
use crate::error::WireError;
use crate::labels::{LABEL_KEY, NAME_KEY, VALUE_KEY, part_bytes};

/// What a label takes beside its two strings when it takes least: three keys and three lengths.
const FRAME_BYTES: usize = 6;
/// Of a label in its frame: what is not in its own length.
const OUTER_BYTES: usize = 2;
/// A length that is one byte.
const SMALL: usize = 0x7f;

/// Whether strings of the same length are the same: those that are short without a call.
#[inline(always)]
fn is_same(one: &[u8], other: &[u8]) -> bool {
    let by_words = is_same_by::<16>(one, other)
        .or_else(|| is_same_by::<8>(one, other))
        .or_else(|| is_same_by::<4>(one, other));
    by_words.unwrap_or_else(|| one.iter().zip(other).all(|(one, other)| one == other))
}

/// The same in words of so many bytes, the last of which may overlap the one before; nothing when a
/// string is shorter than a word.
#[inline(always)]
fn is_same_by<const WORD: usize>(one: &[u8], other: &[u8]) -> Option<bool> {
    let begins: (&[u8; WORD], &[u8; WORD]) = (one.first_chunk()?, other.first_chunk()?);
    let ends: (&[u8; WORD], &[u8; WORD]) = (one.last_chunk()?, other.last_chunk()?);
    let is_same = begins.0 == begins.1 && ends.0 == ends.1;
    Some(is_same && (one.len() <= 2 * WORD || one[WORD..] == other[WORD..]))
}

impl WrittenSeriesV2<'_, '_> {
    /// Whether [`WrittenSeriesV2::key`] would say `key`. A series of which no key can be made has
    /// none.
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
        let (name_bytes, value_bytes) = (name.length(), value.length());
        let bytes = name_bytes + value_bytes + FRAME_BYTES;
        if name_bytes == 0 || value_bytes == 0 || bytes > SMALL {
            return self.long_label_end(name, value, key, at);
        }
        let end = at + bytes;
        let (begins, rest) = key.get(at..end)?.split_first_chunk()?;
        let (name_there, rest) = rest.split_at(name_bytes);
        let (between, value_there) = rest.split_first_chunk()?;
        let own_bytes = (bytes - OUTER_BYTES) as u8;
        let is_framed = *begins == [LABEL_KEY, own_bytes, NAME_KEY, name_bytes as u8]
            && *between == [VALUE_KEY, value_bytes as u8];
        let is_this = is_framed
            && is_same(name.bytes(self.whole), name_there)
            && is_same(value.bytes(self.whole), value_there);
        is_this.then_some(end)
    }

    /// The same of one that is long or lacks a string: what was written field by field is compared
    /// field by field.
    #[cold]
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

/// Strips a varint; `None` if another number is there.
fn after_varint(rest: &[u8], number: usize) -> Option<&[u8]> {
    let mut written = Vec::with_capacity(10);
    put_varint(&mut written, number as u64);
    rest.strip_prefix(&*written)
}

/// Strips a string with its key and length; `None` if another is there.
fn after_part<'k>(rest: &'k [u8], key: u8, text: &[u8]) -> Option<&'k [u8]> {
    match text {
        [] => Some(rest),
        _ => after_varint(rest.strip_prefix(&[key])?, text.len())?.strip_prefix(text),
    }
}
