//! Comparison of a file's tables with those that its recorded migrations create.

use std::path::Path;

use rusqlite::Connection;

use crate::repair::{Definition, MIGRATION_TABLE, read_definitions};
use crate::{Migration, StateError, applied_checksums, checksum};

/// The tables of one part: its name in the file, and its migrations.
#[derive(Clone, Copy, Debug)]
pub struct Tables {
    /// Name of the part, as recorded in the file.
    pub component: &'static str,
    /// Migrations of its schema, in order.
    pub migrations: &'static [Migration],
}

/// Tables that a sound file lacks although its recorded migrations create them. If no part has run
/// a migration, the table of migrations itself is reported: the file is empty, or of another
/// program.
///
/// # Errors
/// [`StateError::Sqlite`].
pub fn missing_tables(path: &Path, parts: &[Tables]) -> Result<Vec<String>, StateError> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(crate::BUSY_TIMEOUT)?;
    let Some(model) = build_model(&connection, parts)? else {
        return Ok(vec![MIGRATION_TABLE.to_owned()]);
    };
    let missing = missing_definitions(&connection, &model)?.into_iter();
    let tables = missing.filter(|definition| definition.is_table);
    Ok(tables.map(|definition| definition.name).collect())
}

/// Creates the tables of [`missing_tables`], empty, with their indexes. Does nothing to a file that
/// is not Egret's.
///
/// # Errors
/// [`StateError::Sqlite`].
pub fn create_missing_tables(path: &Path, parts: &[Tables]) -> Result<(), StateError> {
    let mut connection = Connection::open(path)?;
    connection.busy_timeout(crate::BUSY_TIMEOUT)?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    let Some(model) = build_model(&connection, parts)? else {
        return Ok(());
    };
    let missing = missing_definitions(&connection, &model)?;
    let transaction = connection.transaction()?;
    let (tables, others): (Vec<_>, Vec<_>) =
        missing.into_iter().partition(|definition| definition.is_table);
    for definition in tables.iter().chain(&others) {
        transaction.execute_batch(&definition.sql)?;
    }
    transaction.commit()?;
    Ok(())
}

/// An empty database in memory with the migrations that the file records; `None` when it records
/// none. Those of another version of Egret are left out: opening the file refuses them.
fn build_model(
    connection: &Connection,
    parts: &[Tables],
) -> Result<Option<Connection>, StateError> {
    if !has_migrations(connection)? {
        return Ok(None);
    }
    let model = Connection::open_in_memory()?;
    let mut is_ours = false;
    for part in parts {
        let recorded = applied_checksums(connection, part.component)?;
        is_ours |= !recorded.is_empty();
        let is_known = recorded.len() <= part.migrations.len()
            && recorded
                .iter()
                .zip(part.migrations)
                .all(|(found, migration)| *found == checksum(migration.sql));
        if is_known {
            for migration in &part.migrations[..recorded.len()] {
                model.execute_batch(migration.sql)?;
            }
        }
    }
    Ok(is_ours.then_some(model))
}

/// Whether the table of migrations is there, in the form that Egret gives it.
fn has_migrations(connection: &Connection) -> rusqlite::Result<bool> {
    let columns: i64 = connection.query_row(
        "SELECT count(*) FROM pragma_table_info(?1)
          WHERE name IN ('component', 'position', 'checksum')",
        [MIGRATION_TABLE],
        |row| row.get(0),
    )?;
    Ok(columns == 3)
}

fn missing_definitions(
    connection: &Connection,
    model: &Connection,
) -> rusqlite::Result<Vec<Definition>> {
    let present = read_definitions(connection)?;
    let mut expected = read_definitions(model)?;
    expected.retain(|definition| !present.iter().any(|there| there.name == definition.name));
    Ok(expected)
}
