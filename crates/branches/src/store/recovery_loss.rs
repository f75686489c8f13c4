//! What a copy loses because PostgreSQL recovers it: the content of unlogged relations, and
//! cumulative statistics.
//!
//! A copy of a server that was shut down cleanly is not recovered and loses neither.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{self, Read};
use std::path::Path;

use egret_linux::directory::{Directory, Kind, kind_of};
use egret_postgres::PostgresError;
use egret_postgres::bounded;
use egret_postgres::error::server_error;
use tokio_postgres::{Client, Row};

use crate::model::{LOSS_NAMES_MAX, Loss, LossKind};

/// The state of a cluster that was shut down cleanly (`DB_SHUTDOWNED` in PostgreSQL's
/// `pg_control.h`).
const SHUT_DOWN: u32 = 1;
/// Where `pg_control` has the state: behind the system identifier and two versions.
const STATE_OFFSET: usize = 16;

/// In place of a name that is not UTF-8.
const UNREADABLE_NAME: &str = "(not UTF-8)";

/// The unlogged relations that have content before a copy recovers: the numbers of their files by
/// the oid of their database.
pub(crate) type UnloggedFiles = BTreeMap<u32, Vec<u32>>;

/// Looks through a copy that has not been started yet; `None` when it needs no recovery. No link in
/// it is followed.
pub(crate) fn find_unlogged_files(data: &Path) -> io::Result<Option<UnloggedFiles>> {
    let top = Directory::open(data)?;
    if is_shut_down(&top)? {
        return Ok(None);
    }
    let base = top.enter(OsStr::new("base"))?;
    let mut unlogged_files = UnloggedFiles::new();
    for name in base.names()? {
        let name = name?;
        let Some(database) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let files = unlogged_files_in(&base.enter(&name)?)?;
        if !files.is_empty() {
            unlogged_files.insert(database, files);
        }
    }
    Ok(Some(unlogged_files))
}

fn is_shut_down(top: &Directory) -> io::Result<bool> {
    let (file, _) = top.enter(OsStr::new("global"))?.open_file(OsStr::new("pg_control"))?;
    let mut head = Vec::new();
    file.take(STATE_OFFSET as u64 + 4).read_to_end(&mut head)?;
    let state = head.get(STATE_OFFSET..).and_then(|bytes| bytes.try_into().ok());
    Ok(state.map(u32::from_ne_bytes) == Some(SHUT_DOWN))
}

/// Files with content beside an initialization fork, which only unlogged relations have.
fn unlogged_files_in(database: &Directory) -> io::Result<Vec<u32>> {
    let mut files = Vec::new();
    for name in database.names()? {
        let name = name?;
        let number = name.to_str().and_then(|name| name.strip_suffix("_init"));
        let Some(number) = number else {
            continue;
        };
        let main_fork = OsStr::new(number);
        let Ok(relation) = number.parse() else {
            continue;
        };
        let has_content = database
            .stat(main_fork)
            .is_ok_and(|stat| kind_of(&stat) == Kind::File && stat.st_size > 0);
        if has_content {
            files.push(relation);
        }
    }
    Ok(files)
}

/// The losses of a copy, collected database by database.
pub(crate) struct LossReport {
    files: UnloggedFiles,
    relations: Loss,
}

impl LossReport {
    /// A report on a copy that recovers from these files.
    pub(crate) fn new(files: UnloggedFiles) -> Self {
        Self {
            files,
            relations: Loss {
                kind: LossKind::UnloggedRelations,
                total: Some(0),
                names: Vec::new(),
            },
        }
    }

    /// Adds the relations of the database that `client` is in, which the copy's own catalogue
    /// names.
    pub(crate) async fn add_database(&mut self, client: &Client) -> Result<(), PostgresError> {
        if self.files.is_empty() {
            return Ok(());
        }
        let sql = "SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database()";
        let row =
            client.query_one(sql, &[]).await.map_err(server_error("read the database's oid"))?;
        let oid: u32 = bounded::get_value(&row, 0, "read the database's oid")?;
        let Some(files) = self.files.remove(&oid) else {
            return Ok(());
        };
        let doing = "name the unlogged relations";
        let names_max = LOSS_NAMES_MAX as i64;
        let sql = include_str!("sql/unlogged_relations.sql");
        let rows = bounded::query(client, doing, sql, &[&files, &names_max]).await?;
        let Some(first) = rows.first() else {
            return Ok(());
        };
        let total: i64 = first.try_get("total").map_err(server_error(doing))?;
        let total = u64::try_from(total).unwrap_or_default();
        let add_total = |before: u64| before.saturating_add(total);
        self.relations.total = self.relations.total.map(add_total);
        let names_left = LOSS_NAMES_MAX - self.relations.names.len();
        // In a database without an encoding a name may be any bytes.
        let name = |row: &Row| row.try_get("name").unwrap_or_else(|_| UNREADABLE_NAME.to_owned());
        let names = rows.iter().take(names_left).map(name);
        self.relations.names.extend(names);
        Ok(())
    }

    /// Everything that is lost.
    pub(crate) fn finish(self) -> Vec<Loss> {
        let statistics = Loss { kind: LossKind::Statistics, total: None, names: Vec::new() };
        let has_relations = self.relations.total > Some(0);
        let relations = has_relations.then_some(self.relations);
        relations.into_iter().chain([statistics]).collect()
    }
}
