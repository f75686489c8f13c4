//! Creates the tables of a view, stage by stage: the server finds the types of a stage once the
//! tables of earlier stages exist.

use std::collections::{BTreeMap, BTreeSet};

use egret_postgres::tokio_postgres::Transaction;

use super::describe::describe_columns;
use super::materialized_view::{MaterializedView, sink_table, stage_table};
use super::planned_view::PlannedView;
use super::query_description::{Column, QueryDescription, SourceTable};
use super::unions::align_types;
use crate::core::column_types::{ColumnType, Types, declared_type};
use crate::core::compile::{
    CompiledStage, collect_nullable, compile_stage, copied_column_type,
    replace_keys_without_equality, type_probe, type_probes,
};
use crate::core::expression::{ColumnId, Expression, parse_stage_column, stage_column_name};
use crate::core::maintain::recursion_side;
use crate::core::scales::{Scales, add_scales};
use crate::core::sql::{SourceSql, WEIGHT};
use crate::core::tree::{Node, Source, Stage, StageContents};
use crate::error::ViewsError;

/// Finds the types of a plan's columns, and creates the tables of its stages if `makes_tables`.
pub async fn build(
    transaction: &mut Transaction<'_>,
    view: i64,
    planned: PlannedView,
    description: &QueryDescription,
    makes_tables: bool,
) -> Result<MaterializedView, ViewsError> {
    let PlannedView { plan, keys, is_full_only: is_whole, has_clock } = planned;
    let table_rows = description.tables.iter().map(SourceTable::rows_sql);
    let query = is_whole.then(|| format!("({})", description.canonical));
    let mut sources: BTreeMap<Source, SourceSql> = BTreeMap::new();
    for (table_index, rows) in table_rows.chain(query).enumerate() {
        let source = SourceSql {
            rows,
            changes: None,
            expected_changes: 0,
            is_consolidated: false,
            count_column: None,
        };
        sources.insert(Source::Table(table_index), source);
    }
    let mut types = Types::new();
    let mut scales = Scales::new();
    let mut stages: Vec<CompiledStage> = Vec::new();
    for (stage_index, (mut stage, key)) in plan.stages.into_iter().zip(keys).enumerate() {
        cast_nulls(&mut stage.input, &plan.typed_like, &types);
        if let StageContents::Recursion { .. } = &stage.contents {
            let recursion = recursion_source(transaction, &stage.input, &sources).await?;
            sources.insert(Source::Recursion, recursion);
        }
        align_types(transaction, &mut stage.input, &sources).await?;
        add_scan_types(&stage.input, description, &mut types);
        replace_keys_without_equality(&mut stage.contents, &types);
        let arguments = add_stage_types(transaction, &stage, &sources, &mut types).await?;
        sources.remove(&Source::Recursion);
        check_comparable(&stage.contents, &plan.lookup_keys, &types)?;
        let name = stage_table(view, stage_index);
        add_scales(&stage, &mut types, &mut scales);
        let compiled = compile_stage(&name, stage, key, &arguments, &scales, &types);
        if makes_tables {
            for statement in compiled.table().create_statements() {
                transaction.batch_execute(&statement).await?;
            }
            let sink = create_sink(view, stage_index, &compiled, &types);
            transaction.batch_execute(&sink).await?;
        }
        let source = SourceSql {
            rows: name,
            changes: None,
            expected_changes: 0,
            is_consolidated: false,
            count_column: compiled.count_column(),
        };
        sources.insert(Source::Stage(stage_index), source);
        stages.push(compiled);
    }
    Ok(MaterializedView {
        stages,
        types,
        presentation: plan.presentation,
        sources,
        is_full_only: is_whole,
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
    let mut first_side = recursion_side(input, 0);
    align_types(transaction, &mut first_side, sources).await?;
    let column_ids = input.columns();
    let described_columns =
        describe_columns(transaction, &type_probe(&first_side, &column_ids, sources)).await?;
    let nulls: Vec<String> = described_columns
        .iter()
        .zip(&column_ids)
        .map(|(column, id)| {
            let collation: String =
                column.collation.iter().map(|name| format!(" COLLATE {name}")).collect();
            format!("NULL::{}{collation} AS {}", column.sql_type, stage_column_name(*id))
        })
        .collect();
    Ok(SourceSql {
        rows: format!("(SELECT {})", nulls.join(", ")),
        changes: None,
        expected_changes: 0,
        is_consolidated: false,
        count_column: None,
    })
}

/// Casts null columns to the types of the columns that they stand for.
fn cast_nulls(node: &mut Node, typed_like: &[(ColumnId, ColumnId)], types: &Types) {
    if let Node::Project { columns, .. } = node {
        for (id, expression) in columns {
            let pair = typed_like.iter().find(|(null, _)| null == id);
            if let Some(column_type) = pair.and_then(|(_, like)| types.get(like)) {
                *expression = Expression::constant("NULL").cast(&column_type.sql);
            }
        }
    }
    for input in node.inputs_mut() {
        cast_nulls(input, typed_like, types);
    }
}

/// Refuses subqueries that are looked up by columns without an equality or a hash.
fn check_comparable(
    contents: &StageContents,
    compared: &[(ColumnId, bool)],
    types: &Types,
) -> Result<(), ViewsError> {
    let columns = contents.columns();
    let mut compared = compared.iter().filter(|(id, _)| columns.contains(id));
    if compared.all(|(id, is_hashed)| {
        let column_type = types.get(id);
        column_type.is_some_and(|kind| kind.equality.is_some() && (kind.has_hash || !is_hashed))
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
    let columns = compiled.visible_columns().into_iter();
    let list: String = columns
        .map(|id| format!("{} {}, ", stage_column_name(id), declared_type(types, id)))
        .collect();
    let name = sink_table(view, stage);
    format!("CREATE UNLOGGED TABLE {name} ({list}{WEIGHT} bigint)")
}

/// The types of the columns that a node scans.
fn add_scan_types(node: &Node, description: &QueryDescription, types: &mut Types) {
    let mut scans = Vec::new();
    node.collect_scans(&mut scans);
    for (source, columns) in scans {
        let Source::Table(table_index) = source else {
            for (id, name) in columns {
                let original = parse_stage_column(name).filter(|kept| kept != id);
                if let Some(column_type) = original.and_then(|kept| types.get(&kept)).cloned() {
                    types.insert(*id, column_type);
                }
            }
            continue;
        };
        let table = description.tables.get(table_index);
        let table_columns = table.map_or(&description.columns, |table| &table.columns);
        for (id, name) in columns {
            let matching = table_columns.iter().find(|column| column.name == *name);
            if let Some(column) = matching {
                types.insert(*id, type_of(column));
            }
        }
    }
}

/// Adds the types of a stage's columns. Returns those of its aggregates' arguments, by column.
async fn add_stage_types(
    transaction: &mut Transaction<'_>,
    stage: &Stage,
    sources: &BTreeMap<Source, SourceSql>,
    types: &mut Types,
) -> Result<Types, ViewsError> {
    let mut may_be_null = BTreeSet::new();
    collect_nullable(&stage.input, &mut may_be_null);
    for id in &may_be_null {
        if let Some(column_type) = types.get_mut(id) {
            column_type.is_not_null = false;
        }
    }
    let (rows_probe, groups_probe) = type_probes(stage, sources);
    let mut probed_types = probe_types(transaction, &rows_probe).await?;
    match &stage.contents {
        StageContents::Rows { .. }
        | StageContents::Partitions { .. }
        | StageContents::TopK { .. }
        | StageContents::Recursion { .. } => {
            for (id, found) in probed_types {
                types.entry(id).or_insert(found);
            }
            Ok(Types::new())
        }
        StageContents::Groups { keys, aggregates } => {
            for (id, key) in keys {
                let copied_type = copied_column_type(key, types);
                if let Some(found) = copied_type.or_else(|| probed_types.remove(id)) {
                    types.insert(*id, found);
                }
            }
            let calls = groups_probe.unwrap_or_default();
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
            Ok(probed_types)
        }
    }
}

async fn probe_types(transaction: &mut Transaction<'_>, sql: &str) -> Result<Types, ViewsError> {
    let columns = describe_columns(transaction, sql).await?;
    let typed = columns
        .iter()
        .filter_map(|column| Some((parse_stage_column(&column.name)?, type_of(column))));
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
