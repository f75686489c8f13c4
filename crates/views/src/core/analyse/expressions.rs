//! Expressions: columns resolved, aggregates and what is grouped by found, the rest left as it is.

use pg_query::NodeEnum;
use pg_query::protobuf::{self as pb, Node};

use super::aggregates::Grouping;
use super::children::children;
use super::scope::Scope;
use crate::core::expression::{ColumnId, Expression};
use crate::core::refusal::Refusal;

/// How deep an expression may be nested.
const DEPTH_MAX: usize = 500;

/// An expression of the rows of a scope.
///
/// # Errors
/// [`Refusal`].
pub fn expression(node: &Node, scope: &Scope) -> Result<Expression, Refusal> {
    let mut node = node.clone();
    resolve(&mut node, scope, 0)?;
    text(&node).map(|text| Expression::read(&text))
}

/// The same as the parser has it.
///
/// # Errors
/// [`Refusal`].
pub fn resolved(node: &Node, scope: &Scope) -> Result<Node, Refusal> {
    let mut node = node.clone();
    resolve(&mut node, scope, 0)?;
    Ok(node)
}

/// An expression that stands by itself, as the server prints it.
///
/// # Errors
/// [`Refusal`] for text that is none.
pub fn parse_expression(text: &str) -> Result<Node, Refusal> {
    let mut query = super::parse(&format!("SELECT {text}"))?;
    let target = query.target_list.pop().and_then(|target| target.node);
    let value = match target {
        Some(NodeEnum::ResTarget(target)) => target.val,
        _ => None,
    };
    let none = || Refusal::new(format!("`{text}`"), -1, "it is no expression");
    value.map(|value| *value).ok_or_else(none)
}

/// An expression of the groups that rows of a scope fall into.
///
/// # Errors
/// [`Refusal`].
pub fn grouped(node: &Node, scope: &Scope, grouping: &mut Grouping) -> Result<Expression, Refusal> {
    let mut node = node.clone();
    resolve_grouped(&mut node, scope, grouping, 0)?;
    text(&node).map(|text| Expression::read(&text))
}

fn resolve(node: &mut Node, scope: &Scope, depth: usize) -> Result<(), Refusal> {
    let Some(inner) = &mut node.node else {
        return Ok(());
    };
    check_depth(depth)?;
    if let NodeEnum::ColumnRef(column) = inner {
        if !is_marked(column) {
            let id = scope.resolve(&names_of(column), column.location)?;
            *inner = marked(id);
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
    if let Some(key) = grouping.key(inner, scope)? {
        *inner = marked(key);
        return Ok(());
    }
    match inner {
        NodeEnum::ColumnRef(column) if is_marked(column) => return Ok(()),
        NodeEnum::ColumnRef(column) => {
            // It depends on what is grouped by, or the server had refused the query.
            let id = scope.resolve(&names_of(column), column.location)?;
            *inner = marked(grouping.dependent(id));
            return Ok(());
        }
        NodeEnum::FuncCall(call) if grouping.is_aggregate(call) => {
            *inner = marked(grouping.aggregate(call, scope)?);
            return Ok(());
        }
        NodeEnum::GroupingFunc(call) => {
            let mut bits = 0;
            for key in &call.args {
                bits = bits * 2 + i32::from(!grouping.has(&expression(key, scope)?));
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
    match depth > DEPTH_MAX {
        true => Err(Refusal::new(
            format!("an expression nested deeper than {DEPTH_MAX}"),
            -1,
            "simplify it",
        )),
        false => Ok(()),
    }
}

/// The names of a reference to a column; a star is one.
pub fn names_of(column: &pb::ColumnRef) -> Vec<String> {
    let fields = column.fields.iter();
    fields
        .map(|field| match &field.node {
            Some(NodeEnum::String(name)) => name.sval.clone(),
            _ => "*".to_owned(),
        })
        .collect()
}

/// Whether a column is referred to by the name that stands for it: there are no such names in a query.
pub(super) fn is_marked(column: &pb::ColumnRef) -> bool {
    let names = names_of(column);
    matches!(&names[..], [name] if name.starts_with("egret$"))
}

/// A reference to a column by the name that stands for it.
pub fn marked(column: ColumnId) -> NodeEnum {
    let reference = named(&[Expression::mark(column)]);
    reference.node.expect("it is a reference")
}

/// A reference to a column by its names.
pub fn named(names: &[String]) -> Node {
    let fields = names.iter().map(|name| Node {
        node: Some(NodeEnum::String(pb::String { sval: name.clone() })),
    });
    Node {
        node: Some(NodeEnum::ColumnRef(pb::ColumnRef {
            fields: fields.collect(),
            location: -1,
        })),
    }
}

/// The text of an expression.
///
/// # Errors
/// [`Refusal`] for one that cannot be printed.
pub fn text(node: &Node) -> Result<String, Refusal> {
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
    let printed = printed(select)?;
    let printed = printed.strip_prefix("SELECT ").unwrap_or(&printed);
    Ok(printed.to_owned())
}

/// The text of a query.
///
/// # Errors
/// [`Refusal`] for one that cannot be printed.
pub fn printed(select: pb::SelectStmt) -> Result<String, Refusal> {
    let statement = pb::RawStmt {
        stmt: Some(Box::new(Node {
            node: Some(NodeEnum::SelectStmt(Box::new(select))),
        })),
        ..pb::RawStmt::default()
    };
    let all = pb::ParseResult {
        stmts: vec![statement],
        ..pb::ParseResult::default()
    };
    pg_query::deparse(&all, pg_query::DeparseOptions::default())
        .map_err(|error| Refusal::new("an expression", -1, error.to_string()))
}
