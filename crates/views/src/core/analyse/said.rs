//! What a SELECT says of its rows: what is shown of them, what there is one of each, and their order.

use pg_query::NodeEnum;
use pg_query::protobuf::{Node as Parsed, SelectStmt, SortBy, SortByDir, SortByNulls, a_const};

use super::expressions::names_of;
use super::scope::column_of;
use super::select::{Rows, targets};
use crate::core::expression::{ColumnId, Expression};
use crate::core::refusal::Refusal;

/// Expressions of a SELECT.
pub struct Said {
    /// What is shown, with names; then what DISTINCT ON and ORDER BY say, without.
    pub all: Vec<(String, Parsed)>,
    /// How many are shown.
    pub shown: usize,
    /// How many of these, the last, are values that the query is computed for.
    pub given: usize,
    /// How many are of DISTINCT ON.
    pub on: usize,
    /// The directions of ORDER BY.
    pub directions: Vec<String>,
}

impl Said {
    /// The values that the query is computed for.
    pub fn given(&self) -> impl Iterator<Item = &Parsed> {
        let all = self.all[self.shown - self.given..self.shown].iter();
        all.map(|(_, one)| one)
    }
}

/// What a query says.
///
/// # Errors
/// [`Refusal`].
pub fn said(query: &SelectStmt) -> Result<Said, Refusal> {
    let shown = targets(query)?.into_iter();
    let mut all: Vec<(String, Parsed)> = shown.map(|(name, one)| (name, one.clone())).collect();
    let shown = all.len();
    let mut directions = Vec::new();
    // DISTINCT alone has one empty expression.
    let on = query
        .distinct_clause
        .iter()
        .filter(|one| one.node.is_some());
    let on: Vec<Parsed> = on.map(|one| meant(one, &all[..shown]).clone()).collect();
    let count = on.len();
    let mut hidden = on;
    for one in sorts(query) {
        directions.push(direction(one));
        hidden.extend(one.node.as_deref().map(|by| meant(by, &all).clone()));
    }
    all.extend(hidden.into_iter().map(|one| (String::new(), one)));
    Ok(Said {
        all,
        shown,
        given: 0,
        on: count,
        directions,
    })
}

/// What ORDER BY has.
fn sorts(query: &SelectStmt) -> impl Iterator<Item = &SortBy> {
    query.sort_clause.iter().filter_map(|one| match &one.node {
        Some(NodeEnum::SortBy(sort)) => Some(&**sort),
        _ => None,
    })
}

/// Rows with the order that a query says, which names columns of what it shows.
///
/// # Errors
/// [`Refusal`] for anything else.
pub fn ordered(mut rows: Rows, query: &SelectStmt) -> Result<Rows, Refusal> {
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

/// What is sorted by: a target by its place or name, or an expression.
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

/// The place that a number stands for.
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

/// How something is sorted, as it is written behind it.
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

/// The numbers of rows in their order, of each partition.
pub fn numbered(partition: &[ColumnId], order: &[(ColumnId, String)]) -> Expression {
    over("row_number()", partition, order)
}

/// The same number for rows of which neither comes first.
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
    let clause = |name: &str, list: &[String]| match list.is_empty() {
        true => String::new(),
        false => format!("{name} BY {} ", list.join(", ")),
    };
    Expression::read(&format!(
        "{function} OVER ({}{})",
        clause("PARTITION", &partition),
        clause("ORDER", &order)
    ))
}

/// A query without the order of its rows, which would have them sorted where others are joined with them.
pub fn unordered(sql: &str) -> String {
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
