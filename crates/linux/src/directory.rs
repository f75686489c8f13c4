//! A directory held open, for work as root in trees that belong to another user.
//!
//! The owner of a directory can replace what lies in it with a link at any moment. A path that is
//! looked at and then used would lead root elsewhere; here every step starts from an open directory
//! and names one entry of it, and no link is ever followed. The owner also decides how deep the
//! tree is and how many entries a directory has: names are read one at a time, and no more than
//! [`DEPTH_MAX`] directories are open in a row.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, DirEntry, FileType, Gid, Mode, OFlags, Stat, Uid};
use rustix::io::Errno;

/// A directory that is held open.
#[derive(Debug)]
pub struct Directory {
    fd: OwnedFd,
}

/// How many directories below the top one are entered one inside the other. PostgreSQL's own files
/// lie at most three deep (`base/pgsql_tmp/<name>.fileset/`).
pub const DEPTH_MAX: usize = 16;

/// The error inside the [`io::Error`] of a tree that nests deeper than [`DEPTH_MAX`].
#[derive(Debug, thiserror::Error)]
#[error("directories nest deeper than {DEPTH_MAX}, which is more than PostgreSQL makes: remove `{}`", path.display())]
pub struct DepthExceeded {
    /// The first directory that is too deep.
    pub path: PathBuf,
}

impl From<DepthExceeded> for io::Error {
    fn from(error: DepthExceeded) -> Self {
        io::Error::new(io::ErrorKind::InvalidData, error)
    }
}

/// Kind of a directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A directory that can be entered.
    Directory,
    /// A regular file with data.
    File,
    /// A symbolic link, which is never followed.
    Link,
    /// A socket, pipe or device: no data.
    Other,
}

/// Owner, group and permissions of a file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights {
    /// User id of the owner.
    pub uid: u32,
    /// Id of the owning group.
    pub gid: u32,
    /// The permission bits, without the file type.
    pub mode: u32,
}

impl From<&Stat> for Rights {
    fn from(stat: &Stat) -> Self {
        Self { uid: stat.st_uid, gid: stat.st_gid, mode: stat.st_mode & 0o7777 }
    }
}

const OPEN_DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// For this process alone, until the rights are known.
const PRIVATE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);

impl Directory {
    /// Opens a directory whose parents are trusted; only the last step of `path` may not be a link.
    ///
    /// # Errors
    /// The kernel's; `NotADirectory` for a link.
    pub fn open(path: &Path) -> io::Result<Self> {
        let fd = rustix::fs::open(path, OPEN_DIRECTORY, Mode::empty())?;
        Ok(Self { fd })
    }

    /// Opens a directory in this one.
    ///
    /// # Errors
    /// The kernel's; `NotADirectory` for a link.
    pub fn enter(&self, name: &OsStr) -> io::Result<Self> {
        let fd = rustix::fs::openat(&self.fd, name, OPEN_DIRECTORY, Mode::empty())?;
        Ok(Self { fd })
    }

    /// Makes a directory in this one, for this process alone, and opens it.
    ///
    /// # Errors
    /// The kernel's; `AlreadyExists` when the name is taken.
    pub fn create(&self, name: &OsStr) -> io::Result<Self> {
        rustix::fs::mkdirat(&self.fd, name, Mode::RWXU)?;
        self.enter(name)
    }

    /// The names in it, read as they are asked for. One that comes or goes meanwhile may be
    /// missing.
    pub fn names(&self) -> io::Result<impl Iterator<Item = io::Result<OsString>> + use<>> {
        let name_of = |entry: rustix::io::Result<DirEntry>| match entry {
            Ok(entry) => {
                let name = entry.file_name().to_bytes();
                let is_entry = name != b"." && name != b"..";
                is_entry.then(|| Ok(OsStr::from_bytes(name).to_owned()))
            }
            Err(error) => Some(Err(error.into())),
        };
        Ok(Dir::read_from(&self.fd)?.filter_map(name_of))
    }

    /// What an entry is now; a user that may write to this directory can change it in the next
    /// moment.
    pub fn kind(&self, name: &OsStr) -> io::Result<Kind> {
        Ok(kind_of(&self.stat(name)?))
    }

    /// The metadata of an entry; a link is not followed.
    pub fn stat(&self, name: &OsStr) -> io::Result<Stat> {
        Ok(rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// The directory's own rights.
    pub fn rights(&self) -> io::Result<Rights> {
        Ok(Rights::from(&rustix::fs::fstat(&self.fd)?))
    }

    /// Sets owner, group and permissions of the directory; owner and group only as root.
    pub fn set_rights(&self, rights: Rights) -> io::Result<()> {
        set_rights(&self.fd, rights)
    }

    /// Opens a regular file to read; never waits for a pipe, never touches a device.
    ///
    /// # Errors
    /// The kernel's; `InvalidInput` when it is no regular file (any more).
    pub fn open_file(&self, name: &OsStr) -> io::Result<(File, Rights)> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(&self.fd, name, flags, Mode::empty())?);
        let stat = rustix::fs::fstat(&file)?;
        if kind_of(&stat) != Kind::File {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
        }
        Ok((file, Rights::from(&stat)))
    }

    /// Makes a new file, for this process alone until it is given away with [`set_rights`].
    ///
    /// # Errors
    /// The kernel's; `AlreadyExists` when the name is taken, by a link too.
    pub fn create_file(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        Ok(File::from(rustix::fs::openat(&self.fd, name, flags, PRIVATE_MODE)?))
    }

    /// Repeats a symbolic link of another directory here, as it stands.
    pub fn copy_link(&self, name: &OsStr, from: &Directory) -> io::Result<()> {
        let target = rustix::fs::readlinkat(&from.fd, name, Vec::new())?;
        Ok(rustix::fs::symlinkat(target, &self.fd, name)?)
    }

    /// Gives an entry another name, replacing what had it.
    pub fn rename(&self, name: &OsStr, new: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.fd, name, &self.fd, new)?)
    }

    /// Removes an entry, with all in it when it is a directory, however deep; a missing one is
    /// fine.
    pub fn remove(&self, name: &OsStr) -> io::Result<()> {
        ignore_missing(self.remove_existing(name))
    }

    fn remove_existing(&self, name: &OsStr) -> io::Result<()> {
        if self.kind(name)? != Kind::Directory {
            return Ok(rustix::fs::unlinkat(&self.fd, name, AtFlags::empty())?);
        }
        self.grant_owner_access(name)?;
        self.enter(name)?.clear()?;
        Ok(rustix::fs::unlinkat(&self.fd, name, AtFlags::REMOVEDIR)?)
    }

    /// Removes everything in the directory, however deep.
    pub fn clear(&self) -> io::Result<()> {
        self.clear_below(self, 0, &mut 0)
    }

    /// What lies deeper than [`DEPTH_MAX`] below `top` is moved up into `top`, which is cleared
    /// until it is empty: so no tree takes more than that many levels. `moved_count` numbers the
    /// new names.
    fn clear_below(&self, top: &Directory, depth: usize, moved_count: &mut u64) -> io::Result<()> {
        loop {
            let mut is_empty = true;
            for name in self.names()? {
                is_empty = false;
                ignore_missing(self.remove_below(&name?, top, depth, moved_count))?;
            }
            // A pass may miss names while others are removed.
            if is_empty {
                return Ok(());
            }
        }
    }

    fn remove_below(
        &self,
        name: &OsStr,
        top: &Directory,
        depth: usize,
        moved_count: &mut u64,
    ) -> io::Result<()> {
        if self.kind(name)? != Kind::Directory {
            return Ok(rustix::fs::unlinkat(&self.fd, name, AtFlags::empty())?);
        }
        self.grant_owner_access(name)?;
        if depth == DEPTH_MAX {
            return top.move_in(self, name, moved_count);
        }
        self.enter(name)?.clear_below(top, depth + 1, moved_count)?;
        Ok(rustix::fs::unlinkat(&self.fd, name, AtFlags::REMOVEDIR)?)
    }

    /// Lets this process's user read, change and enter a directory of its own: a process of the
    /// same user may have made it with a mode that keeps even its owner out. Root is kept out by no
    /// mode, and other users' directories stay as they are.
    ///
    /// # Errors
    /// The kernel's; `NotADirectory` for a link.
    pub fn grant_owner_access(&self, name: &OsStr) -> io::Result<()> {
        let flags = OFlags::PATH | OPEN_DIRECTORY;
        let directory = rustix::fs::openat(&self.fd, name, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&directory)?;
        let mode = Mode::from_raw_mode(stat.st_mode);
        if stat.st_uid == rustix::process::geteuid().as_raw() && !mode.contains(Mode::RWXU) {
            // By its name in /proc, for fchmod(2) takes no descriptor that was opened as a mere
            // path (open(2)).
            let proc_path = format!("/proc/self/fd/{}", directory.as_raw_fd());
            rustix::fs::chmod(proc_path, mode | Mode::RWXU)?;
        }
        Ok(())
    }

    /// Moves a directory out of `from` into this one, under the next number that is free.
    fn move_in(&self, from: &Directory, name: &OsStr, moved_count: &mut u64) -> io::Result<()> {
        loop {
            let new = format!(".egret-moved-{moved_count}");
            *moved_count += 1;
            match rustix::fs::renameat(&from.fd, name, &self.fd, &new) {
                Err(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR) => {}
                result => return Ok(result?),
            }
        }
    }
}

/// A result without the error that there is nothing of that name.
fn ignore_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// Sets owner, group and permissions of an open file or directory; owner and group only as root.
pub fn set_rights(fd: impl std::os::fd::AsFd, rights: Rights) -> io::Result<()> {
    if rustix::process::geteuid().is_root() {
        let owner = (Uid::from_raw(rights.uid), Gid::from_raw(rights.gid));
        rustix::fs::fchown(&fd, Some(owner.0), Some(owner.1))?;
    }
    // After the owner, for a change of that takes the set-user bits away.
    Ok(rustix::fs::fchmod(&fd, Mode::from_raw_mode(rights.mode))?)
}

/// The kind of file that the metadata describes.
pub fn kind_of(stat: &Stat) -> Kind {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => Kind::Directory,
        FileType::RegularFile => Kind::File,
        FileType::Symlink => Kind::Link,
        _ => Kind::Other,
    }
}

#[cfg(test)]
mod tests;
