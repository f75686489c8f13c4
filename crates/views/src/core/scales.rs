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

use super::analyse::{parse_expression, text};
use super::column_types::Types;
use super::expression::{ColumnId, Expression, column_of_stage};
use super::tree::{Node, Source, Stage, StageContents};

/// The possible scales of a column's values, by column; an empty set if all values are null.
pub type Scales = BTreeMap<ColumnId, BTreeSet<u32>>;

/// Largest scale that is tracked: PostgreSQL limits the scale of results.
pub(crate) const SCALE_MAX: u32 = 500;

/// Stands for the scale of infinite numbers. Results computed from these have no known scale.
const INFINITE: u32 = SCALE_MAX + 1;

/// Fields that `EXTRACT` returns as whole numbers for dates and times (`timestamp_part_common` in
/// PostgreSQL's `timestamp.c`).
const WHOLE_FIELDS: [&str; 7] = ["dow", "doy", "isodow", "minute", "month", "quarter", "week"];

/// Fields that are whole numbers too, except for infinite values, where the result is infinite
/// (`NonFiniteTimestampTzPart` and `NonFiniteIntervalPart` there).
const INFINITE_FIELDS: [&str; 7] = [
    "century",
    "day",
    "decade",
    "hour",
    "isoyear",
    "millennium",
    "year",
];

/// Adds what is known of the columns of a stage, and of those that it reads. Decimal numbers of one
/// scale that are equal look the same.
pub(crate) fn add_scales(stage: &Stage, types: &mut Types, scales: &mut Scales) {
    add_of_stage(stage, types, scales);
    let has_one =
        |found: &BTreeSet<u32>| found.iter().filter(|one| **one <= SCALE_MAX).count() == 1;
    for (id, _) in scales.iter().filter(|(_, found)| has_one(found)) {
        if let Some(one) = types.get_mut(id).filter(|one| one.sql == "numeric") {
            one.is_exact = true;
        }
    }
}

fn add_of_stage(stage: &Stage, types: &Types, scales: &mut Scales) {
    add_of_node(&stage.input, types, scales);
    let StageContents::Groups { keys, aggregates } = &stage.contents else {
        return;
    };
    let keys = keys.iter().map(|(id, key)| (*id, Some(key)));
    let chosen = aggregates.iter().map(|one| {
        let is_one = matches!(one.function.as_deref(), Some("sum" | "min" | "max"));
        (one.column, one.argument.as_ref().filter(|_| is_one))
    });
    for (id, value) in keys.chain(chosen) {
        if let Some(found) = value.and_then(|value| of_expression(value, scales)) {
            scales.insert(id, found);
        }
    }
}

fn add_of_node(node: &Node, types: &Types, scales: &mut Scales) {
    for input in node.inputs() {
        add_of_node(input, types, scales);
    }
    match node {
        Node::Scan { source, columns } => {
            let is_stage = matches!(source, Source::Stage(_));
            for (id, name) in columns {
                let kept = column_of_stage(name).filter(|_| is_stage);
                let of_stage = kept.and_then(|kept| scales.get(&kept));
                let of_type = || types.get(id).and_then(|one| of_type(&one.sql));
                let found = of_stage
                    .cloned()
                    .or_else(|| Some(BTreeSet::from([of_type()?])));
                if let (Some(found), false) = (found, scales.contains_key(id)) {
                    scales.insert(*id, found);
                }
            }
        }
        Node::Project { columns, .. } => {
            for (id, expression) in columns {
                if let Some(found) = of_expression(expression, scales) {
                    scales.insert(*id, found);
                }
            }
        }
        Node::UnionAll { inputs, columns } => {
            for (at, id) in columns.iter().enumerate() {
                let each: Option<Vec<&BTreeSet<u32>>> = inputs
                    .iter()
                    .map(|(_, mapped)| scales.get(&mapped[at]))
                    .collect();
                if let Some(each) = each {
                    let all = each.into_iter().flatten().copied().collect();
                    scales.insert(*id, all);
                }
            }
        }
        Node::Unit
        | Node::Filter { .. }
        | Node::Recent { .. }
        | Node::Expand { .. }
        | Node::Join { .. } => {}
    }
}

/// The possible scales of an expression's result, if they are known.
pub(crate) fn of_expression(expression: &Expression, scales: &Scales) -> Option<BTreeSet<u32>> {
    if let Some(column) = expression.as_column() {
        return scales.get(&column).cloned();
    }
    of_node(&parse_expression(&expression.marked()).ok()?, scales)
}

/// The scale that a type declares, if it does.
fn of_type(sql: &str) -> Option<u32> {
    match sql {
        "smallint" | "integer" | "bigint" => Some(0),
        _ => {
            let (_, scale) = sql
                .strip_prefix("numeric(")?
                .strip_suffix(')')?
                .split_once(',')?;
            scale.parse().ok()
        }
    }
}

fn of_node(node: &Parsed, scales: &Scales) -> Option<BTreeSet<u32>> {
    let of = |one: &Option<Box<Parsed>>| of_node(one.as_deref()?, scales);
    match node.node.as_ref()? {
        NodeEnum::AConst(constant) => of_constant(constant),
        NodeEnum::ColumnRef(_) => {
            let mark = text(node).ok()?;
            let column = Expression::read(&mark).as_column()?;
            scales.get(&column).cloned()
        }
        NodeEnum::TypeCast(cast) => match named(cast.type_name.as_ref()?)?.as_str() {
            "int2" | "int4" | "int8" => Some(BTreeSet::from([0])),
            "numeric" => of(&cast.arg),
            _ => None,
        },
        NodeEnum::AExpr(expr) if expr.kind == AExprKind::AexprOp as i32 => {
            of_operation(expr, scales)
        }
        NodeEnum::CaseExpr(case) => {
            let results = case.args.iter().map(|when| match &when.node {
                Some(NodeEnum::CaseWhen(when)) => of(&when.result),
                _ => None,
            });
            let mut all = BTreeSet::new();
            for result in results {
                all.extend(result?);
            }
            if case.defresult.is_some() {
                all.extend(of(&case.defresult)?);
            }
            Some(all)
        }
        NodeEnum::FuncCall(call) => of_call(call),
        NodeEnum::CoalesceExpr(expr) => {
            let mut all = BTreeSet::new();
            for arg in &expr.args {
                all.extend(of_node(arg, scales)?);
            }
            Some(all)
        }
        _ => None,
    }
}

fn of_operation(expr: &AExpr, scales: &Scales) -> Option<BTreeSet<u32>> {
    let of = |one: &Option<Box<Parsed>>| of_node(one.as_deref()?, scales);
    let [name] = &expr.name[..] else {
        return None;
    };
    let Some(NodeEnum::String(name)) = &name.node else {
        return None;
    };
    let right = of(&expr.rexpr)?;
    if expr.lexpr.is_none() {
        return matches!(&name.sval[..], "-" | "+").then_some(right);
    }
    let left = of(&expr.lexpr)?;
    match &name.sval[..] {
        "+" | "-" => pairs(&left, &right, |one, other| one.max(other)),
        "*" => pairs(&left, &right, |one, other| one + other),
        _ => None,
    }
}

/// Of function calls only EXTRACT has a known scale: the server prints it as `pg_catalog.extract`,
/// which no user's function can shadow.
fn of_call(call: &FuncCall) -> Option<BTreeSet<u32>> {
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
        field if INFINITE_FIELDS.contains(&field) => Some(BTreeSet::from([0, INFINITE])),
        _ => None,
    }
}

fn of_constant(constant: &AConst) -> Option<BTreeSet<u32>> {
    let digits = match &constant.val {
        None if constant.isnull => return Some(BTreeSet::new()),
        // Zero is written as nothing.
        None | Some(a_const::Val::Ival(_)) => return Some(BTreeSet::from([0])),
        Some(a_const::Val::Fval(number)) => &number.fval,
        Some(a_const::Val::Sval(text)) => &text.sval,
        _ => return None,
    };
    let behind = match digits.strip_prefix('-').unwrap_or(digits).split_once('.') {
        Some((before, behind)) if is_digits(before) => behind,
        None if is_digits(digits) => "",
        _ => return None,
    };
    let scale = u32::try_from(behind.len()).ok()?;
    is_digits(behind).then(|| BTreeSet::from([scale]))
}

fn is_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The name of a type of PostgreSQL's own, without modifiers.
fn named(name: &TypeName) -> Option<String> {
    if !name.typmods.is_empty() || !name.array_bounds.is_empty() {
        return None;
    }
    let names = name.names.iter().filter_map(|one| match &one.node {
        Some(NodeEnum::String(name)) => Some(name.sval.as_str()),
        _ => None,
    });
    match names.collect::<Vec<_>>()[..] {
        [name] | ["pg_catalog", name] => Some(name.to_owned()),
        _ => None,
    }
}

fn pairs(
    some: &BTreeSet<u32>,
    others: &BTreeSet<u32>,
    of: fn(u32, u32) -> u32,
) -> Option<BTreeSet<u32>> {
    let all: BTreeSet<u32> = some
        .iter()
        .flat_map(|one| others.iter().map(move |other| of(*one, *other)))
        .collect();
    all.iter().all(|scale| *scale <= SCALE_MAX).then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_have_the_larger_scale_and_products_both() {
        let scales = Scales::from([
            (ColumnId(1), BTreeSet::from([2])),
            (ColumnId(2), BTreeSet::from([0])),
        ]);
        let check = |text: &str, expected: Option<&[u32]>| {
            let found = of_expression(&Expression::read(text), &scales);
            assert_eq!(
                found,
                expected.map(|all| all.iter().copied().collect()),
                "{text}"
            );
        };
        check("\"egret$1\"", Some(&[2]));
        check("\"egret$1\" * (1::numeric - \"egret$1\")", Some(&[4]));
        check(
            "\"egret$1\" * ('0.125'::numeric + \"egret$2\"::numeric)",
            Some(&[5]),
        );
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
        check("EXTRACT ('year' FROM \"egret$3\")", Some(&[0, INFINITE]));
        check("EXTRACT ('year' FROM \"egret$3\") + 1", None);
        check("extract(second FROM \"egret$3\")", None);
        check("round(\"egret$1\")", None);
        check("'1e3'::numeric", None);
        check("'NaN'::numeric", None);
    }
}
