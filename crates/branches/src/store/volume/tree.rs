//! Copies file by file: sharing blocks where the file system can (FICLONE), else byte by byte.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use egret_base::Timestamp;

use super::{Driver, Volume, walk};

/// How the content of a file gets into its copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    Shared,
    Copied,
}

/// Clones a directory by cloning each of its files.
pub struct Tree {
    content: Content,
}

impl Tree {
    /// Files share their blocks until one of them is written.
    pub fn reflink() -> Self {
        Self {
            content: Content::Shared,
        }
    }

    /// Files are copied byte by byte.
    pub fn copy() -> Self {
        Self {
            content: Content::Copied,
        }
    }

    /// Copies a directory that somebody may be writing to: files that vanish on the way are left
    /// out, and `skip` (a path below `from`) keeps others out with all below them.
    ///
    /// # Errors
    /// The file system's.
    pub fn clone_except(
        &self,
        from: &Path,
        to: &Path,
        skip: &dyn Fn(&Path) -> bool,
    ) -> io::Result<()> {
        make_directory(from, to)?;
        self.fill(from, to, skip)
    }

    /// Copies what is in `from` into the directory `to`, as [`Tree::clone_except`] does.
    ///
    /// # Errors
    /// The file system's.
    pub fn fill(&self, from: &Path, to: &Path, skip: &dyn Fn(&Path) -> bool) -> io::Result<()> {
        for entry in fs::read_dir(from)? {
            let path = entry?.path();
            let target = to.join(
                path.file_name()
                    .expect("an entry of a directory has a name"),
            );
            if skip(&path) {
                continue;
            }
            let result = fs::symlink_metadata(&path).and_then(|metadata| {
                if metadata.is_dir() {
                    self.clone_except(&path, &target, skip)
                } else if metadata.is_symlink() {
                    std::os::unix::fs::symlink(fs::read_link(&path)?, &target)
                } else if metadata.is_file() {
                    self.clone_file(&path, &target, &metadata)
                } else {
                    // A socket or pipe belongs to a process and is no data.
                    Ok(())
                }
            });
            match result {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                result => result?,
            }
        }
        Ok(())
    }

    /// Copies one file with its mode and owner.
    ///
    /// # Errors
    /// The file system's.
    pub fn clone_file(&self, from: &Path, to: &Path, metadata: &fs::Metadata) -> io::Result<()> {
        // Looked at and opened are two steps: a file replaced by a link in between is not followed.
        let mut source = File::options()
            .read(true)
            .custom_flags(NO_FOLLOW)
            .open(from)?;
        let mut target = File::options()
            .write(true)
            .create_new(true)
            .mode(metadata.mode() & 0o7777)
            .open(to)?;
        match self.content {
            Content::Shared => share(&source, &target)?,
            // The kernel copies between the files (copy_file_range) where it can.
            Content::Copied => {
                io::copy(&mut source, &mut target)?;
            }
        }
        own_like(to, metadata)
    }
}

/// `O_NOFOLLOW`.
const NO_FOLLOW: i32 = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();

/// Shares all blocks of `source` with the empty file `target`.
fn share(source: &File, target: &File) -> io::Result<()> {
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

fn make_directory(from: &Path, to: &Path) -> io::Result<()> {
    let metadata = fs::metadata(from)?;
    fs::create_dir(to)?;
    fs::set_permissions(to, fs::Permissions::from_mode(metadata.mode() & 0o7777))?;
    own_like(to, &metadata)
}

/// Gives a copy the owner of its original, where Egret may.
fn own_like(path: &Path, metadata: &fs::Metadata) -> io::Result<()> {
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::lchown(path, Some(metadata.uid()), Some(metadata.gid()))?;
    }
    Ok(())
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
        // Plain directories have no such switch; nobody but Egret's users can write there.
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        // Made before the driver was changed in the configuration.
        if egret_linux::subvolume::is_subvolume(path)? {
            return egret_linux::subvolume::delete(path);
        }
        match fs::remove_dir_all(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }

    fn diverged_bytes(&self, path: &Path, cloned_at: Timestamp) -> io::Result<u64> {
        if self.content == Content::Shared {
            return super::unshared_below(path, cloned_at);
        }
        let mut total = 0;
        walk(path, &mut |_, metadata| {
            total += metadata.blocks() * 512;
            Ok(())
        })?;
        Ok(total)
    }
}

/// Whether files below `root` can share blocks.
pub(super) fn can_reflink(root: &Path) -> bool {
    let (one, other) = (root.join(".egret-probe-1"), root.join(".egret-probe-2"));
    let attempt = || -> io::Result<()> {
        fs::write(&one, [1; 4096])?;
        let target = File::create(&other)?;
        rustix::fs::ioctl_ficlone(&target, File::open(&one)?)?;
        Ok(())
    };
    let works = attempt().is_ok();
    for path in [one, other] {
        // Either may not have been made.
        let _ = fs::remove_file(path);
    }
    works
}
