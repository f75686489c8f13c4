//! Finding the socket of a server whose directory belongs to that server's user.
//!
//! The owner of the directory can put a symbolic link in the place of the socket, which connect(2)
//! would follow with the rights of this process: to the socket of another server. Here the socket
//! itself is held, and only one link is followed on the way: root's own to a file system that the
//! server has mounted for itself (`/proc/PID/root/…`).

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

/// The error inside the [`io::Error`] of a name that does not lead to a server's own socket.
#[derive(Debug, thiserror::Error)]
#[error("{} {reason}", path.display())]
pub struct ForeignSocket {
    path: PathBuf,
    reason: &'static str,
}

impl From<ForeignSocket> for io::Error {
    fn from(error: ForeignSocket) -> Self {
        io::Error::new(io::ErrorKind::PermissionDenied, error)
    }
}

/// A socket of a directory, held so that no change of the directory leads elsewhere.
#[derive(Debug)]
pub struct SocketPath {
    descriptor: OwnedFd,
    /// The name it was found by.
    name: PathBuf,
    /// The user that made the socket.
    uid: u32,
}

impl SocketPath {
    /// Finds the socket `name` in a directory whose own path is trusted.
    ///
    /// # Errors
    /// [`ForeignSocket`] for a link that is not root's own, and for what is no socket; the
    /// kernel's.
    pub fn find(directory: &Path, name: &OsStr) -> io::Result<Self> {
        let path = directory.join(name);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(directory, flags, Mode::empty())?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut descriptor = rustix::fs::openat(&directory, name, flags, Mode::empty())?;
        let mut stat = rustix::fs::fstat(&descriptor)?;
        if file_type(&stat) == FileType::Symlink {
            let is_own = stat.st_uid == 0 && rustix::process::geteuid().is_root();
            let target = if is_own { process_root_of(&descriptor)? } else { None };
            let Some((root, inside)) = target else {
                return Err(foreign_error(path, "is a link that Egret did not create"));
            };
            descriptor = open_beneath(&root, &inside).map_err(|error| match error {
                Errno::LOOP => foreign_error(path.clone(), "leads to a link of the server's user"),
                error => error.into(),
            })?;
            stat = rustix::fs::fstat(&descriptor)?;
        }
        if file_type(&stat) != FileType::Socket {
            return Err(foreign_error(path, "is not a socket"));
        }
        Ok(Self { descriptor, name: path, uid: stat.st_uid })
    }

    /// What to connect to; it leads to the held socket whatever becomes of its name.
    pub fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.descriptor.as_raw_fd()).into()
    }

    /// Checks that a connection was accepted by a process of the user that made the socket.
    ///
    /// # Errors
    /// [`ForeignSocket`] when it was another's; the kernel's.
    pub fn check_peer(&self, connection: impl AsFd) -> io::Result<()> {
        let peer = rustix::net::sockopt::socket_peercred(connection)?;
        if peer.uid.as_raw() == self.uid {
            return Ok(());
        }
        let reason = "is answered by a process of another user";
        Err(foreign_error(self.name.clone(), reason))
    }
}

fn foreign_error(path: PathBuf, reason: &'static str) -> io::Error {
    ForeignSocket { path, reason }.into()
}

fn file_type(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// The root directory of a process to which an open link leads, and the way below; `None` for a
/// link to anything else.
fn process_root_of(link: &OwnedFd) -> io::Result<Option<(PathBuf, PathBuf)>> {
    let target = rustix::fs::readlinkat(link, "", Vec::new())?;
    let target = Path::new(OsStr::from_bytes(target.as_bytes()));
    let Ok(relative) = target.strip_prefix("/proc") else {
        return Ok(None);
    };
    let mut parts = relative.components();
    let pid = parts.next().and_then(|pid| pid.as_os_str().to_str());
    let pid: Option<u32> = pid.and_then(|pid| pid.parse().ok());
    let (Some(pid), Some(Component::Normal(root))) = (pid, parts.next()) else {
        return Ok(None);
    };
    let is_root = root == "root";
    Ok(is_root.then(|| (format!("/proc/{pid}/root").into(), parts.as_path().into())))
}

/// Opens what lies below the root directory of a process, without following any link (openat2(2);
/// the kernel that makes a mount for a server has it).
fn open_beneath(root: &Path, inside: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(root, flags, Mode::empty())?;
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(&root, inside, flags, Mode::empty(), resolve)
}

#[cfg(test)]
mod tests;
