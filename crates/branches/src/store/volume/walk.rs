//! Walks through a data directory whose user may change it, or close parts of it, meanwhile.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use egret_linux::directory::{DEPTH_MAX, DepthExceeded, Directory, Kind, kind_of};
use rustix::fs::{Mode, Stat};
use rustix::io::Errno;

use super::remove::split_path;

/// Something in a data directory that is not counted.
#[derive(Debug, thiserror::Error)]
pub enum Omission {
    /// Directories nest too deep.
    #[error(transparent)]
    Deep(#[from] DepthExceeded),
    /// A directory is closed to Egret, and stays so.
    #[error("Egret cannot read directory `{}`: {source}", path.display())]
    Closed {
        /// Its path in the data directory.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
}

/// A file or directory below another one.
pub(super) struct WalkEntry<'a> {
    directory: &'a Directory,
    /// The names of the directories that lead there.
    pub(super) parents: &'a [OsString],
    pub(super) name: &'a OsStr,
    pub(super) stat: &'a Stat,
}

impl WalkEntry<'_> {
    /// Opens a file; `None` when its user keeps it from being read, by its mode or a lease
    /// (fcntl(2)).
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn read(&self) -> io::Result<Option<File>> {
        use io::ErrorKind::{PermissionDenied, WouldBlock};
        match self.directory.open_file(self.name) {
            Ok((file, _)) => Ok(Some(file)),
            Err(error) if matches!(error.kind(), PermissionDenied | WouldBlock) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// What is called for each entry.
type Visit<'a> = dyn FnMut(WalkEntry<'_>) -> io::Result<()> + 'a;

/// Calls `visit` for everything down to [`DEPTH_MAX`] below a directory that may be changing. Its
/// parents are trusted; it belongs to the server's user: no link is followed, and directories of
/// this process's user that are closed to it are opened. Returns the first thing that was not
/// entered.
///
/// # Errors
/// The file system's, and those of `visit`.
pub(super) fn walk(path: &Path, visit: &mut Visit<'_>) -> io::Result<Option<Omission>> {
    let (parent, name) = split_path(path)?;
    let parent = Directory::open(parent)?;
    let mut walk = Walk { visit, parents: Vec::new(), uncounted: None };
    let walked = parent.stat(name).and_then(|stat| walk.visit_below(&parent, name, &stat));
    match walked {
        Err(error) if is_closed(&error) => walk.record_closed(OsStr::new("."), error),
        result => result?,
    }
    Ok(walk.uncounted)
}

struct Walk<'a, 'b> {
    visit: &'a mut Visit<'b>,
    /// The names of the directories that lead to the one that is open.
    parents: Vec<OsString>,
    uncounted: Option<Omission>,
}

impl Walk<'_, '_> {
    /// Visits what is in the directory `name`, which `place` leads to.
    fn visit_below(&mut self, parent: &Directory, name: &OsStr, stat: &Stat) -> io::Result<()> {
        // Without the right to enter it, a directory that can be opened still shows nothing.
        if !Mode::from_raw_mode(stat.st_mode).contains(Mode::RWXU) {
            parent.grant_owner_access(name)?;
        }
        let directory = parent.enter(name)?;
        for name in directory.names()? {
            let name = name?;
            match self.visit_entry(&directory, &name) {
                Err(error) if is_closed(&error) => self.record_closed(&name, error),
                // Files come and go under a running server.
                Err(error) if is_gone(&error) => {}
                result => result?,
            }
        }
        Ok(())
    }

    fn visit_entry(&mut self, directory: &Directory, name: &OsStr) -> io::Result<()> {
        let stat = directory.stat(name)?;
        (self.visit)(WalkEntry { directory, parents: &self.parents, name, stat: &stat })?;
        if kind_of(&stat) != Kind::Directory {
            return Ok(());
        }
        if self.parents.len() >= DEPTH_MAX {
            let path = self.path_of(name);
            self.record_omission(DepthExceeded { path }.into());
            return Ok(());
        }
        self.parents.push(name.to_owned());
        let visited = self.visit_below(directory, name, &stat);
        self.parents.pop();
        visited
    }

    fn record_closed(&mut self, name: &OsStr, source: io::Error) {
        let path = self.path_of(name);
        self.record_omission(Omission::Closed { path, source });
    }

    fn record_omission(&mut self, omission: Omission) {
        if self.uncounted.is_none() {
            self.uncounted = Some(omission);
        }
    }

    fn path_of(&self, name: &OsStr) -> PathBuf {
        let parents: PathBuf = self.parents.iter().collect();
        parents.join(name)
    }
}

/// Whether the rights of a directory, or its file system, keep this process out.
fn is_closed(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
        || error.raw_os_error() == Some(Errno::ROFS.raw_os_error())
}

/// Whether an entry is gone, or no longer what it was when it was looked at.
pub(super) fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidInput, NotADirectory, NotFound};
    let errors = [Errno::LOOP, Errno::NXIO].map(|errno| Some(errno.raw_os_error()));
    errors.contains(&error.raw_os_error())
        || matches!(error.kind(), NotFound | NotADirectory | InvalidInput)
}
