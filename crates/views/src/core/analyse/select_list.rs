//! The select list, DISTINCT ON and ORDER BY of a query.

use pg_query::NodeEnum;
use pg_query::protobuf::{Node as Parsed, SelectStmt, SortBy, SortByDir, SortByNulls, a_const};

use super::expressions::reference_names;
use super::scope::find_column;
use super::select::{QueryRows, select_targets};
use crate::core::expression::{ColumnId, Expression};
use crate::core::refusal::Refusal;

/// The expressions of a query over its rows.
pub(crate) struct SelectList {
    /// The select list with its names; then the expressions of DISTINCT ON and ORDER BY, without
    /// names.
    pub expressions: Vec<(String, Parsed)>,
    /// Number of visible expressions.
    pub visible_count: usize,
    /// Number of columns of the domain, the last ones of the visible expressions.
    pub domain_width: usize,
    /// Number of DISTINCT ON expressions.
    pub distinct_on_count: usize,
    /// The directions of ORDER BY, in SQL.
    pub directions: Vec<String>,
}

impl SelectList {
    /// The expressions of the domain's columns.
    pub(crate) fn domain_expressions(&self) -> impl Iterator<Item = &Parsed> {
        let domain_expressions =
            self.expressions[self.visible_count - self.domain_width..self.visible_count].iter();
        domain_expressions.map(|(_, one)| one)
    }
}

/// Collects the expressions of a query.
pub(crate) fn collect_select_list(query: &SelectStmt) -> Result<SelectList, Refusal> {
    let shown = select_targets(query)?.into_iter();
    let mut expressions: Vec<(String, Parsed)> =
        shown.map(|(name, one)| (name, one.clone())).collect();
    let visible_count = expressions.len();
    let mut directions = Vec::new();
    // DISTINCT without ON has one empty expression.
    let distinct_on: Vec<Parsed> = query
        .distinct_clause
        .iter()
        .filter(|expression| expression.node.is_some())
        .map(|one| resolve_target(one, &expressions[..visible_count]).clone())
        .collect();
    let count = distinct_on.len();
    let mut hidden = distinct_on;
    for sort_item in sort_items(query) {
        directions.push(sort_direction(sort_item));
        hidden.extend(
            sort_item.node.as_deref().map(|item| resolve_target(item, &expressions).clone()),
        );
    }
    expressions.extend(hidden.into_iter().map(|one| (String::new(), one)));
    Ok(SelectList {
        expressions,
        visible_count,
        domain_width: 0,
        distinct_on_count: count,
        directions,
    })
}

/// The items of ORDER BY.
fn sort_items(query: &SelectStmt) -> impl Iterator<Item = &SortBy> {
    query.sort_clause.iter().filter_map(|item| match &item.node {
        Some(NodeEnum::SortBy(sort)) => Some(&**sort),
        _ => None,
    })
}

/// Adds the ORDER BY of a query, whose items must name result columns.
///
/// # Errors
/// [`Refusal`] for anything else.
pub(crate) fn with_order(mut rows: QueryRows, query: &SelectStmt) -> Result<QueryRows, Refusal> {
    for sort_item in sort_items(query) {
        let column = match target_index(sort_item.node.as_deref()) {
            Some(place) => rows.columns.get(place).map(|(_, id)| *id),
            None => unqualified_name(sort_item.node.as_deref())
                .and_then(|name| find_column(&rows.columns, &name)),
        };
        let refusal = || Refusal::new("ORDER BY of this kind", -1, "name a column");
        rows.order.push((column.ok_or_else(refusal)?, sort_direction(sort_item)));
    }
    Ok(rows)
}

/// An ORDER BY item: an expression, or one of the select list by its number or name.
fn resolve_target<'a>(item: &'a Parsed, targets: &'a [(String, Parsed)]) -> &'a Parsed {
    let target = match target_index(Some(item)) {
        Some(place) => targets.get(place),
        None => {
            let name = unqualified_name(Some(item));
            name.and_then(|name| targets.iter().find(|(other, _)| *other == name))
        }
    };
    target.map_or(item, |(_, target)| target)
}

/// The index that a number in ORDER BY or GROUP BY stands for.
pub(crate) fn target_index(node: Option<&Parsed>) -> Option<usize> {
    match node?.node.as_ref()? {
        NodeEnum::AConst(constant) => match &constant.val {
            Some(a_const::Val::Ival(place)) => usize::try_from(place.ival - 1).ok(),
            _ => None,
        },
        _ => None,
    }
}

/// A name without a table.
fn unqualified_name(node: Option<&Parsed>) -> Option<String> {
    match node?.node.as_ref()? {
        NodeEnum::ColumnRef(column) => match &reference_names(column)[..] {
            [name] => Some(name.clone()),
            _ => None,
        },
        _ => None,
    }
}

/// The direction of an ORDER BY item, in SQL.
fn sort_direction(sort: &SortBy) -> String {
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
                    crate::core::expression::quote_identifier(schema)
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
pub(crate) fn row_number_call(partition: &[ColumnId], order: &[(ColumnId, String)]) -> Expression {
    window_call("row_number()", partition, order)
}

/// The call `rank()` over partitions, in this order.
pub(crate) fn rank_call(partition: &[ColumnId], order: &[(ColumnId, String)]) -> Expression {
    window_call("rank()", partition, order)
}

fn window_call(function: &str, partition: &[ColumnId], order: &[(ColumnId, String)]) -> Expression {
    let column_mark = |id: &ColumnId| format!("\"{}\"", Expression::internal_name(*id));
    let partition: Vec<String> = partition.iter().map(column_mark).collect();
    let order: Vec<String> =
        order.iter().map(|(id, direction)| format!("{}{direction}", column_mark(id))).collect();
    let clause = |name: &str, list: &[String]| {
        if list.is_empty() { String::new() } else { format!("{name} BY {} ", list.join(", ")) }
    };
    Expression::from_internal_text(&format!(
        "{function} OVER ({}{})",
        clause("PARTITION", &partition),
        clause("ORDER", &order)
    ))
}

/// The query without its ORDER BY, which would sort the rows where they are joined with others.
pub(crate) fn remove_order_by(sql: &str) -> String {
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
