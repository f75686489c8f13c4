//! btrfs subvolumes: create, snapshot, delete, and tell one from a plain directory.
//!
//! Layouts and numbers are those of the kernel's `include/uapi/linux/btrfs.h`.

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, ioctl, opcode};

/// `BTRFS_IOCTL_MAGIC`: the ioctl type of btrfs.
const IOCTL_MAGIC: u8 = 0x94;
/// `BTRFS_SUBVOL_NAME_MAX` + 1: the room for a name with its terminating zero.
const NAME_BYTES: usize = 4040;
/// The inode number of every subvolume's top directory (`BTRFS_FIRST_FREE_OBJECTID`).
const SUBVOLUME_INODE: u64 = 256;
/// `BTRFS_SUPER_MAGIC` of `linux/magic.h`, by which statfs(2) names btrfs.
const BTRFS_SUPER_MAGIC: u64 = 0x9123_683E;

/// `struct btrfs_ioctl_vol_args_v2`, 4096 bytes.
#[repr(C)]
struct VolumeArguments {
    fd: i64,
    transid: u64,
    flags: u64,
    unused: [u64; 4],
    name: [u8; NAME_BYTES],
}

const _: () = assert!(size_of::<VolumeArguments>() == 4096);

/// One of the three ioctls that take `btrfs_ioctl_vol_args_v2` and give nothing back.
struct VolumeIoctl<const NUMBER: u8> {
    arguments: Box<VolumeArguments>,
}

const SNAPSHOT_CREATE: u8 = 23;
const SUBVOLUME_CREATE: u8 = 24;
const SNAPSHOT_DESTROY: u8 = 63;

#[expect(unsafe_code, reason = "an ioctl is described to rustix by implementing its unsafe trait")]
// SAFETY: the three numbers above are `_IOW(0x94, n, struct btrfs_ioctl_vol_args_v2)`; the kernel
// reads exactly the 4096 bytes of that struct, whose layout `VolumeArguments` repeats (asserted
// above), from a box that lives through the call. They return 0 and write nothing back.
unsafe impl<const NUMBER: u8> Ioctl for VolumeIoctl<NUMBER> {
    type Output = ();

    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        opcode::write::<VolumeArguments>(IOCTL_MAGIC, NUMBER)
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::from_mut::<VolumeArguments>(&mut self.arguments).cast()
    }

    unsafe fn output_from_ptr(_: IoctlOutput, _: *mut c_void) -> rustix::io::Result<()> {
        Ok(())
    }
}

/// Opens the parent directory of `path` and runs the ioctl with the last component as the name.
fn run_ioctl<const NUMBER: u8>(path: &Path, source: Option<&File>) -> io::Result<()> {
    let invalid =
        || io::Error::new(io::ErrorKind::InvalidInput, "a subvolume needs a parent and a name");
    let parent = File::open(path.parent().ok_or_else(invalid)?)?;
    let name = path.file_name().ok_or_else(invalid)?.as_encoded_bytes();
    let mut arguments = Box::new(VolumeArguments {
        fd: source.map_or(0, |file| i64::from(file.as_raw_fd())),
        transid: 0,
        flags: 0,
        unused: [0; 4],
        name: [0; NAME_BYTES],
    });
    if name.len() >= NAME_BYTES {
        return Err(invalid());
    }
    arguments.name[..name.len()].copy_from_slice(name);
    let request = VolumeIoctl::<NUMBER> { arguments };
    #[expect(unsafe_code, reason = "calling an ioctl is unsafe in rustix")]
    // SAFETY: `VolumeIoctl` describes its ioctl truthfully (see its implementation), and `parent`
    // stays open through the call; a file system that is not btrfs answers ENOTTY.
    unsafe {
        ioctl(parent.as_fd(), request)?;
    }
    Ok(())
}

/// Creates an empty subvolume at `path`.
///
/// # Errors
/// The kernel's: `EEXIST`, `ENOSPC`, `ENOTTY` when `path` is not on btrfs, …
pub fn create(path: &Path) -> io::Result<()> {
    run_ioctl::<SUBVOLUME_CREATE>(path, None)
}

/// Creates at `path` a writable snapshot of the subvolume `source`, atomic in time.
///
/// # Errors
/// The kernel's; `EINVAL` when `source` is not a subvolume, `EXDEV` when on another file system.
pub fn snapshot(source: &Path, path: &Path) -> io::Result<()> {
    let source = File::open(source)?;
    run_ioctl::<SNAPSHOT_CREATE>(path, Some(&source))
}

/// Deletes the subvolume at `path`. Its name is gone at once; the kernel frees the space behind.
///
/// # Errors
/// The kernel's; `EINVAL` or `ENOTDIR` when `path` is not a subvolume.
pub fn delete(path: &Path) -> io::Result<()> {
    run_ioctl::<SNAPSHOT_DESTROY>(path, None)
}

/// `BTRFS_SUBVOL_RDONLY`: the subvolume is read-only.
const READ_ONLY: u64 = 1 << 1;

/// `BTRFS_IOC_SUBVOL_SETFLAGS`, `_IOW(0x94, 26, __u64)`.
struct SetFlags(u64);

#[expect(unsafe_code, reason = "an ioctl is described to rustix by implementing its unsafe trait")]
// SAFETY: the kernel reads one u64 from the pointer, which is a field of the value that rustix
// keeps alive through the call, and writes nothing back.
unsafe impl Ioctl for SetFlags {
    type Output = ();

    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        opcode::write::<u64>(IOCTL_MAGIC, 26)
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::from_mut::<u64>(&mut self.0).cast()
    }

    unsafe fn output_from_ptr(_: IoctlOutput, _: *mut c_void) -> rustix::io::Result<()> {
        Ok(())
    }
}

/// Makes the subvolume at `path` read-only; snapshots taken of it are writable all the same.
///
/// # Errors
/// The kernel's; `EINVAL` when `path` is not a subvolume.
pub fn make_read_only(path: &Path) -> io::Result<()> {
    let subvolume = File::open(path)?;
    #[expect(unsafe_code, reason = "calling an ioctl is unsafe in rustix")]
    // SAFETY: `SetFlags` describes its ioctl truthfully and `subvolume` stays open through the
    // call.
    unsafe {
        ioctl(subvolume.as_fd(), SetFlags(READ_ONLY))?;
    }
    Ok(())
}

/// Whether `path` is the top of a btrfs subvolume.
///
/// # Errors
/// When `path` cannot be examined; a missing path is `Ok(false)`.
pub fn is_subvolume(path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    match std::fs::symlink_metadata(path) {
        Ok(metadata) => {
            Ok(metadata.is_dir() && metadata.ino() == SUBVOLUME_INODE && is_btrfs(path)?)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether `path` is on a btrfs file system.
///
/// # Errors
/// When `path` cannot be examined.
pub fn is_btrfs(path: &Path) -> io::Result<bool> {
    let answer = rustix::fs::statfs(path)?;
    Ok(u64::try_from(answer.f_type).is_ok_and(|magic| magic == BTRFS_SUPER_MAGIC))
}

#[cfg(test)]
mod tests;
