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
    match clock::refused(node) {
        Some(refusal) => Err(refusal),
        None => parts(node),
    }
}

fn parts(node: &mut NodeEnum) -> Result<Vec<&mut Node>, Refusal> {
    let mut all = Vec::new();
    match node {
        NodeEnum::AConst(_) | NodeEnum::ColumnRef(_) => {}
        NodeEnum::AExpr(expr) => {
            all.extend(expr.lexpr.as_deref_mut());
            all.extend(expr.rexpr.as_deref_mut());
        }
        NodeEnum::List(list) => all.extend(&mut list.items),
        NodeEnum::BoolExpr(expr) => all.extend(&mut expr.args),
        NodeEnum::FuncCall(call) => {
            all.extend(&mut call.args);
            all.extend(&mut call.agg_order);
            all.extend(call.agg_filter.as_deref_mut());
            if let Some(over) = call.over.as_deref_mut() {
                all.extend(&mut over.partition_clause);
                all.extend(&mut over.order_clause);
                all.extend(over.start_offset.as_deref_mut());
                all.extend(over.end_offset.as_deref_mut());
            }
        }
        NodeEnum::GroupingFunc(call) => all.extend(&mut call.args),
        NodeEnum::GroupingSet(set) => all.extend(&mut set.content),
        NodeEnum::NamedArgExpr(arg) => all.extend(arg.arg.as_deref_mut()),
        NodeEnum::SortBy(sort) => all.extend(sort.node.as_deref_mut()),
        NodeEnum::TypeCast(cast) => all.extend(cast.arg.as_deref_mut()),
        NodeEnum::CollateClause(clause) => all.extend(clause.arg.as_deref_mut()),
        NodeEnum::CaseExpr(case) => {
            all.extend(case.arg.as_deref_mut());
            all.extend(&mut case.args);
            all.extend(case.defresult.as_deref_mut());
        }
        NodeEnum::CaseWhen(when) => {
            all.extend(when.expr.as_deref_mut());
            all.extend(when.result.as_deref_mut());
        }
        NodeEnum::CoalesceExpr(expr) => all.extend(&mut expr.args),
        NodeEnum::MinMaxExpr(expr) => all.extend(&mut expr.args),
        NodeEnum::NullTest(test) => all.extend(test.arg.as_deref_mut()),
        NodeEnum::BooleanTest(test) => all.extend(test.arg.as_deref_mut()),
        NodeEnum::AArrayExpr(array) => all.extend(&mut array.elements),
        NodeEnum::RowExpr(row) => all.extend(&mut row.args),
        NodeEnum::AIndirection(indirection) => {
            all.extend(indirection.arg.as_deref_mut());
            all.extend(&mut indirection.indirection);
        }
        NodeEnum::AIndices(indices) => {
            all.extend(indices.lidx.as_deref_mut());
            all.extend(indices.uidx.as_deref_mut());
        }
        // The name of a field of a composite value.
        NodeEnum::String(_) => {}
        NodeEnum::SqlvalueFunction(function) => {
            let advice = "its value depends on the session: leave it out";
            let what = "CURRENT_USER or the like";
            return Err(Refusal::new(what, function.location, advice));
        }
        NodeEnum::SubLink(link) => return Err(sublink(link)),
        NodeEnum::ParamRef(param) => {
            let advice = "write the value into the query";
            return Err(Refusal::new("a parameter", param.location, advice));
        }
        other => {
            let advice = "use functions instead, or mode full";
            return Err(Refusal::new(name_of(other), -1, advice));
        }
    }
    Ok(all)
}

/// Whether a predicate holds for a part of an expression. Parts of subqueries and of unsupported
/// constructs are not looked at.
pub fn has(node: &Node, is_so: &impl Fn(&NodeEnum) -> bool) -> bool {
    let Some(inner) = &node.node else {
        return false;
    };
    if is_so(inner) {
        return true;
    }
    let mut inner = inner.clone();
    let below = children(&mut inner);
    below.is_ok_and(|below| below.into_iter().any(|child| has(child, is_so)))
}

/// Whether an expression has a COLLATE clause.
pub(crate) fn has_collation(node: &Node) -> bool {
    has(node, &|one| matches!(one, NodeEnum::CollateClause(_)))
}

/// Whether an expression calls a window function.
pub(crate) fn has_window(node: &Node) -> bool {
    has(
        node,
        &|one| matches!(one, NodeEnum::FuncCall(call) if call.over.is_some()),
    )
}

/// Whether an expression has a subquery.
pub(crate) fn has_link(node: &Node) -> bool {
    has(node, &|one| matches!(one, NodeEnum::SubLink(_)))
}

fn sublink(link: &SubLink) -> Refusal {
    let advice = "write it as a join, or use mode full";
    Refusal::new("a subquery in an expression", link.location, advice)
}

/// What the parser calls a node, in words.
fn name_of(node: &NodeEnum) -> String {
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
