//! Brings a view from one snapshot to the next.
//!
//! Everything is done in one REPEATABLE READ transaction: it reads tables as they are in its snapshot, and of the changes
//! those that this snapshot sees and the last one did not. A transaction that commits late is seen by exactly one
//! refresh, whatever its number.

use egret_postgres::tokio_postgres::{Client, GenericClient, IsolationLevel, Transaction};

use super::build::Built;
use super::create::watch;
use super::registry;
use crate::core::capture::{Captured, TRANSACTION};
use crate::core::expression::quoted;
use crate::core::sql::WEIGHT;
use crate::core::tree::Source;
use crate::error::ViewsError;

/// The first of the numbers of advisory locks that views have: of SHA-256("egret/views") the first six bytes, positive,
/// and zeros.
const LOCK_KEY: i64 = 0x1be0_a1b5_3282_0000;

/// A view that can be refreshed.
#[derive(Clone, Debug)]
pub struct Refreshable {
    /// Its number.
    pub id: i64,
    /// Its tables and stages.
    pub built: Built,
    /// What is recorded of its tables, in their order.
    pub captured: Vec<Captured>,
    /// Their oids.
    pub tables: Vec<u32>,
}

/// How far a view has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reached {
    /// The snapshot whose rows it shows, as `pg_snapshot` is written.
    pub snapshot: String,
    /// The tables, their partitions and the files of all, as they were then.
    pub stamp: String,
}

/// What a refresh did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refreshed {
    /// How far it has come.
    pub reached: Reached,
    /// Rows of the last stage.
    pub added: i64,
    /// The same.
    pub changed: i64,
    /// The same.
    pub removed: i64,
    /// Whether everything was computed anew.
    pub is_full: bool,
}

impl Refreshable {
    /// Refreshes it.
    ///
    /// # Errors
    /// [`ViewsError`]: nothing has changed then.
    pub async fn refresh(&self, client: &mut Client) -> Result<Refreshed, ViewsError> {
        // One at a time refreshes a view, whoever it is.
        client
            .execute("SELECT pg_advisory_lock($1)", &[&self.lock_key()])
            .await?;
        let done = self.refresh_alone(client).await;
        let unlocked = client
            .execute("SELECT pg_advisory_unlock($1)", &[&self.lock_key()])
            .await;
        let done = done?;
        unlocked?;
        for captured in &self.captured {
            registry::forget(client, captured).await?;
        }
        Ok(done)
    }

    /// The number of its advisory lock: a name and its own number.
    fn lock_key(&self) -> i64 {
        LOCK_KEY ^ self.id
    }

    async fn refresh_alone(&self, client: &mut Client) -> Result<Refreshed, ViewsError> {
        let reached = registry::reached(client, self.id).await?;
        let before = stamp(client, &self.tables).await?;
        let reached = reached.filter(|reached| reached.stamp == before);
        if reached.is_none() {
            registry::claim(client, self.id).await?;
            self.watch(client).await?;
        }
        let transaction = client
            .build_transaction()
            .isolation_level(IsolationLevel::RepeatableRead)
            .start()
            .await?;
        // Neither takes a snapshot: whoever holds a lock is waited for before there is one.
        transaction
            .batch_execute(&format!(
                "SET LOCAL search_path = pg_catalog, egret, pg_temp; {}",
                self.lock()
            ))
            .await?;
        let row = transaction
            .query_one("SELECT pg_current_snapshot()::text", &[])
            .await?;
        let mut done = Refreshed {
            reached: Reached {
                snapshot: row.get(0),
                stamp: before,
            },
            ..Refreshed::default()
        };
        let changes = match &reached {
            Some(reached) => self.changes(&transaction, &reached.snapshot).await?,
            None => Changes::Break,
        };
        match (changes, &reached) {
            (Changes::Rows(changed), _) if changed.is_empty() => {}
            (Changes::Rows(changed), Some(reached)) => {
                let frontier = &reached.snapshot;
                self.apply(&transaction, frontier, &changed, &mut done)
                    .await?;
            }
            _ => self.rebuild(&transaction, &mut done).await?,
        }
        registry::set_reached(&transaction, self.id, &done.reached).await?;
        // A partition that came meanwhile was read, or was not: it is not known which.
        if stamp(&transaction, &self.tables).await? != done.reached.stamp {
            return Err(ViewsError::SourceChanged);
        }
        transaction.commit().await?;
        Ok(done)
    }

    /// Has everything captured that is part of its tables now.
    async fn watch(&self, client: &mut Client) -> Result<(), ViewsError> {
        let transaction = client.transaction().await?;
        for (captured, table) in self.captured.iter().zip(&self.tables) {
            watch(&transaction, captured, *table).await?;
        }
        Ok(transaction.commit().await?)
    }

    fn lock(&self) -> String {
        let names = self.built.sources.iter();
        let tables = names.filter(|(source, _)| matches!(source, Source::Table(_)));
        let tables: Vec<&str> = tables.map(|(_, sql)| sql.rows.as_str()).collect();
        match tables.is_empty() {
            true => String::new(),
            false => format!("LOCK TABLE {} IN ACCESS SHARE MODE", tables.join(", ")),
        }
    }

    async fn changes(
        &self,
        transaction: &Transaction<'_>,
        frontier: &str,
    ) -> Result<Changes, ViewsError> {
        let mut changed = Vec::new();
        for (at, captured) in self.captured.iter().enumerate() {
            let sql = format!(
                "SELECT count(*), count(*) FILTER (WHERE {WEIGHT} = 0) FROM {} WHERE {}",
                captured.changes(),
                is_new(frontier)
            );
            let row = transaction.query_one(&sql, &[]).await?;
            let (rows, breaks): (i64, i64) = (row.get(0), row.get(1));
            if breaks > 0 {
                return Ok(Changes::Break);
            }
            if rows > 0 {
                changed.push(at);
            }
        }
        Ok(Changes::Rows(changed))
    }

    async fn apply(
        &self,
        transaction: &Transaction<'_>,
        frontier: &str,
        changed: &[usize],
        done: &mut Refreshed,
    ) -> Result<(), ViewsError> {
        let mut sources = self.built.sources.clone();
        let mut with = Vec::new();
        for at in changed {
            let name = format!("egret_changes_{at}");
            with.push(format!(
                "{name} AS MATERIALIZED ({})",
                self.consolidated(*at, frontier)
            ));
            if let Some(source) = sources.get_mut(&Source::Table(*at)) {
                source.changes = Some(name);
            }
        }
        for (at, stage) in self.built.stages.iter().enumerate() {
            let sink = self.sink(transaction, at).await?;
            let statement = stage.apply(&self.built.types, &sources, sink.as_deref());
            let Some(statement) = statement else {
                continue;
            };
            self.run(transaction, &statement.sql(&with), done).await?;
            if let Some(source) = sources.get_mut(&Source::Stage(at)) {
                source.changes = sink;
            }
        }
        Ok(())
    }

    async fn rebuild(
        &self,
        transaction: &Transaction<'_>,
        done: &mut Refreshed,
    ) -> Result<(), ViewsError> {
        done.is_full = true;
        for stage in &self.built.stages {
            let statement = stage.rebuild(&self.built.types, &self.built.sources, None);
            self.run(transaction, &statement.sql(&[]), done).await?;
        }
        Ok(())
    }

    async fn run(
        &self,
        transaction: &Transaction<'_>,
        sql: &str,
        done: &mut Refreshed,
    ) -> Result<(), ViewsError> {
        let row = transaction.query_one(sql, &[]).await?;
        let wrong: i64 = row.get("wrong");
        if wrong > 0 {
            return Err(ViewsError::Drifted { rows: wrong });
        }
        (done.added, done.changed, done.removed) =
            (row.get("added"), row.get("changed"), row.get("removed"));
        Ok(())
    }

    /// A table for what changes in a stage, where a later one reads it.
    async fn sink(
        &self,
        transaction: &Transaction<'_>,
        stage: usize,
    ) -> Result<Option<String>, ViewsError> {
        let mut later = self.built.stages.iter().skip(stage + 1);
        if !later.any(|later| later.input.sources().contains(&Source::Stage(stage))) {
            return Ok(None);
        }
        let name = format!("egret_told_{stage}");
        let columns = self.built.changes_columns(stage);
        let create = format!(
            "CREATE TEMPORARY TABLE {name} ({columns}{}{WEIGHT} bigint) ON COMMIT DROP",
            if columns.is_empty() { "" } else { ", " }
        );
        transaction.batch_execute(&create).await?;
        Ok(Some(format!("pg_temp.{name}")))
    }

    /// The changes of a table that are new, each row once.
    fn consolidated(&self, at: usize, frontier: &str) -> String {
        let captured = &self.captured[at];
        let mut list = Vec::new();
        let mut keys = Vec::new();
        for column in &captured.columns {
            let name = quoted(&column.name);
            match column.is_exact {
                true => {
                    keys.push(name.clone());
                    list.push(name);
                }
                false => {
                    keys.push(format!("{name}::text COLLATE \"C\""));
                    list.push(format!("any_value({name}) AS {name}"));
                }
            }
        }
        list.push(format!("sum({WEIGHT})::bigint AS {WEIGHT}"));
        let group = match keys.is_empty() {
            true => String::new(),
            false => format!(" GROUP BY {}", keys.join(", ")),
        };
        format!(
            "SELECT {} FROM {} WHERE {}{group} HAVING sum({WEIGHT}) <> 0",
            list.join(", "),
            captured.changes(),
            is_new(frontier)
        )
    }
}

/// What a refresh finds.
enum Changes {
    /// The tables in which rows changed, by their places.
    Rows(Vec<usize>),
    /// Something that rows do not say.
    Break,
}

/// Whether a change is not part of the last snapshot.
fn is_new(frontier: &str) -> String {
    format!("NOT pg_visible_in_snapshot({TRANSACTION}, '{frontier}'::pg_snapshot)")
}

async fn stamp(client: &impl GenericClient, tables: &[u32]) -> Result<String, ViewsError> {
    let row = client
        .query_one(include_str!("sql/stamp.sql"), &[&tables])
        .await?;
    Ok(row.get(0))
}
