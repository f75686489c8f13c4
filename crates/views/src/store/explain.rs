//! How a query is kept fresh, in words and in SQL.

use egret_postgres::tokio_postgres::{Client, Transaction};
use postgres_protocol::escape::escape_literal;

use super::advice::{ReadTable, advice};
use super::apply::execute_unless_empty;
use super::build::{Built, build, sink_table};
use super::create::SEARCH_PATH;
use super::describe::{Described, Names, describe};
use super::load::{check_functions, planned};
use super::readable::describe_readable;
use super::refresh::Refreshable;
use super::registry::Record;
use super::rights;
use super::standing::Frontier;
use crate::core::compile::Kept;
use crate::core::maintain::Carried;
use crate::core::show::operators;
use crate::core::tree::Source;
use crate::error::ViewsError;
use crate::model::{Explanation, Mode, ReadableViews, StageExplanation};

/// The number under which a view is made that is never there.
const NOBODY: i64 = 0;

/// What a view of a query would be. Nothing is left of it.
///
/// # Errors
/// [`ViewsError`]: why there can be none that is maintained incrementally.
pub async fn of_query(
    client: &mut Client,
    query: &str,
    views: &ReadableViews,
) -> Result<Explanation, ViewsError> {
    let mut transaction = client.transaction().await?;
    let described = describe_readable(&mut transaction, (query, Names::Typed), views).await?;
    let explained = explained(&mut transaction, &described, (NOBODY, Mode::Incremental)).await;
    let explanation = explained.map_err(|error| error.located(&described.canonical, query))?;
    transaction.rollback().await?;
    Ok(explanation)
}

/// How a view is kept fresh.
///
/// # Errors
/// What the server says.
pub async fn of_view(client: &mut Client, view: &Refreshable) -> Result<Explanation, ViewsError> {
    let mut transaction = client.transaction().await?;
    view.record.apply_settings(&transaction).await?;
    let described = describe(&mut transaction, &view.record.definition, Names::OfSession).await?;
    let whose = (view.record.id, view.record.mode);
    let explanation = explained(&mut transaction, &described, whose).await?;
    transaction.rollback().await?;
    Ok(explanation)
}

/// Refuses a mode in which a view cannot be maintained.
///
/// # Errors
/// [`ViewsError::Refused`].
pub async fn check_mode(
    client: &mut Client,
    record: &Record,
    mode: Mode,
) -> Result<(), ViewsError> {
    let mut transaction = client.transaction().await?;
    record.apply_settings(&transaction).await?;
    let described = describe(&mut transaction, &record.definition, Names::OfSession).await?;
    planned(&described, mode)?;
    Ok(transaction.rollback().await?)
}

async fn explained(
    transaction: &mut Transaction<'_>,
    described: &Described,
    (id, mode): (i64, Mode),
) -> Result<Explanation, ViewsError> {
    let is_of_another = rights::runs_as_views(transaction).await?;
    check_functions(described, is_of_another)?;
    let planned = planned(described, mode)?;
    transaction.batch_execute(SEARCH_PATH).await?;
    let built = build(transaction, id, planned, described, id == NOBODY).await?;
    let tables = described.tables.iter().map(|table| ReadTable {
        name: table.full_name(),
        oid: table.kept.is_none().then_some(table.oid),
    });
    let tables: Vec<ReadTable> = tables.collect();
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
        stages: stages(&built, described, id),
        advice,
    })
}

fn stages(built: &Built, described: &Described, id: i64) -> Vec<StageExplanation> {
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
        let statement = stage.apply(&built.types, &sources, (sink.as_deref(), None));
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
        let sql = match built.is_whole {
            true => stage.rebuild(&built.types, &sources, None).sql(&[]),
            false => statement.map_or_else(String::new, |statement| statement.sql(&[])),
        };
        all.push(StageExplanation {
            table: stage.table().name.clone(),
            operators: operators(&stage.input, &name),
            keeps: keeps(&stage.kept, built.is_whole),
            sql,
        });
    }
    all
}

/// The plan of a statement of a refresh, line by line, with what it came to when it was done now: with the rights of an owner, or of this
/// session.
///
/// # Errors
/// What the server says.
pub async fn explained_now(
    client: &Client,
    owner: Option<&str>,
    (sql, frontier): (&str, Frontier<'_>),
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
            execute_unless_empty(client, &rights::make_explainer(owner)).await?;
            let explain = format!("{EXPLAIN} {sql}");
            client
                .query(
                    rights::explain(owner),
                    &[&explain, &frontier.snapshot, &frontier.clock],
                )
                .await?
        }
    };
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// Forgets the statement that was explained.
pub const DEALLOCATE: &str = "DEALLOCATE egret_explained";

/// What it is asked for.
const EXPLAIN: &str = "EXPLAIN (ANALYZE, BUFFERS, SETTINGS)";

fn keeps(kept: &Kept, is_whole: bool) -> Vec<String> {
    match kept {
        Kept::Rows(_) if is_whole => {
            vec![
                "rows, each different one once with a count; computed as a whole each time"
                    .to_owned(),
            ]
        }
        Kept::Rows(rows) => vec![match &rows.key {
            Some(_) => "rows, told apart by their key".to_owned(),
            None => "rows, each different one once with a count".to_owned(),
        }],
        Kept::Groups(groups) => {
            let mut all = vec![match groups.keys.len() {
                0 => "one group of all rows".to_owned(),
                keys => format!("groups by {keys} keys, with their numbers of rows"),
            }];
            for (aggregate, carried) in &groups.aggregates {
                let call = aggregate.call.shown();
                all.push(match carried {
                    Carried::Asked => {
                        format!("{call}: asked again, of groups in which something changed")
                    }
                    _ => format!("{call}: carried on by what changed"),
                });
            }
            all
        }
        Kept::Top(top) => vec![format!(
            "the first {} rows of an order, and up to {} more",
            top.wanted,
            top.filled() - top.wanted
        )],
        Kept::Recursion(recursion) => vec![recursion.keeps().to_owned()],
        Kept::Partitions(partitions) => {
            let keys = partitions.keys.len();
            let mut all = vec![match keys {
                0 => "rows of one partition, computed anew when something changes".to_owned(),
                _ => format!(
                    "rows of partitions by {keys} keys, computed anew where something changed"
                ),
            }];
            let windows = partitions.windows.iter();
            all.extend(windows.map(|(_, call)| format!("{}: over its partition", call.shown())));
            all
        }
    }
}
