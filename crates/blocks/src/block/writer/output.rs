//! The file of a block while it is written.

use egret_log::{Disk, DiskFile, write_all};

use super::super::error::{BlockError, io};
use crate::catalog::names::new_block;
use crate::core::BlockId;
use crate::core::frame::{FRAME_BYTES_MAX, put_checked, put_frame};
use crate::core::layout::Extent;

/// Bytes that are buffered before a write.
const WRITE_BYTES: usize = 128 << 10;

/// Bytes between two syncs: a longer sync would delay those of the log.
const SYNC_BYTES: u64 = 512 << 10;

/// Removes the file when it is dropped, unless it was left to a catalog.
pub(crate) struct Output<D: Disk> {
    disk: D,
    name: Option<String>,
    file: D::File,
    buffer: Vec<u8>,
    written: u64,
    synced: u64,
}

impl<D: Disk> Output<D> {
    pub(crate) fn create(disk: &D, id: BlockId) -> Result<Self, BlockError> {
        let name = new_block(id);
        let file = disk
            .create(&name)
            .map_err(io("create", format!("{}/{name}", disk.place())))?;
        Ok(Self {
            disk: disk.clone(),
            name: Some(name),
            file,
            buffer: Vec::new(),
            written: 0,
            synced: 0,
        })
    }

    /// Offset of the next byte in the file.
    pub(crate) fn position(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    fn full_name(&self) -> String {
        format!(
            "{}/{}",
            self.disk.place(),
            self.name.as_deref().unwrap_or_default()
        )
    }

    pub(crate) fn put(&mut self, bytes: &[u8]) -> Result<(), BlockError> {
        self.buffer.extend_from_slice(bytes);
        self.write_full()
    }

    /// Writes bytes after their checksum.
    pub(crate) fn put_checked(&mut self, bytes: &[u8]) -> Result<Extent, BlockError> {
        self.put_part(|buffer| put_checked(buffer, bytes))
    }

    /// Writes a frame.
    ///
    /// # Errors
    /// [`BlockError::TooLarge`], and those of writing.
    pub(crate) fn put_frame(&mut self, bytes: &[u8]) -> Result<Extent, BlockError> {
        if bytes.len() > FRAME_BYTES_MAX {
            return Err(BlockError::TooLarge {
                file: self.full_name(),
                size_bytes: bytes.len() as u64,
                size_bytes_max: FRAME_BYTES_MAX as u64,
            });
        }
        self.put_part(|buffer| put_frame(buffer, bytes))
    }

    fn put_part(&mut self, put: impl FnOnce(&mut Vec<u8>)) -> Result<Extent, BlockError> {
        let offset = self.position();
        put(&mut self.buffer);
        let length = self.position() - offset;
        self.write_full()?;
        Ok(Extent {
            offset,
            length: u32::try_from(length).expect("a part is bounded"),
        })
    }

    fn write_full(&mut self) -> Result<(), BlockError> {
        if self.buffer.len() < WRITE_BYTES {
            return Ok(());
        }
        self.write()?;
        if self.written - self.synced >= SYNC_BYTES {
            self.sync()?;
        }
        Ok(())
    }

    fn write(&mut self) -> Result<(), BlockError> {
        write_all(&self.file, &self.buffer, self.written).map_err(io("write", self.full_name()))?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    fn sync(&mut self) -> Result<(), BlockError> {
        self.file
            .sync_data()
            .map_err(io("sync", self.full_name()))?;
        self.synced = self.written;
        Ok(())
    }

    /// Writes the rest of the buffer, and makes the file durable.
    pub(crate) fn finish(&mut self) -> Result<(), BlockError> {
        self.write()?;
        self.sync()
    }

    /// Leaves the file to its catalog.
    pub(crate) fn keep(mut self) {
        self.name = None;
    }
}

impl<D: Disk> Drop for Output<D> {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            // A catalog that is opened later removes it too.
            _ = self.disk.remove(name);
        }
    }
}
