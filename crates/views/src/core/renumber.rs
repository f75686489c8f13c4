//! Renumbers the columns of a plan consecutively, leaving out unused ones.
//!
//! Analysis numbers all columns of a query's tables, used or not, and columns of stage tables are
//! named by these numbers. Without renumbering, an added column of a source would change the
//! definition of the view's storage.

use std::collections::BTreeMap;

use super::expression::{ColumnId, Expression, column_of_stage, stage_column};
use super::tree::{Node, Plan, Source, StageContents};

/// Renumbers the columns of a plan from 1: first those that stages store, then the others. `keys`
/// is renumbered likewise.
pub fn renumber(plan: &mut Plan, keys: &mut [Option<Vec<ColumnId>>]) {
    let kept = plan
        .stages
        .iter()
        .flat_map(|stage| stage.contents.columns());
    let mut used: Vec<ColumnId> = kept.collect();
    visit(plan, &mut |id| used.push(*id));
    let mut to = BTreeMap::new();
    for id in used {
        let next = u32::try_from(to.len() + 1).expect("the columns already have such numbers");
        to.entry(id).or_insert(ColumnId(next));
    }
    let mut rename = |id: &mut ColumnId| *id = to[id];
    visit(plan, &mut rename);
    keys.iter_mut().flatten().flatten().for_each(rename);
}

/// Copies a node with new column ids, so that it can be joined with the original. Also returns the
/// new id of each old one.
pub(crate) fn afresh(
    node: &Node,
    mut next: impl FnMut() -> ColumnId,
) -> (Node, BTreeMap<ColumnId, ColumnId>) {
    let mut node = node.clone();
    let mut to = BTreeMap::new();
    let mut rename = |id: &mut ColumnId| *id = *to.entry(*id).or_insert_with(&mut next);
    visit_node(&mut node, &mut rename, false);
    (node, to)
}

type Each<'a> = dyn FnMut(&mut ColumnId) + 'a;

/// Calls `each` for every column id in a plan.
fn visit(plan: &mut Plan, each: &mut Each<'_>) {
    for stage in &mut plan.stages {
        visit_node(&mut stage.input, each, true);
        match &mut stage.contents {
            StageContents::Rows { columns } | StageContents::Recursion { columns, .. } => {
                columns.iter_mut().for_each(&mut *each)
            }
            StageContents::Top { order, columns, .. } => {
                let order = order.iter_mut().map(|(id, _)| id);
                order.chain(columns).for_each(&mut *each);
            }
            StageContents::Partitions {
                by,
                windows,
                filter,
                columns,
            } => {
                by.iter_mut().chain(columns).for_each(&mut *each);
                for (id, call) in windows {
                    each(id);
                    visit_expression(call, each);
                }
                filter
                    .iter_mut()
                    .for_each(|one| visit_expression(one, each));
            }
            StageContents::Groups { keys, aggregates } => {
                for (id, key) in keys {
                    each(id);
                    visit_expression(key, each);
                }
                for aggregate in aggregates {
                    each(&mut aggregate.column);
                    visit_expression(&mut aggregate.call, each);
                    let others = aggregate.argument.iter_mut().chain(&mut aggregate.filter);
                    others.for_each(|expression| visit_expression(expression, each));
                }
            }
        }
    }
    visit_node(&mut plan.presentation.node, each, true);
    for (_, id) in &mut plan.presentation.columns {
        each(id);
    }
    for (id, _) in &mut plan.presentation.order {
        each(id);
    }
    // Columns that are not read are left out.
    plan.compared.iter_mut().for_each(|(id, _)| each(id));
    for (id, like) in &mut plan.typed {
        each(id);
        each(like);
    }
}

/// Calls `each` for every column id in a node; with `of_stages`, also for the ids in the names of
/// stage columns.
fn visit_node(node: &mut Node, each: &mut Each<'_>, of_stages: bool) {
    match node {
        Node::Unit => {}
        Node::Scan { source, columns } => {
            for (id, name) in columns {
                each(id);
                let is_kept = of_stages && !matches!(source, Source::Table(_));
                if let Some(mut kept) = column_of_stage(name).filter(|_| is_kept) {
                    each(&mut kept);
                    *name = stage_column(kept);
                }
            }
        }
        Node::Filter { input, condition } => {
            visit_node(input, each, of_stages);
            visit_expression(condition, each);
        }
        Node::Recent {
            input,
            clock,
            condition,
            moments,
        } => {
            visit_node(input, each, of_stages);
            each(clock);
            visit_expression(condition, each);
            for moment in moments {
                visit_expression(&mut moment.value, each);
                visit_expression(&mut moment.clock, each);
            }
        }
        Node::Project { input, columns } => {
            visit_node(input, each, of_stages);
            for (id, expression) in columns {
                each(id);
                visit_expression(expression, each);
            }
        }
        Node::Expand {
            input,
            call,
            columns,
            or_nulls,
        } => {
            visit_node(input, each, of_stages);
            visit_expression(call, each);
            columns.iter_mut().for_each(|(id, _)| each(id));
            or_nulls
                .iter_mut()
                .for_each(|one| visit_expression(one, each));
        }
        Node::Join {
            left,
            right,
            condition,
            ..
        } => {
            visit_node(left, each, of_stages);
            visit_node(right, each, of_stages);
            visit_expression(condition, each);
        }
        Node::UnionAll { inputs, columns } => {
            for (input, mapped) in inputs {
                visit_node(input, each, of_stages);
                mapped.iter_mut().for_each(&mut *each);
            }
            columns.iter_mut().for_each(each);
        }
    }
}

fn visit_expression(expression: &mut Expression, each: &mut Each<'_>) {
    expression.columns_mut().for_each(each);
}
