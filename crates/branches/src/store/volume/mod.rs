//! Where copies are made: one trait, three drivers.
//!
//! `btrfs` snapshots a subvolume in one atomic step whatever its size; `reflink` clones every file
//! of a stopped server by sharing its blocks; `copy` copies every byte and works everywhere.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use egret_base::Timestamp;
use egret_linux::directory::{Directory, Kind, kind_of};
use egret_linux::extents::unshared_bytes;
use egret_linux::subvolume;
use rustix::fs::{Stat, StatVfs};

use crate::config::BranchesConfig;
use crate::error::BranchesError;

mod btrfs;
pub mod image;
pub mod relocation;
pub mod tenant;
pub mod tree;
mod walk;

pub use walk::Omission;
use walk::walk;

/// Which driver makes the copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// Subvolume snapshots.
    Btrfs,
    /// FICLONE of every file.
    Reflink,
    /// Every byte.
    Copy,
}

impl Driver {
    /// The driver's name in configuration and answers.
    pub fn name(self) -> &'static str {
        match self {
            Driver::Btrfs => "btrfs",
            Driver::Reflink => "reflink",
            Driver::Copy => "copy",
        }
    }

    /// What the driver costs, in one sentence for the user.
    pub fn note(self) -> &'static str {
        match self {
            Driver::Btrfs => "a branch costs one snapshot, whatever the size of the source",
            Driver::Reflink => {
                "a branch shares its blocks with the template, but every file is cloned by itself: the time grows with the number of files, not with their size"
            }
            Driver::Copy => {
                "every branch copies every byte of the source: time and disk grow with its size; `egret branch volume create --size 20G` (as root) makes a btrfs volume"
            }
        }
    }
}

/// Room on the volume, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// In all.
    pub size: u64,
    /// Free for data; 0 when a btrfs volume is out of room for metadata.
    pub free: u64,
}

impl Space {
    fn of(found: &StatVfs) -> Self {
        Self {
            size: found.f_blocks * found.f_frsize,
            free: found.f_bavail * found.f_frsize,
        }
    }
}

/// Makes, measures and removes copies of data directories. Calls block.
pub trait Volume: Send + Sync {
    /// Which driver this is.
    fn driver(&self) -> Driver;

    /// Whether a clone of a running server's directory is of one moment.
    fn is_atomic(&self) -> bool;

    /// Makes an empty directory that can be cloned.
    ///
    /// # Errors
    /// The file system's.
    fn create(&self, path: &Path) -> std::io::Result<()>;

    /// Clones the data directory `from` to the new path `to`.
    ///
    /// # Errors
    /// The file system's; what was made of `to` until then stays and is to be removed.
    fn clone_tree(&self, from: &Path, to: &Path) -> std::io::Result<()>;

    /// Makes a directory read-only where the file system can.
    ///
    /// # Errors
    /// The file system's.
    fn seal(&self, path: &Path) -> std::io::Result<()>;

    /// Removes a directory that `create` or `clone_tree` made; a missing one is fine.
    ///
    /// # Errors
    /// The file system's.
    fn remove(&self, path: &Path) -> std::io::Result<()>;

    /// Bytes of `path` that are its own since `cloned_at`.
    ///
    /// # Errors
    /// The file system's.
    fn diverged_bytes(&self, path: &Path, cloned_at: Timestamp) -> std::io::Result<u64>;
}

/// The superuser's password in the data directory: there as soon as a server has been made.
pub const PASSWORD_FILE: &str = "superuser.password";

/// A volume in use.
#[derive(Clone)]
pub struct Mounted {
    /// The driver.
    pub volume: Arc<dyn Volume>,
    /// Its root directory.
    pub root: PathBuf,
    /// The image that is mounted there, when Egret made one.
    pub image: Option<PathBuf>,
    promised: Arc<btrfs::PromisedBytes>,
}

impl Mounted {
    /// The volume at `root`, on which `volume` makes copies.
    pub(crate) fn new(volume: Arc<dyn Volume>, root: PathBuf, image: Option<PathBuf>) -> Self {
        Self {
            volume,
            root,
            image,
            promised: Arc::default(),
        }
    }

    /// The data directory of the embedded server.
    pub fn source(&self) -> PathBuf {
        self.root.join("source")
    }

    /// Bytes that can still be written: on btrfs, what is free less what has been promised to writes
    /// that are in memory alone, for which statvfs(3) does not account.
    ///
    /// # Errors
    /// [`BranchesError::Io`].
    pub fn writable_bytes(&self) -> Result<u64, BranchesError> {
        let found = self.examine()?;
        let promised = self.promised.of(found.f_fsid, &self.root);
        Ok(Space::of(&found).free.saturating_sub(promised))
    }

    /// Room on the file system.
    ///
    /// # Errors
    /// [`BranchesError::Io`].
    pub fn space(&self) -> Result<Space, BranchesError> {
        Ok(Space::of(&self.examine()?))
    }

    fn examine(&self) -> Result<StatVfs, BranchesError> {
        rustix::fs::statvfs(&self.root)
            .map_err(|error| crate::error::io("examine", &self.root)(error.into()))
    }
}

/// Opens the volume of a data directory: mounts its image, makes one on the first start where that
/// is needed and possible, and picks the driver that the file system allows.
///
/// # Errors
/// [`BranchesError::Volume`] when the configured driver cannot work here.
pub fn open(data_dir: &Path, config: &BranchesConfig) -> Result<Mounted, BranchesError> {
    relocation::undo_interrupted_move(data_dir)?;
    let root = data_dir.join("volume");
    let image = data_dir.join("volume.img");
    let fresh = !root.join("source").exists() && !image.exists();
    let password = data_dir.join(PASSWORD_FILE);
    if fresh && password.exists() {
        return Err(BranchesError::Volume {
            reason: format!(
                "{} says that a server was made, but neither {} nor {} is there: is a file system not mounted? Remove that file to start anew",
                password.display(),
                root.join("source").display(),
                image.display(),
            ),
        });
    }
    fs::create_dir_all(&root).map_err(crate::error::io("create", &root))?;
    let open_mode = std::os::unix::fs::PermissionsExt::from_mode(0o711);
    fs::set_permissions(&root, open_mode).map_err(crate::error::io("change the mode of", &root))?;
    let wanted = config.volume.as_str();
    if !["auto", "btrfs", "reflink", "copy"].contains(&wanted) {
        return Err(BranchesError::Volume {
            reason: format!("branches.volume is `{wanted}`: use auto, btrfs, reflink or copy"),
        });
    }
    if image.exists() {
        image::mount(&image, &root)?;
    }
    let mut offered = probe(&root);
    if fresh && offered == Driver::Copy && matches!(wanted, "auto" | "btrfs") {
        match image::create(&image, &root, config.volume_size) {
            Ok(()) => offered = probe(&root),
            Err(error) if wanted == "btrfs" => return Err(error),
            Err(error) => {
                tracing::warn!(%error, cost = Driver::Copy.note(), "branches are made by copying")
            }
        }
    }
    let driver = chosen(wanted, offered)?;
    let image = image.exists().then_some(image);
    let mounted = Mounted::new(driver_for(driver), root, image);
    let source = mounted.source();
    if !source.exists() {
        let made = mounted.volume.create(&source);
        made.map_err(crate::error::io("create", &source))?;
    }
    relocation::finish_interrupted_move(data_dir, &source)?;
    tracing::info!(driver = driver.name(), root = %mounted.root.display(), "the volume is open");
    Ok(mounted)
}

fn chosen(wanted: &str, offered: Driver) -> Result<Driver, BranchesError> {
    match (wanted, offered) {
        ("copy", _) => Ok(Driver::Copy),
        ("auto", offered) => Ok(offered),
        ("btrfs", Driver::Btrfs) => Ok(Driver::Btrfs),
        ("reflink", Driver::Reflink | Driver::Btrfs) => Ok(Driver::Reflink),
        (wanted, _) => Err(BranchesError::Volume {
            reason: format!(
                "branches.volume is {wanted}, but the data directory's file system cannot do that: use auto, or put egret.data_dir on one that can"
            ),
        }),
    }
}

/// What the files of a data directory take.
#[derive(Debug)]
pub struct DiskUse {
    /// Bytes, as far as they can be counted.
    pub bytes: u64,
    /// What is not counted.
    pub uncounted: Option<Omission>,
}

/// What the files of a data directory take on the disk, shared ones included, and those that are on
/// their way there (`st_blocks`; btrfs counts what is not allocated yet).
///
/// # Errors
/// The file system's.
pub fn disk_use(path: &Path) -> std::io::Result<DiskUse> {
    let mut bytes = 0;
    let uncounted = walk(path, &mut |entry| {
        bytes += bytes_of(entry.stat);
        Ok(())
    })?;
    Ok(DiskUse { bytes, uncounted })
}

/// What a file takes: `st_blocks` counts 512 bytes whatever the block size (stat(2)).
fn bytes_of(stat: &Stat) -> u64 {
    u64::try_from(stat.st_blocks).unwrap_or(0) * 512
}

/// The driver by its name.
pub fn driver_for(driver: Driver) -> Arc<dyn Volume> {
    match driver {
        Driver::Btrfs => Arc::new(btrfs::Btrfs),
        Driver::Reflink => Arc::new(tree::Tree::reflink()),
        Driver::Copy => Arc::new(tree::Tree::copy()),
    }
}

/// Tries what the file system under `root` can do.
fn probe(root: &Path) -> Driver {
    let trial = root.join(".egret-probe");
    let subvolumes = subvolume::create(&trial).is_ok();
    if subvolumes {
        // What can be created may not be deleted by an ordinary user without a mount option.
        if subvolume::delete(&trial).is_ok() {
            return Driver::Btrfs;
        }
        tracing::warn!(path = %trial.display(), "subvolumes can be made but not deleted here: mount with user_subvol_rm_allowed to use them");
        // An empty subvolume can be removed like a directory on current kernels.
        let _ = fs::remove_dir(&trial);
    }
    if tree::can_reflink(root) {
        return Driver::Reflink;
    }
    Driver::Copy
}

/// Sums, over the files of a clone, the bytes that are not shared with any other file. A file not
/// modified since the clone has none and is not looked at.
fn unshared_below(path: &Path, cloned_at: Timestamp) -> std::io::Result<u64> {
    // One second earlier, for the file system's coarse clock.
    let since_s = cloned_at.as_micros().div_euclid(1_000_000) - 1;
    let mut total = 0;
    walk(path, &mut |entry| {
        let stat = entry.stat;
        if kind_of(stat) == Kind::File && stat.st_ctime >= since_s && stat.st_mtime >= since_s {
            total += match entry.read()? {
                Some(file) => unshared_bytes(&file)?,
                None => bytes_of(stat),
            };
        }
        Ok(())
    })?;
    Ok(total)
}

/// What of a data directory cannot be counted: its bytes would escape every limit.
///
/// # Errors
/// The file system's.
pub fn find_uncounted(path: &Path) -> std::io::Result<Option<Omission>> {
    walk(path, &mut |_| Ok(()))
}

/// Removes a directory with everything in it, however deep; a missing one is fine. Its parents are
/// trusted, what is in it belongs to the server's user.
pub(crate) fn remove_tree(path: &Path) -> std::io::Result<()> {
    let (parent, name) = split(path)?;
    match Directory::open(parent) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        opened => opened?.remove(name),
    }
}

/// Deletes a subvolume, whatever mode its user has given it: an Egret that is not root needs the right to write to it.
fn delete_subvolume(path: &Path) -> std::io::Result<()> {
    let (parent, name) = split(path)?;
    Directory::open(parent)?.open_up(name)?;
    subvolume::delete(path)
}

fn split(path: &Path) -> std::io::Result<(&Path, &OsStr)> {
    let parts = path.parent().zip(path.file_name());
    parts.ok_or_else(|| {
        std::io::Error::new(
            std::io::ErrorKind::InvalidInput,
            "a directory to remove needs a parent and a name",
        )
    })
}

#[cfg(test)]
mod tests;
