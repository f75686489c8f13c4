//! File operations of a repair, in steps: a kill before any of them leaves the original state or
//! the complete result.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use rusqlite::config::DbConfig;

use super::{Scratch, file_error, salvage};
use crate::{FILE_SUFFIXES, StateError, WAL_SUFFIX, with_suffix};

/// Puts the readable contents of `damaged` at `path`; `damaged` is kept.
pub(super) fn restore(
    damaged: &Path,
    path: &Path,
    stamp: &str,
    before_step: StepHook<'_>,
) -> Result<(), StateError> {
    if !damaged.is_file() {
        let kept = with_suffix(path, &format!(".damaged-{stamp}"));
        fs::rename(damaged, &kept).map_err(file_error(&kept))?;
        return sync_directory(path);
    }
    let scratch = Scratch::create(path)?;
    let copy = scratch.copy_into(damaged, "copy.db")?;
    let salvaged = scratch.file("new.db");
    let is_usable = salvage(&copy, &salvaged)?.is_some();
    keep_copy(damaged, path, stamp)?;
    if is_usable && damaged == path {
        return replace_database(&salvaged, path, before_step);
    }
    if is_usable {
        // Log of a file that no longer exists: SQLite would apply it to the new one.
        remove_logs(path, before_step)?;
        sync_file(&salvaged)?;
        before_step("rename")?;
        fs::rename(&salvaged, path).map_err(file_error(path))?;
        sync_directory(path)?;
    }
    // Without its file, SQLite ignores a log.
    before_step("remove")?;
    remove_file(damaged)?;
    remove_logs(damaged, before_step)?;
    sync_directory(path)
}

/// Called with the name of the next step, which is not taken if it fails.
pub(super) type StepHook<'b> = &'b dyn Fn(&str) -> Result<(), StateError>;

pub(super) fn no_hook(_step: &str) -> Result<(), StateError> {
    Ok(())
}

/// Puts `complete` in the place of `path`. Stopped before any step, what SQLite finds there is
/// either what it was, with its log, or complete.
///
/// SQLite applies the log that it finds beside a file, whichever file that is: neither can go
/// before the other. The file is therefore replaced by a log that has all pages of the complete
/// one, which one rename puts in the place of the former log. What the file itself holds is of no
/// effect from then on.
fn replace_database(
    complete: &Path,
    path: &Path,
    before_step: StepHook<'_>,
) -> Result<(), StateError> {
    let log = create_full_wal(complete)?;
    for file in [complete, &log] {
        sync_file(file)?;
    }
    before_step("rename the log")?;
    fs::rename(&log, with_suffix(path, WAL_SUFFIX)).map_err(file_error(path))?;
    sync_directory(path)?;
    before_step("rename")?;
    fs::rename(complete, path).map_err(file_error(path))?;
    sync_directory(path)?;
    remove_logs(path, before_step)?;
    sync_directory(path)
}

/// Makes a write-ahead log with all pages of a file, which is complete without it, too.
fn create_full_wal(path: &Path) -> Result<PathBuf, StateError> {
    let connection = Connection::open(path)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.execute_batch("VACUUM")?;
    connection.close().map_err(|(_, error)| error)?;
    Ok(with_suffix(path, WAL_SUFFIX))
}

/// Removes what SQLite keeps beside a file: the log last, as it has all that the others could take
/// from the file.
pub(super) fn remove_logs(path: &Path, before_step: StepHook<'_>) -> Result<(), StateError> {
    for suffix in FILE_SUFFIXES[1..].iter().rev() {
        before_step("remove a log")?;
        remove_file(&with_suffix(path, suffix))?;
    }
    Ok(())
}

/// Copies a damaged file, and what SQLite keeps beside it. It is no second name of the same file:
/// what a stopped repair leaves is complete, and SQLite writes to it. What is no file in the place
/// of a log is moved.
pub(super) fn keep_copy(damaged: &Path, path: &Path, stamp: &str) -> Result<(), StateError> {
    let kept = with_suffix(path, &format!(".damaged-{stamp}"));
    for suffix in FILE_SUFFIXES {
        let (from, to) = (with_suffix(damaged, suffix), with_suffix(&kept, suffix));
        if !from.exists() {
            continue;
        }
        if to.exists() {
            return Err(file_error(&to)(io::ErrorKind::AlreadyExists.into()));
        }
        if from.is_file() {
            fs::copy(&from, &to).map_err(file_error(&to))?;
            sync_file(&to)?;
        } else {
            // A directory in the place of a log, which SQLite could not open.
            fs::rename(&from, &to).map_err(file_error(&to))?;
        }
    }
    sync_directory(path)
}

/// Moves a file, and what SQLite keeps beside it, to the name `aside`. Stopped at any moment, the
/// file and its log are together under one of the names at least.
pub(crate) fn move_aside(path: &Path, aside: &Path) -> Result<(), StateError> {
    if !path.is_file() {
        fs::rename(path, aside).map_err(file_error(aside))?;
    }
    // The file last: without its log it would be an older state.
    for suffix in FILE_SUFFIXES.iter().rev() {
        let (from, to) = (with_suffix(path, suffix), with_suffix(aside, suffix));
        if from.exists() && fs::hard_link(&from, &to).is_err() {
            // A file system without hard links.
            fs::copy(&from, &to).map_err(file_error(&to))?;
            sync_file(&to)?;
        }
    }
    sync_directory(path)?;
    remove_file(path)?;
    remove_logs(path, &no_hook)?;
    sync_directory(path)
}

fn sync_file(path: &Path) -> Result<(), StateError> {
    let synced = File::open(path).and_then(|file| file.sync_all());
    synced.map_err(file_error(path))
}

pub(super) fn remove_file(path: &Path) -> Result<(), StateError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(file_error(path)(error)),
        _ => Ok(()),
    }
}

pub(super) fn sync_directory(path: &Path) -> Result<(), StateError> {
    let directory = path.parent().unwrap_or(Path::new("."));
    let synced = File::open(directory).and_then(|directory| directory.sync_all());
    synced.map_err(file_error(directory))
}
