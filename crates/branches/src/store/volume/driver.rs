//! What a driver can do.

use std::path::Path;

use egret_base::Timestamp;

/// Which driver makes the copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// Snapshots of btrfs subvolumes.
    Btrfs,
    /// FICLONE of every file.
    Reflink,
    /// Copies of every byte.
    Copy,
}

impl Driver {
    /// The driver's name in configuration and answers.
    pub fn name(self) -> &'static str {
        match self {
            Driver::Btrfs => "btrfs",
            Driver::Reflink => "reflink",
            Driver::Copy => "copy",
        }
    }

    /// What the driver costs, in one sentence for the user.
    pub fn note(self) -> &'static str {
        match self {
            Driver::Btrfs => "a branch costs one snapshot, whatever the size of the source",
            Driver::Reflink => {
                "a branch shares its blocks with the template, but each file is cloned \
                 separately: the time grows with the number of files, not with their size"
            }
            Driver::Copy => {
                "every branch copies every byte of the source: time and disk grow with its size; `egret branch volume create --size 20G` (as root) makes a btrfs volume"
            }
        }
    }
}

/// Makes, measures and removes copies of data directories. Calls block.
pub trait Volume: Send + Sync {
    /// Which driver this is.
    fn driver(&self) -> Driver;

    /// Whether a clone of a running server's directory is of one moment.
    fn is_atomic(&self) -> bool;

    /// Makes an empty directory that can be cloned.
    fn create(&self, path: &Path) -> std::io::Result<()>;

    /// Clones the data directory `from` to the new path `to`.
    ///
    /// # Errors
    /// The file system's; what was made of `to` until then stays and is to be removed.
    fn clone_tree(&self, from: &Path, to: &Path) -> std::io::Result<()>;

    /// Makes a directory read-only where the file system can.
    fn seal(&self, path: &Path) -> std::io::Result<()>;

    /// Removes a directory that `create` or `clone_tree` made; a missing one is fine.
    fn remove(&self, path: &Path) -> std::io::Result<()>;

    /// Bytes of `path` that are its own since `cloned_at`.
    fn diverged_bytes(&self, path: &Path, cloned_at: Timestamp) -> std::io::Result<u64>;
}
