//! Values of subqueries, between where they are said and the rows that they are of.

use pg_query::NodeEnum;
use pg_query::protobuf::{Node as Parsed, SelectStmt, SubLink, SubLinkType};

use super::Facts;
use super::comparisons::{comparison, tested};
use super::expressions::named;
use super::given::{Outer, has_outer_aggregate, outer_of};
use super::select::Ctes;
use super::subqueries::operator;
use crate::core::expression::{ColumnId, Expression};
use crate::core::refusal::Refusal;
use crate::core::tree::Node;

/// A subquery that is a value of the rows around it.
#[derive(Clone)]
pub enum Value {
    /// It is joined with them where something is equal.
    Joined(Compared),
    /// It is looked at when these rows are known.
    ByValues(ByValues),
}

/// What a subquery comes to.
#[derive(Clone)]
pub struct Compared {
    pub node: Node,
    /// What has to be equal: a column of the subquery, and something of the rows around it.
    pub pairs: Vec<(ColumnId, Parsed)>,
}

/// A subquery that depends on the rows around it by more than what is equal.
#[derive(Clone)]
pub struct ByValues {
    /// What it comes to.
    pub column: ColumnId,
    pub link: SubLink,
    pub ctes: Ctes,
    /// Why it is not looked at in another way.
    pub refusal: Refusal,
}

/// A value of rows that are known.
pub enum Found {
    /// It is joined with them where a condition is true.
    Joined(Node, Expression),
    /// It is computed by what it names of them.
    ByValues(ColumnId, SubLinkType, Box<SelectStmt>, Ctes, Vec<Outer>),
}

impl Found {
    /// What it depends on of the rows around it.
    pub fn outer(&mut self) -> Vec<&mut Expression> {
        match self {
            Self::Joined(_, condition) => vec![condition],
            Self::ByValues(.., outer) => outer.iter_mut().map(|one| &mut one.value).collect(),
        }
    }
}

impl Value {
    /// The columns that it adds to rows.
    pub fn columns(&self) -> Vec<ColumnId> {
        match self {
            Self::Joined(value) => value.node.columns(),
            Self::ByValues(value) => vec![value.column],
        }
    }
}

/// Values with the conditions they are joined by.
///
/// # Errors
/// What `resolved` has.
pub fn joined(
    values: Vec<Value>,
    mut resolved: impl FnMut(&Parsed) -> Result<Expression, Refusal>,
) -> Result<Vec<Found>, Refusal> {
    let mut all = Vec::new();
    for value in values {
        match value {
            Value::Joined(value) => {
                let mut conditions = Vec::new();
                for (inner, outer) in &value.pairs {
                    conditions.push(Expression::column(*inner).infix("=", &resolved(outer)?));
                }
                all.push(Found::Joined(value.node, Expression::all(&conditions)));
            }
            Value::ByValues(value) => all.push(value.found(&mut resolved)?),
        }
    }
    Ok(all)
}

impl ByValues {
    /// It, with what it names of the rows around it.
    fn found(
        self,
        resolved: &mut impl FnMut(&Parsed) -> Result<Expression, Refusal>,
    ) -> Result<Found, Refusal> {
        let (query, kind) = query_of(&self.link)?;
        let (query, kind, compared) = match kind {
            SubLinkType::AnySublink | SubLinkType::AllSublink => {
                let how = (&operator(&self.link)[..], kind == SubLinkType::AllSublink);
                let (compared, query) = comparison(&self.link, query, how)?;
                (Box::new(query), SubLinkType::ExprSublink, compared)
            }
            SubLinkType::ExprSublink | SubLinkType::ArraySublink | SubLinkType::ExistsSublink => {
                (Box::new(query.clone()), kind, Vec::new())
            }
            _ => return Err(self.refusal),
        };
        let compared = compared.iter().map(&mut *resolved);
        let compared = compared.collect::<Result<_, _>>()?;
        let mut outer: Vec<Outer> = tested(compared).collect();
        outer.extend(outer_of(&query, |names| resolved(&named(names)).ok())?);
        match outer.is_empty() {
            true => Err(self.refusal),
            false => Ok(Found::ByValues(self.column, kind, query, self.ctes, outer)),
        }
    }
}

/// The query of a subquery, and what is asked of it.
///
/// # Errors
/// [`Refusal`] for what is none.
pub fn query_of(link: &SubLink) -> Result<(&SelectStmt, SubLinkType), Refusal> {
    let query = link.subselect.as_ref();
    let query = query.and_then(|query| query.node.as_ref());
    match (query, SubLinkType::try_from(link.sub_link_type)) {
        (Some(NodeEnum::SelectStmt(query)), Ok(kind)) => Ok((query, kind)),
        _ => Err(not_covered(link)),
    }
}

/// Refuses what the server computes of the rows around a subquery although it stands within.
///
/// # Errors
/// [`Refusal`].
pub fn refuse_outer_aggregates(link: &SubLink, facts: &Facts) -> Result<(), Refusal> {
    let (query, _) = query_of(link)?;
    match has_outer_aggregate(query, |call| facts.is_aggregate(call))? {
        true => Err(Refusal::new(
            "an aggregate of the rows around a subquery in it",
            link.location,
            "compute it in a subquery in FROM, and name it",
        )),
        false => Ok(()),
    }
}

/// That a subquery is none of those that are covered.
pub fn not_covered(link: &SubLink) -> Refusal {
    let advice = "write it as a join, or use mode full";
    Refusal::new("a subquery in an expression", link.location, advice)
}
