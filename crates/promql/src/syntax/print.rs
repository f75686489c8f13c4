//! A tree as text: in one line, and as people lay it out, as Prometheus does both.

use std::fmt::Write;

use egret_metrics_model::{LabelMatcher, METRIC_NAME, MatchOp};

use super::{
    Aggregate, AtModifier, Binary, Call, ExprKind, ExprNode, Grouping, MatchCardinality,
    RangeModifier, Selector, Subquery, TimeModifiers,
};
use crate::number as numbers;

/// What is longer is divided over several lines.
const COLUMNS_MAX: usize = 100;
const INDENT: &str = "  ";

/// A string as Go quotes it.
pub(crate) fn quoted(text: &str) -> String {
    quoted_bytes(text.as_bytes())
}

/// Bytes as Go quotes them: those that are no text by their numbers.
fn quoted_bytes(bytes: &[u8]) -> String {
    let mut quoted = String::with_capacity(bytes.len() + 2);
    quoted.push('"');
    for chunk in bytes.utf8_chunks() {
        append_escaped(chunk.valid(), &mut quoted);
        for byte in chunk.invalid() {
            append(&mut quoted, format_args!("\\x{byte:02x}"));
        }
    }
    quoted.push('"');
    quoted
}

fn append_escaped(text: &str, quoted: &mut String) {
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\x07' => quoted.push_str("\\a"),
            '\x08' => quoted.push_str("\\b"),
            '\x0b' => quoted.push_str("\\v"),
            '\x0c' => quoted.push_str("\\f"),
            c if c.is_ascii_control() => append(quoted, format_args!("\\x{:02x}", c as u32)),
            c if c.is_control() => append(quoted, format_args!("\\u{:04x}", c as u32)),
            c => quoted.push(c),
        }
    }
}

fn append(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    text.write_fmt(arguments)
        .expect("a string takes what is written to it");
}

/// A literal of seconds or of no unit.
pub(super) fn number(value: f64, is_duration: bool) -> String {
    if is_duration {
        let ms = super::duration::millis(value.abs());
        let sign = if value < 0.0 { "-" } else { "" };
        sign.to_owned() + &numbers::duration(ms)
    } else {
        numbers::plain(value)
    }
}

fn is_plain_label(name: &str) -> bool {
    let is_part = |c: char| c == '_' || c.is_ascii_alphanumeric();
    !name.is_empty() && name.chars().all(is_part) && !name.starts_with(|c: char| c.is_ascii_digit())
}

fn label(name: &str) -> String {
    if is_plain_label(name) {
        name.to_owned()
    } else {
        quoted(name)
    }
}

fn labels(names: &[Box<str>]) -> String {
    let names: Vec<String> = names.iter().map(|name| label(name)).collect();
    names.join(", ")
}

fn matcher(matcher: &LabelMatcher) -> String {
    let matcher = matcher.matcher();
    let operator = operator(matcher.op);
    format!(
        "{}{operator}{}",
        label(&matcher.name),
        quoted(&matcher.value)
    )
}

pub(super) fn operator(op: MatchOp) -> &'static str {
    match op {
        MatchOp::Equal => "=",
        MatchOp::NotEqual => "!=",
        MatchOp::Matches => "=~",
        MatchOp::NotMatches => "!~",
    }
}

/// Name and matchers of a selector, without its modifiers.
fn selected(selector: &Selector) -> String {
    let name = selector.name.as_deref().unwrap_or("");
    let is_shown = |one: &&LabelMatcher| {
        let matcher = one.matcher();
        let is_name = *matcher.name == *METRIC_NAME && matcher.op == MatchOp::Equal;
        !(is_name && *matcher.value == *name && !name.is_empty())
    };
    let mut shown: Vec<String> = selector
        .matchers
        .iter()
        .filter(is_shown)
        .map(matcher)
        .collect();
    shown.sort();
    if shown.is_empty() {
        name.to_owned()
    } else {
        format!("{name}{{{}}}", shown.join(","))
    }
}

fn at(reach: &TimeModifiers) -> String {
    match reach.at {
        None => String::new(),
        Some(AtModifier::Time(time)) => format!(" @ {}", numbers::fixed(time as f64 / 1000.0, 3)),
        Some(AtModifier::Start) => " @ start()".to_owned(),
        Some(AtModifier::End) => " @ end()".to_owned(),
    }
}

fn offset(reach: &TimeModifiers) -> String {
    if reach.offset.sum.is_none() && reach.offset.ms == 0 {
        String::new()
    } else {
        format!(" offset {}", reach.offset.shown())
    }
}

fn extension(selector: &Selector) -> &'static str {
    match selector.extension {
        RangeModifier::None => "",
        RangeModifier::Anchored => " anchored",
        RangeModifier::Smoothed => " smoothed",
    }
}

/// `sum by (a) `, without what is aggregated.
fn aggregation(aggregate: &Aggregate) -> String {
    let name = aggregate.aggregator.name();
    let Grouping { only, written, .. } = &aggregate.grouping;
    match (only, written.is_empty()) {
        (true, true) => name.to_owned(),
        (true, false) => format!("{name} by ({}) ", labels(written)),
        (false, _) => format!("{name} without ({}) ", labels(written)),
    }
}

/// The operator with its modifiers.
fn operation(binary: &Binary) -> String {
    let mut text = binary.operator.name().to_owned();
    if binary.returns_bool {
        text.push_str(" bool");
    }
    let Grouping { only, written, .. } = &binary.matching;
    let is_grouped = binary.cardinality != MatchCardinality::OneToOne;
    if *only || !written.is_empty() || is_grouped {
        let word = if *only { "on" } else { "ignoring" };
        append(&mut text, format_args!(" {word} ({})", labels(written)));
    }
    if is_grouped {
        let side = match binary.cardinality {
            MatchCardinality::ManyToOne => "left",
            _ => "right",
        };
        append(
            &mut text,
            format_args!(" group_{side} ({})", labels(&binary.include)),
        );
    }
    let shown = numbers::shortest;
    match binary.fill {
        (Some(left), Some(right)) if left.to_bits() == right.to_bits() => {
            append(&mut text, format_args!(" fill ({})", shown(left)));
        }
        (left, right) => {
            if let Some(left) = left {
                append(&mut text, format_args!(" fill_left ({})", shown(left)));
            }
            if let Some(right) = right {
                append(&mut text, format_args!(" fill_right ({})", shown(right)));
            }
        }
    }
    text
}

fn call(call: &Call) -> String {
    let arguments: Vec<String> = call.arguments.iter().map(line).collect();
    format!("{}({})", call.name(), arguments.join(", "))
}

fn subquery_suffix(subquery: &Subquery) -> String {
    let range = subquery.range.shown();
    let step = subquery
        .step
        .as_ref()
        .map(super::DurationExpr::shown)
        .unwrap_or_default();
    let reach = &subquery.reach;
    format!("[{range}:{step}]{}{}", at(reach), offset(reach))
}

/// An expression in one line.
pub(super) fn line(node: &ExprNode) -> String {
    match &node.part {
        ExprKind::Number(value, is_duration) => number(*value, *is_duration),
        ExprKind::Text(bytes) => quoted_bytes(bytes),
        ExprKind::Paren(inner) => format!("({})", line(inner)),
        ExprKind::Sign(inner, is_minus) => {
            format!("{}{}", if *is_minus { "-" } else { "+" }, line(inner))
        }
        ExprKind::Binary(binary) => {
            let (left, right) = (line(&binary.left), line(&binary.right));
            format!("{left} {} {right}", operation(binary))
        }
        ExprKind::Aggregate(aggregate) => {
            let parameter = aggregate
                .parameter
                .as_ref()
                .map(|node| line(node) + ", ")
                .unwrap_or_default();
            let inner = line(&aggregate.inner);
            format!("{}({parameter}{inner})", aggregation(aggregate))
        }
        ExprKind::Call(one) => call(one),
        ExprKind::Selector(selector) => {
            let reach = &selector.reach;
            let (at, offset) = (at(reach), offset(reach));
            format!("{}{at}{}{offset}", selected(selector), extension(selector))
        }
        ExprKind::Range(selector, range) => {
            let reach = &selector.reach;
            let (at, offset, range) = (at(reach), offset(reach), range.shown());
            let extension = extension(selector);
            format!("{}[{range}]{extension}{at}{offset}", selected(selector))
        }
        ExprKind::Subquery(subquery) => line(&subquery.inner) + &subquery_suffix(subquery),
    }
}

/// An expression over several lines where it is long.
pub(crate) fn pretty(node: &ExprNode) -> String {
    let mut text = String::new();
    lay_out(node, 0, &mut text);
    text
}

fn indent(level: usize, text: &mut String) {
    (0..level).for_each(|_| text.push_str(INDENT));
}

fn lay_out(node: &ExprNode, level: usize, text: &mut String) {
    let whole = line(node);
    let is_split = whole.len() > COLUMNS_MAX;
    match &node.part {
        // What binary expressions have on their sides is set in further than they are.
        ExprKind::Binary(binary) if is_split => {
            lay_out(&binary.left, level + 1, text);
            text.push('\n');
            indent(level, text);
            text.push_str(&operation(binary));
            text.push('\n');
            lay_out(&binary.right, level + 1, text);
        }
        ExprKind::Aggregate(aggregate) if is_split => {
            indent(level, text);
            text.push_str(&aggregation(aggregate));
            let parts = aggregate.parameter.iter().chain([&aggregate.inner]);
            lay_out_list(parts, level, text);
        }
        ExprKind::Call(call) if is_split && !call.arguments.is_empty() => {
            indent(level, text);
            text.push_str(call.name());
            lay_out_list(call.arguments.iter(), level, text);
        }
        ExprKind::Paren(inner) if is_split => {
            indent(level, text);
            lay_out_list(std::iter::once(&**inner), level, text);
        }
        ExprKind::Subquery(subquery) if is_split => {
            lay_out(&subquery.inner, level, text);
            text.push_str(&subquery_suffix(subquery));
        }
        // Prometheus sets a subquery in only where it is divided.
        ExprKind::Subquery(_) => text.push_str(&whole),
        ExprKind::Sign(inner, is_minus) => {
            indent(level, text);
            text.push(if *is_minus { '-' } else { '+' });
            let mut child = String::new();
            lay_out(inner, level, &mut child);
            text.push_str(child.trim());
        }
        _ => {
            indent(level, text);
            text.push_str(&whole);
        }
    }
}

/// Expressions in parentheses, each on a line.
fn lay_out_list<'a>(nodes: impl Iterator<Item = &'a ExprNode>, level: usize, text: &mut String) {
    text.push('(');
    for (at, node) in nodes.enumerate() {
        text.push_str(if at > 0 { ",\n" } else { "\n" });
        lay_out(node, level + 1, text);
    }
    text.push('\n');
    indent(level, text);
    text.push(')');
}
