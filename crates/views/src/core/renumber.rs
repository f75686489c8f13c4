//! Renumbers the columns of a plan consecutively, leaving out unused ones.
//!
//! Analysis numbers all columns of a query's tables, used or not, and columns of stage tables are
//! named by these numbers. Without renumbering, an added column of a source would change the
//! definition of the view's storage.

use std::collections::BTreeMap;

use super::expression::{ColumnId, Expression, parse_stage_column, stage_column_name};
use super::tree::{Node, Plan, Source, StageContents};

/// Renumbers the columns of a plan from 1: first those that stages store, then the others. `keys`
/// is renumbered likewise.
pub fn renumber(plan: &mut Plan, keys: &mut [Option<Vec<ColumnId>>]) {
    let stored_columns = plan.stages.iter().flat_map(|stage| stage.contents.columns());
    let mut used: Vec<ColumnId> = stored_columns.collect();
    visit_columns(plan, &mut |id| used.push(*id));
    let mut renumbered = BTreeMap::new();
    for id in used {
        let next =
            u32::try_from(renumbered.len() + 1).expect("the columns already have such numbers");
        renumbered.entry(id).or_insert(ColumnId(next));
    }
    let mut rename = |id: &mut ColumnId| *id = renumbered[id];
    visit_columns(plan, &mut rename);
    keys.iter_mut().flatten().flatten().for_each(rename);
}

/// Copies a node with new column ids, so that it can be joined with the original. Also returns the
/// new id of each old one.
pub(crate) fn with_new_columns(
    node: &Node,
    mut next: impl FnMut() -> ColumnId,
) -> (Node, BTreeMap<ColumnId, ColumnId>) {
    let mut node = node.clone();
    let mut renamed = BTreeMap::new();
    let mut rename = |id: &mut ColumnId| *id = *renamed.entry(*id).or_insert_with(&mut next);
    visit_node_columns(&mut node, &mut rename, false);
    (node, renamed)
}

type ColumnVisitor<'a> = dyn FnMut(&mut ColumnId) + 'a;

/// Calls `visitor` for every column id in a plan.
fn visit_columns(plan: &mut Plan, visitor: &mut ColumnVisitor<'_>) {
    for stage in &mut plan.stages {
        visit_node_columns(&mut stage.input, visitor, true);
        match &mut stage.contents {
            StageContents::Rows { columns } | StageContents::Recursion { columns, .. } => {
                columns.iter_mut().for_each(&mut *visitor)
            }
            StageContents::TopK { order, columns, .. } => {
                let order = order.iter_mut().map(|(id, _)| id);
                order.chain(columns).for_each(&mut *visitor);
            }
            StageContents::Partitions { partition_columns: by, windows, filter, columns } => {
                by.iter_mut().chain(columns).for_each(&mut *visitor);
                for (id, call) in windows {
                    visitor(id);
                    visit_expression_columns(call, visitor);
                }
                filter.iter_mut().for_each(|one| visit_expression_columns(one, visitor));
            }
            StageContents::Groups { keys, aggregates } => {
                for (id, key) in keys {
                    visitor(id);
                    visit_expression_columns(key, visitor);
                }
                for aggregate in aggregates {
                    visitor(&mut aggregate.column);
                    visit_expression_columns(&mut aggregate.call, visitor);
                    let others = aggregate.argument.iter_mut().chain(&mut aggregate.filter);
                    others.for_each(|expression| visit_expression_columns(expression, visitor));
                }
            }
        }
    }
    visit_node_columns(&mut plan.presentation.node, visitor, true);
    for (_, id) in &mut plan.presentation.columns {
        visitor(id);
    }
    for (id, _) in &mut plan.presentation.order {
        visitor(id);
    }
    // Columns that are not read are left out.
    plan.lookup_keys.iter_mut().for_each(|(id, _)| visitor(id));
    for (id, like) in &mut plan.typed_like {
        visitor(id);
        visitor(like);
    }
}

/// Calls `visitor` for every column id in a node; with `includes_stored`, also for the ids in the
/// names of stage columns.
fn visit_node_columns(node: &mut Node, visitor: &mut ColumnVisitor<'_>, includes_stored: bool) {
    match node {
        Node::Unit => {}
        Node::Scan { source, columns } => {
            for (id, name) in columns {
                visitor(id);
                let is_stored = includes_stored && !matches!(source, Source::Table(_));
                if let Some(mut stored) = parse_stage_column(name).filter(|_| is_stored) {
                    visitor(&mut stored);
                    *name = stage_column_name(stored);
                }
            }
        }
        Node::Filter { input, condition } => {
            visit_node_columns(input, visitor, includes_stored);
            visit_expression_columns(condition, visitor);
        }
        Node::TemporalFilter { input, clock, condition, predicates: moments } => {
            visit_node_columns(input, visitor, includes_stored);
            visitor(clock);
            visit_expression_columns(condition, visitor);
            for moment in moments {
                visit_expression_columns(&mut moment.value, visitor);
                visit_expression_columns(&mut moment.clock, visitor);
            }
        }
        Node::Project { input, columns } => {
            visit_node_columns(input, visitor, includes_stored);
            for (id, expression) in columns {
                visitor(id);
                visit_expression_columns(expression, visitor);
            }
        }
        Node::FlatMap { input, call, columns, outer_condition: or_nulls } => {
            visit_node_columns(input, visitor, includes_stored);
            visit_expression_columns(call, visitor);
            columns.iter_mut().for_each(|(id, _)| visitor(id));
            or_nulls.iter_mut().for_each(|one| visit_expression_columns(one, visitor));
        }
        Node::Join { left, right, condition, .. } => {
            visit_node_columns(left, visitor, includes_stored);
            visit_node_columns(right, visitor, includes_stored);
            visit_expression_columns(condition, visitor);
        }
        Node::UnionAll { inputs, columns } => {
            for (input, mapped) in inputs {
                visit_node_columns(input, visitor, includes_stored);
                mapped.iter_mut().for_each(&mut *visitor);
            }
            columns.iter_mut().for_each(visitor);
        }
    }
}

fn visit_expression_columns(expression: &mut Expression, visitor: &mut ColumnVisitor<'_>) {
    expression.columns_mut().for_each(visitor);
}
