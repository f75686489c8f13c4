//! Views in mode immediate: the functions that their triggers call in the writing transactions.

use std::collections::BTreeMap;

use egret_postgres::tokio_postgres::types::ToSql;
use egret_postgres::tokio_postgres::{GenericClient, Transaction};

use super::materialized_view::MaterializedView;
use super::query_description::QueryDescription;
use super::record::Record;
use super::refreshable::ViewSource;
use super::transaction_settings::BRIEF_LOCK_TIMEOUT;
use super::view_storage::drop_trigger_function;
use super::views_role::{self, VIEWS_ROLE};
use crate::core::capture::{TRANSACTION, TableCapture, before_function, changes_cte};
use crate::core::immediate::{
    Immediate, ImmediateSource, RefreshStatements, TRANSITION_TABLES, function_signatures,
    lock_table,
};
use crate::core::tree::Source;
use crate::error::ViewsError;
use crate::model::Mode;

/// Size in bytes beyond which an unused table of steps is truncated.
const STEPS_DELETE_BYTES_MIN: i64 = 1 << 20;

/// In a view with a recursion, changes that yield more rows than this are not computed within the
/// writing transaction.
const RECURSION_ROWS_MAX: u64 = 1_000_000;

/// Refuses views that cannot be refreshed within the writing transactions: those of another role,
/// which might alter the functions that its triggers call, and those that read views.
///
/// # Errors
/// [`ViewsError::Unsupported`].
pub(crate) fn check_mode_immediate(
    description: &QueryDescription,
    mode: Mode,
    other_owner: Option<&str>,
) -> Result<(), ViewsError> {
    let refuse = |what: &str, advice: &str| {
        Err(ViewsError::Unsupported { what: what.to_owned(), advice: advice.to_owned() })
    };
    if mode == Mode::Immediate && other_owner.is_some_and(|owner| owner != VIEWS_ROLE) {
        return refuse(
            "a view of another role in mode immediate",
            "name no owner, or use another mode",
        );
    }
    let mut views = description.tables.iter().filter(|table| table.view.is_some());
    if mode == Mode::Immediate && views.next().is_some() {
        return refuse(
            "a view over views in mode immediate",
            "read the tables instead, or use another mode",
        );
    }
    Ok(())
}

/// Refuses a query that depends on the clock: no write refreshes it as time passes.
///
/// # Errors
/// [`ViewsError::Unsupported`].
pub(crate) fn check_clock_dependence(has_clock: bool, mode: Mode) -> Result<(), ViewsError> {
    if has_clock && mode == Mode::Immediate {
        Err(ViewsError::Unsupported {
            what: "a query that compares with the clock, in mode immediate".to_owned(),
            advice: "its result changes without a write: use another mode".to_owned(),
        })
    } else {
        Ok(())
    }
}

/// Refuses a view in mode immediate as a source: it passes its changes to no other view.
///
/// # Errors
/// [`ViewsError::Unsupported`].
pub(crate) async fn check_source_mode(
    client: &impl GenericClient,
    view: i64,
) -> Result<(), ViewsError> {
    // An alteration of the mode waits for this lock, and then sees the new dependency.
    let sql = "SELECT mode FROM egret.view WHERE id = $1 FOR SHARE";
    let mode: String = client.query_one(sql, &[&view]).await?.get(0);
    if mode == Mode::Immediate.as_str() {
        Err(ViewsError::Unsupported {
            what: "a view over a view in mode immediate".to_owned(),
            advice: "read the tables instead, or give that view another mode".to_owned(),
        })
    } else {
        Ok(())
    }
}

/// Creates the functions that the triggers of a view call.
pub(crate) async fn install_functions(
    transaction: &Transaction<'_>,
    record: &Record,
    materialized_view: &MaterializedView,
    reads: &[ViewSource],
) -> Result<(), ViewsError> {
    let immediate = Immediate {
        view: record.id,
        name: record.name.to_string(),
        tables: immediate_sources(record.id, materialized_view, reads),
        apply: apply_statements(record.id, materialized_view, reads, &|capture| {
            Some(format!(
                "(SELECT * FROM {} WHERE {TRANSACTION} = pg_current_xact_id()) AS egret_rows",
                capture.changes_table()
            ))
        }),
        rebuild: rebuild_statements(materialized_view),
        settings: parse_settings(&record.settings),
    };
    for statement in immediate.create_functions() {
        transaction.batch_execute(&statement).await?;
    }
    for table in &immediate.tables {
        let columns = table.capture.columns.iter();
        let columns: Vec<&str> = columns.map(|column| column.name.as_str()).collect();
        let triggers = table.capture.trigger_names();
        let sql = "UPDATE egret.view_capture SET columns = $2::text[]::name[], triggers = $3::text[]::name[] WHERE id = $1";
        let values: [&(dyn ToSql + Sync); 3] = [&table.capture.id, &columns, &triggers];
        transaction.execute(sql, &values).await?;
    }
    if record.owner == VIEWS_ROLE {
        // One that was dropped and is made again would be this session's.
        views_role::transfer_to_views_role(transaction, record.id).await?;
    }
    Ok(())
}

/// Names and values of the settings in the statements that set them.
fn parse_settings(statements: &str) -> Vec<(String, String)> {
    let assignments = statements.split("; ").filter_map(|statement| {
        let (name, value) = statement.strip_prefix("SET LOCAL ")?.split_once(" = ")?;
        Some((name.replace('"', ""), value.to_owned()))
    });
    assignments.collect()
}

/// Drops the functions of a view, and with them its triggers.
///
/// # Errors
/// [`ViewsError::InUse`].
pub(crate) async fn drop_functions(
    transaction: &Transaction<'_>,
    record: &Record,
) -> Result<(), ViewsError> {
    for function in function_signatures(record.id) {
        drop_trigger_function(transaction, &function).await?;
    }
    let drop = format!("DROP TABLE IF EXISTS {}", lock_table(record.id));
    Ok(transaction.batch_execute(&drop).await?)
}

/// Locks the tables of a view against all use until the end of the transaction, in which triggers
/// are dropped. Gives up before a waiting session starts to look for a deadlock.
pub(crate) async fn lock_tables(
    transaction: &Transaction<'_>,
    view: i64,
) -> Result<(), ViewsError> {
    let sql = "SELECT DISTINCT trigger.tgrelid, pg_catalog.format('%I.%I', namespace.nspname, class.relname) AS name \
               FROM pg_catalog.pg_trigger AS trigger \
               JOIN pg_catalog.pg_class AS class ON class.oid = trigger.tgrelid \
               JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = class.relnamespace \
               WHERE trigger.tgfoid = pg_catalog.to_regprocedure($1) ORDER BY trigger.tgrelid";
    let function = format!("{}()", before_function(view));
    let rows = transaction.query(sql, &[&function]).await?;
    let tables: Vec<&str> = rows.iter().map(|row| row.get("name")).collect();
    transaction.batch_execute(BRIEF_LOCK_TIMEOUT).await?;
    if !tables.is_empty() {
        let lock = format!("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE", tables.join(", "));
        transaction.batch_execute(&lock).await?;
    }
    Ok(())
}

/// Each table once, with all columns that the view reads of it.
fn immediate_sources(
    view: i64,
    materialized_view: &MaterializedView,
    reads: &[ViewSource],
) -> Vec<ImmediateSource> {
    let mut tables: BTreeMap<i64, TableCapture> = BTreeMap::new();
    for source in reads {
        if let ViewSource::Table { capture: captured, .. } = source {
            let merged = tables.entry(captured.id).or_insert_with(|| captured.clone());
            let missing_columns: Vec<_> = captured
                .columns
                .iter()
                .filter(|column| !merged.columns.contains(column))
                .cloned()
                .collect();
            merged.columns.extend(missing_columns);
        }
    }
    let all = tables.into_values().map(|capture| {
        let id = capture.id;
        let direct = TRANSITION_TABLES.map(|sources| {
            apply_statements(view, materialized_view, reads, &|captured| {
                (captured.id == id)
                    .then(|| format!("{} AS egret_rows", captured.select_transition_rows(sources)))
            })
        });
        ImmediateSource { capture, transition_statements: direct }
    });
    all.collect()
}

/// The statements that apply changes. `changes` returns the item of FROM with the changes of a
/// table; none if it has none.
fn apply_statements(
    view: i64,
    materialized_view: &MaterializedView,
    reads: &[ViewSource],
    changes: &dyn Fn(&TableCapture) -> Option<String>,
) -> RefreshStatements {
    let mut sources = materialized_view.sources.clone();
    let mut ctes = Vec::new();
    for (source_index, view_source) in reads.iter().enumerate() {
        let ViewSource::Table { capture: captured, .. } = view_source else {
            continue;
        };
        let (Some(from), Some(source)) =
            (changes(captured), sources.get_mut(&Source::Table(source_index)))
        else {
            continue;
        };
        let name = format!("egret_changes_{source_index}");
        let is_plain = materialized_view.consolidates_changes_of(Source::Table(source_index));
        let changes = if is_plain {
            captured.select_recorded(&from)
        } else {
            captured.select_consolidated(&from)
        };
        ctes.push(changes_cte(&name, &changes, !is_plain));
        source.changes = Some(name);
        source.is_consolidated = !is_plain;
    }
    let mut refresh_statements = RefreshStatements::default();
    // A writer must not wait without bound.
    let rows_max = materialized_view.has_recursion().then_some(RECURSION_ROWS_MAX);
    for step in materialized_view.apply_changes(view, sources, false, rows_max) {
        refresh_statements.statements.push(step.statement.to_sql(&ctes));
        refresh_statements.sinks.extend(step.sink);
    }
    refresh_statements
}

/// The statements that recompute the view.
fn rebuild_statements(materialized_view: &MaterializedView) -> RefreshStatements {
    let stages = materialized_view.stages.iter();
    let statements = stages.map(|stage| {
        stage.rebuild(&materialized_view.types, &materialized_view.sources, None).to_sql(&[])
    });
    RefreshStatements { statements: statements.collect(), sinks: Vec::new() }
}

/// Removes the steps of transactions that have ended.
pub(crate) async fn delete_steps(client: &impl GenericClient) -> Result<(), ViewsError> {
    let sql = "SELECT pg_catalog.pg_relation_size('egret.view_statement') > $1";
    if client.query_one(sql, &[&STEPS_DELETE_BYTES_MIN]).await?.get(0) {
        // Those of a predecessor that a writer is removing are its business.
        let sql = "DELETE FROM egret.view_statement WHERE ctid = ANY (ARRAY( \
                   SELECT ctid FROM egret.view_statement \
                   WHERE xid < pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot()) FOR UPDATE SKIP LOCKED))";
        client.execute(sql, &[]).await?;
    }
    Ok(())
}
