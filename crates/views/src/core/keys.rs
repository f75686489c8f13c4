//! Keys by which the rows of stages are identified.
//!
//! A row with a key is found by it, and changes in its place. Keys of tables are declared, groups
//! have what they are grouped by, and rows of a join have the keys of both sides. Rows of UNION ALL
//! have the number of the query they are of, and the key they have there, where all of these are
//! alike.

use super::expression::{ColumnId, Expression, stage_column};
use super::tree::{JoinKind, Node, Plan, Source, StageContents};

/// A column of a key, by its name, with its type where that is known.
pub(crate) type KeyColumn = (String, Option<String>);

/// A column of a key.
type Part = (ColumnId, Option<String>);

/// Adds the key columns to the stages whose rows have a key, and returns the keys. To be called
/// before unused columns are pruned.
pub(crate) fn with_keys(
    plan: &mut Plan,
    of_tables: &impl Fn(usize) -> Option<Vec<KeyColumn>>,
) -> Vec<Option<Vec<ColumnId>>> {
    let mut next = next_column(plan);
    let mut all: Vec<Option<Vec<Part>>> = Vec::new();
    for stage in &mut plan.stages {
        let keys = |source: Source| match source {
            Source::Table(at) => of_tables(at),
            Source::Itself => None,
            Source::Stage(at) => {
                let parts = all[at].as_ref()?.iter();
                Some(
                    parts
                        .map(|(id, kind)| (stage_column(*id), kind.clone()))
                        .collect(),
                )
            }
        };
        let key = match &stage.contents {
            StageContents::Groups { keys, .. } => {
                Some(keys.iter().map(|(id, _)| (*id, None)).collect())
            }
            // How its rows come of each other says nothing of what tells them apart.
            StageContents::Recursion { .. } => None,
            _ => key_of(&mut stage.input, &keys, &mut next),
        };
        if let (Some(key), Some(columns)) = (&key, stage.contents.rows_mut()) {
            let missing: Vec<ColumnId> = key
                .iter()
                .map(|(id, _)| *id)
                .filter(|id| !columns.contains(id))
                .collect();
            columns.extend(missing);
        }
        all.push(key);
    }
    let all = all.into_iter();
    all.map(|key| key.map(|key| key.into_iter().map(|(id, _)| id).collect()))
        .collect()
}

/// A number above those of all columns of a plan.
fn next_column(plan: &Plan) -> u32 {
    let kept = plan.stages.iter().flat_map(|stage| {
        let read = stage.input.all_columns();
        read.into_iter().chain(stage.contents.columns())
    });
    let shown = plan.presentation.node.all_columns();
    kept.chain(shown).map(|id| id.0).max().unwrap_or_default() + 1
}

/// The columns that identify the rows of a node; none if it has no key.
fn key_of(
    node: &mut Node,
    keys: &impl Fn(Source) -> Option<Vec<KeyColumn>>,
    next: &mut u32,
) -> Option<Vec<Part>> {
    match node {
        Node::Unit => Some(Vec::new()),
        Node::Scan { source, columns } => {
            let find = |(name, kind): KeyColumn| {
                let found = columns.iter().find(|(_, other)| *other == name);
                found.map(|(id, _)| (*id, kind))
            };
            keys(*source)?.into_iter().map(find).collect()
        }
        Node::Filter { input, .. } | Node::Recent { input, .. } | Node::Project { input, .. } => {
            key_of(input, keys, next)
        }
        Node::Join {
            kind: JoinKind::Semi | JoinKind::Anti,
            left,
            ..
        } => key_of(left, keys, next),
        Node::Join {
            kind, left, right, ..
        } => {
            let sides = [key_of(left, keys, next)?, key_of(right, keys, next)?];
            // A row of one side without a match has nulls for the other side's key. It is unique
            // only if one side's key cannot be null.
            let is_there =
                |side: &Vec<Part>| !side.is_empty() && side.iter().all(|(_, kind)| kind.is_some());
            let tells = *kind != JoinKind::Full || sides.iter().any(is_there);
            tells.then(|| sides.concat())
        }
        Node::UnionAll { .. } => of_union(node, keys, next),
        Node::Expand { .. } => None,
    }
}

/// The key of UNION ALL: the number of the input and the input's key, which become columns of the
/// union. None unless all inputs have keys of the same types.
fn of_union(
    node: &mut Node,
    keys: &impl Fn(Source) -> Option<Vec<KeyColumn>>,
    next: &mut u32,
) -> Option<Vec<Part>> {
    let Node::UnionAll { inputs, columns } = node else {
        return None;
    };
    let each = inputs
        .iter_mut()
        .map(|(input, _)| key_of(input, keys, next))
        .collect::<Option<Vec<Vec<Part>>>>()?;
    let types = |key: &[Part]| key.iter().map(|(_, kind)| kind.clone()).collect();
    let of_first: Vec<Option<String>> = types(each.first()?);
    let are_alike =
        of_first.iter().all(Option::is_some) && each.iter().all(|key| types(key) == of_first);
    if !are_alike {
        return None;
    }
    let mut new_column = || {
        *next += 1;
        ColumnId(*next)
    };
    for (at, ((input, mapped), key)) in inputs.iter_mut().zip(each).enumerate() {
        let number = new_column();
        let of_query = Expression::constant(&at.to_string());
        // The types of the sides are made alike in what is outermost of each.
        match input {
            Node::Project { columns, .. } => columns.push((number, of_query)),
            _ => {
                let inner = std::mem::replace(input, Node::Unit);
                *input = Node::Project {
                    input: Box::new(inner),
                    columns: vec![(number, of_query)],
                };
            }
        }
        mapped.push(number);
        mapped.extend(key.iter().map(|(id, _)| *id));
    }
    let number = (new_column(), Some("integer".to_owned()));
    let parts = of_first.into_iter().map(|kind| (new_column(), kind));
    let key: Vec<Part> = std::iter::once(number).chain(parts).collect();
    columns.extend(key.iter().map(|(id, _)| *id));
    Some(key)
}
