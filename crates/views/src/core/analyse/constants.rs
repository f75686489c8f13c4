//! VALUES lists in queries.

use pg_query::NodeEnum;
use pg_query::protobuf::SelectStmt;

use super::Analysis;
use super::expressions::resolve_expression;
use super::scope::Scope;
use super::select::QueryRows;
use crate::core::expression::{ColumnId, Expression};
use crate::core::refusal::Refusal;
use crate::core::tree::Node;

/// A VALUES list as an item of FROM, with columns named as by PostgreSQL.
pub(crate) struct Constants {
    pub call: Expression,
    pub columns: Vec<(String, ColumnId)>,
}

impl Analysis<'_> {
    /// Analyses a VALUES list over rows of a scope.
    pub(super) fn analyse_values(
        &mut self,
        query: &SelectStmt,
        scope: &Scope,
    ) -> Result<Constants, Refusal> {
        let mut lists = Vec::new();
        let mut width = 0;
        for list in &query.values_lists {
            let Some(NodeEnum::List(list)) = &list.node else {
                continue;
            };
            width = list.items.len();
            let items = list.items.iter().map(|item| resolve_expression(item, scope));
            lists.push(join_expressions(items.collect::<Result<_, _>>()?).wrap("(", ")"));
        }
        let columns = (1..=width).map(|number| (format!("column{number}"), self.new_column()));
        Ok(Constants {
            columns: columns.collect(),
            call: join_expressions(lists).wrap("(VALUES ", ")"),
        })
    }

    /// Analyses a VALUES list as a query of its own.
    pub(super) fn analyse_values_query(
        &mut self,
        query: &SelectStmt,
    ) -> Result<QueryRows, Refusal> {
        let Constants { call, columns } = self.analyse_values(query, &Scope::default())?;
        Ok(QueryRows {
            node: Node::FlatMap {
                input: Box::new(Node::Unit),
                call,
                columns: columns.iter().map(|(_, id)| (*id, None)).collect(),
                outer_condition: None,
            },
            columns,
            order: Vec::new(),
        })
    }
}

fn join_expressions(expressions: Vec<Expression>) -> Expression {
    let mut all = expressions.into_iter();
    let first = all.next().unwrap_or(Expression::constant("NULL"));
    all.fold(first, |list, expression| list.append_to_list(&expression))
}
