//! The file of a block while it is written.

use egret_log::{Disk, DiskFile, write_all};

use super::super::error::{BlockError, io};
use crate::catalog::names::new_block;
use crate::core::BlockId;
use crate::core::frame::{FRAME_BYTES_MAX, put_checked, put_frame};
use crate::core::layout::Extent;

/// Bytes that are buffered before a write.
const BUFFER_BYTES: usize = 128 << 10;

/// Bytes between two syncs: a longer sync would delay those of the log.
const SYNC_INTERVAL_BYTES: u64 = 512 << 10;

/// Removes the file when it is dropped, unless it was left to a catalog.
pub(crate) struct Output<D: Disk> {
    disk: D,
    name: Option<String>,
    file: D::File,
    buffer: Vec<u8>,
    written_bytes: u64,
    synced_bytes: u64,
}

impl<D: Disk> Output<D> {
    pub(crate) fn create(disk: &D, id: BlockId) -> Result<Self, BlockError> {
        let name = new_block(id);
        let file =
            disk.create(&name).map_err(io("create", format!("{}/{name}", disk.display_path())))?;
        Ok(Self {
            disk: disk.clone(),
            name: Some(name),
            file,
            buffer: Vec::new(),
            written_bytes: 0,
            synced_bytes: 0,
        })
    }

    /// Offset of the next byte in the file.
    pub(crate) fn position(&self) -> u64 {
        self.written_bytes + self.buffer.len() as u64
    }

    fn full_name(&self) -> String {
        format!("{}/{}", self.disk.display_path(), self.name.as_deref().unwrap_or_default())
    }

    pub(crate) fn put(&mut self, bytes: &[u8]) -> Result<(), BlockError> {
        self.buffer.extend_from_slice(bytes);
        self.write_if_full()
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
        self.write_if_full()?;
        Ok(Extent { offset, length: u32::try_from(length).expect("a part is bounded") })
    }

    fn write_if_full(&mut self) -> Result<(), BlockError> {
        if self.buffer.len() < BUFFER_BYTES {
            return Ok(());
        }
        self.flush_buffer()?;
        if self.written_bytes - self.synced_bytes >= SYNC_INTERVAL_BYTES {
            self.sync()?;
        }
        Ok(())
    }

    fn flush_buffer(&mut self) -> Result<(), BlockError> {
        write_all(&self.file, &self.buffer, self.written_bytes)
            .map_err(io("write", self.full_name()))?;
        self.written_bytes += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    fn sync(&mut self) -> Result<(), BlockError> {
        self.file.sync_data().map_err(io("sync", self.full_name()))?;
        self.synced_bytes = self.written_bytes;
        Ok(())
    }

    /// Writes the rest of the buffer, and makes the file durable.
    pub(crate) fn finish(&mut self) -> Result<(), BlockError> {
        self.flush_buffer()?;
        self.sync()
    }

    /// Leaves the file to its catalog.
    pub(crate) fn keep_file(mut self) {
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
