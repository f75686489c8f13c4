//! Paths that many confined processes reach alike, looked up once for all of them.
//!
//! To look one up takes some ten system calls: the way through symbolic links, what is there, and a
//! descriptor for Landlock. Whether a table still holds takes one for each path.

use std::fs;
use std::os::unix::fs::MetadataExt;

use rustix::fs::{FileType, Mode, OFlags};

use super::*;

/// What several processes reach alike. Paths that do not exist are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommonPaths {
    /// Directories and files to read and execute: programs and libraries.
    pub executable: Vec<PathBuf>,
    /// Directories and files to read.
    pub readable: Vec<PathBuf>,
    /// Devices to read and write.
    pub devices: Vec<PathBuf>,
    /// What a process with a root of its own finds in the place of something else.
    pub replacements: Vec<Replacement>,
}

/// A file to read, and the path at which it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replacement {
    /// Path of the file to read.
    pub path: PathBuf,
    /// The path at which it is shown. If nothing is there, the replacement is left out.
    pub shown_at: PathBuf,
}

/// [`CommonPaths`] as they were when they were looked up.
#[derive(Debug)]
pub struct PathTable {
    common_paths: CommonPaths,
    /// What each path of `common_paths` led to, in their order.
    identities: Vec<Option<FileIdentity>>,
    pub(super) entries: Vec<PathEntry>,
}

#[derive(Debug)]
pub(super) struct PathEntry {
    /// The path by which processes ask for it.
    pub(super) requested_path: PathBuf,
    /// The same without symbolic links.
    pub(super) canonical_path: PathBuf,
    /// What is shown there, without symbolic links: the same path, unless it is a replacement.
    pub(super) source: PathBuf,
    /// `source`, opened as a mere path.
    pub(super) descriptor: OwnedFd,
    pub(super) is_directory: bool,
    pub(super) access: PathAccess,
}

/// What may be done with a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PathAccess {
    Execute,
    Read,
    Device,
}

/// Identifies a file while it exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileIdentity {
    device: u64,
    inode: u64,
}

impl CommonPaths {
    fn all_paths(&self) -> impl Iterator<Item = &PathBuf> {
        let lists = [&self.executable, &self.readable, &self.devices];
        let replacements = self.replacements.iter().flat_map(|file| [&file.path, &file.shown_at]);
        lists.into_iter().flatten().chain(replacements)
    }

    fn identities(&self) -> impl Iterator<Item = Option<FileIdentity>> {
        self.all_paths().map(|path| FileIdentity::from_path(path))
    }
}

impl FileIdentity {
    fn from_path(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        Some(Self { device: metadata.dev(), inode: metadata.ino() })
    }
}

impl PathTable {
    /// Looks all paths up.
    ///
    /// # Errors
    /// The kernel's, for instance when this process has no descriptor left.
    pub fn look_up(common_paths: CommonPaths) -> io::Result<Self> {
        // Taken first: a change during the look-up makes [`PathTable::is_current`] return `false`.
        let identities = common_paths.identities().collect();
        let lists = [
            (&common_paths.executable, PathAccess::Execute),
            (&common_paths.readable, PathAccess::Read),
            (&common_paths.devices, PathAccess::Device),
        ];
        let mut entries: Vec<PathEntry> = Vec::new();
        for (paths, access) in lists {
            for path in paths {
                entries.extend(PathEntry::look_up(path, path, access)?);
            }
        }
        for Replacement { path, shown_at } in &common_paths.replacements {
            entries.extend(PathEntry::look_up(path, shown_at, PathAccess::Read)?);
        }
        Ok(Self { common_paths, identities, entries })
    }

    /// Whether the table is of these paths, and each of them still leads to the same file.
    pub fn is_current(&self, common_paths: &CommonPaths) -> bool {
        self.common_paths == *common_paths
            && common_paths.identities().eq(self.identities.iter().copied())
    }
}

impl PathEntry {
    /// `None` where there is no such file.
    fn look_up(path: &Path, requested_path: &Path, access: PathAccess) -> io::Result<Option<Self>> {
        let (Ok(source), Ok(canonical_path)) =
            (fs::canonicalize(path), fs::canonicalize(requested_path))
        else {
            return Ok(None);
        };
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let descriptor = rustix::fs::open(&source, flags, Mode::empty())?;
        let kind = FileType::from_raw_mode(rustix::fs::fstat(&descriptor)?.st_mode);
        Ok(Some(Self {
            requested_path: requested_path.to_owned(),
            canonical_path,
            source,
            descriptor,
            is_directory: kind == FileType::Directory,
            access,
        }))
    }
}

#[cfg(test)]
mod tests;
