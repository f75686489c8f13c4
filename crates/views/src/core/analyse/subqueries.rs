//! WHERE with subqueries: EXISTS, IN, ANY and ALL, and their negations, as semi and anti joins.
//!
//! A row is kept where the condition is true, not where it is unknown. So for a subquery `S`:
//!
//! | condition | true where |
//! |---|---|
//! | `EXISTS S`, `NOT EXISTS S` | something matches, nothing does |
//! | `x op ANY S` | for some `y` of `S`, `x op y` is true |
//! | `NOT x op ANY S` | for no `y` it is true or unknown |
//! | `x op ALL S` | for no `y` it is false or unknown |
//! | `NOT x op ALL S` | for some `y` it is false |

use pg_query::NodeEnum;
use pg_query::protobuf::{
    BoolExprType, Node as Parsed, SelectStmt, SetOperation, SubLink, SubLinkType,
};

use super::children::{has_link, has_window};
use super::clock::has_clock;
use super::ctes::{Ctes, with};
use super::expressions::expression;
use super::lateral::LateralItem;
use super::scope::Scope;
use super::select::{refuse_what_is_not_covered, targets};
use super::{Analysis, DEPTH_MAX};
use crate::core::expression::{Expression, quoted};
use crate::core::refusal::Refusal;
use crate::core::tree::{JoinKind, Node};

impl Analysis<'_> {
    /// Filters rows by a condition, which may have subqueries.
    pub(super) fn filtered(
        &mut self,
        node: Node,
        condition: &Parsed,
        scope: &Scope,
        ctes: &Ctes,
    ) -> Result<Node, Refusal> {
        let mut conjuncts = Vec::new();
        split(condition, &mut conjuncts);
        if !conjuncts.iter().any(|one| has_link(one) || has_clock(one)) {
            return Ok(filter(node, expression(condition, scope)?));
        }
        let (of_clock, conjuncts): (Vec<_>, Vec<_>) = conjuncts
            .into_iter()
            .partition(|one| has_clock(one) && !has_link(one));
        let (links, others): (Vec<_>, Vec<_>) = conjuncts
            .into_iter()
            .partition(|one| link_of(one).is_some_and(|(link, _)| is_condition(link)));
        let (with_values, plain): (Vec<_>, Vec<_>) =
            others.into_iter().partition(|one| has_link(one));
        let mut node = node;
        for condition in plain {
            node = filter(node, expression(condition, scope)?);
        }
        if !of_clock.is_empty() {
            node = self.recent(node, &of_clock, scope)?;
        }
        for condition in with_values {
            node = self.filtered_by_values(node, condition, scope, ctes)?;
        }
        for (link, is_negated) in links.into_iter().filter_map(link_of) {
            node = self.tested(node, link, is_negated, scope, ctes)?;
        }
        Ok(node)
    }

    fn tested(
        &mut self,
        node: Node,
        link: &SubLink,
        is_negated: bool,
        scope: &Scope,
        ctes: &Ctes,
    ) -> Result<Node, Refusal> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            let what = format!("a query nested deeper than {DEPTH_MAX}");
            return Err(Refusal::new(what, link.location, "simplify it"));
        }
        let query = link
            .subselect
            .as_ref()
            .and_then(|query| query.node.as_ref());
        let Some(NodeEnum::SelectStmt(query)) = query else {
            let advice = "use mode full";
            return Err(Refusal::new(
                "a subquery of this kind",
                link.location,
                advice,
            ));
        };
        let kind = SubLinkType::try_from(link.sub_link_type);
        let mark = self.mark();
        let (node, mut inner) = match self.inner(query, scope, ctes) {
            Ok(inner) => (node, inner),
            Err(refusal) => {
                self.back_to(&mark);
                let found = self.decorrelate(node, query, scope, ctes)?;
                found.ok_or(refusal)?
            }
        };
        if kind == Ok(SubLinkType::ExistsSublink) {
            // They say nothing. The server refuses there what gives several rows, or none, which
            // would say something.
            let unsaid: Vec<Expression> = inner
                .columns
                .iter()
                .map(|(_, one)| one)
                .filter(|one| one.as_column().is_none())
                .map(|one| one.tested("IS NULL OR true"))
                .collect();
            inner.conditions.extend(unsaid);
        }
        let joins = joins(link, is_negated, &inner, scope)?;
        self.depth -= 1;
        let mut joined = node;
        for (kind, condition) in joins {
            joined = self.join(kind, joined, inner.node.clone(), condition);
        }
        Ok(joined)
    }

    fn inner(
        &mut self,
        query: &SelectStmt,
        around: &Scope,
        ctes: &Ctes,
    ) -> Result<LateralItem, Refusal> {
        if !self.is_plain(query)? {
            return Ok(self.select(query, ctes)?.into());
        }
        let ctes = with(query, ctes)?;
        refuse_what_is_not_covered(query)?;
        let (mut node, scope) = self.from(&query.from_clause, &ctes)?;
        let both = scope.within(around);
        let mut conjuncts = Vec::new();
        if let Some(condition) = query.where_clause.as_deref() {
            split(condition, &mut conjuncts);
        }
        let mut conditions = Vec::new();
        for conjunct in conjuncts {
            if has_link(conjunct) || has_clock(conjunct) {
                node = self.filtered(node, conjunct, &scope, &ctes)?;
                continue;
            }
            let condition = expression(conjunct, &both)?;
            let columns = node.columns();
            if condition.columns().iter().all(|id| columns.contains(id)) {
                node = filter(node, condition)
            } else {
                conditions.push(condition)
            }
        }
        let columns = targets(query)?
            .into_iter()
            .map(|(name, target)| Ok((name, expression(target, &both)?)));
        Ok(LateralItem {
            columns: columns.collect::<Result<_, Refusal>>()?,
            node,
            conditions,
        })
    }

    /// Analyses a query that may depend on the rows before it, keeping duplicates.
    pub(super) fn dependent(
        &mut self,
        query: &SelectStmt,
        around: &Scope,
        ctes: &Ctes,
    ) -> Result<LateralItem, Refusal> {
        if query.distinct_clause.is_empty() {
            self.inner(query, around, ctes)
        } else {
            Ok(self.select(query, ctes)?.into())
        }
    }

    /// Whether the query returns exactly the rows of FROM that satisfy WHERE, except that the
    /// number of copies of a row may differ.
    pub(super) fn is_plain(&self, query: &SelectStmt) -> Result<bool, Refusal> {
        let is_distinct_on = query.distinct_clause.iter().any(|one| one.node.is_some());
        let targets = targets(query)?;
        let mut targets = targets.iter();
        let is_computed = |one: &Parsed| {
            self.facts.has_aggregate(one) || self.facts.has_set(one) || has_window(one)
        };
        let has_computed = targets.any(|(_, target)| is_computed(target));
        let is_plain = matches!(
            SetOperation::try_from(query.op),
            Ok(SetOperation::SetopNone | SetOperation::Undefined)
        ) && query.values_lists.is_empty()
            && query.group_clause.is_empty()
            && query.having_clause.is_none()
            && query.limit_count.is_none()
            && query.limit_offset.is_none()
            && !is_distinct_on
            && !has_computed;
        Ok(is_plain)
    }
}

/// The semi and anti joins that apply a condition with a subquery, in order.
fn joins(
    link: &SubLink,
    is_negated: bool,
    inner: &LateralItem,
    scope: &Scope,
) -> Result<Vec<(JoinKind, Expression)>, Refusal> {
    let kind = SubLinkType::try_from(link.sub_link_type);
    let targets: Vec<Expression> = inner.columns.iter().map(|(_, one)| one.clone()).collect();
    let all = |test: Option<Expression>| {
        let conditions = inner.conditions.iter().cloned().chain(test);
        Expression::all(&conditions.collect::<Vec<_>>())
    };
    Ok(match (kind, is_negated) {
        (Ok(SubLinkType::ExistsSublink), false) => vec![(JoinKind::Semi, all(None))],
        (Ok(SubLinkType::ExistsSublink), true) => vec![(JoinKind::Anti, all(None))],
        (Ok(SubLinkType::AnySublink), true) => {
            let compared = compared(link, &targets, scope)?;
            let anti = |test| (JoinKind::Anti, all(Some(test)));
            match compared.is_equality {
                // An equality is null only if a side is null. Separate anti joins can each use a
                // lookup; a single condition with OR could not.
                Some((one, other)) => vec![
                    anti(compared.test),
                    anti(other.tested("IS NOT DISTINCT FROM NULL")),
                    anti(one.tested("IS NOT DISTINCT FROM NULL")),
                ],
                None => vec![anti(compared.test.tested("IS NOT FALSE"))],
            }
        }
        (Ok(SubLinkType::AnySublink), false) => {
            let test = compared(link, &targets, scope)?.test;
            vec![(JoinKind::Semi, all(Some(test)))]
        }
        (Ok(SubLinkType::AllSublink), is_negated) => {
            let test = compared(link, &targets, scope)?.test;
            if !is_negated {
                vec![(JoinKind::Anti, all(Some(test.tested("IS NOT TRUE"))))]
            } else {
                vec![(JoinKind::Semi, all(Some(test.tested("IS FALSE"))))]
            }
        }
        _ => {
            let advice = "write it as a join, or use mode full";
            let what = "a subquery in an expression";
            return Err(Refusal::new(what, link.location, advice));
        }
    })
}

struct QuantifiedTest {
    test: Expression,
    /// Both sides, if the condition is a single equality.
    is_equality: Option<(Expression, Expression)>,
}

/// The test that a quantified comparison applies to each row of its subquery.
fn compared(
    link: &SubLink,
    targets: &[Expression],
    scope: &Scope,
) -> Result<QuantifiedTest, Refusal> {
    let one = link.testexpr.as_deref();
    let sides: Vec<&Parsed> = match one.and_then(|one| one.node.as_ref()) {
        Some(NodeEnum::RowExpr(row)) => row.args.iter().collect(),
        _ => one.into_iter().collect(),
    };
    let operator = operator(link);
    let sides: Vec<Expression> = sides
        .into_iter()
        .map(|side| expression(side, scope))
        .collect::<Result<_, _>>()?;
    let is_known = sides.len() == targets.len() && (sides.len() == 1 || operator == "=");
    if !is_known {
        let what = "a comparison of rows with a subquery by an operator other than `=`";
        return Err(Refusal::new(what, link.location, "use mode full"));
    }
    let pairs = || sides.iter().zip(targets);
    let tests = pairs().map(|(one, other)| one.infix(&operator, other));
    let is_equality = (sides.len() == 1 && operator == "=").then(|| pairs().next());
    Ok(QuantifiedTest {
        test: Expression::all(&tests.collect::<Vec<_>>()),
        is_equality: is_equality
            .flatten()
            .map(|(one, other)| (one.clone(), other.clone())),
    })
}

/// The operator of a comparison with a subquery.
pub(super) fn operator(link: &SubLink) -> String {
    let names: Vec<&str> = link
        .oper_name
        .iter()
        .filter_map(|name| match &name.node {
            Some(NodeEnum::String(name)) => Some(name.sval.as_str()),
            _ => None,
        })
        .collect();
    match names[..] {
        [] => "=".to_owned(),
        [name] => name.to_owned(),
        [schema, name] => format!("OPERATOR({}.{name})", quoted(schema)),
        _ => names.concat(),
    }
}

/// Splits a condition into its conjuncts.
pub(super) fn split<'a>(condition: &'a Parsed, all: &mut Vec<&'a Parsed>) {
    match &condition.node {
        Some(NodeEnum::BoolExpr(expr)) if expr.boolop == BoolExprType::AndExpr as i32 => {
            expr.args.iter().for_each(|one| split(one, all));
        }
        _ => all.push(condition),
    }
}

/// The subquery of a condition, and whether it is negated.
fn link_of(condition: &Parsed) -> Option<(&SubLink, bool)> {
    match &condition.node {
        Some(NodeEnum::SubLink(link)) => Some((link, false)),
        Some(NodeEnum::BoolExpr(expr)) if expr.boolop == BoolExprType::NotExpr as i32 => {
            let (link, is_negated) = link_of(expr.args.first()?)?;
            Some((link, !is_negated))
        }
        _ => None,
    }
}

/// Whether the subquery is a condition (EXISTS, IN, ANY, ALL) and not a value.
fn is_condition(link: &SubLink) -> bool {
    let test = link.testexpr.as_deref().and_then(|one| one.node.as_ref());
    let is_row = matches!(test, Some(NodeEnum::RowExpr(_)));
    let is_ordered = is_row && operator(link) != "=";
    !is_ordered
        && !matches!(
            SubLinkType::try_from(link.sub_link_type),
            Ok(SubLinkType::ExprSublink | SubLinkType::ArraySublink)
        )
}

/// Filters the rows of an operator.
pub fn filter(node: Node, condition: Expression) -> Node {
    Node::Filter {
        input: Box::new(node),
        condition,
    }
}
