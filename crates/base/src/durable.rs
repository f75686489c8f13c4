//! Files and directories that survive a loss of power, whole or not at all.
//!
//! A file's content and its name reach the disk apart: the one by a sync of the file, the other by
//! a sync of its directory. Neither is of use without the other.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Writes a file durably, replacing an existing one. After a crash there is the old file or the
/// new one, whole. Its mode is `mode`, less the umask of the process. One writer at a time.
///
/// # Errors
/// What the system says; what was there before is still there, or the new file is.
pub fn write_file(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let temporary = temporary_path(path);
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    sync_directory(parent(path))
}

/// Makes a directory, and those above it, with mode 0700, if it is missing. Syncs the parent
/// directory in any case, so that the name is durable: a process that made the directory before may
/// have ended before its sync.
pub fn create_directory(path: &Path) -> io::Result<()> {
    if !path.is_dir() {
        let parent = parent(path);
        if !parent.is_dir() {
            create_directory(parent)?;
        }
        match fs::DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    sync_directory(parent(path))
}

/// Makes the names in a directory durable.
pub fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Path of a file while it is being written.
fn temporary_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

#[cfg(test)]
mod tests;
