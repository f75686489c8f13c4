//! A tree as JSON, as Prometheus's API shows it.

use serde_json::{Value, json};

use super::duration::Duration;
use super::print::match_op_text;
use super::{
    AtModifier, DurationExpr, ExprKind, ExprNode, MatchCardinality, RangeModifier, Selector,
    TimeModifiers,
};
use crate::number;

/// The tree of an expression.
pub(crate) fn to_json(node: &ExprNode) -> Value {
    match &node.kind {
        ExprKind::Number(value, _) => {
            json!({"type": "numberLiteral", "val": number::plain(*value)})
        }
        ExprKind::Text(bytes) => {
            json!({"type": "stringLiteral", "val": String::from_utf8_lossy(bytes)})
        }
        ExprKind::Paren(inner) => json!({"type": "parenExpr", "expr": to_json(inner)}),
        ExprKind::Sign(inner, is_minus) => {
            let sign = if *is_minus { "-" } else { "+" };
            json!({"type": "unaryExpr", "op": sign, "expr": to_json(inner)})
        }
        ExprKind::Binary(binary) => json!({
            "type": "binaryExpr",
            "op": binary.operator.name(),
            "lhs": to_json(&binary.left),
            "rhs": to_json(&binary.right),
            "matching": matching_json(binary),
            "bool": binary.returns_bool,
        }),
        ExprKind::Aggregate(aggregate) => json!({
            "type": "aggregation",
            "op": aggregate.aggregator.name(),
            "expr": to_json(&aggregate.inner),
            "param": aggregate.parameter.as_ref().map(to_json),
            "grouping": aggregate.grouping.written,
            "without": !aggregate.grouping.is_inclusive,
        }),
        ExprKind::Call(call) => {
            let kinds = call.function.arguments.iter().map(|kind| kind.name());
            json!({
                "type": "call",
                "func": {
                    "name": call.name(),
                    "argTypes": kinds.collect::<Vec<_>>(),
                    "variadic": call.function.variadic,
                    "returnType": call.function.return_type.name(),
                },
                "args": call.arguments.iter().map(to_json).collect::<Vec<_>>(),
            })
        }
        ExprKind::Selector(selector) => selector_json("vectorSelector", selector),
        ExprKind::Range(selector, range) => {
            let mut object = selector_json("matrixSelector", selector);
            object["range"] = json!(range.ms);
            object["rangeExpr"] = duration_expr_json(range);
            object
        }
        ExprKind::Subquery(subquery) => {
            let mut shown = json!({
                "type": "subquery",
                "expr": to_json(&subquery.inner),
                "range": subquery.range.ms,
                "rangeExpr": duration_expr_json(&subquery.range),
                "step": subquery.step.as_ref().map_or(0, |step| step.ms),
                "stepExpr": subquery.step.as_ref().map_or(Value::Null, duration_expr_json),
            });
            add_time_modifiers(&subquery.time_modifiers, &mut shown);
            shown
        }
    }
}

fn matching_json(binary: &super::Binary) -> Value {
    use super::ValueType::Vector;
    if binary.left.value_type() != Vector || binary.right.value_type() != Vector {
        return Value::Null;
    }
    let cardinality = match binary.cardinality {
        MatchCardinality::OneToOne if binary.operator.is_set() => "many-to-many",
        MatchCardinality::OneToOne => "one-to-one",
        MatchCardinality::ManyToOne => "many-to-one",
        MatchCardinality::OneToMany => "one-to-many",
    };
    json!({
        "card": cardinality,
        "labels": binary.matching.written,
        "on": binary.matching.is_inclusive,
        "include": binary.include,
        "fillValues": {"lhs": binary.fill.0, "rhs": binary.fill.1},
    })
}

fn selector_json(kind: &str, selector: &Selector) -> Value {
    let matchers = selector.matchers.iter().map(|one| {
        let matcher = one.matcher();
        json!({"name": matcher.name, "value": matcher.value, "type": match_op_text(matcher.op)})
    });
    let mut object = json!({
        "type": kind,
        "name": selector.name.as_deref().unwrap_or(""),
        "matchers": matchers.collect::<Vec<_>>(),
        "anchored": selector.range_modifier == RangeModifier::Anchored,
        "smoothed": selector.range_modifier == RangeModifier::Smoothed,
    });
    add_time_modifiers(&selector.time_modifiers, &mut object);
    object
}

/// The parts of a length of time; null where it is none to be computed.
fn duration_expr_json(length: &DurationExpr) -> Value {
    length.expression.as_deref().map_or(Value::Null, duration_json)
}

fn duration_json(part: &Duration) -> Value {
    let computed = |operator: &str, left: Value, right: Value| {
        json!({
            "type": "durationExpr", "op": operator, "lhs": left, "rhs": right, "wrapped": false,
        })
    };
    match part {
        Duration::Literal { seconds, has_unit } => {
            json!({"type": "numberLiteral", "val": number::plain(*seconds), "duration": has_unit})
        }
        Duration::Step => computed("step", Value::Null, Value::Null),
        Duration::Range => computed("range", Value::Null, Value::Null),
        Duration::Paren(inner) => {
            let mut object = match &**inner {
                literal @ Duration::Literal { .. } => {
                    computed("+", Value::Null, duration_json(literal))
                }
                inner => duration_json(inner),
            };
            object["wrapped"] = json!(true);
            object
        }
        Duration::Negation(inner) => computed("-", Value::Null, duration_json(inner)),
        Duration::Min(left, right) => computed("min_of", duration_json(left), duration_json(right)),
        Duration::Max(left, right) => computed("max_of", duration_json(left), duration_json(right)),
        Duration::Binary(operator, left, right) => {
            computed(operator.name(), duration_json(left), duration_json(right))
        }
    }
}

fn add_time_modifiers(reach: &TimeModifiers, shown: &mut Value) {
    shown["offset"] = json!(reach.offset.ms);
    shown["offsetExpr"] = duration_expr_json(&reach.offset);
    shown["timestamp"] = match reach.at {
        Some(AtModifier::Time(time)) => json!(time),
        _ => Value::Null,
    };
    shown["startOrEnd"] = match reach.at {
        Some(AtModifier::Start) => json!("start"),
        Some(AtModifier::End) => json!("end"),
        _ => Value::Null,
    };
}
