//! The names of labels, each with the directory of its pages of values.

use egret_base::codec::{Malformed, Reader, put_bytes, put_varint};

use super::layout::Extent;

const WHAT: &str = "the names of labels";

/// A label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// Its name.
    pub name: Box<str>,
    /// How many values it has.
    pub values: u64,
    /// How many series have it.
    pub series: u32,
    /// The frame with its directory: see [`put_pages`].
    pub pages: Extent,
    /// The list of the series that have it, checked.
    pub list: Extent,
}

/// The names, sorted.
pub fn encode(names: &[Name]) -> Vec<u8> {
    let mut out = Vec::new();
    for name in names {
        put_bytes(&mut out, name.name.as_bytes());
        put_varint(&mut out, name.values);
        put_varint(&mut out, name.series.into());
        name.pages.put(&mut out);
        name.list.put(&mut out);
    }
    out
}

/// Reads the names.
///
/// # Errors
/// [`Malformed`] for anything that is not sorted names.
pub fn decode(bytes: &[u8]) -> Result<Vec<Name>, Malformed> {
    let mut reader = Reader::new(bytes, WHAT);
    let mut names: Vec<Name> = Vec::new();
    while !reader.rest().is_empty() {
        let name = Name {
            name: reader.text()?.into(),
            values: reader.varint()?,
            series: reader.small()?,
            pages: Extent::take(&mut reader)?,
            list: Extent::take(&mut reader)?,
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
pub struct ValuesPage {
    /// Its first value.
    pub first: Box<str>,
    /// Its frame.
    pub extent: Extent,
}

/// The directory of a label's pages of values, in order.
pub fn encode_pages(pages: &[ValuesPage]) -> Vec<u8> {
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
/// [`Malformed`] for anything that is not sorted pages.
pub fn decode_pages(bytes: &[u8]) -> Result<Vec<ValuesPage>, Malformed> {
    let mut reader = Reader::new(bytes, WHAT);
    let mut pages: Vec<ValuesPage> = Vec::new();
    while !reader.rest().is_empty() {
        let page = ValuesPage {
            first: reader.text()?.into(),
            extent: Extent::take(&mut reader)?,
        };
        if pages.last().is_some_and(|last| last.first >= page.first) {
            return Err(reader.malformed());
        }
        pages.push(page);
    }
    Ok(pages)
}
