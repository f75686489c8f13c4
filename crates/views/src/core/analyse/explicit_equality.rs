//! Writes a query with the comparisons that `NULLIF`, `IS DISTINCT FROM`, `CASE` with a value and
//! `USING` stand for, so that the server prints their operators.

use pg_query::NodeEnum;
use pg_query::protobuf::{
    AExpr, AExprKind, BoolExpr, BoolExprType, CaseExpr, CaseWhen, CoalesceExpr, JoinExpr, JoinType,
    Node, NullTest, NullTestType, SelectStmt, String as Name, WithClause,
};

use super::children::children;
use super::expressions::{column_reference, print_query};
use super::facts::Facts;
use crate::core::refusal::Refusal;

/// The query with explicit comparisons. What cannot be written so stays as it is.
///
/// # Errors
/// [`Refusal`] for text that is no query.
pub(crate) fn with_explicit_equalities(sql: &str, facts: &Facts) -> Result<String, Refusal> {
    let mut query = super::parse(sql)?;
    rewrite_query(&mut query, facts);
    print_query(query)
}

fn rewrite_query(query: &mut SelectStmt, facts: &Facts) {
    if let Some(WithClause { ctes, .. }) = &mut query.with_clause {
        rewrite_all(ctes, facts);
    }
    for side in [&mut query.larg, &mut query.rarg].into_iter().flatten() {
        rewrite_query(side, facts);
    }
    for list in [
        &mut query.distinct_clause,
        &mut query.target_list,
        &mut query.from_clause,
        &mut query.group_clause,
        &mut query.window_clause,
        &mut query.values_lists,
        &mut query.sort_clause,
    ] {
        rewrite_all(list, facts);
    }
    for node in [
        &mut query.where_clause,
        &mut query.having_clause,
        &mut query.limit_count,
        &mut query.limit_offset,
    ] {
        rewrite_some(node, facts);
    }
}

fn rewrite_all(nodes: &mut [Node], facts: &Facts) {
    for node in nodes {
        rewrite(node, facts);
    }
}

fn rewrite_some(node: &mut Option<Box<Node>>, facts: &Facts) {
    if let Some(node) = node {
        rewrite(node, facts);
    }
}

fn rewrite(node: &mut Node, facts: &Facts) {
    let Some(inner) = &mut node.node else {
        return;
    };
    rewrite_parts(inner, facts);
    if let Some(comparison) = compared(inner) {
        *inner = comparison;
    }
}

fn rewrite_parts(inner: &mut NodeEnum, facts: &Facts) {
    match inner {
        NodeEnum::SelectStmt(query) => rewrite_query(query, facts),
        NodeEnum::ResTarget(target) => rewrite_some(&mut target.val, facts),
        NodeEnum::CommonTableExpr(cte) => rewrite_some(&mut cte.ctequery, facts),
        NodeEnum::RangeSubselect(rows) => rewrite_some(&mut rows.subquery, facts),
        NodeEnum::RangeFunction(rows) => rewrite_all(&mut rows.functions, facts),
        NodeEnum::SubLink(link) => {
            rewrite_some(&mut link.testexpr, facts);
            rewrite_some(&mut link.subselect, facts);
        }
        NodeEnum::WindowDef(window) => {
            rewrite_all(&mut window.partition_clause, facts);
            rewrite_all(&mut window.order_clause, facts);
        }
        NodeEnum::JoinExpr(join) => {
            rewrite_some(&mut join.larg, facts);
            rewrite_some(&mut join.rarg, facts);
            rewrite_some(&mut join.quals, facts);
            name_joined_columns(join, facts);
        }
        other => {
            if let Ok(parts) = children(other) {
                for part in parts {
                    rewrite(part, facts);
                }
            }
        }
    }
}

/// The comparison that an expression stands for.
fn compared(node: &mut NodeEnum) -> Option<NodeEnum> {
    match node {
        NodeEnum::AExpr(expr) => {
            let (left, right) = (*expr.lexpr.clone()?, *expr.rexpr.clone()?);
            match AExprKind::try_from(expr.kind).ok()? {
                AExprKind::AexprNullif => Some(null_if(left, right)),
                AExprKind::AexprDistinct => Some(negated(is_same(left, right))),
                AExprKind::AexprNotDistinct => Some(is_same(left, right)),
                _ => None,
            }
        }
        NodeEnum::CaseExpr(case) => {
            let value = *case.arg.take()?;
            for when in &mut case.args {
                if let Some(NodeEnum::CaseWhen(when)) = &mut when.node
                    && let Some(tested) = when.expr.take()
                {
                    when.expr = Some(Box::new(of(equal(value.clone(), *tested))));
                }
            }
            None
        }
        _ => None,
    }
}

/// `CASE WHEN left = right THEN NULL ELSE left END`
fn null_if(left: Node, right: Node) -> NodeEnum {
    let null = NodeEnum::AConst(pg_query::protobuf::AConst { isnull: true, ..Default::default() });
    let when = NodeEnum::CaseWhen(Box::new(CaseWhen {
        expr: Some(Box::new(of(equal(left.clone(), right)))),
        result: Some(Box::new(of(null))),
        ..CaseWhen::default()
    }));
    NodeEnum::CaseExpr(Box::new(CaseExpr {
        args: vec![of(when)],
        defresult: Some(Box::new(left)),
        ..CaseExpr::default()
    }))
}

/// `COALESCE(left = right, left IS NULL AND right IS NULL)`: the comparison is null if one is.
fn is_same(left: Node, right: Node) -> NodeEnum {
    let is_null = |arg: &Node| {
        of(NodeEnum::NullTest(Box::new(NullTest {
            arg: Some(Box::new(arg.clone())),
            nulltesttype: NullTestType::IsNull as i32,
            ..NullTest::default()
        })))
    };
    let both = NodeEnum::BoolExpr(Box::new(BoolExpr {
        boolop: BoolExprType::AndExpr as i32,
        args: vec![is_null(&left), is_null(&right)],
        ..BoolExpr::default()
    }));
    NodeEnum::CoalesceExpr(Box::new(CoalesceExpr {
        args: vec![of(equal(left, right)), of(both)],
        ..CoalesceExpr::default()
    }))
}

fn negated(condition: NodeEnum) -> NodeEnum {
    NodeEnum::BoolExpr(Box::new(BoolExpr {
        boolop: BoolExprType::NotExpr as i32,
        args: vec![of(condition)],
        ..BoolExpr::default()
    }))
}

fn equal(left: Node, right: Node) -> NodeEnum {
    NodeEnum::AExpr(Box::new(AExpr {
        kind: AExprKind::AexprOp as i32,
        name: vec![of(NodeEnum::String(Name { sval: "=".to_owned() }))],
        lexpr: Some(Box::new(left)),
        rexpr: Some(Box::new(right)),
        ..AExpr::default()
    }))
}

fn of(node: NodeEnum) -> Node {
    Node { node: Some(node) }
}

/// Writes USING as a condition. The server prints no other reference to the merged column than by
/// the side that it is of, unless the join is FULL or has an alias for them.
fn name_joined_columns(join: &mut JoinExpr, facts: &Facts) {
    let is_merged = join.jointype == JoinType::JoinFull as i32 || join.join_using_alias.is_some();
    if join.using_clause.is_empty() || is_merged || join.alias.is_some() {
        return;
    }
    let names: Vec<String> = join.using_clause.iter().filter_map(name_of).collect();
    let side = |side: &Option<Box<Node>>, name: &str| {
        owner_of(side.as_deref()?, name, facts)
            .map(|table| column_reference(&[table, name.to_owned()]))
    };
    let conditions: Option<Vec<Node>> = names
        .iter()
        .map(|name| {
            let (left, right) = (side(&join.larg, name)?, side(&join.rarg, name)?);
            Some(of(equal(left, right)))
        })
        .collect();
    let Some(mut conditions) = conditions.filter(|all| all.len() == join.using_clause.len()) else {
        return;
    };
    let condition = if conditions.len() == 1 {
        conditions.remove(0)
    } else {
        of(NodeEnum::BoolExpr(Box::new(BoolExpr {
            boolop: BoolExprType::AndExpr as i32,
            args: conditions,
            ..BoolExpr::default()
        })))
    };
    join.quals = Some(Box::new(condition));
    join.using_clause.clear();
}

/// Name of the table in FROM that has a column of this name; none unless it is exactly one.
fn owner_of(from: &Node, column: &str, facts: &Facts) -> Option<String> {
    match from.node.as_ref()? {
        NodeEnum::JoinExpr(join) => {
            let left = owner_of(join.larg.as_deref()?, column, facts);
            let right = owner_of(join.rarg.as_deref()?, column, facts);
            match (left, right) {
                (Some(owner), None) | (None, Some(owner)) => Some(owner),
                _ => None,
            }
        }
        NodeEnum::RangeVar(table) => {
            let key = (table.schemaname.clone(), table.relname.clone());
            let alias = table.alias.as_ref();
            let listed = alias.map(|alias| alias.colnames.iter().filter_map(name_of));
            let listed: Vec<String> = listed.into_iter().flatten().collect();
            let has_column = if listed.is_empty() {
                let relation = facts.relations.get(&key)?;
                relation.columns.iter().any(|name| name == column)
            } else {
                listed.iter().any(|name| name == column)
            };
            let name = alias.map_or(&table.relname, |alias| &alias.aliasname);
            has_column.then(|| name.clone())
        }
        NodeEnum::RangeSubselect(rows) => {
            let alias = rows.alias.as_ref()?;
            let listed: Vec<String> = alias.colnames.iter().filter_map(name_of).collect();
            let Some(NodeEnum::SelectStmt(query)) = rows.subquery.as_ref()?.node.as_ref() else {
                return None;
            };
            let targets = query.target_list.iter().filter_map(target_name);
            let mut names = if listed.is_empty() {
                targets.collect::<Vec<_>>().into_iter()
            } else {
                listed.into_iter()
            };
            names.any(|name| name == column).then(|| alias.aliasname.clone())
        }
        _ => None,
    }
}

fn name_of(node: &Node) -> Option<String> {
    match node.node.as_ref()? {
        NodeEnum::String(name) => Some(name.sval.clone()),
        _ => None,
    }
}

/// Name of a column of a query, as the server prints it.
fn target_name(node: &Node) -> Option<String> {
    let NodeEnum::ResTarget(target) = node.node.as_ref()? else {
        return None;
    };
    if !target.name.is_empty() {
        return Some(target.name.clone());
    }
    match target.val.as_ref()?.node.as_ref()? {
        NodeEnum::ColumnRef(column) => column.fields.last().and_then(name_of),
        _ => None,
    }
}
