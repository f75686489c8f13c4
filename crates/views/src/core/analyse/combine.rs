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
use super::select_list::with_order;
use crate::core::expression::{ColumnId, Expression};
use crate::core::refusal::Refusal;
use crate::core::tree::{Aggregate, Node, Stage, StageContents};

impl Analysis<'_> {
    /// The rows of a set operation.
    pub(super) fn analyse_set_operation(
        &mut self,
        query: &SelectStmt,
        ctes: &Ctes,
        domain: Option<&DecorrelationDomain>,
    ) -> Result<QueryRows, Refusal> {
        let operation = SetOperation::try_from(query.op);
        let is_union = operation == Ok(SetOperation::SetopUnion);
        let (rows, side_number) = self.union_sides(query, ctes, domain)?;
        let rows = match (is_union, query.all) {
            (true, true) => rows,
            (true, false) => self.deduplicate_rows(rows),
            (false, is_all) => {
                let is_intersect = operation == Ok(SetOperation::SetopIntersect);
                self.intersect_or_except(rows, side_number, is_intersect, is_all)
            }
        };
        with_order(rows, query)
    }

    /// The union of both sides, and the column with the number of the side: 1 or 2.
    fn union_sides(
        &mut self,
        query: &SelectStmt,
        ctes: &Ctes,
        domain: Option<&DecorrelationDomain>,
    ) -> Result<(QueryRows, ColumnId), Refusal> {
        let mut inputs = Vec::new();
        let mut names = Vec::new();
        for (side_index, side) in [&query.larg, &query.rarg].into_iter().flatten().enumerate() {
            self.next_domain = domain.cloned();
            let rows = self.select(side, ctes)?;
            if names.is_empty() {
                names = rows.columns.iter().map(|(name, _)| name.clone()).collect();
            }
            // New columns, which are cast where the types of the sides differ.
            let mut projected: Vec<(ColumnId, Expression)> = rows
                .columns
                .iter()
                .map(|(_, id)| (self.new_column(), Expression::column(*id)))
                .collect();
            let number = Expression::constant(&(side_index + 1).to_string());
            projected.push((self.new_column(), number));
            let mapped = projected.iter().map(|(id, _)| *id).collect();
            let node = Node::Project { input: Box::new(rows.node), columns: projected };
            inputs.push((node, mapped));
        }
        let union_columns: Vec<ColumnId> = names.iter().map(|_| self.new_column()).collect();
        let side_number = self.new_column();
        let columns = union_columns.iter().copied().chain([side_number]).collect();
        let rows = QueryRows {
            node: Node::UnionAll { inputs, columns },
            columns: names.into_iter().zip(union_columns).collect(),
            order: Vec::new(),
        };
        Ok((rows, side_number))
    }

    /// INTERSECT or EXCEPT, with or without ALL, from the counts of both sides.
    fn intersect_or_except(
        &mut self,
        rows: QueryRows,
        side_number: ColumnId,
        is_intersect: bool,
        is_all: bool,
    ) -> QueryRows {
        let counts = [1, 2].map(|number| {
            let filter = Expression::column(side_number).with_test(&format!("= {number}"));
            Aggregate::count_rows(self.new_column(), Some(filter))
        });
        let [first, second] =
            [&counts[0], &counts[1]].map(|aggregate| Expression::column(aggregate.column));
        let grouped = self.group_by_all_columns(rows, counts.to_vec());
        let condition = match (is_intersect, is_all) {
            (true, _) => first.infix("> 0 AND 0 <", &second),
            (false, false) => first.infix("> 0 AND 0 =", &second),
            (false, true) => first.infix(">", &second),
        };
        let node = Node::Filter { input: Box::new(grouped.node), condition };
        let node = if !is_all {
            node
        } else {
            let repetitions = if is_intersect {
                first.infix(",", &second).wrap("least(", ")")
            } else {
                first.infix("-", &second)
            };
            Node::FlatMap {
                input: Box::new(node),
                call: repetitions.wrap("generate_series(1, ", ")"),
                columns: vec![(self.new_column(), None)],
                outer_condition: None,
            }
        };
        QueryRows { node, ..grouped }
    }

    /// Removes duplicates, by grouping by all columns.
    pub(super) fn deduplicate_rows(&mut self, rows: QueryRows) -> QueryRows {
        self.group_by_all_columns(rows, Vec::new())
    }

    /// The distinct rows, with aggregates over the equal ones.
    fn group_by_all_columns(&mut self, rows: QueryRows, aggregates: Vec<Aggregate>) -> QueryRows {
        let mut grouping = Grouping::new(self.facts, &mut self.next_column);
        let mut add_key = |id: ColumnId| grouping.add_key(Expression::column(id));
        let columns = rows.columns.into_iter().map(|(name, id)| (name, add_key(id))).collect();
        // The server sees to it that it is among the columns.
        let order =
            rows.order.into_iter().map(|(id, direction)| (add_key(id), direction)).collect();
        let (keys, _) = grouping.into_parts();
        let node = self.add_stage(Stage {
            input: rows.node,
            contents: StageContents::Groups { keys, aggregates },
        });
        QueryRows { node, columns, order }
    }
}
