//! Whether a series has a key that is at hand, without putting its own together.
//!
//! A sender repeats its series in the same order, so which one comes is mostly known before it is
//! read. Then its strings are compared where they stand in the table, and nothing is copied, hashed
//! or looked up.

use egret_base::codec::put_varint;

use super::symbols::Symbol;
use super::{WrittenSeriesV2, read_reference};
use crate::error::WireError;
use crate::labels::{LABEL_KEY, NAME_KEY, VALUE_KEY, encoded_len};

/// What a label takes beside its two strings when it takes least: three keys and three lengths.
const LABEL_OVERHEAD_BYTES: usize = 6;
/// Of a label in its frame: what is not in its own length.
const OUTER_OVERHEAD_BYTES: usize = 2;
/// A length that is one byte.
const ONE_BYTE_LENGTH_MAX: usize = 0x7f;

/// Whether strings of the same length are the same: those that are short without a call.
#[inline(always)]
fn is_same(left: &[u8], right: &[u8]) -> bool {
    let by_words = is_same_by::<16>(left, right)
        .or_else(|| is_same_by::<8>(left, right))
        .or_else(|| is_same_by::<4>(left, right));
    by_words.unwrap_or_else(|| left.iter().zip(right).all(|(one, other)| one == other))
}

/// The same in words of so many bytes, the last of which may overlap the one before; nothing when a
/// string is shorter than a word.
#[inline(always)]
fn is_same_by<const WORD: usize>(left: &[u8], right: &[u8]) -> Option<bool> {
    let begins: (&[u8; WORD], &[u8; WORD]) = (left.first_chunk()?, right.first_chunk()?);
    let ends: (&[u8; WORD], &[u8; WORD]) = (left.last_chunk()?, right.last_chunk()?);
    let is_same = begins.0 == begins.1 && ends.0 == ends.1;
    Some(is_same && (left.len() <= 2 * WORD || left[WORD..] == right[WORD..]))
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
        let (mut position, mut key_position) = (0, 0);
        while position < references.len() {
            let (name, after) = read_reference(references, position);
            let (value, next) = read_reference(references, after);
            let symbols = (self.symbols.get(name), self.symbols.get(value));
            let (Some(&name), Some(&value)) = symbols else {
                return Ok(false);
            };
            position = next;
            match self.match_label(name, value, key, key_position) {
                Some(end) => key_position = end,
                None => return Ok(false),
            }
        }
        if key_position != key.len() {
            return Ok(false);
        }
        self.count_key_bytes(key_position)?;
        Ok(true)
    }

    /// Where the label ends in `key` that begins at `start`, when it is this one.
    #[inline(always)]
    fn match_label(&self, name: Symbol, value: Symbol, key: &[u8], start: usize) -> Option<usize> {
        let (name_bytes, value_bytes) = (name.length(), value.length());
        let bytes = name_bytes + value_bytes + LABEL_OVERHEAD_BYTES;
        if name_bytes == 0 || value_bytes == 0 || bytes > ONE_BYTE_LENGTH_MAX {
            return self.match_long_label(name, value, key, start);
        }
        let end = start + bytes;
        let (header, rest) = key.get(start..end)?.split_first_chunk()?;
        let (key_name, rest) = rest.split_at(name_bytes);
        let (value_header, key_value) = rest.split_first_chunk()?;
        let inner_length = (bytes - OUTER_OVERHEAD_BYTES) as u8;
        let is_framed = *header == [LABEL_KEY, inner_length, NAME_KEY, name_bytes as u8]
            && *value_header == [VALUE_KEY, value_bytes as u8];
        let is_match = is_framed
            && is_same(name.bytes(self.body), key_name)
            && is_same(value.bytes(self.body), key_value);
        is_match.then_some(end)
    }

    /// The same of one that is long or lacks a string: what was written field by field is compared
    /// field by field.
    #[cold]
    #[inline(never)]
    fn match_long_label(
        &self,
        name: Symbol,
        value: Symbol,
        key: &[u8],
        start: usize,
    ) -> Option<usize> {
        let (name, value) = (name.bytes(self.body), value.bytes(self.body));
        let rest = key.get(start..)?.strip_prefix(&[LABEL_KEY])?;
        let rest = strip_varint(rest, encoded_len(name) + encoded_len(value))?;
        let rest = strip_part(rest, NAME_KEY, name)?;
        let rest = strip_part(rest, VALUE_KEY, value)?;
        Some(key.len() - rest.len())
    }
}

/// Strips a varint; `None` if another number is there.
fn strip_varint(rest: &[u8], number: usize) -> Option<&[u8]> {
    let mut written = Vec::with_capacity(10);
    put_varint(&mut written, number as u64);
    rest.strip_prefix(&*written)
}

/// Strips a string with its key and length; `None` if another is there.
fn strip_part<'k>(rest: &'k [u8], key: u8, text: &[u8]) -> Option<&'k [u8]> {
    match text {
        [] => Some(rest),
        _ => strip_varint(rest.strip_prefix(&[key])?, text.len())?.strip_prefix(text),
    }
}
