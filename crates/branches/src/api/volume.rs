//! Moving an Egret that copies onto a volume that copies on write.

use std::fs;
use std::path::{Path, PathBuf};

use egret_base::settings::Size;

use super::Branches;
use crate::error::{BranchesError, io};
use crate::store::files::{remove_directory, remove_file};
use crate::store::source::blocking;
use crate::store::volume::tree::Tree;
use crate::store::volume::{Driver, driver_for, image};

use super::view::VolumeView;

impl Branches {
    /// Makes a btrfs image of `size` and moves the embedded server onto it, which is stopped
    /// meanwhile. Only where copies are made by the `copy` driver and no branch exists.
    ///
    /// # Errors
    /// [`BranchesError::Volume`]; the server is where it was then.
    pub async fn create_volume(&self, size: Size) -> Result<VolumeView, BranchesError> {
        let inner = &self.inner;
        let registry = &inner.started()?.registry;
        let _building = inner.building.lock().await;
        let _gate = inner.templates_gate.write().await;
        let refuse = |reason: &str| {
            Err(BranchesError::Volume {
                reason: reason.to_owned(),
            })
        };
        if inner.mounted().volume.driver() != Driver::Copy {
            return refuse("the volume copies on write already: nothing to do");
        }
        if size < image::SIZE_MIN {
            return refuse(&format!("a volume needs at least {}", image::SIZE_MIN));
        }
        if !registry.branches()?.is_empty() {
            return refuse("branches exist: destroy them first, they do not move");
        }
        for template in registry.templates()? {
            inner.remove_template(template.id).await?;
        }
        let data_dir = inner.data_dir.clone();
        inner
            .source
            .relocate(async move |from: PathBuf| {
                blocking(move || relocate(&data_dir, &from, size)).await
            })
            .await?;
        let mut mounted = inner.mounted();
        mounted.volume = driver_for(Driver::Btrfs);
        mounted.image = Some(image_path(&inner.data_dir));
        *inner
            .mounted
            .write()
            .unwrap_or_else(std::sync::PoisonError::into_inner) = mounted;
        inner.paths.make()?;
        self.volume()
    }
}

fn image_path(data_dir: &Path) -> PathBuf {
    data_dir.join("volume.img")
}

/// Copies the stopped server onto a new image and puts that in the old directory's place. Until
/// the image has its final name, a crash leaves everything where it was.
fn relocate(data_dir: &Path, from: &Path, size: Size) -> Result<PathBuf, BranchesError> {
    let (root, old) = (data_dir.join("volume"), data_dir.join("volume.old"));
    let (trial_root, trial) = (
        data_dir.join("volume.new"),
        data_dir.join("volume-trial.img"),
    );
    let copied =
        image::create(&trial, &trial_root, size).and_then(|()| copy_onto(&trial_root, from));
    let copied = copied.and(image::unmount(&trial_root));
    if let Err(error) = copied {
        // What went wrong is told; what the clean-up meets is not the user's business.
        let _ = image::unmount(&trial_root);
        remove_file(&trial)?;
        remove_directory(&trial_root)?;
        return Err(error);
    }
    remove_directory(&trial_root)?;
    fs::rename(&root, &old).map_err(io("rename", &root))?;
    fs::rename(&trial, image_path(data_dir)).map_err(io("rename", &trial))?;
    image::mount(&image_path(data_dir), &root)?;
    remove_directory(&old)?;
    Ok(root.join("source"))
}

fn copy_onto(trial_root: &Path, from: &Path) -> Result<(), BranchesError> {
    let to = trial_root.join("source");
    driver_for(Driver::Btrfs)
        .create(&to)
        .map_err(io("create", &to))?;
    let metadata = fs::metadata(from).map_err(io("examine", from))?;
    fs::set_permissions(&to, metadata.permissions()).map_err(io("change the mode of", &to))?;
    std::os::unix::fs::chown(
        &to,
        Some(std::os::unix::fs::MetadataExt::uid(&metadata)),
        Some(std::os::unix::fs::MetadataExt::gid(&metadata)),
    )
    .map_err(io("change the owner of", &to))?;
    Tree::copy()
        .fill(from, &to, &|_| false)
        .map_err(io("copy", from))?;
    let directory = fs::File::open(trial_root).map_err(io("open", trial_root))?;
    rustix::fs::syncfs(directory).map_err(|error| io("flush", trial_root)(error.into()))
}

/// Finishes or undoes a move that a crash interrupted. Called before the volume is opened.
///
/// # Errors
/// [`BranchesError::Io`].
pub(crate) fn finish_interrupted_move(data_dir: &Path) -> Result<(), BranchesError> {
    let (root, old) = (data_dir.join("volume"), data_dir.join("volume.old"));
    image::unmount(&data_dir.join("volume.new"))?;
    if old.exists() && !image_path(data_dir).exists() {
        // Renamed away, but the image was not in place yet.
        remove_directory(&root)?;
        fs::rename(&old, &root).map_err(io("rename", &old))?;
    }
    remove_directory(&old)?;
    remove_directory(&data_dir.join("volume.new"))?;
    remove_file(&data_dir.join("volume-trial.img"))
}
