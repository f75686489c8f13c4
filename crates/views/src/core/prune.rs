//! Removes the columns of a plan that nothing uses.

use std::collections::BTreeSet;

use super::expression::{ColumnId, Expression, parse_stage_column};
use super::tree::{Node, Plan, Source, StageContents};

/// Prunes unused columns. Those of `keys` are kept: they identify the rows of stages.
pub(crate) fn prune(plan: &mut Plan, keys: &[Option<Vec<ColumnId>>]) {
    let shown = plan.presentation.columns.iter().map(|(_, id)| *id);
    let order = plan.presentation.order.iter().map(|(id, _)| *id);
    let mut used: BTreeSet<ColumnId> = shown.chain(order).collect();
    used.extend(keys.iter().flatten().flatten());
    prune_node(&mut plan.presentation.node, &mut used);
    for stage in plan.stages.iter_mut().rev() {
        match &mut stage.contents {
            StageContents::Rows { columns } => prune_columns(columns, &mut used),
            // Rows of a recursion, and their number, may depend on any column.
            StageContents::Recursion { columns, .. } => used.extend(columns.iter()),
            StageContents::TopK { order, columns, .. } => {
                used.extend(order.iter().map(|(id, _)| *id));
                prune_columns(columns, &mut used);
            }
            StageContents::Partitions { partition_columns: by, windows, filter, columns } => {
                used.extend(by.iter());
                prune_columns(columns, &mut used);
                used.extend(filter.iter().flat_map(Expression::columns));
                windows.retain(|(id, _)| used.contains(id));
                used.extend(windows.iter().flat_map(|(_, call)| call.columns()));
            }
            StageContents::Groups { keys, aggregates } => {
                let first = aggregates.first().filter(|_| keys.is_empty());
                used.extend(first.map(|aggregate| aggregate.column));
                aggregates.retain(|aggregate| used.contains(&aggregate.column));
                used.extend(keys.iter().flat_map(|(_, key)| key.columns()));
                used.extend(aggregates.iter().flat_map(|aggregate| aggregate.call.columns()));
            }
        }
        prune_node(&mut stage.input, &mut used);
    }
}

/// Prunes unused columns of a node. Of rows that are only counted one column is kept.
fn prune_columns(columns: &mut Vec<ColumnId>, used: &mut BTreeSet<ColumnId>) {
    if columns.iter().all(|id| !used.contains(id)) {
        used.extend(columns.first());
    }
    columns.retain(|id| used.contains(id));
}

fn prune_node(node: &mut Node, used: &mut BTreeSet<ColumnId>) {
    match node {
        Node::Unit => {}
        Node::Scan { source, columns } => {
            columns.retain(|(id, _)| used.contains(id));
            if !matches!(source, Source::Table(_)) {
                used.extend(columns.iter().filter_map(|(_, name)| parse_stage_column(name)));
            }
        }
        Node::Filter { input, condition } | Node::TemporalFilter { input, condition, .. } => {
            used.extend(condition.columns());
            prune_node(input, used);
        }
        Node::Project { input, columns } => {
            columns.retain(|(id, _)| used.contains(id));
            used.extend(columns.iter().flat_map(|(_, column)| column.columns()));
            prune_node(input, used);
        }
        Node::FlatMap { input, call, outer_condition: or_nulls, .. } => {
            let used_here = or_nulls.iter().chain(Some(&*call));
            used.extend(used_here.flat_map(Expression::columns));
            prune_node(input, used);
        }
        Node::Join { left, right, condition, .. } => {
            used.extend(condition.columns());
            prune_node(left, used);
            prune_node(right, used);
        }
        Node::UnionAll { inputs, columns } => {
            let used_flags: Vec<bool> = columns.iter().map(|id| used.contains(id)).collect();
            let retain_used = |all: &mut Vec<ColumnId>| {
                let mut flags = used_flags.iter();
                all.retain(|_| *flags.next().expect("as many columns in every input"));
            };
            retain_used(columns);
            for (input, mapped) in inputs {
                retain_used(mapped);
                used.extend(mapped.iter().copied());
                prune_node(input, used);
            }
        }
    }
}
