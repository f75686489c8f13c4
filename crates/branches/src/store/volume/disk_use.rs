//! What data directories take on the disk.

use std::path::Path;

use egret_base::Timestamp;
use egret_linux::directory::{Kind, kind_of};
use egret_linux::extents::unshared_bytes;
use rustix::fs::Stat;

use super::walk::{Omission, walk};

/// What the files of a data directory take.
#[derive(Debug)]
pub(crate) struct DiskUse {
    /// Bytes, as far as they can be counted.
    pub bytes: u64,
    /// What is not counted.
    pub uncounted: Option<Omission>,
}

/// What the files of a data directory take on the disk, shared ones included, and those that are on
/// their way there (`st_blocks`; btrfs counts what is not allocated yet).
pub(crate) fn disk_use(path: &Path) -> std::io::Result<DiskUse> {
    let mut bytes = 0;
    let uncounted = walk(path, &mut |entry| {
        bytes += allocated_bytes(entry.stat);
        Ok(())
    })?;
    Ok(DiskUse { bytes, uncounted })
}

/// What a file takes: `st_blocks` counts 512 bytes whatever the block size (stat(2)).
pub(super) fn allocated_bytes(stat: &Stat) -> u64 {
    u64::try_from(stat.st_blocks).unwrap_or(0) * 512
}

/// Sums, over the files of a clone, the bytes that are not shared with any other file. A file not
/// modified since the clone has none and is not looked at.
pub(super) fn sum_unshared_bytes(path: &Path, cloned_at: Timestamp) -> std::io::Result<u64> {
    // One second earlier, for the file system's coarse clock.
    let since_s = cloned_at.as_micros().div_euclid(1_000_000) - 1;
    let mut total = 0;
    walk(path, &mut |entry| {
        let stat = entry.stat;
        if kind_of(stat) == Kind::File && stat.st_ctime >= since_s && stat.st_mtime >= since_s {
            total += match entry.read()? {
                Some(file) => unshared_bytes(&file)?,
                None => allocated_bytes(stat),
            };
        }
        Ok(())
    })?;
    Ok(total)
}

/// What of a data directory cannot be counted: its bytes would escape every limit.
pub(crate) fn find_uncounted(path: &Path) -> std::io::Result<Option<Omission>> {
    walk(path, &mut |_| Ok(()))
}
