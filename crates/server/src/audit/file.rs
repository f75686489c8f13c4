//! The files of the audit log: appended to, rotated by size, read from the newest line back.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use egret_base::Timestamp;

use super::entry::{AuditEntry, AuditFilter};
use super::lines::LinesFromEnd;

/// The file that is written to.
const CURRENT: &str = "audit.jsonl";

/// The name of a rotated file is a number of twenty digits between these.
const ROTATED_PREFIX: &str = "audit-";
const ROTATED_SUFFIX: &str = ".jsonl";

/// Where the log is kept, and how much of it.
#[derive(Clone, Debug)]
pub(super) struct AuditOptions {
    /// The directory of its files.
    pub(super) directory: PathBuf,
    /// Size at which a file is rotated, in bytes.
    pub(super) file_bytes_max: u64,
    /// Files that are kept, the one that is written to included.
    pub(super) files_max: u32,
}

pub(super) struct AuditFiles {
    options: AuditOptions,
    /// The file that is written to, with its size in bytes.
    current: Option<(File, u64)>,
}

impl AuditFiles {
    pub(super) fn new(options: AuditOptions) -> Self {
        Self { options, current: None }
    }

    fn current_path(&self) -> PathBuf {
        self.options.directory.join(CURRENT)
    }

    pub(super) fn append(&mut self, entry: &AuditEntry) -> io::Result<()> {
        let mut line = serde_json::to_vec(entry).expect("an entry holds only text and numbers");
        line.push(b'\n');
        if let Some((_, size)) = &self.current
            && size + line.len() as u64 > self.options.file_bytes_max
        {
            self.rotate(entry.at)?;
        }
        let (file, size) = match &mut self.current {
            Some(current) => current,
            none => none.insert(self.options.open_current()?),
        };
        match file.write_all(&line) {
            Ok(()) => *size += line.len() as u64,
            Err(error) => {
                // A torn line is cut off, so that the next entry begins on one of its own.
                let _ = file.set_len(*size);
                self.current = None;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Puts the current file aside under the time of the entry that did not fit, in microseconds,
    /// and deletes the oldest beyond the number that is kept. The name sorts behind those of all
    /// rotated files, whatever the clock says: the files are read in that order, and none is
    /// overwritten.
    fn rotate(&mut self, at: Timestamp) -> io::Result<()> {
        let rotated = self.rotated_files()?;
        let newest = rotated.iter().find_map(|path| rotation_number(path));
        let at = u64::try_from(at.as_micros()).unwrap_or(0);
        let number = newest.map_or(at, |newest| at.max(newest.saturating_add(1)));
        let rotated_name = format!("{ROTATED_PREFIX}{number:020}{ROTATED_SUFFIX}");
        fs::rename(self.current_path(), self.options.directory.join(rotated_name))?;
        self.current = None;
        let rotated_max = (self.options.files_max.max(1) - 1) as usize;
        for old in self.rotated_files()?.into_iter().skip(rotated_max) {
            fs::remove_file(old)?;
        }
        Ok(())
    }

    /// The files that were put aside, newest first.
    fn rotated_files(&self) -> io::Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.options.directory)? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str());
            if name.is_some_and(|name| {
                name.starts_with(ROTATED_PREFIX) && name.ends_with(ROTATED_SUFFIX)
            }) {
                files.push(path);
            }
        }
        files.sort_unstable();
        files.reverse();
        Ok(files)
    }

    /// The newest entries that a filter takes, newest first.
    pub(super) fn read(&self, filter: &AuditFilter) -> io::Result<Vec<AuditEntry>> {
        let mut entries = Vec::new();
        let rotated = match self.rotated_files() {
            Ok(files) => files,
            // Nothing has been written yet.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(entries),
            Err(error) => return Err(error),
        };
        for path in std::iter::once(self.current_path()).chain(rotated) {
            let file = match File::open(&path) {
                Ok(file) => file,
                // It was rotated away meanwhile, or is not there yet.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            let mut lines = LinesFromEnd::new(file)?;
            while let Some(line) = lines.previous()? {
                // A line that a crash has torn is no entry.
                let Ok(entry) = serde_json::from_slice(&line) else {
                    continue;
                };
                if filter.matches(&entry) {
                    entries.push(entry);
                }
                if entries.len() >= filter.limit {
                    return Ok(entries);
                }
            }
        }
        Ok(entries)
    }
}

/// The number in the name of a rotated file.
fn rotation_number(path: &Path) -> Option<u64> {
    let name = path.file_name()?.to_str()?;
    name.strip_prefix(ROTATED_PREFIX)?.strip_suffix(ROTATED_SUFFIX)?.parse().ok()
}

impl AuditOptions {
    fn open_current(&self) -> io::Result<(File, u64)> {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700).create(&self.directory)?;
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(self.directory.join(CURRENT))?;
        let size = file.metadata()?.len();
        Ok((file, size))
    }
}
