//! Analyses a SELECT, clause by clause.

use std::borrow::Cow;
use std::rc::Rc;

use pg_query::NodeEnum;
use pg_query::protobuf::{Node as Parsed, SelectStmt, SetOperation};

use super::aggregates::{Grouping, check_empty_values, count_columns};
use super::ctes::{Cte, Ctes, collect_ctes};
use super::dependent_join::DecorrelationDomain;
use super::expressions::{
    print_expression, reference_names, resolve_expression, resolve_over_groups,
};
use super::grouping_sets::{GroupTerms, grouping_sets};
use super::lateral::SetReturningCalls;
use super::scalar_subquery::{ScalarSubquery, SubqueryValue, resolve_subqueries};
use super::scope::Scope;
use super::select_list::{
    SelectList, collect_select_list, row_number_call, target_index, with_order,
};
use super::windows::{Call, Window, project_columns};
use super::{Analysis, DEPTH_MAX};
use crate::core::expression::{ColumnId, Expression};
use crate::core::refusal::Refusal;
use crate::core::renumber::with_new_columns;
use crate::core::tree::{Node, Stage, StageContents};

/// The rows of a query.
#[derive(Clone)]
pub(crate) struct QueryRows {
    pub node: Node,
    /// Names of its columns, in order.
    pub columns: Vec<(String, ColumnId)>,
    /// Its ORDER BY, as columns and directions.
    pub order: Vec<(ColumnId, String)>,
}

/// Rows of groups, the select list over them, and window functions over them.
type GroupedQuery = (Node, Vec<(String, Expression)>, Vec<Window>);

/// The parts of a query that are computed over its groups.
struct GroupedClauses<'a> {
    /// The select list, with names.
    targets: &'a [(String, Parsed)],
    /// Calls of window functions.
    calls: Vec<Call>,
    having: Option<&'a Parsed>,
    /// Subqueries whose values belong to the groups.
    subqueries: &'a [SubqueryValue],
}

/// Rows with their DISTINCT ON.
struct DistinctRows {
    rows: QueryRows,
    /// Columns of DISTINCT ON, and of the domain.
    distinct_on: Vec<ColumnId>,
}

impl Analysis<'_> {
    /// Analyses a SELECT, with its set operations.
    pub(super) fn select(&mut self, query: &SelectStmt, ctes: &Ctes) -> Result<QueryRows, Refusal> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            let construct = format!("a query nested deeper than {DEPTH_MAX}");
            return Err(Refusal::new(construct, -1, "simplify it"));
        }
        let domain = self.next_domain.take();
        let ctes = collect_ctes(query, ctes)?;
        refuse_locking_clause(query)?;
        let rows = match SetOperation::try_from(query.op) {
            Ok(SetOperation::SetopNone | SetOperation::Undefined) => {
                self.analyse_simple_select(query, &ctes, domain.as_ref())?
            }
            _ => self.analyse_set_operation(query, &ctes, domain.as_ref())?,
        };
        self.depth -= 1;
        self.apply_limit(rows, query, domain.as_ref().map_or(0, DecorrelationDomain::len))
    }

    /// Analyses a query of WITH at a reference; its stages are made only once.
    pub(super) fn analyse_cte(&mut self, cte: &Rc<Cte>) -> Result<QueryRows, Refusal> {
        let analysed = self.analysed_ctes.iter().find(|(other, _)| Rc::ptr_eq(other, cte));
        if let Some((_, rows)) = analysed.cloned() {
            let (node, renamed) = with_new_columns(&rows.node, || self.new_column());
            let columns = rows.columns.into_iter();
            let order = rows.order.into_iter();
            return Ok(QueryRows {
                columns: columns.map(|(name, id)| (name, renamed[&id])).collect(),
                order: order.map(|(id, direction)| (renamed[&id], direction)).collect(),
                node,
            });
        }
        let mut rows = match self.analyse_recursive_cte(cte)? {
            Some(rows) => rows,
            None => self.select(&cte.query, &cte.visible_ctes)?,
        };
        for ((name, _), alias) in rows.columns.iter_mut().zip(&cte.columns) {
            name.clone_from(alias);
        }
        self.analysed_ctes.push((cte.clone(), rows.clone()));
        Ok(rows)
    }

    fn analyse_simple_select(
        &mut self,
        query: &SelectStmt,
        ctes: &Ctes,
        domain: Option<&DecorrelationDomain>,
    ) -> Result<QueryRows, Refusal> {
        if !query.values_lists.is_empty() && domain.is_none() {
            let rows = self.analyse_values_query(query)?;
            return with_order(rows, query);
        }
        let having = query.having_clause.as_deref();
        let all = collect_select_list(query)?.expressions;
        let mut expressions = all.iter().map(|(_, target)| target).chain(having);
        let is_grouped = !query.group_clause.is_empty()
            || having.is_some()
            || expressions.any(|one| self.facts.has_aggregate(one));
        let mut query = query.clone();
        let mut ctes = Cow::Borrowed(ctes);
        let mut group_domain = None;
        if let Some(given) = domain {
            let is_one_group = is_grouped && query.group_clause.is_empty();
            group_domain = is_one_group.then(|| given.clone());
            given.add_to_query(&mut query, is_grouped)?;
            ctes = Cow::Owned(ctes.with_domain(given));
        }
        let ctes = &*ctes;
        let (mut node, scope) = self.analyse_from(&query.from_clause, ctes)?;
        if let Some(condition) = query.where_clause.as_deref() {
            node = self.filter_by_condition(node, condition, &scope, ctes)?;
        }
        let mut select_list = collect_select_list(&query)?;
        select_list.domain_width = domain.map_or(0, DecorrelationDomain::len);
        let mut subqueries = Vec::new();
        if is_grouped {
            self.transform_expressions(&mut query, &mut select_list, |this, one| {
                this.extract_argument_subqueries(one, ctes, &mut subqueries)
            })?;
            let row_subqueries = resolve_subqueries(std::mem::take(&mut subqueries), |outer| {
                resolve_expression(outer, &scope)
            })?;
            node = self.join_subqueries(node, row_subqueries)?;
            node = self.expand_grouped_calls(node, &scope, &mut query, &mut select_list)?;
        }
        self.transform_expressions(&mut query, &mut select_list, |this, one| {
            this.extract_subqueries(one, ctes, &mut subqueries)
        })?;
        self.next_group_domain = group_domain;
        let rows =
            self.apply_select_list(&query, select_list, node, &scope, is_grouped, subqueries)?;
        match &query.distinct_clause[..] {
            [] => Ok(rows.rows),
            [Parsed { node: None }] => Ok(self.deduplicate_rows(rows.rows)),
            _ => Ok(self.apply_distinct_on(rows)),
        }
    }

    /// Applies a function to every expression of the select list, and to HAVING.
    fn transform_expressions(
        &mut self,
        query: &mut SelectStmt,
        select_list: &mut SelectList,
        mut transform: impl FnMut(&mut Self, &mut Parsed) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let having = query.having_clause.as_deref_mut();
        let targets = select_list.expressions.iter_mut().map(|(_, one)| one);
        targets.chain(having).try_for_each(|expression| transform(self, expression))
    }

    /// The select list over rows, with window and set-returning functions.
    fn apply_select_list(
        &mut self,
        query: &SelectStmt,
        mut select_list: SelectList,
        node: Node,
        scope: &Scope,
        is_grouped: bool,
        subqueries: Vec<SubqueryValue>,
    ) -> Result<DistinctRows, Refusal> {
        let mut calls = Vec::new();
        let mut set_calls = SetReturningCalls::default();
        for target in &mut select_list.expressions {
            self.extract_set_returning_calls(&mut target.1, &mut set_calls)?;
            self.extract_window_calls(&mut target.1, &query.window_clause, &mut calls)?;
        }
        // They are computed with the select list, and stand behind it.
        let visible_count = select_list.expressions.len();
        for call in set_calls.calls() {
            let mut call = call.clone();
            self.extract_window_calls(&mut call, &query.window_clause, &mut calls)?;
            select_list.expressions.push((String::new(), call));
        }
        calls.iter_mut().for_each(|call| call.add_partition_keys(select_list.domain_expressions()));
        let (node, mut named_expressions, windows) = if is_grouped {
            self.analyse_groups(query, &select_list.expressions, calls, node, scope, &subqueries)?
        } else {
            let mut resolve = |one: &Parsed| resolve_expression(one, scope);
            let expressions = select_list.expressions.iter();
            let named = expressions.map(|(name, one)| Ok((name.clone(), resolve(one)?)));
            let named = named.collect::<Result<Vec<_>, Refusal>>()?;
            let windows = calls.into_iter().map(|call| call.resolve(&mut resolve));
            let windows = windows.collect::<Result<_, _>>()?;
            let scalar_subqueries = resolve_subqueries(subqueries, resolve)?;
            (self.join_subqueries(node, scalar_subqueries)?, named, windows)
        };
        let node = self.compute_windows(node, windows);
        let set_expressions: Vec<Expression> =
            named_expressions.split_off(visible_count).into_iter().map(|(_, call)| call).collect();
        let node = set_calls.expand(node, &set_expressions);
        let rows = self.project(node, named_expressions);
        Ok(self.split_sort_columns(rows, &select_list))
    }

    /// Splits hidden sort columns from the visible ones.
    fn split_sort_columns(&self, mut rows: QueryRows, select_list: &SelectList) -> DistinctRows {
        let mut hidden =
            rows.columns.split_off(select_list.visible_count).into_iter().map(|(_, id)| id);
        let mut distinct_on: Vec<ColumnId> =
            hidden.by_ref().take(select_list.distinct_on_count).collect();
        let domain_columns = rows.columns.iter().rev().take(select_list.domain_width);
        distinct_on.extend(domain_columns.map(|(_, id)| *id));
        rows.order = hidden.zip(select_list.directions.iter().cloned()).collect();
        DistinctRows { rows, distinct_on }
    }

    /// Keeps the first row for each value of DISTINCT ON.
    fn apply_distinct_on(&mut self, sorted: DistinctRows) -> QueryRows {
        let DistinctRows { rows, distinct_on: on } = sorted;
        let row_number = self.new_column();
        let window = row_number_call(&on, &rows.order);
        let first = Expression::column(row_number).with_test("= 1");
        let windows = vec![(row_number, window)];
        let node = self.add_partition_stage(rows.node, on, windows, Some(first));
        QueryRows { node, ..rows }
    }

    fn project(&mut self, node: Node, named_expressions: Vec<(String, Expression)>) -> QueryRows {
        let mut columns = Vec::new();
        let mut new_columns: Vec<(ColumnId, Expression)> = Vec::new();
        for (name, expression) in named_expressions {
            let existing =
                new_columns.iter().find(|(_, known)| *known == expression).map(|(id, _)| *id);
            let id = existing.or_else(|| expression.as_column()).unwrap_or_else(|| {
                let id = self.new_column();
                new_columns.push((id, expression));
                id
            });
            columns.push((name, id));
        }
        QueryRows { node: project_columns(node, new_columns), columns, order: Vec::new() }
    }

    fn analyse_groups(
        &mut self,
        query: &SelectStmt,
        targets: &[(String, Parsed)],
        calls: Vec<Call>,
        input: Node,
        scope: &Scope,
        subqueries: &[SubqueryValue],
    ) -> Result<GroupedQuery, Refusal> {
        let resolve_key =
            |item: &Parsed| resolve_expression(group_by_expression(item, targets)?, scope);
        let sets = grouping_sets(query, &resolve_key)?;
        if let [set] = &sets[..] {
            let clauses = GroupedClauses {
                targets,
                calls,
                having: query.having_clause.as_deref(),
                subqueries,
            };
            return self.analyse_grouping_set(clauses, set, &[], input, scope);
        }
        let all_keys: Vec<Expression> = sets.iter().flatten().cloned().collect();
        let mut terms = GroupTerms {
            scope,
            keys: &all_keys,
            subquery_columns: subqueries.iter().flat_map(SubqueryValue::columns).collect(),
            extracted: Vec::new(),
        };
        let (mut targets, mut calls) = (targets.to_vec(), calls);
        for target in targets.iter_mut().map(|(_, one)| one) {
            self.extract_group_terms(target, &mut terms)?;
        }
        for call in &mut calls {
            call.transform_children(&mut |node| self.extract_group_terms(node, &mut terms))?;
        }
        let extracted = terms.extracted.into_iter();
        let (columns, term_targets): (Vec<_>, Vec<_>) =
            extracted.map(|(id, _, one)| (id, (String::new(), one))).unzip();
        let first_stage = self.stages.len();
        let mut nulls = Vec::new();
        let mut inputs = Vec::new();
        for set in &sets {
            let clauses = GroupedClauses {
                targets: &term_targets,
                calls: Vec::new(),
                having: query.having_clause.as_deref(),
                subqueries,
            };
            let group_rows =
                self.analyse_grouping_set(clauses, set, &all_keys, input.clone(), scope)?;
            nulls.append(&mut self.null_keys);
            let own: Vec<_> =
                group_rows.1.into_iter().map(|(_, value)| (self.new_column(), value)).collect();
            let mapped = own.iter().map(|(id, _)| *id).collect();
            inputs.push((project_columns(group_rows.0, own), mapped));
        }
        self.type_nulls(nulls, first_stage);
        let mut read_expression =
            |one: &Parsed| Ok(Expression::from_internal_text(&print_expression(one)?));
        let named_expressions = targets
            .iter()
            .map(|(name, one)| Ok((name.clone(), read_expression(one)?)))
            .collect::<Result<_, Refusal>>()?;
        let windows = calls
            .into_iter()
            .map(|call| call.resolve(&mut read_expression))
            .collect::<Result<_, _>>()?;
        Ok((Node::UnionAll { inputs, columns }, named_expressions, windows))
    }

    /// Gives each null the type that its key has in the other grouping sets, whose stages begin
    /// with `first`.
    fn type_nulls(&mut self, nulls: Vec<(ColumnId, Expression)>, first: usize) {
        for (null, key) in nulls {
            let keys = self.stages[first..].iter().flat_map(|stage| match &stage.contents {
                StageContents::Groups { keys, .. } => &keys[..],
                _ => &[],
            });
            let typed_key = keys.clone().find(|(_, other)| *other == key);
            self.typed_like.extend(typed_key.map(|(like, _)| (null, *like)));
        }
    }

    /// Groups by one set of keys. Keys of `every` that are not among them are null.
    fn analyse_grouping_set(
        &mut self,
        clauses: GroupedClauses<'_>,
        set: &[Expression],
        all_keys: &[Expression],
        input: Node,
        scope: &Scope,
    ) -> Result<GroupedQuery, Refusal> {
        let mut grouping = Grouping::new(self.facts, &mut self.next_column);
        for key in set {
            grouping.add_key(key.clone());
        }
        for key in all_keys {
            grouping.add_absent_key(key.clone());
        }
        let mut resolve = |one: &Parsed| resolve_over_groups(one, scope, &mut grouping);
        let mut named_expressions = clauses
            .targets
            .iter()
            .map(|(name, target)| Ok((name.clone(), resolve(target)?)))
            .collect::<Result<Vec<_>, Refusal>>()?;
        let calls = clauses.calls.into_iter();
        let mut windows =
            calls.map(|call| call.resolve(&mut resolve)).collect::<Result<Vec<_>, _>>()?;
        let mut having = clauses.having.map(&mut resolve).transpose()?;
        let mut subqueries = resolve_subqueries(clauses.subqueries.to_vec(), resolve)?;
        let nulls = grouping.null_columns();
        let (keys, aggregates) = grouping.into_parts();
        if set.is_empty() && !keys.is_empty() {
            let advice = "group by it";
            return Err(Refusal::new("a column outside of aggregates", -1, advice));
        }
        let group_domain =
            self.next_group_domain.take().map(|domain| (domain, keys.clone(), aggregates.clone()));
        let mut node =
            self.add_stage(Stage { input, contents: StageContents::Groups { keys, aggregates } });
        if let Some((given, keys, aggregates)) = group_domain {
            check_empty_values(&aggregates)?;
            let counts = count_columns(&aggregates);
            let (each, replacements) = self.join_groups_to_domain(node, &given, &keys, &counts);
            node = each;
            let select_expressions = named_expressions.iter_mut().map(|(_, one)| one);
            let windows = windows.iter_mut().flat_map(Window::expressions);
            let subquery_expressions =
                subqueries.iter_mut().flat_map(ScalarSubquery::outer_expressions);
            for expression in
                select_expressions.chain(windows).chain(&mut having).chain(subquery_expressions)
            {
                for (column, replacement) in &replacements {
                    *expression = expression.substitute(*column, replacement);
                }
            }
        }
        let null_column = |(id, _): &(ColumnId, _)| (*id, Expression::constant("NULL"));
        node = project_columns(node, nulls.iter().map(null_column).collect());
        self.null_keys = nulls;
        node = self.join_subqueries(node, subqueries)?;
        if let Some(condition) = having {
            node = Node::Filter { input: Box::new(node), condition };
        }
        Ok((node, named_expressions, windows))
    }
}

/// A GROUP BY item: an expression, or one of the select list by its number.
fn group_by_expression<'a>(
    key: &'a Parsed,
    targets: &'a [(String, Parsed)],
) -> Result<&'a Parsed, Refusal> {
    match &key.node {
        Some(NodeEnum::AConst(constant)) => {
            let Some(target_index) = target_index(Some(key)) else {
                return Ok(key);
            };
            let no_such_column = || {
                Refusal::new(
                    "a position in GROUP BY without a column",
                    constant.location,
                    "name a column",
                )
            };
            let target = targets.get(target_index);
            target.map(|(_, target)| target).ok_or_else(no_such_column)
        }
        _ => Ok(key),
    }
}

pub(super) fn select_targets(query: &SelectStmt) -> Result<Vec<(String, &Parsed)>, Refusal> {
    let mut all = Vec::new();
    for target in &query.target_list {
        let Some(NodeEnum::ResTarget(target)) = &target.node else {
            return Err(Refusal::new("a target without an expression", -1, "name it"));
        };
        let Some(value) = target.val.as_deref() else {
            continue;
        };
        let name = match (&target.name[..], &value.node) {
            ("", Some(NodeEnum::ColumnRef(column))) => {
                reference_names(column).last().cloned().unwrap_or_default()
            }
            (name, _) => name.to_owned(),
        };
        all.push((name, value));
    }
    Ok(all)
}

pub(super) fn refuse_locking_clause(query: &SelectStmt) -> Result<(), Refusal> {
    let advice = "leave it out: a view only reads";
    let refusal = || Refusal::new("FOR UPDATE or FOR SHARE", -1, advice);
    query.locking_clause.is_empty().then_some(()).ok_or_else(refusal)
}
