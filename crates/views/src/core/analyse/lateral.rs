//! Items of FROM that depend on items before them: functions and LATERAL subqueries. Also
//! set-returning functions in the select list.

use pg_query::NodeEnum;
use pg_query::protobuf::{self as pb, Node as Parsed, RangeFunction, RangeSubselect, SelectStmt};

use super::Analysis;
use super::children::{children, has};
use super::constants::Constants;
use super::ctes::Ctes;
use super::expressions::{expression, marked, resolved, text};
use super::facts::Facts;
use super::from::{entry, named, strings};
use super::scope::{Entry, Scope};
use super::select::QueryRows;
use super::select_list::{SelectList, place};
use super::subqueries::filter;
use super::windows::projected;
use crate::core::expression::{ColumnId, Expression};
use crate::core::refusal::Refusal;
use crate::core::tree::{FunctionColumn, JoinKind, Node};

/// Kind of a lateral join: its condition, and whether rows without a match are kept with nulls.
#[derive(Clone, Copy)]
pub(crate) struct LateralJoin<'a> {
    pub condition: Option<&'a Parsed>,
    pub or_nulls: bool,
}

/// Set-returning functions that were taken out of expressions; a column stands for each.
#[derive(Default)]
pub(crate) struct SetReturningCalls {
    calls: Vec<(ColumnId, Parsed, String)>,
    /// Whether no more calls may be added.
    is_closed: bool,
}

/// Whether an item of FROM may depend on those before it.
pub(crate) fn may_depend(item: &Parsed) -> bool {
    match &item.node {
        Some(NodeEnum::RangeFunction(_)) => true,
        Some(NodeEnum::RangeSubselect(sub)) => sub.lateral,
        _ => false,
    }
}

impl Facts {
    /// Whether an expression calls a set-returning function.
    pub(super) fn has_set(&self, node: &Parsed) -> bool {
        has(
            node,
            &|one| matches!(one, NodeEnum::FuncCall(call) if self.is_set(call) || self.gives_rows(call)),
        )
    }
}

impl Analysis<'_> {
    /// Joins rows with a dependent item of FROM.
    pub(super) fn lateral(
        &mut self,
        before: Node,
        scope: Scope,
        item: &Parsed,
        how: LateralJoin<'_>,
        ctes: &Ctes,
    ) -> Result<(Node, Scope), Refusal> {
        match &item.node {
            Some(NodeEnum::RangeFunction(function)) => self.function(before, scope, function, how),
            Some(NodeEnum::RangeSubselect(sub)) => self.subselect(before, scope, sub, how, ctes),
            _ => Err(Refusal::new("this kind of FROM item", -1, "use mode full")),
        }
    }

    /// Joins rows with the result of a function.
    pub(super) fn function(
        &mut self,
        before: Node,
        scope: Scope,
        function: &RangeFunction,
        how: LateralJoin<'_>,
    ) -> Result<(Node, Scope), Refusal> {
        let call = call(function, &scope)?;
        let definition = definition(function)?;
        let names: Vec<String> = match (&definition[..], &function.alias) {
            ([], Some(alias)) => strings(&alias.colnames),
            (columns, _) => columns.iter().map(|(name, _)| name.clone()).collect(),
        };
        if names.is_empty() {
            let advice = "name its columns: `AS f (a, b)`";
            return Err(Refusal::new("a function in FROM", -1, advice));
        }
        let columns: Vec<(String, ColumnId)> = names
            .into_iter()
            .map(|name| (name, self.new_column()))
            .collect();
        let mut defined = definition.into_iter();
        let given = columns
            .iter()
            .map(|(_, id)| (*id, defined.next()))
            .collect();
        let name = function
            .alias
            .as_ref()
            .map_or_else(String::new, |alias| alias.aliasname.clone());
        let own = entry(columns, None, &name);
        given_beside(before, scope, call, given, own, how)
    }

    fn subselect(
        &mut self,
        before: Node,
        scope: Scope,
        sub: &RangeSubselect,
        how: LateralJoin<'_>,
        ctes: &Ctes,
    ) -> Result<(Node, Scope), Refusal> {
        let query = sub.subquery.as_ref().and_then(|query| query.node.as_ref());
        let Some(NodeEnum::SelectStmt(query)) = query else {
            return Err(Refusal::new("a subquery of this kind", -1, "use mode full"));
        };
        let is_more = query.limit_count.is_some() || query.limit_offset.is_some();
        if !query.values_lists.is_empty() && !is_more {
            let Constants { call, columns } = self.constants(query, &scope)?;
            let given = columns.iter().map(|(_, id)| (*id, None)).collect();
            let own = entry(columns, sub.alias.as_ref(), "");
            return given_beside(before, scope, call, given, own, how);
        }
        let (before, inner) = self.inner_of(before, &scope, query, how, ctes)?;
        let of_inner = inner.node.columns();
        let (mut own, mut of_both) = (Vec::new(), Vec::new());
        let mut columns = Vec::new();
        for (name, value) in inner.columns {
            let own_column = value.as_column().filter(|id| of_inner.contains(id));
            let id = own_column.unwrap_or_else(|| self.new_column());
            columns.push((name, id));
            if own_column.is_none() {
                let is_own = value.columns().iter().all(|id| of_inner.contains(id));
                let list = if is_own { &mut own } else { &mut of_both };
                list.push((id, value));
            }
        }
        let inner_node = projected(inner.node, own);
        let entries = vec![entry(columns, sub.alias.as_ref(), "")];
        let scope = scope.join(Scope {
            entries,
            ..Scope::default()
        });
        let condition = how
            .condition
            .map(|one| expression(one, &scope))
            .transpose()?;
        let conditions = inner.conditions;
        if how.or_nulls {
            let all: Vec<Expression> = conditions.into_iter().chain(condition).collect();
            let kind = JoinKind::Left;
            let node = self.join(kind, before, inner_node, Expression::all(&all));
            return Ok((node, scope));
        }
        let all = Expression::all(&conditions);
        let node = self.join(JoinKind::Inner, before, inner_node, all);
        let node = projected(node, of_both);
        Ok((
            match condition {
                Some(condition) => filter(node, condition),
                None => node,
            },
            scope,
        ))
    }

    /// Analyses a dependent subquery; returns it with the rows that it depends on.
    fn inner_of(
        &mut self,
        before: Node,
        scope: &Scope,
        query: &SelectStmt,
        how: LateralJoin<'_>,
        ctes: &Ctes,
    ) -> Result<(Node, LateralItem), Refusal> {
        let mark = self.mark();
        let refusal = match self.dependent(query, scope, ctes) {
            Ok(inner) if !how.or_nulls || !inner.is_of_both() => return Ok((before, inner)),
            Ok(_) => {
                let what =
                    "a LATERAL subquery in an outer join that computes a value from both sides";
                Refusal::new(what, -1, "compute it outside of the subquery")
            }
            Err(refusal) => refusal,
        };
        self.back_to(&mark);
        let found = self.decorrelate(before, query, scope, ctes)?;
        found.ok_or(refusal)
    }

    /// Expands set-returning functions that rows are grouped by. In the query and the select list,
    /// columns stand for them.
    pub(super) fn grouped_sets(
        &mut self,
        node: Node,
        scope: &Scope,
        query: &mut SelectStmt,
        said: &mut SelectList,
    ) -> Result<Node, Refusal> {
        let mut sets = SetReturningCalls::default();
        let mut keys = std::mem::take(&mut query.group_clause);
        for key in &mut keys {
            if let Some(place) = place(Some(key))
                && let Some((_, target)) = said.all.get(place)
            {
                *key = target.clone();
            }
            self.take_sets(key, &mut sets)?;
        }
        query.group_clause = keys;
        if sets.calls.is_empty() {
            return Ok(node);
        }
        sets.is_closed = true;
        for (_, one) in &mut said.all {
            self.take_sets(one, &mut sets)?;
        }
        let resolved: Vec<Expression> = sets
            .calls()
            .map(|call| expression(call, scope))
            .collect::<Result<_, _>>()?;
        Ok(sets.expanded(node, &resolved))
    }

    /// Takes set-returning functions out of an expression.
    pub(super) fn take_sets(
        &mut self,
        node: &mut Parsed,
        all: &mut SetReturningCalls,
    ) -> Result<(), Refusal> {
        let Some(inner) = &mut node.node else {
            return Ok(());
        };
        for child in children(inner)? {
            self.take_sets(child, all)?;
        }
        if let NodeEnum::FuncCall(call) = &*inner
            && self.facts.gives_rows(call)
        {
            let what = "a function that returns rows in the select list";
            return Err(Refusal::new(what, call.location, "put it in FROM"));
        }
        if let NodeEnum::FuncCall(call) = &*inner
            && self.facts.is_set(call)
        {
            let location = call.location;
            if !all.is_closed && call.args.iter().any(|one| all.is_in(one)) {
                let what = "a set-returning function of a set-returning function";
                return Err(Refusal::new(what, location, "put it in FROM"));
            }
            let call = text(node)?;
            let known = all.calls.iter().find(|(_, _, known)| *known == call);
            let column = match known {
                Some((column, _, _)) => *column,
                None if all.is_closed => return Ok(()),
                None => {
                    let column = self.new_column();
                    all.calls.push((column, node.clone(), call));
                    column
                }
            };
            node.node = Some(marked(column));
        }
        Ok(())
    }
}

impl SetReturningCalls {
    pub(crate) fn calls(&self) -> impl Iterator<Item = &Parsed> {
        self.calls.iter().map(|(_, call, _)| call)
    }

    fn is_in(&self, node: &Parsed) -> bool {
        let shown = text(node).unwrap_or_default();
        let mut columns = self.calls.iter().map(|(column, _, _)| *column);
        columns.any(|column| shown.contains(&format!("\"{}\"", Expression::mark(column))))
    }

    /// The rows with the results of the calls: each row as often as the call with most results has
    /// them.
    pub(crate) fn expanded(self, node: Node, resolved: &[Expression]) -> Node {
        let call = match resolved {
            [] => return node,
            [only] => only.clone(),
            [first, others @ ..] => {
                let all = others.iter();
                let list = all.fold(first.clone(), |all, one| all.beside(one));
                list.within("ROWS FROM (", ")")
            }
        };
        let columns = self.calls.iter().map(|(column, _, _)| (*column, None));
        Node::Expand {
            input: Box::new(node),
            call,
            columns: columns.collect(),
            or_nulls: None,
        }
    }
}

/// Joins each row with the rows that a function computes from it.
fn given_beside(
    before: Node,
    scope: Scope,
    call: Expression,
    columns: Vec<FunctionColumn>,
    own: Entry,
    how: LateralJoin<'_>,
) -> Result<(Node, Scope), Refusal> {
    let scope = scope.join(Scope {
        entries: vec![own],
        ..Scope::default()
    });
    let condition = how
        .condition
        .map(|one| expression(one, &scope))
        .transpose()?;
    let expanded = |or_nulls| Node::Expand {
        input: Box::new(before),
        call,
        columns,
        or_nulls,
    };
    let node = match (how.or_nulls, condition) {
        (true, condition) => expanded(Some(condition.unwrap_or(Expression::constant("true")))),
        (false, None) => expanded(None),
        (false, Some(condition)) => filter(expanded(None), condition),
    };
    Ok((node, scope))
}

/// The text of a function in FROM, without its name.
fn call(function: &RangeFunction, scope: &Scope) -> Result<Expression, Refusal> {
    let mut bare = function.clone();
    bare.alias = None;
    bare.lateral = false;
    bare.coldeflist.clear();
    for one in &mut bare.functions {
        let Some(NodeEnum::List(list)) = &mut one.node else {
            continue;
        };
        if let [call, definition] = &mut list.items[..] {
            let is_defined = |list: &pb::List| list.items.iter().any(|one| one.node.is_some());
            if matches!(&definition.node, Some(NodeEnum::List(list)) if is_defined(list)) {
                let what = "ROWS FROM with a function that needs a column definition list";
                return Err(Refusal::new(what, -1, "put it in FROM by itself"));
            }
            *call = resolved(call, scope)?;
        }
    }
    let select = pb::SelectStmt {
        target_list: vec![Parsed {
            node: Some(NodeEnum::ResTarget(Box::new(pb::ResTarget {
                val: Some(Box::new(null())),
                ..pb::ResTarget::default()
            }))),
        }],
        from_clause: vec![Parsed {
            node: Some(NodeEnum::RangeFunction(bare)),
        }],
        limit_option: pb::LimitOption::Default as i32,
        op: pb::SetOperation::SetopNone as i32,
        ..pb::SelectStmt::default()
    };
    let printed = super::expressions::printed(select)?;
    let call = printed.split_once(" FROM ").map_or("", |(_, call)| call);
    Ok(Expression::read(call))
}

/// Names and types of a function's column definition list.
fn definition(function: &RangeFunction) -> Result<Vec<(String, String)>, Refusal> {
    let mut all = Vec::new();
    for one in &function.coldeflist {
        let Some(NodeEnum::ColumnDef(def)) = &one.node else {
            continue;
        };
        let cast = NodeEnum::TypeCast(Box::new(pb::TypeCast {
            arg: Some(Box::new(null())),
            type_name: def.type_name.clone(),
            location: -1,
        }));
        let shown = text(&Parsed { node: Some(cast) })?;
        let kind = shown.strip_prefix("NULL::").unwrap_or(&shown);
        all.push((def.colname.clone(), kind.to_owned()));
    }
    Ok(all)
}

fn null() -> Parsed {
    Parsed {
        node: Some(NodeEnum::AConst(pb::AConst {
            isnull: true,
            ..pb::AConst::default()
        })),
    }
}

/// A query that may depend on the rows before it in FROM.
pub(crate) struct LateralItem {
    /// Its rows, for all values of the rows before it.
    pub node: Node,
    /// Conditions under which one of its rows belongs to a row before it.
    pub conditions: Vec<Expression>,
    /// Names and expressions of its columns.
    pub columns: Vec<(String, Expression)>,
}

impl LateralItem {
    /// Whether one of its columns is computed from the rows before it.
    fn is_of_both(&self) -> bool {
        let own = self.node.columns();
        let mut shown = self.columns.iter().flat_map(|(_, one)| one.columns());
        shown.any(|id| !own.contains(&id))
    }
}

impl From<QueryRows> for LateralItem {
    fn from(rows: QueryRows) -> Self {
        let columns = rows.columns.into_iter();
        Self {
            node: rows.node,
            conditions: Vec::new(),
            columns: columns
                .map(|(name, id)| (name, Expression::column(id)))
                .collect(),
        }
    }
}

/// Rows of a subquery with its alias in FROM.
pub fn by_name(rows: QueryRows, sub: &RangeSubselect) -> (Node, Scope) {
    named(rows, sub.alias.as_ref(), "")
}
