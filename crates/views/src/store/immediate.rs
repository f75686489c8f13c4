//! What a view that is kept fresh within the transactions that write has in the database: functions for its triggers.

use std::collections::BTreeMap;

use egret_postgres::tokio_postgres::{GenericClient, Transaction};

use super::apply::changes_as;
use super::build::Built;
use super::captures::BRIEFLY;
use super::describe::Described;
use super::refresh::Read;
use super::registry::Record;
use super::remove::drop_trigger_function;
use super::rights::{self, VIEWS_ROLE};
use crate::core::capture::{Captured, TRANSACTION, before};
use crate::core::immediate::{Immediate, SOURCES, Watched, Work, functions, lock};
use crate::core::tree::Source;
use crate::error::ViewsError;
use crate::model::Mode;

/// A table for steps that takes more bytes is emptied when nobody uses it.
const STEPS_BYTES: i64 = 1 << 20;

/// Where what a statement changed comes to more rows in a view with a recursion, these are not computed within its transaction.
const RECURSION_ROWS_MAX: u64 = 1_000_000;

/// Refuses what cannot be kept fresh within the transactions that write: a view of a role that might alter the functions
/// which its triggers call, and views that others are to be refreshed with.
///
/// # Errors
/// [`ViewsError::Unsupported`].
pub fn check(
    described: &Described,
    mode: Mode,
    other_owner: Option<&str>,
) -> Result<(), ViewsError> {
    let refuse = |what: &str, advice: &str| {
        Err(ViewsError::Unsupported {
            what: what.to_owned(),
            advice: advice.to_owned(),
        })
    };
    if mode == Mode::Immediate && other_owner.is_some_and(|owner| owner != VIEWS_ROLE) {
        return refuse(
            "a view of another role in mode immediate",
            "name no owner, or use another mode",
        );
    }
    let mut kept = described.tables.iter().filter(|table| table.kept.is_some());
    if mode == Mode::Immediate && kept.next().is_some() {
        return refuse(
            "a view over views in mode immediate",
            "read the tables instead, or use another mode",
        );
    }
    Ok(())
}

/// Refuses a query that changes as time passes, which no writer notices.
///
/// # Errors
/// [`ViewsError::Unsupported`].
pub fn check_clock(has_clock: bool, mode: Mode) -> Result<(), ViewsError> {
    match has_clock && mode == Mode::Immediate {
        true => Err(ViewsError::Unsupported {
            what: "a query that compares with the clock, in mode immediate".to_owned(),
            advice: "time passes without writers: use another mode".to_owned(),
        }),
        false => Ok(()),
    }
}

/// Refuses to read a view that is kept fresh within the transactions that write: it tells nobody what changed.
///
/// # Errors
/// [`ViewsError::Unsupported`].
pub async fn check_read(client: &impl GenericClient, view: i64) -> Result<(), ViewsError> {
    // Whoever gives it another mode waits, and then sees who reads it.
    let sql = "SELECT mode FROM egret.view WHERE id = $1 FOR SHARE";
    let mode: String = client.query_one(sql, &[&view]).await?.get(0);
    match mode == Mode::Immediate.as_str() {
        true => Err(ViewsError::Unsupported {
            what: "a view over one in mode immediate".to_owned(),
            advice: "read the tables instead, or give that view another mode".to_owned(),
        }),
        false => Ok(()),
    }
}

/// Makes the functions that the triggers of a view call.
///
/// # Errors
/// What the server says.
pub async fn install(
    transaction: &Transaction<'_>,
    record: &Record,
    built: &Built,
    reads: &[Read],
) -> Result<(), ViewsError> {
    let immediate = Immediate {
        view: record.id,
        name: record.name.to_string(),
        tables: watched(record.id, built, reads),
        apply: apply(record.id, built, reads, &|captured| {
            Some(format!(
                "(SELECT * FROM {} WHERE {TRANSACTION} = pg_current_xact_id()) AS egret_rows",
                captured.changes()
            ))
        }),
        rebuild: rebuild(built),
        settings: settings(&record.settings),
    };
    for statement in immediate.create_functions() {
        transaction.batch_execute(&statement).await?;
    }
    if record.owner == VIEWS_ROLE {
        // One that was dropped and is made again would be this session's.
        rights::give_to_views_role(transaction, record.id).await?;
    }
    Ok(())
}

/// Settings by name, with their values as they are written, of the statements that set them.
fn settings(statements: &str) -> Vec<(String, String)> {
    let each = statements.split("; ");
    let each = each.filter_map(|statement| {
        let (name, value) = statement.strip_prefix("SET LOCAL ")?.split_once(" = ")?;
        Some((name.replace('"', ""), value.to_owned()))
    });
    each.collect()
}

/// Drops the functions of a view, and with them its triggers.
///
/// # Errors
/// [`ViewsError::InUse`]; what the server says.
pub async fn remove(transaction: &Transaction<'_>, record: &Record) -> Result<(), ViewsError> {
    for function in functions(record.id) {
        drop_trigger_function(transaction, &function).await?;
    }
    let drop = format!("DROP TABLE IF EXISTS {}", lock(record.id));
    Ok(transaction.batch_execute(&drop).await?)
}

/// Keeps everybody from what a view reads, until the end of the transaction: triggers are dropped then, which nobody may be
/// using. It gives up before anybody who waits for this looks for a deadlock.
///
/// # Errors
/// What the server says.
pub async fn lock_tables(transaction: &Transaction<'_>, view: i64) -> Result<(), ViewsError> {
    let sql = "SELECT DISTINCT trigger.tgrelid, pg_catalog.format('%I.%I', namespace.nspname, class.relname) AS name \
               FROM pg_catalog.pg_trigger AS trigger \
               JOIN pg_catalog.pg_class AS class ON class.oid = trigger.tgrelid \
               JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = class.relnamespace \
               WHERE trigger.tgfoid = pg_catalog.to_regprocedure($1) ORDER BY trigger.tgrelid";
    let function = format!("{}()", before(view));
    let rows = transaction.query(sql, &[&function]).await?;
    let tables: Vec<&str> = rows.iter().map(|row| row.get("name")).collect();
    transaction.batch_execute(BRIEFLY).await?;
    if !tables.is_empty() {
        let lock = format!("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE", tables.join(", "));
        transaction.batch_execute(&lock).await?;
    }
    Ok(())
}

/// Every table once, with all that the view needs of it.
fn watched(view: i64, built: &Built, reads: &[Read]) -> Vec<Watched> {
    let mut tables: BTreeMap<i64, Captured> = BTreeMap::new();
    for read in reads {
        if let Read::Table { captured, .. } = read {
            let known = tables
                .entry(captured.id)
                .or_insert_with(|| captured.clone());
            let more = captured.columns.iter();
            let more: Vec<_> = more
                .filter(|column| !known.columns.contains(column))
                .cloned()
                .collect();
            known.columns.extend(more);
        }
    }
    let all = tables.into_values().map(|captured| {
        let id = captured.id;
        let direct = SOURCES.map(|sources| {
            apply(view, built, reads, &|captured| {
                (captured.id == id)
                    .then(|| format!("{} AS egret_rows", captured.in_transition(sources)))
            })
        });
        Watched { captured, direct }
    });
    all.collect()
}

/// Applies what changed; `changes` says where that is, of each table in which something did.
fn apply(
    view: i64,
    built: &Built,
    reads: &[Read],
    changes: &dyn Fn(&Captured) -> Option<String>,
) -> Work {
    let mut sources = built.sources.clone();
    let mut with = Vec::new();
    for (at, read) in reads.iter().enumerate() {
        let Read::Table { captured, .. } = read else {
            continue;
        };
        let (Some(from), Some(source)) = (changes(captured), sources.get_mut(&Source::Table(at)))
        else {
            continue;
        };
        let name = format!("egret_changes_{at}");
        let is_plain = built.is_plain(Source::Table(at));
        let changes = match is_plain {
            true => captured.as_recorded(&from),
            false => captured.consolidated(&from),
        };
        with.push(changes_as(&name, &changes, !is_plain));
        source.changes = Some(name);
        source.is_consolidated = !is_plain;
    }
    let mut work = Work::default();
    // Whoever writes must not wait for ever.
    let rows_max = built.recurs().then_some(RECURSION_ROWS_MAX);
    for step in built.applying(view, sources, false, rows_max) {
        work.statements.push(step.statement.sql(&with));
        work.sinks.extend(step.sink);
    }
    work
}

/// Computes all of it anew.
fn rebuild(built: &Built) -> Work {
    let stages = built.stages.iter();
    let statements = stages.map(|stage| stage.rebuild(&built.types, &built.sources, None).sql(&[]));
    Work {
        statements: statements.collect(),
        sinks: Vec::new(),
    }
}

/// Removes the steps of transactions that have ended.
///
/// # Errors
/// What the server says.
pub async fn forget_steps(client: &impl GenericClient) -> Result<(), ViewsError> {
    let sql = "SELECT pg_catalog.pg_relation_size('egret.view_statement') > $1";
    if client.query_one(sql, &[&STEPS_BYTES]).await?.get(0) {
        // Those of a predecessor that a writer is removing are its business.
        let sql = "DELETE FROM egret.view_statement WHERE ctid = ANY (ARRAY( \
                   SELECT ctid FROM egret.view_statement \
                   WHERE xid < pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot()) FOR UPDATE SKIP LOCKED))";
        client.execute(sql, &[]).await?;
    }
    Ok(())
}
