//! Expressions: resolves columns, and finds aggregates and GROUP BY keys in them.

use pg_query::NodeEnum;
use pg_query::protobuf::{self as pb, Node};

use super::aggregates::Grouping;
use super::children::children;
use super::scope::Scope;
use crate::core::expression::{ColumnId, Expression};
use crate::core::refusal::Refusal;

/// Bound on the nesting of expressions.
const DEPTH_MAX: usize = 500;

/// Resolves an expression over the rows of a scope.
pub(crate) fn resolve_expression(node: &Node, scope: &Scope) -> Result<Expression, Refusal> {
    let mut node = node.clone();
    resolve(&mut node, scope, 0)?;
    print_expression(&node).map(|text| Expression::from_internal_text(&text))
}

/// Resolves an expression over the rows of a scope, as a parse node.
pub(crate) fn resolve_node(node: &Node, scope: &Scope) -> Result<Node, Refusal> {
    let mut node = node.clone();
    resolve(&mut node, scope, 0)?;
    Ok(node)
}

/// Parses a single expression, as the server prints it.
///
/// # Errors
/// [`Refusal`] for text that is not an expression.
pub fn parse_expression(text: &str) -> Result<Node, Refusal> {
    let mut query = super::parse(&format!("SELECT {text}"))?;
    let target = query.target_list.pop().and_then(|target| target.node);
    let value = match target {
        Some(NodeEnum::ResTarget(target)) => target.val,
        _ => None,
    };
    let not_an_expression = || Refusal::new(format!("`{text}`"), -1, "it is not an expression");
    value.map(|value| *value).ok_or_else(not_an_expression)
}

/// Resolves an expression over groups of the rows of a scope.
pub(crate) fn resolve_over_groups(
    node: &Node,
    scope: &Scope,
    grouping: &mut Grouping,
) -> Result<Expression, Refusal> {
    let mut node = node.clone();
    resolve_grouped(&mut node, scope, grouping, 0)?;
    print_expression(&node).map(|text| Expression::from_internal_text(&text))
}

fn resolve(node: &mut Node, scope: &Scope, depth: usize) -> Result<(), Refusal> {
    let Some(inner) = &mut node.node else {
        return Ok(());
    };
    check_depth(depth)?;
    if let NodeEnum::ColumnRef(column) = inner {
        if !is_internal_reference(column) {
            let id = scope.resolve(&reference_names(column), column.location)?;
            *inner = internal_reference(id);
        }
        return Ok(());
    }
    for child in children(inner)? {
        resolve(child, scope, depth + 1)?;
    }
    Ok(())
}

fn resolve_grouped(
    node: &mut Node,
    scope: &Scope,
    grouping: &mut Grouping,
    depth: usize,
) -> Result<(), Refusal> {
    let Some(inner) = &mut node.node else {
        return Ok(());
    };
    check_depth(depth)?;
    if let Some(key) = grouping.find_key(inner, scope)? {
        *inner = internal_reference(key);
        return Ok(());
    }
    match inner {
        NodeEnum::ColumnRef(column) if is_internal_reference(column) => return Ok(()),
        NodeEnum::ColumnRef(column) => {
            // It depends on what is grouped by, or the server had refused the query.
            let id = scope.resolve(&reference_names(column), column.location)?;
            *inner = internal_reference(grouping.add_dependent_column(id));
            return Ok(());
        }
        NodeEnum::FuncCall(call) if grouping.is_aggregate(call) => {
            *inner = internal_reference(grouping.add_aggregate(call, scope)?);
            return Ok(());
        }
        NodeEnum::GroupingFunc(call) => {
            let mut bits = 0;
            for key in &call.args {
                bits = bits * 2 + i32::from(!grouping.has_key(&resolve_expression(key, scope)?));
            }
            *inner = NodeEnum::AConst(pb::AConst {
                val: Some(pb::a_const::Val::Ival(pb::Integer { ival: bits })),
                ..pb::AConst::default()
            });
            return Ok(());
        }
        _ => {}
    }
    for child in children(inner)? {
        resolve_grouped(child, scope, grouping, depth + 1)?;
    }
    Ok(())
}

fn check_depth(depth: usize) -> Result<(), Refusal> {
    if depth > DEPTH_MAX {
        Err(Refusal::new(
            format!("an expression nested deeper than {DEPTH_MAX}"),
            -1,
            "simplify it",
        ))
    } else {
        Ok(())
    }
}

/// The names of a column reference; a star counts as a name.
pub(crate) fn reference_names(column: &pb::ColumnRef) -> Vec<String> {
    let fields = column.fields.iter();
    fields
        .map(|field| match &field.node {
            Some(NodeEnum::String(name)) => name.sval.clone(),
            _ => "*".to_owned(),
        })
        .collect()
}

/// Whether a column is referred to by the name that the analysis gives it; no query has such names.
pub(super) fn is_internal_reference(column: &pb::ColumnRef) -> bool {
    let names = reference_names(column);
    matches!(&names[..], [name] if name.starts_with("egret$"))
}

/// A reference to a column by the name that the analysis gives it.
pub(crate) fn internal_reference(column: ColumnId) -> NodeEnum {
    let reference = column_reference(&[Expression::internal_name(column)]);
    reference.node.expect("it is a reference")
}

/// A reference to a column by its names.
pub(crate) fn column_reference(names: &[String]) -> Node {
    let fields = names
        .iter()
        .map(|name| Node { node: Some(NodeEnum::String(pb::String { sval: name.clone() })) });
    Node {
        node: Some(NodeEnum::ColumnRef(pb::ColumnRef { fields: fields.collect(), location: -1 })),
    }
}

/// Prints an expression as SQL.
///
/// # Errors
/// [`Refusal`] for one that cannot be printed.
pub fn print_expression(node: &Node) -> Result<String, Refusal> {
    let target = NodeEnum::ResTarget(Box::new(pb::ResTarget {
        val: Some(Box::new(node.clone())),
        location: -1,
        ..pb::ResTarget::default()
    }));
    let select = pb::SelectStmt {
        target_list: vec![Node { node: Some(target) }],
        limit_option: pb::LimitOption::Default as i32,
        op: pb::SetOperation::SetopNone as i32,
        ..pb::SelectStmt::default()
    };
    let printed = print_query(select)?;
    let printed = printed.strip_prefix("SELECT ").unwrap_or(&printed);
    Ok(printed.to_owned())
}

/// Prints a query as SQL.
///
/// # Errors
/// [`Refusal`] for one that cannot be printed.
pub(crate) fn print_query(select: pb::SelectStmt) -> Result<String, Refusal> {
    let statement = pb::RawStmt {
        stmt: Some(Box::new(Node { node: Some(NodeEnum::SelectStmt(Box::new(select))) })),
        ..pb::RawStmt::default()
    };
    let parse_result = pb::ParseResult { stmts: vec![statement], ..pb::ParseResult::default() };
    pg_query::deparse(&parse_result, pg_query::DeparseOptions::default())
        .map_err(|error| Refusal::new("an expression", -1, error.to_string()))
}
