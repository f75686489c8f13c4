//! Pages of the values of a label, sorted, each with the series that have it.
//!
//! For each value: how many bytes it shares with the one before (varint), the rest of it, how many
//! series have it (varint), then twice the length of their list in bytes (varint) and the list, or
//! that plus one and where in the file it is (varint): there it is checked, and the length is with
//! the checksum.

use egret_base::codec::{DecodeError, Reader, put_bytes, put_varint};

use super::layout::Extent;

const WHAT: &str = "a page of label values";

/// Values of a page.
pub const PAGE_VALUES: usize = 256;

/// A page is full when it has so many bytes, however few values.
const PAGE_BYTES: usize = 1 << 20;

/// Longer lists are not in the page.
pub(crate) const LIST_INLINE_MAX: usize = 64;

/// Location of the list of a value's series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PostingsRef<'page> {
    /// Bytes of the list, stored in the page.
    Inline(&'page [u8]),
    /// In the file, checked.
    At(Extent),
}

/// A value of a label.
#[derive(Debug)]
pub(crate) struct Term<'page> {
    /// Number of series with the value.
    pub series: u32,
    /// List of the series that have it.
    pub postings: PostingsRef<'page>,
}

/// Builds pages of terms.
#[derive(Debug, Default)]
pub(crate) struct TermsBuilder {
    bytes: Vec<u8>,
    first_value: Vec<u8>,
    last_value: Vec<u8>,
    count: usize,
}

impl TermsBuilder {
    /// Adds a value that is above all before.
    pub(crate) fn push(&mut self, value: &str, term: &Term<'_>) {
        let value = value.as_bytes();
        if self.count == 0 {
            self.first_value = value.to_vec();
        }
        let shared =
            value.iter().zip(&self.last_value).take_while(|(one, other)| one == other).count();
        put_varint(&mut self.bytes, shared as u64);
        put_bytes(&mut self.bytes, &value[shared..]);
        put_varint(&mut self.bytes, term.series.into());
        match term.postings {
            PostingsRef::Inline(list) => {
                put_varint(&mut self.bytes, (list.len() as u64) << 1);
                self.bytes.extend_from_slice(list);
            }
            PostingsRef::At(extent) => {
                put_varint(&mut self.bytes, u64::from(extent.length) << 1 | 1);
                put_varint(&mut self.bytes, extent.offset);
            }
        }
        self.last_value.clear();
        self.last_value.extend_from_slice(value);
        self.count += 1;
    }

    /// Whether the page should be written before another value is added.
    pub(crate) fn is_full(&self) -> bool {
        self.count >= PAGE_VALUES || self.bytes.len() >= PAGE_BYTES
    }

    /// Returns the page with its first value, if it has any, and begins another.
    pub(crate) fn take_page(&mut self) -> Option<(String, Vec<u8>)> {
        if self.count == 0 {
            return None;
        }
        let page = std::mem::take(self);
        let first = String::from_utf8(page.first_value).expect("it was a string");
        Some((first, page.bytes))
    }
}

/// Reads the terms of a page in order.
#[derive(Debug)]
pub(crate) struct Terms<'page> {
    reader: Reader<'page>,
    value: Vec<u8>,
}

impl<'page> Terms<'page> {
    /// The values of this page.
    pub(crate) fn new(page: &'page [u8]) -> Self {
        Self { reader: Reader::new(page, WHAT), value: Vec::new() }
    }

    /// The next value with its series.
    ///
    /// # Errors
    /// [`DecodeError`] for anything that is not such a page.
    pub(crate) fn next_term(&mut self) -> Result<Option<(&str, Term<'page>)>, DecodeError> {
        let reader = &mut self.reader;
        if reader.rest().is_empty() {
            return Ok(None);
        }
        let shared = reader.varint_as()?;
        if shared > self.value.len() {
            return Err(reader.malformed());
        }
        self.value.truncate(shared);
        self.value.extend_from_slice(reader.bytes()?);
        let series = reader.varint_as()?;
        let head = reader.varint()?;
        let length = u32::try_from(head >> 1).map_err(|_| DecodeError { what: WHAT })?;
        let list = match head & 1 {
            0 => PostingsRef::Inline(reader.take(length as usize)?),
            _ => PostingsRef::At(Extent { offset: reader.varint()?, length }),
        };
        let value = std::str::from_utf8(&self.value).map_err(|_| DecodeError { what: WHAT })?;
        Ok(Some((value, Term { series, postings: list })))
    }
}

#[cfg(test)]
mod tests;
