//! Scales of decimal numbers (digits after the point), as far as they follow from the query.
//!
//! A sum of `numeric` has the largest scale of its values: `1.0 + 0.25 - 0.25` is `1.00`, but the
//! sum of the remaining values is `1.0`. A sum can be maintained incrementally if all values have
//! the same scale. That holds for columns of a type with a declared scale, and for sums and
//! products of these: PostgreSQL gives a sum the larger scale of its terms, and a product the sum
//! of both scales (`add_var` and `mul_var` in its `numeric.c`).

use std::collections::{BTreeMap, BTreeSet};

use pg_query::NodeEnum;
use pg_query::protobuf::{AConst, AExpr, AExprKind, FuncCall, Node as Parsed, TypeName, a_const};

use super::analyse::{parse_expression, print_expression};
use super::column_types::Types;
use super::expression::{ColumnId, Expression, parse_stage_column};
use super::tree::{Node, Source, Stage, StageContents};

/// The possible scales of a column's values, by column; an empty set if all values are null.
pub(crate) type Scales = BTreeMap<ColumnId, BTreeSet<u32>>;

/// Largest scale that is tracked: PostgreSQL limits the scale of results.
pub(crate) const SCALE_MAX: u32 = 500;

/// Stands for the scale of infinite numbers. Results computed from these have no known scale.
const INFINITE_SCALE: u32 = SCALE_MAX + 1;

/// Fields that `EXTRACT` returns as whole numbers for dates and times (`timestamp_part_common` in
/// PostgreSQL's `timestamp.c`).
const WHOLE_FIELDS: [&str; 7] = ["dow", "doy", "isodow", "minute", "month", "quarter", "week"];

/// Fields that are whole numbers too, except for infinite values, where the result is infinite
/// (`NonFiniteTimestampTzPart` and `NonFiniteIntervalPart` there).
const INFINITE_FIELDS: [&str; 7] =
    ["century", "day", "decade", "hour", "isoyear", "millennium", "year"];

/// Adds what is known of the columns of a stage, and of those that it reads. Decimal numbers of one
/// scale that are equal look the same.
pub(crate) fn add_scales(stage: &Stage, types: &mut Types, scales: &mut Scales) {
    add_stage_scales(stage, types, scales);
    let has_one_scale =
        |found: &BTreeSet<u32>| found.iter().filter(|scale| **scale <= SCALE_MAX).count() == 1;
    for (id, _) in scales.iter().filter(|(_, found)| has_one_scale(found)) {
        if let Some(column_type) = types.get_mut(id).filter(|one| one.sql == "numeric") {
            column_type.is_exact = true;
        }
    }
}

fn add_stage_scales(stage: &Stage, types: &Types, scales: &mut Scales) {
    add_node_scales(&stage.input, types, scales);
    let StageContents::Groups { keys, aggregates } = &stage.contents else {
        return;
    };
    let keys = keys.iter().map(|(id, key)| (*id, Some(key)));
    let arguments = aggregates.iter().map(|aggregate| {
        let keeps_scale = matches!(aggregate.function.as_deref(), Some("sum" | "min" | "max"));
        (aggregate.column, aggregate.argument.as_ref().filter(|_| keeps_scale))
    });
    for (id, value) in keys.chain(arguments) {
        if let Some(value_scales) = value.and_then(|value| expression_scales(value, scales)) {
            scales.insert(id, value_scales);
        }
    }
}

fn add_node_scales(node: &Node, types: &Types, scales: &mut Scales) {
    for input in node.inputs() {
        add_node_scales(input, types, scales);
    }
    match node {
        Node::Scan { source, columns } => {
            let is_stage = matches!(source, Source::Stage(_));
            for (id, name) in columns {
                let stored = parse_stage_column(name).filter(|_| is_stage);
                let stored_scales = stored.and_then(|kept| scales.get(&kept));
                let declared_scale =
                    || types.get(id).and_then(|column_type| type_scale(&column_type.sql));
                let column_scales =
                    stored_scales.cloned().or_else(|| Some(BTreeSet::from([declared_scale()?])));
                if let (Some(found), false) = (column_scales, scales.contains_key(id)) {
                    scales.insert(*id, found);
                }
            }
        }
        Node::Project { columns, .. } => {
            for (id, expression) in columns {
                if let Some(found) = expression_scales(expression, scales) {
                    scales.insert(*id, found);
                }
            }
        }
        Node::UnionAll { inputs, columns } => {
            for (index, id) in columns.iter().enumerate() {
                let side_scales: Option<Vec<&BTreeSet<u32>>> =
                    inputs.iter().map(|(_, mapped)| scales.get(&mapped[index])).collect();
                if let Some(each) = side_scales {
                    let union_scales = each.into_iter().flatten().copied().collect();
                    scales.insert(*id, union_scales);
                }
            }
        }
        Node::Unit
        | Node::Filter { .. }
        | Node::TemporalFilter { .. }
        | Node::FlatMap { .. }
        | Node::Join { .. } => {}
    }
}

/// The possible scales of an expression's result, if they are known.
pub(crate) fn expression_scales(expression: &Expression, scales: &Scales) -> Option<BTreeSet<u32>> {
    if let Some(column) = expression.as_column() {
        return scales.get(&column).cloned();
    }
    node_scales(&parse_expression(&expression.to_internal_text()).ok()?, scales)
}

/// The scale that a type declares, if it does.
fn type_scale(sql: &str) -> Option<u32> {
    match sql {
        "smallint" | "integer" | "bigint" => Some(0),
        _ => {
            let (_, scale) = sql.strip_prefix("numeric(")?.strip_suffix(')')?.split_once(',')?;
            scale.parse().ok()
        }
    }
}

fn node_scales(node: &Parsed, scales: &Scales) -> Option<BTreeSet<u32>> {
    let operand_scales = |operand: &Option<Box<Parsed>>| node_scales(operand.as_deref()?, scales);
    match node.node.as_ref()? {
        NodeEnum::AConst(constant) => constant_scales(constant),
        NodeEnum::ColumnRef(_) => {
            let mark = print_expression(node).ok()?;
            let column = Expression::from_internal_text(&mark).as_column()?;
            scales.get(&column).cloned()
        }
        NodeEnum::TypeCast(cast) => match builtin_type_name(cast.type_name.as_ref()?)?.as_str() {
            "int2" | "int4" | "int8" => Some(BTreeSet::from([0])),
            "numeric" => operand_scales(&cast.arg),
            _ => None,
        },
        NodeEnum::AExpr(expr) if expr.kind == AExprKind::AexprOp as i32 => {
            operation_scales(expr, scales)
        }
        NodeEnum::CaseExpr(case) => {
            let results = case.args.iter().map(|when| match &when.node {
                Some(NodeEnum::CaseWhen(when)) => operand_scales(&when.result),
                _ => None,
            });
            let mut result_scales = BTreeSet::new();
            for result in results {
                result_scales.extend(result?);
            }
            if case.defresult.is_some() {
                result_scales.extend(operand_scales(&case.defresult)?);
            }
            Some(result_scales)
        }
        NodeEnum::FuncCall(call) => call_scales(call),
        NodeEnum::CoalesceExpr(expr) => {
            let mut all = BTreeSet::new();
            for arg in &expr.args {
                all.extend(node_scales(arg, scales)?);
            }
            Some(all)
        }
        _ => None,
    }
}

fn operation_scales(expr: &AExpr, scales: &Scales) -> Option<BTreeSet<u32>> {
    let operand_scales = |operand: &Option<Box<Parsed>>| node_scales(operand.as_deref()?, scales);
    let [name] = &expr.name[..] else {
        return None;
    };
    let Some(NodeEnum::String(name)) = &name.node else {
        return None;
    };
    let right = operand_scales(&expr.rexpr)?;
    if expr.lexpr.is_none() {
        return matches!(&name.sval[..], "-" | "+").then_some(right);
    }
    let left = operand_scales(&expr.lexpr)?;
    match &name.sval[..] {
        "+" | "-" => combine_scales(&left, &right, |one, other| one.max(other)),
        "*" => combine_scales(&left, &right, |one, other| one + other),
        _ => None,
    }
}

/// Of function calls only EXTRACT has a known scale: the server prints it as `pg_catalog.extract`,
/// which no user's function can shadow.
fn call_scales(call: &FuncCall) -> Option<BTreeSet<u32>> {
    let names = call.funcname.iter().map(|name| match &name.node {
        Some(NodeEnum::String(name)) => name.sval.as_str(),
        _ => "",
    });
    if !names.eq(["pg_catalog", "extract"]) {
        return None;
    }
    let Some(NodeEnum::AConst(field)) = &call.args.first()?.node else {
        return None;
    };
    let Some(a_const::Val::Sval(field)) = &field.val else {
        return None;
    };
    let field = field.sval.to_ascii_lowercase();
    match field.as_str() {
        field if WHOLE_FIELDS.contains(&field) => Some(BTreeSet::from([0])),
        field if INFINITE_FIELDS.contains(&field) => Some(BTreeSet::from([0, INFINITE_SCALE])),
        _ => None,
    }
}

fn constant_scales(constant: &AConst) -> Option<BTreeSet<u32>> {
    let digits = match &constant.val {
        None if constant.isnull => return Some(BTreeSet::new()),
        // Zero is written as nothing.
        None | Some(a_const::Val::Ival(_)) => return Some(BTreeSet::from([0])),
        Some(a_const::Val::Fval(number)) => &number.fval,
        Some(a_const::Val::Sval(text)) => &text.sval,
        _ => return None,
    };
    let fraction = match digits.strip_prefix('-').unwrap_or(digits).split_once('.') {
        Some((before, behind)) if is_digits(before) => behind,
        None if is_digits(digits) => "",
        _ => return None,
    };
    let scale = u32::try_from(fraction.len()).ok()?;
    is_digits(fraction).then(|| BTreeSet::from([scale]))
}

fn is_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The name of a type of PostgreSQL's own, without modifiers.
fn builtin_type_name(name: &TypeName) -> Option<String> {
    if !name.typmods.is_empty() || !name.array_bounds.is_empty() {
        return None;
    }
    let names = name.names.iter().filter_map(|part| match &part.node {
        Some(NodeEnum::String(name)) => Some(name.sval.as_str()),
        _ => None,
    });
    match names.collect::<Vec<_>>()[..] {
        [name] | ["pg_catalog", name] => Some(name.to_owned()),
        _ => None,
    }
}

fn combine_scales(
    left: &BTreeSet<u32>,
    right: &BTreeSet<u32>,
    combine: fn(u32, u32) -> u32,
) -> Option<BTreeSet<u32>> {
    let combined: BTreeSet<u32> =
        left.iter().flat_map(|one| right.iter().map(move |other| combine(*one, *other))).collect();
    combined.iter().all(|scale| *scale <= SCALE_MAX).then_some(combined)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_have_the_larger_scale_and_products_both() {
        let scales =
            Scales::from([(ColumnId(1), BTreeSet::from([2])), (ColumnId(2), BTreeSet::from([0]))]);
        let check = |text: &str, expected: Option<&[u32]>| {
            let scales_found = expression_scales(&Expression::from_internal_text(text), &scales);
            assert_eq!(scales_found, expected.map(|all| all.iter().copied().collect()), "{text}");
        };
        check("\"egret$1\"", Some(&[2]));
        check("\"egret$1\" * (1::numeric - \"egret$1\")", Some(&[4]));
        check("\"egret$1\" * ('0.125'::numeric + \"egret$2\"::numeric)", Some(&[5]));
        check("- \"egret$1\" * 100.00", Some(&[4]));
        check(
            "CASE WHEN \"egret$2\" > 0 THEN \"egret$1\" * \"egret$1\" ELSE 0::numeric END",
            Some(&[0, 4]),
        );
        check("CASE WHEN \"egret$2\" > 0 THEN \"egret$1\" END", Some(&[2]));
        check("COALESCE(\"egret$1\", NULL::numeric, 0.5)", Some(&[1, 2]));
        check("\"egret$1\" / 2::numeric", None);
        check("\"egret$3\" + 1::numeric", None);
        check("EXTRACT ('month' FROM \"egret$3\")", Some(&[0]));
        check("EXTRACT ('year' FROM \"egret$3\")", Some(&[0, INFINITE_SCALE]));
        check("EXTRACT ('year' FROM \"egret$3\") + 1", None);
        check("extract(second FROM \"egret$3\")", None);
        check("round(\"egret$1\")", None);
        check("'1e3'::numeric", None);
        check("'NaN'::numeric", None);
    }
}
