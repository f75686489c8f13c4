//! Opening the volume of a data directory.

use std::fs;
use std::path::Path;

use super::driver::Driver;
use super::mounted::MountedVolume;
use super::selection::{choose_driver, new_volume, probe_driver};
use super::{image, relocation};
use crate::config::BranchesConfig;
use crate::error::BranchesError;

/// The superuser's password in the data directory: there as soon as a server has been made.
pub const PASSWORD_FILE: &str = "superuser.password";

/// Opens the volume of a data directory: mounts its image, makes one on the first start where that
/// is needed and possible, and picks the driver that the file system allows.
///
/// # Errors
/// [`BranchesError::Volume`] when the configured driver cannot work here.
pub fn open(data_dir: &Path, config: &BranchesConfig) -> Result<MountedVolume, BranchesError> {
    relocation::undo_interrupted_move(data_dir)?;
    let root = data_dir.join("volume");
    let image = data_dir.join("volume.img");
    let is_fresh = !root.join("source").exists() && !image.exists();
    let password = data_dir.join(PASSWORD_FILE);
    if is_fresh && password.exists() {
        return Err(BranchesError::Volume {
            reason: format!(
                "{} says that a server was created, but neither {} nor {} exists: is a file \
                 system not mounted? To start from nothing, remove that file",
                password.display(),
                root.join("source").display(),
                image.display(),
            ),
        });
    }
    fs::create_dir_all(&root).map_err(crate::error::io_error("create", &root))?;
    let open_mode = std::os::unix::fs::PermissionsExt::from_mode(0o711);
    fs::set_permissions(&root, open_mode)
        .map_err(crate::error::io_error("change the mode of", &root))?;
    let configured = config.volume.as_str();
    if !["auto", "btrfs", "reflink", "copy"].contains(&configured) {
        return Err(BranchesError::Volume {
            reason: format!("branches.volume is `{configured}`: use auto, btrfs, reflink or copy"),
        });
    }
    if image.exists() {
        image::mount(&image, &root)?;
    }
    let mut supported = probe_driver(&root);
    if is_fresh && supported == Driver::Copy && matches!(configured, "auto" | "btrfs") {
        match image::create(&image, &root, config.volume_size) {
            Ok(()) => supported = probe_driver(&root),
            Err(error) if configured == "btrfs" => return Err(error),
            Err(error) => {
                tracing::warn!(%error, cost = Driver::Copy.note(), "branches are created by copying every byte")
            }
        }
    }
    let driver = choose_driver(configured, supported)?;
    let image = image.exists().then_some(image);
    let mounted = MountedVolume::new(new_volume(driver), root, image);
    let source = mounted.source();
    if !source.exists() {
        let made = mounted.volume.create(&source);
        made.map_err(crate::error::io_error("create", &source))?;
    }
    relocation::finish_interrupted_move(data_dir, &source)?;
    tracing::info!(driver = driver.name(), root = %mounted.root.display(), "the volume is open");
    Ok(mounted)
}
