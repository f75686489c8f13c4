//! Keys and aggregates of a query with groups.

use pg_query::NodeEnum;
use pg_query::protobuf::{self as pb, Node};

use super::children::contains_node;
use super::expressions::{reference_names, resolve_expression};
use super::facts::Facts;
use super::scope::Scope;
use crate::core::expression::{ColumnId, Expression};
use crate::core::refusal::Refusal;
use crate::core::tree::Aggregate;

/// The keys and aggregates of one query, collected from its expressions.
pub struct Grouping<'a> {
    facts: &'a Facts,
    next_column: &'a mut u32,
    /// The keys, with the columns that have them.
    keys: Vec<(ColumnId, Expression)>,
    /// Keys of other grouping sets that are null in this one, with their columns.
    absent_keys: Vec<(Expression, ColumnId)>,
    aggregates: Vec<Aggregate>,
}

impl<'a> Grouping<'a> {
    /// A grouping without keys and aggregates.
    pub fn new(facts: &'a Facts, next_column: &'a mut u32) -> Self {
        Self {
            facts,
            next_column,
            keys: Vec::new(),
            absent_keys: Vec::new(),
            aggregates: Vec::new(),
        }
    }

    /// The columns that are null without being keys: those of the set without keys, which has a
    /// group also where there are no rows.
    pub(crate) fn null_columns(&self) -> Vec<(ColumnId, Expression)> {
        let is_key = |id: &ColumnId| self.keys.iter().any(|(key, _)| key == id);
        let nulls = self.absent_keys.iter().filter(|(_, id)| !is_key(id));
        nulls.map(|(key, id)| (*id, key.clone())).collect()
    }

    /// The collected keys and aggregates.
    pub fn into_parts(self) -> (Vec<(ColumnId, Expression)>, Vec<Aggregate>) {
        (self.keys, self.aggregates)
    }

    fn new_column(&mut self) -> ColumnId {
        *self.next_column += 1;
        ColumnId(*self.next_column)
    }

    /// Adds a key, and returns its column.
    pub(crate) fn add_key(&mut self, key: Expression) -> ColumnId {
        if let Some((id, _)) = self.keys.iter().find(|(_, other)| *other == key) {
            return *id;
        }
        let id = self.new_column();
        self.keys.push((id, key));
        id
    }

    /// Adds a key of other grouping sets, which is null in this one. To be called after all keys
    /// are added.
    pub(crate) fn add_absent_key(&mut self, key: Expression) {
        if self.keys.iter().any(|(_, other)| *other == key) {
            return;
        }
        let id = self.new_column();
        if !self.keys.is_empty() {
            let null = key.wrap("CASE WHEN false THEN ", " END");
            self.keys.push((id, null));
        }
        self.absent_keys.push((key, id));
    }

    /// Whether the expression is a key of this grouping set.
    pub fn has_key(&self, key: &Expression) -> bool {
        self.keys.iter().any(|(_, other)| other == key)
    }

    /// The key that an expression is, if it is one.
    pub fn find_key(&self, node: &NodeEnum, scope: &Scope) -> Result<Option<ColumnId>, Refusal> {
        let is_column = matches!(node, NodeEnum::ColumnRef(_));
        let mut known_keys =
            self.keys.iter().map(|(_, key)| key).chain(self.absent_keys.iter().map(|(key, _)| key));
        let can_be_key = known_keys.any(|key| key.as_column().is_some() == is_column);
        if !can_be_key
            || matches!(node, NodeEnum::AConst(_) | NodeEnum::List(_) | NodeEnum::String(_))
        {
            return Ok(None);
        }
        if let NodeEnum::FuncCall(call) = node
            && self.is_aggregate(call)
        {
            return Ok(None);
        }
        if !is_expression(node) {
            return Ok(None);
        }
        let node = Node { node: Some(node.clone()) };
        // An expression with an aggregate in it is not a key.
        let Ok(resolved) = resolve_expression(&node, scope) else {
            return Ok(None);
        };
        let existing = self.keys.iter().find(|(_, key)| *key == resolved);
        let absent = || self.absent_keys.iter().find(|(key, _)| *key == resolved);
        Ok(match existing {
            Some((id, _)) => Some(*id),
            None => absent().map(|(_, id)| *id),
        })
    }

    /// Adds a column that depends functionally on the keys as a key.
    pub(crate) fn add_dependent_column(&mut self, column: ColumnId) -> ColumnId {
        self.add_key(Expression::column(column))
    }

    /// Whether a call is of an aggregate function.
    pub(crate) fn is_aggregate(&self, call: &pb::FuncCall) -> bool {
        call.over.is_none() && self.facts.is_aggregate(call)
    }

    /// The column of an aggregate.
    pub(crate) fn add_aggregate(
        &mut self,
        call: &pb::FuncCall,
        scope: &Scope,
    ) -> Result<ColumnId, Refusal> {
        let call_node = Node { node: Some(NodeEnum::FuncCall(Box::new(call.clone()))) };
        let call_expression = resolve_expression(&call_node, scope)?;
        if let Some(same) = self.aggregates.iter().find(|other| other.call == call_expression) {
            return Ok(same.column);
        }
        let (schema, name) = function_name(call);
        let is_plain = schema.is_none()
            && !call.agg_distinct
            && call.agg_order.is_empty()
            && !call.agg_within_group
            && !call.func_variadic;
        let argument = match &call.args[..] {
            [argument] => Some(resolve_expression(argument, scope)?),
            _ => None,
        };
        let filter = call.agg_filter.as_deref();
        let empty_value = match (&schema, &name[..]) {
            (Some(_), _) => None,
            (None, "count" | "regr_count") => Some("0"),
            // These are computed for a hypothetical row.
            (None, "rank" | "dense_rank" | "percent_rank" | "cume_dist") => None,
            (None, _) => Some("NULL"),
        };
        let aggregate = Aggregate {
            column: self.new_column(),
            call: call_expression,
            function: is_plain.then_some(name),
            argument,
            filter: filter.map(|filter| resolve_expression(filter, scope)).transpose()?,
            empty_value,
        };
        let column = aggregate.column;
        self.aggregates.push(aggregate);
        Ok(column)
    }
}

/// Whether a node can be printed as an expression by itself.
pub(super) fn is_expression(node: &NodeEnum) -> bool {
    !matches!(
        node,
        NodeEnum::SortBy(_)
            | NodeEnum::CaseWhen(_)
            | NodeEnum::NamedArgExpr(_)
            | NodeEnum::AIndices(_)
            | NodeEnum::ResTarget(_)
    )
}

/// Name of a function, with its schema where that is not `pg_catalog`.
fn function_name(call: &pb::FuncCall) -> (Option<String>, String) {
    let names = reference_names(&pb::ColumnRef { fields: call.funcname.clone(), location: -1 });
    match &names[..] {
        [schema, name] if schema != "pg_catalog" => (Some(schema.clone()), name.clone()),
        _ => (None, names.last().cloned().unwrap_or_default()),
    }
}

/// Columns of the aggregates whose result over no rows is 0.
pub(crate) fn count_columns(aggregates: &[Aggregate]) -> Vec<ColumnId> {
    let counts = aggregates.iter().filter(|aggregate| aggregate.empty_value == Some("0"));
    counts.map(|one| one.column).collect()
}

/// Refuses aggregates whose result over no rows is unknown: the group of an outer row may not
/// exist.
pub(crate) fn check_empty_values(aggregates: &[Aggregate]) -> Result<(), Refusal> {
    if aggregates.iter().all(|one| one.empty_value.is_some()) {
        Ok(())
    } else {
        let construct = "this aggregate in a correlated subquery";
        Err(Refusal::new(construct, -1, "write it as a join"))
    }
}

impl Facts {
    /// Whether a call is one of an aggregate, or of the window function of that name.
    pub(super) fn is_aggregate(&self, call: &pb::FuncCall) -> bool {
        self.aggregates.contains(&function_name(call))
    }

    /// Whether a call is of a set-returning function with one column.
    pub(super) fn is_set_returning(&self, call: &pb::FuncCall) -> bool {
        self.set_functions.contains(&function_name(call))
    }

    /// Whether a call is of a set-returning function with several columns.
    pub(super) fn returns_row_set(&self, call: &pb::FuncCall) -> bool {
        self.row_set_functions.contains(&function_name(call))
    }

    /// Whether an expression has an aggregate.
    pub(super) fn has_aggregate(&self, node: &Node) -> bool {
        contains_node(
            node,
            &|one| matches!(one, NodeEnum::FuncCall(call) if call.over.is_none() && self.is_aggregate(call)),
        )
    }
}
