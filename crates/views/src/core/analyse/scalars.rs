//! Subqueries that are values: `(SELECT …)`, `ARRAY(SELECT …)`, and `EXISTS` and `IN` where they
//! are not a condition of WHERE by themselves.
//!
//! The value of such a subquery is stored by a stage of groups, keyed by the columns that it
//! equates with the outer row: `(SELECT max(b.x) FROM b WHERE b.a = r.a)` is the maximum of the
//! group `a` of `b`, if that exists. The groups are joined with the outer rows. An uncorrelated
//! subquery is one group.

mod correlation;

use pg_query::NodeEnum;
use pg_query::protobuf::{Node as Parsed, SelectStmt, SubLink, SubLinkType};

use self::correlation::CorrelationPair;
use super::Analysis;
use super::aggregates::{Grouping, check_empty, counts};
use super::children::{children, has_collation, has_link, has_window};
use super::ctes::{Ctes, with};
use super::dependent_join::DecorrelationDomain;
use super::expressions::{expression, grouped, marked, parse_expression, text};
use super::scalar_subquery::{
    CorrelatedSubquery, DomainSubquery, ScalarSubquery, SubqueryValue, joined, not_covered,
    query_of, refuse_outer_aggregates,
};
use super::scope::Scope;
use super::select::{refuse_what_is_not_covered, targets};
use super::select_list::said;
use super::subqueries::{filter, split};
use super::windows::projected;
use crate::core::expression::{ColumnId, Expression};
use crate::core::refusal::Refusal;
use crate::core::tree::{Aggregate, JoinKind, Node, Stage, StageContents};

/// Rows that are reduced to one value.
struct ScalarInput {
    node: Node,
    column: Expression,
    order: Vec<Expression>,
}

impl Analysis<'_> {
    /// Takes subqueries out of an expression.
    pub(super) fn take_values(
        &mut self,
        node: &mut Parsed,
        ctes: &Ctes,
        all: &mut Vec<SubqueryValue>,
    ) -> Result<(), Refusal> {
        let Some(inner) = &mut node.node else {
            return Ok(());
        };
        if let NodeEnum::SubLink(link) = inner {
            refuse_outer_aggregates(link, self.facts)?;
            let mark = self.mark();
            match self.compared(link, ctes) {
                Ok((values, shown)) => {
                    all.extend(values.into_iter().map(SubqueryValue::Joined));
                    *node = shown;
                }
                Err(refusal) => {
                    self.back_to(&mark);
                    let column = self.new_column();
                    all.push(SubqueryValue::ByValues(DomainSubquery {
                        column,
                        link: (**link).clone(),
                        ctes: ctes.clone(),
                        refusal,
                    }));
                    *inner = marked(column);
                }
            }
            return Ok(());
        }
        for child in children(inner)? {
            self.take_values(child, ctes, all)?;
        }
        Ok(())
    }

    /// Takes subqueries out of arguments of aggregates only: they belong to rows, not groups.
    pub(super) fn take_values_of_rows(
        &mut self,
        node: &mut Parsed,
        ctes: &Ctes,
        all: &mut Vec<SubqueryValue>,
    ) -> Result<(), Refusal> {
        let Some(inner) = &mut node.node else {
            return Ok(());
        };
        if matches!(inner, NodeEnum::SubLink(_)) {
            return Ok(());
        }
        let is_aggregate = matches!(
            inner, NodeEnum::FuncCall(call) if call.over.is_none() && self.facts.is_aggregate(call)
        );
        for child in children(inner)? {
            if is_aggregate {
                self.take_values(child, ctes, all)?
            } else {
                self.take_values_of_rows(child, ctes, all)?
            }
        }
        Ok(())
    }

    /// Rows with the values of subqueries.
    pub(super) fn with_values(
        &mut self,
        rows: Node,
        values: Vec<ScalarSubquery>,
    ) -> Result<Node, Refusal> {
        values
            .into_iter()
            .try_fold(rows, |rows, value| match value {
                ScalarSubquery::Joined(value, condition) => {
                    Ok(self.join(JoinKind::Left, rows, value, condition))
                }
                ScalarSubquery::ByValues(column, kind, query, ctes, outer) => {
                    let (rows, given) = self.given(rows, outer)?;
                    let (value, shown) = self.nested(|this| {
                        this.given = Some(given.clone());
                        this.value(&query, kind, &ctes)
                    })?;
                    let own = value.pairs.iter().map(|(id, _)| *id);
                    // If no row matches, take the domain's values from the outer row.
                    let values = given.carried.iter().zip(own.clone());
                    let shown = values.fold(shown, |shown, (one, id)| shown.with(id, &one.outer));
                    let conditions = Expression::all(&given.conditions(own));
                    let node = self.join(JoinKind::Left, rows, value.node, conditions);
                    Ok(projected(node, vec![(column, shown)]))
                }
            })
    }

    /// Analyses a subquery that depends on outer rows by equalities only.
    fn compared(
        &mut self,
        link: &SubLink,
        ctes: &Ctes,
    ) -> Result<(Vec<CorrelatedSubquery>, Parsed), Refusal> {
        if let Some(found) = self.membership(link, ctes)? {
            return Ok(found);
        }
        let (query, kind) = query_of(link)?;
        if !matches!(
            kind,
            SubLinkType::ExprSublink | SubLinkType::ArraySublink | SubLinkType::ExistsSublink
        ) {
            return Err(not_covered(link));
        }
        let (value, shown) = self.value(query, kind, ctes)?;
        Ok((vec![value], parse_expression(&shown.marked())?))
    }

    fn value(
        &mut self,
        query: &SelectStmt,
        kind: SubLinkType,
        ctes: &Ctes,
    ) -> Result<(CorrelatedSubquery, Expression), Refusal> {
        if self.is_value_of_one_group(query)? {
            self.aggregated(query, kind, ctes)
        } else {
            let (rows, pairs) = self.rows_of(query, kind, ctes)?;
            Ok(self.gathered(rows, kind, pairs))
        }
    }

    /// Whether a query is one row of aggregates, whatever it reads.
    fn is_value_of_one_group(&self, query: &SelectStmt) -> Result<bool, Refusal> {
        let is_grouped = !query.group_clause.is_empty();
        let targets = targets(query)?;
        let mut each = targets.iter().map(|(_, target)| *target);
        let has_aggregate = each.clone().any(|one| self.facts.has_aggregate(one));
        let having = query.having_clause.as_deref();
        let is_more = each.any(|one| self.facts.has_set(one) || has_window(one) || has_link(one))
            || having.is_some_and(has_link);
        Ok(has_aggregate
            && !is_more
            && !is_grouped
            && query.distinct_clause.is_empty()
            && query.limit_count.is_none()
            && query.limit_offset.is_none())
    }

    /// Analyses FROM and WHERE of a subquery. Also returns its equalities with the outer row.
    fn below(
        &mut self,
        query: &SelectStmt,
        ctes: &Ctes,
    ) -> Result<(Node, Scope, Vec<CorrelationPair>), Refusal> {
        refuse_what_is_not_covered(query)?;
        let mut pairs = Vec::new();
        let is_by_values = self.given.is_some();
        let (mut node, scope) = match self.given.take() {
            None => self.from(&query.from_clause, ctes)?,
            Some(given) => {
                pairs.extend(given.columns().map(CorrelationPair::given));
                let from = given.before(&query.from_clause)?;
                self.from(&from, &ctes.with_given(&given))?
            }
        };
        let mut conjuncts = Vec::new();
        if let Some(condition) = query.where_clause.as_deref() {
            split(condition, &mut conjuncts);
        }
        for conjunct in conjuncts {
            match self.pair_of(conjunct, &scope) {
                // With a domain, the domain's columns are the only connection to outer rows.
                Some(pair) if !is_by_values => pairs.push(pair),
                _ => node = self.filtered(node, conjunct, &scope, ctes)?,
            }
        }
        Ok((node, scope, pairs))
    }

    /// The value of a query of one row of aggregates.
    fn aggregated(
        &mut self,
        query: &SelectStmt,
        kind: SubLinkType,
        ctes: &Ctes,
    ) -> Result<(CorrelatedSubquery, Expression), Refusal> {
        let ctes = with(query, ctes)?;
        let (node, scope, pairs) = self.below(query, &ctes)?;
        let target = targets(query)?.into_iter().map(|(_, target)| target).next();
        let mut grouping = Grouping::new(self.facts, &mut self.next_column);
        let keys: Vec<ColumnId> = pairs
            .iter()
            .map(|pair| grouping.group_by(pair.inner.clone()))
            .collect();
        let target = target.map(|one| grouped(one, &scope, &mut grouping));
        let having = query.having_clause.as_deref();
        let having = having.map(|one| grouped(one, &scope, &mut grouping));
        let (target, having) = (target.transpose()?, having.transpose()?);
        let (all_keys, aggregates) = grouping.finish();
        if all_keys.iter().any(|(id, _)| !keys.contains(id)) {
            let what = "a column outside of aggregates in a subquery";
            return Err(Refusal::new(what, -1, "group by it"));
        }
        if !keys.is_empty() {
            check_empty(&aggregates)?;
        }
        let counts = counts(&aggregates);
        let keeps = StageContents::Groups {
            keys: all_keys,
            aggregates,
        };
        let node = self.stage(Stage {
            input: node,
            contents: keeps,
        });
        // For a missing group, counts are 0 and all other aggregates are null.
        let of_none = |one: Expression| {
            counts.iter().fold(one, |one, id| {
                let count = Expression::column(*id).within("COALESCE(", ", 0)");
                one.with(*id, &count)
            })
        };
        let target = target.map_or(Expression::constant("NULL"), of_none);
        // The only row exists unless HAVING removes it.
        let (there, none) = match kind {
            SubLinkType::ArraySublink => (target.within("ARRAY[", "]"), "'{}'"),
            SubLinkType::ExistsSublink => (Expression::constant("true"), "false"),
            _ => (target.within("(", ")"), "NULL"),
        };
        let shown = match having {
            None => there,
            Some(having) => of_none(having)
                .within("CASE WHEN ", " THEN ")
                .then(&there)
                .within("", &format!(" ELSE {none} END")),
        };
        self.compared.extend(keys.iter().map(|key| (*key, false)));
        let outer = pairs.into_iter().map(|pair| pair.outer);
        let pairs = keys.into_iter().zip(outer).collect();
        Ok((CorrelatedSubquery { node, pairs }, shown))
    }

    /// The rows of any query, their first column, and its equalities with the outer row.
    fn rows_of(
        &mut self,
        query: &SelectStmt,
        kind: SubLinkType,
        ctes: &Ctes,
    ) -> Result<(ScalarInput, Vec<CorrelationPair>), Refusal> {
        if !self.is_plain(query)? || !query.distinct_clause.is_empty() {
            let given = self.given.as_ref().map_or(0, DecorrelationDomain::len);
            let mut rows = self.select(query, ctes)?;
            let own = rows.columns.split_off(rows.columns.len() - given);
            let pairs = own
                .into_iter()
                .map(|(_, id)| CorrelationPair::given(id))
                .collect();
            let first = rows.columns.first().map(|(_, id)| Expression::column(*id));
            let order = rows.order.into_iter();
            let gathered = ScalarInput {
                node: rows.node,
                column: first.unwrap_or(one()),
                order: order
                    .map(|(id, how)| Expression::column(id).within("", &how))
                    .collect(),
            };
            return Ok((gathered, pairs));
        }
        let ctes = with(query, ctes)?;
        let (node, scope, pairs) = self.below(query, &ctes)?;
        let target = targets(query)?.into_iter().map(|(_, target)| target).next();
        let target = match target {
            Some(target) if kind != SubLinkType::ExistsSublink => expression(target, &scope)?,
            _ => one(),
        };
        let mut order = Vec::new();
        if kind == SubLinkType::ArraySublink {
            let said = said(query)?;
            let (shown, on) = (said.shown, said.on);
            let by = said.all.iter().skip(shown + on).zip(&said.directions);
            for ((_, by), how) in by {
                order.push(expression(by, &scope)?.within("", how));
            }
        }
        let column = target;
        Ok((
            ScalarInput {
                node,
                column,
                order,
            },
            pairs,
        ))
    }

    /// Reduces rows to one value: the only one, an array of all, or whether there are any.
    fn gathered(
        &mut self,
        rows: ScalarInput,
        kind: SubLinkType,
        pairs: Vec<CorrelationPair>,
    ) -> (CorrelatedSubquery, Expression) {
        let ScalarInput {
            node,
            column,
            order,
        } = rows;
        let count = Aggregate::rows(self.new_column(), None);
        let call = match kind {
            SubLinkType::ArraySublink => match &order[..] {
                [] => column.argument_of("array_agg"),
                [first, others @ ..] => {
                    let all = others.iter();
                    let by = all.fold(first.clone(), |all, one| all.beside(one));
                    let ordered = column.within("array_agg(", " ORDER BY ");
                    ordered.then(&by).within("", ")")
                }
            },
            _ => column.argument_of("any_value"),
        };
        let value = Aggregate::asked(self.new_column(), call);
        let number = Expression::column(count.column).within("COALESCE(", ", 0)");
        let found = Expression::column(value.column);
        let (aggregates, shown) = match kind {
            SubLinkType::ExistsSublink => (vec![count], number.tested("> 0")),
            SubLinkType::ArraySublink => (vec![value], found.within("COALESCE(", ", '{}')")),
            _ => (vec![count, value], only(&number, &found)),
        };
        (self.kept_by(node, pairs, aggregates), shown)
    }

    /// Adds a stage of groups, keyed by the columns that are equated with the outer row.
    fn kept_by(
        &mut self,
        node: Node,
        pairs: Vec<CorrelationPair>,
        aggregates: Vec<Aggregate>,
    ) -> CorrelatedSubquery {
        let mut keys = Vec::new();
        let mut compared = Vec::new();
        for pair in pairs {
            let id = self.new_column();
            self.compared.push((id, false));
            keys.push((id, pair.inner));
            compared.push((id, pair.outer));
        }
        let keeps = StageContents::Groups { keys, aggregates };
        CorrelatedSubquery {
            node: self.stage(Stage {
                input: node,
                contents: keeps,
            }),
            pairs: compared,
        }
    }

    /// Analyses `x IN (SELECT …)` as a value. It is null if no value equals `x`, and `x` or one of
    /// the values is null. One stage counts the subquery's rows by value; another counts all rows
    /// and the values that are not null.
    fn membership(
        &mut self,
        link: &SubLink,
        ctes: &Ctes,
    ) -> Result<Option<(Vec<CorrelatedSubquery>, Parsed)>, Refusal> {
        let query = link.subselect.as_ref();
        let query = query.and_then(|query| query.node.as_ref());
        let (Some(NodeEnum::SelectStmt(query)), Some(test)) = (query, link.testexpr.as_deref())
        else {
            return Ok(None);
        };
        let is_row = matches!(test.node, Some(NodeEnum::RowExpr(_)));
        let is_in = link.sub_link_type == SubLinkType::AnySublink as i32
            && link.oper_name.is_empty()
            && !is_row
            && !self.facts.has_collations
            && !has_collation(test);
        if !is_in {
            return Ok(None);
        }
        let (rows, pairs) = self.rows_of(query, SubLinkType::AnySublink, ctes)?;
        let found = Aggregate::rows(self.new_column(), None);
        let count = Aggregate::rows(self.new_column(), None);
        let known = Aggregate::values(self.new_column(), &rows.column);
        let shown = format!(
            "CASE WHEN {} > 0 THEN true WHEN COALESCE({}, 0) = 0 THEN false WHEN ({}) IS NOT DISTINCT FROM NULL OR {} < {} THEN NULL ELSE false END",
            Expression::column(found.column).marked(),
            Expression::column(count.column).marked(),
            text(test)?,
            Expression::column(known.column).marked(),
            Expression::column(count.column).marked(),
        );
        let of_value = CorrelationPair {
            inner: rows.column,
            outer: test.clone(),
        };
        let by_value = pairs.iter().cloned().chain([of_value]).collect();
        let by_value = self.kept_by(rows.node.clone(), by_value, vec![found]);
        let all = self.kept_by(rows.node, pairs, vec![count, known]);
        Ok(Some((vec![by_value, all], parse_expression(&shown)?)))
    }

    /// Filters rows by a condition that contains subqueries as values.
    pub(super) fn filtered_by_values(
        &mut self,
        node: Node,
        condition: &Parsed,
        scope: &Scope,
        ctes: &Ctes,
    ) -> Result<Node, Refusal> {
        let mut condition = condition.clone();
        let mut values = Vec::new();
        self.take_values(&mut condition, ctes, &mut values)?;
        let values = joined(values, |one| expression(one, scope))?;
        let node = self.with_values(node, values)?;
        Ok(filter(node, expression(&condition, scope)?))
    }
}

/// A constant that is not null, to count rows by.
fn one() -> Expression {
    Expression::constant("1")
}

/// The value if there is at most one row. For more rows, the server raises an error.
fn only(number: &Expression, value: &Expression) -> Expression {
    let said = "'more than one row returned by a subquery used as an expression: '";
    let fails = number.within(&format!("({said} || "), ")::integer = 0");
    let several = number
        .tested("> 1")
        .within("CASE WHEN ", " THEN ")
        .then(&fails)
        .within("", " ELSE false END");
    several
        .within("CASE WHEN ", " THEN NULL ELSE ")
        .then(value)
        .within("", " END")
}
