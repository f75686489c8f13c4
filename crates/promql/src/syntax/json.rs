//! A tree as JSON, as Prometheus's API shows it.

use serde_json::{Value, json};

use super::duration::Duration;
use super::print::operator;
use super::{
    AtModifier, DurationExpr, ExprKind, ExprNode, MatchCardinality, RangeModifier, Selector,
    TimeModifiers,
};
use crate::number;

/// The tree of an expression.
pub(crate) fn tree(node: &ExprNode) -> Value {
    match &node.part {
        ExprKind::Number(value, _) => {
            json!({"type": "numberLiteral", "val": number::plain(*value)})
        }
        ExprKind::Text(bytes) => {
            json!({"type": "stringLiteral", "val": String::from_utf8_lossy(bytes)})
        }
        ExprKind::Paren(inner) => json!({"type": "parenExpr", "expr": tree(inner)}),
        ExprKind::Sign(inner, is_minus) => {
            let sign = if *is_minus { "-" } else { "+" };
            json!({"type": "unaryExpr", "op": sign, "expr": tree(inner)})
        }
        ExprKind::Binary(binary) => json!({
            "type": "binaryExpr",
            "op": binary.operator.name(),
            "lhs": tree(&binary.left),
            "rhs": tree(&binary.right),
            "matching": matching(binary),
            "bool": binary.returns_bool,
        }),
        ExprKind::Aggregate(aggregate) => json!({
            "type": "aggregation",
            "op": aggregate.aggregator.name(),
            "expr": tree(&aggregate.inner),
            "param": aggregate.parameter.as_ref().map(tree),
            "grouping": aggregate.grouping.written,
            "without": !aggregate.grouping.only,
        }),
        ExprKind::Call(call) => {
            let kinds = call.function.arguments.iter().map(|kind| kind.name());
            json!({
                "type": "call",
                "func": {
                    "name": call.name(),
                    "argTypes": kinds.collect::<Vec<_>>(),
                    "variadic": call.function.variadic,
                    "returnType": call.function.yields.name(),
                },
                "args": call.arguments.iter().map(tree).collect::<Vec<_>>(),
            })
        }
        ExprKind::Selector(selector) => selected("vectorSelector", selector),
        ExprKind::Range(selector, range) => {
            let mut shown = selected("matrixSelector", selector);
            shown["range"] = json!(range.ms);
            shown["rangeExpr"] = sum(range);
            shown
        }
        ExprKind::Subquery(subquery) => {
            let mut shown = json!({
                "type": "subquery",
                "expr": tree(&subquery.inner),
                "range": subquery.range.ms,
                "rangeExpr": sum(&subquery.range),
                "step": subquery.step.as_ref().map_or(0, |step| step.ms),
                "stepExpr": subquery.step.as_ref().map_or(Value::Null, sum),
            });
            reach(&subquery.reach, &mut shown);
            shown
        }
    }
}

fn matching(binary: &super::Binary) -> Value {
    use super::ValueType::Vector;
    if binary.left.kind() != Vector || binary.right.kind() != Vector {
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
        "on": binary.matching.only,
        "include": binary.include,
        "fillValues": {"lhs": binary.fill.0, "rhs": binary.fill.1},
    })
}

fn selected(kind: &str, selector: &Selector) -> Value {
    let matchers = selector.matchers.iter().map(|one| {
        let matcher = one.matcher();
        json!({"name": matcher.name, "value": matcher.value, "type": operator(matcher.op)})
    });
    let mut shown = json!({
        "type": kind,
        "name": selector.name.as_deref().unwrap_or(""),
        "matchers": matchers.collect::<Vec<_>>(),
        "anchored": selector.extension == RangeModifier::Anchored,
        "smoothed": selector.extension == RangeModifier::Smoothed,
    });
    reach(&selector.reach, &mut shown);
    shown
}

/// The parts of a length of time; null where it is none to be computed.
fn sum(length: &DurationExpr) -> Value {
    length.sum.as_deref().map_or(Value::Null, duration)
}

fn duration(part: &Duration) -> Value {
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
            let mut shown = match &**inner {
                literal @ Duration::Literal { .. } => computed("+", Value::Null, duration(literal)),
                inner => duration(inner),
            };
            shown["wrapped"] = json!(true);
            shown
        }
        Duration::Negation(inner) => computed("-", Value::Null, duration(inner)),
        Duration::Least(left, right) => computed("min_of", duration(left), duration(right)),
        Duration::Most(left, right) => computed("max_of", duration(left), duration(right)),
        Duration::Binary(operator, left, right) => {
            computed(operator.name(), duration(left), duration(right))
        }
    }
}

fn reach(reach: &TimeModifiers, shown: &mut Value) {
    shown["offset"] = json!(reach.offset.ms);
    shown["offsetExpr"] = sum(&reach.offset);
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
