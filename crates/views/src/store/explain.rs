//! Explains how a query is maintained, in words and in SQL.

use egret_postgres::tokio_postgres::{Client, Transaction};
use postgres_protocol::escape::escape_literal;

use super::advice::{ReadTable, advise_tables};
use super::build::build;
use super::describe::describe_query;
use super::materialized_view::{MaterializedView, sink_table};
use super::owner_functions::{self, execute_unless_empty};
use super::planned_view::{check_functions, plan_query};
use super::query_description::{NameResolution, QueryDescription};
use super::readable::describe_readable;
use super::record::Record;
use super::refreshable::Refreshable;
use super::transaction_settings::SEARCH_PATH;
use super::view_status::Frontier;
use super::views_role;
use crate::core::compile::StageStorage;
use crate::core::display::render_operators;
use crate::core::maintain::AggregateMaintenance;
use crate::core::tree::Source;
use crate::error::ViewsError;
use crate::model::{Explanation, Mode, ReadableViews, StageExplanation};

/// Number of a view that is only built to be explained.
const NO_VIEW: i64 = 0;

/// Explains the view that a query would make. Nothing of it remains.
///
/// # Errors
/// [`ViewsError`]: why there can be none that is maintained incrementally.
pub(crate) async fn explain_new_query(
    client: &mut Client,
    query: &str,
    views: &ReadableViews,
) -> Result<Explanation, ViewsError> {
    let mut transaction = client.transaction().await?;
    let description =
        describe_readable(&mut transaction, query, NameResolution::PublicSchema, views).await?;
    let explained =
        explain_description(&mut transaction, &description, NO_VIEW, Mode::Incremental).await;
    let explanation =
        explained.map_err(|error| error.map_position(&description.canonical, query))?;
    transaction.rollback().await?;
    Ok(explanation)
}

/// Explains how a view is maintained.
pub(crate) async fn explain_view(
    client: &mut Client,
    view: &Refreshable,
) -> Result<Explanation, ViewsError> {
    let mut transaction = client.transaction().await?;
    view.record.apply_settings(&transaction).await?;
    let description = describe_query(
        &mut transaction,
        &view.record.definition,
        NameResolution::SessionSearchPath,
    )
    .await?;
    let (id, mode) = (view.record.id, view.record.mode);
    let explanation = explain_description(&mut transaction, &description, id, mode).await?;
    transaction.rollback().await?;
    Ok(explanation)
}

/// Refuses a mode in which a view cannot be maintained.
///
/// # Errors
/// [`ViewsError::Refused`].
pub(crate) async fn check_can_use_mode(
    client: &mut Client,
    record: &Record,
    mode: Mode,
) -> Result<(), ViewsError> {
    let mut transaction = client.transaction().await?;
    record.apply_settings(&transaction).await?;
    let description =
        describe_query(&mut transaction, &record.definition, NameResolution::SessionSearchPath)
            .await?;
    plan_query(&description, mode)?;
    Ok(transaction.rollback().await?)
}

async fn explain_description(
    transaction: &mut Transaction<'_>,
    description: &QueryDescription,
    id: i64,
    mode: Mode,
) -> Result<Explanation, ViewsError> {
    let has_other_owner = views_role::runs_as_views_role(transaction).await?;
    check_functions(description, has_other_owner)?;
    let plan = plan_query(description, mode)?;
    transaction.batch_execute(SEARCH_PATH).await?;
    let materialized_view = build(transaction, id, plan, description, id == NO_VIEW).await?;
    let tables: Vec<ReadTable> = description
        .tables
        .iter()
        .map(|table| ReadTable {
            name: table.full_name(),
            oid: table.view.is_none().then_some(table.oid),
        })
        .collect();
    let advice = match mode {
        Mode::Full => Vec::new(),
        _ => advise_tables(transaction, &materialized_view, &tables).await?,
    };
    let columns = description.columns.iter();
    let reads = description.tables.iter();
    Ok(Explanation {
        definition: description.canonical.clone(),
        columns: columns.map(|column| (column.name.clone(), column.sql_type.clone())).collect(),
        reads: reads.map(|table| table.full_name()).collect(),
        stages: explain_stages(&materialized_view, description, id),
        advice,
    })
}

fn explain_stages(
    materialized_view: &MaterializedView,
    description: &QueryDescription,
    id: i64,
) -> Vec<StageExplanation> {
    let mut sources = materialized_view.sources.clone();
    for table_index in 0..description.tables.len() {
        if let Some(source) = sources.get_mut(&Source::Table(table_index)) {
            source.changes = Some(format!("egret_changes_{table_index}"));
        }
    }
    let mut explanations = Vec::new();
    for (stage_index, stage) in materialized_view.stages.iter().enumerate() {
        let is_read = materialized_view.stages[stage_index + 1..]
            .iter()
            .any(|later| later.input.sources().contains(&Source::Stage(stage_index)));
        let sink = is_read.then(|| sink_table(id, stage_index));
        let statement = stage.apply(&materialized_view.types, &sources, sink.as_deref(), None);
        if let Some(source) = sources.get_mut(&Source::Stage(stage_index)) {
            source.changes = sink;
        }
        let source_name = |source: Source| match source {
            Source::Table(at) => match description.tables.get(at) {
                Some(table) => table.full_name(),
                None => "the whole query".to_owned(),
            },
            Source::Stage(at) => format!("stage {}", at + 1),
            Source::Recursion => "this stage".to_owned(),
        };
        let sql = if materialized_view.is_full_only {
            stage.rebuild(&materialized_view.types, &sources, None).to_sql(&[])
        } else {
            statement.map_or_else(String::new, |statement| statement.to_sql(&[]))
        };
        explanations.push(StageExplanation {
            table: stage.table().name.clone(),
            operators: render_operators(&stage.input, &source_name),
            column_maintenance: describe_contents(&stage.storage, materialized_view.is_full_only),
            sql,
        });
    }
    explanations
}

/// Executes a statement of a refresh by EXPLAIN ANALYZE, with the rights of an owner or of this
/// session. Returns the lines of its plan.
pub(crate) async fn explain_statement(
    client: &Client,
    owner: Option<&str>,
    sql: &str,
    frontier: Frontier<'_>,
) -> Result<Vec<String>, ViewsError> {
    let rows = match owner {
        // As it is done: with a plan that is made for any frontier.
        None => {
            let prepare = format!("PREPARE egret_explained (text, text) AS {sql}");
            client.batch_execute(&prepare).await?;
            let snapshot = escape_literal(frontier.snapshot);
            let clock = frontier.clock.map_or("NULL".to_owned(), escape_literal);
            let explain = format!("{EXPLAIN} EXECUTE egret_explained ({snapshot}, {clock})");
            let rows = client.query(&explain, &[]).await?;
            client.batch_execute(DEALLOCATE).await?;
            rows
        }
        Some(owner) => {
            execute_unless_empty(client, &owner_functions::create_explainer(owner)).await?;
            let explain = format!("{EXPLAIN} {sql}");
            client
                .query(
                    owner_functions::call_explainer(owner),
                    &[&explain, &frontier.snapshot, &frontier.clock],
                )
                .await?
        }
    };
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// Removes the prepared statement that was explained.
pub(crate) const DEALLOCATE: &str = "DEALLOCATE egret_explained";

/// EXPLAIN with actual figures, buffers and changed settings.
const EXPLAIN: &str = "EXPLAIN (ANALYZE, BUFFERS, SETTINGS)";

fn describe_contents(storage: &StageStorage, is_whole: bool) -> Vec<String> {
    match storage {
        StageStorage::Rows(_) if is_whole => {
            vec![
                "rows, each distinct one stored once with a count; recomputed as a whole each \
                 time"
                    .to_owned(),
            ]
        }
        StageStorage::Rows(rows) => vec![match &rows.key {
            Some(_) => "rows, identified by their key".to_owned(),
            None => "rows, each distinct one stored once with a count".to_owned(),
        }],
        StageStorage::Groups(groups) => {
            let mut lines = vec![match groups.keys.len() {
                0 => "one group of all rows".to_owned(),
                keys => format!("groups by {keys} keys, with their row counts"),
            }];
            for (aggregate, maintenance) in &groups.aggregates {
                let call = aggregate.call.display_text();
                lines.push(match maintenance {
                    AggregateMaintenance::Recomputed => {
                        format!("{call}: recomputed for changed groups")
                    }
                    _ => format!("{call}: updated incrementally"),
                });
            }
            lines
        }
        StageStorage::TopK(top) => vec![format!(
            "the first {} rows of an order, and up to {} more",
            top.rows_min,
            top.fill_rows() - top.rows_min
        )],
        StageStorage::Recursion(recursion) => vec![recursion.describe_maintenance().to_owned()],
        StageStorage::Partitions(partitions) => {
            let keys = partitions.keys.len();
            let mut all = vec![match keys {
                0 => "rows of one partition, recomputed on each change".to_owned(),
                _ => {
                    format!("rows of partitions by {keys} keys, recomputed for changed partitions")
                }
            }];
            let windows = partitions.windows.iter();
            all.extend(
                windows.map(|(_, call)| format!("{}: over its partition", call.display_text())),
            );
            all
        }
    }
}
