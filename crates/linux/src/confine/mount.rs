//! Detached mounts, and mounts on which files have another owner (idmapped mounts,
//! mount_setattr(2)).

use std::os::fd::AsFd;

use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};

use super::*;

/// A detached copy of the mount at `path`, with `path` as its root and without what is mounted below.
///
/// # Errors
/// The kernel's; needs CAP_SYS_ADMIN.
pub fn detached(path: &Path) -> io::Result<OwnedFd> {
    use rustix::mount::OpenTreeFlags;
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    Ok(rustix::mount::open_tree(rustix::fs::CWD, path, flags)?)
}

/// A detached copy of the mount at `path` and of those below it, read-only and without devices.
pub(super) fn detached_readonly(path: &Path) -> io::Result<OwnedFd> {
    use rustix::mount::OpenTreeFlags;
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE;
    let mount = rustix::mount::open_tree(rustix::fs::CWD, path, flags)?;
    let attributes =
        attributes(libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV);
    set_attributes(
        &mount,
        libc::AT_EMPTY_PATH | libc::AT_RECURSIVE,
        &attributes,
    )?;
    Ok(mount)
}

/// A detached mount of `path` on which files have the owner that an [`owner_mapping`] says and none
/// is run as a program.
///
/// # Errors
/// The kernel's; `EINVAL` when the file system cannot map owners.
pub fn with_owner(path: &Path, mapping: &OwnedFd) -> io::Result<OwnedFd> {
    let mount = detached(path)?;
    let flags = libc::MOUNT_ATTR_IDMAP
        | libc::MOUNT_ATTR_NOSUID
        | libc::MOUNT_ATTR_NODEV
        | libc::MOUNT_ATTR_NOEXEC;
    let attributes = libc::mount_attr {
        userns_fd: u64::from(mapping.as_raw_fd().cast_unsigned()),
        ..attributes(flags)
    };
    set_attributes(&mount, libc::AT_EMPTY_PATH, &attributes)?;
    Ok(mount)
}

/// A detached copy of the mount at `path`, for writing, on which nothing is run as a program. It has the devices of the
/// mount where `has_devices`.
pub(super) fn detached_writable(path: &Path, has_devices: bool) -> io::Result<OwnedFd> {
    let mount = detached(path)?;
    let mut flags = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC;
    if !has_devices {
        flags |= libc::MOUNT_ATTR_NODEV;
    }
    set_attributes(&mount, libc::AT_EMPTY_PATH, &attributes(flags))?;
    Ok(mount)
}

/// An empty file system in memory that holds at most `bytes` in at most `files` files, belongs to user and group `owner`,
/// and is open to nobody else but root. Nothing on it is run as a program.
///
/// # Errors
/// The kernel's; needs CAP_SYS_ADMIN.
pub fn small_tmpfs(owner: u32, bytes: u64, files: u64) -> io::Result<OwnedFd> {
    let (owner, bytes, files) = (owner.to_string(), bytes.to_string(), files.to_string());
    let options = [
        ("mode", "0700"),
        ("uid", &owner),
        ("gid", &owner),
        ("size", &bytes),
        ("nr_inodes", &files),
    ];
    let flags = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    tmpfs(&options, flags)
}

/// An empty detached file system in memory.
pub(super) fn tmpfs(options: &[(&str, &str)], flags: MountAttrFlags) -> io::Result<OwnedFd> {
    let context = rustix::mount::fsopen(c"tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (name, value) in options {
        rustix::mount::fsconfig_set_string(context.as_fd(), *name, *value)?;
    }
    rustix::mount::fsconfig_create(context.as_fd())?;
    Ok(rustix::mount::fsmount(
        context.as_fd(),
        FsMountFlags::FSMOUNT_CLOEXEC,
        flags,
    )?)
}

/// Forbids writing, programs and devices on a detached mount.
pub(super) fn seal(mount: &OwnedFd) -> io::Result<()> {
    let flags = libc::MOUNT_ATTR_RDONLY
        | libc::MOUNT_ATTR_NOSUID
        | libc::MOUNT_ATTR_NODEV
        | libc::MOUNT_ATTR_NOEXEC;
    set_attributes(mount, libc::AT_EMPTY_PATH, &attributes(flags))
}

fn attributes(set: u64) -> libc::mount_attr {
    libc::mount_attr {
        attr_set: set,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    }
}

fn set_attributes(
    mount: &OwnedFd,
    flags: libc::c_int,
    attributes: &libc::mount_attr,
) -> io::Result<()> {
    let empty: &CStr = c"";
    #[expect(unsafe_code, reason = "no crate wraps mount_setattr(2)")]
    // SAFETY: the path is a null-terminated constant, and `attributes` is of the size that is given
    // and lives over the call, which only reads it.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            empty.as_ptr(),
            flags,
            &raw const *attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    check(result)
}

/// A mapping by which what belongs to user and group `stored` on the disk belongs to user and group
/// `shown`, and the other way round for what is written. It is a user namespace without processes.
///
/// # Errors
/// The kernel's; needs CAP_SETUID and CAP_SETGID.
pub fn owner_mapping(stored: (u32, u32), shown: u32) -> io::Result<OwnedFd> {
    let helper = Helper::start()?;
    let proc = PathBuf::from(format!("/proc/{}", helper.0));
    std::fs::write(proc.join("uid_map"), format!("{} {shown} 1", stored.0))?;
    std::fs::write(proc.join("gid_map"), format!("{} {shown} 1", stored.1))?;
    Ok(std::fs::File::open(proc.join("ns/user"))?.into())
}

/// A process that does nothing in a user namespace of its own, until it is dropped.
struct Helper(RawFd);

impl Helper {
    fn start() -> io::Result<Self> {
        let flags = i64::from(libc::CLONE_NEWUSER | libc::SIGCHLD);
        #[expect(unsafe_code, reason = "a namespace for another process needs clone(2)")]
        // SAFETY: without CLONE_VM the child has memory of its own, as after fork(2). It makes three
        // system calls and never returns; it takes no lock and allocates nothing.
        let pid = unsafe {
            let pid = libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0);
            if pid == 0 {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                loop {
                    libc::pause();
                }
            }
            pid
        };
        check(pid)?;
        Ok(Self(
            i32::try_from(pid).expect("a Linux pid is at most 2^22"),
        ))
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_raw(self.0).expect("a child's pid is positive");
        // It is this process's child and not reaped: the pid is its own.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
    }
}
