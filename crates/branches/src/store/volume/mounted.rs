//! A volume in use, and the room on it.

use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::StatVfs;

use super::btrfs::PromisedBytes;
use super::driver::Volume;
use crate::error::BranchesError;

/// Room on the volume, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    pub size: u64,
    /// Free for data; 0 when a btrfs volume is out of room for metadata.
    pub free: u64,
}

impl Space {
    fn from_statvfs(stat: &StatVfs) -> Self {
        Self { size: stat.f_blocks * stat.f_frsize, free: stat.f_bavail * stat.f_frsize }
    }
}

/// A volume in use.
#[derive(Clone)]
pub struct MountedVolume {
    /// The driver that makes copies on it.
    pub volume: Arc<dyn Volume>,
    /// Root directory of the volume.
    pub root: PathBuf,
    /// The image that is mounted there, when Egret made one.
    pub image: Option<PathBuf>,
    promised_bytes: Arc<PromisedBytes>,
}

impl MountedVolume {
    /// The volume at `root`, on which `volume` makes copies.
    pub(crate) fn new(volume: Arc<dyn Volume>, root: PathBuf, image: Option<PathBuf>) -> Self {
        Self { volume, root, image, promised_bytes: Arc::default() }
    }

    /// The data directory of the embedded server.
    pub fn source(&self) -> PathBuf {
        self.root.join("source")
    }

    /// Bytes that can still be written: on btrfs, what is free less what has been promised to
    /// writes that are in memory alone, for which statvfs(3) does not account.
    pub(crate) fn writable_bytes(&self) -> Result<u64, BranchesError> {
        let stat = self.read_statvfs()?;
        let promised_bytes = self.promised_bytes.read_bytes(stat.f_fsid, &self.root);
        Ok(Space::from_statvfs(&stat).free.saturating_sub(promised_bytes))
    }

    /// Room on the file system.
    pub fn space(&self) -> Result<Space, BranchesError> {
        Ok(Space::from_statvfs(&self.read_statvfs()?))
    }

    fn read_statvfs(&self) -> Result<StatVfs, BranchesError> {
        rustix::fs::statvfs(&self.root)
            .map_err(|error| crate::error::io_error("examine", &self.root)(error.into()))
    }
}
