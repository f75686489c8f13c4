//! Whether expressions fit together: the types of arguments and operands, and what selectors must have.

use super::parse::{Parsed, Refusal};
use super::print::quoted;
use super::{
    Aggregate, Aggregator, Binary, Call, Cardinality, Kind, Node, Part, Position, Selector,
};
use crate::model::METRIC_NAME;

impl Kind {
    /// As messages call it.
    pub(super) fn documented(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Text => "string",
            Self::Vector => "instant vector",
            Self::Matrix => "range vector",
        }
    }

    /// As the API calls it.
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
pub(super) fn check(node: &Node) -> Parsed<()> {
    match &node.part {
        Part::Number(..) | Part::Text(_) => Ok(()),
        Part::Paren(inner) => check(inner),
        Part::Sign(inner, _) => {
            check(inner)?;
            match inner.kind() {
                Kind::Scalar | Kind::Vector => Ok(()),
                other => refuse(
                    node.position,
                    format!(
                        "unary expression only allowed on expressions of type scalar or instant vector, got {:?}",
                        other.documented()
                    ),
                ),
            }
        }
        Part::Binary(binary) => check_binary(node, binary),
        Part::Aggregate(aggregate) => check_aggregate(aggregate),
        Part::Call(call) => check_call(node, call),
        Part::Selector(selector) => check_selector(node.position, selector, false),
        Part::Range(selector, _) => check_selector(node.position, selector, false),
        Part::Subquery(subquery) => {
            check(&subquery.inner)?;
            match subquery.inner.kind() {
                Kind::Vector => Ok(()),
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

fn expect_kind(node: &Node, wanted: Kind, context: &str) -> Parsed<()> {
    check(node)?;
    let found = node.kind();
    if found == wanted {
        return Ok(());
    }
    let (wanted, found) = (wanted.documented(), found.documented());
    refuse(
        node.position,
        format!("expected type {wanted} in {context}, got {found}"),
    )
}

fn check_aggregate(aggregate: &Aggregate) -> Parsed<()> {
    expect_kind(&aggregate.inner, Kind::Vector, "aggregation expression")?;
    match &aggregate.parameter {
        None => Ok(()),
        Some(parameter) => {
            let wanted = match aggregate.aggregator {
                Aggregator::CountValues => Kind::Text,
                _ => Kind::Scalar,
            };
            expect_kind(parameter, wanted, "aggregation parameter")
        }
    }
}

fn check_binary(node: &Node, binary: &Binary) -> Parsed<()> {
    check(&binary.left)?;
    check(&binary.right)?;
    let (left, right) = (binary.left.kind(), binary.right.kind());
    let operator = binary.operator;
    let between = binary.operator_position;
    if binary.returns_bool && !operator.is_comparison() {
        return refuse(
            between,
            "bool modifier can only be used on comparison operators",
        );
    }
    let are_scalars = left == Kind::Scalar && right == Kind::Scalar;
    if operator.is_comparison() && !binary.returns_bool && are_scalars {
        return refuse(
            between,
            "comparisons between scalars must use BOOL modifier",
        );
    }
    if operator.is_trim() && are_scalars {
        let name = operator.name();
        let message = format!("operator {name:?} not allowed in binary scalar expression");
        return refuse(between, message);
    }
    let mut included = binary.include.iter();
    if binary.matching.only
        && let Some(twice) = included.find(|label| binary.matching.lists(label))
    {
        return refuse(
            between,
            format!("label {twice:?} must not occur in ON and GROUP clause at once"),
        );
    }
    for side in [&binary.left, &binary.right] {
        if !matches!(side.kind(), Kind::Scalar | Kind::Vector) {
            let message = "binary expression must contain only scalar and instant vector types";
            return refuse(side.position, message);
        }
    }
    check_matching(node.position, binary, (left, right))
}

fn check_matching(position: Position, binary: &Binary, kinds: (Kind, Kind)) -> Parsed<()> {
    let name = binary.operator.name();
    let are_vectors = kinds == (Kind::Vector, Kind::Vector);
    let fills = binary.fill.0.is_some() || binary.fill.1.is_some();
    if !are_vectors && !binary.matching.labels.is_empty() {
        return refuse(
            position,
            "vector matching only allowed between instant vectors",
        );
    }
    if !are_vectors && fills {
        return refuse(
            position,
            "filling in missing series only allowed between instant vectors",
        );
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
    if binary.cardinality != Cardinality::OneToOne {
        return refuse(
            position,
            format!("no grouping allowed for {name:?} operation"),
        );
    }
    if fills {
        return refuse(
            position,
            "filling in missing series not allowed for set operators",
        );
    }
    Ok(())
}

fn check_call(node: &Node, call: &Call) -> Parsed<()> {
    let (name, given) = (call.name(), call.arguments.len());
    let (least, most) = call.function.arity();
    let wrong_count = |bound: &str, count: usize| {
        let message =
            format!("expected {bound}{count} argument(s) in call to {name:?}, got {given}");
        refuse(node.position, message)
    };
    if least == most && given != least {
        return wrong_count("", least);
    }
    if given < least {
        return wrong_count("at least ", least);
    }
    if given > most {
        return wrong_count("at most ", most);
    }
    let kinds = call.function.arguments;
    for (at, argument) in call.arguments.iter().enumerate() {
        if name == "info" && at == 1 {
            check_info_selector(argument)?;
            continue;
        }
        let wanted = kinds[at.min(kinds.len() - 1)];
        expect_kind(argument, wanted, &format!("call to function {name:?}"))?;
    }
    Ok(())
}

/// The second argument of `info` says which labels are wanted: it may match everything.
fn check_info_selector(argument: &Node) -> Parsed<()> {
    match &argument.part {
        Part::Selector(selector) if selector.name.is_none() => {
            check_selector(argument.position, selector, true)
        }
        Part::Selector(_) => refuse(
            argument.position,
            "expected label selectors only, got vector selector instead",
        ),
        _ => refuse(argument.position, "expected label selectors only"),
    }
}

fn check_selector(position: Position, selector: &Selector, may_match_all: bool) -> Parsed<()> {
    if let Some(name) = &selector.name {
        let (_, in_braces) = selector
            .matchers
            .split_last()
            .expect("the name is among the matchers");
        let mut twice = in_braces
            .iter()
            .filter(|matcher| *matcher.matcher().name == *METRIC_NAME);
        return match twice.next() {
            None => Ok(()),
            Some(other) => {
                let (name, other) = (quoted(name), quoted(&other.matcher().value));
                refuse(
                    position,
                    format!("metric name must not be set twice: {name} or {other}"),
                )
            }
        };
    }
    let selects = selector.matchers.iter().any(|matcher| !matcher.matches(""));
    match selects || may_match_all {
        true => Ok(()),
        false => refuse(
            position,
            "vector selector must contain at least one non-empty matcher",
        ),
    }
}
