//! Whether expressions fit together: the types of arguments and operands, and what selectors must
//! have.

use egret_metrics_model::METRIC_NAME;

use super::parse::{Parsed, Refusal};
use super::print::quote;
use super::{
    Aggregate, Aggregator, Binary, Call, ExprKind, ExprNode, MatchCardinality, Position, Selector,
    ValueType,
};

impl ValueType {
    /// Name of the type in error messages.
    pub(super) fn documented_name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Text => "string",
            Self::Vector => "instant vector",
            Self::Matrix => "range vector",
        }
    }

    /// Name of the type in the API.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Text => "string",
            Self::Vector => "vector",
            Self::Matrix => "matrix",
        }
    }
}

/// Checks an expression, what is within it first.
pub(super) fn check(node: &ExprNode) -> Parsed<()> {
    match &node.kind {
        ExprKind::Number(..) | ExprKind::Text(_) => Ok(()),
        ExprKind::Paren(inner) => check(inner),
        ExprKind::Sign(inner, _) => {
            check(inner)?;
            match inner.value_type() {
                ValueType::Scalar | ValueType::Vector => Ok(()),
                other => refuse(
                    node.position,
                    format!(
                        "unary expression only allowed on expressions of type scalar or instant vector, got {:?}",
                        other.documented_name()
                    ),
                ),
            }
        }
        ExprKind::Binary(binary) => check_binary(node, binary),
        ExprKind::Aggregate(aggregate) => check_aggregate(aggregate),
        ExprKind::Call(call) => check_call(node, call),
        ExprKind::Selector(selector) => check_selector(node.position, selector, false),
        ExprKind::Range(selector, _) => check_selector(node.position, selector, false),
        ExprKind::Subquery(subquery) => {
            check(&subquery.inner)?;
            match subquery.inner.value_type() {
                ValueType::Vector => Ok(()),
                other => refuse(
                    node.position,
                    format!(
                        "subquery is only allowed on instant vector, got {} instead",
                        other.name()
                    ),
                ),
            }
        }
    }
}

fn refuse(position: Position, message: impl Into<String>) -> Parsed<()> {
    Err(Refusal::new(position, message))
}

fn expect_type(node: &ExprNode, wanted: ValueType, context: &str) -> Parsed<()> {
    check(node)?;
    let found = node.value_type();
    if found == wanted {
        return Ok(());
    }
    let (wanted, found) = (wanted.documented_name(), found.documented_name());
    refuse(node.position, format!("expected type {wanted} in {context}, got {found}"))
}

fn check_aggregate(aggregate: &Aggregate) -> Parsed<()> {
    expect_type(&aggregate.inner, ValueType::Vector, "aggregation expression")?;
    match &aggregate.parameter {
        None => Ok(()),
        Some(parameter) => {
            let expected = match aggregate.aggregator {
                Aggregator::CountValues => ValueType::Text,
                _ => ValueType::Scalar,
            };
            expect_type(parameter, expected, "aggregation parameter")
        }
    }
}

fn check_binary(node: &ExprNode, binary: &Binary) -> Parsed<()> {
    check(&binary.left)?;
    check(&binary.right)?;
    let (left, right) = (binary.left.value_type(), binary.right.value_type());
    let operator = binary.operator;
    let operator_position = binary.operator_position;
    if binary.returns_bool && !operator.is_comparison() {
        return refuse(operator_position, "bool modifier can only be used on comparison operators");
    }
    let are_scalars = left == ValueType::Scalar && right == ValueType::Scalar;
    if operator.is_comparison() && !binary.returns_bool && are_scalars {
        return refuse(operator_position, "comparisons between scalars must use BOOL modifier");
    }
    if operator.is_trim() && are_scalars {
        let name = operator.name();
        let message = format!("operator {name:?} not allowed in binary scalar expression");
        return refuse(operator_position, message);
    }
    let mut included = binary.include.iter();
    if binary.matching.is_inclusive
        && let Some(duplicate) = included.find(|label| binary.matching.contains(label))
    {
        return refuse(
            operator_position,
            format!("label {duplicate:?} must not occur in ON and GROUP clause at once"),
        );
    }
    for side in [&binary.left, &binary.right] {
        if !matches!(side.value_type(), ValueType::Scalar | ValueType::Vector) {
            let message = "binary expression must contain only scalar and instant vector types";
            return refuse(side.position, message);
        }
    }
    check_matching(node.position, binary, left, right)
}

fn check_matching(
    position: Position,
    binary: &Binary,
    left: ValueType,
    right: ValueType,
) -> Parsed<()> {
    let name = binary.operator.name();
    let are_vectors = left == ValueType::Vector && right == ValueType::Vector;
    let has_fill = binary.fill.0.is_some() || binary.fill.1.is_some();
    if !are_vectors && !binary.matching.labels.is_empty() {
        return refuse(position, "vector matching only allowed between instant vectors");
    }
    if !are_vectors && has_fill {
        return refuse(position, "filling in missing series only allowed between instant vectors");
    }
    if !binary.operator.is_set() {
        return Ok(());
    }
    if !are_vectors {
        return refuse(
            position,
            format!("set operator {name:?} not allowed in binary scalar expression"),
        );
    }
    if binary.cardinality != MatchCardinality::OneToOne {
        return refuse(position, format!("no grouping allowed for {name:?} operation"));
    }
    if has_fill {
        return refuse(position, "filling in missing series not allowed for set operators");
    }
    Ok(())
}

fn check_call(node: &ExprNode, call: &Call) -> Parsed<()> {
    let (name, given_count) = (call.name(), call.arguments.len());
    let (count_min, count_max) = call.function.arity();
    let wrong_count = |bound: &str, count: usize| {
        let message =
            format!("expected {bound}{count} argument(s) in call to {name:?}, got {given_count}");
        refuse(node.position, message)
    };
    if count_min == count_max && given_count != count_min {
        return wrong_count("", count_min);
    }
    if given_count < count_min {
        return wrong_count("at least ", count_min);
    }
    if given_count > count_max {
        return wrong_count("at most ", count_max);
    }
    let kinds = call.function.arguments;
    for (index, argument) in call.arguments.iter().enumerate() {
        if name == "info" && index == 1 {
            check_info_selector(argument)?;
            continue;
        }
        let wanted = kinds[index.min(kinds.len() - 1)];
        expect_type(argument, wanted, &format!("call to function {name:?}"))?;
    }
    Ok(())
}

/// The second argument of `info` says which labels are wanted: it may match everything.
fn check_info_selector(argument: &ExprNode) -> Parsed<()> {
    match &argument.kind {
        ExprKind::Selector(selector) if selector.name.is_none() => {
            check_selector(argument.position, selector, true)
        }
        ExprKind::Selector(_) => {
            refuse(argument.position, "expected label selectors only, got vector selector instead")
        }
        _ => refuse(argument.position, "expected label selectors only"),
    }
}

fn check_selector(position: Position, selector: &Selector, may_match_all: bool) -> Parsed<()> {
    if let Some(name) = &selector.name {
        let (_, in_braces) =
            selector.matchers.split_last().expect("the name is among the matchers");
        let mut duplicates =
            in_braces.iter().filter(|matcher| *matcher.matcher().name == *METRIC_NAME);
        return match duplicates.next() {
            None => Ok(()),
            Some(other) => {
                let (name, other) = (quote(name), quote(&other.matcher().value));
                refuse(position, format!("metric name must not be set twice: {name} or {other}"))
            }
        };
    }
    let selects = selector.matchers.iter().any(|matcher| !matcher.matches(""));
    if selects || may_match_all {
        Ok(())
    } else {
        refuse(position, "vector selector must contain at least one non-empty matcher")
    }
}
