//! Moving the source's files from a plain directory onto an image of their own.

use std::fs;
use std::path::{Path, PathBuf};

use egret_base::settings::ByteSize;

use super::driver::Driver;
use super::image;
use super::selection::new_volume;
use super::tree::Tree;
use crate::error::{BranchesError, io_error};
use crate::store::files::{remove_directory, remove_file};

/// Where the image of a data directory is.
pub(crate) fn image_path(data_dir: &Path) -> PathBuf {
    data_dir.join("volume.img")
}

/// Copies the stopped server onto a new image and puts that in the old directory's place. Until
/// the image has its final name, a crash leaves everything where it was.
///
/// # Errors
/// [`BranchesError`]; the server's files are where they were then.
pub fn relocate(data_dir: &Path, from: &Path, size: ByteSize) -> Result<PathBuf, BranchesError> {
    let (root, old) = (data_dir.join("volume"), data_dir.join("volume.old"));
    let (trial_root, trial) = (data_dir.join("volume.new"), data_dir.join("volume-trial.img"));
    let copied =
        image::create(&trial, &trial_root, size).and_then(|()| copy_source_onto(&trial_root, from));
    let copied = copied.and(image::unmount(&trial, &trial_root));
    if let Err(error) = copied {
        // What went wrong is told; what the clean-up meets is not the user's business.
        let _ = image::unmount(&trial, &trial_root);
        remove_file(&trial)?;
        remove_directory(&trial_root)?;
        return Err(error);
    }
    remove_directory(&trial_root)?;
    fs::rename(&root, &old).map_err(io_error("rename", &root))?;
    let placed = fs::rename(&trial, image_path(data_dir))
        .map_err(io_error("rename", &trial))
        .and_then(|()| image::mount(&image_path(data_dir), &root));
    if let Err(error) = placed {
        remove_file(&image_path(data_dir))?;
        remove_file(&trial)?;
        remove_mount_point(&root)?;
        fs::rename(&old, &root).map_err(io_error("rename", &old))?;
        return Err(error);
    }
    remove_directory(&old)?;
    Ok(root.join("source"))
}

/// Removes the empty directory that a file system was mounted on; a missing one is fine.
fn remove_mount_point(root: &Path) -> Result<(), BranchesError> {
    match fs::remove_dir(root) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(io_error("remove", root)(error))
        }
        _ => Ok(()),
    }
}

fn copy_source_onto(trial_root: &Path, from: &Path) -> Result<(), BranchesError> {
    let to = trial_root.join("source");
    new_volume(Driver::Btrfs).create(&to).map_err(io_error("create", &to))?;
    Tree::copy().copy_contents(from, &to, &|_| false).map_err(io_error("copy", from))?;
    let directory = fs::File::open(trial_root).map_err(io_error("open", trial_root))?;
    rustix::fs::syncfs(directory).map_err(|error| io_error("flush", trial_root)(error.into()))
}

/// Undoes a move that a crash interrupted before the image was in place. Called before the volume
/// is opened.
pub(crate) fn undo_interrupted_move(data_dir: &Path) -> Result<(), BranchesError> {
    let (root, old) = (data_dir.join("volume"), data_dir.join("volume.old"));
    let (trial_root, trial) = (data_dir.join("volume.new"), data_dir.join("volume-trial.img"));
    image::unmount(&trial, &trial_root)?;
    if old.exists() && !image_path(data_dir).exists() {
        remove_mount_point(&root)?;
        fs::rename(&old, &root).map_err(io_error("rename", &old))?;
    }
    remove_mount_point(&trial_root)?;
    remove_file(&trial)
}

/// Removes what a move left behind, once the image it made is mounted and holds the server.
pub(crate) fn finish_interrupted_move(data_dir: &Path, source: &Path) -> Result<(), BranchesError> {
    let old = data_dir.join("volume.old");
    if old.exists() && egret_postgres::cluster::is_complete(source) {
        remove_directory(&old)?;
    }
    Ok(())
}
