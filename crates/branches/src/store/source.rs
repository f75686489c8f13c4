//! Queries of a source: whether it can be branched, the position of its log, a consistent copy.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

use egret_base::Timestamp;
use egret_linux::directory::{Directory, Kind};
use egret_postgres::bounded;
use egret_postgres::cluster::write_owned;
use egret_postgres::databases::CONNECTABLE_DATABASES;
use egret_postgres::error::server_error;
use egret_postgres::listen::quote_identifier;
use egret_postgres::owner::RunAsUser;
use egret_postgres::{PostgresError, pidfile};
use tokio_postgres::{Client, Row};

use super::volume::Volume;
use super::volume::tree::Tree;
use crate::error::{BranchesError, io_error};
use crate::model::{RolePassword, SourceIdentity};

const LIST_DATABASES: &str = "list the databases";

/// The most roles whose passwords a branch keeps.
const ROLE_PASSWORDS_MAX: usize = 10_000;

/// Query for the defaults that a session of this role in this database starts with.
pub(crate) const SESSION_DEFAULTS: &str = "SELECT setdatabase, setrole, setconfig \
     FROM pg_catalog.pg_db_role_setting";

/// Tables of the user that are worth planning for, the most written and read first.
pub(crate) const BUSY_TABLES: &str = "SELECT pg_catalog.format('%I.%I', schemaname, relname) \
     FROM pg_catalog.pg_stat_user_tables \
     WHERE pg_catalog.has_table_privilege(relid, 'SELECT') \
     ORDER BY n_tup_ins + n_tup_upd + n_tup_del + coalesce(idx_scan, 0) + seq_scan DESC, relid \
     LIMIT 32";

/// The files of those tables, their indexes and their sequences, relative to the data directory.
pub(crate) const BUSY_FILES: &str = "WITH busy AS (
         SELECT relid FROM pg_catalog.pg_stat_user_tables
         ORDER BY n_tup_ins + n_tup_upd + n_tup_del + coalesce(idx_scan, 0) + seq_scan DESC, relid
         LIMIT 32)
     SELECT pg_catalog.pg_relation_filepath(relid) FROM busy
     UNION ALL SELECT pg_catalog.pg_relation_filepath(indexrelid)
     FROM pg_catalog.pg_index JOIN busy ON indrelid = relid
     UNION ALL SELECT pg_catalog.pg_relation_filepath(sequence.oid)
     FROM pg_catalog.pg_depend JOIN busy ON refobjid = relid
     JOIN pg_catalog.pg_class AS sequence ON sequence.oid = objid AND sequence.relkind = 'S'
     WHERE deptype IN ('a', 'i')";

/// Whether definitions run code of the user's. The event trigger that guards schema `egret` is
/// none.
pub(crate) const HAS_EVENT_TRIGGERS: &str = "SELECT EXISTS (SELECT FROM pg_catalog.pg_event_trigger \
     WHERE evtfoid IS DISTINCT FROM pg_catalog.to_regprocedure('egret.guard_schema()'))";

/// Facts about the source that decide how it is copied.
#[derive(Clone, Debug)]
pub struct SourceFacts {
    /// Name and system identifier.
    pub identity: SourceIdentity,
    /// Value of setting `shared_preload_libraries`.
    pub preload_libraries: String,
    /// Prepared transactions its log may hold; a copy must allow as many.
    pub max_prepared_transactions: String,
}

/// Asks the server about itself and refuses what cannot be copied as one directory.
///
/// # Errors
/// [`BranchesError::Source`] for tablespaces or a log outside the data directory, by name.
pub async fn examine(
    client: &Client,
    name: &str,
    data: &Path,
) -> Result<SourceFacts, BranchesError> {
    let row = client
        .query_one(include_str!("sql/source_facts.sql"), &[])
        .await
        .map_err(server_error("examine the source"))?;
    let tablespaces: Vec<String> = row.get("tablespaces");
    if !tablespaces.is_empty() {
        return Err(BranchesError::Source {
            reason: format!(
                "it has tablespaces outside its data directory ({}): move their tables to pg_default and drop them",
                tablespaces.join(", ")
            ),
        });
    }
    if data.join("pg_wal").is_symlink() {
        return Err(BranchesError::Source {
            reason: "pg_wal is a link to a directory outside the data directory: move it back"
                .to_owned(),
        });
    }
    Ok(SourceFacts {
        identity: SourceIdentity {
            name: name.to_owned(),
            system_identifier: row.get("system_identifier"),
        },
        preload_libraries: row.get("preload_libraries"),
        max_prepared_transactions: row.get("max_prepared_transactions"),
    })
}

/// Writes a checkpoint, so that a copy has little to recover.
pub async fn checkpoint(client: &Client) -> Result<(), PostgresError> {
    client.batch_execute("CHECKPOINT").await.map_err(server_error("CHECKPOINT"))
}

/// Where the write-ahead log stands now.
pub(crate) async fn wal_position(client: &Client) -> Result<String, PostgresError> {
    let doing = "read the WAL position";
    let row = client
        .query_one("SELECT pg_current_wal_insert_lsn()::text", &[])
        .await
        .map_err(server_error(doing))?;
    bounded::get_value(&row, 0, doing)
}

/// The passwords of the roles that may log in, of those that are SCRAM verifiers.
///
/// # Errors
/// The server's, or [`BranchesError::Source`] when there are more than [`ROLE_PASSWORDS_MAX`].
pub async fn role_passwords(client: &Client) -> Result<Vec<RolePassword>, BranchesError> {
    let limit = ROLE_PASSWORDS_MAX as i64 + 1;
    let rows = client
        .query(include_str!("sql/role_passwords.sql"), &[&limit])
        .await
        .map_err(server_error("read the passwords of roles"))?;
    if rows.len() > ROLE_PASSWORDS_MAX {
        return Err(BranchesError::Source {
            reason: format!(
                "more than {ROLE_PASSWORDS_MAX} of its roles have passwords: create the branch \
                 without role passwords"
            ),
        });
    }
    let password = |row: &tokio_postgres::Row| {
        let verifier = row.try_get::<_, &str>("verifier").ok()?.parse().ok()?;
        Some(RolePassword {
            // In a cluster without an encoding a name may be any bytes; the proxy takes UTF-8
            // alone.
            role: row.try_get("role").ok()?,
            verifier: Arc::new(verifier),
            valid_until: row.get::<_, Option<i64>>("valid_until").map(Timestamp::from_micros),
        })
    };
    Ok(rows.iter().filter_map(password).collect())
}

/// Every database but the empty one, and whether it can be connected to: what is to be prepared.
pub(crate) async fn all_databases(client: &Client) -> Result<Vec<(String, bool)>, PostgresError> {
    let sql = "SELECT datname::text, datallowconn FROM pg_database WHERE datname <> 'template0' ORDER BY 1";
    let rows = bounded::query(client, LIST_DATABASES, sql, &[]).await?;
    let database = |row: &Row| {
        let name = bounded::get_value(row, 0, LIST_DATABASES)?;
        Ok((name, bounded::get_value(row, 1, LIST_DATABASES)?))
    };
    rows.iter().map(database).collect()
}

/// The databases of a copy that can be connected to, templates left out.
pub(crate) async fn connectable_databases(client: &Client) -> Result<Vec<String>, PostgresError> {
    let rows = bounded::query(client, LIST_DATABASES, CONNECTABLE_DATABASES, &[]).await?;
    let name = |row: &Row| bounded::get_value(row, 0, LIST_DATABASES);
    rows.iter().map(name).collect()
}

/// Lets sessions into a database, or keeps them out.
pub(crate) async fn allow_connections(
    client: &Client,
    database: &str,
    allow: &Admission,
) -> Result<(), PostgresError> {
    let word = match allow {
        Admission::Open => "true",
        Admission::Closed => "false",
    };
    let command = format!("ALTER DATABASE {} ALLOW_CONNECTIONS {word}", quote_identifier(database));
    client.batch_execute(&command).await.map_err(server_error("open a database"))
}

/// Whether a database lets sessions in.
pub enum Admission {
    Open,
    Closed,
}

/// Copies the data directory of a running server, whatever the driver can do.
///
/// An atomic driver takes one snapshot. The others copy file by file in backup mode: the copy then
/// recovers from the log of the time it was taken in, which a replication slot keeps from being
/// recycled (PostgreSQL documentation, "Making a Base Backup Using the Low Level API").
pub(crate) async fn copy_data_directory(
    client: &Client,
    volume: &std::sync::Arc<dyn Volume>,
    data: &Path,
    to: &Path,
    owner: &RunAsUser,
) -> Result<(), BranchesError> {
    if volume.is_atomic() {
        let (volume, from, to) = (volume.clone(), data.to_owned(), to.to_owned());
        return run_blocking(move || {
            volume.clone_tree(&from, &to).map_err(io_error("snapshot", &from))
        })
        .await;
    }
    client
        .batch_execute(
            "SELECT pg_create_physical_replication_slot('egret_copy', true, true);
             SELECT pg_backup_start('egret', fast => true)",
        )
        .await
        .map_err(server_error("start the copy of the source"))?;
    let tree = match volume.driver() {
        super::volume::Driver::Reflink => Tree::reflink(),
        _ => Tree::copy(),
    };
    let (from, target) = (data.to_owned(), to.to_owned());
    let (pid_file, wal_dir) = (pidfile::pid_file_path(data), data.join("pg_wal"));
    run_blocking(move || {
        // The log is copied last, when it is complete.
        let is_skipped = |path: &Path| path == pid_file || path.parent() == Some(&wal_dir);
        tree.clone_except(&from, &target, &is_skipped).map_err(io_error("copy", &from))
    })
    .await?;
    let row = client
        .query_one("SELECT labelfile FROM pg_backup_stop(wait_for_archive => false)", &[])
        .await
        .map_err(server_error("finish the copy of the source"))?;
    let label: String = row.get(0);
    let (from, target, owner) = (data.to_owned(), to.to_owned(), owner.clone());
    run_blocking(move || {
        write_owned(&target.join("backup_label"), &label, &owner)?;
        copy_wal(&from, &target).map_err(io_error("copy the log of", &from))
    })
    .await?;
    client
        .batch_execute("SELECT pg_drop_replication_slot('egret_copy')")
        .await
        .map_err(server_error("drop the slot of the copy"))?;
    Ok(())
}

/// Copies the segments of the log. Both directories belong to the server's user.
fn copy_wal(from: &Path, to: &Path) -> std::io::Result<()> {
    let wal_name = OsStr::new("pg_wal");
    let source = Directory::open(from)?.enter(wal_name)?;
    let target = Directory::open(to)?.enter(wal_name)?;
    for name in source.names()? {
        let name = name?;
        // A segment's name is 24 hexadecimal digits; what else is there belongs to the server.
        if name.len() != 24 || source.kind(&name).ok() != Some(Kind::File) {
            continue;
        }
        match Tree::copy().clone_file(&source, &target, &name) {
            // The slot keeps what the copy needs; an older segment may be gone by now.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            result => result?,
        }
    }
    Ok(())
}

/// Runs file work on a thread that may block.
///
/// # Errors
/// What the work answers.
pub(crate) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, BranchesError> + Send + 'static,
) -> Result<T, BranchesError> {
    tokio::task::spawn_blocking(work).await.expect("file work does not panic")
}
