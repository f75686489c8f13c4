//! A directory held open, for work as root in trees that belong to another user.
//!
//! Whoever owns a directory can replace what lies in it with a link at any moment. A path that is
//! looked at and then used would lead root elsewhere; here every step starts from an open directory
//! and names one entry of it, and no link is ever followed.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Gid, Mode, OFlags, Stat, Uid};

/// An open directory.
#[derive(Debug)]
pub struct Directory {
    fd: OwnedFd,
}

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A regular file.
    File,
    /// A symbolic link.
    Link,
    /// A socket, pipe or device: no data.
    Other,
}

/// Of whom a file or directory is, and who may do what with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights {
    /// The owning user.
    pub uid: u32,
    /// The owning group.
    pub gid: u32,
    /// The permission bits.
    pub mode: u32,
}

impl From<&Stat> for Rights {
    fn from(stat: &Stat) -> Self {
        Self {
            uid: stat.st_uid,
            gid: stat.st_gid,
            mode: stat.st_mode & 0o7777,
        }
    }
}

const OPEN_DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// For this process alone, until the rights are known.
const PRIVATE: Mode = Mode::RUSR.union(Mode::WUSR);

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
    pub fn make(&self, name: &OsStr) -> io::Result<Self> {
        rustix::fs::mkdirat(&self.fd, name, Mode::RWXU)?;
        self.enter(name)
    }

    /// The names in it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn names(&self) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.fd)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(OsStr::from_bytes(name).to_owned());
            }
        }
        Ok(names)
    }

    /// What an entry is now; whoever may write here can change it in the next moment.
    ///
    /// # Errors
    /// The kernel's.
    pub fn kind(&self, name: &OsStr) -> io::Result<Kind> {
        Ok(kind_of(&self.stat(name)?))
    }

    /// An entry's numbers; of a link they are its own.
    ///
    /// # Errors
    /// The kernel's.
    pub fn stat(&self, name: &OsStr) -> io::Result<Stat> {
        Ok(rustix::fs::statat(
            &self.fd,
            name,
            AtFlags::SYMLINK_NOFOLLOW,
        )?)
    }

    /// The directory's own rights.
    ///
    /// # Errors
    /// The kernel's.
    pub fn rights(&self) -> io::Result<Rights> {
        Ok(Rights::from(&rustix::fs::fstat(&self.fd)?))
    }

    /// Gives the directory to whom `rights` says; the owner only as root.
    ///
    /// # Errors
    /// The kernel's.
    pub fn give(&self, rights: Rights) -> io::Result<()> {
        give(&self.fd, rights)
    }

    /// Opens a regular file to read; never waits for a pipe, never touches a device.
    ///
    /// # Errors
    /// The kernel's; `InvalidInput` when it is no regular file (any more).
    pub fn read(&self, name: &OsStr) -> io::Result<(File, Rights)> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(&self.fd, name, flags, Mode::empty())?);
        let stat = rustix::fs::fstat(&file)?;
        if kind_of(&stat) != Kind::File {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "it is no regular file",
            ));
        }
        Ok((file, Rights::from(&stat)))
    }

    /// Makes a new file, for this process alone until it is given away with [`give`].
    ///
    /// # Errors
    /// The kernel's; `AlreadyExists` when the name is taken, by a link too.
    pub fn write_new(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        Ok(File::from(rustix::fs::openat(
            &self.fd, name, flags, PRIVATE,
        )?))
    }

    /// Repeats a symbolic link of another directory here, as it stands.
    ///
    /// # Errors
    /// The kernel's.
    pub fn copy_link(&self, name: &OsStr, from: &Directory) -> io::Result<()> {
        let target = rustix::fs::readlinkat(&from.fd, name, Vec::new())?;
        Ok(rustix::fs::symlinkat(target, &self.fd, name)?)
    }

    /// Gives an entry another name, replacing what had it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn rename(&self, name: &OsStr, new: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.fd, name, &self.fd, new)?)
    }

    /// Removes an entry, with all in it when it is a directory; a missing one is fine.
    ///
    /// # Errors
    /// The kernel's.
    pub fn remove(&self, name: &OsStr) -> io::Result<()> {
        let gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
        match self.remove_now(name) {
            Err(error) if gone(&error) => Ok(()),
            result => result,
        }
    }

    fn remove_now(&self, name: &OsStr) -> io::Result<()> {
        if self.kind(name)? != Kind::Directory {
            return Ok(rustix::fs::unlinkat(&self.fd, name, AtFlags::empty())?);
        }
        self.enter(name)?.clear()?;
        Ok(rustix::fs::unlinkat(&self.fd, name, AtFlags::REMOVEDIR)?)
    }

    /// Removes everything in the directory.
    ///
    /// # Errors
    /// The kernel's.
    pub fn clear(&self) -> io::Result<()> {
        for name in self.names()? {
            self.remove(&name)?;
        }
        Ok(())
    }
}

/// Gives an open file or directory to whom `rights` says; the owner only as root.
///
/// # Errors
/// The kernel's.
pub fn give(fd: impl std::os::fd::AsFd, rights: Rights) -> io::Result<()> {
    if rustix::process::geteuid().is_root() {
        let owner = (Uid::from_raw(rights.uid), Gid::from_raw(rights.gid));
        rustix::fs::fchown(&fd, Some(owner.0), Some(owner.1))?;
    }
    // After the owner, for a change of that takes the set-user bits away.
    Ok(rustix::fs::fchmod(&fd, Mode::from_raw_mode(rights.mode))?)
}

/// What the numbers describe.
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
