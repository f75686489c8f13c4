//! Keys and aggregates of a query with groups.

use pg_query::NodeEnum;
use pg_query::protobuf::{self as pb, Node};

use super::children::has;
use super::expressions::{expression, names_of};
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
    absent: Vec<(Expression, ColumnId)>,
    aggregates: Vec<Aggregate>,
}

impl<'a> Grouping<'a> {
    /// A grouping without keys and aggregates.
    pub fn new(facts: &'a Facts, next_column: &'a mut u32) -> Self {
        Self {
            facts,
            next_column,
            keys: Vec::new(),
            absent: Vec::new(),
            aggregates: Vec::new(),
        }
    }

    /// The columns that are null without being keys: those of the set without keys, which has a
    /// group also where there are no rows.
    pub fn nulls(&self) -> Vec<(ColumnId, Expression)> {
        let is_key = |id: &ColumnId| self.keys.iter().any(|(key, _)| key == id);
        let nulls = self.absent.iter().filter(|(_, id)| !is_key(id));
        nulls.map(|(key, id)| (*id, key.clone())).collect()
    }

    /// The collected keys and aggregates.
    pub fn finish(self) -> (Vec<(ColumnId, Expression)>, Vec<Aggregate>) {
        (self.keys, self.aggregates)
    }

    fn new_column(&mut self) -> ColumnId {
        *self.next_column += 1;
        ColumnId(*self.next_column)
    }

    /// Adds a key, and returns its column.
    pub(crate) fn group_by(&mut self, key: Expression) -> ColumnId {
        if let Some((id, _)) = self.keys.iter().find(|(_, other)| *other == key) {
            return *id;
        }
        let id = self.new_column();
        self.keys.push((id, key));
        id
    }

    /// Adds a key of other grouping sets, which is null in this one. To be called after all keys
    /// are added.
    pub fn leave_out(&mut self, key: Expression) {
        if self.keys.iter().any(|(_, other)| *other == key) {
            return;
        }
        let id = self.new_column();
        if !self.keys.is_empty() {
            let null = key.within("CASE WHEN false THEN ", " END");
            self.keys.push((id, null));
        }
        self.absent.push((key, id));
    }

    /// Whether the expression is a key of this grouping set.
    pub fn has(&self, key: &Expression) -> bool {
        self.keys.iter().any(|(_, other)| other == key)
    }

    /// The key that an expression is, if it is one.
    pub fn key(&self, node: &NodeEnum, scope: &Scope) -> Result<Option<ColumnId>, Refusal> {
        let is_column = matches!(node, NodeEnum::ColumnRef(_));
        let mut known = self
            .keys
            .iter()
            .map(|(_, key)| key)
            .chain(self.absent.iter().map(|(key, _)| key));
        let may_be = known.any(|key| key.as_column().is_some() == is_column);
        if !may_be
            || matches!(
                node,
                NodeEnum::AConst(_) | NodeEnum::List(_) | NodeEnum::String(_)
            )
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
        let node = Node {
            node: Some(node.clone()),
        };
        // An expression with an aggregate in it is not a key.
        let Ok(found) = expression(&node, scope) else {
            return Ok(None);
        };
        let same = self.keys.iter().find(|(_, key)| *key == found);
        let absent = || self.absent.iter().find(|(key, _)| *key == found);
        Ok(match same {
            Some((id, _)) => Some(*id),
            None => absent().map(|(_, id)| *id),
        })
    }

    /// Adds a column that depends functionally on the keys as a key.
    pub fn dependent(&mut self, column: ColumnId) -> ColumnId {
        self.group_by(Expression::column(column))
    }

    /// Whether a call is of an aggregate function.
    pub(crate) fn is_aggregate(&self, call: &pb::FuncCall) -> bool {
        call.over.is_none() && self.facts.is_aggregate(call)
    }

    /// The column of an aggregate.
    pub fn aggregate(&mut self, call: &pb::FuncCall, scope: &Scope) -> Result<ColumnId, Refusal> {
        let whole = Node {
            node: Some(NodeEnum::FuncCall(Box::new(call.clone()))),
        };
        let whole = expression(&whole, scope)?;
        if let Some(same) = self.aggregates.iter().find(|other| other.call == whole) {
            return Ok(same.column);
        }
        let (schema, name) = function_name(call);
        let is_plain = schema.is_none()
            && !call.agg_distinct
            && call.agg_order.is_empty()
            && !call.agg_within_group
            && !call.func_variadic;
        let argument = match &call.args[..] {
            [argument] => Some(expression(argument, scope)?),
            _ => None,
        };
        let filter = call.agg_filter.as_deref();
        let of_none = match (&schema, &name[..]) {
            (Some(_), _) => None,
            (None, "count" | "regr_count") => Some("0"),
            // These are computed for a hypothetical row.
            (None, "rank" | "dense_rank" | "percent_rank" | "cume_dist") => None,
            (None, _) => Some("NULL"),
        };
        let aggregate = Aggregate {
            column: self.new_column(),
            call: whole,
            function: is_plain.then_some(name),
            argument,
            filter: filter.map(|filter| expression(filter, scope)).transpose()?,
            of_none,
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
    let names = names_of(&pb::ColumnRef {
        fields: call.funcname.clone(),
        location: -1,
    });
    match &names[..] {
        [schema, name] if schema != "pg_catalog" => (Some(schema.clone()), name.clone()),
        _ => (None, names.last().cloned().unwrap_or_default()),
    }
}

/// Columns of the aggregates whose result over no rows is 0.
pub fn counts(aggregates: &[Aggregate]) -> Vec<ColumnId> {
    let counts = aggregates.iter().filter(|one| one.of_none == Some("0"));
    counts.map(|one| one.column).collect()
}

/// Refuses aggregates whose result over no rows is unknown: the group of an outer row may not
/// exist.
pub(crate) fn check_empty(aggregates: &[Aggregate]) -> Result<(), Refusal> {
    if aggregates.iter().all(|one| one.of_none.is_some()) {
        Ok(())
    } else {
        let what = "this aggregate in a correlated subquery";
        Err(Refusal::new(what, -1, "write it as a join"))
    }
}

impl Facts {
    /// Whether a call is one of an aggregate, or of the window function of that name.
    pub(super) fn is_aggregate(&self, call: &pb::FuncCall) -> bool {
        self.aggregates.contains(&function_name(call))
    }

    /// Whether a call is of a set-returning function with one column.
    pub(super) fn is_set(&self, call: &pb::FuncCall) -> bool {
        self.sets.contains(&function_name(call))
    }

    /// Whether a call is of a set-returning function with several columns.
    pub(super) fn gives_rows(&self, call: &pb::FuncCall) -> bool {
        self.row_sets.contains(&function_name(call))
    }

    /// Whether an expression has an aggregate.
    pub(super) fn has_aggregate(&self, node: &Node) -> bool {
        has(
            node,
            &|one| matches!(one, NodeEnum::FuncCall(call) if call.over.is_none() && self.is_aggregate(call)),
        )
    }
}
