//! Which driver makes the copies: what the settings ask for, and what the file system can do.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use egret_linux::subvolume;

use super::driver::{Driver, Volume};
use super::{btrfs, tree};
use crate::error::BranchesError;

/// The driver by its name.
pub(crate) fn new_volume(driver: Driver) -> Arc<dyn Volume> {
    match driver {
        Driver::Btrfs => Arc::new(btrfs::Btrfs),
        Driver::Reflink => Arc::new(tree::Tree::reflink()),
        Driver::Copy => Arc::new(tree::Tree::copy()),
    }
}

pub(super) fn choose_driver(configured: &str, supported: Driver) -> Result<Driver, BranchesError> {
    match (configured, supported) {
        ("copy", _) => Ok(Driver::Copy),
        ("auto", offered) => Ok(offered),
        ("btrfs", Driver::Btrfs) => Ok(Driver::Btrfs),
        ("reflink", Driver::Reflink | Driver::Btrfs) => Ok(Driver::Reflink),
        (wanted, _) => Err(BranchesError::Volume {
            reason: format!(
                "branches.volume is {wanted}, but the file system of the data directory does not \
                 support it: use auto, or put egret.data_dir on one that does"
            ),
        }),
    }
}

/// Tries what the file system under `root` can do.
pub(super) fn probe_driver(root: &Path) -> Driver {
    let trial = root.join(".egret-probe");
    let can_create = subvolume::create(&trial).is_ok();
    if can_create {
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
