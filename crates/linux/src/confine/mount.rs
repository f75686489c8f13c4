//! Detached mounts, and mounts on which files have another owner (idmapped mounts,
//! mount_setattr(2)).

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;

use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};

use super::*;

/// A detached copy of the mount at `path`, with `path` as its root and without what is mounted
/// below.
fn detached_copy(path: &Path) -> io::Result<OwnedFd> {
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
    let attributes = mount_attributes(
        libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV,
    );
    set_attributes(&mount, libc::AT_EMPTY_PATH | libc::AT_RECURSIVE, &attributes)?;
    Ok(mount)
}

/// A detached mount of `path` on which files have the owner that an [`owner_mapping`] says and none
/// is run as a program.
///
/// # Errors
/// The kernel's; `EINVAL` when the file system cannot map owners.
pub fn mount_with_owner(path: &Path, mapping: &OwnedFd) -> io::Result<OwnedFd> {
    let mount = detached_copy(path)?;
    let flags = libc::MOUNT_ATTR_IDMAP
        | libc::MOUNT_ATTR_NOSUID
        | libc::MOUNT_ATTR_NODEV
        | libc::MOUNT_ATTR_NOEXEC;
    let attributes = libc::mount_attr {
        userns_fd: u64::from(mapping.as_raw_fd().cast_unsigned()),
        ..mount_attributes(flags)
    };
    set_attributes(&mount, libc::AT_EMPTY_PATH, &attributes)?;
    Ok(mount)
}

/// A detached copy of the mount at `path`, for writing, on which nothing is run as a program. It
/// has the devices of the mount where `has_devices`.
pub(super) fn detached_writable(path: &Path, has_devices: bool) -> io::Result<OwnedFd> {
    let mount = detached_copy(path)?;
    let mut flags = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC;
    if !has_devices {
        flags |= libc::MOUNT_ATTR_NODEV;
    }
    set_attributes(&mount, libc::AT_EMPTY_PATH, &mount_attributes(flags))?;
    Ok(mount)
}

/// An empty file system in memory that holds at most `bytes` in at most `files` files, belongs to
/// user and group `owner`, and is closed to all others but root. Nothing on it is run as a program.
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
    create_tmpfs(&options, flags)
}

/// An empty detached file system in memory.
pub(super) fn create_tmpfs(options: &[(&str, &str)], flags: MountAttrFlags) -> io::Result<OwnedFd> {
    let context = rustix::mount::fsopen(c"tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (name, value) in options {
        rustix::mount::fsconfig_set_string(context.as_fd(), *name, *value)?;
    }
    rustix::mount::fsconfig_create(context.as_fd())?;
    Ok(rustix::mount::fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, flags)?)
}

/// Forbids writing, programs and devices on a detached mount.
pub(super) fn seal(mount: &OwnedFd) -> io::Result<()> {
    let flags = libc::MOUNT_ATTR_RDONLY
        | libc::MOUNT_ATTR_NOSUID
        | libc::MOUNT_ATTR_NODEV
        | libc::MOUNT_ATTR_NOEXEC;
    set_attributes(mount, libc::AT_EMPTY_PATH, &mount_attributes(flags))
}

fn mount_attributes(set: u64) -> libc::mount_attr {
    libc::mount_attr { attr_set: set, attr_clr: 0, propagation: 0, userns_fd: 0 }
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
    check_result(result)
}

/// A mapping by which files of `user` and `group` on the disk belong to user and group `shown_id`,
/// and the other way round for what is written. It is a user namespace without processes.
///
/// # Errors
/// The kernel's; needs CAP_SETUID and CAP_SETGID.
pub fn owner_mapping(user: u32, group: u32, shown_id: u32) -> io::Result<OwnedFd> {
    let holder = NamespaceHolder::new()?;
    let proc = PathBuf::from(format!("/proc/{}", holder.0));
    std::fs::write(proc.join("uid_map"), format!("{user} {shown_id} 1"))?;
    std::fs::write(proc.join("gid_map"), format!("{group} {shown_id} 1"))?;
    Ok(std::fs::File::open(proc.join("ns/user"))?.into())
}

/// A child in a user namespace of its own that has ended. Until it is waited for, which the drop
/// does, the kernel keeps it, and the namespace with it.
struct NamespaceHolder(libc::pid_t);

/// The child's function and the C library's call of it take some ten bytes.
const STACK_BYTES: usize = 4096;

/// A stack as the procedure calls of all architectures want it.
#[repr(C, align(16))]
struct Stack([MaybeUninit<u8>; STACK_BYTES]);

impl NamespaceHolder {
    /// A fork(2) would copy the page tables of this whole process. So the child shares its memory,
    /// and this thread waits for its end.
    fn new() -> io::Result<Self> {
        let mut stack = Stack([MaybeUninit::uninit(); STACK_BYTES]);
        let top = stack.0.as_mut_ptr_range().end;
        // Without a signal for its end the child is not discarded where SIGCHLD is ignored, and
        // wakes no waiting thread. The descriptors are shared, so that those that other threads
        // close meanwhile are closed in the child too.
        let flags = libc::CLONE_NEWUSER | libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_FILES;
        let _blocked = BlockedSignals::new()?;
        #[expect(unsafe_code, reason = "a namespace for another process needs clone(2)")]
        // SAFETY: as with vfork(2), CLONE_VFORK has this thread wait in the kernel until the child
        // has let go of the memory. So this frame, and `top` in it, outlives the child's use, and
        // what belongs to the thread alone, by the register that both have, is used by one of them
        // at a time. Besides, the child touches nothing but its stack, which is aligned: the C
        // library's wrapper calls `end_at_once` and then exit(2), and neither sets `errno`, takes a
        // lock or allocates. All signals are blocked, so that none of this process's handlers runs
        // in the child. Other threads run on. A SIGKILL of this process at any moment leaves a
        // child that is some instructions from its end, for which init waits; the kernel keeps the
        // memory until then.
        //
        // The memory is not within reach of a branch: ptrace(2) and what needs the same rights ask
        // for the process's ids or a right in its namespace. The child has root's ids from its
        // first to its last moment, the namespace belongs to root, and no other process ever enters
        // it. Since the child does not change its ids, the memory also keeps its mark of whether it
        // may be dumped.
        let pid = unsafe { libc::clone(end_at_once, top.cast(), flags, ptr::null_mut()) };
        check_result(pid.into())?;
        Ok(Self(pid))
    }
}

/// The child: its status is 0.
extern "C" fn end_at_once(_: *mut c_void) -> c_int {
    0
}

impl Drop for NamespaceHolder {
    fn drop(&mut self) {
        let is_interrupted = || io::Error::last_os_error().kind() == io::ErrorKind::Interrupted;
        loop {
            #[expect(unsafe_code, reason = "no safe crate waits for children without a signal")]
            // SAFETY: waitpid(2) takes a null pointer where the status is not wanted. The pid is
            // that of a child of this process, which is waited for here alone.
            let result = unsafe { libc::waitpid(self.0, ptr::null_mut(), libc::__WALL) };
            if result >= 0 || !is_interrupted() {
                return;
            }
        }
    }
}

/// All signals of this thread are blocked until it is dropped.
struct BlockedSignals {
    /// Those that were blocked before.
    previous_mask: libc::sigset_t,
}

impl BlockedSignals {
    fn new() -> io::Result<Self> {
        let mut all_signals = MaybeUninit::<libc::sigset_t>::uninit();
        let mut previous_mask = MaybeUninit::<libc::sigset_t>::uninit();
        #[expect(unsafe_code, reason = "no safe crate wraps pthread_sigmask")]
        // SAFETY: sigfillset(3) fills the set that pthread_sigmask(3) reads. Both sets are this
        // frame's.
        let error = unsafe {
            libc::sigfillset(all_signals.as_mut_ptr());
            libc::pthread_sigmask(
                libc::SIG_SETMASK,
                all_signals.as_ptr(),
                previous_mask.as_mut_ptr(),
            )
        };
        if error != 0 {
            return Err(io::Error::from_raw_os_error(error));
        }
        #[expect(unsafe_code, reason = "the call has filled it")]
        // SAFETY: pthread_sigmask(3) has answered with 0 and so has written the set.
        let before = unsafe { previous_mask.assume_init() };
        Ok(Self { previous_mask: before })
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        #[expect(unsafe_code, reason = "no safe crate wraps pthread_sigmask")]
        // SAFETY: the set is one that pthread_sigmask(3) has filled, and is only read.
        unsafe {
            libc::pthread_sigmask(
                libc::SIG_SETMASK,
                &raw const self.previous_mask,
                ptr::null_mut(),
            );
        }
    }
}
