//! Expands GROUP BY to grouping sets.

use std::collections::BTreeSet;

use pg_query::NodeEnum;
use pg_query::protobuf::{GroupingSet, GroupingSetKind, Node as Parsed, SelectStmt};

use super::Analysis;
use super::aggregates::is_expression;
use super::children::children;
use super::expressions::{expression, is_marked, marked, names_of, text};
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
    let mut all: Vec<Set> = vec![Vec::new()];
    for item in &query.group_clause {
        all = product(&all, &sets_of(item, key)?)?;
    }
    for set in &mut all {
        let mut seen = Vec::new();
        set.retain(|key| {
            let is_new = !seen.contains(key);
            seen.push(key.clone());
            is_new
        });
    }
    if query.group_distinct {
        let mut seen: Vec<Set> = Vec::new();
        all.retain(|set| {
            let same =
                |other: &Set| other.len() == set.len() && other.iter().all(|key| set.contains(key));
            let is_new = !seen.iter().any(same);
            seen.push(set.clone());
            is_new
        });
    }
    Ok(all)
}

/// Terms that are computed in each grouping set: keys, aggregates and GROUPING. Expressions over
/// them are computed on the union of all sets.
pub(crate) struct GroupTerms<'a> {
    pub scope: &'a Scope,
    /// The keys of all grouping sets.
    pub keys: &'a [Expression],
    /// Columns of subqueries, which are joined with the groups of each set.
    pub values: BTreeSet<ColumnId>,
    pub found: Vec<(ColumnId, String, Parsed)>,
}

impl Analysis<'_> {
    /// Takes these terms out of an expression; a column stands for each.
    pub(super) fn take_leaves(
        &mut self,
        node: &mut Parsed,
        leaves: &mut GroupTerms<'_>,
    ) -> Result<(), Refusal> {
        if self.is_leaf(node, leaves)? {
            let said = text(node)?;
            let known = leaves.found.iter().find(|(_, known, _)| *known == said);
            let column = match known {
                Some((column, ..)) => *column,
                None => {
                    let column = self.new_column();
                    leaves.found.push((column, said, node.clone()));
                    column
                }
            };
            node.node = Some(marked(column));
            return Ok(());
        }
        let Some(inner) = &mut node.node else {
            return Ok(());
        };
        for child in children(inner)? {
            self.take_leaves(child, leaves)?;
        }
        Ok(())
    }

    fn is_leaf(&self, node: &Parsed, leaves: &GroupTerms<'_>) -> Result<bool, Refusal> {
        Ok(match &node.node {
            None => false,
            Some(NodeEnum::ColumnRef(column)) if is_marked(column) => {
                let names = names_of(column).concat();
                let mark = Expression::read(&format!("\"{names}\""));
                mark.as_column()
                    .is_some_and(|id| leaves.values.contains(&id))
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
                    && expression(node, leaves.scope).is_ok_and(|one| leaves.keys.contains(&one))
            }
        })
    }
}

fn product(some: &[Set], others: &[Set]) -> Result<Vec<Set>, Refusal> {
    if some.len() * others.len() > SETS_MAX {
        let what = format!("more than {SETS_MAX} grouping sets");
        return Err(Refusal::new(what, -1, "create several views"));
    }
    let pairs = some
        .iter()
        .flat_map(|one| others.iter().map(move |other| [&one[..], other].concat()));
    Ok(pairs.collect())
}

fn sets_of(
    item: &Parsed,
    key: &impl Fn(&Parsed) -> Result<Expression, Refusal>,
) -> Result<Vec<Set>, Refusal> {
    let Some(NodeEnum::GroupingSet(set)) = &item.node else {
        return Ok(vec![keys_of(item, key)?]);
    };
    let members = || set.content.iter().map(|one| keys_of(one, key));
    Ok(match GroupingSetKind::try_from(set.kind) {
        Ok(GroupingSetKind::GroupingSetEmpty) => vec![Vec::new()],
        Ok(GroupingSetKind::GroupingSetRollup) => {
            let members: Vec<Set> = members().collect::<Result<_, _>>()?;
            let lengths = (0..=members.len()).rev();
            lengths.map(|length| members[..length].concat()).collect()
        }
        Ok(GroupingSetKind::GroupingSetCube) => {
            let members: Vec<Set> = members().collect::<Result<_, _>>()?;
            members
                .iter()
                .rev()
                .try_fold(vec![Vec::new()], |all, one| {
                    product(&[one.clone(), Vec::new()], &all)
                })?
        }
        Ok(GroupingSetKind::GroupingSetSets) => nested(set, key)?,
        _ => vec![members().collect::<Result<Vec<_>, _>>()?.concat()],
    })
}

fn nested(
    set: &GroupingSet,
    key: &impl Fn(&Parsed) -> Result<Expression, Refusal>,
) -> Result<Vec<Set>, Refusal> {
    let mut all = Vec::new();
    for one in &set.content {
        all.extend(sets_of(one, key)?);
    }
    Ok(all)
}

/// A key, or several keys in parentheses.
fn keys_of(
    item: &Parsed,
    key: &impl Fn(&Parsed) -> Result<Expression, Refusal>,
) -> Result<Set, Refusal> {
    match &item.node {
        Some(NodeEnum::RowExpr(row)) if row.row_format == IMPLICIT => {
            row.args.iter().map(key).collect()
        }
        Some(NodeEnum::List(list)) => list.items.iter().map(key).collect(),
        Some(NodeEnum::GroupingSet(set)) if set.content.is_empty() => Ok(Vec::new()),
        _ => Ok(vec![key(item)?]),
    }
}

/// A row constructor without the word ROW: keys in parentheses.
const IMPLICIT: i32 = pg_query::protobuf::CoercionForm::CoerceImplicitCast as i32;
