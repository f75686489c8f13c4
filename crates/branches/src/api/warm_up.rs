//! Warm-up: what a session of the pool does before it is handed out, so that its first statements
//! find in memory what they need.
//!
//! A fresh session knows nothing of the catalogue, and a fresh clone has no page in memory: a first
//! INSERT then reads some 35 pages, one after the other, and a CREATE TABLE four times as many. So
//! the kernel is asked to read ahead where rows will go, each session plans a query of every busy
//! table, which changes nothing, and the first one makes a table and rolls that back. Where event
//! triggers would see that table, it is left out. Code of the user's may run all the same: a plan
//! evaluates functions in row-security policies and index predicates, a connect login triggers.

use std::path::PathBuf;
use std::sync::Arc;

use egret_base::sync::lock;
use egret_postgres::wire::{Session, WireError};

use crate::engine::Inner;
use crate::engine::Rehearsal;
use crate::model::{BranchId, TemplateId};
use crate::store::readahead::{find_ranges, read_ahead};
use crate::store::source::{BUSY_FILES, BUSY_TABLES, HAS_EVENT_TRIGGERS, run_blocking};

/// The longest answer that is of interest here, in rows and bytes.
const ROWS_MAX: u64 = 1_000;
const BYTES_MAX: u64 = 1 << 20;

/// A table with what most tables have, changed once, gone at the end.
const TRIAL_TABLE_SQL: &str = "BEGIN;
    CREATE TABLE egret_rehearsal (id bigint PRIMARY KEY, name text NOT NULL, at timestamptz DEFAULT now());
    CREATE INDEX ON egret_rehearsal (name);
    ALTER TABLE egret_rehearsal ADD COLUMN note text;
    INSERT INTO egret_rehearsal (id, name, note) VALUES (1, 'egret', 'rehearsal');
    ROLLBACK";

/// Which session of a branch is warmed up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WarmUpPart {
    /// The first session of a branch: what it reads is in memory for the others.
    First,
    Further,
}

impl Inner {
    /// Has the kernel read ahead the ranges that earlier warm-ups of the template have found.
    pub(crate) async fn read_ahead(&self, id: BranchId, template: TemplateId) {
        let mut rehearsals = lock(&self.pool.rehearsals).clone();
        rehearsals.retain(|rehearsal| rehearsal.template == template);
        if !rehearsals.is_empty() {
            let data = self.paths.branch(id);
            let reading = run_blocking(move || {
                for one in &rehearsals {
                    read_ahead(&data, &one.ranges);
                }
                Ok(())
            });
            // It is advice: without it pages are read when they are needed.
            let _ = reading.await;
        }
    }

    /// Warms a session up. Statements that the server refuses are left out: the user's own
    /// definitions may refuse them.
    pub(crate) async fn warm_up(
        &self,
        session: &mut Session,
        template: TemplateId,
        database: &str,
        part: WarmUpPart,
    ) -> Result<(), WireError> {
        let fits = |one: &&Rehearsal| one.template == template && one.database == database;
        let cached = lock(&self.pool.rehearsals).iter().find(fits).cloned();
        let rehearsal = match cached {
            Some(rehearsal) => rehearsal,
            None => {
                let data = self.paths.template(template);
                let planned = plan_rehearsal(session, template, database, data).await?;
                let mut rehearsals = lock(&self.pool.rehearsals);
                rehearsals.retain(|other| other.template == template && other.database != database);
                rehearsals.push(planned.clone());
                planned
            }
        };
        if part == WarmUpPart::First && rehearsal.makes_table {
            ignore_refusal(session.query(TRIAL_TABLE_SQL, &[], ROWS_MAX, BYTES_MAX).await)?;
            if !session.is_idle() {
                ignore_refusal(session.query("ROLLBACK", &[], ROWS_MAX, BYTES_MAX).await)?;
            }
        }
        if !rehearsal.explain_sql.is_empty() {
            let plans = session.query(&rehearsal.explain_sql, &[], ROWS_MAX, BYTES_MAX);
            ignore_refusal(plans.await)?;
        }
        Ok(())
    }
}

/// A statement that the server refused did no harm.
fn ignore_refusal<T>(result: Result<T, WireError>) -> Result<(), WireError> {
    match result {
        Err(WireError::Server(refusal)) => {
            tracing::debug!(sqlstate = refusal.sqlstate, message = refusal.message, "a rehearsal");
            Ok(())
        }
        Err(error) => Err(error),
        Ok(_) => Ok(()),
    }
}

async fn plan_rehearsal(
    session: &mut Session,
    template: TemplateId,
    database: &str,
    data: PathBuf,
) -> Result<Rehearsal, WireError> {
    let tables = session.query(BUSY_TABLES, &[], ROWS_MAX, BYTES_MAX).await?;
    let names = tables.rows.into_iter().filter_map(|row| row.into_iter().next()?);
    let plans: Vec<String> =
        names.map(|name| format!("EXPLAIN SELECT * FROM ONLY {name}")).collect();
    let files = session.query(BUSY_FILES, &[], ROWS_MAX, BYTES_MAX).await?;
    let files: Vec<String> =
        files.rows.into_iter().filter_map(|row| row.into_iter().next()?).collect();
    let finding_ranges = run_blocking(move || Ok(find_ranges(&data, &files)));
    let triggers = session.query(HAS_EVENT_TRIGGERS, &[], ROWS_MAX, BYTES_MAX).await?;
    let has_triggers = triggers.rows.first().and_then(|row| row.first().cloned()?);
    Ok(Rehearsal {
        template,
        database: database.to_owned(),
        explain_sql: plans.join("; "),
        makes_table: has_triggers.as_deref() == Some("f"),
        ranges: Arc::new(finding_ranges.await.unwrap_or_default()),
    })
}
