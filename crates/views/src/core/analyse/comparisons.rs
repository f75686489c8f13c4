//! Comparisons with what subqueries give, where they are values: `x < ANY (SELECT …)`; and those
//! whose operator the server does not print.

use pg_query::protobuf::{AExprKind, Node as Parsed, SelectStmt, SubLink};
use pg_query::{NodeEnum, NodeRef};

use super::dependent_join::OuterReference;
use super::expressions::printed;
use super::facts::Facts;
use crate::core::expression::{Expression, quoted};
use crate::core::refusal::Refusal;

/// The names of a value that is compared with what a subquery gives, among those of the rows around
/// it.
const TEST: &str = "egret$test";

/// A comparison with what a subquery gives, as a query of one row: what is compared, and the query.
/// It is unknown where nothing decides it and something is unknown.
///
/// # Errors
/// [`Refusal`] for a comparison that is none.
pub fn comparison(
    link: &SubLink,
    query: &SelectStmt,
    operator: &str,
    is_all: bool,
) -> Result<(Vec<Parsed>, SelectStmt), Refusal> {
    let compared: Vec<Parsed> = match link.testexpr.as_deref().and_then(|one| one.node.as_ref()) {
        Some(NodeEnum::RowExpr(row)) => row.args.clone(),
        _ => link.testexpr.as_deref().into_iter().cloned().collect(),
    };
    let names: Vec<String> = (1..=compared.len()).map(|at| format!("c{at}")).collect();
    let side = |table: &str| {
        let each = names
            .iter()
            .map(|name| format!("{}.{name}", quoted(table)))
            .collect::<Vec<_>>();
        match &each[..] {
            [only] => only.clone(),
            all => format!("({})", all.join(", ")),
        }
    };
    let test = format!("({} {operator} {})", side(TEST), side("egret$found"));
    let decided = if is_all {
        format!("NOT bool_and({test}) THEN false")
    } else {
        format!("bool_or({test}) THEN true")
    };
    let sql = format!(
        "SELECT CASE WHEN {decided} WHEN count(*) > count({test}) THEN NULL ELSE {is_all} END FROM ({}) AS \"egret$found\"({})",
        printed(query.clone())?,
        names.join(", ")
    );
    Ok((compared, super::parse(&sql)?))
}

/// What is compared, as values of the rows around.
pub(crate) fn tested(values: Vec<Expression>) -> impl Iterator<Item = OuterReference> {
    let values = values.into_iter().enumerate();
    values.map(|(at, value)| OuterReference {
        table: TEST.to_owned(),
        column: format!("c{}", at + 1),
        value,
    })
}

/// Refuses what the server prints without the operator by which values are equal, where that is not
/// the system's: here it would be another.
pub(crate) fn refuse_bare_equality(sql: &str, facts: &Facts) -> Result<(), Refusal> {
    if !facts.has_own_equality {
        return Ok(());
    }
    let parsed = pg_query::parse(sql, pg_query::ParserOptions::default())
        .map_err(|error| Refusal::new("a query", -1, error.to_string()))?;
    let kinds = [
        (AExprKind::AexprNullif, "NULLIF"),
        (AExprKind::AexprDistinct, "IS DISTINCT FROM"),
        (AExprKind::AexprNotDistinct, "IS NOT DISTINCT FROM"),
    ];
    let bare = |node: &NodeRef<'_>| match node {
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
    let mut found = parsed.protobuf.nodes().into_iter();
    match found.find_map(|(node, ..)| bare(&node)) {
        None => Ok(()),
        Some((what, position)) => Err(Refusal::new(
            format!("{what} on a type with its own equality operator"),
            position,
            "compare with `=`, or use mode full",
        )),
    }
}
