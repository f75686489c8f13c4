//! Captures of the sources of a view: what of each table is recorded, and the triggers that do so.

use egret_postgres::tokio_postgres::Transaction;

use super::materialized_view::MaterializedView;
use super::query_description::{Column, QueryDescription, SourceTable};
use super::record::Record;
use super::refreshable::ViewSource;
use super::registry::{self, SourceId};
use super::transaction_settings::BRIEF_LOCK_TIMEOUT;
use super::{captures, identity, immediate, rights, segments};
use crate::core::capture::{CaptureOptions, CapturedColumn, TRANSACTION, TableCapture};
use crate::core::expression::quote_identifier;
use crate::core::sql::WEIGHT;
use crate::core::tree::Source;
use crate::error::ViewsError;

/// Records the sources of a view, and has the changes of its tables captured.
///
/// # Errors
/// [`ViewsError::PrivilegeMissing`].
pub(crate) async fn capture_sources(
    transaction: &Transaction<'_>,
    record: &Record,
    materialized_view: &MaterializedView,
    description: &QueryDescription,
    capture_options: CaptureOptions,
) -> Result<Vec<ViewSource>, ViewsError> {
    let (view, immediate_view) = (record.id, record.immediate_view());
    let mut view_sources = Vec::new();
    for (source_index, table) in description.tables.iter().enumerate() {
        let name = table.full_name();
        check_reserved_names(materialized_view, source_index, &name)?;
        let columns = describe_columns_read(materialized_view, source_index, table);
        let source_number = source_index as i32;
        if let Some(source_view) = table.view {
            immediate::check_source_mode(transaction, source_view).await?;
            let source = SourceId::View(source_view);
            registry::add_source(transaction, view, source_number, &name, &columns, source).await?;
            view_sources.push(ViewSource::View(source_view));
            continue;
        }
        rights::check_trigger_privilege(transaction, table).await?;
        let (capture_id, is_new) =
            captures::find_or_insert(transaction, table.oid, immediate_view, capture_options)
                .await?;
        let source = SourceId::Capture(capture_id);
        registry::add_source(transaction, view, source_number, &name, &columns, source).await?;
        let capture =
            table_capture(capture_id, materialized_view, source_index, table, immediate_view);
        if is_new {
            for statement in capture.create_changes_table(capture_options) {
                transaction.batch_execute(&statement).await?;
            }
        }
        if !is_new {
            add_missing_columns(transaction, &capture, table, capture_options).await?;
        } else if immediate_view.is_none() {
            for statement in capture.create_functions(capture_options) {
                transaction.batch_execute(&statement).await?;
            }
        }
        view_sources.push(ViewSource::Table { oid: table.oid, capture });
    }
    if immediate_view.is_some() {
        immediate::install_functions(transaction, record, materialized_view, &view_sources).await?;
    }
    identity::set_identities(transaction).await?;
    for view_source in &view_sources {
        if let ViewSource::Table { oid, capture } = view_source {
            install_triggers(transaction, capture, *oid).await?;
            // Writers may wait for the first table: from here on, locks are waited for only
            // briefly.
            transaction.batch_execute(BRIEF_LOCK_TIMEOUT).await?;
        }
    }
    Ok(view_sources)
}

/// Refuses columns with the names of those that Egret adds to recorded rows.
fn check_reserved_names(
    materialized_view: &MaterializedView,
    source_index: usize,
    table: &str,
) -> Result<(), ViewsError> {
    let needed_columns = materialized_view.read_columns(Source::Table(source_index));
    match [WEIGHT, TRANSACTION].iter().find(|name| needed_columns.contains(**name)) {
        None => Ok(()),
        Some(name) => Err(ViewsError::Unsupported {
            what: format!("the column `{name}` of `{table}`"),
            advice: "rename it: Egret uses columns of that name".to_owned(),
        }),
    }
}

/// The columns of a source that a view reads, with their numbers or their expressions, as text to
/// detect changes. `at` is the index of the source.
pub(crate) fn describe_columns_read(
    materialized_view: &MaterializedView,
    source_index: usize,
    table: &SourceTable,
) -> String {
    let needed_columns = materialized_view.read_columns(Source::Table(source_index));
    let mut descriptions = Vec::new();
    for column in &table.columns {
        let name = quote_identifier(&column.name);
        match &column.virtual_expression {
            Some(expression) => {
                descriptions.push(format!("{} {name} = {expression}", column.number))
            }
            None if materialized_view.is_full_only => {
                descriptions.push(format!("{} {name} {}", column.number, column.sql_type));
            }
            None if needed_columns.contains(&column.name) => {
                descriptions.push(format!("{} {name}", column.number));
            }
            None => {}
        }
    }
    descriptions.join(", ")
}

/// The capture of a table with the columns that a view reads. `of` is the view if it has a capture
/// of its own.
pub(crate) fn table_capture(
    capture_id: i64,
    materialized_view: &MaterializedView,
    source_index: usize,
    table: &SourceTable,
    immediate_view: Option<i64>,
) -> TableCapture {
    let needed_columns = materialized_view.read_columns(Source::Table(source_index));
    let columns = table.columns.iter();
    // Of a query that is computed as a whole any column may tell that something changed; those that
    // are computed when they are read change with others.
    let is_needed = |column: &&Column| {
        if materialized_view.is_full_only {
            column.virtual_expression.is_none()
        } else {
            needed_columns.contains(&column.name)
        }
    };
    let columns = columns.filter(is_needed);
    TableCapture {
        id: capture_id,
        columns: columns.map(captured_column).collect(),
        view: immediate_view,
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
async fn add_missing_columns(
    transaction: &Transaction<'_>,
    capture: &TableCapture,
    table: &SourceTable,
    capture_options: CaptureOptions,
) -> Result<(), ViewsError> {
    let recorded_columns = captures::recorded_columns(transaction, capture).await?;
    let needed_columns = &capture.columns;
    let is_recorded = |column: &&CapturedColumn| {
        let is_same =
            |(name, kind): &(String, String)| *name == column.name && *kind == column.recorded_type;
        recorded_columns.iter().any(is_same)
    };
    let missing: Vec<&CapturedColumn> =
        needed_columns.iter().filter(|column| !is_recorded(column)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    // Waits for writers that are under way; later ones record all columns.
    // To make a trigger again takes the lock that is wanted, and no right to lock the table.
    let sql =
        "SELECT pg_catalog.pg_has_role(relowner, 'USAGE') FROM pg_catalog.pg_class WHERE oid = $1";
    let may_alter: bool = transaction.query_one(sql, &[&table.oid]).await?.get(0);
    let lock = if may_alter {
        format!("LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE", table.quoted_name())
    } else {
        let triggers = capture.create_triggers(&table.quoted_name(), may_alter);
        triggers.into_iter().next().unwrap_or_default()
    };
    transaction.batch_execute(&lock).await?;
    for column in &missing {
        // One that has another type now is of no use to any view.
        if recorded_columns.iter().any(|(name, _)| *name == column.name) {
            let drop = capture.drop_column(column);
            transaction.batch_execute(&drop).await?;
        }
        transaction.batch_execute(&capture.add_column(column)).await?;
    }
    if capture.view.is_none() {
        segments::record_all_columns(transaction, capture.id, capture_options.size_max).await?;
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
            &[&table, &capture.function_signatures(), &capture.trigger_count()],
        )
        .await?;
    for member in members {
        // Creating triggers waits for writers of the table, and blocks others meanwhile.
        if member.get("is_watched") {
            continue;
        }
        let (schema, name): (String, String) = (member.get("schema"), member.get("name"));
        let table_name = format!("{}.{}", quote_identifier(&schema), quote_identifier(&name));
        let may_alter: bool = member.get("may_alter");
        for statement in capture.create_triggers(&table_name, may_alter) {
            transaction.batch_execute(&statement).await?;
        }
    }
    let function = format!("{}()", capture.trigger_function());
    let former_partitions =
        transaction.query(include_str!("sql/left.sql"), &[&table, &function]).await?;
    for row in former_partitions {
        let name = |column| quote_identifier(row.get::<_, &str>(column));
        let on = format!("{}.{}", name("schema"), name("name"));
        for drop in capture.drop_triggers(&on) {
            transaction.batch_execute(&drop).await?;
        }
    }
    Ok(())
}
