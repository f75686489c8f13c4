//! Moving an Egret that copies onto a volume that copies on write.

use std::path::PathBuf;

use egret_base::settings::ByteSize;
use egret_base::sync::write_lock;

use crate::engine::Branches;
use crate::error::BranchesError;
use crate::store::source::run_blocking;
use crate::store::volume::relocation::{image_path, relocate};
use crate::store::volume::{Driver, image, new_volume};

use super::view::VolumeView;

impl Branches {
    /// Makes a btrfs image of `size` and moves the embedded server onto it, which is stopped
    /// meanwhile. Only where copies are made by the `copy` driver and no branch exists.
    ///
    /// # Errors
    /// [`BranchesError::Volume`]; the server is where it was then.
    pub async fn create_volume(&self, size: ByteSize) -> Result<VolumeView, BranchesError> {
        let inner = &self.inner;
        let registry = &inner.state()?.registry;
        let _fill_guard = inner.fill_lock.lock().await;
        let _build_guard = inner.build_lock.write().await;
        let _removal_guard = inner.template_removal_lock.write().await;
        let refuse = |reason: &str| Err(BranchesError::Volume { reason: reason.to_owned() });
        if inner.mounted().volume.driver() != Driver::Copy {
            return refuse("the volume copies on write already: nothing to do");
        }
        if size < image::SIZE_MIN {
            return refuse(&format!("a volume needs at least {}", image::SIZE_MIN));
        }
        let third = ByteSize(inner.mounted().space()?.free / 3).rounded_down();
        if size > third {
            return refuse(&format!(
                "{size} is more than a third of the free space, which is {third}: ask for less"
            ));
        }
        inner.empty_pools().await;
        if !registry.branches().is_empty() {
            return refuse("branches exist: destroy them first, they do not move");
        }
        for template in registry.templates() {
            inner.remove_template(template.id).await?;
        }
        let data_dir = inner.data_dir.clone();
        inner
            .source
            .relocate(async move |from: PathBuf| {
                run_blocking(move || relocate(&data_dir, &from, size)).await
            })
            .await?;
        let mut mounted = inner.mounted();
        mounted.volume = new_volume(Driver::Btrfs);
        mounted.image = Some(image_path(&inner.data_dir));
        *write_lock(&inner.mounted) = mounted;
        inner.paths.create_directories()?;
        self.volume()
    }
}
