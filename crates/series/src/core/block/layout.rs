//! What frames a block's file: its header, its footer, and where things are.

use egret_base::codec::{Malformed, Reader, put_varint};

use super::frame::{checked, put_checked};
use super::meta::BlockId;

/// The version that is written, and the highest that is read.
pub const FORMAT_VERSION: u32 = 1;

const MAGIC: &[u8; 8] = b"egretblk";
const FOOTER_MAGIC: &[u8; 8] = b"blkegret";

/// A part of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Extent {
    /// Where it begins.
    pub offset: u64,
    /// How many bytes it has, with its checksum.
    pub length: u32,
}

impl Extent {
    pub(super) fn put(self, out: &mut Vec<u8>) {
        put_varint(out, self.offset);
        put_varint(out, self.length.into());
    }

    pub(super) fn take(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            offset: reader.varint()?,
            length: reader.small()?,
        })
    }
}

/// The first bytes of a file: the checksum of the rest, a magic number, the version (4 bytes), the block's id (8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Of the format.
    pub version: u32,
    /// Which block it is.
    pub id: BlockId,
}

impl Header {
    /// How many bytes it has.
    pub const BYTES: usize = 24;

    /// Its bytes.
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
    /// [`Malformed`] for anything else.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let malformed = Malformed {
            what: "the header of a block",
        };
        let mut reader = Reader::new(checked(bytes).ok_or(malformed)?, malformed.what);
        if reader.take(MAGIC.len())? != MAGIC {
            return Err(malformed);
        }
        Ok(Self {
            version: reader.u32()?,
            id: BlockId(reader.u64()?),
        })
    }
}

/// The last bytes of a file: the checksum of the rest, where the parts are (each offset 8 bytes, length 4), the size of
/// the file (8 bytes), a magic number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footer {
    /// The names of labels.
    pub names: Extent,
    /// The directory of the pages of series.
    pub pages: Extent,
    /// What is in the block.
    pub meta: Extent,
    /// Of the file, with the footer.
    pub size_bytes: u64,
}

impl Footer {
    /// How many bytes it has.
    pub const BYTES: usize = 4 + 3 * 12 + 8 + 8;

    /// That of a file of which only the size is known.
    pub fn of_size(size_bytes: u64) -> Self {
        let nothing = Extent::default();
        Self {
            names: nothing,
            pages: nothing,
            meta: nothing,
            size_bytes,
        }
    }

    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
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
    /// [`Malformed`] for anything else.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let malformed = Malformed {
            what: "the footer of a block",
        };
        let mut reader = Reader::new(checked(bytes).ok_or(malformed)?, malformed.what);
        let mut extent = || {
            Ok(Extent {
                offset: reader.u64()?,
                length: reader.u32()?,
            })
        };
        let (names, pages, meta) = (extent()?, extent()?, extent()?);
        let size_bytes = reader.u64()?;
        match reader.rest() == FOOTER_MAGIC {
            true => Ok(Self {
                names,
                pages,
                meta,
                size_bytes,
            }),
            false => Err(malformed),
        }
    }
}

/// Where the pages of series are, in order: for each how far after the one before it begins, and its length (varints).
pub fn encode_page_directory(pages: &[Extent]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut end = 0;
    for page in pages {
        put_varint(&mut out, page.offset - end);
        put_varint(&mut out, page.length.into());
        end = page.offset + u64::from(page.length);
    }
    out
}

/// Reads a directory.
///
/// # Errors
/// [`Malformed`] for anything else.
pub fn decode_page_directory(bytes: &[u8]) -> Result<Vec<Extent>, Malformed> {
    let mut reader = Reader::new(bytes, "the page directory of a block");
    let mut pages = Vec::new();
    let mut end = 0_u64;
    while !reader.rest().is_empty() {
        let offset = end
            .checked_add(reader.varint()?)
            .ok_or(reader.malformed())?;
        let length = reader.small()?;
        end = offset
            .checked_add(u64::from(length))
            .ok_or(reader.malformed())?;
        pages.push(Extent { offset, length });
    }
    Ok(pages)
}
