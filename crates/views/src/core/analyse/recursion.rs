//! WITH RECURSIVE: a query that names itself is a stage of its own.
//!
//! It has two parts. The second references the query once and must be linear in its rows: the
//! server allows no reference in an aggregate, a subquery or an outer join's nullable side. Other
//! constructs that combine several of its rows are refused: their result depends on which rows are
//! derived in the same step.

use std::rc::Rc;

use pg_query::protobuf::{CommonTableExpr, SelectStmt, SetOperation};

use super::Analysis;
use super::ctes::{Cte, Ctes, with};
use super::select::QueryRows;
use crate::core::expression::{ColumnId, Expression, stage_column};
use crate::core::refusal::Refusal;
use crate::core::tree::{JoinKind, Node, Source, Stage, StageContents};

impl Analysis<'_> {
    /// Analyses a query of WITH RECURSIVE; none if it does not reference itself.
    pub(super) fn recursive(&mut self, cte: &Cte) -> Result<Option<QueryRows>, Refusal> {
        let query = &cte.query;
        let is_union = SetOperation::try_from(query.op) == Ok(SetOperation::SetopUnion);
        let (Some(name), Some(first), Some(step)) = (&cte.itself, &query.larg, &query.rarg) else {
            return Ok(None);
        };
        if !is_union {
            return Ok(None);
        }
        let made = (self.stages.len(), self.ctes.len());
        let base = self.select(first, &with(query, &cte.before)?)?;
        let mut names: Vec<String> = base.columns.iter().map(|(name, _)| name.clone()).collect();
        for (name, alias) in names.iter_mut().zip(&cte.columns) {
            name.clone_from(alias);
        }
        let columns: Vec<ColumnId> = names.iter().map(|_| self.new_column()).collect();
        let itself = QueryRows {
            node: Node::Scan {
                source: Source::Itself,
                columns: kept(&columns),
            },
            columns: names.into_iter().zip(columns.clone()).collect(),
            order: Vec::new(),
        };
        let before = self.naming(&cte.before, name, cte.location, &itself);
        let of_step = self.stages.len();
        let step = self.select(step, &with(query, &before)?)?;
        let reads_itself = |node: &Node| node.sources().contains(&Source::Itself);
        let mut stages = self.stages[of_step..].iter();
        let looks_at_several = stages.any(|stage| reads_itself(&stage.input));
        if looks_at_several || reads_itself(&step.node) && !takes_one_by_one(&step.node) {
            let what = "WITH RECURSIVE whose recursive term combines several of its own rows";
            let advice =
                "leave DISTINCT, GROUP BY, UNION and window functions out of it, or use mode full";
            return Err(Refusal::new(what, cte.location, advice));
        }
        if !reads_itself(&step.node) {
            self.stages.truncate(made.0);
            self.ctes.truncate(made.1);
            return Ok(None);
        }
        let inputs = [base, step].map(|rows| self.with_own_columns(rows));
        let keeps = StageContents::Recursion {
            columns: columns.clone(),
            is_all: query.all,
        };
        let node = self.stage(Stage {
            input: Node::UnionAll {
                inputs: inputs.into(),
                columns,
            },
            contents: keeps,
        });
        Ok(Some(QueryRows { node, ..itself }))
    }

    /// The visible queries of WITH, with the recursive one as a reference to its own rows.
    fn naming(&mut self, before: &Ctes, name: &str, location: i32, rows: &QueryRows) -> Ctes {
        let itself = Rc::new(Cte {
            query: SelectStmt::default(),
            columns: Vec::new(),
            before: Ctes::default(),
            itself: None,
            location,
        });
        self.ctes.push((itself.clone(), rows.clone()));
        before.and(name, itself)
    }

    /// Projects rows to new columns, which can be cast where the types of the parts differ.
    fn with_own_columns(&mut self, rows: QueryRows) -> (Node, Vec<ColumnId>) {
        let own: Vec<(ColumnId, Expression)> = rows
            .columns
            .iter()
            .map(|(_, id)| (self.new_column(), Expression::column(*id)))
            .collect();
        let mapped = own.iter().map(|(id, _)| *id).collect();
        let node = Node::Project {
            input: Box::new(rows.node),
            columns: own,
        };
        (node, mapped)
    }
}

/// Refuses the SEARCH and CYCLE clauses of WITH RECURSIVE.
pub(crate) fn refuse_clauses(cte: &CommonTableExpr) -> Result<(), Refusal> {
    let refused = |what: &str, location| {
        let advice = "collect the keys of visited rows in an array column, or use mode full";
        Err(Refusal::new(what, location, advice))
    };
    match (&cte.search_clause, &cte.cycle_clause) {
        (Some(search), _) => refused("SEARCH", search.location),
        (_, Some(cycle)) => refused("CYCLE", cycle.location),
        (None, None) => Ok(()),
    }
}

fn kept(columns: &[ColumnId]) -> Vec<(ColumnId, String)> {
    columns.iter().map(|id| (*id, stage_column(*id))).collect()
}

/// Whether a node is linear in the rows of the recursion: every result row is derived from exactly
/// one of them.
fn takes_one_by_one(node: &Node) -> bool {
    match node {
        Node::Unit => false,
        Node::Scan { source, .. } => *source == Source::Itself,
        Node::Filter { input, .. }
        | Node::Recent { input, .. }
        | Node::Project { input, .. }
        | Node::Expand { input, .. } => takes_one_by_one(input),
        Node::Join {
            kind: JoinKind::Inner,
            left,
            right,
            ..
        } => takes_one_by_one(left) != takes_one_by_one(right),
        Node::Join {
            kind: JoinKind::Left | JoinKind::Semi | JoinKind::Anti,
            left,
            right,
            ..
        } => takes_one_by_one(left) && !right.sources().contains(&Source::Itself),
        Node::Join {
            kind: JoinKind::Full,
            ..
        }
        | Node::UnionAll { .. } => false,
    }
}
