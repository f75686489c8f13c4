//! Repair of a damaged `state.db`: what of it can be read is copied, row by row, into a new file.
//! Done while nothing else uses the file; the original is kept.
//!
//! SQLite's pages have no checksums: what is found is damage of the structure (`PRAGMA
//! integrity_check`). Rows are read from the start of their table up to the first damaged page, and
//! from its end back to the last one. Nothing is changed by an examination: it works on a copy.

mod files;

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rusqlite::types::Value;
use rusqlite::{Connection, Row, Statement};

pub(crate) use self::files::move_aside;
use self::files::{keep_copy, no_hook, remove_file, remove_logs, restore, sync_directory};
use crate::{
    FILE_SUFFIXES, StateError, Tables, WAL_SUFFIX, create_private, missing_tables, non_file_logs,
    with_suffix,
};

/// The table of [`crate::Database::open`], without which no other one can be used.
pub const MIGRATION_TABLE: &str = "migration";

/// Problem of a path at which there is a directory or another thing that is no file.
const NO_FILE: &str = "it is not a file";

/// Lines of `PRAGMA integrity_check` that are reported, at most.
const PROBLEMS_MAX: usize = 3;

/// Damage of a file, and its readable contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The problem as SQLite reports it.
    pub problem: String,
    /// Tables of a repaired file; empty if nothing can be salvaged.
    pub tables: Vec<SalvagedTable>,
}

/// The readable part of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SalvagedTable {
    /// Name of the table.
    pub name: String,
    /// Number of readable rows.
    pub rows: u64,
    /// Whether these are all rows.
    pub is_whole: bool,
}

/// Examines `state.db` for damage. Returns `None` if there is none, or no such file.
pub fn examine(path: &Path) -> Result<Option<Damage>, StateError> {
    if !path.exists() {
        return Ok(None);
    }
    if !path.is_file() {
        return Ok(Some(non_file_damage()));
    }
    let scratch = Scratch::create(path)?;
    let copy = scratch.copy_into(path, "copy.db")?;
    let Some(problem) = check_integrity(&copy)? else {
        return Ok(None);
    };
    let tables = salvage(&copy, &scratch.file("new.db"))?.unwrap_or_default();
    let logs = non_file_logs(path);
    let logs = logs.iter().map(|log| {
        let name = log.file_name().unwrap_or_default().to_string_lossy();
        format!("{name} is not a file: its former content is lost")
    });
    let problems: Vec<String> = std::iter::once(problem).chain(logs).collect();
    Ok(Some(Damage { problem: problems.join("; "), tables }))
}

fn non_file_damage() -> Damage {
    Damage { problem: NO_FILE.to_owned(), tables: Vec::new() }
}

/// The tables that a sound `state.db` lacks, as [`missing_tables`]; none where there is no such
/// file.
pub fn examine_tables(path: &Path, parts: &[Tables]) -> Result<Vec<String>, StateError> {
    if !path.is_file() {
        return Ok(Vec::new());
    }
    let scratch = Scratch::create(path)?;
    let copy = scratch.copy_into(path, "copy.db")?;
    missing_tables(&copy, parts)
}

/// Replaces a damaged file by one with its readable contents. The original is kept beside it, under
/// a name with `.damaged-` and `stamp` in it. If nothing can be salvaged, no file is left: the next
/// start creates one.
///
/// # Errors
/// [`StateError`]; the original is at its path, or under that name.
pub fn repair(path: &Path, stamp: &str) -> Result<(), StateError> {
    restore(path, path, stamp, &no_hook)
}

/// The files that starts of Egret have set aside as unreadable, oldest first.
///
/// # Errors
/// [`StateError::File`].
pub fn files_set_aside(path: &Path) -> Result<Vec<PathBuf>, StateError> {
    list_set_aside(path, &[""])
}

/// Things other than files that starts of Egret have set aside from the place of a log, oldest
/// first.
///
/// # Errors
/// [`StateError::File`].
pub fn logs_set_aside(path: &Path) -> Result<Vec<PathBuf>, StateError> {
    list_set_aside(path, &FILE_SUFFIXES[1..])
}

fn list_set_aside(path: &Path, suffixes: &[&str]) -> Result<Vec<PathBuf>, StateError> {
    let directory = path.parent().unwrap_or(Path::new("."));
    let prefixes: Vec<OsString> = suffixes
        .iter()
        .map(|suffix| {
            let prefix = with_suffix(path, &format!("{suffix}.corrupt-"));
            prefix.file_name().unwrap_or_default().to_owned()
        })
        .collect();
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory).map_err(file_error(directory))? {
        let entry = entry.map_err(file_error(directory))?;
        let name = entry.file_name();
        let is_numbered = |prefix: &OsString| {
            let number = name.as_encoded_bytes().strip_prefix(prefix.as_encoded_bytes());
            number.is_some_and(|number| number.iter().all(u8::is_ascii_digit))
        };
        if prefixes.iter().any(is_numbered) {
            paths.push(entry.path());
        }
    }
    paths.sort_unstable();
    Ok(paths)
}

/// The readable contents of a file that was set aside, and how many of its rows of `table` the
/// current file lacks.
pub fn examine_set_aside(
    aside: &Path,
    path: &Path,
    table: &str,
) -> Result<(Damage, u64), StateError> {
    if !aside.is_file() {
        return Ok((non_file_damage(), 0));
    }
    let scratch = Scratch::create(path)?;
    let copy = scratch.copy_into(aside, "copy.db")?;
    let salvaged = scratch.file("new.db");
    let problem = check_integrity(&copy)?;
    let tables = salvage(&copy, &salvaged)?.unwrap_or_default();
    let default_problem = if tables.is_empty() {
        "it is empty, or of another program"
    } else {
        "it can be read, but tables may be missing in it"
    };
    let damage = Damage { problem: problem.unwrap_or_else(|| default_problem.to_owned()), tables };
    if damage.tables.is_empty() || !path.exists() {
        return Ok((damage, 0));
    }
    let present = scratch.copy_into(path, "present.db")?;
    let missing = add_rows(&salvaged, &present, table)?;
    Ok((damage, missing))
}

/// Adds the rows of `table` that a file set aside has and the current file lacks. Without a current
/// file, all readable contents become it. The file that was set aside is kept under a name with
/// `.damaged-` and `stamp` in it.
pub fn restore_rows(aside: &Path, path: &Path, table: &str, stamp: &str) -> Result<(), StateError> {
    if !path.exists() || !aside.is_file() {
        return restore(aside, path, stamp, &no_hook);
    }
    let scratch = Scratch::create(path)?;
    let copy = scratch.copy_into(aside, "copy.db")?;
    let salvaged = scratch.file("new.db");
    if salvage(&copy, &salvaged)?.is_some() {
        add_rows(&salvaged, path, table)?;
    }
    keep_copy(aside, path, stamp)?;
    remove_file(aside)?;
    remove_logs(aside, &no_hook)?;
    sync_directory(path)
}

/// Result of `PRAGMA integrity_check`.
fn check_integrity(path: &Path) -> Result<Option<String>, StateError> {
    let check = || -> rusqlite::Result<Vec<String>> {
        let connection = Connection::open(path)?;
        let mut statement = connection.prepare("PRAGMA integrity_check(3)")?;
        statement.query_map([], |row| row.get(0))?.collect()
    };
    match check() {
        Ok(lines) if lines == ["ok"] => Ok(None),
        Ok(lines) => Ok(Some(lines[..lines.len().min(PROBLEMS_MAX)].join("; "))),
        Err(error) if is_damage(&error) => Ok(Some(error.to_string())),
        Err(error) => Err(error.into()),
    }
}

/// Whether SQLite reports damage; a full disk is none.
fn is_damage(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
    matches!(error.sqlite_error_code(), Some(DatabaseCorrupt | NotADatabase))
}

/// Copies the readable contents of a file into a new one. `None` if the new one is not usable: the
/// definitions of the tables, or the recorded migrations, cannot be read.
fn salvage(from: &Path, to: &Path) -> Result<Option<Vec<SalvagedTable>>, StateError> {
    let source = Connection::open(from)?;
    let definitions = match read_definitions(&source) {
        Ok(definitions) => definitions,
        Err(error) if is_damage(&error) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    create_private(to)?;
    let target = Connection::open(to)?;
    target.execute_batch("BEGIN")?;
    let mut tables = Vec::new();
    for Definition { name, sql, .. } in definitions.iter().filter(|definition| definition.is_table)
    {
        target.execute_batch(sql)?;
        let copied = copy_rows(&source, &target, name)?;
        tables.push(SalvagedTable { name: name.clone(), ..copied });
    }
    for Definition { sql, .. } in definitions.iter().filter(|definition| !definition.is_table) {
        // An index that refuses rows would make the file unusable.
        if target.execute_batch(sql).is_err() {
            return Ok(None);
        }
    }
    target.execute_batch("COMMIT")?;
    let migrations = tables.iter().find(|table| table.name == MIGRATION_TABLE);
    let is_usable = migrations.is_some_and(|table| table.is_whole && table.rows > 0);
    Ok(is_usable.then_some(tables))
}

/// Definition of a table, or of an index or other object on one.
pub(crate) struct Definition {
    pub(crate) name: String,
    pub(crate) sql: String,
    pub(crate) is_table: bool,
}

pub(crate) fn read_definitions(connection: &Connection) -> rusqlite::Result<Vec<Definition>> {
    let mut statement = connection.prepare(
        "SELECT name, sql, type = 'table' FROM sqlite_master
          WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY rowid",
    )?;
    let rows = statement.query_map([], |row| {
        Ok(Definition { name: row.get(0)?, sql: row.get(1)?, is_table: row.get(2)? })
    })?;
    rows.collect()
}

/// Copies the rows of a table from both ends up to the damage.
fn copy_rows(
    source: &Connection,
    target: &Connection,
    table: &str,
) -> Result<SalvagedTable, StateError> {
    let quoted = quote(table);
    let columns = table_columns(target, table)?;
    let placeholders = vec!["?"; columns.len()].join(", ");
    let mut insert =
        target.prepare(&format!("INSERT OR IGNORE INTO {quoted} VALUES ({placeholders})"))?;
    let has_rowid = source.prepare(&format!("SELECT rowid FROM {quoted}"));
    let order = match &has_rowid {
        Ok(_) => vec!["rowid".to_owned()],
        Err(_) => {
            let keys = columns.iter().filter(|column| column.is_key);
            keys.map(|column| quote(&column.name)).collect()
        }
    };
    let ordered_query = |direction: &str| {
        let keys: Vec<String> = order.iter().map(|key| format!("{key} {direction}")).collect();
        // Read rows from the table itself: an index may be damaged.
        let not_indexed = if has_rowid.is_ok() { " NOT INDEXED" } else { "" };
        format!("SELECT * FROM {quoted}{not_indexed} ORDER BY {}", keys.join(", "))
    };
    let mut rows = 0;
    let is_whole = copy_until_damage(source, &ordered_query("ASC"), &mut insert, &mut rows)?;
    if !is_whole {
        // Rows that were copied already are ignored by their primary key.
        copy_until_damage(source, &ordered_query("DESC"), &mut insert, &mut rows)?;
    }
    Ok(SalvagedTable { name: String::new(), rows, is_whole })
}

/// Copies rows until the end, or until one cannot be read; returns whether the end was reached.
fn copy_until_damage(
    source: &Connection,
    query: &str,
    insert: &mut Statement<'_>,
    copied: &mut u64,
) -> Result<bool, StateError> {
    let mut statement = source.prepare(query)?;
    let columns = statement.column_count();
    let mut rows = statement.query([])?;
    loop {
        let row = match rows.next() {
            Ok(Some(row)) => row,
            Ok(None) => return Ok(true),
            Err(error) if is_damage(&error) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let Ok(values) = values_of(row, columns) else {
            return Ok(false);
        };
        // A row that its table does not allow is damaged as well.
        match insert.execute(rusqlite::params_from_iter(values)) {
            Ok(inserted) => *copied += inserted as u64,
            Err(error) if is_constraint(&error) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
    }
}

fn is_constraint(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(rusqlite::ErrorCode::ConstraintViolation)
}

fn values_of(row: &Row<'_>, columns: usize) -> rusqlite::Result<Vec<Value>> {
    (0..columns).map(|column| row.get(column)).collect()
}

struct Column {
    name: String,
    is_key: bool,
}

fn table_columns(connection: &Connection, table: &str) -> rusqlite::Result<Vec<Column>> {
    let mut statement =
        connection.prepare("SELECT name, pk > 0 FROM pragma_table_info(?1) ORDER BY cid")?;
    let rows = statement
        .query_map([table], |row| Ok(Column { name: row.get(0)?, is_key: row.get(1)? }))?;
    rows.collect()
}

/// Adds the rows of a table that `to` lacks; returns how many. If the columns of both files differ,
/// the common ones are copied; no rows if the key is not among them.
fn add_rows(from: &Path, to: &Path, table: &str) -> Result<u64, StateError> {
    let connection = Connection::open(to)?;
    connection.busy_timeout(crate::BUSY_TIMEOUT)?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    let present = table_columns(&connection, table)?;
    let salvaged = table_columns(&Connection::open(from)?, table)?;
    let (shared, missing): (Vec<Column>, Vec<Column>) = present
        .into_iter()
        .partition(|column| salvaged.iter().any(|other| other.name == column.name));
    if shared.is_empty() || missing.iter().any(|column| column.is_key) {
        return Ok(0);
    }
    connection.execute("ATTACH ?1 AS salvaged", [from.as_os_str().to_string_lossy()])?;
    let names: Vec<String> = shared.iter().map(|column| quote(&column.name)).collect();
    let (quoted, columns) = (quote(table), names.join(", "));
    let added = connection.execute(
        &format!(
            "INSERT OR IGNORE INTO main.{quoted} ({columns}) SELECT {columns} FROM salvaged.{quoted}"
        ),
        [],
    )?;
    Ok(added as u64)
}

fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A directory for copies, beside the file so that a rename reaches it; removed when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn create(path: &Path) -> Result<Self, StateError> {
        let directory = with_suffix(path, ".scratch");
        // Left by an earlier repair that was interrupted.
        match fs::remove_dir_all(&directory) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(file_error(&directory)(error)),
        }
        let created = fs::DirBuilder::new().mode(0o700).create(&directory);
        created.map_err(file_error(&directory))?;
        Ok(Self(directory))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Copies a file with its logs.
    fn copy_into(&self, path: &Path, name: &str) -> Result<PathBuf, StateError> {
        let copy = self.file(name);
        for suffix in ["", WAL_SUFFIX, "-journal"] {
            let from = with_suffix(path, suffix);
            // Not a file: the next start moves it aside.
            if from.is_file() {
                fs::copy(&from, with_suffix(&copy, suffix)).map_err(file_error(&from))?;
            }
        }
        Ok(copy)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Anything left is removed by the next repair.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn file_error(path: &Path) -> impl Fn(io::Error) -> StateError {
    let path = path.to_owned();
    move |source| StateError::File { path: path.clone(), source }
}

#[cfg(test)]
mod tests;
