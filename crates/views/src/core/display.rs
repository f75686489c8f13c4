//! Renders operators as text for explanations.

use super::expression::Expression;
use super::tree::{JoinKind, Node, Source};

/// A node with its inputs as a tree: a line each, indented by two spaces a level. `source_name`
/// says what a source is called.
pub(crate) fn render_operators(node: &Node, source_name: &impl Fn(Source) -> String) -> String {
    let mut lines = Vec::new();
    render_node(node, 0, source_name, &mut lines);
    lines.join("\n")
}

fn render_node(
    node: &Node,
    level: usize,
    source_name: &impl Fn(Source) -> String,
    lines: &mut Vec<String>,
) {
    let mut line = |text: String| lines.push(format!("{}{text}", "  ".repeat(level)));
    match node {
        Node::Unit => line("one row".to_owned()),
        Node::Scan { source, columns } => {
            line(format!("scan of {}: {} columns", source_name(*source), columns.len()));
        }
        Node::Filter { input, condition } => {
            line(format!("filter by {}", condition.display_text()));
            render_node(input, level + 1, source_name, lines);
        }
        Node::TemporalFilter { input, clock, condition, .. } => {
            let now = Expression::constant("now()");
            let condition = condition.substitute(*clock, &now).display_text();
            line(format!("filter by {condition}, as time passes"));
            render_node(input, level + 1, source_name, lines);
        }
        Node::Project { input, columns } => {
            let expressions: Vec<String> =
                columns.iter().map(|(_, expression)| expression.display_text()).collect();
            line(format!("project {}", expressions.join(", ")));
            render_node(input, level + 1, source_name, lines);
        }
        Node::FlatMap { input, call, outer_condition: or_nulls, .. } => {
            let kind = match or_nulls {
                None => "rows of",
                Some(_) => "rows, if any, of",
            };
            line(format!("{kind} {}", call.display_text()));
            render_node(input, level + 1, source_name, lines);
        }
        Node::Join { kind, left, right, condition } => {
            let kind = match kind {
                JoinKind::Inner => "inner",
                JoinKind::Left => "left",
                JoinKind::Full => "full",
                JoinKind::Semi => "semi",
                JoinKind::Anti => "anti",
            };
            line(format!("{kind} join on {}", condition.display_text()));
            render_node(left, level + 1, source_name, lines);
            render_node(right, level + 1, source_name, lines);
        }
        Node::UnionAll { inputs, .. } => {
            line("union all".to_owned());
            for (input, _) in inputs {
                render_node(input, level + 1, source_name, lines);
            }
        }
    }
}
