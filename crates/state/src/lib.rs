//! Egret's own metadata: one SQLite file, `state.db`, in which each part keeps its tables.
//!
//! A part opens the file with its own ordered, checksummed migrations and gets a connection.
//! Commits are durable (`synchronous=FULL`): what is acknowledged has been flushed. A part whose
//! changes may be lost in a crash of the machine opens a relaxed connection for them. [`repair`]
//! salvages the readable part of a damaged file.

pub mod repair;
mod schema;

use std::fs;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use egret_base::sync::lock;
use egret_base::{CodedError, Kind, Timestamp};
use sha2::{Digest, Sha256};

pub use rusqlite;
use rusqlite::ErrorCode;
pub use schema::{Tables, create_missing_tables, missing_tables};

/// Suffix of the write-ahead log's file name.
const WAL_SUFFIX: &str = "-wal";

/// Suffixes of the file and of those that SQLite keeps beside it.
const FILE_SUFFIXES: [&str; 4] = ["", WAL_SUFFIX, "-shm", "-journal"];

/// How long a connection waits for another one's commit.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// One step of a part's schema. Its text never changes once released; a later step follows it.
#[derive(Clone, Copy, Debug)]
pub struct Migration {
    /// A short name, e.g. `tokens`.
    pub name: &'static str,
    /// The SQL to run.
    pub sql: &'static str,
}

/// Errors of opening and using `state.db`.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// SQLite refused or failed.
    #[error("state.db: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// The file could not be created or moved.
    #[error("state.db at {path}: {source}")]
    File {
        /// Path of the file or directory.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// A migration that has run differs from the one this binary carries.
    #[error(
        "state.db: migration {component}/{name} has changed since it ran: use the Egret version that wrote it"
    )]
    Changed {
        /// Name of the part whose migration changed.
        component: &'static str,
        /// Name of the migration that changed.
        name: String,
    },
    /// A newer Egret has written the file.
    #[error(
        "state.db: {component} was migrated by a newer Egret (step {found}, this one knows {known}): use that version"
    )]
    Newer {
        /// Name of the part whose tables are newer.
        component: &'static str,
        /// Steps found in the file.
        found: usize,
        /// Steps this binary knows.
        known: usize,
    },
}

impl CodedError for StateError {
    fn code(&self) -> &'static str {
        match self {
            StateError::Sqlite(_) => "state_unavailable",
            StateError::File { .. } => "state_file",
            StateError::Changed { .. } => "state_migration_changed",
            StateError::Newer { .. } => "state_newer",
        }
    }

    fn kind(&self) -> Kind {
        Kind::Internal
    }
}

/// A connection to `state.db` for one part; cheap calls, one at a time.
#[derive(Debug)]
pub struct Database {
    connection: Mutex<rusqlite::Connection>,
}

impl Database {
    /// Opens `state.db`, creating it with mode 0600, and brings `component`'s tables up to date.
    ///
    /// # Errors
    /// [`StateError`] when the file cannot be used or its schema is not this binary's.
    pub fn open(
        path: &Path,
        component: &'static str,
        migrations: &[Migration],
    ) -> Result<Self, StateError> {
        create_private(path)?;
        let mut connection = rusqlite::Connection::open(path)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "foreign_keys", true)?;
        migrate(&mut connection, component, migrations)?;
        Ok(Self { connection: Mutex::new(connection) })
    }

    /// A further connection to tables that [`Database::open`] has brought up to date, whose commits
    /// survive the end of the process at any moment but are not flushed: a crash of the machine may
    /// undo the last of them, in order. The caller sees to it that [`Database::checkpoint`] is
    /// called now and then, or the log grows.
    ///
    /// # Errors
    /// [`StateError`] when the file cannot be opened.
    pub fn open_relaxed(path: &Path) -> Result<Self, StateError> {
        let connection = rusqlite::Connection::open(path)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        // A checkpoint flushes; it is made when there is time, by `checkpoint`.
        connection.pragma_update(None, "wal_autocheckpoint", 0)?;
        connection.pragma_update(None, "foreign_keys", true)?;
        Ok(Self { connection: Mutex::new(connection) })
    }

    /// Moves what is in the write-ahead log to the file, as far as no reader is in the way, and
    /// flushes both.
    ///
    /// # Errors
    /// [`StateError::Sqlite`].
    pub fn checkpoint(&self) -> Result<(), StateError> {
        self.lock().query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))?;
        Ok(())
    }

    /// The connection, held for the duration of the guard.
    pub fn lock(&self) -> MutexGuard<'_, rusqlite::Connection> {
        // A panic while the lock was held rolled its transaction back; the connection is sound.
        lock(&self.connection)
    }
}

/// Moves everything that is in the write-ahead log to the file and empties the log, so that a copy
/// of the file alone is whole until the next change. Connections of other parts may be open, but
/// not at work.
///
/// # Errors
/// [`StateError::Sqlite`], also where a connection is at work for longer than is waited for it.
pub fn checkpoint_and_truncate(path: &Path) -> Result<(), StateError> {
    let connection = rusqlite::Connection::open_with_flags(
        path,
        rusqlite::OpenFlags::SQLITE_OPEN_READ_WRITE | rusqlite::OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    let is_busy: bool =
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))?;
    if is_busy {
        let busy = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY);
        let reason = "another connection is using the file".to_owned();
        return Err(rusqlite::Error::SqliteFailure(busy, Some(reason)).into());
    }
    Ok(())
}

/// Moves aside a `state.db` that is unreadable or no regular file, so that its parts can be rebuilt
/// from the data on disk.
///
/// Returns where it was moved to, or `None` when the file is missing or sound. Call it before
/// any [`Database::open`] of this process.
///
/// # Errors
/// [`StateError::File`] when it cannot be moved, [`StateError::Sqlite`] when it cannot be examined.
pub fn set_aside_if_corrupt(path: &Path, now: Timestamp) -> Result<Option<PathBuf>, StateError> {
    if !path.exists() || (path.is_file() && is_sound(path)?) {
        return Ok(None);
    }
    set_aside(path, now).map(Some)
}

/// Moves aside anything that is no regular file in the place of one of SQLite's own files beside
/// `state.db`, which SQLite could not open then. Returns the new paths; the contents of those files
/// are lost.
///
/// # Errors
/// [`StateError::File`] when it cannot be moved.
pub fn set_aside_non_file_logs(path: &Path, now: Timestamp) -> Result<Vec<PathBuf>, StateError> {
    let mut moved = Vec::new();
    for log in non_file_logs(path) {
        let aside_path = with_suffix(&log, &format!(".corrupt-{}", now.as_micros()));
        fs::rename(&log, &aside_path)
            .map_err(|source| StateError::File { path: log.clone(), source })?;
        moved.push(aside_path);
    }
    Ok(moved)
}

/// Paths beside `state.db` at which SQLite keeps files of its own, but something else is.
fn non_file_logs(path: &Path) -> Vec<PathBuf> {
    let logs = FILE_SUFFIXES[1..].iter().map(|suffix| with_suffix(path, suffix));
    logs.filter(|log| log.exists() && !log.is_file()).collect()
}

/// Moves aside a `state.db` that lacks tables which an earlier start has created (see
/// [`missing_tables`]), and returns its new path.
///
/// # Errors
/// [`StateError::File`].
pub fn set_aside(path: &Path, now: Timestamp) -> Result<PathBuf, StateError> {
    let aside = path.with_extension(format!("db.corrupt-{}", now.as_micros()));
    repair::move_aside(path, &aside)?;
    Ok(aside)
}

/// Only what SQLite reports as damage counts; a full disk or a busy file does not.
fn is_sound(path: &Path) -> Result<bool, StateError> {
    let check = || -> rusqlite::Result<String> {
        let connection = rusqlite::Connection::open(path)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
    };
    match check() {
        Ok(answer) => Ok(answer == "ok"),
        Err(error) => match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => Ok(false),
            _ => Err(error.into()),
        },
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn create_private(path: &Path) -> Result<(), StateError> {
    let wrap = |source| StateError::File { path: path.to_owned(), source };
    fs::OpenOptions::new().create(true).append(true).mode(0o600).open(path).map_err(wrap)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(wrap)
}

fn migrate(
    connection: &mut rusqlite::Connection,
    component: &'static str,
    migrations: &[Migration],
) -> Result<(), StateError> {
    let transaction =
        connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    transaction.execute_batch(
        "CREATE TABLE IF NOT EXISTS migration (
             component TEXT NOT NULL,
             position INTEGER NOT NULL,
             name TEXT NOT NULL,
             checksum TEXT NOT NULL,
             PRIMARY KEY (component, position)) STRICT",
    )?;
    let recorded = applied_checksums(&transaction, component)?;
    if recorded.len() > migrations.len() {
        return Err(StateError::Newer {
            component,
            found: recorded.len(),
            known: migrations.len(),
        });
    }
    for (position, migration) in migrations.iter().enumerate() {
        let checksum = checksum(migration.sql);
        match recorded.get(position) {
            Some(found) if *found == checksum => {}
            Some(_) => {
                return Err(StateError::Changed { component, name: migration.name.to_owned() });
            }
            None => {
                transaction.execute_batch(migration.sql)?;
                transaction.execute(
                    "INSERT INTO migration (component, position, name, checksum) VALUES (?1, ?2, ?3, ?4)",
                    rusqlite::params![component, position as i64, migration.name, checksum],
                )?;
            }
        }
    }
    transaction.commit()?;
    Ok(())
}

fn applied_checksums(
    connection: &rusqlite::Connection,
    component: &str,
) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection
        .prepare("SELECT checksum FROM migration WHERE component = ?1 ORDER BY position")?;
    statement.query_map([component], |row| row.get(0))?.collect()
}

fn checksum(sql: &str) -> String {
    Sha256::digest(sql.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
