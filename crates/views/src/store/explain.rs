//! Explains how a query is maintained, in words and in SQL.

use egret_postgres::tokio_postgres::{Client, Transaction};
use postgres_protocol::escape::escape_literal;

use super::advice::{ReadTable, advice};
use super::build::build;
use super::describe::describe;
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
use crate::core::display::operators;
use crate::core::maintain::AggregateMaintenance;
use crate::core::tree::Source;
use crate::error::ViewsError;
use crate::model::{Explanation, Mode, ReadableViews, StageExplanation};

/// Number of a view that is only built to be explained.
const NOBODY: i64 = 0;

/// Explains the view that a query would make. Nothing of it remains.
///
/// # Errors
/// [`ViewsError`]: why there can be none that is maintained incrementally.
pub async fn of_query(
    client: &mut Client,
    query: &str,
    views: &ReadableViews,
) -> Result<Explanation, ViewsError> {
    let mut transaction = client.transaction().await?;
    let described =
        describe_readable(&mut transaction, query, NameResolution::Typed, views).await?;
    let explained = explain_query(&mut transaction, &described, NOBODY, Mode::Incremental).await;
    let explanation = explained.map_err(|error| error.located(&described.canonical, query))?;
    transaction.rollback().await?;
    Ok(explanation)
}

/// Explains how a view is maintained.
pub(crate) async fn of_view(
    client: &mut Client,
    view: &Refreshable,
) -> Result<Explanation, ViewsError> {
    let mut transaction = client.transaction().await?;
    view.record.apply_settings(&transaction).await?;
    let described = describe(
        &mut transaction,
        &view.record.definition,
        NameResolution::OfSession,
    )
    .await?;
    let (id, mode) = (view.record.id, view.record.mode);
    let explanation = explain_query(&mut transaction, &described, id, mode).await?;
    transaction.rollback().await?;
    Ok(explanation)
}

/// Refuses a mode in which a view cannot be maintained.
///
/// # Errors
/// [`ViewsError::Refused`].
pub(crate) async fn check_mode(
    client: &mut Client,
    record: &Record,
    mode: Mode,
) -> Result<(), ViewsError> {
    let mut transaction = client.transaction().await?;
    record.apply_settings(&transaction).await?;
    let described = describe(
        &mut transaction,
        &record.definition,
        NameResolution::OfSession,
    )
    .await?;
    plan_query(&described, mode)?;
    Ok(transaction.rollback().await?)
}

async fn explain_query(
    transaction: &mut Transaction<'_>,
    described: &QueryDescription,
    id: i64,
    mode: Mode,
) -> Result<Explanation, ViewsError> {
    let is_of_another = views_role::runs_as_views(transaction).await?;
    check_functions(described, is_of_another)?;
    let plan = plan_query(described, mode)?;
    transaction.batch_execute(SEARCH_PATH).await?;
    let built = build(transaction, id, plan, described, id == NOBODY).await?;
    let tables: Vec<ReadTable> = described
        .tables
        .iter()
        .map(|table| ReadTable {
            name: table.full_name(),
            oid: table.view.is_none().then_some(table.oid),
        })
        .collect();
    let advice = match mode {
        Mode::Full => Vec::new(),
        _ => advice(transaction, &built, &tables).await?,
    };
    let columns = described.columns.iter();
    let reads = described.tables.iter();
    Ok(Explanation {
        definition: described.canonical.clone(),
        columns: columns
            .map(|column| (column.name.clone(), column.sql_type.clone()))
            .collect(),
        reads: reads.map(|table| table.full_name()).collect(),
        stages: explain_stages(&built, described, id),
        advice,
    })
}

fn explain_stages(
    built: &MaterializedView,
    described: &QueryDescription,
    id: i64,
) -> Vec<StageExplanation> {
    let mut sources = built.sources.clone();
    for at in 0..described.tables.len() {
        if let Some(source) = sources.get_mut(&Source::Table(at)) {
            source.changes = Some(format!("egret_changes_{at}"));
        }
    }
    let mut all = Vec::new();
    for (at, stage) in built.stages.iter().enumerate() {
        let is_read = built.stages[at + 1..]
            .iter()
            .any(|later| later.input.sources().contains(&Source::Stage(at)));
        let sink = is_read.then(|| sink_table(id, at));
        let statement = stage.apply(&built.types, &sources, sink.as_deref(), None);
        if let Some(source) = sources.get_mut(&Source::Stage(at)) {
            source.changes = sink;
        }
        let name = |source: Source| match source {
            Source::Table(at) => match described.tables.get(at) {
                Some(table) => table.full_name(),
                None => "the whole query".to_owned(),
            },
            Source::Stage(at) => format!("stage {}", at + 1),
            Source::Itself => "this stage".to_owned(),
        };
        let sql = if built.is_whole {
            stage.rebuild(&built.types, &sources, None).sql(&[])
        } else {
            statement.map_or_else(String::new, |statement| statement.sql(&[]))
        };
        all.push(StageExplanation {
            table: stage.table().name.clone(),
            operators: operators(&stage.input, &name),
            keeps: describe_contents(&stage.storage, built.is_whole),
            sql,
        });
    }
    all
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
                    owner_functions::explain(owner),
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

fn describe_contents(kept: &StageStorage, is_whole: bool) -> Vec<String> {
    match kept {
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
            let mut all = vec![match groups.keys.len() {
                0 => "one group of all rows".to_owned(),
                keys => format!("groups by {keys} keys, with their row counts"),
            }];
            for (aggregate, carried) in &groups.aggregates {
                let call = aggregate.call.shown();
                all.push(match carried {
                    AggregateMaintenance::Asked => {
                        format!("{call}: recomputed for changed groups")
                    }
                    _ => format!("{call}: updated incrementally"),
                });
            }
            all
        }
        StageStorage::Top(top) => vec![format!(
            "the first {} rows of an order, and up to {} more",
            top.wanted,
            top.filled() - top.wanted
        )],
        StageStorage::Recursion(recursion) => vec![recursion.keeps().to_owned()],
        StageStorage::Partitions(partitions) => {
            let keys = partitions.keys.len();
            let mut all = vec![match keys {
                0 => "rows of one partition, recomputed on each change".to_owned(),
                _ => {
                    format!("rows of partitions by {keys} keys, recomputed for changed partitions")
                }
            }];
            let windows = partitions.windows.iter();
            all.extend(windows.map(|(_, call)| format!("{}: over its partition", call.shown())));
            all
        }
    }
}
