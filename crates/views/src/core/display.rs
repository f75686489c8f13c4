//! Renders operators as text for explanations.

use super::expression::Expression;
use super::tree::{JoinKind, Node, Source};

/// A node with its inputs as a tree: a line each, indented by two spaces a level. `name` says what
/// a source is called.
pub fn operators(node: &Node, name: &impl Fn(Source) -> String) -> String {
    let mut lines = Vec::new();
    put(node, 0, name, &mut lines);
    lines.join("\n")
}

fn put(node: &Node, level: usize, name: &impl Fn(Source) -> String, lines: &mut Vec<String>) {
    let mut line = |text: String| lines.push(format!("{}{text}", "  ".repeat(level)));
    match node {
        Node::Unit => line("one row".to_owned()),
        Node::Scan { source, columns } => {
            line(format!(
                "scan of {}: {} columns",
                name(*source),
                columns.len()
            ));
        }
        Node::Filter { input, condition } => {
            line(format!("filter by {}", condition.shown()));
            put(input, level + 1, name, lines);
        }
        Node::Recent {
            input,
            clock,
            condition,
            ..
        } => {
            let now = Expression::constant("now()");
            let condition = condition.with(*clock, &now).shown();
            line(format!("filter by {condition}, as time passes"));
            put(input, level + 1, name, lines);
        }
        Node::Project { input, columns } => {
            let shown: Vec<String> = columns.iter().map(|(_, one)| one.shown()).collect();
            line(format!("project {}", shown.join(", ")));
            put(input, level + 1, name, lines);
        }
        Node::Expand {
            input,
            call,
            or_nulls,
            ..
        } => {
            let kind = match or_nulls {
                None => "rows of",
                Some(_) => "rows, if any, of",
            };
            line(format!("{kind} {}", call.shown()));
            put(input, level + 1, name, lines);
        }
        Node::Join {
            kind,
            left,
            right,
            condition,
        } => {
            let kind = match kind {
                JoinKind::Inner => "inner",
                JoinKind::Left => "left",
                JoinKind::Full => "full",
                JoinKind::Semi => "semi",
                JoinKind::Anti => "anti",
            };
            line(format!("{kind} join on {}", condition.shown()));
            put(left, level + 1, name, lines);
            put(right, level + 1, name, lines);
        }
        Node::UnionAll { inputs, .. } => {
            line("union all".to_owned());
            for (input, _) in inputs {
                put(input, level + 1, name, lines);
            }
        }
    }
}
