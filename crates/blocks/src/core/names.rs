//! The names of labels, each with the directory of its pages of values.

use egret_base::codec::{DecodeError, Reader, put_bytes, put_varint};

use super::layout::Extent;

const WHAT: &str = "the names of labels";

/// A label name with its figures and pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// Name of the label.
    pub name: Box<str>,
    /// Number of values of the label.
    pub values: u64,
    /// Number of series with the label.
    pub series: u32,
    /// Extent of the frame with the directory of its pages of values.
    pub pages: Extent,
    /// The list of the series that have it, checked.
    pub postings: Extent,
}

/// Encodes the names, which must be sorted.
pub fn encode(names: &[Name]) -> Vec<u8> {
    let mut out = Vec::new();
    for name in names {
        put_bytes(&mut out, name.name.as_bytes());
        put_varint(&mut out, name.values);
        put_varint(&mut out, name.series.into());
        name.pages.put(&mut out);
        name.postings.put(&mut out);
    }
    out
}

/// Reads the names.
///
/// # Errors
/// [`DecodeError`] for anything that is not sorted names.
pub fn decode(bytes: &[u8]) -> Result<Vec<Name>, DecodeError> {
    let mut reader = Reader::new(bytes, WHAT);
    let mut names: Vec<Name> = Vec::new();
    while !reader.rest().is_empty() {
        let name = Name {
            name: reader.text()?.into(),
            values: reader.varint()?,
            series: reader.varint_as()?,
            pages: Extent::take(&mut reader)?,
            postings: Extent::take(&mut reader)?,
        };
        if names.last().is_some_and(|last| last.name >= name.name) {
            return Err(reader.malformed());
        }
        names.push(name);
    }
    Ok(names)
}

/// A page of values: its first one, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ValuesPage {
    /// First value in the page.
    pub first: Box<str>,
    /// Extent of the page's frame in the file.
    pub extent: Extent,
}

/// The directory of a label's pages of values, in order.
pub(crate) fn encode_values_directory(pages: &[ValuesPage]) -> Vec<u8> {
    let mut out = Vec::new();
    for page in pages {
        put_bytes(&mut out, page.first.as_bytes());
        page.extent.put(&mut out);
    }
    out
}

/// Reads a directory.
///
/// # Errors
/// [`DecodeError`] for anything that is not sorted pages.
pub(crate) fn decode_values_directory(bytes: &[u8]) -> Result<Vec<ValuesPage>, DecodeError> {
    let mut reader = Reader::new(bytes, WHAT);
    let mut pages: Vec<ValuesPage> = Vec::new();
    while !reader.rest().is_empty() {
        let page = ValuesPage { first: reader.text()?.into(), extent: Extent::take(&mut reader)? };
        if pages.last().is_some_and(|last| last.first >= page.first) {
            return Err(reader.malformed());
        }
        pages.push(page);
    }
    Ok(pages)
}
