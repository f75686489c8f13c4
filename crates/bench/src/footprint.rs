//! Memory and disk space of a server, seen from outside.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Bytes of a block as `stat` counts them.
const BLOCK_BYTES: u64 = 512;

/// Memory of a process that is not shared out: its resident set.
pub(crate) fn rss_bytes(process: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1_024)
}

/// Blocks of all files below a directory. Files that go away meanwhile do not count.
pub(crate) fn disk_bytes(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let sizes = entries.filter_map(|entry| {
        let metadata = entry.metadata().ok()?;
        if metadata.is_dir() {
            Some(disk_bytes(&entry.path()))
        } else {
            Some(metadata.blocks() * BLOCK_BYTES)
        }
    });
    sizes.sum()
}
