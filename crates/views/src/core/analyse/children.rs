//! The direct parts of an expression, as parse nodes.

use pg_query::NodeEnum;
use pg_query::protobuf::{Node, SubLink};

use super::clock;
use crate::core::refusal::Refusal;

/// The expressions directly below a node.
///
/// # Errors
/// [`Refusal`] for an unsupported construct, or for the clock, which is to be taken out before.
pub fn children(node: &mut NodeEnum) -> Result<Vec<&mut Node>, Refusal> {
    match clock::clock_refusal(node) {
        Some(refusal) => Err(refusal),
        None => child_nodes(node),
    }
}

fn child_nodes(node: &mut NodeEnum) -> Result<Vec<&mut Node>, Refusal> {
    let mut nodes = Vec::new();
    match node {
        NodeEnum::AConst(_) | NodeEnum::ColumnRef(_) => {}
        NodeEnum::AExpr(expr) => {
            nodes.extend(expr.lexpr.as_deref_mut());
            nodes.extend(expr.rexpr.as_deref_mut());
        }
        NodeEnum::List(list) => nodes.extend(&mut list.items),
        NodeEnum::BoolExpr(expr) => nodes.extend(&mut expr.args),
        NodeEnum::FuncCall(call) => {
            nodes.extend(&mut call.args);
            nodes.extend(&mut call.agg_order);
            nodes.extend(call.agg_filter.as_deref_mut());
            if let Some(over) = call.over.as_deref_mut() {
                nodes.extend(&mut over.partition_clause);
                nodes.extend(&mut over.order_clause);
                nodes.extend(over.start_offset.as_deref_mut());
                nodes.extend(over.end_offset.as_deref_mut());
            }
        }
        NodeEnum::GroupingFunc(call) => nodes.extend(&mut call.args),
        NodeEnum::GroupingSet(set) => nodes.extend(&mut set.content),
        NodeEnum::NamedArgExpr(arg) => nodes.extend(arg.arg.as_deref_mut()),
        NodeEnum::SortBy(sort) => nodes.extend(sort.node.as_deref_mut()),
        NodeEnum::TypeCast(cast) => nodes.extend(cast.arg.as_deref_mut()),
        NodeEnum::CollateClause(clause) => nodes.extend(clause.arg.as_deref_mut()),
        NodeEnum::CaseExpr(case) => {
            nodes.extend(case.arg.as_deref_mut());
            nodes.extend(&mut case.args);
            nodes.extend(case.defresult.as_deref_mut());
        }
        NodeEnum::CaseWhen(when) => {
            nodes.extend(when.expr.as_deref_mut());
            nodes.extend(when.result.as_deref_mut());
        }
        NodeEnum::CoalesceExpr(expr) => nodes.extend(&mut expr.args),
        NodeEnum::MinMaxExpr(expr) => nodes.extend(&mut expr.args),
        NodeEnum::NullTest(test) => nodes.extend(test.arg.as_deref_mut()),
        NodeEnum::BooleanTest(test) => nodes.extend(test.arg.as_deref_mut()),
        NodeEnum::AArrayExpr(array) => nodes.extend(&mut array.elements),
        NodeEnum::RowExpr(row) => nodes.extend(&mut row.args),
        NodeEnum::AIndirection(indirection) => {
            nodes.extend(indirection.arg.as_deref_mut());
            nodes.extend(&mut indirection.indirection);
        }
        NodeEnum::AIndices(indices) => {
            nodes.extend(indices.lidx.as_deref_mut());
            nodes.extend(indices.uidx.as_deref_mut());
        }
        // The name of a field of a composite value.
        NodeEnum::String(_) => {}
        NodeEnum::SqlvalueFunction(function) => {
            let advice = "its value depends on the session: leave it out";
            let construct = "CURRENT_USER or the like";
            return Err(Refusal::new(construct, function.location, advice));
        }
        NodeEnum::SubLink(link) => return Err(subquery_refusal(link)),
        NodeEnum::ParamRef(param) => {
            let advice = "write the value into the query";
            return Err(Refusal::new("a parameter", param.location, advice));
        }
        other => {
            let advice = "use functions instead, or mode full";
            return Err(Refusal::new(node_kind_name(other), -1, advice));
        }
    }
    Ok(nodes)
}

/// Whether a predicate holds for a part of an expression. Parts of subqueries and of unsupported
/// constructs are not looked at.
pub(crate) fn contains_node(node: &Node, predicate: &impl Fn(&NodeEnum) -> bool) -> bool {
    let Some(inner) = &node.node else {
        return false;
    };
    if predicate(inner) {
        return true;
    }
    let mut inner = inner.clone();
    let below = children(&mut inner);
    below.is_ok_and(|below| below.into_iter().any(|child| contains_node(child, predicate)))
}

/// Whether an expression has a COLLATE clause.
pub(crate) fn has_collation(node: &Node) -> bool {
    contains_node(node, &|one| matches!(one, NodeEnum::CollateClause(_)))
}

/// Whether an expression calls a window function.
pub(crate) fn has_window(node: &Node) -> bool {
    contains_node(node, &|one| matches!(one, NodeEnum::FuncCall(call) if call.over.is_some()))
}

/// Whether an expression has a subquery.
pub(crate) fn has_subquery(node: &Node) -> bool {
    contains_node(node, &|one| matches!(one, NodeEnum::SubLink(_)))
}

fn subquery_refusal(link: &SubLink) -> Refusal {
    let advice = "write it as a join, or use mode full";
    Refusal::new("a subquery in an expression", link.location, advice)
}

/// What the parser calls a node, in words.
fn node_kind_name(node: &NodeEnum) -> String {
    let text = format!("{node:?}");
    let name = text.split('(').next().unwrap_or_default();
    let mut words = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.extend(letter.to_lowercase());
    }
    format!("an expression of kind `{words}`")
}
