//! Equalities that a condition implies.

use std::collections::BTreeSet;

use pg_query::NodeEnum;
use pg_query::protobuf::{AExprKind, Node as Parsed};

use super::expressions::{parse_expression, print_expression};
use super::subqueries::split_conjuncts;
use crate::core::expression::{ColumnId, Expression};

/// One side of an equality.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Side {
    /// The column that the side is, if it is a column or its text.
    pub column: Option<ColumnId>,
    /// Whether the side is the text of that column.
    pub is_text: bool,
    /// The columns in the expression.
    pub columns: BTreeSet<ColumnId>,
}

/// The pairs of values that must be equal by the operator `=` for the condition to be true.
pub fn equalities(condition: &Expression) -> Vec<(Side, Side)> {
    // A condition that cannot be parsed yields none.
    let Ok(parsed) = parse_expression(&condition.to_internal_text()) else {
        return Vec::new();
    };
    let mut conjuncts = Vec::new();
    split_conjuncts(&parsed, &mut conjuncts);
    conjuncts.into_iter().filter_map(parse_equality).collect()
}

/// The conjuncts of a condition by which values of `some` columns equal values of others.
pub fn equality_conjuncts(
    condition: &Expression,
    some_columns: &BTreeSet<ColumnId>,
) -> Option<Expression> {
    let parsed = parse_expression(&condition.to_internal_text()).ok()?;
    let mut conjuncts = Vec::new();
    split_conjuncts(&parsed, &mut conjuncts);
    let is_of_some = |side: &Side| !side.columns.is_empty() && side.columns.is_subset(some_columns);
    let is_of_others =
        |side: &Side| !side.columns.is_empty() && side.columns.is_disjoint(some_columns);
    let is_between = |conjunct: &&Parsed| {
        parse_equality(conjunct).is_some_and(|(one, other)| {
            is_of_some(&one) && is_of_others(&other) || is_of_others(&one) && is_of_some(&other)
        })
    };
    let conjunct_count = conjuncts.len();
    let equalities_between: Option<Vec<Expression>> = conjuncts
        .into_iter()
        .filter(is_between)
        .map(|one| Some(Expression::from_internal_text(&print_expression(one).ok()?)))
        .collect();
    let between =
        equalities_between.filter(|between| (1..conjunct_count).contains(&between.len()))?;
    Some(Expression::conjunction(&between))
}

fn parse_equality(condition: &Parsed) -> Option<(Side, Side)> {
    let Some(NodeEnum::AExpr(expr)) = &condition.node else {
        return None;
    };
    let is_equal = match &expr.name[..] {
        [name] => matches!(&name.node, Some(NodeEnum::String(name)) if name.sval == "="),
        _ => false,
    };
    if !is_equal || expr.kind != AExprKind::AexprOp as i32 {
        return None;
    }
    Some((parse_side(expr.lexpr.as_deref()?)?, parse_side(expr.rexpr.as_deref()?)?))
}

fn parse_side(node: &Parsed) -> Option<Side> {
    let expression = Expression::from_internal_text(&print_expression(node).ok()?);
    let text_column = text_cast_operand(node)
        .and_then(|inner| print_expression(inner).ok())
        .and_then(|inner| Expression::from_internal_text(&inner).as_column());
    Some(Side {
        column: expression.as_column().or(text_column),
        is_text: text_column.is_some(),
        columns: expression.columns(),
    })
}

/// The operand of a cast to `text`.
fn text_cast_operand(node: &Parsed) -> Option<&Parsed> {
    let Some(NodeEnum::TypeCast(cast)) = &node.node else {
        return None;
    };
    let last = cast.type_name.as_ref()?.names.last()?;
    match &last.node {
        Some(NodeEnum::String(name)) if name.sval == "text" => cast.arg.as_deref(),
        _ => None,
    }
}
