//! Brings views from one snapshot to the next.
//!
//! Views that read each other are refreshed together, in one REPEATABLE READ transaction: it reads tables as they are in
//! its snapshot, and of the changes those that this snapshot sees and the last one did not. A transaction that commits late
//! is seen by exactly one refresh, whatever its number. What changes in a view is told to those that read it, row by row.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use egret_postgres::tokio_postgres::{Client, IsolationLevel, Transaction};

use super::apply::{Told, bring};
use super::build::Built;
use super::create::watch;
use super::registry::{self, Record};
use super::standing::{Standing, standing};
use super::statements::Statements;
use super::{captures, immediate};
use crate::core::capture::{Captured, TRANSACTION};
use crate::core::choose::{Costs, Way};
use crate::core::immediate::lock;
use crate::core::tree::Source;
use crate::error::ViewsError;

/// The first of the numbers of advisory locks that views have: of SHA-256("egret/views") the first six bytes, positive,
/// and zeros.
pub const LOCK_KEY: i64 = 0x1be0_a1b5_3282_0000;

/// Locks what no other refresher may refresh, in the same order whoever does it.
const LOCK: &str = "SELECT pg_catalog.pg_advisory_lock(key) \
                    FROM (SELECT key FROM pg_catalog.unnest($1::bigint[]) AS key ORDER BY key OFFSET 0) AS keys";

const UNLOCK: &str =
    "SELECT pg_catalog.pg_advisory_unlock(key) FROM pg_catalog.unnest($1::bigint[]) AS key";

/// A view that can be refreshed.
#[derive(Clone, Debug)]
pub struct Refreshable {
    /// What is remembered of it.
    pub record: Record,
    /// Its tables and stages.
    pub built: Built,
    /// What it reads, by place.
    pub reads: Vec<Read>,
    /// The names and columns of its tables, as [`signature`](super::standing::signature) tells them.
    pub signature: String,
    /// Rows of all that it reads, about.
    pub rows: i64,
    /// Whether it reads views, plain ones or others.
    pub reads_views: bool,
}

/// What a view reads.
#[derive(Clone, Debug)]
pub enum Read {
    /// A table, whose changes are recorded.
    Table {
        /// Its oid.
        oid: u32,
        /// What is recorded.
        captured: Captured,
    },
    /// Another view that is kept fresh, by its number.
    View(i64),
}

/// How far a view has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reached {
    /// The snapshot whose rows it shows, as `pg_snapshot` is written.
    pub snapshot: String,
    /// The server, the tables, their partitions and the files of all, as they were then.
    pub stamp: String,
}

/// What a refresh did with a view.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Refreshed {
    /// How far it has come.
    pub reached: Reached,
    /// Rows of changes that were read.
    pub changes: i64,
    /// Rows of the last stage.
    pub added: i64,
    /// The same.
    pub changed: i64,
    /// The same.
    pub removed: i64,
    /// Whether everything was computed anew.
    pub is_full: bool,
    /// Whether nothing had changed.
    pub is_nothing: bool,
    /// What chose the way, in words.
    pub why: String,
    /// Where that was asked: the rows that view and query both have, that only the query has, and only the view.
    pub compared: Option<(i64, i64, i64)>,
    /// How long locks were waited for, in milliseconds, …
    pub waited_ms: f64,
    /// … and how long it took to compute and write.
    pub applied_ms: f64,
}

/// What became of each view.
pub type Outcomes = Vec<(i64, Result<Refreshed, ViewsError>)>;

impl Refreshable {
    /// Refreshes it alone. Views that read it are not told.
    ///
    /// # Errors
    /// [`ViewsError`]: nothing has changed then.
    pub async fn refresh(&self, client: &mut Client) -> Result<Refreshed, ViewsError> {
        let mut statements = Statements::default();
        let costs = BTreeMap::new();
        let mut outcomes = refresh(client, &mut statements, &[self], (&costs, None)).await?;
        let tables: Vec<&Captured> = self.captured().collect();
        captures::forget(client, &mut statements, &tables, None, u64::MAX).await?;
        match outcomes.pop() {
            Some((_, outcome)) => outcome,
            None => Ok(Refreshed::default()),
        }
    }

    /// What is recorded of its tables.
    pub fn captured(&self) -> impl Iterator<Item = &Captured> {
        self.reads.iter().filter_map(|read| match read {
            Read::Table { captured, .. } => Some(captured),
            Read::View(_) => None,
        })
    }

    /// The views that it reads.
    pub fn views(&self) -> impl Iterator<Item = i64> {
        self.reads.iter().filter_map(|read| match read {
            Read::Table { .. } => None,
            Read::View(view) => Some(*view),
        })
    }

    /// The names of its tables.
    fn tables(&self) -> impl Iterator<Item = &str> {
        let named = self.built.sources.iter();
        named.filter_map(|(source, sql)| match source {
            Source::Table(at) if matches!(self.reads.get(*at), Some(Read::Table { .. })) => {
                Some(sql.rows.as_str())
            }
            _ => None,
        })
    }

    /// Whether there are changes that it has not seen, as an expression; `$1` is how far it has come.
    fn has_changes(&self, parameter: usize) -> String {
        let each = self.captured().map(|captured| {
            format!(
                "EXISTS (SELECT FROM {} WHERE NOT pg_catalog.pg_visible_in_snapshot({TRANSACTION}, ${parameter}::text::pg_snapshot))",
                captured.changes()
            )
        });
        let each: Vec<String> = each.collect();
        match each.is_empty() {
            true => "false".to_owned(),
            false => each.join(" OR "),
        }
    }
}

/// Refreshes views, of which each comes after those that it reads. `costs` says what earlier refreshes took. A view that
/// fails, and those that read it, stay what they were. `compared` is compared with its query.
///
/// # Errors
/// [`ViewsError`]: nothing has changed in any of them.
pub async fn refresh(
    client: &mut Client,
    statements: &mut Statements,
    views: &[&Refreshable],
    (costs, compared): (&BTreeMap<i64, Costs>, Option<i64>),
) -> Result<Outcomes, ViewsError> {
    let keys: Vec<i64> = views.iter().map(|view| LOCK_KEY ^ view.record.id).collect();
    let begun = Instant::now();
    statements.query(client, LOCK, &[&keys]).await?;
    let waited_ms = begun.elapsed().as_secs_f64() * 1e3;
    let mut group = Group {
        views,
        costs,
        compared,
        waited_ms,
    };
    let outcomes = group.refresh(client, statements).await;
    let unlocked = statements.query(client, UNLOCK, &[&keys]).await;
    let outcomes = outcomes?;
    unlocked?;
    Ok(outcomes)
}

struct Group<'a> {
    views: &'a [&'a Refreshable],
    costs: &'a BTreeMap<i64, Costs>,
    compared: Option<i64>,
    waited_ms: f64,
}

impl Group<'_> {
    async fn refresh(
        &mut self,
        client: &mut Client,
        statements: &mut Statements,
    ) -> Result<Outcomes, ViewsError> {
        let mut before = standing(client, statements, self.views).await?;
        let anew = self
            .views
            .iter()
            .filter(|view| before[&view.record.id].reached.is_none());
        let anew: Vec<&Refreshable> = anew.copied().collect();
        if anew.is_empty() {
            let unchanged = self.unchanged(client, statements, &before).await?;
            if let (Some(snapshot), None) = (unchanged, self.compared) {
                return Ok(self.nothing(&snapshot, &before));
            }
        } else {
            let ids: Vec<i64> = anew.iter().map(|view| view.record.id).collect();
            registry::claim(client, &ids).await?;
            for view in &anew {
                watch_all(client, view).await?;
            }
            let after = standing(client, statements, self.views).await?;
            for view in &anew {
                let id = view.record.id;
                if let (Some(one), Some(other)) = (before.get_mut(&id), after.get(&id)) {
                    one.stamp.clone_from(&other.stamp);
                }
            }
        }
        let begun = Instant::now();
        let transaction = client
            .build_transaction()
            .isolation_level(IsolationLevel::RepeatableRead)
            .start()
            .await?;
        // Neither takes a snapshot: whoever holds a lock is waited for before there is one.
        transaction.batch_execute(&self.begin(&anew)).await?;
        self.waited_ms += begun.elapsed().as_secs_f64() * 1e3;
        self.within(transaction, statements, &before).await
    }

    /// The snapshot at which no view of them had anything to see, if that is so.
    async fn unchanged(
        &self,
        client: &Client,
        statements: &mut Statements,
        standing: &BTreeMap<i64, Standing>,
    ) -> Result<Option<String>, ViewsError> {
        let mut each = Vec::new();
        let mut reached = Vec::new();
        for (at, view) in self.views.iter().enumerate() {
            each.push(view.has_changes(at + 1));
            reached.push(standing[&view.record.id].reached.clone());
        }
        // Every parameter is there, whatever reads no table.
        let typed: Vec<String> = (1..=each.len()).map(|at| format!("${at}::text")).collect();
        let sql = format!(
            "SELECT pg_catalog.pg_current_snapshot()::text, {}, ARRAY[{}]",
            each.join(" OR "),
            typed.join(", ")
        );
        let values = reached.iter().map(|one| one as _);
        let values: Vec<&(dyn egret_postgres::tokio_postgres::types::ToSql + Sync)> =
            values.collect();
        let row = statements.query_one(client, &sql, &values).await?;
        let (snapshot, has_changes): (String, bool) = (row.get(0), row.get(1));
        Ok((!has_changes).then_some(snapshot))
    }

    fn nothing(&self, snapshot: &str, standing: &BTreeMap<i64, Standing>) -> Outcomes {
        let each = self.views.iter().map(|view| {
            let reached = Reached {
                snapshot: snapshot.to_owned(),
                stamp: standing[&view.record.id].stamp.clone(),
            };
            let refreshed = Refreshed {
                reached,
                is_nothing: true,
                waited_ms: self.waited_ms,
                ..Refreshed::default()
            };
            (view.record.id, Ok(refreshed))
        });
        each.collect()
    }

    fn begin(&self, anew: &[&Refreshable]) -> String {
        let tables: BTreeSet<&str> = self.views.iter().flat_map(|view| view.tables()).collect();
        let tables: Vec<&str> = tables.into_iter().collect();
        let mut all = vec![
            captures::NO_WAIT.to_owned(),
            "SET LOCAL search_path = pg_catalog, egret, pg_temp".to_owned(),
        ];
        // Those who write what such a view reads are waited for, and wait.
        for view in anew.iter().filter_map(|view| view.record.own_capture()) {
            all.push(format!("LOCK TABLE {} IN EXCLUSIVE MODE", lock(view)));
            all.push(captures::BRIEFLY.to_owned());
        }
        for table in tables {
            all.push(format!("LOCK TABLE {table} IN ACCESS SHARE MODE"));
            // Whoever waits for the first must not be ended while others are waited for.
            all.push(captures::BRIEFLY.to_owned());
        }
        all.join("; ")
    }

    async fn within(
        &self,
        mut transaction: Transaction<'_>,
        statements: &mut Statements,
        standing: &BTreeMap<i64, Standing>,
    ) -> Result<Outcomes, ViewsError> {
        let ids: Vec<i64> = self.views.iter().map(|view| view.record.id).collect();
        let reached = ids.iter().map(|id| standing[id].reached.as_deref());
        let reached: Vec<Option<&str>> = reached.collect();
        let sql = include_str!("sql/begin.sql");
        let row = statements
            .query_one(&transaction, sql, &[&ids, &reached])
            .await?;
        let (snapshot, as_before): (String, i64) = (row.get(0), row.get(1));
        // Somebody has altered one, or had one computed anew, while locks were waited for.
        if as_before != ids.len() as i64 {
            return Err(ViewsError::SourceChanged);
        }
        let mut told = Told::default();
        let mut outcomes = Outcomes::new();
        for view in self.views {
            let id = view.record.id;
            let is_told = self
                .views
                .iter()
                .any(|other| other.views().any(|one| one == id));
            let one = One {
                view,
                standing: &standing[&id],
                costs: self.costs.get(&id),
                is_told,
                is_compared: self.compared == Some(id),
            };
            let outcome = match self.views.len() {
                1 => one.refresh(&transaction, statements, &mut told).await,
                _ => one.apart(&mut transaction, statements, &mut told).await,
            };
            let outcome = outcome.map(|refreshed| Refreshed {
                reached: Reached {
                    snapshot: snapshot.clone(),
                    stamp: standing[&id].stamp.clone(),
                },
                waited_ms: self.waited_ms,
                ..refreshed
            });
            match outcome {
                // Alone it can only be given up as a whole.
                Err(error) if self.views.len() == 1 => return Err(error),
                outcome => outcomes.push((id, outcome)),
            }
        }
        for sink in &told.sinks {
            let delete = format!("DELETE FROM {sink}");
            transaction.batch_execute(&delete).await?;
        }
        self.finish(transaction, statements, &outcomes, standing)
            .await?;
        Ok(outcomes)
    }

    async fn finish(
        &self,
        transaction: Transaction<'_>,
        statements: &mut Statements,
        outcomes: &Outcomes,
        before: &BTreeMap<i64, Standing>,
    ) -> Result<(), ViewsError> {
        let reached = outcomes.iter();
        let reached: Vec<(i64, &Refreshed)> = reached
            .filter_map(|(id, outcome)| Some((*id, outcome.as_ref().ok()?)))
            .collect();
        let ids: Vec<i64> = reached.iter().map(|(id, _)| *id).collect();
        let stamps: Vec<&str> = reached
            .iter()
            .map(|(_, one)| one.reached.stamp.as_str())
            .collect();
        let snapshot = reached
            .first()
            .map(|(_, one)| one.reached.snapshot.as_str());
        let sql = include_str!("sql/reached.sql");
        statements
            .query(&transaction, sql, &[&ids, &stamps, &snapshot])
            .await?;
        // A partition that came meanwhile was read, or was not: it is not known which.
        let after = standing(&transaction, statements, self.views).await?;
        let is_same = |view: &&&Refreshable| {
            let id = view.record.id;
            after[&id].stamp == before[&id].stamp && after[&id].signature == before[&id].signature
        };
        if !self.views.iter().all(|view| is_same(&view)) {
            return Err(ViewsError::SourceChanged);
        }
        Ok(transaction.commit().await?)
    }
}

/// One view of those that are refreshed.
struct One<'a> {
    view: &'a Refreshable,
    standing: &'a Standing,
    costs: Option<&'a Costs>,
    is_told: bool,
    is_compared: bool,
}

impl One<'_> {
    async fn refresh(
        &self,
        transaction: &Transaction<'_>,
        statements: &mut Statements,
        told: &mut Told,
    ) -> Result<Refreshed, ViewsError> {
        let begun = Instant::now();
        let reached = self.standing.reached.as_deref();
        let done = bring(
            transaction,
            statements,
            self.view,
            (reached, self.costs),
            (told, self.is_told),
            self.is_compared,
        );
        let mut refreshed = done.await?;
        refreshed.applied_ms = begun.elapsed().as_secs_f64() * 1e3;
        Ok(refreshed)
    }

    /// The same, so that others go on when it fails.
    async fn apart(
        &self,
        transaction: &mut Transaction<'_>,
        statements: &mut Statements,
        told: &mut Told,
    ) -> Result<Refreshed, ViewsError> {
        let failed = self
            .view
            .views()
            .find(|view| !told.views.contains_key(view));
        if let Some(view) = failed {
            return Err(ViewsError::SourceFailed { view });
        }
        let savepoint = transaction.transaction().await?;
        let refreshed = self.refresh(&savepoint, statements, told).await;
        match refreshed {
            Ok(refreshed) => {
                savepoint.commit().await?;
                Ok(refreshed)
            }
            Err(error) => {
                savepoint.rollback().await?;
                told.views.remove(&self.view.record.id);
                Err(error)
            }
        }
    }
}

/// Has everything captured that is part of the tables of a view now, one table after the other: locks on several could be
/// waited for in a circle.
async fn watch_all(client: &mut Client, view: &Refreshable) -> Result<(), ViewsError> {
    if view.record.own_capture().is_some() {
        // What was wrong may be its functions.
        let transaction = client.transaction().await?;
        let (built, reads) = (&view.built, &view.reads);
        immediate::install(&transaction, &view.record, built, reads).await?;
        transaction.commit().await?;
    }
    for read in &view.reads {
        if let Read::Table { oid, captured } = read {
            let transaction = client.transaction().await?;
            watch(&transaction, captured, *oid).await?;
            transaction.commit().await?;
        }
    }
    Ok(())
}

impl Refreshed {
    /// Which way it went; none when there was nothing to do.
    pub fn way(&self) -> Option<Way> {
        match (self.is_nothing, self.is_full) {
            (true, _) => None,
            (false, true) => Some(Way::Full),
            (false, false) => Some(Way::Incremental),
        }
    }
}
