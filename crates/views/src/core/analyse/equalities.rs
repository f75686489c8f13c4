//! Equalities that a condition implies.

use std::collections::BTreeSet;

use pg_query::NodeEnum;
use pg_query::protobuf::{AExprKind, Node as Parsed};

use super::expressions::{parse_expression, text};
use super::subqueries::split;
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
    let Ok(parsed) = parse_expression(&condition.marked()) else {
        return Vec::new();
    };
    let mut conjuncts = Vec::new();
    split(&parsed, &mut conjuncts);
    conjuncts.into_iter().filter_map(equality).collect()
}

/// The conjuncts of a condition by which values of `some` columns equal values of others.
pub fn equal_part(condition: &Expression, some: &BTreeSet<ColumnId>) -> Option<Expression> {
    let parsed = parse_expression(&condition.marked()).ok()?;
    let mut conjuncts = Vec::new();
    split(&parsed, &mut conjuncts);
    let are_of_some = |side: &Side| !side.columns.is_empty() && side.columns.is_subset(some);
    let are_of_others = |side: &Side| !side.columns.is_empty() && side.columns.is_disjoint(some);
    let is_between = |conjunct: &&Parsed| {
        equality(conjunct).is_some_and(|(one, other)| {
            are_of_some(&one) && are_of_others(&other) || are_of_others(&one) && are_of_some(&other)
        })
    };
    let all = conjuncts.len();
    let between: Option<Vec<Expression>> = conjuncts
        .into_iter()
        .filter(is_between)
        .map(|one| Some(Expression::read(&text(one).ok()?)))
        .collect();
    let between = between.filter(|between| (1..all).contains(&between.len()))?;
    Some(Expression::all(&between))
}

fn equality(condition: &Parsed) -> Option<(Side, Side)> {
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
    Some((side(expr.lexpr.as_deref()?)?, side(expr.rexpr.as_deref()?)?))
}

fn side(node: &Parsed) -> Option<Side> {
    let whole = Expression::read(&text(node).ok()?);
    let of_text = text_of(node)
        .and_then(|inner| text(inner).ok())
        .and_then(|inner| Expression::read(&inner).as_column());
    Some(Side {
        column: whole.as_column().or(of_text),
        is_text: of_text.is_some(),
        columns: whole.columns(),
    })
}

/// The operand of a cast to `text`.
fn text_of(node: &Parsed) -> Option<&Parsed> {
    let Some(NodeEnum::TypeCast(cast)) = &node.node else {
        return None;
    };
    let last = cast.type_name.as_ref()?.names.last()?;
    match &last.node {
        Some(NodeEnum::String(name)) if name.sval == "text" => cast.arg.as_deref(),
        _ => None,
    }
}
