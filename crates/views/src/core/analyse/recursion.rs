//! WITH RECURSIVE: a query that names itself is a stage of its own.
//!
//! It has two parts. The second references the query once and must be linear in its rows: the
//! server allows no reference in an aggregate, a subquery or an outer join's nullable side. Other
//! constructs that combine several of its rows are refused: their result depends on which rows are
//! derived in the same step.

use std::rc::Rc;

use pg_query::protobuf::{CommonTableExpr, SelectStmt, SetOperation};

use super::Analysis;
use super::ctes::{Cte, Ctes, collect_ctes};
use super::select::QueryRows;
use crate::core::expression::{ColumnId, Expression, stage_column_name};
use crate::core::refusal::Refusal;
use crate::core::tree::{JoinKind, Node, Source, Stage, StageContents};

impl Analysis<'_> {
    /// Analyses a query of WITH RECURSIVE; none if it does not reference itself.
    pub(super) fn analyse_recursive_cte(
        &mut self,
        cte: &Cte,
    ) -> Result<Option<QueryRows>, Refusal> {
        let query = &cte.query;
        let is_union = SetOperation::try_from(query.op) == Ok(SetOperation::SetopUnion);
        let (Some(name), Some(first), Some(step)) = (&cte.recursive_name, &query.larg, &query.rarg)
        else {
            return Ok(None);
        };
        if !is_union {
            return Ok(None);
        }
        let checkpoint = (self.stages.len(), self.analysed_ctes.len());
        let base = self.select(first, &collect_ctes(query, &cte.visible_ctes)?)?;
        let mut names: Vec<String> = base.columns.iter().map(|(name, _)| name.clone()).collect();
        for (name, alias) in names.iter_mut().zip(&cte.columns) {
            name.clone_from(alias);
        }
        let columns: Vec<ColumnId> = names.iter().map(|_| self.new_column()).collect();
        let own_rows = QueryRows {
            node: Node::Scan { source: Source::Recursion, columns: stage_columns(&columns) },
            columns: names.into_iter().zip(columns.clone()).collect(),
            order: Vec::new(),
        };
        let visible_ctes = self.with_own_cte(&cte.visible_ctes, name, cte.location, &own_rows);
        let step_stages_start = self.stages.len();
        let step = self.select(step, &collect_ctes(query, &visible_ctes)?)?;
        let reads_itself = |node: &Node| node.sources().contains(&Source::Recursion);
        let mut stages = self.stages[step_stages_start..].iter();
        let combines_rows = stages.any(|stage| reads_itself(&stage.input));
        if combines_rows || reads_itself(&step.node) && !maps_rows_one_by_one(&step.node) {
            let construct = "WITH RECURSIVE whose recursive term combines several of its own rows";
            let advice =
                "leave DISTINCT, GROUP BY, UNION and window functions out of it, or use mode full";
            return Err(Refusal::new(construct, cte.location, advice));
        }
        if !reads_itself(&step.node) {
            self.stages.truncate(checkpoint.0);
            self.analysed_ctes.truncate(checkpoint.1);
            return Ok(None);
        }
        let inputs = [base, step].map(|rows| self.project_to_new_columns(rows));
        let contents = StageContents::Recursion { columns: columns.clone(), is_all: query.all };
        let node = self.add_stage(Stage {
            input: Node::UnionAll { inputs: inputs.into(), columns },
            contents,
        });
        Ok(Some(QueryRows { node, ..own_rows }))
    }

    /// The visible queries of WITH, with the recursive one as a reference to its own rows.
    fn with_own_cte(
        &mut self,
        visible_ctes: &Ctes,
        name: &str,
        location: i32,
        rows: &QueryRows,
    ) -> Ctes {
        let own_cte = Rc::new(Cte {
            query: SelectStmt::default(),
            columns: Vec::new(),
            visible_ctes: Ctes::default(),
            recursive_name: None,
            location,
        });
        self.analysed_ctes.push((own_cte.clone(), rows.clone()));
        visible_ctes.with_cte(name, own_cte)
    }

    /// Projects rows to new columns, which can be cast where the types of the parts differ.
    fn project_to_new_columns(&mut self, rows: QueryRows) -> (Node, Vec<ColumnId>) {
        let projected: Vec<(ColumnId, Expression)> = rows
            .columns
            .iter()
            .map(|(_, id)| (self.new_column(), Expression::column(*id)))
            .collect();
        let mapped = projected.iter().map(|(id, _)| *id).collect();
        let node = Node::Project { input: Box::new(rows.node), columns: projected };
        (node, mapped)
    }
}

/// Refuses the SEARCH and CYCLE clauses of WITH RECURSIVE.
pub(crate) fn refuse_clauses(cte: &CommonTableExpr) -> Result<(), Refusal> {
    let refuse = |construct: &str, location| {
        let advice = "collect the keys of visited rows in an array column, or use mode full";
        Err(Refusal::new(construct, location, advice))
    };
    match (&cte.search_clause, &cte.cycle_clause) {
        (Some(search), _) => refuse("SEARCH", search.location),
        (_, Some(cycle)) => refuse("CYCLE", cycle.location),
        (None, None) => Ok(()),
    }
}

fn stage_columns(columns: &[ColumnId]) -> Vec<(ColumnId, String)> {
    columns.iter().map(|id| (*id, stage_column_name(*id))).collect()
}

/// Whether a node is linear in the rows of the recursion: every result row is derived from exactly
/// one of them.
fn maps_rows_one_by_one(node: &Node) -> bool {
    match node {
        Node::Unit => false,
        Node::Scan { source, .. } => *source == Source::Recursion,
        Node::Filter { input, .. }
        | Node::TemporalFilter { input, .. }
        | Node::Project { input, .. }
        | Node::FlatMap { input, .. } => maps_rows_one_by_one(input),
        Node::Join { kind: JoinKind::Inner, left, right, .. } => {
            maps_rows_one_by_one(left) != maps_rows_one_by_one(right)
        }
        Node::Join {
            kind: JoinKind::Left | JoinKind::Semi | JoinKind::Anti, left, right, ..
        } => maps_rows_one_by_one(left) && !right.sources().contains(&Source::Recursion),
        Node::Join { kind: JoinKind::Full, .. } | Node::UnionAll { .. } => false,
    }
}
