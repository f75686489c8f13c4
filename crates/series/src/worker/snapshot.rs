//! A copy of everything in a directory of its own, made while samples come in and queries are
//! answered.

use std::fs;
use std::io;
use std::path::Path;

use egret_base::durable::{create_directory, sync_directory};

use super::upkeep::BlockMaintenance;
use crate::error::SeriesError;

/// What a snapshot has: all that was acknowledged, or less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotOf {
    /// Every sample that was acknowledged.
    Everything,
    /// What is in blocks. Samples of the last hours are in the log alone, and are left out.
    Blocks,
}

impl BlockMaintenance {
    /// Copies blocks to a directory that is not there yet, so that an engine can begin with it. The
    /// directory appears under its name when it is complete and durable.
    ///
    /// # Errors
    /// [`SeriesError::Io`] and those of writing blocks; nothing is left of it then.
    pub(crate) fn snapshot(&mut self, to: &Path, contents: SnapshotOf) -> Result<(), SeriesError> {
        match contents {
            SnapshotOf::Everything => self.flush_all()?,
            // An acknowledged deletion must not come back from a snapshot.
            SnapshotOf::Blocks => self.finish_deletion()?,
        }
        let mut unfinished = to.as_os_str().to_owned();
        unfinished.push(".new");
        let unfinished = Path::new(&unfinished);
        let result = self.copy_blocks(unfinished).and_then(|()| {
            fs::rename(unfinished, to)?;
            to.parent().map_or(Ok(()), sync_directory)
        });
        result.map_err(|error| {
            // The one that failed is what is told; without the other there is nothing to remove.
            let _ = fs::remove_dir_all(unfinished);
            SeriesError::io("writing a snapshot to", to, error)
        })
    }

    fn copy_blocks(&self, to: &Path) -> io::Result<()> {
        let from = self.inner.directory.join("blocks");
        let to = to.join("blocks");
        create_directory(&to)?;
        for name in self.catalog.file_names() {
            let (from, to) = (from.join(&name), to.join(&name));
            // A file of a block never changes: it can be in two directories.
            if fs::hard_link(&from, &to).is_err() {
                fs::copy(&from, &to)?;
                fs::File::open(&to)?.sync_all()?;
            }
        }
        sync_directory(&to)
    }
}
