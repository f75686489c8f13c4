//! The values that a query is computed for, where it depends on the rows around it.

use std::collections::BTreeSet;

use pg_query::NodeEnum;
use pg_query::protobuf::{JoinExpr, JoinType, Node as Parsed, RangeVar, ResTarget, SelectStmt};

use super::expressions::{marked, printed};
use super::scope::Scope;
use super::select::Ctes;
use crate::core::expression::{ColumnId, Expression};
use crate::core::refusal::Refusal;
use crate::core::tree::Node;

/// A value of the rows around a query, with the names that it has there.
pub struct Outer {
    pub table: String,
    pub column: String,
    pub value: Expression,
}

/// The different values that a query is computed for.
#[derive(Clone)]
pub struct Given {
    /// What stands for them in FROM.
    pub name: String,
    pub node: Node,
    pub scope: Scope,
    pub carried: Vec<Carried>,
}

/// A column of the values, and what it is of the rows around.
#[derive(Clone)]
pub struct Carried {
    pub column: ColumnId,
    pub outer: Expression,
    pub may_be_null: bool,
}

impl Given {
    /// The values as an item of FROM.
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

    /// Its columns, as the parser has them.
    fn references(&self) -> impl Iterator<Item = Parsed> {
        self.carried.iter().map(|one| Parsed {
            node: Some(marked(one.column)),
        })
    }

    /// How many columns it has.
    pub fn len(&self) -> usize {
        self.carried.len()
    }

    /// Its columns.
    pub fn columns(&self) -> impl Iterator<Item = ColumnId> {
        self.carried.iter().map(|one| one.column)
    }

    /// FROM with the values before everything else, and what depends on them made LATERAL.
    ///
    /// # Errors
    /// What cannot be printed.
    pub fn before(&self, from: &[Parsed]) -> Result<Vec<Parsed>, Refusal> {
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

    /// Has a query read, show and group by the values as well; they are the last of what it shows.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn put_into(&self, query: &mut SelectStmt, is_grouped: bool) -> Result<(), Refusal> {
        if !query.values_lists.is_empty() {
            let what = "VALUES that depends on the rows around it";
            return Err(Refusal::new(what, -1, "write it as a SELECT"));
        }
        let mut keys = query.group_clause.iter();
        if keys.any(|key| matches!(key.node, Some(NodeEnum::GroupingSet(_)))) {
            let what = "GROUPING SETS in a subquery that depends on the rows around it";
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

    /// What makes rows with these columns those of a row around them.
    pub fn conditions(&self, columns: impl Iterator<Item = ColumnId>) -> Vec<Expression> {
        let all = self.carried.iter().zip(columns);
        all.map(|(one, column)| same(&one.outer, &Expression::column(column), one.may_be_null))
            .collect()
    }
}

impl Ctes {
    /// The same with values that can be read.
    pub(super) fn with_given(&self, given: &Given) -> Self {
        let mut all = self.clone();
        let rows = (given.node.clone(), given.scope.clone());
        all.given.insert(given.name.clone(), rows);
        all
    }
}

/// What a query names of what is around it, with what that is.
///
/// # Errors
/// What cannot be printed.
pub fn outer_of(
    query: &SelectStmt,
    mut resolve: impl FnMut(&[String]) -> Option<Expression>,
) -> Result<Vec<Outer>, Refusal> {
    let names = names_in(query)?.into_iter();
    let outer = names.filter_map(|(table, column)| {
        let names = [table, column];
        let value = resolve(&names)?;
        let [table, column] = names;
        Some(Outer {
            table,
            column,
            value,
        })
    });
    Ok(outer.collect())
}

/// The names in a query that may be a table's and its column's. The server gives no two tables of queries within each other the same.
fn names_in(query: &SelectStmt) -> Result<BTreeSet<(String, String)>, Refusal> {
    let sql = printed(query.clone())?;
    let scanned = pg_query::scan(&sql);
    let scanned = scanned.map_err(|error| Refusal::new("a query", -1, error.to_string()))?;
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

/// Whether two values are the same, of which null is one. Where there may be nulls, rows are found by a hash.
pub fn same(one: &Expression, other: &Expression, may_be_null: bool) -> Expression {
    if !may_be_null {
        return one.infix("=", other);
    }
    let hash = |of: &Expression| of.within("hash_record_extended(ROW(", "), 0)");
    let is_same = one.infix("IS NOT DISTINCT FROM", other);
    hash(one).infix("=", &hash(other)).infix("AND", &is_same)
}

/// The leftmost of what is joined, where rows that match nothing are there for it.
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
