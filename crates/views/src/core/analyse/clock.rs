//! Conditions on the clock in WHERE, which become true or false as time passes (temporal filters).
//!
//! The clock may occur on one side of a comparison within any condition. Then it is known for which
//! rows a span of time may have changed the result: those whose other side is between the former
//! and the current value of the clock's side.

use pg_query::NodeEnum;
use pg_query::protobuf::{
    AExprKind, FuncCall, Node as Parsed, SqlValueFunction, SqlValueFunctionOp as Op, TypeCast,
};

use super::Analysis;
use super::children::{children, has};
use super::expressions::{expression, parse_expression};
use super::from::strings;
use super::scope::Scope;
use crate::core::expression::{ColumnId, Expression};
use crate::core::functions::is_clock;
use crate::core::refusal::Refusal;
use crate::core::tree::{Node, TemporalPredicate};

/// Comparisons of ordered values: it is known for which values the result may have changed.
const COMPARISONS: [&str; 6] = ["<", "<=", ">", ">=", "=", "<>"];

/// Operators on the clock's side. Their result cannot be null at one time and not at another.
const OPERATORS: [&str; 4] = ["+", "-", "*", "/"];

const FUNCTIONS: [&str; 11] = [
    "ceil",
    "date",
    "date_bin",
    "date_part",
    "date_trunc",
    "extract",
    "floor",
    "make_interval",
    "round",
    "timezone",
    "trunc",
];

/// Types that the clock may be cast to: their order is compatible.
const TYPES: [&str; 12] = [
    "date",
    "float4",
    "float8",
    "int2",
    "int4",
    "int8",
    "interval",
    "numeric",
    "time",
    "timestamp",
    "timestamptz",
    "timetz",
];

impl Analysis<'_> {
    /// Filters rows by conditions that depend on the clock.
    ///
    /// # Errors
    /// [`Refusal`] if the clock occurs in them in any other way than the module describes.
    pub(super) fn recent(
        &mut self,
        node: Node,
        conditions: &[&Parsed],
        scope: &Scope,
    ) -> Result<Node, Refusal> {
        let (input, clock, mut all, mut moments) = match node {
            Node::Recent {
                input,
                clock,
                condition,
                moments,
            } => (input, clock, vec![condition], moments),
            node => (Box::new(node), self.new_column(), Vec::new(), Vec::new()),
        };
        for condition in conditions {
            let mut condition = (*condition).clone();
            let mut found = Vec::new();
            take_moments(&mut condition, clock, &mut found)?;
            for (value, side) in found {
                moments.push(TemporalPredicate {
                    value: expression(&value, scope)?,
                    clock: expression(&side, scope)?,
                });
            }
            all.push(expression(&condition, scope)?);
        }
        Ok(Node::Recent {
            input,
            clock,
            condition: Expression::all(&all),
            moments,
        })
    }
}

/// Whether an expression uses the clock.
pub fn has_clock(node: &Parsed) -> bool {
    has(node, &|one| type_of(one).is_some())
}

/// The refusal of the clock where it is not supported; none for other nodes.
pub fn refused(node: &NodeEnum) -> Option<Refusal> {
    type_of(node)?;
    let (construct, location) = match node {
        NodeEnum::FuncCall(call) => (format!("`{}()`", function(call)?), call.location),
        NodeEnum::SqlvalueFunction(function) => (word(function)?.0.to_owned(), function.location),
        _ => return None,
    };
    let advice = "use it only in WHERE, compared with columns on the other side, as in `at > now() - interval '1 hour'`; for anything else use mode full";
    Some(Refusal::new(construct, location, advice))
}

/// The result type of a call of the clock; none for other nodes.
fn type_of(node: &NodeEnum) -> Option<String> {
    match node {
        NodeEnum::FuncCall(call) => {
            let name = function(call)?;
            (call.args.is_empty() && is_clock(&name)).then(|| "timestamptz".to_owned())
        }
        NodeEnum::SqlvalueFunction(function) => {
            let (_, name) = word(function)?;
            Some(match function.typmod {
                ..0 => name.to_owned(),
                digits => format!("{name}({digits})"),
            })
        }
        _ => None,
    }
}

/// Spelling and type of an SQL keyword that reads the clock; none for others.
fn word(function: &SqlValueFunction) -> Option<(&'static str, &'static str)> {
    match Op::try_from(function.op).ok()? {
        Op::SvfopCurrentDate => Some(("CURRENT_DATE", "date")),
        Op::SvfopCurrentTime | Op::SvfopCurrentTimeN => Some(("CURRENT_TIME", "timetz")),
        Op::SvfopCurrentTimestamp | Op::SvfopCurrentTimestampN => {
            Some(("CURRENT_TIMESTAMP", "timestamptz"))
        }
        Op::SvfopLocaltime | Op::SvfopLocaltimeN => Some(("LOCALTIME", "time")),
        Op::SvfopLocaltimestamp | Op::SvfopLocaltimestampN => Some(("LOCALTIMESTAMP", "timestamp")),
        _ => None,
    }
}

/// The name of a function in `pg_catalog`.
fn function(call: &FuncCall) -> Option<String> {
    own(strings(&call.funcname))
}

fn own(mut names: Vec<String>) -> Option<String> {
    let name = names.pop()?;
    names
        .iter()
        .all(|schema| schema == "pg_catalog")
        .then_some(name)
}

/// Collects both sides of each comparison with the clock in a condition. In these and in the
/// condition, a column replaces the clock.
fn take_moments(
    node: &mut Parsed,
    clock: ColumnId,
    all: &mut Vec<(Parsed, Parsed)>,
) -> Result<(), Refusal> {
    if !has_clock(node) {
        return Ok(());
    }
    let Some(inner) = &mut node.node else {
        return Ok(());
    };
    if let Some(refusal) = refused(inner) {
        return Err(refusal);
    }
    if let NodeEnum::AExpr(expr) = &mut *inner
        && expr.kind == AExprKind::AexprOp as i32
        && matches!(&strings(&expr.name)[..], [name] if COMPARISONS.contains(&name.as_str()))
        && let (Some(left), Some(right)) = (expr.lexpr.as_deref_mut(), expr.rexpr.as_deref_mut())
    {
        let sides = match (has_clock(left), has_clock(right)) {
            (true, false) => Some((right, left)),
            (false, true) => Some((left, right)),
            _ => None,
        };
        if let Some((value, side)) = sides
            && let Some(moment) = moment(side, clock)?
        {
            *side = moment;
            all.push((value.clone(), side.clone()));
            return Ok(());
        }
    }
    for child in children(inner)? {
        take_moments(child, clock, all)?;
    }
    Ok(())
}

/// An expression over the clock, with a column instead of the clock; none if it contains anything
/// that is not allowed there.
fn moment(node: &Parsed, clock: ColumnId) -> Result<Option<Parsed>, Refusal> {
    let mut node = node.clone();
    Ok(put_moment(&mut node, clock)?.then_some(node))
}

fn put_moment(node: &mut Parsed, clock: ColumnId) -> Result<bool, Refusal> {
    let is_of_clock = has_clock(node);
    let Some(inner) = &mut node.node else {
        return Ok(true);
    };
    if let Some(type_name) = type_of(inner) {
        let column = Expression::column(clock);
        let moment = match type_name.as_str() {
            "timestamptz" => column,
            other => column.cast(other),
        };
        *node = parse_expression(&moment.marked())?;
        return Ok(true);
    }
    let may_be = match &*inner {
        NodeEnum::AConst(_) => true,
        NodeEnum::AExpr(expr) => {
            expr.kind == AExprKind::AexprOp as i32
                && matches!(&strings(&expr.name)[..], [name] if OPERATORS.contains(&name.as_str()))
        }
        NodeEnum::FuncCall(call) => {
            function(call).is_some_and(|name| FUNCTIONS.contains(&name.as_str()))
        }
        NodeEnum::TypeCast(cast) => !is_of_clock || is_ordered(cast),
        _ => false,
    };
    if !may_be {
        return Ok(false);
    }
    for child in children(inner)? {
        if !put_moment(child, clock)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a cast is to one of [`TYPES`].
fn is_ordered(cast: &TypeCast) -> bool {
    let Some(to) = &cast.type_name else {
        return false;
    };
    let name = own(strings(&to.names));
    to.array_bounds.is_empty() && name.is_some_and(|name| TYPES.contains(&name.as_str()))
}
