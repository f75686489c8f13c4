//! Copies file by file: sharing blocks where the file system can (FICLONE), else byte by byte.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use egret_base::Timestamp;
use egret_linux::directory::{self, DEPTH_MAX, DepthExceeded, Directory, Kind};

use rustix::fs::SeekFrom;

use super::disk_use::{disk_use, sum_unshared_bytes};
use super::driver::{Driver, Volume};
use super::remove::{delete_subvolume, remove_tree};

/// How the content of a file gets into its copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    Shared,
    Copied,
}

/// A directory and its copy while it is copied.
struct Level<'a> {
    source: &'a Directory,
    target: &'a Directory,
    /// What `source` was called when it was opened.
    path: &'a Path,
    /// How many directories of the copy are above it.
    depth: usize,
}

/// Clones a directory by cloning each of its files.
pub struct Tree {
    content: Content,
}

impl Tree {
    /// Files share their blocks until one of them is written.
    pub(crate) fn reflink() -> Self {
        Self { content: Content::Shared }
    }

    /// Files are copied byte by byte.
    pub fn copy() -> Self {
        Self { content: Content::Copied }
    }

    /// Copies a directory that may be written to meanwhile: files that vanish on the way are left
    /// out, and `skip` (a path below `from`) leaves out a path with all below it.
    ///
    /// Only the parents of `from` and `to` are trusted. What is below belongs to the server's user,
    /// which may replace a directory with a link while root works in it: so each step starts from
    /// an open directory, and a copied directory is given away when it is complete, the top one
    /// last.
    ///
    /// # Errors
    /// The file system's; [`DepthExceeded`] for a tree that is no data directory.
    pub(crate) fn clone_except(
        &self,
        from: &Path,
        to: &Path,
        skip: &dyn Fn(&Path) -> bool,
    ) -> io::Result<()> {
        fs::create_dir(to)?;
        self.copy_contents(from, to, skip)
    }

    /// Copies what is in `from` into the directory `to`, as [`Tree::clone_except`] does, and gives
    /// `to` the rights of `from`.
    pub(crate) fn copy_contents(
        &self,
        from: &Path,
        to: &Path,
        skip: &dyn Fn(&Path) -> bool,
    ) -> io::Result<()> {
        fs::set_permissions(to, fs::Permissions::from_mode(0o700))?;
        let (source, target) = (Directory::open(from)?, Directory::open(to)?);
        let top = Level { source: &source, target: &target, path: from, depth: 0 };
        self.copy_level(&top, skip)
    }

    fn copy_level(&self, level: &Level<'_>, skip: &dyn Fn(&Path) -> bool) -> io::Result<()> {
        for name in level.source.names()? {
            let name = name?;
            let path = level.path.join(&name);
            if skip(&path) {
                continue;
            }
            match self.copy_entry(level, &name, &path, skip) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                result => result?,
            }
        }
        level.target.set_rights(level.source.rights()?)
    }

    fn copy_entry(
        &self,
        level: &Level<'_>,
        name: &OsStr,
        path: &Path,
        skip: &dyn Fn(&Path) -> bool,
    ) -> io::Result<()> {
        let (source, target) = (level.source, level.target);
        match source.kind(name)? {
            Kind::Directory if level.depth == DEPTH_MAX => {
                Err(DepthExceeded { path: path.to_owned() }.into())
            }
            Kind::Directory => {
                let inner = Level {
                    source: &source.enter(name)?,
                    target: &target.create(name)?,
                    path,
                    depth: level.depth + 1,
                };
                self.copy_level(&inner, skip)
            }
            Kind::Link => target.copy_link(name, source),
            Kind::File => self.clone_file(source, target, name),
            // A socket or pipe belongs to a process and is no data.
            Kind::Other => Ok(()),
        }
    }

    /// Copies one file with its mode and owner.
    pub(crate) fn clone_file(
        &self,
        source: &Directory,
        target: &Directory,
        name: &OsStr,
    ) -> io::Result<()> {
        let (mut original, rights) = source.open_file(name)?;
        let mut copy = target.create_file(name)?;
        match self.content {
            Content::Shared => share_blocks(&original, &copy)?,
            Content::Copied => copy_data(&mut original, &mut copy)?,
        }
        directory::set_rights(&copy, rights)
    }
}

/// Copies the data of a file and leaves its holes: the size that a sparse file claims is set by its
/// author, so holes must not take room in the copy.
fn copy_data(original: &mut File, copy: &mut File) -> io::Result<()> {
    let length = original.metadata()?.len();
    let mut end = 0;
    loop {
        let start = match rustix::fs::seek(&*original, SeekFrom::Data(end)) {
            Ok(start) => start,
            Err(rustix::io::Errno::NXIO) => break,
            Err(error) => return Err(error.into()),
        };
        end = rustix::fs::seek(&*original, SeekFrom::Hole(start))?;
        rustix::fs::seek(&*original, SeekFrom::Start(start))?;
        rustix::fs::seek(&*copy, SeekFrom::Start(start))?;
        // The kernel copies between the files (copy_file_range) where it can.
        io::copy(&mut original.by_ref().take(end - start), copy)?;
    }
    if end < length {
        copy.set_len(length)?;
    }
    Ok(())
}

/// Shares all blocks of `source` with the empty file `target`.
fn share_blocks(source: &File, target: &File) -> io::Result<()> {
    // btrfs refuses to share blocks between files that do and do not copy on write; file systems
    // without such flags need none.
    if let Ok(flags) = rustix::fs::ioctl_getflags(source)
        && flags.contains(rustix::fs::IFlags::NOCOW)
    {
        let own = rustix::fs::ioctl_getflags(target)?;
        rustix::fs::ioctl_setflags(target, own | rustix::fs::IFlags::NOCOW)?;
    }
    Ok(rustix::fs::ioctl_ficlone(target, source)?)
}

impl Volume for Tree {
    fn driver(&self) -> Driver {
        match self.content {
            Content::Shared => Driver::Reflink,
            Content::Copied => Driver::Copy,
        }
    }

    fn is_atomic(&self) -> bool {
        false
    }

    fn create(&self, path: &Path) -> io::Result<()> {
        fs::create_dir(path)
    }

    fn clone_tree(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.clone_except(from, to, &|_| false)
    }

    fn seal(&self, _: &Path) -> io::Result<()> {
        // Plain directories have no read-only switch; only Egret's users can write there.
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        // Made before the driver was changed in the configuration.
        if egret_linux::subvolume::is_subvolume(path)? {
            return delete_subvolume(path);
        }
        remove_tree(path)
    }

    fn diverged_bytes(&self, path: &Path, cloned_at: Timestamp) -> io::Result<u64> {
        if self.content == Content::Shared {
            return sum_unshared_bytes(path, cloned_at);
        }
        Ok(disk_use(path)?.bytes)
    }
}

/// Whether files below `root` can share blocks.
pub(super) fn can_reflink(root: &Path) -> bool {
    let (first, second) = (root.join(".egret-probe-1"), root.join(".egret-probe-2"));
    let try_reflink = || -> io::Result<()> {
        fs::write(&first, [1; 4096])?;
        let target = File::create(&second)?;
        rustix::fs::ioctl_ficlone(&target, File::open(&first)?)?;
        Ok(())
    };
    let works = try_reflink().is_ok();
    for path in [first, second] {
        // Either may not have been made.
        let _ = fs::remove_file(path);
    }
    works
}

#[cfg(test)]
mod tests;
