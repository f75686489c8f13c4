//! Analyses a query, as the server prints it with resolved names, to the plan of a view.

mod aggregates;
mod children;
mod clock;
mod column_properties;
mod combine;
mod comparisons;
mod constants;
mod ctes;
mod decorrelate;
mod dependent_join;
mod equalities;
mod explicit_equality;
mod expressions;
pub(crate) mod facts;
mod from;
mod grouping_sets;
mod lateral;
mod limit;
pub(crate) mod parse;
mod recursion;
mod scalar_subquery;
mod scalars;
mod scope;
mod select;
mod select_list;
mod subqueries;
mod windows;

use std::collections::BTreeSet;
use std::rc::Rc;

use self::ctes::Cte;
use self::dependent_join::DecorrelationDomain;
pub use self::equalities::{Side, equalities, equality_conjuncts};
pub(crate) use self::explicit_equality::with_explicit_equalities;
pub use self::expressions::{parse_expression, print_expression};
use self::facts::Facts;
use self::parse::parse;
use self::select::QueryRows;
pub(crate) use self::select_list::remove_order_by;
use super::expression::{ColumnId, Expression, stage_column_name};
use super::refusal::Refusal;
use super::tree::{Aggregate, Node, Plan, Presentation, Source, Stage, StageContents};

/// The plan of a view with the query `sql`, with all columns of its sources.
///
/// # Errors
/// [`Refusal`] of the first construct that is not supported.
pub(crate) fn analyse(sql: &str, facts: &Facts) -> Result<Plan, Refusal> {
    refuse_reserved_names(sql)?;
    let query = parse(sql)?;
    let mut analysis = Analysis {
        facts,
        next_column: 0,
        stages: Vec::new(),
        depth: 0,
        null_keys: Vec::new(),
        typed_like: Vec::new(),
        lookup_keys: Vec::new(),
        analysed_ctes: Vec::new(),
        next_domain: None,
        next_group_domain: None,
        nesting_depth: 0,
    };
    let rows = analysis.select(&query, &Default::default())?;
    Ok(analysis.into_plan(rows))
}

/// Refuses SQL with the names that stand for columns in expressions. Even within a string they
/// would be taken for columns.
fn refuse_reserved_names(sql: &str) -> Result<(), Refusal> {
    if sql.contains("egret$") {
        let advice = "use other names: these are reserved";
        return Err(Refusal::new("a name that begins with `egret$`", -1, advice));
    }
    Ok(())
}

/// The plan of a query of which only the columns are known: it stores all rows. `table` is the
/// index of the query among the view's tables.
pub(crate) fn plan_whole_query(table: usize, columns: impl Iterator<Item = String>) -> Plan {
    let columns: Vec<(ColumnId, String)> = (1..).map(ColumnId).zip(columns).collect();
    let ids: Vec<ColumnId> = columns.iter().map(|(id, _)| *id).collect();
    let stored_columns = ids.iter().map(|id| (*id, stage_column_name(*id)));
    Plan {
        presentation: Presentation {
            node: Node::Scan { source: Source::Stage(0), columns: stored_columns.collect() },
            columns: columns.iter().map(|(id, name)| (name.clone(), *id)).collect(),
            order: Vec::new(),
        },
        stages: vec![Stage {
            input: Node::Scan { source: Source::Table(table), columns },
            contents: StageContents::Rows { columns: ids },
        }],
        typed_like: Vec::new(),
        lookup_keys: Vec::new(),
    }
}

/// Bound on the nesting of views and subqueries.
const DEPTH_MAX: usize = 64;

struct Analysis<'a> {
    facts: &'a Facts,
    next_column: u32,
    stages: Vec<Stage>,
    depth: usize,
    /// Columns that are null in the last analysed grouping set, with the keys of other sets that
    /// they stand for.
    null_keys: Vec<(ColumnId, Expression)>,
    /// Null columns with the column whose type they have, as in [`Plan`].
    typed_like: Vec<(ColumnId, ColumnId)>,
    /// Group keys that are looked up, as in [`Plan`].
    lookup_keys: Vec<(ColumnId, bool)>,
    /// Queries of WITH that have been analysed, with their rows.
    analysed_ctes: Vec<(Rc<Cte>, QueryRows)>,
    /// Domain of the query that is analysed next, if that is dependent.
    next_domain: Option<DecorrelationDomain>,
    /// Domain of the next grouping, which has a group for each value of the domain, even if there
    /// are no rows.
    next_group_domain: Option<DecorrelationDomain>,
    /// Number of dependent queries around the one that is analysed.
    nesting_depth: usize,
}

impl Analysis<'_> {
    fn new_column(&mut self) -> ColumnId {
        self.next_column += 1;
        ColumnId(self.next_column)
    }

    /// Adds a stage, and returns a scan of it.
    fn add_stage(&mut self, mut stage: Stage) -> Node {
        if let StageContents::Groups { keys, aggregates } = &mut stage.contents
            && keys.is_empty()
            && aggregates.is_empty()
        {
            // The one group without keys must have a column to exist.
            aggregates.push(Aggregate::count_rows(self.new_column(), None));
        }
        let columns = stage.contents.columns();
        self.stages.push(stage);
        Node::Scan {
            source: Source::Stage(self.stages.len() - 1),
            columns: columns.into_iter().map(|id| (id, stage_column_name(id))).collect(),
        }
    }

    fn into_plan(mut self, rows: QueryRows) -> Plan {
        let visible = rows.columns.iter().map(|(_, id)| *id);
        let order = rows.order.iter().map(|(id, _)| *id);
        let columns: Vec<ColumnId> = visible.chain(order).collect();
        let last = self.stages.len().checked_sub(1);
        let node = match last.filter(|last| only_reads(&rows.node, Source::Stage(*last))) {
            Some(_) => rows.node,
            None => {
                let contents = StageContents::Rows { columns: deduplicate(&columns) };
                let input = rows.node;
                self.add_stage(Stage { input, contents })
            }
        };
        Plan {
            typed_like: self.typed_like,
            lookup_keys: self.lookup_keys,
            stages: self.stages,
            presentation: Presentation { node, columns: rows.columns, order: rows.order },
        }
    }
}

fn deduplicate(columns: &[ColumnId]) -> Vec<ColumnId> {
    let mut seen = BTreeSet::new();
    let columns = columns.iter().copied();
    columns.filter(|column| seen.insert(*column)).collect()
}

/// Whether a node only filters and projects the rows of a source.
fn only_reads(node: &Node, source: Source) -> bool {
    match node {
        Node::Scan { source: read, .. } => *read == source,
        Node::Filter { input, .. } | Node::Project { input, .. } => only_reads(input, source),
        // Stored rows are computed already, and do not change with the clock.
        Node::Unit
        | Node::TemporalFilter { .. }
        | Node::FlatMap { .. }
        | Node::Join { .. }
        | Node::UnionAll { .. } => false,
    }
}

#[cfg(test)]
mod tests;
