//! File operations of a catalog, with errors that name the action and the file.

use egret_log::{Disk, DiskFile, read_exactly, write_all};

use super::names;
use crate::block::{BlockError, io};

/// Small files beside the blocks are not larger than this.
const SMALL_BYTES_MAX: u64 = 1 << 30;

pub(super) struct Files<D: Disk>(pub D);

impl<D: Disk> Files<D> {
    pub(crate) fn full_name(&self, name: &str) -> String {
        format!("{}/{name}", self.0.display_path())
    }

    pub(crate) fn list(&self) -> Result<Vec<String>, BlockError> {
        let mut names = self.0.list().map_err(io("list", self.0.display_path()))?;
        names.sort_unstable();
        Ok(names)
    }

    pub(crate) fn rename(&self, from: &str, to: &str) -> Result<(), BlockError> {
        self.0.rename(from, to).map_err(io("rename", self.full_name(from)))
    }

    pub(crate) fn remove(&self, name: &str) -> Result<(), BlockError> {
        self.0.remove(name).map_err(io("remove", self.full_name(name)))
    }

    pub(crate) fn sync(&self) -> Result<(), BlockError> {
        self.0.sync_directory().map_err(io("sync", self.0.display_path()))
    }

    pub(crate) fn read(&self, name: &str) -> Result<Vec<u8>, BlockError> {
        let read = || {
            let file = self.0.open(name)?;
            let size_bytes = file.size_bytes()?.min(SMALL_BYTES_MAX);
            read_exactly(&file, 0, size_bytes as usize)
        };
        read().map_err(io("read", self.full_name(name)))
    }

    /// Writes a small file under its `.new` name, durably but for that name.
    pub(crate) fn write_new(&self, name: &str, bytes: &[u8]) -> Result<(), BlockError> {
        let new_name = names::with_new_suffix(name);
        let write = || {
            // Left by a failed attempt.
            _ = self.0.remove(&new_name);
            let file = self.0.create(&new_name)?;
            write_all(&file, bytes, 0)?;
            file.sync_data()
        };
        write().map_err(|error| {
            _ = self.0.remove(&new_name);
            io("write", self.full_name(&new_name))(error)
        })
    }
}
