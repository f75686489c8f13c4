//! Copies by subvolume snapshot.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use egret_base::Timestamp;
use egret_base::sync::lock;
use egret_linux::subvolume;

use super::disk_use::sum_unshared_bytes;
use super::driver::{Driver, Volume};
use super::remove::{delete_subvolume, remove_tree};

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
                "it is a plain directory, not a btrfs subvolume: stop egret, create a subvolume, \
                 move the files into it, and give it the name of the directory",
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
        if subvolume::is_subvolume(path)? { delete_subvolume(path) } else { remove_tree(path) }
    }

    fn diverged_bytes(&self, path: &Path, cloned_at: Timestamp) -> io::Result<u64> {
        sum_unshared_bytes(path, cloned_at)
    }
}

/// Reads from the kernel how many bytes writers have been promised that are not allocated yet. As
/// that is done several times a second, the kernel's file is looked for once for each file system.
#[derive(Debug, Default)]
pub(super) struct PromisedBytes {
    cached: Mutex<Option<Promise>>,
}

/// How soon the kernel's file is looked for again where it was not found.
const LOOKUP_RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// The kernel's file with the promised bytes of one file system.
#[derive(Debug)]
struct Promise {
    /// Id of the file system, as statvfs(3) returns it.
    file_system: u64,
    /// `None` where the kernel showed nothing.
    file: Option<File>,
    looked_up_at: Instant,
}

impl PromisedBytes {
    /// The bytes of the file system on which `root` is, whose id is `file_system`; 0 where they are
    /// not shown.
    pub(super) fn read_bytes(&self, file_system: u64, root: &Path) -> u64 {
        let mut cached = lock(&self.cached);
        let reusable = cached
            .as_ref()
            .filter(|promise| promise.file_system == file_system && promise.is_fresh());
        // It cannot be read where the file system was unmounted and mounted again.
        if let Some(bytes) = reusable.and_then(Promise::bytes) {
            return bytes;
        }
        let promise =
            Promise { file_system, file: open_promise_file(root), looked_up_at: Instant::now() };
        let bytes = promise.bytes();
        *cached = Some(promise);
        bytes.unwrap_or(0)
    }
}

impl Promise {
    /// An open file stays the right one; a look that found none may have failed for a moment.
    fn is_fresh(&self) -> bool {
        self.file.is_some() || self.looked_up_at.elapsed() < LOOKUP_RETRY_INTERVAL
    }

    /// `None` where the file cannot be read.
    fn bytes(&self) -> Option<u64> {
        let Some(file) = &self.file else {
            return Some(0);
        };
        let mut text = [0; 32];
        let length = file.read_at(&mut text, 0).ok()?;
        let text = std::str::from_utf8(&text[..length]).ok()?;
        text.trim().parse().ok()
    }
}

fn open_promise_file(root: &Path) -> Option<File> {
    let device = device_of(root)?;
    let file_systems = std::fs::read_dir("/sys/fs/btrfs").ok()?;
    let own_entry = file_systems
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.join("devices").join(&device).exists())?;
    File::open(own_entry.join("allocation/data/bytes_may_use")).ok()
}

/// The name of the device of the btrfs that `root` is on, as proc_pid_mountinfo(5) shows it: the
/// fifth field is the mount point, and behind the dash are type and device.
fn device_of(root: &Path) -> Option<std::ffi::OsString> {
    let text = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let mounts = text.lines().filter_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let mount_point = Path::new(mount.split(' ').nth(4)?);
        let mut kind = kind.split(' ');
        let is_btrfs = kind.next() == Some("btrfs");
        let device = kind.next()?;
        (is_btrfs && root.starts_with(mount_point)).then_some((mount_point, device))
    });
    let (_, device) = mounts.max_by_key(|(mount_point, _)| mount_point.as_os_str().len())?;
    let device = std::fs::canonicalize(device).ok()?;
    device.file_name().map(ToOwned::to_owned)
}

#[cfg(test)]
mod tests;
