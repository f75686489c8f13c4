//! Analyses a SELECT, clause by clause.

use std::borrow::Cow;
use std::rc::Rc;

use pg_query::NodeEnum;
use pg_query::protobuf::{Node as Parsed, SelectStmt, SetOperation};

use super::aggregates::{Grouping, check_empty, counts};
use super::ctes::{Cte, Ctes, with};
use super::dependent_join::DecorrelationDomain;
use super::expressions::{expression, grouped, names_of, text};
use super::grouping_sets::{GroupTerms, grouping_sets};
use super::lateral::SetReturningCalls;
use super::scalar_subquery::{ScalarSubquery, SubqueryValue, joined};
use super::scope::Scope;
use super::select_list::{SelectList, numbered, ordered, place, said};
use super::windows::{Call, Window, projected};
use super::{Analysis, DEPTH_MAX};
use crate::core::expression::{ColumnId, Expression};
use crate::core::refusal::Refusal;
use crate::core::renumber::afresh;
use crate::core::tree::{Node, Stage, StageContents};

/// The rows of a query.
#[derive(Clone)]
pub struct QueryRows {
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
    values: &'a [SubqueryValue],
}

/// Rows with their DISTINCT ON.
struct DistinctRows {
    rows: QueryRows,
    /// Columns of DISTINCT ON, and of the domain.
    on: Vec<ColumnId>,
}

impl Analysis<'_> {
    /// Analyses a SELECT, with its set operations.
    pub(super) fn select(&mut self, query: &SelectStmt, ctes: &Ctes) -> Result<QueryRows, Refusal> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            let what = format!("a query nested deeper than {DEPTH_MAX}");
            return Err(Refusal::new(what, -1, "simplify it"));
        }
        let given = self.given.take();
        let ctes = with(query, ctes)?;
        refuse_what_is_not_covered(query)?;
        let rows = match SetOperation::try_from(query.op) {
            Ok(SetOperation::SetopNone | SetOperation::Undefined) => {
                self.simple(query, &ctes, given.as_ref())?
            }
            _ => self.combined(query, &ctes, given.as_ref())?,
        };
        self.depth -= 1;
        self.limited(
            rows,
            query,
            given.as_ref().map_or(0, DecorrelationDomain::len),
        )
    }

    /// Analyses a query of WITH at a reference; its stages are made only once.
    pub(super) fn cte(&mut self, cte: &Rc<Cte>) -> Result<QueryRows, Refusal> {
        let known = self.ctes.iter().find(|(other, _)| Rc::ptr_eq(other, cte));
        if let Some((_, rows)) = known.cloned() {
            let (node, to) = afresh(&rows.node, || self.new_column());
            let columns = rows.columns.into_iter();
            let order = rows.order.into_iter();
            return Ok(QueryRows {
                columns: columns.map(|(name, id)| (name, to[&id])).collect(),
                order: order.map(|(id, how)| (to[&id], how)).collect(),
                node,
            });
        }
        let mut rows = match self.recursive(cte)? {
            Some(rows) => rows,
            None => self.select(&cte.query, &cte.before)?,
        };
        for ((name, _), alias) in rows.columns.iter_mut().zip(&cte.columns) {
            name.clone_from(alias);
        }
        self.ctes.push((cte.clone(), rows.clone()));
        Ok(rows)
    }

    fn simple(
        &mut self,
        query: &SelectStmt,
        ctes: &Ctes,
        given: Option<&DecorrelationDomain>,
    ) -> Result<QueryRows, Refusal> {
        if !query.values_lists.is_empty() && given.is_none() {
            let rows = self.written_out(query)?;
            return ordered(rows, query);
        }
        let having = query.having_clause.as_deref();
        let all = said(query)?.all;
        let mut expressions = all.iter().map(|(_, target)| target).chain(having);
        let is_grouped = !query.group_clause.is_empty()
            || having.is_some()
            || expressions.any(|one| self.facts.has_aggregate(one));
        let mut query = query.clone();
        let mut ctes = Cow::Borrowed(ctes);
        let mut of_each = None;
        if let Some(given) = given {
            let is_one_group = is_grouped && query.group_clause.is_empty();
            of_each = is_one_group.then(|| given.clone());
            given.put_into(&mut query, is_grouped)?;
            ctes = Cow::Owned(ctes.with_given(given));
        }
        let ctes = &*ctes;
        let (mut node, scope) = self.from(&query.from_clause, ctes)?;
        if let Some(condition) = query.where_clause.as_deref() {
            node = self.filtered(node, condition, &scope, ctes)?;
        }
        let mut said = said(&query)?;
        said.given = given.map_or(0, DecorrelationDomain::len);
        let mut values = Vec::new();
        if is_grouped {
            self.take(&mut query, &mut said, |this, one| {
                this.take_values_of_rows(one, ctes, &mut values)
            })?;
            let values = joined(std::mem::take(&mut values), |one| expression(one, &scope))?;
            node = self.with_values(node, values)?;
            node = self.grouped_sets(node, &scope, &mut query, &mut said)?;
        }
        self.take(&mut query, &mut said, |this, one| {
            this.take_values(one, ctes, &mut values)
        })?;
        self.of_each = of_each;
        let rows = self.shown(&query, said, node, &scope, is_grouped, values)?;
        match &query.distinct_clause[..] {
            [] => Ok(rows.rows),
            [Parsed { node: None }] => Ok(self.distinct(rows.rows)),
            _ => Ok(self.distinct_on(rows)),
        }
    }

    /// Applies a function to every expression of the select list, and to HAVING.
    fn take(
        &mut self,
        query: &mut SelectStmt,
        said: &mut SelectList,
        mut each: impl FnMut(&mut Self, &mut Parsed) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let having = query.having_clause.as_deref_mut();
        let said = said.all.iter_mut().map(|(_, one)| one);
        said.chain(having).try_for_each(|one| each(self, one))
    }

    /// The select list over rows, with window and set-returning functions.
    fn shown(
        &mut self,
        query: &SelectStmt,
        mut said: SelectList,
        node: Node,
        scope: &Scope,
        is_grouped: bool,
        values: Vec<SubqueryValue>,
    ) -> Result<DistinctRows, Refusal> {
        let mut calls = Vec::new();
        let mut sets = SetReturningCalls::default();
        for one in &mut said.all {
            self.take_sets(&mut one.1, &mut sets)?;
            self.take_windows(&mut one.1, &query.window_clause, &mut calls)?;
        }
        // They are computed with the select list, and stand behind it.
        let shown = said.all.len();
        for call in sets.calls() {
            let mut call = call.clone();
            self.take_windows(&mut call, &query.window_clause, &mut calls)?;
            said.all.push((String::new(), call));
        }
        calls.iter_mut().for_each(|call| call.of_each(said.given()));
        let (node, mut named, windows) = if is_grouped {
            self.groups(query, &said.all, calls, node, scope, &values)?
        } else {
            let mut resolved = |one: &Parsed| expression(one, scope);
            let all = said.all.iter();
            let named = all.map(|(name, one)| Ok((name.clone(), resolved(one)?)));
            let named = named.collect::<Result<Vec<_>, Refusal>>()?;
            let windows = calls.into_iter().map(|call| call.resolved(&mut resolved));
            let windows = windows.collect::<Result<_, _>>()?;
            let values = joined(values, resolved)?;
            (self.with_values(node, values)?, named, windows)
        };
        let node = self.windowed(node, windows);
        let of_sets: Vec<Expression> = named
            .split_off(shown)
            .into_iter()
            .map(|(_, call)| call)
            .collect();
        let node = sets.expanded(node, &of_sets);
        let rows = self.project(node, named);
        Ok(self.sorted(rows, &said))
    }

    /// Splits hidden sort columns from the visible ones.
    fn sorted(&self, mut rows: QueryRows, said: &SelectList) -> DistinctRows {
        let mut hidden = rows
            .columns
            .split_off(said.shown)
            .into_iter()
            .map(|(_, id)| id);
        let mut on: Vec<ColumnId> = hidden.by_ref().take(said.on).collect();
        let given = rows.columns.iter().rev().take(said.given);
        on.extend(given.map(|(_, id)| *id));
        rows.order = hidden.zip(said.directions.iter().cloned()).collect();
        DistinctRows { rows, on }
    }

    /// Keeps the first row for each value of DISTINCT ON.
    fn distinct_on(&mut self, sorted: DistinctRows) -> QueryRows {
        let DistinctRows { rows, on } = sorted;
        let number = self.new_column();
        let window = numbered(&on, &rows.order);
        let first = Expression::column(number).tested("= 1");
        let windows = vec![(number, window)];
        let node = self.partitioned(rows.node, on, windows, Some(first));
        QueryRows { node, ..rows }
    }

    fn project(&mut self, node: Node, named: Vec<(String, Expression)>) -> QueryRows {
        let mut columns = Vec::new();
        let mut new: Vec<(ColumnId, Expression)> = Vec::new();
        for (name, expression) in named {
            let known = new
                .iter()
                .find(|(_, known)| *known == expression)
                .map(|(id, _)| *id);
            let id = known.or_else(|| expression.as_column()).unwrap_or_else(|| {
                let id = self.new_column();
                new.push((id, expression));
                id
            });
            columns.push((name, id));
        }
        QueryRows {
            node: projected(node, new),
            columns,
            order: Vec::new(),
        }
    }

    fn groups(
        &mut self,
        query: &SelectStmt,
        targets: &[(String, Parsed)],
        calls: Vec<Call>,
        input: Node,
        scope: &Scope,
        values: &[SubqueryValue],
    ) -> Result<GroupedQuery, Refusal> {
        let keys = |one: &Parsed| expression(key_of(one, targets)?, scope);
        let sets = grouping_sets(query, &keys)?;
        if let [set] = &sets[..] {
            let clauses = GroupedClauses {
                targets,
                calls,
                having: query.having_clause.as_deref(),
                values,
            };
            return self.grouped(clauses, set, &[], input, scope);
        }
        let every: Vec<Expression> = sets.iter().flatten().cloned().collect();
        let mut leaves = GroupTerms {
            scope,
            keys: &every,
            values: values.iter().flat_map(SubqueryValue::columns).collect(),
            found: Vec::new(),
        };
        let (mut targets, mut calls) = (targets.to_vec(), calls);
        for one in targets.iter_mut().map(|(_, one)| one) {
            self.take_leaves(one, &mut leaves)?;
        }
        for call in &mut calls {
            call.change(&mut |one| self.take_leaves(one, &mut leaves))?;
        }
        let found = leaves.found.into_iter();
        let (columns, found): (Vec<_>, Vec<_>) =
            found.map(|(id, _, one)| (id, (String::new(), one))).unzip();
        let first = self.stages.len();
        let mut nulls = Vec::new();
        let mut inputs = Vec::new();
        for set in &sets {
            let clauses = GroupedClauses {
                targets: &found,
                calls: Vec::new(),
                having: query.having_clause.as_deref(),
                values,
            };
            let one = self.grouped(clauses, set, &every, input.clone(), scope)?;
            nulls.append(&mut self.nulls);
            let own: Vec<_> = one
                .1
                .into_iter()
                .map(|(_, value)| (self.new_column(), value))
                .collect();
            let mapped = own.iter().map(|(id, _)| *id).collect();
            inputs.push((projected(one.0, own), mapped));
        }
        self.type_nulls(nulls, first);
        let mut read = |one: &Parsed| Ok(Expression::read(&text(one)?));
        let named = targets
            .iter()
            .map(|(name, one)| Ok((name.clone(), read(one)?)))
            .collect::<Result<_, Refusal>>()?;
        let windows = calls
            .into_iter()
            .map(|call| call.resolved(&mut read))
            .collect::<Result<_, _>>()?;
        Ok((Node::UnionAll { inputs, columns }, named, windows))
    }

    /// Gives each null the type that its key has in the other grouping sets, whose stages begin
    /// with `first`.
    fn type_nulls(&mut self, nulls: Vec<(ColumnId, Expression)>, first: usize) {
        for (null, key) in nulls {
            let keys = self.stages[first..]
                .iter()
                .flat_map(|stage| match &stage.contents {
                    StageContents::Groups { keys, .. } => &keys[..],
                    _ => &[],
                });
            let like = keys.clone().find(|(_, other)| *other == key);
            self.typed.extend(like.map(|(like, _)| (null, *like)));
        }
    }

    /// Groups by one set of keys. Keys of `every` that are not among them are null.
    fn grouped(
        &mut self,
        clauses: GroupedClauses<'_>,
        set: &[Expression],
        every: &[Expression],
        input: Node,
        scope: &Scope,
    ) -> Result<GroupedQuery, Refusal> {
        let mut grouping = Grouping::new(self.facts, &mut self.next_column);
        for key in set {
            grouping.group_by(key.clone());
        }
        for key in every {
            grouping.leave_out(key.clone());
        }
        let mut resolved = |one: &Parsed| grouped(one, scope, &mut grouping);
        let mut named = clauses
            .targets
            .iter()
            .map(|(name, target)| Ok((name.clone(), resolved(target)?)))
            .collect::<Result<Vec<_>, Refusal>>()?;
        let calls = clauses.calls.into_iter();
        let mut windows = calls
            .map(|call| call.resolved(&mut resolved))
            .collect::<Result<Vec<_>, _>>()?;
        let mut having = clauses.having.map(&mut resolved).transpose()?;
        let mut values = joined(clauses.values.to_vec(), resolved)?;
        let nulls = grouping.nulls();
        let (keys, aggregates) = grouping.finish();
        if set.is_empty() && !keys.is_empty() {
            let advice = "group by it";
            return Err(Refusal::new("a column outside of aggregates", -1, advice));
        }
        let of_each = self
            .of_each
            .take()
            .map(|given| (given, keys.clone(), aggregates.clone()));
        let mut node = self.stage(Stage {
            input,
            contents: StageContents::Groups { keys, aggregates },
        });
        if let Some((given, keys, aggregates)) = of_each {
            check_empty(&aggregates)?;
            let counts = counts(&aggregates);
            let (each, instead) = self.for_each_value(node, &given, &keys, &counts);
            node = each;
            let named = named.iter_mut().map(|(_, one)| one);
            let windows = windows.iter_mut().flat_map(Window::expressions);
            let of_values = values.iter_mut().flat_map(ScalarSubquery::outer);
            for one in named.chain(windows).chain(&mut having).chain(of_values) {
                for (column, other) in &instead {
                    *one = one.with(*column, other);
                }
            }
        }
        let null = |(id, _): &(ColumnId, _)| (*id, Expression::constant("NULL"));
        node = projected(node, nulls.iter().map(null).collect());
        self.nulls = nulls;
        node = self.with_values(node, values)?;
        if let Some(condition) = having {
            node = Node::Filter {
                input: Box::new(node),
                condition,
            };
        }
        Ok((node, named, windows))
    }
}

/// A GROUP BY item: an expression, or one of the select list by its number.
fn key_of<'a>(key: &'a Parsed, targets: &'a [(String, Parsed)]) -> Result<&'a Parsed, Refusal> {
    match &key.node {
        Some(NodeEnum::AConst(constant)) => {
            let Some(place) = place(Some(key)) else {
                return Ok(key);
            };
            let none = || {
                Refusal::new(
                    "a position in GROUP BY without a column",
                    constant.location,
                    "name a column",
                )
            };
            let target = targets.get(place);
            target.map(|(_, target)| target).ok_or_else(none)
        }
        _ => Ok(key),
    }
}

pub(super) fn targets(query: &SelectStmt) -> Result<Vec<(String, &Parsed)>, Refusal> {
    let mut all = Vec::new();
    for target in &query.target_list {
        let Some(NodeEnum::ResTarget(target)) = &target.node else {
            return Err(Refusal::new(
                "a target without an expression",
                -1,
                "name it",
            ));
        };
        let Some(value) = target.val.as_deref() else {
            continue;
        };
        let name = match (&target.name[..], &value.node) {
            ("", Some(NodeEnum::ColumnRef(column))) => {
                names_of(column).last().cloned().unwrap_or_default()
            }
            (name, _) => name.to_owned(),
        };
        all.push((name, value));
    }
    Ok(all)
}

pub(super) fn refuse_what_is_not_covered(query: &SelectStmt) -> Result<(), Refusal> {
    let advice = "leave it out: a view only reads";
    let refused = || Refusal::new("FOR UPDATE or FOR SHARE", -1, advice);
    query
        .locking_clause
        .is_empty()
        .then_some(())
        .ok_or_else(refused)
}
