//! A directory of the real file system.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::{Disk, DiskFile};

const LOCK_NAME: &str = "lock";

/// A directory of the real file system. Its files are reached through the directory opened first,
/// so that a renamed parent changes nothing.
#[derive(Clone, Debug)]
pub struct Directory {
    path: Arc<PathBuf>,
    handle: Arc<OwnedFd>,
}

impl Directory {
    /// Opens the directory at `path`, which is made, with mode 0700, if it does not exist.
    pub fn open(path: &Path) -> io::Result<Self> {
        egret_base::durable::create_directory(path)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let handle = rustix::fs::open(path, flags, Mode::empty())?;
        Ok(Self { path: Arc::new(path.to_owned()), handle: Arc::new(handle) })
    }

    fn open_with(&self, name: &str, flags: OFlags) -> io::Result<OwnedFd> {
        let flags = flags | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let mode = Mode::RUSR | Mode::WUSR;
        Ok(rustix::fs::openat(&*self.handle, name, flags, mode)?)
    }
}

impl Disk for Directory {
    type File = OwnedFd;
    type Lock = OwnedFd;

    fn open(&self, name: &str) -> io::Result<OwnedFd> {
        self.open_with(name, OFlags::empty())
    }

    fn create(&self, name: &str) -> io::Result<OwnedFd> {
        self.open_with(name, OFlags::CREATE | OFlags::EXCL)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(rustix::fs::renameat(&*self.handle, from, &*self.handle, to)?)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&*self.handle, name, AtFlags::empty())?)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&*self.handle)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn sync_directory(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&*self.handle)?)
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let space = rustix::fs::fstatvfs(&*self.handle)?;
        Ok(space.f_bavail.saturating_mul(space.f_frsize))
    }

    fn lock(&self) -> io::Result<OwnedFd> {
        let file = self.open_with(LOCK_NAME, OFlags::CREATE)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                let mut holder = Vec::with_capacity(32);
                file.read_at(&mut holder, 0)?;
                let holder = String::from_utf8_lossy(&holder).trim().to_owned();
                return Err(io::Error::new(io::ErrorKind::WouldBlock, holder));
            }
            Err(error) => return Err(error.into()),
        }
        rustix::fs::ftruncate(&file, 0)?;
        let holder = format!("{}\n", std::process::id());
        super::write_all(&file, holder.as_bytes(), 0)?;
        Ok(file)
    }

    fn display_path(&self) -> String {
        self.path.display().to_string()
    }
}

impl DiskFile for OwnedFd {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        Ok(rustix::io::pwrite(self, bytes, offset)?)
    }

    fn read_at(&self, buffer: &mut Vec<u8>, offset: u64) -> io::Result<usize> {
        Ok(rustix::io::pread(self, rustix::buffer::spare_capacity(buffer), offset)?)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(rustix::fs::fdatasync(self)?)
    }

    fn truncate(&self, size_bytes: u64) -> io::Result<()> {
        Ok(rustix::fs::ftruncate(self, size_bytes)?)
    }

    fn size_bytes(&self) -> io::Result<u64> {
        Ok(rustix::fs::fstat(self)?.st_size as u64)
    }

    fn has_other_names(&self) -> io::Result<bool> {
        Ok(rustix::fs::fstat(self)?.st_nlink > 1)
    }
}
