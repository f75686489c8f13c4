//! Where a process works, also one of another user.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// The working directory of a process.
///
/// The kernel shows it to the process's own user, and to root only with CAP_SYS_PTRACE (ptrace(2),
/// `PTRACE_MODE_READ_FSCREDS`), which containers do not have by default. Root without it looks with
/// the filesystem credentials of the process's user, which CAP_SETUID and CAP_SETGID allow.
///
/// # Errors
/// The operating system's refusal: there is no such process, or it may not be looked at.
pub fn working_directory(pid: i32) -> io::Result<PathBuf> {
    let process = PathBuf::from(format!("/proc/{pid}"));
    let read = || fs::read_link(process.join("cwd"));
    match read() {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let owner = fs::metadata(&process)?;
            let _credentials = FilesystemCredentials::assume(owner.uid(), owner.gid());
            read()
        }
        result => result,
    }
}

/// The filesystem credentials of this thread (credentials(7)) are those of another user until it is
/// dropped.
struct FilesystemCredentials {
    uid: u32,
    gid: u32,
}

impl FilesystemCredentials {
    /// Changes nothing where that is not permitted: what is then read is refused.
    fn assume(uid: u32, gid: u32) -> Self {
        let gid = set_gid(gid);
        let uid = set_uid(uid);
        Self { uid, gid }
    }
}

impl Drop for FilesystemCredentials {
    fn drop(&mut self) {
        set_uid(self.uid);
        set_gid(self.gid);
    }
}

/// Sets the filesystem user of this thread and returns the one of before.
fn set_uid(uid: u32) -> u32 {
    #[expect(unsafe_code, reason = "no safe crate wraps setfsuid")]
    // SAFETY: setfsuid(2) takes a number and touches no memory. It concerns the calling thread
    // alone (the C library does not repeat it in others), which restores it before it does anything
    // else.
    let previous = unsafe { libc::setfsuid(uid) };
    previous.cast_unsigned()
}

/// Sets the filesystem group of this thread and returns the one of before.
fn set_gid(gid: u32) -> u32 {
    #[expect(unsafe_code, reason = "no safe crate wraps setfsgid")]
    // SAFETY: as of setfsuid(2) above.
    let previous = unsafe { libc::setfsgid(gid) };
    previous.cast_unsigned()
}

#[cfg(test)]
mod tests;
