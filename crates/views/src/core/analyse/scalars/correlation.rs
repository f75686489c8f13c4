//! Equalities of a subquery with the outer row.

use pg_query::NodeEnum;
use pg_query::protobuf::{AExprKind, Node as Parsed};

use super::super::Analysis;
use super::super::children::has_collation;
use super::super::clock::has_clock;
use super::super::dependent_join::has_only_outer_columns;
use super::super::expressions::resolve_expression;
use super::super::scope::Scope;
use crate::core::expression::{ColumnId, Expression};

/// An equality of a subquery with the outer row.
#[derive(Clone)]
pub(super) struct CorrelationPair {
    pub(super) inner: Expression,
    pub(super) outer: Parsed,
}

impl CorrelationPair {
    /// A column of the domain that a subquery is computed for.
    pub(super) fn for_domain_column(column: ColumnId) -> Self {
        Self { inner: Expression::column(column), outer: Parsed::default() }
    }
}

impl Analysis<'_> {
    /// The two sides of an equality of a subquery with the outer row; none where collations differ.
    pub(super) fn correlation_pair(
        &self,
        condition: &Parsed,
        scope: &Scope,
    ) -> Option<CorrelationPair> {
        let Some(NodeEnum::AExpr(expr)) = &condition.node else {
            return None;
        };
        let is_equal = matches!(&expr.name[..], [one] if matches!(&one.node,
        Some(NodeEnum::String(name)) if name.sval == "="));
        let is_plain = expr.kind == AExprKind::AexprOp as i32
            && !self.facts.has_collations
            && !has_collation(condition);
        if !is_equal || !is_plain || has_clock(condition) {
            return None;
        }
        let (left, right) = (expr.lexpr.as_deref()?, expr.rexpr.as_deref()?);
        let pair = |inner, outer: &Parsed| {
            let outer = has_only_outer_columns(outer, scope).then(|| outer.clone())?;
            Some(CorrelationPair { inner, outer })
        };
        match (resolve_expression(left, scope), resolve_expression(right, scope)) {
            (Ok(inner), Err(_)) => pair(inner, right),
            (Err(_), Ok(inner)) => pair(inner, left),
            _ => None,
        }
    }
}
