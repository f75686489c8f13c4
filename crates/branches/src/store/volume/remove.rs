//! Removing directories whose user may have closed parts of them.

use std::ffi::OsStr;
use std::path::Path;

use egret_linux::directory::Directory;
use egret_linux::subvolume;

/// Removes a directory with everything in it, however deep; a missing one is fine. Its parents are
/// trusted, what is in it belongs to the server's user.
pub(crate) fn remove_tree(path: &Path) -> std::io::Result<()> {
    let (parent, name) = split_path(path)?;
    match Directory::open(parent) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        opened => opened?.remove(name),
    }
}

/// Deletes a subvolume, whatever mode its user has given it: an Egret that is not root needs the
/// right to write to it.
pub(super) fn delete_subvolume(path: &Path) -> std::io::Result<()> {
    let (parent, name) = split_path(path)?;
    Directory::open(parent)?.grant_owner_access(name)?;
    subvolume::delete(path)
}

pub(super) fn split_path(path: &Path) -> std::io::Result<(&Path, &OsStr)> {
    let parts = path.parent().zip(path.file_name());
    parts.ok_or_else(|| {
        std::io::Error::new(
            std::io::ErrorKind::InvalidInput,
            "a directory to remove needs a parent and a name",
        )
    })
}
