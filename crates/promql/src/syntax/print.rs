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
pub(crate) fn quote(text: &str) -> String {
    quote_bytes(text.as_bytes())
}

/// Bytes as Go quotes them: those that are no text by their numbers.
fn quote_bytes(bytes: &[u8]) -> String {
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
    text.write_fmt(arguments).expect("a string takes what is written to it");
}

/// A literal of seconds or of no unit.
pub(super) fn format_literal(value: f64, is_duration: bool) -> String {
    if is_duration {
        let ms = super::duration::to_millis(value.abs());
        let sign = if value < 0.0 { "-" } else { "" };
        sign.to_owned() + &numbers::format_duration(ms)
    } else {
        numbers::plain(value)
    }
}

fn is_plain_label(name: &str) -> bool {
    let is_part = |c: char| c == '_' || c.is_ascii_alphanumeric();
    !name.is_empty() && name.chars().all(is_part) && !name.starts_with(|c: char| c.is_ascii_digit())
}

fn format_label(name: &str) -> String {
    if is_plain_label(name) { name.to_owned() } else { quote(name) }
}

fn format_labels(names: &[Box<str>]) -> String {
    let names: Vec<String> = names.iter().map(|name| format_label(name)).collect();
    names.join(", ")
}

fn format_matcher(matcher: &LabelMatcher) -> String {
    let matcher = matcher.matcher();
    let operator = match_op_text(matcher.op);
    format!("{}{operator}{}", format_label(&matcher.name), quote(&matcher.value))
}

pub(super) fn match_op_text(op: MatchOp) -> &'static str {
    match op {
        MatchOp::Equal => "=",
        MatchOp::NotEqual => "!=",
        MatchOp::Matches => "=~",
        MatchOp::NotMatches => "!~",
    }
}

/// Name and matchers of a selector, without its modifiers.
fn format_selector(selector: &Selector) -> String {
    let name = selector.name.as_deref().unwrap_or("");
    let is_shown = |one: &&LabelMatcher| {
        let matcher = one.matcher();
        let is_name = *matcher.name == *METRIC_NAME && matcher.op == MatchOp::Equal;
        !(is_name && *matcher.value == *name && !name.is_empty())
    };
    let mut matcher_texts: Vec<String> =
        selector.matchers.iter().filter(is_shown).map(format_matcher).collect();
    matcher_texts.sort();
    if matcher_texts.is_empty() {
        name.to_owned()
    } else {
        format!("{name}{{{}}}", matcher_texts.join(","))
    }
}

fn format_at(modifiers: &TimeModifiers) -> String {
    match modifiers.at {
        None => String::new(),
        Some(AtModifier::Time(time)) => {
            format!(" @ {}", numbers::format_fixed(time as f64 / 1000.0, 3))
        }
        Some(AtModifier::Start) => " @ start()".to_owned(),
        Some(AtModifier::End) => " @ end()".to_owned(),
    }
}

fn format_offset(modifiers: &TimeModifiers) -> String {
    if modifiers.offset.expression.is_none() && modifiers.offset.ms == 0 {
        String::new()
    } else {
        format!(" offset {}", modifiers.offset.to_text())
    }
}

fn extension_text(selector: &Selector) -> &'static str {
    match selector.range_modifier {
        RangeModifier::None => "",
        RangeModifier::Anchored => " anchored",
        RangeModifier::Smoothed => " smoothed",
    }
}

/// `sum by (a) `, without what is aggregated.
fn format_aggregation(aggregate: &Aggregate) -> String {
    let name = aggregate.aggregator.name();
    let Grouping { is_inclusive: only, written, .. } = &aggregate.grouping;
    match (only, written.is_empty()) {
        (true, true) => name.to_owned(),
        (true, false) => format!("{name} by ({}) ", format_labels(written)),
        (false, _) => format!("{name} without ({}) ", format_labels(written)),
    }
}

/// The operator with its modifiers.
fn format_operator(binary: &Binary) -> String {
    let mut text = binary.operator.name().to_owned();
    if binary.returns_bool {
        text.push_str(" bool");
    }
    let Grouping { is_inclusive: only, written, .. } = &binary.matching;
    let is_grouped = binary.cardinality != MatchCardinality::OneToOne;
    if *only || !written.is_empty() || is_grouped {
        let word = if *only { "on" } else { "ignoring" };
        append(&mut text, format_args!(" {word} ({})", format_labels(written)));
    }
    if is_grouped {
        let side = match binary.cardinality {
            MatchCardinality::ManyToOne => "left",
            _ => "right",
        };
        append(&mut text, format_args!(" group_{side} ({})", format_labels(&binary.include)));
    }
    let format_value = numbers::format_shortest;
    match binary.fill {
        (Some(left), Some(right)) if left.to_bits() == right.to_bits() => {
            append(&mut text, format_args!(" fill ({})", format_value(left)));
        }
        (left, right) => {
            if let Some(left) = left {
                append(&mut text, format_args!(" fill_left ({})", format_value(left)));
            }
            if let Some(right) = right {
                append(&mut text, format_args!(" fill_right ({})", format_value(right)));
            }
        }
    }
    text
}

fn format_call(call: &Call) -> String {
    let arguments: Vec<String> = call.arguments.iter().map(format_line).collect();
    format!("{}({})", call.name(), arguments.join(", "))
}

fn format_subquery_suffix(subquery: &Subquery) -> String {
    let range = subquery.range.to_text();
    let step = subquery.step.as_ref().map(super::DurationExpr::to_text).unwrap_or_default();
    let modifiers = &subquery.time_modifiers;
    format!("[{range}:{step}]{}{}", format_at(modifiers), format_offset(modifiers))
}

/// An expression in one line.
pub(super) fn format_line(node: &ExprNode) -> String {
    match &node.kind {
        ExprKind::Number(value, is_duration) => format_literal(*value, *is_duration),
        ExprKind::Text(bytes) => quote_bytes(bytes),
        ExprKind::Paren(inner) => format!("({})", format_line(inner)),
        ExprKind::Sign(inner, is_minus) => {
            format!("{}{}", if *is_minus { "-" } else { "+" }, format_line(inner))
        }
        ExprKind::Binary(binary) => {
            let (left, right) = (format_line(&binary.left), format_line(&binary.right));
            format!("{left} {} {right}", format_operator(binary))
        }
        ExprKind::Aggregate(aggregate) => {
            let parameter = aggregate
                .parameter
                .as_ref()
                .map(|node| format_line(node) + ", ")
                .unwrap_or_default();
            let inner = format_line(&aggregate.inner);
            format!("{}({parameter}{inner})", format_aggregation(aggregate))
        }
        ExprKind::Call(one) => format_call(one),
        ExprKind::Selector(selector) => {
            let modifiers = &selector.time_modifiers;
            let (at, offset) = (format_at(modifiers), format_offset(modifiers));
            format!("{}{at}{}{offset}", format_selector(selector), extension_text(selector))
        }
        ExprKind::Range(selector, range) => {
            let reach = &selector.time_modifiers;
            let (at, offset, range) = (format_at(reach), format_offset(reach), range.to_text());
            let extension = extension_text(selector);
            format!("{}[{range}]{extension}{at}{offset}", format_selector(selector))
        }
        ExprKind::Subquery(subquery) => {
            format_line(&subquery.inner) + &format_subquery_suffix(subquery)
        }
    }
}

/// An expression over several lines where it is long.
pub(crate) fn format_pretty(node: &ExprNode) -> String {
    let mut text = String::new();
    format_lines(node, 0, &mut text);
    text
}

fn push_indent(level: usize, text: &mut String) {
    (0..level).for_each(|_| text.push_str(INDENT));
}

fn format_lines(node: &ExprNode, level: usize, text: &mut String) {
    let whole = format_line(node);
    let is_split = whole.len() > COLUMNS_MAX;
    match &node.kind {
        // What binary expressions have on their sides is set in further than they are.
        ExprKind::Binary(binary) if is_split => {
            format_lines(&binary.left, level + 1, text);
            text.push('\n');
            push_indent(level, text);
            text.push_str(&format_operator(binary));
            text.push('\n');
            format_lines(&binary.right, level + 1, text);
        }
        ExprKind::Aggregate(aggregate) if is_split => {
            push_indent(level, text);
            text.push_str(&format_aggregation(aggregate));
            let parts = aggregate.parameter.iter().chain([&aggregate.inner]);
            format_list(parts, level, text);
        }
        ExprKind::Call(call) if is_split && !call.arguments.is_empty() => {
            push_indent(level, text);
            text.push_str(call.name());
            format_list(call.arguments.iter(), level, text);
        }
        ExprKind::Paren(inner) if is_split => {
            push_indent(level, text);
            format_list(std::iter::once(&**inner), level, text);
        }
        ExprKind::Subquery(subquery) if is_split => {
            format_lines(&subquery.inner, level, text);
            text.push_str(&format_subquery_suffix(subquery));
        }
        // Prometheus sets a subquery in only where it is divided.
        ExprKind::Subquery(_) => text.push_str(&whole),
        ExprKind::Sign(inner, is_minus) => {
            push_indent(level, text);
            text.push(if *is_minus { '-' } else { '+' });
            let mut child = String::new();
            format_lines(inner, level, &mut child);
            text.push_str(child.trim());
        }
        _ => {
            push_indent(level, text);
            text.push_str(&whole);
        }
    }
}

/// Expressions in parentheses, each on a line.
fn format_list<'a>(nodes: impl Iterator<Item = &'a ExprNode>, level: usize, text: &mut String) {
    text.push('(');
    for (at, node) in nodes.enumerate() {
        text.push_str(if at > 0 { ",\n" } else { "\n" });
        format_lines(node, level + 1, text);
    }
    text.push('\n');
    push_indent(level, text);
    text.push(')');
}
