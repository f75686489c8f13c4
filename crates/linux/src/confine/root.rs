//! A root file system that holds only what a confined process may reach.
//!
//! A mount namespace that is merely copied keeps every file system of the machine in use. Here a
//! small tmpfs takes the place of the root, with what may be reached mounted into it, and the
//! copies of all other mounts are dropped before the program runs.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::CString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use rustix::fs::{FileType, Mode};
use rustix::io::Errno;
use rustix::mount::{MountAttrFlags, MountPropagationFlags, MoveMountFlags, UnmountFlags};

use super::*;

/// Room for directories and mount points, none of which holds data.
const TMPFS_SIZE: &str = "1m";

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
    /// As this other path is, for reading.
    Substitute(PathBuf),
    Mount(OwnedFd),
}

/// Something that a root shows.
struct Place {
    view: View,
    is_directory: bool,
}

/// What a root holds.
#[derive(Default)]
struct Views {
    /// By path without symbolic links, parents first.
    mounts: BTreeMap<PathBuf, Place>,
    /// Paths with symbolic links in them, and where they lead.
    links: BTreeMap<PathBuf, PathBuf>,
    /// Paths of the process's own, and where they lead.
    resolved: HashMap<PathBuf, PathBuf>,
}

impl PrivateRoot {
    /// A root that holds the paths of `reach`, and `replacements` where they are mounted.
    pub(super) fn new(reach: &Reach, replacements: Vec<(OwnedFd, PathBuf)>) -> io::Result<Self> {
        let mut views = Views::from_common_paths(&reach.common_paths);
        for path in &reach.writable {
            views.add_own_path(path, View::Writable)?;
        }
        for (mount, path) in replacements {
            views.add_own_path(&path, View::Mount(mount))?;
        }
        let anchor = reach
            .writable
            .first()
            .and_then(|path| views.resolved.remove(path))
            .ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
        let anchor = CString::new(anchor.into_os_string().into_vec())?;
        let options = [("mode", "0755"), ("size", TMPFS_SIZE)];
        let tmpfs = mount::create_tmpfs(&options, MountAttrFlags::empty())?;
        let mut mount_points = MountPoints::new(&tmpfs);
        let mut mounts: Vec<(OwnedFd, CString)> = Vec::new();
        let mut outermost: Vec<PathBuf> = Vec::new();
        for (path, Place { view, is_directory }) in views.mounts {
            // In the order of paths, what is inside of one comes right behind it.
            let is_inside = outermost.last().is_some_and(|parent| path.starts_with(parent));
            let mount = match view {
                View::Readonly if is_inside => continue,
                View::Readonly => mount::detached_readonly(&path)?,
                View::Writable => mount::detached_writable(&path, false)?,
                View::Device => mount::detached_writable(&path, true)?,
                View::Substitute(source) => mount::detached_readonly(&source)?,
                View::Mount(mount) => mount,
            };
            let mount_point = relative(&path)?;
            mounts.push((mount, CString::new(mount_point.as_os_str().as_bytes())?));
            // Inside of another mount the place exists already.
            if !is_inside {
                mount_points.create(mount_point, is_directory)?;
                outermost.push(path);
            }
        }
        for (path, target) in views.links {
            // Nothing is made through a link, which would lead into the root of this process.
            if !outermost.iter().any(|parent| path.starts_with(parent)) {
                mount_points.create_link(relative(&path)?, &target)?;
                outermost.push(path);
            }
        }
        mount::seal(&tmpfs)?;
        Ok(Self { tmpfs, mounts, anchor })
    }

    /// In the child: gives it mount and IPC namespaces of its own and this root. Allocates nothing.
    pub(super) fn enter(&self) -> io::Result<()> {
        let flags = libc::CLONE_NEWNS | libc::CLONE_NEWIPC;
        check_result(raw_syscall([libc::SYS_unshare, flags.into(), 0, 0, 0, 0]))?;
        rustix::mount::mount_change(
            c"/",
            MountPropagationFlags::PRIVATE | MountPropagationFlags::REC,
        )?;
        attach(&self.tmpfs, rustix::fs::CWD, &self.anchor)?;
        for (mount, mount_point) in &self.mounts {
            attach(mount, &self.tmpfs, mount_point)?;
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
    fn from_common_paths(common: &PathTable) -> Self {
        let mut views = Self::default();
        for entry in &common.entries {
            let view = match entry.access {
                _ if entry.source != entry.canonical_path => View::Substitute(entry.source.clone()),
                PathAccess::Device => View::Device,
                PathAccess::Execute | PathAccess::Read => View::Readonly,
            };
            views.insert(&entry.requested_path, &entry.canonical_path, view, entry.is_directory);
        }
        views
    }

    /// Adds a path of the process's own.
    fn add_own_path(&mut self, path: &Path, view: View) -> io::Result<()> {
        let canonical = match self.resolved.get(path) {
            Some(canonical) => canonical.clone(),
            None => std::fs::canonicalize(path)?,
        };
        let is_directory = canonical.is_dir();
        self.insert(path, &canonical, view, is_directory);
        self.resolved.insert(path.to_owned(), canonical);
        Ok(())
    }

    /// Processes are recognised from outside by their directories' paths without links, and
    /// programs ask for their own, so mounts are there.
    fn insert(&mut self, requested_path: &Path, canonical: &Path, view: View, is_directory: bool) {
        if canonical != requested_path {
            self.links.insert(requested_path.to_owned(), canonical.to_owned());
        }
        let shown_path = Place { view, is_directory };
        self.mounts.insert(canonical.to_owned(), shown_path);
    }
}

fn relative(path: &Path) -> io::Result<&Path> {
    path.strip_prefix("/").map_err(to_io_error)
}

/// What mounts are attached to in a tmpfs, and the directories on the way, each made once.
struct MountPoints<'a> {
    tmpfs: &'a OwnedFd,
    directories: BTreeSet<PathBuf>,
}

impl<'a> MountPoints<'a> {
    fn new(tmpfs: &'a OwnedFd) -> Self {
        Self { tmpfs, directories: BTreeSet::new() }
    }

    /// Makes an empty directory or file at `path`.
    fn create(&mut self, path: &Path, is_directory: bool) -> io::Result<()> {
        if is_directory {
            return self.create_directory(path);
        }
        self.create_parent(path)?;
        let mode = Mode::from_raw_mode(0o444);
        Ok(rustix::fs::mknodat(self.tmpfs, path, FileType::RegularFile, mode, 0)?)
    }

    /// Makes a symbolic link at `path`.
    fn create_link(&mut self, path: &Path, target: &Path) -> io::Result<()> {
        self.create_parent(path)?;
        Ok(rustix::fs::symlinkat(target, self.tmpfs, path)?)
    }

    fn create_parent(&mut self, path: &Path) -> io::Result<()> {
        match path.parent() {
            Some(parent) => self.create_directory(parent),
            None => Ok(()),
        }
    }

    fn create_directory(&mut self, path: &Path) -> io::Result<()> {
        if path.as_os_str().is_empty() || self.directories.contains(path) {
            return Ok(());
        }
        self.create_parent(path)?;
        match rustix::fs::mkdirat(self.tmpfs, path, Mode::from_raw_mode(0o755)) {
            Err(Errno::EXIST) | Ok(()) => {}
            Err(error) => return Err(error.into()),
        }
        self.directories.insert(path.to_owned());
        Ok(())
    }
}

fn attach(
    mount: &OwnedFd,
    directory: impl std::os::fd::AsFd,
    mount_point: &CStr,
) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    Ok(rustix::mount::move_mount(mount, c"", directory, mount_point, flags)?)
}
