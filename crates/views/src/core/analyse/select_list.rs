//! The select list, DISTINCT ON and ORDER BY of a query.

use pg_query::NodeEnum;
use pg_query::protobuf::{Node as Parsed, SelectStmt, SortBy, SortByDir, SortByNulls, a_const};

use super::expressions::names_of;
use super::scope::column_of;
use super::select::{QueryRows, targets};
use crate::core::expression::{ColumnId, Expression};
use crate::core::refusal::Refusal;

/// The expressions of a query over its rows.
pub struct SelectList {
    /// The select list with its names; then the expressions of DISTINCT ON and ORDER BY, without
    /// names.
    pub all: Vec<(String, Parsed)>,
    /// Number of visible expressions.
    pub shown: usize,
    /// Number of columns of the domain, the last ones of the visible expressions.
    pub given: usize,
    /// Number of DISTINCT ON expressions.
    pub on: usize,
    /// The directions of ORDER BY, in SQL.
    pub directions: Vec<String>,
}

impl SelectList {
    /// The expressions of the domain's columns.
    pub fn given(&self) -> impl Iterator<Item = &Parsed> {
        let all = self.all[self.shown - self.given..self.shown].iter();
        all.map(|(_, one)| one)
    }
}

/// Collects the expressions of a query.
pub fn said(query: &SelectStmt) -> Result<SelectList, Refusal> {
    let shown = targets(query)?.into_iter();
    let mut all: Vec<(String, Parsed)> = shown.map(|(name, one)| (name, one.clone())).collect();
    let shown = all.len();
    let mut directions = Vec::new();
    // DISTINCT without ON has one empty expression.
    let on: Vec<Parsed> = query
        .distinct_clause
        .iter()
        .filter(|one| one.node.is_some())
        .map(|one| meant(one, &all[..shown]).clone())
        .collect();
    let count = on.len();
    let mut hidden = on;
    for one in sorts(query) {
        directions.push(direction(one));
        hidden.extend(one.node.as_deref().map(|by| meant(by, &all).clone()));
    }
    all.extend(hidden.into_iter().map(|one| (String::new(), one)));
    Ok(SelectList {
        all,
        shown,
        given: 0,
        on: count,
        directions,
    })
}

/// The items of ORDER BY.
fn sorts(query: &SelectStmt) -> impl Iterator<Item = &SortBy> {
    query.sort_clause.iter().filter_map(|one| match &one.node {
        Some(NodeEnum::SortBy(sort)) => Some(&**sort),
        _ => None,
    })
}

/// Adds the ORDER BY of a query, whose items must name result columns.
///
/// # Errors
/// [`Refusal`] for anything else.
pub fn ordered(mut rows: QueryRows, query: &SelectStmt) -> Result<QueryRows, Refusal> {
    for one in sorts(query) {
        let column = match place(one.node.as_deref()) {
            Some(place) => rows.columns.get(place).map(|(_, id)| *id),
            None => named_by(one.node.as_deref()).and_then(|name| column_of(&rows.columns, &name)),
        };
        let refused = || Refusal::new("ORDER BY of this kind", -1, "name a column");
        rows.order
            .push((column.ok_or_else(refused)?, direction(one)));
    }
    Ok(rows)
}

/// An ORDER BY item: an expression, or one of the select list by its number or name.
fn meant<'a>(by: &'a Parsed, targets: &'a [(String, Parsed)]) -> &'a Parsed {
    let target = match place(Some(by)) {
        Some(place) => targets.get(place),
        None => {
            let name = named_by(Some(by));
            name.and_then(|name| targets.iter().find(|(other, _)| *other == name))
        }
    };
    target.map_or(by, |(_, target)| target)
}

/// The index that a number in ORDER BY or GROUP BY stands for.
pub fn place(node: Option<&Parsed>) -> Option<usize> {
    match node?.node.as_ref()? {
        NodeEnum::AConst(constant) => match &constant.val {
            Some(a_const::Val::Ival(place)) => usize::try_from(place.ival - 1).ok(),
            _ => None,
        },
        _ => None,
    }
}

/// A name without a table.
fn named_by(node: Option<&Parsed>) -> Option<String> {
    match node?.node.as_ref()? {
        NodeEnum::ColumnRef(column) => match &names_of(column)[..] {
            [name] => Some(name.clone()),
            _ => None,
        },
        _ => None,
    }
}

/// The direction of an ORDER BY item, in SQL.
fn direction(sort: &SortBy) -> String {
    let mut text = match SortByDir::try_from(sort.sortby_dir) {
        Ok(SortByDir::SortbyDesc) => " DESC".to_owned(),
        Ok(SortByDir::SortbyUsing) => {
            let names = sort.use_op.iter().filter_map(|name| match &name.node {
                Some(NodeEnum::String(name)) => Some(name.sval.as_str()),
                _ => None,
            });
            match names.collect::<Vec<_>>()[..] {
                [schema, operator] => format!(
                    " USING OPERATOR({}.{operator})",
                    crate::core::expression::quoted(schema)
                ),
                ref names => format!(" USING {}", names.concat()),
            }
        }
        _ => String::new(),
    };
    text.push_str(match SortByNulls::try_from(sort.sortby_nulls) {
        Ok(SortByNulls::SortbyNullsFirst) => " NULLS FIRST",
        Ok(SortByNulls::SortbyNullsLast) => " NULLS LAST",
        _ => "",
    });
    text
}

/// The call `row_number()` over partitions, in this order.
pub fn numbered(partition: &[ColumnId], order: &[(ColumnId, String)]) -> Expression {
    over("row_number()", partition, order)
}

/// The call `rank()` over partitions, in this order.
pub fn ranked(partition: &[ColumnId], order: &[(ColumnId, String)]) -> Expression {
    over("rank()", partition, order)
}

fn over(function: &str, partition: &[ColumnId], order: &[(ColumnId, String)]) -> Expression {
    let mark = |id: &ColumnId| format!("\"{}\"", Expression::mark(*id));
    let partition: Vec<String> = partition.iter().map(mark).collect();
    let order: Vec<String> = order
        .iter()
        .map(|(id, how)| format!("{}{how}", mark(id)))
        .collect();
    let clause = |name: &str, list: &[String]| {
        if list.is_empty() {
            String::new()
        } else {
            format!("{name} BY {} ", list.join(", "))
        }
    };
    Expression::read(&format!(
        "{function} OVER ({}{})",
        clause("PARTITION", &partition),
        clause("ORDER", &order)
    ))
}

/// The query without its ORDER BY, which would sort the rows where they are joined with others.
pub(crate) fn unordered(sql: &str) -> String {
    let sql = sql.trim_end().trim_end_matches(';');
    let parsed = pg_query::parse(sql, pg_query::ParserOptions::default());
    let Ok(mut parsed) = parsed.map(|parsed| parsed.protobuf) else {
        return sql.to_owned();
    };
    let statement = parsed.stmts.first_mut().and_then(|raw| raw.stmt.as_mut());
    match statement.and_then(|statement| statement.node.as_mut()) {
        Some(NodeEnum::SelectStmt(select))
            if !select.sort_clause.is_empty() && select.limit_count.is_none() =>
        {
            select.sort_clause.clear();
        }
        _ => return sql.to_owned(),
    }
    pg_query::deparse(&parsed, pg_query::DeparseOptions::default())
        .unwrap_or_else(|_| sql.to_owned())
}
