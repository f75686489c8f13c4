//! Comparisons with subqueries that are used as values, such as `x < ANY (SELECT …)`, and
//! comparisons whose operator the server does not print.

use pg_query::protobuf::{AExprKind, Node as Parsed, SelectStmt, SubLink};
use pg_query::{NodeEnum, NodeRef};

use super::dependent_join::OuterReference;
use super::expressions::print_query;
use crate::core::expression::{Expression, quote_identifier};
use crate::core::refusal::Refusal;

/// Alias under which the compared values are visible to the subquery, like columns of an outer
/// row.
const TEST_ALIAS: &str = "egret$test";

/// Rewrites a comparison with a subquery as a query of one row. Returns the operands and the query.
/// Its result is null if no row decides the comparison and some row's comparison is null.
///
/// # Errors
/// [`Refusal`] for a comparison that cannot be printed or parsed.
pub(crate) fn comparison_query(
    link: &SubLink,
    query: &SelectStmt,
    operator: &str,
    is_all: bool,
) -> Result<(Vec<Parsed>, SelectStmt), Refusal> {
    let operands: Vec<Parsed> =
        match link.testexpr.as_deref().and_then(|operand| operand.node.as_ref()) {
            Some(NodeEnum::RowExpr(row)) => row.args.clone(),
            _ => link.testexpr.as_deref().into_iter().cloned().collect(),
        };
    let names: Vec<String> = (1..=operands.len()).map(|number| format!("c{number}")).collect();
    let side = |table: &str| {
        let columns = names
            .iter()
            .map(|name| format!("{}.{name}", quote_identifier(table)))
            .collect::<Vec<_>>();
        match &columns[..] {
            [only] => only.clone(),
            all => format!("({})", all.join(", ")),
        }
    };
    let test = format!("({} {operator} {})", side(TEST_ALIAS), side("egret$found"));
    let decision = if is_all {
        format!("NOT bool_and({test}) THEN false")
    } else {
        format!("bool_or({test}) THEN true")
    };
    let sql = format!(
        "SELECT CASE WHEN {decision} WHEN count(*) > count({test}) THEN NULL ELSE {is_all} END FROM ({}) AS \"egret$found\"({})",
        print_query(query.clone())?,
        names.join(", ")
    );
    Ok((operands, super::parse(&sql)?))
}

/// The operands, as references to outer rows.
pub(crate) fn operand_references(values: Vec<Expression>) -> impl Iterator<Item = OuterReference> {
    let values = values.into_iter().enumerate();
    values.map(|(index, value)| OuterReference {
        table: TEST_ALIAS.to_owned(),
        column: format!("c{}", index + 1),
        value,
    })
}

/// Refuses constructs that the server prints without their equality operator, if a type has one of
/// its own: parsed again, they would use another operator.
pub(crate) fn refuse_bare_equality(sql: &str) -> Result<(), Refusal> {
    let parsed = pg_query::parse(sql, pg_query::ParserOptions::default())
        .map_err(|error| Refusal::new("a query", -1, error.to_string()))?;
    let kinds = [
        (AExprKind::AexprNullif, "NULLIF"),
        (AExprKind::AexprDistinct, "IS DISTINCT FROM"),
        (AExprKind::AexprNotDistinct, "IS NOT DISTINCT FROM"),
    ];
    let implicit_equality = |node: &NodeRef<'_>| match node {
        NodeRef::JoinExpr(join) if join.is_natural || !join.using_clause.is_empty() => {
            Some(("USING", -1))
        }
        NodeRef::CaseExpr(case) if case.arg.is_some() => Some(("CASE with a value", case.location)),
        NodeRef::AExpr(expr) => {
            let mut kinds = kinds.iter();
            let found = kinds.find(|(kind, _)| *kind as i32 == expr.kind)?;
            Some((found.1, expr.location))
        }
        _ => None,
    };
    let mut nodes = parsed.protobuf.nodes().into_iter();
    match nodes.find_map(|(node, ..)| implicit_equality(&node)) {
        None => Ok(()),
        Some((what, position)) => Err(Refusal::new(
            format!("{what} on a type with its own equality operator"),
            position,
            "compare with `=`, or use mode full",
        )),
    }
}
