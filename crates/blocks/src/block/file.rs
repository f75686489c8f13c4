//! The file of a block, opened for reading.

use std::sync::atomic::{AtomicU64, Ordering};

use egret_base::codec::DecodeError;
use egret_log::{Disk, DiskFile, read_exactly};

use super::error::{BlockError, DamageExtent, io};
use crate::core::frame::{open_frame, verify_checksum};
use crate::core::layout::{Extent, FORMAT_VERSION, Footer, Header};
use crate::core::{BlockId, BlockMeta};

pub(super) struct BlockFile {
    pub id: BlockId,
    /// Number of the opened file, unique within the process.
    pub number: u64,
    file: Box<dyn DiskFile>,
    name: String,
    pub footer: Footer,
}

/// Name of the damaged part in errors about the header or footer.
const HEADER_OR_FOOTER: &str = "its header or footer";

impl BlockFile {
    /// Opens a file, and reads and checks its header, its footer and its meta.
    pub(crate) fn open<D: Disk>(
        disk: &D,
        name: &str,
        id: BlockId,
    ) -> Result<(Self, BlockMeta), BlockError> {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let full_name = format!("{}/{name}", disk.display_path());
        let file = disk.open(name).map_err(io("open", full_name.clone()))?;
        let size_bytes = file.size_bytes().map_err(io("measure", full_name.clone()))?;
        let mut opened = Self {
            id,
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            file: Box::new(file),
            name: full_name,
            footer: Footer::with_size(size_bytes),
        };
        let header =
            opened.read(Extent { offset: 0, length: Header::BYTES as u32 }, DamageExtent::Index)?;
        let header = Header::decode(&header).map_err(|error| opened.malformed(0, error))?;
        if header.version != FORMAT_VERSION {
            return Err(BlockError::UnknownVersion {
                file: opened.name,
                version: header.version,
                known: FORMAT_VERSION,
            });
        }
        let offset = size_bytes.saturating_sub(Footer::BYTES as u64);
        let footer =
            opened.read(Extent { offset, length: Footer::BYTES as u32 }, DamageExtent::Index)?;
        let footer = Footer::decode(&footer).map_err(|error| opened.malformed(offset, error))?;
        if header.id != id || footer.size_bytes != size_bytes {
            return Err(opened.malformed(offset, DecodeError { what: HEADER_OR_FOOTER }));
        }
        opened.footer = footer;
        let meta = opened.read_frame(footer.meta, "its meta", BlockMeta::decode)?;
        if meta.id != id || meta.series > u64::from(u32::MAX) {
            return Err(
                opened.malformed(footer.meta.offset, DecodeError { what: HEADER_OR_FOOTER })
            );
        }
        Ok((opened, meta))
    }

    /// The error for an index that cannot be decoded at `offset`.
    pub(crate) fn malformed(&self, offset: u64, error: DecodeError) -> BlockError {
        self.corrupt_error(offset, error.what, DamageExtent::Index)
    }

    pub(crate) fn corrupt_error(
        &self,
        offset: u64,
        what: &'static str,
        damage: DamageExtent,
    ) -> BlockError {
        BlockError::Corrupt { block: self.id, offset, what, damage }
    }

    /// Reads a part of the file. Nothing is allocated for bytes beyond its end.
    fn read(&self, extent: Extent, damage: DamageExtent) -> Result<Vec<u8>, BlockError> {
        let end = extent.offset.checked_add(extent.length.into());
        if end.is_none_or(|end| end > self.footer.size_bytes) {
            return Err(self.corrupt_error(
                extent.offset,
                "a part that ends after the file",
                damage,
            ));
        }
        read_exactly(&*self.file, extent.offset, extent.length as usize)
            .map_err(io("read", self.name.clone()))
    }

    /// Reads and decodes a frame of the index.
    pub(crate) fn read_frame<T>(
        &self,
        extent: Extent,
        what: &'static str,
        decode: impl FnOnce(&[u8]) -> Result<T, DecodeError>,
    ) -> Result<T, BlockError> {
        let frame = self.read(extent, DamageExtent::Index)?;
        let bytes =
            open_frame(&frame, what).map_err(|error| self.malformed(extent.offset, error))?;
        decode(&bytes).map_err(|error| self.malformed(extent.offset, error))
    }

    /// Reads bytes with a checksum, and decodes them.
    pub(crate) fn read_checked<T>(
        &self,
        extent: Extent,
        damage: DamageExtent,
        decode: impl FnOnce(&[u8]) -> Result<T, DecodeError>,
    ) -> Result<T, BlockError> {
        let bytes = self.read(extent, damage)?;
        let bytes = verify_checksum(&bytes)
            .ok_or_else(|| self.corrupt_error(extent.offset, "a checksum", damage))?;
        decode(bytes).map_err(|error| self.corrupt_error(extent.offset, error.what, damage))
    }
}

impl std::fmt::Debug for BlockFile {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("BlockFile").field("name", &self.name).finish_non_exhaustive()
    }
}
