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

use super::children::{has_subquery, has_window};
use super::clock::has_clock;
use super::ctes::{Ctes, collect_ctes};
use super::expressions::resolve_expression;
use super::lateral::LateralItem;
use super::scope::Scope;
use super::select::{refuse_locking_clause, select_targets};
use super::{Analysis, DEPTH_MAX};
use crate::core::expression::{Expression, quote_identifier};
use crate::core::refusal::Refusal;
use crate::core::tree::{JoinKind, Node};

impl Analysis<'_> {
    /// Filters rows by a condition, which may have subqueries.
    pub(super) fn filter_by_condition(
        &mut self,
        node: Node,
        condition: &Parsed,
        scope: &Scope,
        ctes: &Ctes,
    ) -> Result<Node, Refusal> {
        let mut conjuncts = Vec::new();
        split_conjuncts(condition, &mut conjuncts);
        if !conjuncts.iter().any(|conjunct| has_subquery(conjunct) || has_clock(conjunct)) {
            return Ok(filter_rows(node, resolve_expression(condition, scope)?));
        }
        let (clock_conjuncts, conjuncts): (Vec<_>, Vec<_>) =
            conjuncts.into_iter().partition(|one| has_clock(one) && !has_subquery(one));
        let (subquery_conditions, others): (Vec<_>, Vec<_>) =
            conjuncts.into_iter().partition(|one| {
                subquery_condition(one).is_some_and(|(link, _)| is_filter_subquery(link))
            });
        let (value_conjuncts, plain_conjuncts): (Vec<_>, Vec<_>) =
            others.into_iter().partition(|one| has_subquery(one));
        let mut node = node;
        for condition in plain_conjuncts {
            node = filter_rows(node, resolve_expression(condition, scope)?);
        }
        if !clock_conjuncts.is_empty() {
            node = self.add_temporal_filter(node, &clock_conjuncts, scope)?;
        }
        for condition in value_conjuncts {
            node = self.filter_by_subqueries(node, condition, scope, ctes)?;
        }
        for (link, is_negated) in subquery_conditions.into_iter().filter_map(subquery_condition) {
            node = self.join_subquery(node, link, is_negated, scope, ctes)?;
        }
        Ok(node)
    }

    fn join_subquery(
        &mut self,
        node: Node,
        link: &SubLink,
        is_negated: bool,
        scope: &Scope,
        ctes: &Ctes,
    ) -> Result<Node, Refusal> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            let construct = format!("a query nested deeper than {DEPTH_MAX}");
            return Err(Refusal::new(construct, link.location, "simplify it"));
        }
        let query = link.subselect.as_ref().and_then(|query| query.node.as_ref());
        let Some(NodeEnum::SelectStmt(query)) = query else {
            let advice = "use mode full";
            return Err(Refusal::new("a subquery of this kind", link.location, advice));
        };
        let kind = SubLinkType::try_from(link.sub_link_type);
        let checkpoint = self.checkpoint();
        let (node, mut inner) = match self.analyse_inner(query, scope, ctes) {
            Ok(inner) => (node, inner),
            Err(refusal) => {
                self.restore_checkpoint(&checkpoint);
                let decorrelated = self.decorrelate(node, query, scope, ctes)?;
                decorrelated.ok_or(refusal)?
            }
        };
        if kind == Ok(SubLinkType::ExistsSublink) {
            // They say nothing. The server refuses there what gives several rows, or none, which
            // would say something.
            let evaluated_targets: Vec<Expression> = inner
                .columns
                .iter()
                .map(|(_, one)| one)
                .filter(|target| target.as_column().is_none())
                .map(|one| one.with_test("IS NULL OR true"))
                .collect();
            inner.conditions.extend(evaluated_targets);
        }
        let joins = semi_joins(link, is_negated, &inner, scope)?;
        self.depth -= 1;
        let mut joined = node;
        for (kind, condition) in joins {
            joined = self.join(kind, joined, inner.node.clone(), condition);
        }
        Ok(joined)
    }

    fn analyse_inner(
        &mut self,
        query: &SelectStmt,
        outer_scope: &Scope,
        ctes: &Ctes,
    ) -> Result<LateralItem, Refusal> {
        if !self.is_plain_select(query)? {
            return Ok(self.select(query, ctes)?.into());
        }
        let ctes = collect_ctes(query, ctes)?;
        refuse_locking_clause(query)?;
        let (mut node, scope) = self.analyse_from(&query.from_clause, &ctes)?;
        let joint_scope = scope.with_outer(outer_scope);
        let mut conjuncts = Vec::new();
        if let Some(condition) = query.where_clause.as_deref() {
            split_conjuncts(condition, &mut conjuncts);
        }
        let mut conditions = Vec::new();
        for conjunct in conjuncts {
            if has_subquery(conjunct) || has_clock(conjunct) {
                node = self.filter_by_condition(node, conjunct, &scope, &ctes)?;
                continue;
            }
            let condition = resolve_expression(conjunct, &joint_scope)?;
            let columns = node.columns();
            if condition.columns().iter().all(|id| columns.contains(id)) {
                node = filter_rows(node, condition)
            } else {
                conditions.push(condition)
            }
        }
        let columns = select_targets(query)?
            .into_iter()
            .map(|(name, target)| Ok((name, resolve_expression(target, &joint_scope)?)));
        Ok(LateralItem { columns: columns.collect::<Result<_, Refusal>>()?, node, conditions })
    }

    /// Analyses a query that may depend on the rows before it, keeping duplicates.
    pub(super) fn analyse_dependent(
        &mut self,
        query: &SelectStmt,
        outer_scope: &Scope,
        ctes: &Ctes,
    ) -> Result<LateralItem, Refusal> {
        if query.distinct_clause.is_empty() {
            self.analyse_inner(query, outer_scope, ctes)
        } else {
            Ok(self.select(query, ctes)?.into())
        }
    }

    /// Whether the query returns exactly the rows of FROM that satisfy WHERE, except that the
    /// number of copies of a row may differ.
    pub(super) fn is_plain_select(&self, query: &SelectStmt) -> Result<bool, Refusal> {
        let is_distinct_on =
            query.distinct_clause.iter().any(|expression| expression.node.is_some());
        let targets = select_targets(query)?;
        let mut targets = targets.iter();
        let is_computed = |one: &Parsed| {
            self.facts.has_aggregate(one)
                || self.facts.has_set_returning_call(one)
                || has_window(one)
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
fn semi_joins(
    link: &SubLink,
    is_negated: bool,
    inner: &LateralItem,
    scope: &Scope,
) -> Result<Vec<(JoinKind, Expression)>, Refusal> {
    let kind = SubLinkType::try_from(link.sub_link_type);
    let targets: Vec<Expression> = inner.columns.iter().map(|(_, target)| target.clone()).collect();
    let join_condition = |test: Option<Expression>| {
        let conditions = inner.conditions.iter().cloned().chain(test);
        Expression::conjunction(&conditions.collect::<Vec<_>>())
    };
    Ok(match (kind, is_negated) {
        (Ok(SubLinkType::ExistsSublink), false) => vec![(JoinKind::Semi, join_condition(None))],
        (Ok(SubLinkType::ExistsSublink), true) => vec![(JoinKind::Anti, join_condition(None))],
        (Ok(SubLinkType::AnySublink), true) => {
            let quantified = quantified_test(link, &targets, scope)?;
            let anti = |test| (JoinKind::Anti, join_condition(Some(test)));
            match quantified.equality_sides {
                // An equality is null only if a side is null. Separate anti joins can each use a
                // lookup; a single condition with OR could not.
                Some((left, right)) => vec![
                    anti(quantified.test),
                    anti(right.with_test("IS NOT DISTINCT FROM NULL")),
                    anti(left.with_test("IS NOT DISTINCT FROM NULL")),
                ],
                None => vec![anti(quantified.test.with_test("IS NOT FALSE"))],
            }
        }
        (Ok(SubLinkType::AnySublink), false) => {
            let test = quantified_test(link, &targets, scope)?.test;
            vec![(JoinKind::Semi, join_condition(Some(test)))]
        }
        (Ok(SubLinkType::AllSublink), is_negated) => {
            let test = quantified_test(link, &targets, scope)?.test;
            if !is_negated {
                vec![(JoinKind::Anti, join_condition(Some(test.with_test("IS NOT TRUE"))))]
            } else {
                vec![(JoinKind::Semi, join_condition(Some(test.with_test("IS FALSE"))))]
            }
        }
        _ => {
            let advice = "write it as a join, or use mode full";
            let construct = "a subquery in an expression";
            return Err(Refusal::new(construct, link.location, advice));
        }
    })
}

struct QuantifiedTest {
    test: Expression,
    /// Both sides, if the condition is a single equality.
    equality_sides: Option<(Expression, Expression)>,
}

/// The test that a quantified comparison applies to each row of its subquery.
fn quantified_test(
    link: &SubLink,
    targets: &[Expression],
    scope: &Scope,
) -> Result<QuantifiedTest, Refusal> {
    let operand = link.testexpr.as_deref();
    let sides: Vec<&Parsed> = match operand.and_then(|node| node.node.as_ref()) {
        Some(NodeEnum::RowExpr(row)) => row.args.iter().collect(),
        _ => operand.into_iter().collect(),
    };
    let operator = comparison_operator(link);
    let sides: Vec<Expression> =
        sides.into_iter().map(|side| resolve_expression(side, scope)).collect::<Result<_, _>>()?;
    let is_supported = sides.len() == targets.len() && (sides.len() == 1 || operator == "=");
    if !is_supported {
        let construct = "a comparison of rows with a subquery by an operator other than `=`";
        return Err(Refusal::new(construct, link.location, "use mode full"));
    }
    let pairs = || sides.iter().zip(targets);
    let tests = pairs().map(|(left, right)| left.infix(&operator, right));
    let equality_sides = (sides.len() == 1 && operator == "=").then(|| pairs().next());
    Ok(QuantifiedTest {
        test: Expression::conjunction(&tests.collect::<Vec<_>>()),
        equality_sides: equality_sides.flatten().map(|(one, other)| (one.clone(), other.clone())),
    })
}

/// The operator of a comparison with a subquery.
pub(super) fn comparison_operator(link: &SubLink) -> String {
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
        [schema, name] => format!("OPERATOR({}.{name})", quote_identifier(schema)),
        _ => names.concat(),
    }
}

/// Splits a condition into its conjuncts.
pub(super) fn split_conjuncts<'a>(condition: &'a Parsed, conjuncts: &mut Vec<&'a Parsed>) {
    match &condition.node {
        Some(NodeEnum::BoolExpr(expr)) if expr.boolop == BoolExprType::AndExpr as i32 => {
            expr.args.iter().for_each(|conjunct| split_conjuncts(conjunct, conjuncts));
        }
        _ => conjuncts.push(condition),
    }
}

/// The subquery of a condition, and whether it is negated.
fn subquery_condition(condition: &Parsed) -> Option<(&SubLink, bool)> {
    match &condition.node {
        Some(NodeEnum::SubLink(link)) => Some((link, false)),
        Some(NodeEnum::BoolExpr(expr)) if expr.boolop == BoolExprType::NotExpr as i32 => {
            let (link, is_negated) = subquery_condition(expr.args.first()?)?;
            Some((link, !is_negated))
        }
        _ => None,
    }
}

/// Whether the subquery is a condition (EXISTS, IN, ANY, ALL) and not a value.
fn is_filter_subquery(link: &SubLink) -> bool {
    let operand = link.testexpr.as_deref().and_then(|node| node.node.as_ref());
    let is_row = matches!(operand, Some(NodeEnum::RowExpr(_)));
    let is_ordered = is_row && comparison_operator(link) != "=";
    !is_ordered
        && !matches!(
            SubLinkType::try_from(link.sub_link_type),
            Ok(SubLinkType::ExprSublink | SubLinkType::ArraySublink)
        )
}

/// Filters the rows of an operator.
pub(crate) fn filter_rows(node: Node, condition: Expression) -> Node {
    Node::Filter { input: Box::new(node), condition }
}
