//! Captures of the sources of a view: what of each table is recorded, and the triggers that do so.

use egret_postgres::tokio_postgres::Transaction;

use super::materialized_view::MaterializedView;
use super::query_description::{Column, QueryDescription, SourceTable};
use super::record::Record;
use super::refreshable::ViewSource;
use super::registry::{self, SourceId};
use super::transaction_settings::BRIEFLY;
use super::{captures, identity, immediate, rights, segments};
use crate::core::capture::{CaptureOptions, CapturedColumn, TRANSACTION, TableCapture};
use crate::core::expression::quoted;
use crate::core::sql::WEIGHT;
use crate::core::tree::Source;
use crate::error::ViewsError;

/// Records the sources of a view, and has the changes of its tables captured.
///
/// # Errors
/// [`ViewsError::Right`].
pub(crate) async fn capture_sources(
    transaction: &Transaction<'_>,
    record: &Record,
    built: &MaterializedView,
    described: &QueryDescription,
    recording: CaptureOptions,
) -> Result<Vec<ViewSource>, ViewsError> {
    let (view, of) = (record.id, record.own_capture());
    let mut all = Vec::new();
    for (at, table) in described.tables.iter().enumerate() {
        let name = table.full_name();
        check_names(built, at, &name)?;
        let columns = columns_read(built, at, table);
        let place = at as i32;
        if let Some(source_view) = table.view {
            immediate::check_read(transaction, source_view).await?;
            let source = SourceId::View(source_view);
            registry::add_source(transaction, view, place, &name, &columns, source).await?;
            all.push(ViewSource::View(source_view));
            continue;
        }
        rights::check_trigger(transaction, table).await?;
        let (number, is_new) =
            captures::find_or_insert(transaction, table.oid, of, recording).await?;
        let source = SourceId::Capture(number);
        registry::add_source(transaction, view, place, &name, &columns, source).await?;
        let capture = capture_of_table(number, built, at, table, of);
        if is_new {
            for statement in capture.create_changes(recording) {
                transaction.batch_execute(&statement).await?;
            }
        }
        if !is_new {
            add_columns(transaction, &capture, table, recording).await?;
        } else if of.is_none() {
            for statement in capture.create_functions(recording) {
                transaction.batch_execute(&statement).await?;
            }
        }
        all.push(ViewSource::Table {
            oid: table.oid,
            captured: capture,
        });
    }
    if of.is_some() {
        immediate::install(transaction, record, built, &all).await?;
    }
    identity::set_identities(transaction).await?;
    for read in &all {
        if let ViewSource::Table {
            oid,
            captured: capture,
        } = read
        {
            install_triggers(transaction, capture, *oid).await?;
            // Writers may wait for the first table: from here on, locks are waited for only
            // briefly.
            transaction.batch_execute(BRIEFLY).await?;
        }
    }
    Ok(all)
}

/// Refuses columns with the names of those that Egret adds to recorded rows.
fn check_names(built: &MaterializedView, at: usize, table: &str) -> Result<(), ViewsError> {
    let needed = built.columns_of(Source::Table(at));
    match [WEIGHT, TRANSACTION]
        .iter()
        .find(|name| needed.contains(**name))
    {
        None => Ok(()),
        Some(name) => Err(ViewsError::Unsupported {
            what: format!("the column `{name}` of `{table}`"),
            advice: "rename it: Egret uses columns of that name".to_owned(),
        }),
    }
}

/// The columns of a source that a view reads, with their numbers or their expressions, as text to
/// detect changes. `at` is the index of the source.
pub(crate) fn columns_read(built: &MaterializedView, at: usize, table: &SourceTable) -> String {
    let needed = built.columns_of(Source::Table(at));
    let mut all = Vec::new();
    for column in &table.columns {
        let name = quoted(&column.name);
        match &column.computed {
            Some(expression) => all.push(format!("{} {name} = {expression}", column.number)),
            None if built.is_whole => {
                all.push(format!("{} {name} {}", column.number, column.sql_type));
            }
            None if needed.contains(&column.name) => {
                all.push(format!("{} {name}", column.number));
            }
            None => {}
        }
    }
    all.join(", ")
}

/// The capture of a table with the columns that a view reads. `of` is the view if it has a capture
/// of its own.
pub(crate) fn capture_of_table(
    number: i64,
    built: &MaterializedView,
    at: usize,
    table: &SourceTable,
    of: Option<i64>,
) -> TableCapture {
    let needed = built.columns_of(Source::Table(at));
    let columns = table.columns.iter();
    // Of a query that is computed as a whole any column may tell that something changed; those that
    // are computed when they are read change with others.
    let is_needed = |column: &&Column| {
        if built.is_whole {
            column.computed.is_none()
        } else {
            needed.contains(&column.name)
        }
    };
    let columns = columns.filter(is_needed);
    TableCapture {
        id: number,
        columns: columns.map(captured_column).collect(),
        view: of,
    }
}

fn captured_column(column: &Column) -> CapturedColumn {
    CapturedColumn {
        name: column.name.clone(),
        sql_type: column.base_type.clone(),
        recorded_type: column.recorded_type.clone(),
        collation: column.recorded_collation.clone(),
        type_oid: column.type_oid,
        is_exact: column.is_exact,
    }
}

/// Adds columns to a capture that lacks some. Existing views ignore them.
async fn add_columns(
    transaction: &Transaction<'_>,
    capture: &TableCapture,
    table: &SourceTable,
    recording: CaptureOptions,
) -> Result<(), ViewsError> {
    let before = captures::recorded_columns(transaction, capture).await?;
    let needed = &capture.columns;
    let is_recorded = |column: &&CapturedColumn| {
        let same =
            |(name, kind): &(String, String)| *name == column.name && *kind == column.recorded_type;
        before.iter().any(same)
    };
    let missing: Vec<&CapturedColumn> = needed
        .iter()
        .filter(|column| !is_recorded(column))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    // Waits for writers that are under way; later ones record all columns.
    // To make a trigger again takes the lock that is wanted, and no right to lock the table.
    let sql =
        "SELECT pg_catalog.pg_has_role(relowner, 'USAGE') FROM pg_catalog.pg_class WHERE oid = $1";
    let may_alter: bool = transaction.query_one(sql, &[&table.oid]).await?.get(0);
    let lock = if may_alter {
        format!("LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE", table.sql())
    } else {
        let triggers = capture.create_triggers(&table.sql(), may_alter);
        triggers.into_iter().next().unwrap_or_default()
    };
    transaction.batch_execute(&lock).await?;
    for column in &missing {
        // One that has another type now is of no use to any view.
        if before.iter().any(|(name, _)| *name == column.name) {
            let drop = capture.drop_column(column);
            transaction.batch_execute(&drop).await?;
        }
        transaction
            .batch_execute(&capture.add_column(column))
            .await?;
    }
    if capture.view.is_none() {
        segments::record_all_columns(transaction, capture.id, recording.size_max).await?;
    }
    Ok(())
}

/// Creates the triggers of a capture on a table and its partitions, and drops those on former
/// partitions.
pub(crate) async fn install_triggers(
    transaction: &Transaction<'_>,
    capture: &TableCapture,
    table: u32,
) -> Result<(), ViewsError> {
    let members = transaction
        .query(
            include_str!("sql/members.sql"),
            &[&table, &capture.functions(), &capture.trigger_count()],
        )
        .await?;
    for member in members {
        // Creating triggers waits for writers of the table, and blocks others meanwhile.
        if member.get("is_watched") {
            continue;
        }
        let (schema, name): (String, String) = (member.get("schema"), member.get("name"));
        let on = format!("{}.{}", quoted(&schema), quoted(&name));
        let may_alter: bool = member.get("may_alter");
        for statement in capture.create_triggers(&on, may_alter) {
            transaction.batch_execute(&statement).await?;
        }
    }
    let function = format!("{}()", capture.function());
    let left = transaction
        .query(include_str!("sql/left.sql"), &[&table, &function])
        .await?;
    for row in left {
        let name = |column| quoted(row.get::<_, &str>(column));
        let on = format!("{}.{}", name("schema"), name("name"));
        for drop in capture.drop_triggers(&on) {
            transaction.batch_execute(&drop).await?;
        }
    }
    Ok(())
}
