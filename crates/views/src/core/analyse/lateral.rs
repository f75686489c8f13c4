//! Items of FROM that depend on items before them: functions and LATERAL subqueries. Also
//! set-returning functions in the select list.

use pg_query::NodeEnum;
use pg_query::protobuf::{self as pb, Node as Parsed, RangeFunction, RangeSubselect, SelectStmt};

use super::Analysis;
use super::children::{children, contains_node};
use super::constants::Constants;
use super::ctes::Ctes;
use super::expressions::{internal_reference, print_expression, resolve_expression, resolve_node};
use super::facts::Facts;
use super::from::{into_from_item, scope_entry, string_values};
use super::scope::{Entry, Scope};
use super::select::QueryRows;
use super::select_list::{SelectList, target_index};
use super::subqueries::filter_rows;
use super::windows::project_columns;
use crate::core::expression::{ColumnId, Expression};
use crate::core::refusal::Refusal;
use crate::core::tree::{FunctionColumn, JoinKind, Node};

/// Kind of a lateral join: its condition, and whether rows without a match are kept with nulls.
#[derive(Clone, Copy)]
pub(crate) struct LateralJoin<'a> {
    pub condition: Option<&'a Parsed>,
    pub keeps_unmatched: bool,
}

/// Set-returning functions that were taken out of expressions; a column stands for each.
#[derive(Default)]
pub(crate) struct SetReturningCalls {
    calls: Vec<(ColumnId, Parsed, String)>,
    /// Whether no more calls may be added.
    is_sealed: bool,
}

/// Whether an item of FROM may depend on those before it.
pub(crate) fn may_be_lateral(item: &Parsed) -> bool {
    match &item.node {
        Some(NodeEnum::RangeFunction(_)) => true,
        Some(NodeEnum::RangeSubselect(sub)) => sub.lateral,
        _ => false,
    }
}

impl Facts {
    /// Whether an expression calls a set-returning function.
    pub(super) fn has_set_returning_call(&self, node: &Parsed) -> bool {
        contains_node(
            node,
            &|one| matches!(one, NodeEnum::FuncCall(call) if self.is_set_returning(call) || self.returns_row_set(call)),
        )
    }
}

impl Analysis<'_> {
    /// Joins rows with a dependent item of FROM.
    pub(super) fn join_lateral(
        &mut self,
        preceding: Node,
        scope: Scope,
        item: &Parsed,
        lateral_join: LateralJoin<'_>,
        ctes: &Ctes,
    ) -> Result<(Node, Scope), Refusal> {
        match &item.node {
            Some(NodeEnum::RangeFunction(function)) => {
                self.join_function(preceding, scope, function, lateral_join)
            }
            Some(NodeEnum::RangeSubselect(sub)) => {
                self.join_subselect(preceding, scope, sub, lateral_join, ctes)
            }
            _ => Err(Refusal::new("this kind of FROM item", -1, "use mode full")),
        }
    }

    /// Joins rows with the result of a function.
    pub(super) fn join_function(
        &mut self,
        preceding: Node,
        scope: Scope,
        function: &RangeFunction,
        lateral_join: LateralJoin<'_>,
    ) -> Result<(Node, Scope), Refusal> {
        let call = function_call(function, &scope)?;
        let definition = column_definitions(function)?;
        let names: Vec<String> = match (&definition[..], &function.alias) {
            ([], Some(alias)) => string_values(&alias.colnames),
            (columns, _) => columns.iter().map(|(name, _)| name.clone()).collect(),
        };
        if names.is_empty() {
            let advice = "name its columns: `AS f (a, b)`";
            return Err(Refusal::new("a function in FROM", -1, advice));
        }
        let columns: Vec<(String, ColumnId)> =
            names.into_iter().map(|name| (name, self.new_column())).collect();
        let mut defined = definition.into_iter();
        let function_columns = columns.iter().map(|(_, id)| (*id, defined.next())).collect();
        let name =
            function.alias.as_ref().map_or_else(String::new, |alias| alias.aliasname.clone());
        let function_entry = scope_entry(columns, None, &name);
        flat_map(preceding, scope, call, function_columns, function_entry, lateral_join)
    }

    fn join_subselect(
        &mut self,
        preceding: Node,
        scope: Scope,
        sub: &RangeSubselect,
        lateral_join: LateralJoin<'_>,
        ctes: &Ctes,
    ) -> Result<(Node, Scope), Refusal> {
        let query = sub.subquery.as_ref().and_then(|query| query.node.as_ref());
        let Some(NodeEnum::SelectStmt(query)) = query else {
            return Err(Refusal::new("a subquery of this kind", -1, "use mode full"));
        };
        let has_limit = query.limit_count.is_some() || query.limit_offset.is_some();
        if !query.values_lists.is_empty() && !has_limit {
            let Constants { call, columns } = self.analyse_values(query, &scope)?;
            let function_columns = columns.iter().map(|(_, id)| (*id, None)).collect();
            let function_entry = scope_entry(columns, sub.alias.as_ref(), "");
            return flat_map(
                preceding,
                scope,
                call,
                function_columns,
                function_entry,
                lateral_join,
            );
        }
        let (before, inner) =
            self.analyse_inner_query(preceding, &scope, query, lateral_join, ctes)?;
        let inner_columns = inner.node.columns();
        let (mut inner_values, mut joint_values) = (Vec::new(), Vec::new());
        let mut columns = Vec::new();
        for (name, value) in inner.columns {
            let inner_column = value.as_column().filter(|id| inner_columns.contains(id));
            let id = inner_column.unwrap_or_else(|| self.new_column());
            columns.push((name, id));
            if inner_column.is_none() {
                let is_inner = value.columns().iter().all(|id| inner_columns.contains(id));
                let list = if is_inner { &mut inner_values } else { &mut joint_values };
                list.push((id, value));
            }
        }
        let inner_node = project_columns(inner.node, inner_values);
        let entries = vec![scope_entry(columns, sub.alias.as_ref(), "")];
        let scope = scope.join(Scope { entries, ..Scope::default() });
        let condition =
            lateral_join.condition.map(|one| resolve_expression(one, &scope)).transpose()?;
        let conditions = inner.conditions;
        if lateral_join.keeps_unmatched {
            let all: Vec<Expression> = conditions.into_iter().chain(condition).collect();
            let kind = JoinKind::Left;
            let node = self.join(kind, before, inner_node, Expression::conjunction(&all));
            return Ok((node, scope));
        }
        let joined_condition = Expression::conjunction(&conditions);
        let node = self.join(JoinKind::Inner, before, inner_node, joined_condition);
        let node = project_columns(node, joint_values);
        Ok((
            match condition {
                Some(condition) => filter_rows(node, condition),
                None => node,
            },
            scope,
        ))
    }

    /// Analyses a dependent subquery; returns it with the rows that it depends on.
    fn analyse_inner_query(
        &mut self,
        preceding: Node,
        scope: &Scope,
        query: &SelectStmt,
        lateral_join: LateralJoin<'_>,
        ctes: &Ctes,
    ) -> Result<(Node, LateralItem), Refusal> {
        let checkpoint = self.checkpoint();
        let refusal = match self.analyse_dependent(query, scope, ctes) {
            Ok(inner) if !lateral_join.keeps_unmatched || !inner.uses_preceding_rows() => {
                return Ok((preceding, inner));
            }
            Ok(_) => {
                let construct =
                    "a LATERAL subquery in an outer join that computes a value from both sides";
                Refusal::new(construct, -1, "compute it outside of the subquery")
            }
            Err(refusal) => refusal,
        };
        self.restore_checkpoint(&checkpoint);
        let decorrelated = self.decorrelate(preceding, query, scope, ctes)?;
        decorrelated.ok_or(refusal)
    }

    /// Expands set-returning functions that rows are grouped by. In the query and the select list,
    /// columns stand for them.
    pub(super) fn expand_grouped_calls(
        &mut self,
        node: Node,
        scope: &Scope,
        query: &mut SelectStmt,
        select_list: &mut SelectList,
    ) -> Result<Node, Refusal> {
        let mut calls = SetReturningCalls::default();
        let mut keys = std::mem::take(&mut query.group_clause);
        for key in &mut keys {
            if let Some(target_index) = target_index(Some(key))
                && let Some((_, target)) = select_list.expressions.get(target_index)
            {
                *key = target.clone();
            }
            self.extract_set_returning_calls(key, &mut calls)?;
        }
        query.group_clause = keys;
        if calls.calls.is_empty() {
            return Ok(node);
        }
        calls.is_sealed = true;
        for (_, one) in &mut select_list.expressions {
            self.extract_set_returning_calls(one, &mut calls)?;
        }
        let resolved: Vec<Expression> =
            calls.calls().map(|call| resolve_expression(call, scope)).collect::<Result<_, _>>()?;
        Ok(calls.expand(node, &resolved))
    }

    /// Takes set-returning functions out of an expression.
    pub(super) fn extract_set_returning_calls(
        &mut self,
        node: &mut Parsed,
        calls: &mut SetReturningCalls,
    ) -> Result<(), Refusal> {
        let Some(inner) = &mut node.node else {
            return Ok(());
        };
        for child in children(inner)? {
            self.extract_set_returning_calls(child, calls)?;
        }
        if let NodeEnum::FuncCall(call) = &*inner
            && self.facts.returns_row_set(call)
        {
            let construct = "a function that returns rows in the select list";
            return Err(Refusal::new(construct, call.location, "put it in FROM"));
        }
        if let NodeEnum::FuncCall(call) = &*inner
            && self.facts.is_set_returning(call)
        {
            let location = call.location;
            if !calls.is_sealed && call.args.iter().any(|argument| calls.is_used_in(argument)) {
                let what = "a set-returning function of a set-returning function";
                return Err(Refusal::new(what, location, "put it in FROM"));
            }
            let call = print_expression(node)?;
            let known_call = calls.calls.iter().find(|(_, _, known)| *known == call);
            let column = match known_call {
                Some((column, _, _)) => *column,
                None if calls.is_sealed => return Ok(()),
                None => {
                    let column = self.new_column();
                    calls.calls.push((column, node.clone(), call));
                    column
                }
            };
            node.node = Some(internal_reference(column));
        }
        Ok(())
    }
}

impl SetReturningCalls {
    pub(crate) fn calls(&self) -> impl Iterator<Item = &Parsed> {
        self.calls.iter().map(|(_, call, _)| call)
    }

    fn is_used_in(&self, node: &Parsed) -> bool {
        let printed = print_expression(node).unwrap_or_default();
        let mut columns = self.calls.iter().map(|(column, _, _)| *column);
        columns
            .any(|column| printed.contains(&format!("\"{}\"", Expression::internal_name(column))))
    }

    /// The rows with the results of the calls: each row as often as the call with most results has
    /// them.
    pub(crate) fn expand(self, node: Node, resolved_calls: &[Expression]) -> Node {
        let call = match resolved_calls {
            [] => return node,
            [only] => only.clone(),
            [first, others @ ..] => {
                let other_calls = others.iter();
                let list = other_calls.fold(first.clone(), |calls, one| calls.append_to_list(one));
                list.wrap("ROWS FROM (", ")")
            }
        };
        let columns = self.calls.iter().map(|(column, _, _)| (*column, None));
        Node::FlatMap {
            input: Box::new(node),
            call,
            columns: columns.collect(),
            outer_condition: None,
        }
    }
}

/// Joins each row with the rows that a function computes from it.
fn flat_map(
    preceding: Node,
    scope: Scope,
    call: Expression,
    columns: Vec<FunctionColumn>,
    function_entry: Entry,
    lateral_join: LateralJoin<'_>,
) -> Result<(Node, Scope), Refusal> {
    let scope = scope.join(Scope { entries: vec![function_entry], ..Scope::default() });
    let condition =
        lateral_join.condition.map(|one| resolve_expression(one, &scope)).transpose()?;
    let expanded = |or_nulls| Node::FlatMap {
        input: Box::new(preceding),
        call,
        columns,
        outer_condition: or_nulls,
    };
    let node = match (lateral_join.keeps_unmatched, condition) {
        (true, condition) => expanded(Some(condition.unwrap_or(Expression::constant("true")))),
        (false, None) => expanded(None),
        (false, Some(condition)) => filter_rows(expanded(None), condition),
    };
    Ok((node, scope))
}

/// The text of a function in FROM, without its name.
fn function_call(function: &RangeFunction, scope: &Scope) -> Result<Expression, Refusal> {
    let mut call_only = function.clone();
    call_only.alias = None;
    call_only.lateral = false;
    call_only.coldeflist.clear();
    for one in &mut call_only.functions {
        let Some(NodeEnum::List(list)) = &mut one.node else {
            continue;
        };
        if let [call, definition] = &mut list.items[..] {
            let is_defined = |list: &pb::List| list.items.iter().any(|item| item.node.is_some());
            if matches!(&definition.node, Some(NodeEnum::List(list)) if is_defined(list)) {
                let construct = "ROWS FROM with a function that needs a column definition list";
                return Err(Refusal::new(construct, -1, "put it in FROM by itself"));
            }
            *call = resolve_node(call, scope)?;
        }
    }
    let select = pb::SelectStmt {
        target_list: vec![Parsed {
            node: Some(NodeEnum::ResTarget(Box::new(pb::ResTarget {
                val: Some(Box::new(null_constant())),
                ..pb::ResTarget::default()
            }))),
        }],
        from_clause: vec![Parsed { node: Some(NodeEnum::RangeFunction(call_only)) }],
        limit_option: pb::LimitOption::Default as i32,
        op: pb::SetOperation::SetopNone as i32,
        ..pb::SelectStmt::default()
    };
    let printed = super::expressions::print_query(select)?;
    let call = printed.split_once(" FROM ").map_or("", |(_, call)| call);
    Ok(Expression::from_internal_text(call))
}

/// Names and types of a function's column definition list.
fn column_definitions(function: &RangeFunction) -> Result<Vec<(String, String)>, Refusal> {
    let mut definitions = Vec::new();
    for item in &function.coldeflist {
        let Some(NodeEnum::ColumnDef(def)) = &item.node else {
            continue;
        };
        let cast = NodeEnum::TypeCast(Box::new(pb::TypeCast {
            arg: Some(Box::new(null_constant())),
            type_name: def.type_name.clone(),
            location: -1,
        }));
        let printed = print_expression(&Parsed { node: Some(cast) })?;
        let kind = printed.strip_prefix("NULL::").unwrap_or(&printed);
        definitions.push((def.colname.clone(), kind.to_owned()));
    }
    Ok(definitions)
}

fn null_constant() -> Parsed {
    Parsed { node: Some(NodeEnum::AConst(pb::AConst { isnull: true, ..pb::AConst::default() })) }
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
    fn uses_preceding_rows(&self) -> bool {
        let own_columns = self.node.columns();
        let mut used_columns = self.columns.iter().flat_map(|(_, expression)| expression.columns());
        used_columns.any(|id| !own_columns.contains(&id))
    }
}

impl From<QueryRows> for LateralItem {
    fn from(rows: QueryRows) -> Self {
        let columns = rows.columns.into_iter();
        Self {
            node: rows.node,
            conditions: Vec::new(),
            columns: columns.map(|(name, id)| (name, Expression::column(id))).collect(),
        }
    }
}

/// Rows of a subquery with its alias in FROM.
pub(crate) fn subselect_into_from_item(rows: QueryRows, sub: &RangeSubselect) -> (Node, Scope) {
    into_from_item(rows, sub.alias.as_ref(), "")
}
