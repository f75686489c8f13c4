//! Expands GROUP BY to grouping sets.

use std::collections::BTreeSet;

use pg_query::NodeEnum;
use pg_query::protobuf::{GroupingSet, GroupingSetKind, Node as Parsed, SelectStmt};

use super::Analysis;
use super::aggregates::is_expression;
use super::children::children;
use super::expressions::{
    internal_reference, is_internal_reference, print_expression, reference_names,
    resolve_expression,
};
use super::scope::Scope;
use crate::core::expression::{ColumnId, Expression};
use crate::core::refusal::Refusal;

/// Most grouping sets of a query: as many as a `CUBE` of eight keys has.
const SETS_MAX: usize = 256;

type Set = Vec<Expression>;

/// The keys of each grouping set; a single empty set without GROUP BY. `key` resolves an
/// expression.
pub fn grouping_sets(
    query: &SelectStmt,
    key: &impl Fn(&Parsed) -> Result<Expression, Refusal>,
) -> Result<Vec<Set>, Refusal> {
    let mut sets: Vec<Set> = vec![Vec::new()];
    for item in &query.group_clause {
        sets = cross_product(&sets, &item_sets(item, key)?)?;
    }
    for set in &mut sets {
        let mut seen = Vec::new();
        set.retain(|key| {
            let is_new = !seen.contains(key);
            seen.push(key.clone());
            is_new
        });
    }
    if query.group_distinct {
        let mut seen: Vec<Set> = Vec::new();
        sets.retain(|set| {
            let is_same =
                |other: &Set| other.len() == set.len() && other.iter().all(|key| set.contains(key));
            let is_new = !seen.iter().any(is_same);
            seen.push(set.clone());
            is_new
        });
    }
    Ok(sets)
}

/// Terms that are computed in each grouping set: keys, aggregates and GROUPING. Expressions over
/// them are computed on the union of all sets.
pub(crate) struct GroupTerms<'a> {
    pub scope: &'a Scope,
    /// The keys of all grouping sets.
    pub keys: &'a [Expression],
    /// Columns of subqueries, which are joined with the groups of each set.
    pub subquery_columns: BTreeSet<ColumnId>,
    pub extracted: Vec<(ColumnId, String, Parsed)>,
}

impl Analysis<'_> {
    /// Takes these terms out of an expression; a column stands for each.
    pub(super) fn extract_group_terms(
        &mut self,
        node: &mut Parsed,
        terms: &mut GroupTerms<'_>,
    ) -> Result<(), Refusal> {
        if self.is_group_term(node, terms)? {
            let printed = print_expression(node)?;
            let known_term = terms.extracted.iter().find(|(_, known, _)| *known == printed);
            let column = match known_term {
                Some((column, ..)) => *column,
                None => {
                    let column = self.new_column();
                    terms.extracted.push((column, printed, node.clone()));
                    column
                }
            };
            node.node = Some(internal_reference(column));
            return Ok(());
        }
        let Some(inner) = &mut node.node else {
            return Ok(());
        };
        for child in children(inner)? {
            self.extract_group_terms(child, terms)?;
        }
        Ok(())
    }

    fn is_group_term(&self, node: &Parsed, terms: &GroupTerms<'_>) -> Result<bool, Refusal> {
        Ok(match &node.node {
            None => false,
            Some(NodeEnum::ColumnRef(column)) if is_internal_reference(column) => {
                let names = reference_names(column).concat();
                let mark = Expression::from_internal_text(&format!("\"{names}\""));
                mark.as_column().is_some_and(|id| terms.subquery_columns.contains(&id))
            }
            Some(NodeEnum::ColumnRef(_) | NodeEnum::GroupingFunc(_)) => true,
            Some(NodeEnum::FuncCall(call))
                if call.over.is_none() && self.facts.is_aggregate(call) =>
            {
                true
            }
            Some(NodeEnum::AConst(_) | NodeEnum::List(_) | NodeEnum::String(_)) => false,
            Some(other) => {
                is_expression(other)
                    && resolve_expression(node, terms.scope)
                        .is_ok_and(|resolved| terms.keys.contains(&resolved))
            }
        })
    }
}

fn cross_product(some: &[Set], others: &[Set]) -> Result<Vec<Set>, Refusal> {
    if some.len() * others.len() > SETS_MAX {
        let construct = format!("more than {SETS_MAX} grouping sets");
        return Err(Refusal::new(construct, -1, "create several views"));
    }
    let pairs =
        some.iter().flat_map(|left| others.iter().map(move |right| [&left[..], right].concat()));
    Ok(pairs.collect())
}

fn item_sets(
    item: &Parsed,
    key: &impl Fn(&Parsed) -> Result<Expression, Refusal>,
) -> Result<Vec<Set>, Refusal> {
    let Some(NodeEnum::GroupingSet(set)) = &item.node else {
        return Ok(vec![item_keys(item, key)?]);
    };
    let members = || set.content.iter().map(|member| item_keys(member, key));
    Ok(match GroupingSetKind::try_from(set.kind) {
        Ok(GroupingSetKind::GroupingSetEmpty) => vec![Vec::new()],
        Ok(GroupingSetKind::GroupingSetRollup) => {
            let members: Vec<Set> = members().collect::<Result<_, _>>()?;
            let lengths = (0..=members.len()).rev();
            lengths.map(|length| members[..length].concat()).collect()
        }
        Ok(GroupingSetKind::GroupingSetCube) => {
            let members: Vec<Set> = members().collect::<Result<_, _>>()?;
            members.iter().rev().try_fold(vec![Vec::new()], |sets, one| {
                cross_product(&[one.clone(), Vec::new()], &sets)
            })?
        }
        Ok(GroupingSetKind::GroupingSetSets) => nested_sets(set, key)?,
        _ => vec![members().collect::<Result<Vec<_>, _>>()?.concat()],
    })
}

fn nested_sets(
    set: &GroupingSet,
    key: &impl Fn(&Parsed) -> Result<Expression, Refusal>,
) -> Result<Vec<Set>, Refusal> {
    let mut sets = Vec::new();
    for item in &set.content {
        sets.extend(item_sets(item, key)?);
    }
    Ok(sets)
}

/// A key, or several keys in parentheses.
fn item_keys(
    item: &Parsed,
    key: &impl Fn(&Parsed) -> Result<Expression, Refusal>,
) -> Result<Set, Refusal> {
    match &item.node {
        Some(NodeEnum::RowExpr(row)) if row.row_format == IMPLICIT_ROW_FORMAT => {
            row.args.iter().map(key).collect()
        }
        Some(NodeEnum::List(list)) => list.items.iter().map(key).collect(),
        Some(NodeEnum::GroupingSet(set)) if set.content.is_empty() => Ok(Vec::new()),
        _ => Ok(vec![key(item)?]),
    }
}

/// A row constructor without the word ROW: keys in parentheses.
const IMPLICIT_ROW_FORMAT: i32 = pg_query::protobuf::CoercionForm::CoerceImplicitCast as i32;
