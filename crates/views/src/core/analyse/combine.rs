//! UNION, INTERSECT, EXCEPT and DISTINCT.
//!
//! The number of a row in an intersection or a difference depends on its numbers on both sides: the
//! rows of both sides are grouped by all their columns, with a count for each side.

use pg_query::protobuf::{SelectStmt, SetOperation};

use super::Analysis;
use super::aggregates::Grouping;
use super::ctes::Ctes;
use super::dependent_join::DecorrelationDomain;
use super::select::QueryRows;
use super::select_list::ordered;
use crate::core::expression::{ColumnId, Expression};
use crate::core::refusal::Refusal;
use crate::core::tree::{Aggregate, Node, Stage, StageContents};

impl Analysis<'_> {
    /// The rows of a set operation.
    pub(super) fn combined(
        &mut self,
        query: &SelectStmt,
        ctes: &Ctes,
        given: Option<&DecorrelationDomain>,
    ) -> Result<QueryRows, Refusal> {
        let operation = SetOperation::try_from(query.op);
        let is_union = operation == Ok(SetOperation::SetopUnion);
        let (rows, side) = self.sides(query, ctes, given)?;
        let rows = match (is_union, query.all) {
            (true, true) => rows,
            (true, false) => self.distinct(rows),
            (false, is_all) => {
                let is_both = operation == Ok(SetOperation::SetopIntersect);
                self.counted_apart(rows, side, is_both, is_all)
            }
        };
        ordered(rows, query)
    }

    /// The union of both sides, and the column with the number of the side: 1 or 2.
    fn sides(
        &mut self,
        query: &SelectStmt,
        ctes: &Ctes,
        given: Option<&DecorrelationDomain>,
    ) -> Result<(QueryRows, ColumnId), Refusal> {
        let mut inputs = Vec::new();
        let mut names = Vec::new();
        for (at, side) in [&query.larg, &query.rarg].into_iter().flatten().enumerate() {
            self.given = given.cloned();
            let rows = self.select(side, ctes)?;
            if names.is_empty() {
                names = rows.columns.iter().map(|(name, _)| name.clone()).collect();
            }
            // New columns, which are cast where the types of the sides differ.
            let mut own: Vec<(ColumnId, Expression)> = rows
                .columns
                .iter()
                .map(|(_, id)| (self.new_column(), Expression::column(*id)))
                .collect();
            let number = Expression::constant(&(at + 1).to_string());
            own.push((self.new_column(), number));
            let mapped = own.iter().map(|(id, _)| *id).collect();
            let node = Node::Project {
                input: Box::new(rows.node),
                columns: own,
            };
            inputs.push((node, mapped));
        }
        let shown: Vec<ColumnId> = names.iter().map(|_| self.new_column()).collect();
        let side = self.new_column();
        let columns = shown.iter().copied().chain([side]).collect();
        let rows = QueryRows {
            node: Node::UnionAll { inputs, columns },
            columns: names.into_iter().zip(shown).collect(),
            order: Vec::new(),
        };
        Ok((rows, side))
    }

    /// INTERSECT or EXCEPT, with or without ALL, from the counts of both sides.
    fn counted_apart(
        &mut self,
        rows: QueryRows,
        side: ColumnId,
        is_both: bool,
        is_all: bool,
    ) -> QueryRows {
        let counts = [1, 2].map(|number| {
            let filter = Expression::column(side).tested(&format!("= {number}"));
            Aggregate::rows(self.new_column(), Some(filter))
        });
        let [first, second] = [&counts[0], &counts[1]].map(|one| Expression::column(one.column));
        let grouped = self.each_once(rows, counts.to_vec());
        let is_there = match (is_both, is_all) {
            (true, _) => first.infix("> 0 AND 0 <", &second),
            (false, false) => first.infix("> 0 AND 0 =", &second),
            (false, true) => first.infix(">", &second),
        };
        let node = Node::Filter {
            input: Box::new(grouped.node),
            condition: is_there,
        };
        let node = if !is_all {
            node
        } else {
            let times = if is_both {
                first.infix(",", &second).within("least(", ")")
            } else {
                first.infix("-", &second)
            };
            Node::Expand {
                input: Box::new(node),
                call: times.within("generate_series(1, ", ")"),
                columns: vec![(self.new_column(), None)],
                or_nulls: None,
            }
        };
        QueryRows { node, ..grouped }
    }

    /// Removes duplicates, by grouping by all columns.
    pub(super) fn distinct(&mut self, rows: QueryRows) -> QueryRows {
        self.each_once(rows, Vec::new())
    }

    /// The distinct rows, with aggregates over the equal ones.
    fn each_once(&mut self, rows: QueryRows, aggregates: Vec<Aggregate>) -> QueryRows {
        let mut grouping = Grouping::new(self.facts, &mut self.next_column);
        let mut key = |id: ColumnId| grouping.group_by(Expression::column(id));
        let columns = rows
            .columns
            .into_iter()
            .map(|(name, id)| (name, key(id)))
            .collect();
        // The server sees to it that it is among the columns.
        let order = rows
            .order
            .into_iter()
            .map(|(id, how)| (key(id), how))
            .collect();
        let (keys, _) = grouping.finish();
        let node = self.stage(Stage {
            input: rows.node,
            contents: StageContents::Groups { keys, aggregates },
        });
        QueryRows {
            node,
            columns,
            order,
        }
    }
}
