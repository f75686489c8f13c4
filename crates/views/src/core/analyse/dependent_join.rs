//! The domain of a dependent query: the distinct values of outer rows for which it is computed.

use std::collections::BTreeSet;

use pg_query::protobuf::{
    Alias, FuncCall, JoinExpr, JoinType, Node as Parsed, RangeVar, ResTarget, SelectStmt,
};
use pg_query::{NodeEnum, NodeRef};

use super::children::children;
use super::ctes::Ctes;
use super::expressions::{internal_reference, is_internal_reference, print_query, reference_names};
use super::scope::Scope;
use crate::core::expression::{ColumnId, Expression};
use crate::core::refusal::Refusal;
use crate::core::tree::Node;

/// A value of an outer row, with the names by which the query refers to it.
pub(crate) struct OuterReference {
    pub table: String,
    pub column: String,
    pub value: Expression,
}

/// The domain of a dependent query, `D` in Neumann and Kemper.
#[derive(Clone)]
pub(crate) struct DecorrelationDomain {
    /// Its name in FROM.
    pub name: String,
    pub node: Node,
    pub scope: Scope,
    pub domain_columns: Vec<DomainColumn>,
}

/// A column of the domain, with the expression of the outer row that it stands for.
#[derive(Clone)]
pub(crate) struct DomainColumn {
    pub column: ColumnId,
    pub outer: Expression,
    pub may_be_null: bool,
}

impl DecorrelationDomain {
    /// The domain as an item of FROM.
    fn derived_item(&self) -> Parsed {
        Parsed {
            node: Some(NodeEnum::RangeVar(RangeVar {
                relname: self.name.clone(),
                inh: true,
                relpersistence: "p".to_owned(),
                location: -1,
                ..RangeVar::default()
            })),
        }
    }

    /// References to its columns, as parse nodes.
    fn references(&self) -> impl Iterator<Item = Parsed> {
        self.domain_columns
            .iter()
            .map(|domain_column| Parsed { node: Some(internal_reference(domain_column.column)) })
    }

    /// Number of its columns.
    pub(crate) fn len(&self) -> usize {
        self.domain_columns.len()
    }

    /// The ids of the domain's columns.
    pub(crate) fn columns(&self) -> impl Iterator<Item = ColumnId> {
        self.domain_columns.iter().map(|domain_column| domain_column.column)
    }

    /// FROM with the domain as its first item; subqueries that refer to it become LATERAL.
    pub(crate) fn prepend_to_from(&self, from: &[Parsed]) -> Result<Vec<Parsed>, Refusal> {
        let mut items = from.to_vec();
        for item in &mut items {
            self.mark_lateral(item)?;
        }
        match items.first_mut().and_then(|first| leftmost(first)) {
            Some(leaf) => {
                let item = std::mem::replace(leaf, self.derived_item());
                leaf.node = Some(NodeEnum::JoinExpr(Box::new(JoinExpr {
                    jointype: JoinType::JoinInner as i32,
                    larg: Some(Box::new(self.derived_item())),
                    rarg: Some(Box::new(item)),
                    ..JoinExpr::default()
                })));
            }
            None => items.insert(0, self.derived_item()),
        }
        Ok(items)
    }

    fn mark_lateral(&self, item: &mut Parsed) -> Result<(), Refusal> {
        match &mut item.node {
            Some(NodeEnum::RangeSubselect(sub)) => {
                let query = sub.subquery.as_ref().and_then(|query| query.node.as_ref());
                if let Some(NodeEnum::SelectStmt(query)) = query {
                    sub.lateral |= qualified_names(query)?
                        .iter()
                        .any(|(table, column)| self.has_column(table, column));
                }
            }
            Some(NodeEnum::JoinExpr(join)) => {
                for side in [&mut join.larg, &mut join.rarg].into_iter().flatten() {
                    self.mark_lateral(side)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn has_column(&self, table: &str, column: &str) -> bool {
        let names = [table.to_owned(), column.to_owned()];
        self.scope.resolve(&names, -1).is_ok()
    }

    /// Makes a query read the domain, return its columns as the last ones, and group by them.
    pub(crate) fn add_to_query(
        &self,
        query: &mut SelectStmt,
        is_grouped: bool,
    ) -> Result<(), Refusal> {
        if !query.values_lists.is_empty() {
            let construct = "VALUES that refers to outer rows";
            return Err(Refusal::new(construct, -1, "write it as a SELECT"));
        }
        let mut keys = query.group_clause.iter();
        if keys.any(|key| matches!(key.node, Some(NodeEnum::GroupingSet(_)))) {
            let what = "GROUPING SETS in a correlated subquery";
            return Err(Refusal::new(what, -1, "write it as a join"));
        }
        query.from_clause = self.prepend_to_from(&query.from_clause)?;
        let targets = self.references().map(|reference| Parsed {
            node: Some(NodeEnum::ResTarget(Box::new(ResTarget {
                val: Some(Box::new(reference)),
                location: -1,
                ..ResTarget::default()
            }))),
        });
        query.target_list.extend(targets);
        if is_grouped {
            query.group_clause.extend(self.references());
        }
        Ok(())
    }

    /// Conditions under which a row with these columns belongs to an outer row.
    pub(crate) fn join_conditions(
        &self,
        columns: impl Iterator<Item = ColumnId>,
    ) -> Vec<Expression> {
        let pairs = self.domain_columns.iter().zip(columns);
        pairs
            .map(|(domain_column, column)| {
                same_value_condition(
                    &domain_column.outer,
                    &Expression::column(column),
                    domain_column.may_be_null,
                )
            })
            .collect()
    }
}

impl Ctes {
    /// The queries of WITH, with the domain as an item that can be read.
    pub(super) fn with_domain(&self, domain: &DecorrelationDomain) -> Self {
        let mut extended = self.clone();
        let rows = (domain.node.clone(), domain.scope.clone());
        extended.domains.insert(domain.name.clone(), rows);
        extended
    }
}

/// The references of a query to outer rows, as `resolve` finds them.
pub(crate) fn outer_references(
    query: &SelectStmt,
    mut resolve: impl FnMut(&[String]) -> Option<Expression>,
) -> Result<Vec<OuterReference>, Refusal> {
    let names = qualified_names(query)?.into_iter();
    let outer = names.filter_map(|(table, column)| {
        let names = [table, column];
        let value = resolve(&names)?;
        let [table, column] = names;
        Some(OuterReference { table, column, value })
    });
    Ok(outer.collect())
}

/// Whether a query has an aggregate over columns of outer rows only: the server computes it over
/// the outer rows, and it is constant within the query.
pub(crate) fn has_outer_aggregate(
    query: &SelectStmt,
    is_aggregate: impl Fn(&FuncCall) -> bool,
) -> Result<bool, Refusal> {
    let sql = print_query(query.clone())?;
    let parsed = pg_query::parse(&sql, pg_query::ParserOptions::default())
        .map_err(|error| Refusal::new("a query", -1, error.to_string()))?;
    let nodes = parsed.protobuf.nodes();
    let alias = |alias: &Option<Alias>| alias.as_ref().map(|alias| alias.aliasname.clone());
    let own_tables: BTreeSet<String> = nodes
        .iter()
        .filter_map(|(node, ..)| match node {
            NodeRef::RangeVar(table) => Some(alias(&table.alias).unwrap_or(table.relname.clone())),
            NodeRef::RangeSubselect(query) => alias(&query.alias),
            NodeRef::RangeFunction(call) => alias(&call.alias),
            NodeRef::JoinExpr(join) => alias(&join.alias),
            _ => None,
        })
        .collect();
    let has_only_foreign_columns = |call: &FuncCall| {
        let mut call = Parsed { node: Some(NodeEnum::FuncCall(Box::new(call.clone()))) };
        let mut columns = Vec::new();
        let is_complete = collect_column_names(&mut call, &mut columns);
        let is_own =
            |names: &Vec<String>| names.first().is_some_and(|table| own_tables.contains(table));
        is_complete && !columns.is_empty() && !columns.iter().any(is_own)
    };
    let mut calls = nodes.iter().filter_map(|(node, ..)| match node {
        NodeRef::FuncCall(call) => Some(call),
        _ => None,
    });
    Ok(calls.any(|call| is_aggregate(call) && has_only_foreign_columns(call)))
}

/// Whether an expression has columns, and all of them are of other rows than those of the scope.
/// False for one with a subquery.
pub(super) fn has_only_outer_columns(node: &Parsed, scope: &Scope) -> bool {
    let mut node = node.clone();
    let mut columns = Vec::new();
    let is_complete = collect_column_names(&mut node, &mut columns);
    let is_outer = |names: &Vec<String>| scope.resolve(names, -1).is_err();
    is_complete && !columns.is_empty() && columns.iter().all(is_outer)
}

/// Adds the names of the columns of an expression. Returns whether these are all.
fn collect_column_names(node: &mut Parsed, columns: &mut Vec<Vec<String>>) -> bool {
    let Some(inner) = &mut node.node else {
        return true;
    };
    if let NodeEnum::ColumnRef(column) = inner {
        columns.push(reference_names(column));
        return !is_internal_reference(column);
    }
    match children(inner) {
        Ok(children) => children.into_iter().all(|child| collect_column_names(child, columns)),
        Err(_) => false,
    }
}

/// Names in a query that may be those of a table and its column. The server uses no table name
/// twice in nested queries.
fn qualified_names(query: &SelectStmt) -> Result<BTreeSet<(String, String)>, Refusal> {
    let sql = print_query(query.clone())?;
    let scanned =
        pg_query::scan(&sql).map_err(|error| Refusal::new("a query", -1, error.to_string()))?;
    let text = |index: usize| {
        let token = scanned.tokens.get(index)?;
        let (start, end) = (usize::try_from(token.start).ok()?, usize::try_from(token.end).ok()?);
        sql.get(start..end)
    };
    let name = |at: usize| {
        let text = text(at)?;
        Some(match text.strip_prefix('"') {
            Some(quoted) => quoted.strip_suffix('"')?.replace("\"\"", "\""),
            None => text.to_owned(),
        })
    };
    let dots = (1..scanned.tokens.len()).filter(|at| text(*at) == Some("."));
    Ok(dots.filter_map(|at| Some((name(at - 1)?, name(at + 1)?))).collect())
}

/// Condition that two values are the same, nulls included. Nullable ones are compared by a hash
/// first, which a join can use.
pub(crate) fn same_value_condition(
    left: &Expression,
    right: &Expression,
    may_be_null: bool,
) -> Expression {
    if !may_be_null {
        return left.infix("=", right);
    }
    let hash = |value: &Expression| value.wrap("hash_record_extended(ROW(", "), 0)");
    let is_same = left.infix("IS NOT DISTINCT FROM", right);
    hash(left).infix("=", &hash(right)).infix("AND", &is_same)
}

/// The leftmost item of joins, if these keep its rows.
fn leftmost(item: &mut Parsed) -> Option<&mut Parsed> {
    let keeps_left_rows = |join: &JoinExpr| {
        let kinds = [JoinType::JoinInner as i32, JoinType::JoinLeft as i32];
        kinds.contains(&join.jointype) && join.using_clause.is_empty() && join.alias.is_none()
    };
    match &item.node {
        Some(NodeEnum::JoinExpr(join)) if keeps_left_rows(join) => {}
        Some(NodeEnum::JoinExpr(_)) => return None,
        _ => return Some(item),
    }
    match &mut item.node {
        Some(NodeEnum::JoinExpr(join)) => join.larg.as_deref_mut().and_then(leftmost),
        _ => None,
    }
}
