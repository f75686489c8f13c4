//! Copies by subvolume snapshot.

use std::io;
use std::path::Path;

use egret_base::Timestamp;
use egret_linux::subvolume;

use super::{Driver, Volume};

pub(super) struct Btrfs;

impl Volume for Btrfs {
    fn driver(&self) -> Driver {
        Driver::Btrfs
    }

    fn is_atomic(&self) -> bool {
        true
    }

    fn create(&self, path: &Path) -> io::Result<()> {
        subvolume::create(path)?;
        // Data that is overwritten in place is not checksummed twice and not fragmented;
        // PostgreSQL keeps its own checksums. Snapshots still copy on their first write.
        let directory = std::fs::File::open(path)?;
        let flags = rustix::fs::ioctl_getflags(&directory)?;
        rustix::fs::ioctl_setflags(&directory, flags | rustix::fs::IFlags::NOCOW)?;
        Ok(())
    }

    fn clone_tree(&self, from: &Path, to: &Path) -> io::Result<()> {
        if !subvolume::is_subvolume(from)? {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "it is a plain directory and no btrfs subvolume: stop egret, make a subvolume, move the files into it, and give it the directory's name",
            ));
        }
        subvolume::snapshot(from, to)
    }

    fn seal(&self, path: &Path) -> io::Result<()> {
        subvolume::make_read_only(path)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        if !path.exists() {
            return Ok(());
        }
        if subvolume::is_subvolume(path)? {
            subvolume::delete(path)
        } else {
            std::fs::remove_dir_all(path)
        }
    }

    fn diverged_bytes(&self, path: &Path, cloned_at: Timestamp) -> io::Result<u64> {
        super::unshared_below(path, cloned_at)
    }
}
