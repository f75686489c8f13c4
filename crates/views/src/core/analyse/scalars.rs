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
use super::aggregates::{Grouping, check_empty_values, count_columns};
use super::children::{children, has_collation, has_subquery, has_window};
use super::ctes::{Ctes, collect_ctes};
use super::dependent_join::DecorrelationDomain;
use super::expressions::{
    internal_reference, parse_expression, print_expression, resolve_expression, resolve_over_groups,
};
use super::scalar_subquery::{
    CorrelatedSubquery, DomainSubquery, ScalarSubquery, SubqueryValue, link_query,
    refuse_outer_aggregates, resolve_subqueries, unsupported_subquery,
};
use super::scope::Scope;
use super::select::{refuse_locking_clause, select_targets};
use super::select_list::collect_select_list;
use super::subqueries::{filter_rows, split_conjuncts};
use super::windows::project_columns;
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
    pub(super) fn extract_subqueries(
        &mut self,
        node: &mut Parsed,
        ctes: &Ctes,
        subqueries: &mut Vec<SubqueryValue>,
    ) -> Result<(), Refusal> {
        let Some(inner) = &mut node.node else {
            return Ok(());
        };
        if let NodeEnum::SubLink(link) = inner {
            refuse_outer_aggregates(link, self.facts)?;
            let checkpoint = self.checkpoint();
            match self.analyse_correlated(link, ctes) {
                Ok((values, result)) => {
                    subqueries.extend(values.into_iter().map(SubqueryValue::Correlated));
                    *node = result;
                }
                Err(refusal) => {
                    self.restore_checkpoint(&checkpoint);
                    let column = self.new_column();
                    subqueries.push(SubqueryValue::ByDomain(DomainSubquery {
                        column,
                        link: (**link).clone(),
                        ctes: ctes.clone(),
                        refusal,
                    }));
                    *inner = internal_reference(column);
                }
            }
            return Ok(());
        }
        for child in children(inner)? {
            self.extract_subqueries(child, ctes, subqueries)?;
        }
        Ok(())
    }

    /// Takes subqueries out of arguments of aggregates only: they belong to rows, not groups.
    pub(super) fn extract_argument_subqueries(
        &mut self,
        node: &mut Parsed,
        ctes: &Ctes,
        subqueries: &mut Vec<SubqueryValue>,
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
                self.extract_subqueries(child, ctes, subqueries)?
            } else {
                self.extract_argument_subqueries(child, ctes, subqueries)?
            }
        }
        Ok(())
    }

    /// Rows with the values of subqueries.
    pub(super) fn join_subqueries(
        &mut self,
        rows: Node,
        subqueries: Vec<ScalarSubquery>,
    ) -> Result<Node, Refusal> {
        subqueries.into_iter().try_fold(rows, |rows, value| match value {
            ScalarSubquery::Joined(value, condition) => {
                Ok(self.join(JoinKind::Left, rows, value, condition))
            }
            ScalarSubquery::ByDomain(column, kind, query, ctes, outer) => {
                let (rows, domain) = self.add_domain(rows, outer)?;
                let (value, result) = self.analyse_nested(|this| {
                    this.next_domain = Some(domain.clone());
                    this.analyse_scalar(&query, kind, &ctes)
                })?;
                let domain_column_ids = value.pairs.iter().map(|(id, _)| *id);
                // If no row matches, take the domain's values from the outer row.
                let values = domain.domain_columns.iter().zip(domain_column_ids.clone());
                let shown = values.fold(result, |shown, (domain_column, id)| {
                    shown.substitute(id, &domain_column.outer)
                });
                let conditions =
                    Expression::conjunction(&domain.join_conditions(domain_column_ids));
                let node = self.join(JoinKind::Left, rows, value.node, conditions);
                Ok(project_columns(node, vec![(column, shown)]))
            }
        })
    }

    /// Analyses a subquery that depends on outer rows by equalities only.
    fn analyse_correlated(
        &mut self,
        link: &SubLink,
        ctes: &Ctes,
    ) -> Result<(Vec<CorrelatedSubquery>, Parsed), Refusal> {
        if let Some(membership) = self.analyse_membership(link, ctes)? {
            return Ok(membership);
        }
        let (query, kind) = link_query(link)?;
        if !matches!(
            kind,
            SubLinkType::ExprSublink | SubLinkType::ArraySublink | SubLinkType::ExistsSublink
        ) {
            return Err(unsupported_subquery(link));
        }
        let (value, result) = self.analyse_scalar(query, kind, ctes)?;
        Ok((vec![value], parse_expression(&result.to_internal_text())?))
    }

    fn analyse_scalar(
        &mut self,
        query: &SelectStmt,
        kind: SubLinkType,
        ctes: &Ctes,
    ) -> Result<(CorrelatedSubquery, Expression), Refusal> {
        if self.is_single_group_query(query)? {
            self.aggregate_to_scalar(query, kind, ctes)
        } else {
            let (rows, pairs) = self.analyse_rows(query, kind, ctes)?;
            Ok(self.reduce_to_scalar(rows, kind, pairs))
        }
    }

    /// Whether a query is one row of aggregates, whatever it reads.
    fn is_single_group_query(&self, query: &SelectStmt) -> Result<bool, Refusal> {
        let is_grouped = !query.group_clause.is_empty();
        let targets = select_targets(query)?;
        let mut expressions = targets.iter().map(|(_, target)| *target);
        let has_aggregate =
            expressions.clone().any(|expression| self.facts.has_aggregate(expression));
        let having = query.having_clause.as_deref();
        let has_other_constructs = expressions.any(|one| {
            self.facts.has_set_returning_call(one) || has_window(one) || has_subquery(one)
        }) || having.is_some_and(has_subquery);
        Ok(has_aggregate
            && !has_other_constructs
            && !is_grouped
            && query.distinct_clause.is_empty()
            && query.limit_count.is_none()
            && query.limit_offset.is_none())
    }

    /// Analyses FROM and WHERE of a subquery. Also returns its equalities with the outer row.
    fn analyse_from_and_where(
        &mut self,
        query: &SelectStmt,
        ctes: &Ctes,
    ) -> Result<(Node, Scope, Vec<CorrelationPair>), Refusal> {
        refuse_locking_clause(query)?;
        let mut pairs = Vec::new();
        let is_by_domain = self.next_domain.is_some();
        let (mut node, scope) = match self.next_domain.take() {
            None => self.analyse_from(&query.from_clause, ctes)?,
            Some(domain) => {
                pairs.extend(domain.columns().map(CorrelationPair::for_domain_column));
                let from_items = domain.prepend_to_from(&query.from_clause)?;
                self.analyse_from(&from_items, &ctes.with_domain(&domain))?
            }
        };
        let mut conjuncts = Vec::new();
        if let Some(condition) = query.where_clause.as_deref() {
            split_conjuncts(condition, &mut conjuncts);
        }
        for conjunct in conjuncts {
            match self.correlation_pair(conjunct, &scope) {
                // With a domain, the domain's columns are the only connection to outer rows.
                Some(pair) if !is_by_domain => pairs.push(pair),
                _ => node = self.filter_by_condition(node, conjunct, &scope, ctes)?,
            }
        }
        Ok((node, scope, pairs))
    }

    /// The value of a query of one row of aggregates.
    fn aggregate_to_scalar(
        &mut self,
        query: &SelectStmt,
        kind: SubLinkType,
        ctes: &Ctes,
    ) -> Result<(CorrelatedSubquery, Expression), Refusal> {
        let ctes = collect_ctes(query, ctes)?;
        let (node, scope, pairs) = self.analyse_from_and_where(query, &ctes)?;
        let target = select_targets(query)?.into_iter().map(|(_, target)| target).next();
        let mut grouping = Grouping::new(self.facts, &mut self.next_column);
        let keys: Vec<ColumnId> =
            pairs.iter().map(|pair| grouping.add_key(pair.inner.clone())).collect();
        let target = target.map(|one| resolve_over_groups(one, &scope, &mut grouping));
        let having = query.having_clause.as_deref();
        let having = having.map(|condition| resolve_over_groups(condition, &scope, &mut grouping));
        let (target, having) = (target.transpose()?, having.transpose()?);
        let (all_keys, aggregates) = grouping.into_parts();
        if all_keys.iter().any(|(id, _)| !keys.contains(id)) {
            let construct = "a column outside of aggregates in a subquery";
            return Err(Refusal::new(construct, -1, "group by it"));
        }
        if !keys.is_empty() {
            check_empty_values(&aggregates)?;
        }
        let counts = count_columns(&aggregates);
        let contents = StageContents::Groups { keys: all_keys, aggregates };
        let node = self.add_stage(Stage { input: node, contents });
        // For a missing group, counts are 0 and all other aggregates are null.
        let over_empty_group = |expression: Expression| {
            counts.iter().fold(expression, |one, id| {
                let count = Expression::column(*id).wrap("COALESCE(", ", 0)");
                one.substitute(*id, &count)
            })
        };
        let target = target.map_or(Expression::constant("NULL"), over_empty_group);
        // The only row exists unless HAVING removes it.
        let (present_value, absent_value) = match kind {
            SubLinkType::ArraySublink => (target.wrap("ARRAY[", "]"), "'{}'"),
            SubLinkType::ExistsSublink => (Expression::constant("true"), "false"),
            _ => (target.wrap("(", ")"), "NULL"),
        };
        let result = match having {
            None => present_value,
            Some(having) => over_empty_group(having)
                .wrap("CASE WHEN ", " THEN ")
                .concat(&present_value)
                .wrap("", &format!(" ELSE {absent_value} END")),
        };
        self.lookup_keys.extend(keys.iter().map(|key| (*key, false)));
        let outer = pairs.into_iter().map(|pair| pair.outer);
        let pairs = keys.into_iter().zip(outer).collect();
        Ok((CorrelatedSubquery { node, pairs }, result))
    }

    /// The rows of any query, their first column, and its equalities with the outer row.
    fn analyse_rows(
        &mut self,
        query: &SelectStmt,
        kind: SubLinkType,
        ctes: &Ctes,
    ) -> Result<(ScalarInput, Vec<CorrelationPair>), Refusal> {
        if !self.is_plain_select(query)? || !query.distinct_clause.is_empty() {
            let domain_width = self.next_domain.as_ref().map_or(0, DecorrelationDomain::len);
            let mut rows = self.select(query, ctes)?;
            let domain_columns = rows.columns.split_off(rows.columns.len() - domain_width);
            let pairs = domain_columns
                .into_iter()
                .map(|(_, id)| CorrelationPair::for_domain_column(id))
                .collect();
            let first = rows.columns.first().map(|(_, id)| Expression::column(*id));
            let order = rows.order.into_iter();
            let input = ScalarInput {
                node: rows.node,
                column: first.unwrap_or(constant_one()),
                order: order
                    .map(|(id, direction)| Expression::column(id).wrap("", &direction))
                    .collect(),
            };
            return Ok((input, pairs));
        }
        let ctes = collect_ctes(query, ctes)?;
        let (node, scope, pairs) = self.analyse_from_and_where(query, &ctes)?;
        let target = select_targets(query)?.into_iter().map(|(_, target)| target).next();
        let target = match target {
            Some(target) if kind != SubLinkType::ExistsSublink => {
                resolve_expression(target, &scope)?
            }
            _ => constant_one(),
        };
        let mut order = Vec::new();
        if kind == SubLinkType::ArraySublink {
            let select_list = collect_select_list(query)?;
            let (visible_count, distinct_on_count) =
                (select_list.visible_count, select_list.distinct_on_count);
            let sort_items = select_list
                .expressions
                .iter()
                .skip(visible_count + distinct_on_count)
                .zip(&select_list.directions);
            for ((_, sort_item), how) in sort_items {
                order.push(resolve_expression(sort_item, &scope)?.wrap("", how));
            }
        }
        let column = target;
        Ok((ScalarInput { node, column, order }, pairs))
    }

    /// Reduces rows to one value: the only one, an array of all, or whether there are any.
    fn reduce_to_scalar(
        &mut self,
        rows: ScalarInput,
        kind: SubLinkType,
        pairs: Vec<CorrelationPair>,
    ) -> (CorrelatedSubquery, Expression) {
        let ScalarInput { node, column, order } = rows;
        let count = Aggregate::count_rows(self.new_column(), None);
        let call = match kind {
            SubLinkType::ArraySublink => match &order[..] {
                [] => column.as_argument_of("array_agg"),
                [first, others @ ..] => {
                    let other_items = others.iter();
                    let order_by =
                        other_items.fold(first.clone(), |list, item| list.append_to_list(item));
                    let ordered = column.wrap("array_agg(", " ORDER BY ");
                    ordered.concat(&order_by).wrap("", ")")
                }
            },
            _ => column.as_argument_of("any_value"),
        };
        let value = Aggregate::recomputed(self.new_column(), call);
        let row_count = Expression::column(count.column).wrap("COALESCE(", ", 0)");
        let result_value = Expression::column(value.column);
        let (aggregates, result) = match kind {
            SubLinkType::ExistsSublink => (vec![count], row_count.with_test("> 0")),
            SubLinkType::ArraySublink => (vec![value], result_value.wrap("COALESCE(", ", '{}')")),
            _ => (vec![count, value], single_value(&row_count, &result_value)),
        };
        (self.group_by_pairs(node, pairs, aggregates), result)
    }

    /// Adds a stage of groups, keyed by the columns that are equated with the outer row.
    fn group_by_pairs(
        &mut self,
        node: Node,
        pairs: Vec<CorrelationPair>,
        aggregates: Vec<Aggregate>,
    ) -> CorrelatedSubquery {
        let mut keys = Vec::new();
        let mut key_pairs = Vec::new();
        for pair in pairs {
            let id = self.new_column();
            self.lookup_keys.push((id, false));
            keys.push((id, pair.inner));
            key_pairs.push((id, pair.outer));
        }
        let contents = StageContents::Groups { keys, aggregates };
        CorrelatedSubquery {
            node: self.add_stage(Stage { input: node, contents }),
            pairs: key_pairs,
        }
    }

    /// Analyses `x IN (SELECT …)` as a value. It is null if no value equals `x`, and `x` or one of
    /// the values is null. One stage counts the subquery's rows by value; another counts all rows
    /// and the values that are not null.
    fn analyse_membership(
        &mut self,
        link: &SubLink,
        ctes: &Ctes,
    ) -> Result<Option<(Vec<CorrelatedSubquery>, Parsed)>, Refusal> {
        let query = link.subselect.as_ref();
        let query = query.and_then(|query| query.node.as_ref());
        let (Some(NodeEnum::SelectStmt(query)), Some(operand)) = (query, link.testexpr.as_deref())
        else {
            return Ok(None);
        };
        let is_row = matches!(operand.node, Some(NodeEnum::RowExpr(_)));
        let is_plain_in = link.sub_link_type == SubLinkType::AnySublink as i32
            && link.oper_name.is_empty()
            && !is_row
            && !self.facts.has_collations
            && !has_collation(operand);
        if !is_plain_in {
            return Ok(None);
        }
        let (rows, pairs) = self.analyse_rows(query, SubLinkType::AnySublink, ctes)?;
        let equal_count = Aggregate::count_rows(self.new_column(), None);
        let total_count = Aggregate::count_rows(self.new_column(), None);
        let non_null_count = Aggregate::count_values(self.new_column(), &rows.column);
        let result = format!(
            "CASE WHEN {} > 0 THEN true WHEN COALESCE({}, 0) = 0 THEN false WHEN ({}) IS NOT DISTINCT FROM NULL OR {} < {} THEN NULL ELSE false END",
            Expression::column(equal_count.column).to_internal_text(),
            Expression::column(total_count.column).to_internal_text(),
            print_expression(operand)?,
            Expression::column(non_null_count.column).to_internal_text(),
            Expression::column(total_count.column).to_internal_text(),
        );
        let value_pair = CorrelationPair { inner: rows.column, outer: operand.clone() };
        let value_pairs = pairs.iter().cloned().chain([value_pair]).collect();
        let equal_rows = self.group_by_pairs(rows.node.clone(), value_pairs, vec![equal_count]);
        let all_rows = self.group_by_pairs(rows.node, pairs, vec![total_count, non_null_count]);
        Ok(Some((vec![equal_rows, all_rows], parse_expression(&result)?)))
    }

    /// Filters rows by a condition that contains subqueries as values.
    pub(super) fn filter_by_subqueries(
        &mut self,
        node: Node,
        condition: &Parsed,
        scope: &Scope,
        ctes: &Ctes,
    ) -> Result<Node, Refusal> {
        let mut condition = condition.clone();
        let mut subqueries = Vec::new();
        self.extract_subqueries(&mut condition, ctes, &mut subqueries)?;
        let values = resolve_subqueries(subqueries, |outer| resolve_expression(outer, scope))?;
        let node = self.join_subqueries(node, values)?;
        Ok(filter_rows(node, resolve_expression(&condition, scope)?))
    }
}

/// A constant that is not null, to count rows by.
fn constant_one() -> Expression {
    Expression::constant("1")
}

/// The value if there is at most one row. For more rows, the server raises an error.
fn single_value(number: &Expression, value: &Expression) -> Expression {
    let message = "'more than one row returned by a subquery used as an expression: '";
    let raise_error = number.wrap(&format!("({message} || "), ")::integer = 0");
    let has_several = number
        .with_test("> 1")
        .wrap("CASE WHEN ", " THEN ")
        .concat(&raise_error)
        .wrap("", " ELSE false END");
    has_several.wrap("CASE WHEN ", " THEN NULL ELSE ").concat(value).wrap("", " END")
}
