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
use super::children::{children, contains_node};
use super::expressions::{parse_expression, resolve_expression};
use super::from::string_values;
use super::scope::Scope;
use crate::core::expression::{ColumnId, Expression};
use crate::core::functions::is_clock_function;
use crate::core::refusal::Refusal;
use crate::core::tree::{Node, TemporalPredicate};

/// Comparisons of ordered values: it is known for which values the result may have changed.
const COMPARISONS: [&str; 6] = ["<", "<=", ">", ">=", "=", "<>"];

/// Operators on the clock's side. Their result cannot be null at one time and not at another.
const CLOCK_SIDE_OPERATORS: [&str; 4] = ["+", "-", "*", "/"];

const CLOCK_SIDE_FUNCTIONS: [&str; 11] = [
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
const CLOCK_SIDE_TYPES: [&str; 12] = [
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
    pub(super) fn add_temporal_filter(
        &mut self,
        node: Node,
        conditions: &[&Parsed],
        scope: &Scope,
    ) -> Result<Node, Refusal> {
        let (input, clock, mut filter_conditions, mut predicates) = match node {
            Node::TemporalFilter { input, clock, condition, predicates: moments } => {
                (input, clock, vec![condition], moments)
            }
            node => (Box::new(node), self.new_column(), Vec::new(), Vec::new()),
        };
        for condition in conditions {
            let mut condition = (*condition).clone();
            let mut comparisons = Vec::new();
            extract_clock_comparisons(&mut condition, clock, &mut comparisons)?;
            for (value, clock_side) in comparisons {
                predicates.push(TemporalPredicate {
                    value: resolve_expression(&value, scope)?,
                    clock: resolve_expression(&clock_side, scope)?,
                });
            }
            filter_conditions.push(resolve_expression(&condition, scope)?);
        }
        Ok(Node::TemporalFilter {
            input,
            clock,
            condition: Expression::conjunction(&filter_conditions),
            predicates,
        })
    }
}

/// Whether an expression uses the clock.
pub fn has_clock(node: &Parsed) -> bool {
    contains_node(node, &|one| clock_type(one).is_some())
}

/// The refusal of the clock where it is not supported; none for other nodes.
pub(crate) fn clock_refusal(node: &NodeEnum) -> Option<Refusal> {
    clock_type(node)?;
    let (construct, location) = match node {
        NodeEnum::FuncCall(call) => {
            (format!("`{}()`", catalog_function_name(call)?), call.location)
        }
        NodeEnum::SqlvalueFunction(function) => {
            (clock_keyword(function)?.0.to_owned(), function.location)
        }
        _ => return None,
    };
    let advice = "use it only in WHERE, compared with columns on the other side, as in `at > now() - interval '1 hour'`; for anything else use mode full";
    Some(Refusal::new(construct, location, advice))
}

/// The result type of a call of the clock; none for other nodes.
fn clock_type(node: &NodeEnum) -> Option<String> {
    match node {
        NodeEnum::FuncCall(call) => {
            let name = catalog_function_name(call)?;
            (call.args.is_empty() && is_clock_function(&name)).then(|| "timestamptz".to_owned())
        }
        NodeEnum::SqlvalueFunction(function) => {
            let (_, name) = clock_keyword(function)?;
            Some(match function.typmod {
                ..0 => name.to_owned(),
                digits => format!("{name}({digits})"),
            })
        }
        _ => None,
    }
}

/// Spelling and type of an SQL keyword that reads the clock; none for others.
fn clock_keyword(function: &SqlValueFunction) -> Option<(&'static str, &'static str)> {
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
fn catalog_function_name(call: &FuncCall) -> Option<String> {
    strip_catalog_schema(string_values(&call.funcname))
}

fn strip_catalog_schema(mut names: Vec<String>) -> Option<String> {
    let name = names.pop()?;
    names.iter().all(|schema| schema == "pg_catalog").then_some(name)
}

/// Collects both sides of each comparison with the clock in a condition. In these and in the
/// condition, a column replaces the clock.
fn extract_clock_comparisons(
    node: &mut Parsed,
    clock: ColumnId,
    comparisons: &mut Vec<(Parsed, Parsed)>,
) -> Result<(), Refusal> {
    if !has_clock(node) {
        return Ok(());
    }
    let Some(inner) = &mut node.node else {
        return Ok(());
    };
    if let Some(refusal) = clock_refusal(inner) {
        return Err(refusal);
    }
    if let NodeEnum::AExpr(expr) = &mut *inner
        && expr.kind == AExprKind::AexprOp as i32
        && matches!(&string_values(&expr.name)[..], [name] if COMPARISONS.contains(&name.as_str()))
        && let (Some(left), Some(right)) = (expr.lexpr.as_deref_mut(), expr.rexpr.as_deref_mut())
    {
        let sides = match (has_clock(left), has_clock(right)) {
            (true, false) => Some((right, left)),
            (false, true) => Some((left, right)),
            _ => None,
        };
        if let Some((value, clock_side)) = sides
            && let Some(replaced) = with_clock_column(clock_side, clock)?
        {
            *clock_side = replaced;
            comparisons.push((value.clone(), clock_side.clone()));
            return Ok(());
        }
    }
    for child in children(inner)? {
        extract_clock_comparisons(child, clock, comparisons)?;
    }
    Ok(())
}

/// An expression over the clock, with a column instead of the clock; none if it contains anything
/// that is not allowed there.
fn with_clock_column(node: &Parsed, clock: ColumnId) -> Result<Option<Parsed>, Refusal> {
    let mut node = node.clone();
    Ok(replace_clock(&mut node, clock)?.then_some(node))
}

fn replace_clock(node: &mut Parsed, clock: ColumnId) -> Result<bool, Refusal> {
    let uses_clock = has_clock(node);
    let Some(inner) = &mut node.node else {
        return Ok(true);
    };
    if let Some(type_name) = clock_type(inner) {
        let column = Expression::column(clock);
        let clock_value = match type_name.as_str() {
            "timestamptz" => column,
            other => column.cast(other),
        };
        *node = parse_expression(&clock_value.to_internal_text())?;
        return Ok(true);
    }
    let is_allowed = match &*inner {
        NodeEnum::AConst(_) => true,
        NodeEnum::AExpr(expr) => {
            expr.kind == AExprKind::AexprOp as i32
                && matches!(&string_values(&expr.name)[..], [name] if CLOCK_SIDE_OPERATORS.contains(&name.as_str()))
        }
        NodeEnum::FuncCall(call) => catalog_function_name(call)
            .is_some_and(|name| CLOCK_SIDE_FUNCTIONS.contains(&name.as_str())),
        NodeEnum::TypeCast(cast) => !uses_clock || is_ordered(cast),
        _ => false,
    };
    if !is_allowed {
        return Ok(false);
    }
    for child in children(inner)? {
        if !replace_clock(child, clock)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a cast is to one of [`CLOCK_SIDE_TYPES`].
fn is_ordered(cast: &TypeCast) -> bool {
    let Some(to) = &cast.type_name else {
        return false;
    };
    let name = strip_catalog_schema(string_values(&to.names));
    to.array_bounds.is_empty() && name.is_some_and(|name| CLOCK_SIDE_TYPES.contains(&name.as_str()))
}
