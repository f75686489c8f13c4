//! Layout of a block's file: header, footer, and the directory of pages.

use std::ops::Range;

use egret_base::codec::{DecodeError, Reader, put_varint};

use super::frame::{put_checked, verify_checksum};
use super::meta::BlockId;

/// The version that is written, and the highest that is read.
pub const FORMAT_VERSION: u32 = 1;

const MAGIC: &[u8; 8] = b"egretblk";
const FOOTER_MAGIC: &[u8; 8] = b"blkegret";

/// A byte range of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Extent {
    /// Offset of its first byte in the file.
    pub offset: u64,
    /// Number of bytes, checksum included.
    pub length: u32,
}

impl Extent {
    pub(super) fn put(self, out: &mut Vec<u8>) {
        put_varint(out, self.offset);
        put_varint(out, self.length.into());
    }

    pub(super) fn take(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { offset: reader.varint()?, length: reader.varint_as()? })
    }
}

/// The first bytes of a file: the checksum of the rest, a magic number, the version (4 bytes), the
/// block's id (8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Version of the block format.
    pub version: u32,
    /// Id of the block.
    pub id: BlockId,
}

impl Header {
    /// Size of an encoded header, in bytes.
    pub(crate) const BYTES: usize = 24;

    /// Encodes the header to bytes.
    pub fn encode(self) -> Vec<u8> {
        let mut body = MAGIC.to_vec();
        body.extend_from_slice(&self.version.to_le_bytes());
        body.extend_from_slice(&self.id.0.to_le_bytes());
        let mut out = Vec::with_capacity(Self::BYTES);
        put_checked(&mut out, &body);
        out
    }

    /// Reads it, of any version.
    ///
    /// # Errors
    /// [`DecodeError`] for anything else.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let malformed = DecodeError { what: "the header of a block" };
        let mut reader = Reader::new(verify_checksum(bytes).ok_or(malformed)?, malformed.what);
        if reader.take(MAGIC.len())? != MAGIC {
            return Err(malformed);
        }
        Ok(Self { version: reader.u32()?, id: BlockId(reader.u64()?) })
    }
}

/// The last bytes of a file: the checksum of the rest, where the parts are (each offset 8 bytes,
/// length 4), the size of the file (8 bytes), a magic number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Footer {
    /// Extent of the names of labels.
    pub names: Extent,
    /// The directory of the pages of series.
    pub pages: Extent,
    /// Extent of the block's metadata.
    pub meta: Extent,
    /// Size of the file with its footer, in bytes.
    pub size_bytes: u64,
}

impl Footer {
    /// Size of an encoded footer, in bytes.
    pub(crate) const BYTES: usize = 4 + 3 * 12 + 8 + 8;

    /// The footer of a file of which only the size is known.
    pub(crate) fn with_size(size_bytes: u64) -> Self {
        let empty = Extent::default();
        Self { names: empty, pages: empty, meta: empty, size_bytes }
    }

    /// Encodes the footer to bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        for extent in [self.names, self.pages, self.meta] {
            body.extend_from_slice(&extent.offset.to_le_bytes());
            body.extend_from_slice(&extent.length.to_le_bytes());
        }
        body.extend_from_slice(&self.size_bytes.to_le_bytes());
        body.extend_from_slice(FOOTER_MAGIC);
        let mut out = Vec::with_capacity(Self::BYTES);
        put_checked(&mut out, &body);
        out
    }

    /// Reads it.
    ///
    /// # Errors
    /// [`DecodeError`] for anything else.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let malformed = DecodeError { what: "the footer of a block" };
        let mut reader = Reader::new(verify_checksum(bytes).ok_or(malformed)?, malformed.what);
        let mut extent = || Ok(Extent { offset: reader.u64()?, length: reader.u32()? });
        let (names, pages, meta) = (extent()?, extent()?, extent()?);
        let size_bytes = reader.u64()?;
        if reader.rest() == FOOTER_MAGIC {
            Ok(Self { names, pages, meta, size_bytes })
        } else {
            Err(malformed)
        }
    }
}

/// Where the pages of series are, in order: for each how far after the one before it begins, its
/// length, and how many series it has (varints).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PageDirectory {
    pages: Vec<Extent>,
    /// For each page the first series that is not in it.
    ends: Vec<u32>,
}

impl PageDirectory {
    /// Adds a page with the next so many series.
    pub(crate) fn push(&mut self, page: Extent, series: usize) {
        let end = self.ends.last().copied().unwrap_or(0);
        self.pages.push(page);
        self.ends.push(end + series as u32);
    }

    /// The index of the page with a series, its extent, and the range of the block's series that it
    /// has.
    ///
    /// # Panics
    /// When no page has it.
    pub(crate) fn find(&self, series: u32) -> (usize, Extent, Range<u32>) {
        let index = self.ends.partition_point(|end| *end <= series);
        let first = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        (index, self.pages[index], first..self.ends[index])
    }

    /// Memory of the directory, in bytes.
    pub(crate) fn size_bytes(&self) -> usize {
        size_of_val(&*self.pages) + size_of_val(&*self.ends)
    }

    /// Encodes the directory to bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let (mut end, mut first) = (0, 0);
        for (page, series_end) in self.pages.iter().zip(&self.ends) {
            put_varint(&mut out, page.offset - end);
            put_varint(&mut out, page.length.into());
            put_varint(&mut out, u64::from(series_end - first));
            end = page.offset + u64::from(page.length);
            first = *series_end;
        }
        out
    }

    /// Reads that of a block that has so many series.
    ///
    /// # Errors
    /// [`DecodeError`] for anything else.
    pub(crate) fn decode(bytes: &[u8], series: u32) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes, "the page directory of a block");
        let mut directory = Self::default();
        let (mut end, mut first) = (0_u64, 0_u32);
        while !reader.rest().is_empty() {
            let offset = end.checked_add(reader.varint()?).ok_or(reader.malformed())?;
            let length = reader.varint_as()?;
            end = offset.checked_add(u64::from(length)).ok_or(reader.malformed())?;
            first = first.checked_add(reader.varint_as()?).ok_or(reader.malformed())?;
            directory.pages.push(Extent { offset, length });
            directory.ends.push(first);
        }
        if first == series { Ok(directory) } else { Err(reader.malformed()) }
    }
}
