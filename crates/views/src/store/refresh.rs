//! Brings views from one snapshot to the next.
//!
//! Views that read each other are refreshed together, in one REPEATABLE READ transaction: it reads tables as they are in
//! its snapshot, and of the changes those that this snapshot sees and the last one did not. A transaction that commits late
//! is seen by exactly one refresh, whatever its number. What changes in a view is told to those that read it, row by row.

use std::collections::BTreeMap;
use std::time::Instant;

use egret_postgres::tokio_postgres::Client;

use super::build::Built;
use super::captures;
use super::group::Group;
use super::history::{self, History};
use super::registry::Record;
use super::rights::VIEWS_ROLE;
use super::segments::LockWait;
use super::statements::Statements;
use crate::core::capture::{Captured, Recording, TRANSACTION};
use crate::core::choose::{Costs, Way};
use crate::core::compile::Kept;
use crate::core::sql::WEIGHT;
use crate::core::tree::Source;
use crate::error::ViewsError;
use crate::model::RefreshReport;

/// The first of the numbers of advisory locks that views have: of SHA-256("egret/views") the first six bytes, positive,
/// and zeros.
pub const LOCK_KEY: i64 = 0x1be0_a1b5_3282_0000;

/// Locks what no other refresher may refresh, in the same order whoever does it; says where the table of views is.
pub const LOCK: &str = "SELECT pg_catalog.to_regclass('egret.view')::oid, pg_catalog.pg_advisory_lock(key) \
                    FROM (SELECT key FROM pg_catalog.unnest($1::bigint[]) AS key ORDER BY key OFFSET 0) AS keys";

/// Gives them back.
pub const UNLOCK: &str =
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
    /// Whether it reads tables with partitions.
    pub has_partitions: bool,
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
    /// Why it could not be compared with its query, where that was tried by the way.
    pub compare_error: Option<String>,
    /// Whether those who follow it have something to be told.
    pub has_told: bool,
    /// The plans of its statements, where these were asked for.
    pub plans: Option<String>,
    /// How long locks were waited for, in milliseconds, …
    pub waited_ms: f64,
    /// … how long it took to compute and write, …
    pub applied_ms: f64,
    /// … and all of it, up to where it was committed.
    pub took_ms: f64,
}

/// What a refresh is to do.
#[derive(Clone, Copy)]
pub struct Order<'a> {
    /// What earlier refreshes took, by view.
    pub costs: &'a BTreeMap<i64, Costs>,
    /// What is done besides.
    pub besides: Besides,
    /// When it was asked for, in milliseconds of Unix time, …
    pub at_ms: i64,
    /// … and on the clock that it is measured by.
    pub begun: Instant,
    /// How many refreshes are remembered of a view; none: this one is not.
    pub history_max: Option<u32>,
    /// How much it may be.
    pub limits: Limits,
    /// The oid of the table of views, where that is known.
    pub table: Option<u32>,
    /// Whether something has changed, as it seems: that is not looked at before.
    pub is_expected: bool,
}

/// What is done besides with views that are refreshed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Besides {
    /// The view that is compared with its query.
    pub compared: Option<(i64, Compares)>,
    /// Whether the plans of all statements are kept, each of which is done twice for that.
    pub is_explained: bool,
}

/// Why a view is compared with its query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compares {
    /// Somebody asked.
    Asked,
    /// It is done now and then: a refresh does not fail because of it.
    ByTheWay,
}

/// How much a refresh may be.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// More changes than this are not applied: the view is suspended. 0: there is no such limit.
    pub fuse_changes: u64,
    /// A change set of more rows is not kept; whoever follows the view reads it anew.
    pub change_set_rows_max: u64,
    /// Bytes of a change set, likewise.
    pub change_set_bytes_max: u64,
    /// Rows that changes come to in a join.
    pub delta_rows_max: u64,
    /// Bytes for all that a statement sorts and hashes.
    pub memory_max: u64,
}

impl Limits {
    /// Fails with more changes than may be.
    ///
    /// # Errors
    /// [`ViewsError::FuseBlown`].
    pub fn check(&self, changes: i64) -> Result<(), ViewsError> {
        let changes_max = self.fuse_changes;
        match changes_max > 0 && changes.unsigned_abs() > changes_max {
            true => Err(ViewsError::FuseBlown {
                changes,
                changes_max,
            }),
            false => Ok(()),
        }
    }
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
        let order = Order {
            costs: &BTreeMap::new(),
            besides: Besides::default(),
            at_ms: 0,
            begun: Instant::now(),
            history_max: None,
            limits: Limits {
                fuse_changes: 0,
                change_set_rows_max: u64::MAX,
                change_set_bytes_max: u64::MAX,
                delta_rows_max: u64::MAX,
                memory_max: 1 << 28,
            },
            table: None,
            is_expected: false,
        };
        let mut outcomes = refresh(client, &mut statements, &[self], order).await?;
        let tables: Vec<Captured> = self.captured().cloned().collect();
        let recording = Recording {
            size_max: u64::MAX,
            segment_size: u64::MAX,
            is_unlogged: false,
        };
        for captured in &tables {
            let wait = LockWait::None;
            captures::forget(client, &mut statements, captured, recording, wait).await?;
        }
        match outcomes.pop() {
            Some((_, outcome)) => outcome,
            None => Ok(Refreshed::default()),
        }
    }

    /// Whether it can be compared with its query: that of another role may be allowed to read views, and not what these are made of.
    pub fn can_be_compared(&self) -> bool {
        !(self.record.is_of_another && self.reads_views && self.record.owner != VIEWS_ROLE)
    }

    /// Whether its query gives the same rows whatever plan it has. The sum of floating numbers depends on their order.
    pub fn is_reproducible(&self) -> bool {
        let mut stages = self.built.stages.iter();
        !self.built.is_whole
            && stages.all(|stage| match &stage.kept {
                Kept::Rows(_) | Kept::Top(_) => true,
                Kept::Groups(groups) => groups.are_reproducible(&self.built.types),
                Kept::Recursion(recursion) => !recursion.is_anew(),
                // Rows of the same order may come in any.
                Kept::Partitions(_) => false,
            })
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
    pub fn tables(&self) -> impl Iterator<Item = &str> {
        let named = self.built.sources.iter();
        named.filter_map(|(source, sql)| match source {
            Source::Table(at) if matches!(self.reads.get(*at), Some(Read::Table { .. })) => {
                Some(sql.rows.as_str())
            }
            _ => None,
        })
    }

    /// Whether there are changes that it has not seen, as expressions.
    pub fn has_changes(&self) -> impl Iterator<Item = String> {
        self.captured().map(|captured| {
            format!(
                "EXISTS (SELECT FROM {} WHERE NOT pg_catalog.pg_visible_in_snapshot({TRANSACTION}, \
                 (SELECT snapshot FROM egret.view WHERE id = {})))",
                captured.changes(),
                self.record.id
            )
        })
    }

    /// The queries that count its new changes, table by table, and of them the breaks.
    pub fn counts(&self) -> impl Iterator<Item = String> {
        let id = self.record.id;
        let of_table = move |(at, read): (usize, &Read)| match read {
            Read::View(_) => None,
            Read::Table { captured, .. } => Some(format!(
                "SELECT {id}::bigint, {at}::bigint, count(*), count(*) FILTER (WHERE {WEIGHT} = 0) FROM {} \
                 WHERE NOT pg_visible_in_snapshot({TRANSACTION}, (SELECT snapshot FROM egret.view WHERE id = {id}))",
                captured.changes(),
            )),
        };
        self.reads.iter().enumerate().filter_map(of_table)
    }
}

/// Refreshes views, of which each comes after those that it reads. A view that fails, and those that read it, stay what they
/// were.
///
/// # Errors
/// [`ViewsError`]: nothing has changed in any of them.
pub async fn refresh(
    client: &mut Client,
    statements: &mut Statements,
    views: &[&Refreshable],
    order: Order<'_>,
) -> Result<Outcomes, ViewsError> {
    let keys = views.iter().map(|view| LOCK_KEY ^ view.record.id);
    let mut group = Group {
        views,
        order,
        waited_ms: 0.0,
        keys: keys.collect(),
        is_locked: false,
    };
    let outcomes = group.refresh(client, statements).await;
    let unlocked = match &outcomes {
        Ok(_) if !group.is_locked => Ok(()),
        // Whoever uses the session next comes after it.
        Ok(_) => statements.send(client, UNLOCK, &[&group.keys]).await,
        // It may hold them, whatever failed.
        Err(_) => {
            let unlocked = statements.query(client, UNLOCK, &[&group.keys]).await;
            unlocked.map(|_| ())
        }
    };
    if let (Ok(outcomes), Some(kept_max)) = (&outcomes, group.order.history_max) {
        let mut history = History::default();
        for (id, outcome) in outcomes {
            if let Ok(done) = outcome
                && done.way().is_some()
            {
                history.add(*id, &done.report(group.order.at_ms));
            }
        }
        let remembered = history::remember_soon(client, statements, &history, kept_max).await;
        statements.is_spoiled |= remembered.is_err();
    }
    // Others could not have these locks while the session lasts.
    statements.is_spoiled |= unlocked.is_err();
    outcomes
}

/// How many changes of the tables of views are new, and how many of them are breaks: by the number of the view and the place of the table.
pub type Counts = BTreeMap<(i64, usize), (i64, i64)>;

impl Refreshed {
    /// What is told of it.
    pub fn report(&self, at_ms: i64) -> RefreshReport {
        RefreshReport {
            at_ms,
            outcome: self.way().map_or("nothing", Way::as_str).to_owned(),
            why: self.why.clone(),
            snapshot: self.reached.snapshot.clone(),
            changes: self.changes,
            added: self.added,
            changed: self.changed,
            removed: self.removed,
            took_ms: self.took_ms,
            waited_ms: self.waited_ms,
            applied_ms: self.applied_ms,
            error: None,
            plans: self.plans.clone(),
        }
    }

    /// Which way it went; none when there was nothing to do.
    pub fn way(&self) -> Option<Way> {
        match (self.is_nothing, self.is_full) {
            (true, _) => None,
            (false, true) => Some(Way::Full),
            (false, false) => Some(Way::Incremental),
        }
    }
}
