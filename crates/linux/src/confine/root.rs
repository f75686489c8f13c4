//! A root file system that holds only what a confined process may reach.
//!
//! A mount namespace that is merely copied keeps every file system of the machine in use. Here a
//! small tmpfs takes the place of the root, with what may be reached mounted into it, and the copies
//! of all other mounts are dropped before the program runs.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use rustix::fs::{FileType, Mode};
use rustix::io::Errno;
use rustix::mount::{MountAttrFlags, MountPropagationFlags, MoveMountFlags, UnmountFlags};

use super::*;

/// Room for directories and mount points, none of which holds data.
const SIZE: &str = "1m";

/// A root file system that has not been entered yet.
pub(super) struct PrivateRoot {
    /// A detached tmpfs with a mount point for each of `mounts`.
    tmpfs: OwnedFd,
    /// Detached mounts and their places, relative to the root; parents come before children.
    mounts: Vec<(OwnedFd, CString)>,
    /// A directory to which the tmpfs is attached on its way to become the root.
    anchor: CString,
}

/// How a path is shown.
enum View {
    /// As it is, for reading.
    Readonly,
    /// As it is, for reading and writing.
    Writable,
    /// As it is, a device.
    Device,
    /// By another mount.
    Replaced(OwnedFd),
}

/// What a root holds, parents first.
#[derive(Default)]
struct Views {
    /// By path without symbolic links.
    mounts: BTreeMap<PathBuf, View>,
    /// Paths with symbolic links in them, and where they lead.
    links: BTreeMap<PathBuf, PathBuf>,
}

impl PrivateRoot {
    /// A root that holds the paths of `reach`, and `replacements` where they are mounted.
    pub(super) fn new(reach: &Reach, replacements: Vec<(OwnedFd, PathBuf)>) -> io::Result<Self> {
        let anchor = reach
            .writable
            .first()
            .ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
        let anchor = CString::new(std::fs::canonicalize(anchor)?.into_os_string().into_vec())?;
        let options = [("mode", "0755"), ("size", SIZE)];
        let tmpfs = mount::tmpfs(&options, MountAttrFlags::empty())?;
        let views = Views::new(reach, replacements)?;
        let mut mounts: Vec<(OwnedFd, CString)> = Vec::new();
        let mut shown: Vec<PathBuf> = Vec::new();
        for (path, view) in views.mounts {
            let is_inside = shown.iter().any(|parent| path.starts_with(parent));
            let mount = match view {
                View::Readonly if is_inside => continue,
                View::Readonly => mount::detached_readonly(&path)?,
                View::Writable => mount::detached_writable(&path, false)?,
                View::Device => mount::detached_writable(&path, true)?,
                View::Replaced(mount) => mount,
            };
            let place = relative(&path)?;
            // Inside of another mount the place exists already.
            if !is_inside {
                make_mount_point(&tmpfs, place, path.is_dir())?;
            }
            mounts.push((mount, CString::new(place.as_os_str().as_bytes())?));
            shown.push(path);
        }
        for (path, target) in views.links {
            // Nothing is made through a link, which would lead into the root of this process.
            if !shown.iter().any(|parent| path.starts_with(parent)) {
                make_link(&tmpfs, relative(&path)?, &target)?;
                shown.push(path);
            }
        }
        mount::seal(&tmpfs)?;
        Ok(Self {
            tmpfs,
            mounts,
            anchor,
        })
    }

    /// In the child: gives it mount and IPC namespaces of its own and this root. Allocates nothing.
    pub(super) fn enter(&self) -> io::Result<()> {
        let flags = libc::CLONE_NEWNS | libc::CLONE_NEWIPC;
        check(call([libc::SYS_unshare, flags.into(), 0, 0, 0, 0]))?;
        rustix::mount::mount_change(
            c"/",
            MountPropagationFlags::PRIVATE | MountPropagationFlags::REC,
        )?;
        attach(&self.tmpfs, rustix::fs::CWD, &self.anchor)?;
        for (mount, place) in &self.mounts {
            attach(mount, &self.tmpfs, place)?;
        }
        rustix::process::fchdir(&self.tmpfs)?;
        // With the same path for both, the old root is mounted over the new one, and is then taken
        // away from there.
        rustix::process::pivot_root(c".", c".")?;
        rustix::mount::unmount(c".", UnmountFlags::DETACH)?;
        Ok(rustix::process::chdir(c"/")?)
    }
}

impl Views {
    fn new(reach: &Reach, replacements: Vec<(OwnedFd, PathBuf)>) -> io::Result<Self> {
        let mut views = Self::default();
        for path in reach.executable.iter().chain(&reach.readable) {
            views.add(path, View::Readonly)?;
        }
        for path in &reach.writable {
            views.add(path, View::Writable)?;
        }
        for path in &reach.devices {
            views.add(path, View::Device)?;
        }
        for (mount, path) in replacements {
            views.add(&path, View::Replaced(mount))?;
        }
        Ok(views)
    }

    /// Processes are recognised from outside by their directories' paths without links, and programs
    /// ask for their own, so mounts are there.
    fn add(&mut self, path: &Path, view: View) -> io::Result<()> {
        let canonical = std::fs::canonicalize(path)?;
        if canonical != path {
            self.links.insert(path.to_owned(), canonical.clone());
        }
        self.mounts.insert(canonical, view);
        Ok(())
    }
}

fn relative(path: &Path) -> io::Result<&Path> {
    path.strip_prefix("/").map_err(other)
}

/// Makes an empty directory or file at `place`, and the directories on the way to it.
fn make_mount_point(tmpfs: &OwnedFd, place: &Path, is_directory: bool) -> io::Result<()> {
    make_parents(tmpfs, place)?;
    if is_directory {
        make_directory(tmpfs, place)
    } else {
        let mode = Mode::from_raw_mode(0o444);
        Ok(rustix::fs::mknodat(
            tmpfs,
            place,
            FileType::RegularFile,
            mode,
            0,
        )?)
    }
}

/// Makes a symbolic link at `place`, and the directories on the way to it.
fn make_link(tmpfs: &OwnedFd, place: &Path, target: &Path) -> io::Result<()> {
    make_parents(tmpfs, place)?;
    Ok(rustix::fs::symlinkat(target, tmpfs, place)?)
}

fn make_parents(tmpfs: &OwnedFd, place: &Path) -> io::Result<()> {
    let parents: Vec<&Path> = place.ancestors().skip(1).collect();
    for directory in parents.into_iter().rev() {
        make_directory(tmpfs, directory)?;
    }
    Ok(())
}

fn make_directory(tmpfs: &OwnedFd, place: &Path) -> io::Result<()> {
    if place.as_os_str().is_empty() {
        return Ok(());
    }
    match rustix::fs::mkdirat(tmpfs, place, Mode::from_raw_mode(0o755)) {
        Err(Errno::EXIST) | Ok(()) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn attach(mount: &OwnedFd, directory: impl std::os::fd::AsFd, place: &CStr) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    Ok(rustix::mount::move_mount(
        mount, c"", directory, place, flags,
    )?)
}
