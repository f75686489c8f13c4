//! Creates the tables of a view, stage by stage: the server finds the types of a stage once the
//! tables of earlier stages exist.

use std::collections::{BTreeMap, BTreeSet};

use egret_postgres::tokio_postgres::Transaction;

use super::describe::columns;
use super::materialized_view::{MaterializedView, sink_table, stage_table};
use super::planned_view::PlannedView;
use super::query_description::{Column, QueryDescription, SourceTable};
use super::unions::align_types;
use crate::core::column_types::{ColumnType, Types, declared};
use crate::core::compile::{
    CompiledStage, compile, copied, nullable, probe, probes, without_equality,
};
use crate::core::expression::{ColumnId, Expression, column_of_stage, stage_column};
use crate::core::maintain::side;
use crate::core::scales::{Scales, add_scales};
use crate::core::sql::{SourceSql, WEIGHT};
use crate::core::tree::{Node, Source, Stage, StageContents};
use crate::error::ViewsError;

/// Finds the types of a plan's columns, and creates the tables of its stages if `makes_tables`.
pub async fn build(
    transaction: &mut Transaction<'_>,
    view: i64,
    planned: PlannedView,
    described: &QueryDescription,
    makes_tables: bool,
) -> Result<MaterializedView, ViewsError> {
    let PlannedView {
        plan,
        keys,
        is_whole,
        has_clock,
    } = planned;
    let named = described.tables.iter().map(SourceTable::rows_sql);
    let query = is_whole.then(|| format!("({})", described.canonical));
    let mut sources: BTreeMap<Source, SourceSql> = BTreeMap::new();
    for (at, rows) in named.chain(query).enumerate() {
        let source = SourceSql {
            rows,
            changes: None,
            expected: 0,
            is_consolidated: false,
            count: None,
        };
        sources.insert(Source::Table(at), source);
    }
    let mut types = Types::new();
    let mut scales = Scales::new();
    let mut stages: Vec<CompiledStage> = Vec::new();
    for (at, (mut stage, key)) in plan.stages.into_iter().zip(keys).enumerate() {
        cast_nulls(&mut stage.input, &plan.typed, &types);
        if let StageContents::Recursion { .. } = &stage.contents {
            let itself = recursion_source(transaction, &stage.input, &sources).await?;
            sources.insert(Source::Itself, itself);
        }
        align_types(transaction, &mut stage.input, &sources).await?;
        scan_types(&stage.input, described, &mut types);
        without_equality(&mut stage.contents, &types);
        let arguments = stage_types(transaction, &stage, &sources, &mut types).await?;
        sources.remove(&Source::Itself);
        check_compared(&stage.contents, &plan.compared, &types)?;
        let name = stage_table(view, at);
        add_scales(&stage, &mut types, &mut scales);
        let compiled = compile(&name, stage, key, &arguments, &scales, &types);
        if makes_tables {
            for statement in compiled.table().create() {
                transaction.batch_execute(&statement).await?;
            }
            let sink = create_sink(view, at, &compiled, &types);
            transaction.batch_execute(&sink).await?;
        }
        let source = SourceSql {
            rows: name,
            changes: None,
            expected: 0,
            is_consolidated: false,
            count: compiled.count(),
        };
        sources.insert(Source::Stage(at), source);
        stages.push(compiled);
    }
    Ok(MaterializedView {
        stages,
        types,
        presentation: plan.presentation,
        sources,
        is_whole,
        has_clock,
    })
}

/// The source that stands for a recursion in its own query while the types of its columns are not
/// known: a row of nulls, with the types of its first side.
async fn recursion_source(
    transaction: &mut Transaction<'_>,
    input: &Node,
    sources: &BTreeMap<Source, SourceSql>,
) -> Result<SourceSql, ViewsError> {
    let mut first = side(input, 0);
    align_types(transaction, &mut first, sources).await?;
    let kept = input.columns();
    let found = columns(transaction, &probe(&first, &kept, sources)).await?;
    let nulls: Vec<String> = found
        .iter()
        .zip(&kept)
        .map(|(column, id)| {
            let collation: String = column
                .collation
                .iter()
                .map(|name| format!(" COLLATE {name}"))
                .collect();
            format!(
                "NULL::{}{collation} AS {}",
                column.sql_type,
                stage_column(*id)
            )
        })
        .collect();
    Ok(SourceSql {
        rows: format!("(SELECT {})", nulls.join(", ")),
        changes: None,
        expected: 0,
        is_consolidated: false,
        count: None,
    })
}

/// Casts null columns to the types of the columns that they stand for.
fn cast_nulls(node: &mut Node, like: &[(ColumnId, ColumnId)], types: &Types) {
    if let Node::Project { columns, .. } = node {
        for (id, expression) in columns {
            let of = like.iter().find(|(null, _)| null == id);
            if let Some(found) = of.and_then(|(_, like)| types.get(like)) {
                *expression = Expression::constant("NULL").cast(&found.sql);
            }
        }
    }
    for input in node.inputs_mut() {
        cast_nulls(input, like, types);
    }
}

/// Refuses subqueries that are looked up by columns without an equality or a hash.
fn check_compared(
    keeps: &StageContents,
    compared: &[(ColumnId, bool)],
    types: &Types,
) -> Result<(), ViewsError> {
    let columns = keeps.columns();
    let mut compared = compared.iter().filter(|(id, _)| columns.contains(id));
    if compared.all(|(id, is_hashed)| {
        let found = types.get(id);
        found.is_some_and(|kind| kind.equality.is_some() && (kind.has_hash || !is_hashed))
    }) {
        Ok(())
    } else {
        Err(ViewsError::Unsupported {
            what:
                "a subquery that is compared with outer rows by a type without an order or a hash"
                    .to_owned(),
            advice: "write it as a join".to_owned(),
        })
    }
}

/// The statement that creates the sink of a stage, which is empty except during a refresh.
fn create_sink(view: i64, stage: usize, compiled: &CompiledStage, types: &Types) -> String {
    let columns = compiled.seen().into_iter();
    let list: String = columns
        .map(|id| format!("{} {}, ", stage_column(id), declared(types, id)))
        .collect();
    let name = sink_table(view, stage);
    format!("CREATE UNLOGGED TABLE {name} ({list}{WEIGHT} bigint)")
}

/// The types of the columns that a node scans.
fn scan_types(node: &Node, described: &QueryDescription, types: &mut Types) {
    let mut scans = Vec::new();
    node.scans(&mut scans);
    for (source, columns) in scans {
        let Source::Table(at) = source else {
            for (id, name) in columns {
                let kept = column_of_stage(name).filter(|kept| kept != id);
                if let Some(found) = kept.and_then(|kept| types.get(&kept)).cloned() {
                    types.insert(*id, found);
                }
            }
            continue;
        };
        let table = described.tables.get(at);
        let known = table.map_or(&described.columns, |table| &table.columns);
        for (id, name) in columns {
            let found = known.iter().find(|column| column.name == *name);
            if let Some(column) = found {
                types.insert(*id, type_of(column));
            }
        }
    }
}

/// Adds the types of a stage's columns. Returns those of its aggregates' arguments, by column.
async fn stage_types(
    transaction: &mut Transaction<'_>,
    stage: &Stage,
    sources: &BTreeMap<Source, SourceSql>,
    types: &mut Types,
) -> Result<Types, ViewsError> {
    let mut may_be_null = BTreeSet::new();
    nullable(&stage.input, &mut may_be_null);
    for id in &may_be_null {
        if let Some(found) = types.get_mut(id) {
            found.is_not_null = false;
        }
    }
    let (of_rows, of_groups) = probes(stage, sources);
    let mut found = probe_types(transaction, &of_rows).await?;
    match &stage.contents {
        StageContents::Rows { .. }
        | StageContents::Partitions { .. }
        | StageContents::Top { .. }
        | StageContents::Recursion { .. } => {
            for (id, found) in found {
                types.entry(id).or_insert(found);
            }
            Ok(Types::new())
        }
        StageContents::Groups { keys, aggregates } => {
            for (id, key) in keys {
                let of_column = copied(key, types);
                if let Some(found) = of_column.or_else(|| found.remove(id)) {
                    types.insert(*id, found);
                }
            }
            let calls = of_groups.unwrap_or_default();
            let mut results = if aggregates.is_empty() {
                Types::new()
            } else {
                probe_types(transaction, &calls).await?
            };
            for aggregate in aggregates {
                if let Some(found) = results.remove(&aggregate.column) {
                    types.insert(aggregate.column, found);
                }
            }
            Ok(found)
        }
    }
}

async fn probe_types(transaction: &mut Transaction<'_>, sql: &str) -> Result<Types, ViewsError> {
    let columns = columns(transaction, sql).await?;
    let typed = columns
        .iter()
        .filter_map(|column| Some((column_of_stage(&column.name)?, type_of(column))));
    Ok(typed.collect())
}

fn type_of(column: &Column) -> ColumnType {
    ColumnType {
        sql: column.sql_type.clone(),
        collation: column.collation.clone(),
        equality: column.equality.clone(),
        has_hash: column.has_hash,
        is_exact: column.is_exact,
        is_not_null: column.is_not_null,
    }
}
