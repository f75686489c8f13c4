//! The domain of a dependent query: the distinct values of outer rows for which it is computed.

use std::collections::BTreeSet;

use pg_query::protobuf::{
    Alias, FuncCall, JoinExpr, JoinType, Node as Parsed, RangeVar, ResTarget, SelectStmt,
};
use pg_query::{NodeEnum, NodeRef};

use super::children::children;
use super::ctes::Ctes;
use super::expressions::{is_marked, marked, names_of, printed};
use super::scope::Scope;
use crate::core::expression::{ColumnId, Expression};
use crate::core::refusal::Refusal;
use crate::core::tree::Node;

/// A value of an outer row, with the names by which the query refers to it.
pub struct OuterReference {
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
    pub carried: Vec<DomainColumn>,
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
    fn item(&self) -> Parsed {
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
        self.carried.iter().map(|one| Parsed {
            node: Some(marked(one.column)),
        })
    }

    /// Number of its columns.
    pub(crate) fn len(&self) -> usize {
        self.carried.len()
    }

    /// The ids of the domain's columns.
    pub(crate) fn columns(&self) -> impl Iterator<Item = ColumnId> {
        self.carried.iter().map(|one| one.column)
    }

    /// FROM with the domain as its first item; subqueries that refer to it become LATERAL.
    pub(crate) fn before(&self, from: &[Parsed]) -> Result<Vec<Parsed>, Refusal> {
        let mut all = from.to_vec();
        for item in &mut all {
            self.open(item)?;
        }
        match all.first_mut().and_then(|first| leftmost(first)) {
            Some(leaf) => {
                let item = std::mem::replace(leaf, self.item());
                leaf.node = Some(NodeEnum::JoinExpr(Box::new(JoinExpr {
                    jointype: JoinType::JoinInner as i32,
                    larg: Some(Box::new(self.item())),
                    rarg: Some(Box::new(item)),
                    ..JoinExpr::default()
                })));
            }
            None => all.insert(0, self.item()),
        }
        Ok(all)
    }

    fn open(&self, item: &mut Parsed) -> Result<(), Refusal> {
        match &mut item.node {
            Some(NodeEnum::RangeSubselect(sub)) => {
                let query = sub.subquery.as_ref().and_then(|query| query.node.as_ref());
                if let Some(NodeEnum::SelectStmt(query)) = query {
                    sub.lateral |= names_in(query)?
                        .iter()
                        .any(|(table, column)| self.has(table, column));
                }
            }
            Some(NodeEnum::JoinExpr(join)) => {
                for side in [&mut join.larg, &mut join.rarg].into_iter().flatten() {
                    self.open(side)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn has(&self, table: &str, column: &str) -> bool {
        let names = [table.to_owned(), column.to_owned()];
        self.scope.resolve(&names, -1).is_ok()
    }

    /// Makes a query read the domain, return its columns as the last ones, and group by them.
    pub(crate) fn put_into(&self, query: &mut SelectStmt, is_grouped: bool) -> Result<(), Refusal> {
        if !query.values_lists.is_empty() {
            let what = "VALUES that refers to outer rows";
            return Err(Refusal::new(what, -1, "write it as a SELECT"));
        }
        let mut keys = query.group_clause.iter();
        if keys.any(|key| matches!(key.node, Some(NodeEnum::GroupingSet(_)))) {
            let what = "GROUPING SETS in a correlated subquery";
            return Err(Refusal::new(what, -1, "write it as a join"));
        }
        query.from_clause = self.before(&query.from_clause)?;
        let targets = self.references().map(|one| Parsed {
            node: Some(NodeEnum::ResTarget(Box::new(ResTarget {
                val: Some(Box::new(one)),
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
    pub(crate) fn conditions(&self, columns: impl Iterator<Item = ColumnId>) -> Vec<Expression> {
        let all = self.carried.iter().zip(columns);
        all.map(|(one, column)| same(&one.outer, &Expression::column(column), one.may_be_null))
            .collect()
    }
}

impl Ctes {
    /// The queries of WITH, with the domain as an item that can be read.
    pub(super) fn with_given(&self, given: &DecorrelationDomain) -> Self {
        let mut all = self.clone();
        let rows = (given.node.clone(), given.scope.clone());
        all.given.insert(given.name.clone(), rows);
        all
    }
}

/// The references of a query to outer rows, as `resolve` finds them.
pub(crate) fn outer_of(
    query: &SelectStmt,
    mut resolve: impl FnMut(&[String]) -> Option<Expression>,
) -> Result<Vec<OuterReference>, Refusal> {
    let names = names_in(query)?.into_iter();
    let outer = names.filter_map(|(table, column)| {
        let names = [table, column];
        let value = resolve(&names)?;
        let [table, column] = names;
        Some(OuterReference {
            table,
            column,
            value,
        })
    });
    Ok(outer.collect())
}

/// Whether a query has an aggregate over columns of outer rows only: the server computes it over
/// the outer rows, and it is constant within the query.
pub(crate) fn has_outer_aggregate(
    query: &SelectStmt,
    is_aggregate: impl Fn(&FuncCall) -> bool,
) -> Result<bool, Refusal> {
    let sql = printed(query.clone())?;
    let parsed = pg_query::parse(&sql, pg_query::ParserOptions::default())
        .map_err(|error| Refusal::new("a query", -1, error.to_string()))?;
    let nodes = parsed.protobuf.nodes();
    let alias = |alias: &Option<Alias>| alias.as_ref().map(|alias| alias.aliasname.clone());
    let own: BTreeSet<String> = nodes
        .iter()
        .filter_map(|(node, ..)| match node {
            NodeRef::RangeVar(table) => Some(alias(&table.alias).unwrap_or(table.relname.clone())),
            NodeRef::RangeSubselect(query) => alias(&query.alias),
            NodeRef::RangeFunction(call) => alias(&call.alias),
            NodeRef::JoinExpr(join) => alias(&join.alias),
            _ => None,
        })
        .collect();
    let is_of_others = |call: &FuncCall| {
        let mut call = Parsed {
            node: Some(NodeEnum::FuncCall(Box::new(call.clone()))),
        };
        let mut columns = Vec::new();
        let is_known = columns_of(&mut call, &mut columns);
        let is_own = |names: &Vec<String>| names.first().is_some_and(|table| own.contains(table));
        is_known && !columns.is_empty() && !columns.iter().any(is_own)
    };
    let mut calls = nodes.iter().filter_map(|(node, ..)| match node {
        NodeRef::FuncCall(call) => Some(call),
        _ => None,
    });
    Ok(calls.any(|call| is_aggregate(call) && is_of_others(call)))
}

/// Whether an expression has columns, and all of them are of other rows than those of the scope.
/// False for one with a subquery.
pub(super) fn is_of_others(node: &Parsed, scope: &Scope) -> bool {
    let mut node = node.clone();
    let mut columns = Vec::new();
    let is_known = columns_of(&mut node, &mut columns);
    let is_of_others = |names: &Vec<String>| scope.resolve(names, -1).is_err();
    is_known && !columns.is_empty() && columns.iter().all(is_of_others)
}

/// Adds the names of the columns of an expression. Returns whether these are all.
fn columns_of(node: &mut Parsed, all: &mut Vec<Vec<String>>) -> bool {
    let Some(inner) = &mut node.node else {
        return true;
    };
    if let NodeEnum::ColumnRef(column) = inner {
        all.push(names_of(column));
        return !is_marked(column);
    }
    match children(inner) {
        Ok(children) => children.into_iter().all(|child| columns_of(child, all)),
        Err(_) => false,
    }
}

/// Names in a query that may be those of a table and its column. The server uses no table name
/// twice in nested queries.
fn names_in(query: &SelectStmt) -> Result<BTreeSet<(String, String)>, Refusal> {
    let sql = printed(query.clone())?;
    let scanned =
        pg_query::scan(&sql).map_err(|error| Refusal::new("a query", -1, error.to_string()))?;
    let text = |at: usize| {
        let token = scanned.tokens.get(at)?;
        let (start, end) = (
            usize::try_from(token.start).ok()?,
            usize::try_from(token.end).ok()?,
        );
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
    Ok(dots
        .filter_map(|at| Some((name(at - 1)?, name(at + 1)?)))
        .collect())
}

/// Condition that two values are the same, nulls included. Nullable ones are compared by a hash
/// first, which a join can use.
pub fn same(one: &Expression, other: &Expression, may_be_null: bool) -> Expression {
    if !may_be_null {
        return one.infix("=", other);
    }
    let hash = |of: &Expression| of.within("hash_record_extended(ROW(", "), 0)");
    let is_same = one.infix("IS NOT DISTINCT FROM", other);
    hash(one).infix("=", &hash(other)).infix("AND", &is_same)
}

/// The leftmost item of joins, if these keep its rows.
fn leftmost(item: &mut Parsed) -> Option<&mut Parsed> {
    let is_kept = |join: &JoinExpr| {
        let kinds = [JoinType::JoinInner as i32, JoinType::JoinLeft as i32];
        kinds.contains(&join.jointype) && join.using_clause.is_empty() && join.alias.is_none()
    };
    match &item.node {
        Some(NodeEnum::JoinExpr(join)) if is_kept(join) => {}
        Some(NodeEnum::JoinExpr(_)) => return None,
        _ => return Some(item),
    }
    match &mut item.node {
        Some(NodeEnum::JoinExpr(join)) => join.larg.as_deref_mut().and_then(leftmost),
        _ => None,
    }
}
