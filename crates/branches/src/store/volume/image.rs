//! A btrfs file system in a preallocated file, mounted through a loop device, for machines whose
//! own file system cannot copy on write. Needs root and the programs of btrfs-progs and util-linux.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use egret_base::settings::ByteSize;
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::error::{BranchesError, io_error};

/// The smallest image that holds a cluster and a few branches.
pub(crate) const SIZE_MIN: ByteSize = ByteSize::mib(512);

/// How long an unmount waits for the last open file.
pub(crate) const UNMOUNT_WAIT_MAX: Duration = Duration::from_secs(5);
/// How often it tries meanwhile: the kernel does not tell when a file system is free.
const UNMOUNT_INTERVAL: Duration = Duration::from_millis(10);

fn volume_error(reason: String) -> BranchesError {
    BranchesError::Volume { reason }
}

/// Makes an image of at most `size` (and at most a third of the free space), puts btrfs on it and
/// mounts it at `root`. A failed attempt leaves nothing.
///
/// # Errors
/// [`BranchesError::Volume`] that says what is missing.
pub fn create(image: &Path, root: &Path, size: ByteSize) -> Result<(), BranchesError> {
    if !rustix::process::geteuid().is_root() {
        return Err(volume_error("mounting a btrfs image needs root".to_owned()));
    }
    let parent = image.parent().expect("an image is inside the data directory");
    let stat =
        rustix::fs::statvfs(parent).map_err(|error| io_error("examine", parent)(error.into()))?;
    let third = stat.f_bavail * stat.f_frsize / 3;
    let size = size.bytes().min(third) >> 20 << 20;
    if size < SIZE_MIN.bytes() {
        return Err(volume_error(format!(
            "an image needs {SIZE_MIN}, but a third of the free space of {} is {}",
            parent.display(),
            ByteSize(third).rounded_down(),
        )));
    }
    let new_image = image.with_extension("img.new");
    let created = format(&new_image, size)
        .and_then(|()| fs::rename(&new_image, image).map_err(io_error("write", image)));
    if let Err(error) = created {
        crate::store::files::remove_file(&new_image)?;
        return Err(error);
    }
    if let Err(error) = mount(image, root) {
        crate::store::files::remove_file(image)?;
        return Err(error);
    }
    tracing::info!(image = %image.display(), size = %ByteSize(size), "made a btrfs volume");
    Ok(())
}

fn format(image: &Path, size: u64) -> Result<(), BranchesError> {
    let file = File::create(image).map_err(io_error("create", image))?;
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    file.set_permissions(mode).map_err(io_error("create", image))?;
    let flags = rustix::fs::FallocateFlags::empty();
    rustix::fs::fallocate(&file, flags, 0, size)
        .map_err(|error| io_error("preallocate", image)(error.into()))?;
    run(
        "mkfs.btrfs",
        &[
            OsStr::new("--quiet"),
            OsStr::new("--label"),
            OsStr::new("egret"),
            // A clone shares its tree with the template, and what it changes it copies by nodes;
            // and room is reserved by nodes too, for which many writers at once have to wait.
            OsStr::new("--nodesize"),
            OsStr::new("4096"),
            image.as_os_str(),
        ],
    )?;
    Ok(())
}

/// Mounts the image at `root` unless it is mounted there already.
///
/// # Errors
/// [`BranchesError::Volume`] with what the system says.
pub fn mount(image: &Path, root: &Path) -> Result<(), BranchesError> {
    if is_mounted(root) {
        return Ok(());
    }
    fs::create_dir_all(root).map_err(io_error("create", root))?;
    // A branch's mount namespace may keep the file system alive after it was unmounted here. A
    // second device for the same file would be a second file system on it: the device in use is
    // used again.
    let arguments = ["--find", "--show", "--nooverlap", "--direct-io=on"].map(OsStr::new);
    let device = run("losetup", &[&arguments[..], &[image.as_os_str()]].concat())?;
    let device = device.trim().to_owned();
    // No discard: freed blocks would become holes, and the image would no longer be preallocated.
    let options = ["-t", "btrfs", "-o", "noatime,nodiscard", "--", &device].map(OsStr::new);
    let mounted = run("mount", &[&options[..], &[root.as_os_str()]].concat());
    // Detached now, a mounted device goes away with its last mount, also after a crash of Egret.
    let detached = run("losetup", &[OsStr::new("--detach"), OsStr::new(&device)]);
    mounted?;
    detached?;
    // The mount covers the mode of the directory under it.
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o711);
    fs::set_permissions(root, open).map_err(io_error("change the mode of", root))
}

/// Unmounts the image; its loop device goes with it, also in the namespaces of branches that have
/// just ended. Blocks for at most [`UNMOUNT_WAIT_MAX`] while a file of it is still open.
///
/// # Errors
/// [`BranchesError::Volume`] when something still uses it then.
pub fn unmount(image: &Path, root: &Path) -> Result<(), BranchesError> {
    let started = Instant::now();
    while is_mounted(root) {
        match rustix::mount::unmount(root, UnmountFlags::empty()) {
            Err(Errno::BUSY) if started.elapsed() < UNMOUNT_WAIT_MAX => {
                std::thread::sleep(UNMOUNT_INTERVAL);
            }
            Err(error) => {
                return Err(volume_error(format!(
                    "{} could not be unmounted: {error}",
                    root.display()
                )));
            }
            Ok(()) => {}
        }
    }
    while is_attached(image) {
        if started.elapsed() >= UNMOUNT_WAIT_MAX {
            return Err(volume_error(format!(
                "{} is unmounted here, but still in use by a process in a mount namespace of its own",
                image.display()
            )));
        }
        std::thread::sleep(UNMOUNT_INTERVAL);
    }
    Ok(())
}

/// Whether a loop device has this file.
fn is_attached(image: &Path) -> bool {
    let Ok(devices) = fs::read_dir("/sys/block") else {
        return false;
    };
    let image = image.canonicalize().unwrap_or_else(|_| image.to_owned());
    devices.flatten().any(|device| {
        let file = fs::read_to_string(device.path().join("loop/backing_file"));
        file.is_ok_and(|file| Path::new(file.trim_end()) == image)
    })
}

/// Whether a file system is mounted at `root`: it is on another device than its parent.
pub(crate) fn is_mounted(root: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let device = |path: &Path| fs::metadata(path).map(|metadata| metadata.dev()).ok();
    let own_device = device(root);
    own_device.is_some() && own_device != root.parent().and_then(device)
}

fn run(program: &'static str, arguments: &[&OsStr]) -> Result<String, BranchesError> {
    let hint = if program == "mkfs.btrfs" { " (package btrfs-progs)" } else { "" };
    // Run as root: from directories that no other user can write to.
    let path = egret_linux::trust::find_program(program).ok_or_else(|| {
        volume_error(format!("{program}{hint} is in no trusted directory of PATH"))
    })?;
    let output = Command::new(path)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| volume_error(format!("{program}{hint} could not be run: {error}")))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    Err(volume_error(format!("{program} failed: {}", message.trim().replace('\n', "; "))))
}
