//! Subqueries that are used as values: their references to outer rows, and how they are joined.

use pg_query::NodeEnum;
use pg_query::protobuf::{Node as Parsed, SelectStmt, SubLink, SubLinkType};

use super::comparisons::{comparison_query, operand_references};
use super::ctes::Ctes;
use super::dependent_join::{OuterReference, has_outer_aggregate, outer_references};
use super::expressions::column_reference;
use super::facts::Facts;
use super::subqueries::comparison_operator;
use crate::core::expression::{ColumnId, Expression};
use crate::core::refusal::Refusal;
use crate::core::tree::Node;

/// A subquery whose value belongs to the rows of the outer query.
#[derive(Clone)]
pub(crate) enum SubqueryValue {
    /// It is joined with these rows by equalities.
    Correlated(CorrelatedSubquery),
    /// It is analysed once these rows are known.
    ByDomain(DomainSubquery),
}

/// A subquery that depends on outer rows by equalities only.
#[derive(Clone)]
pub(crate) struct CorrelatedSubquery {
    pub node: Node,
    /// The equalities: a column of the subquery, and an expression of the outer query.
    pub pairs: Vec<(ColumnId, Parsed)>,
}

/// A subquery that depends on outer rows in any other way, and is computed for each distinct value.
#[derive(Clone)]
pub(crate) struct DomainSubquery {
    /// Column that stands for its value.
    pub column: ColumnId,
    pub link: SubLink,
    pub ctes: Ctes,
    /// Why it cannot be joined by equalities.
    pub refusal: Refusal,
}

/// A subquery with its references to outer rows resolved.
pub(crate) enum ScalarSubquery {
    /// It is joined with the outer rows on a condition.
    Joined(Node, Expression),
    /// It is computed for each distinct value of its outer references.
    ByDomain(ColumnId, SubLinkType, Box<SelectStmt>, Ctes, Vec<OuterReference>),
}

impl ScalarSubquery {
    /// The expressions in it that refer to outer rows.
    pub(crate) fn outer_expressions(&mut self) -> Vec<&mut Expression> {
        match self {
            Self::Joined(_, condition) => vec![condition],
            Self::ByDomain(.., outer) => {
                outer.iter_mut().map(|reference| &mut reference.value).collect()
            }
        }
    }
}

impl SubqueryValue {
    /// The columns that it adds to the outer rows.
    pub(crate) fn columns(&self) -> Vec<ColumnId> {
        match self {
            Self::Correlated(value) => value.node.columns(),
            Self::ByDomain(value) => vec![value.column],
        }
    }
}

/// Subqueries with their references to outer rows resolved by `resolve`.
pub(crate) fn resolve_subqueries(
    values: Vec<SubqueryValue>,
    mut resolve: impl FnMut(&Parsed) -> Result<Expression, Refusal>,
) -> Result<Vec<ScalarSubquery>, Refusal> {
    let mut subqueries = Vec::new();
    for value in values {
        match value {
            SubqueryValue::Correlated(value) => {
                let mut conditions = Vec::new();
                for (inner, outer) in &value.pairs {
                    conditions.push(Expression::column(*inner).infix("=", &resolve(outer)?));
                }
                subqueries
                    .push(ScalarSubquery::Joined(value.node, Expression::conjunction(&conditions)));
            }
            SubqueryValue::ByDomain(value) => {
                subqueries.push(value.resolve_references(&mut resolve)?)
            }
        }
    }
    Ok(subqueries)
}

impl DomainSubquery {
    /// Resolves its references to outer rows.
    fn resolve_references(
        self,
        resolve: &mut impl FnMut(&Parsed) -> Result<Expression, Refusal>,
    ) -> Result<ScalarSubquery, Refusal> {
        let (query, kind) = link_query(&self.link)?;
        let (query, kind, operands) = match kind {
            SubLinkType::AnySublink | SubLinkType::AllSublink => {
                let operator = comparison_operator(&self.link);
                let is_all = kind == SubLinkType::AllSublink;
                let (compared, query) = comparison_query(&self.link, query, &operator, is_all)?;
                (Box::new(query), SubLinkType::ExprSublink, compared)
            }
            SubLinkType::ExprSublink | SubLinkType::ArraySublink | SubLinkType::ExistsSublink => {
                (Box::new(query.clone()), kind, Vec::new())
            }
            _ => return Err(self.refusal),
        };
        let compared = operands.iter().map(&mut *resolve).collect::<Result<_, _>>()?;
        let mut outer: Vec<OuterReference> = operand_references(compared).collect();
        outer.extend(outer_references(&query, |names| resolve(&column_reference(names)).ok())?);
        if outer.is_empty() {
            Err(self.refusal)
        } else {
            Ok(ScalarSubquery::ByDomain(self.column, kind, query, self.ctes, outer))
        }
    }
}

/// The query of a subquery expression, and its kind.
///
/// # Errors
/// [`Refusal`] for an expression without a SELECT.
pub(crate) fn link_query(link: &SubLink) -> Result<(&SelectStmt, SubLinkType), Refusal> {
    let query = link.subselect.as_ref();
    let query = query.and_then(|query| query.node.as_ref());
    match (query, SubLinkType::try_from(link.sub_link_type)) {
        (Some(NodeEnum::SelectStmt(query)), Ok(kind)) => Ok((query, kind)),
        _ => Err(unsupported_subquery(link)),
    }
}

/// Refuses an aggregate within a subquery that the server computes over the outer rows.
pub(crate) fn refuse_outer_aggregates(link: &SubLink, facts: &Facts) -> Result<(), Refusal> {
    let (query, _) = link_query(link)?;
    if has_outer_aggregate(query, |call| facts.is_aggregate(call))? {
        Err(Refusal::new(
            "an aggregate of outer rows in a subquery",
            link.location,
            "compute it in a subquery in FROM, and name it",
        ))
    } else {
        Ok(())
    }
}

/// Refusal of a subquery that is not supported.
pub(crate) fn unsupported_subquery(link: &SubLink) -> Refusal {
    let advice = "write it as a join, or use mode full";
    Refusal::new("a subquery in an expression", link.location, advice)
}
