//! Which paths only root and this user can change, and programs found in such places alone.
//!
//! A process that runs as root does what its files say. A file is *trusted* when root or the
//! process's own user owns it, no other user may write to it, and the same holds for each directory
//! and symbolic link on the way to it. A directory with the sticky bit (`/tmp`) may be writable by
//! others as long as the entry in it is not: only its owner can replace that entry.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use crate::regular_file;

/// Symbolic links that one path may go through, as in the kernel.
const LINKS_MAX: u32 = 40;
const STICKY: u32 = 0o1000;
const GROUP_WRITABLE: u32 = 0o020;
const OTHERS_WRITABLE: u32 = 0o002;

/// Directories that are searched for programs after those of `PATH`, which may lack `sbin`.
const SYSTEM_DIRECTORIES: [&str; 6] =
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// Why a path is not trusted.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// A part of the path belongs to another user than root or this one.
    #[error("{} belongs to user id {owner}, which could change it", .path.display())]
    ForeignOwner {
        /// The file, directory or link.
        path: PathBuf,
        /// User id of its owner.
        owner: u32,
    },
    /// A part of the path can be written by others.
    #[error("{} can be written by other users: chmod go-w {}", .path.display(), .path.display())]
    Writable {
        /// The file or directory.
        path: PathBuf,
    },
    /// A file in a directory that every user can write to has a second name, which another user may
    /// have given it.
    #[error("{} is a hard link in a directory that others can write to", .path.display())]
    HardLink {
        /// Path of the file.
        path: PathBuf,
    },
    /// The path cannot be examined.
    #[error("{}: {source}", .path.display())]
    Io {
        /// Path of the part that cannot be examined.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
}

/// Checks a file or directory and everything on the way to it.
///
/// # Errors
/// [`TrustError`] names the part that others can change.
pub fn check(path: &Path) -> Result<(), TrustError> {
    walk_path(path, rustix::process::geteuid().as_raw()).map(drop)
}

/// Opens a regular file for reading if it is trusted.
///
/// # Errors
/// [`TrustError`].
pub fn open(path: &Path) -> Result<File, TrustError> {
    let io_error = |source| TrustError::Io { path: path.to_owned(), source };
    let file = regular_file::open(path).map_err(io_error)?;
    let opened_metadata = file.metadata().map_err(io_error)?;
    let checked_metadata = walk_path(path, rustix::process::geteuid().as_raw())?;
    if (opened_metadata.dev(), opened_metadata.ino())
        == (checked_metadata.dev(), checked_metadata.ino())
    {
        return Ok(file);
    }
    Err(io_error(io::Error::other("it was replaced meanwhile")))
}

/// The first program of that name in a trusted directory of `PATH` or of the system. Relative
/// directories are passed over.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    find_program_in(name, &path)
}

fn find_program_in(name: &str, path: &OsStr) -> Option<PathBuf> {
    std::env::split_paths(path)
        .filter(|directory| directory.is_absolute())
        .chain(SYSTEM_DIRECTORIES.iter().map(PathBuf::from))
        .map(|directory| directory.join(name))
        .find(|program| is_executable(program) && check(program).is_ok())
}

fn is_executable(program: &Path) -> bool {
    program
        .metadata()
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// Goes from the root to `path`, link by link, and returns what is there.
fn walk_path(path: &Path, user: u32) -> Result<Metadata, TrustError> {
    let io_error = |path: &Path| {
        let path = path.to_owned();
        |source| TrustError::Io { path, source }
    };
    let absolute = std::path::absolute(path).map_err(io_error(path))?;
    let mut pending = reversed_names(&absolute);
    let mut current = PathBuf::from("/");
    let mut metadata = examine(&current, user).map_err(io_error(&current))??;
    let mut links = 0;
    while let Some(name) = pending.pop() {
        let is_shared_directory = is_shared(&metadata, user);
        if is_shared_directory && metadata.mode() & STICKY == 0 {
            return Err(TrustError::Writable { path: current });
        }
        if name == ".." {
            current.pop();
            metadata = examine(&current, user).map_err(io_error(&current))??;
            continue;
        }
        let next = current.join(&name);
        metadata = examine(&next, user).map_err(io_error(&next))??;
        if metadata.is_symlink() {
            links += 1;
            if links > LINKS_MAX {
                return Err(io_error(&next)(io::Error::other("too many symbolic links")));
            }
            let target = std::fs::read_link(&next).map_err(io_error(&next))?;
            if target.is_absolute() {
                current = PathBuf::from("/");
            }
            pending.extend(reversed_names(&target));
            metadata = examine(&current, user).map_err(io_error(&current))??;
            continue;
        }
        if is_shared_directory && metadata.is_file() && metadata.nlink() > 1 {
            return Err(TrustError::HardLink { path: next });
        }
        current = next;
    }
    if is_shared(&metadata, user) {
        return Err(TrustError::Writable { path: current });
    }
    Ok(metadata)
}

/// The names of a path, the first one last.
fn reversed_names(path: &Path) -> Vec<OsString> {
    let mut names: Vec<OsString> = path
        .components()
        .filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir))
        .map(|part| part.as_os_str().to_owned())
        .collect();
    names.reverse();
    names
}

/// What is at `path`, if root or the user owns it.
fn examine(path: &Path, user: u32) -> io::Result<Result<Metadata, TrustError>> {
    let metadata = std::fs::symlink_metadata(path)?;
    if metadata.uid() == 0 || metadata.uid() == user {
        return Ok(Ok(metadata));
    }
    Ok(Err(TrustError::ForeignOwner { path: path.to_owned(), owner: metadata.uid() }))
}

/// Whether users other than root and this one may write. The group of root and the private group of
/// an ordinary user (with the user's own number, as `useradd` makes it) have no other members.
fn is_shared(metadata: &Metadata, user: u32) -> bool {
    if metadata.is_symlink() {
        return false;
    }
    let mode = metadata.mode();
    let is_private_group = metadata.gid() == 0 || metadata.gid() == user;
    mode & OTHERS_WRITABLE != 0 || (mode & GROUP_WRITABLE != 0 && !is_private_group)
}

#[cfg(test)]
mod tests;
