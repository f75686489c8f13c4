//! Keys by which the rows of stages are identified.
//!
//! A row with a key is found by it, and changes in its place. Keys of tables are declared, groups
//! have what they are grouped by, and rows of a join have the keys of both sides. Rows of UNION ALL
//! have the number of the query they are of, and the key they have there, where all of these are
//! alike.

use super::expression::{ColumnId, Expression, stage_column_name};
use super::tree::{JoinKind, Node, Plan, Source, StageContents};

/// A column of a key, by its name, with its type where that is known.
pub(crate) type KeyColumn = (String, Option<String>);

/// A column of a key.
type Part = (ColumnId, Option<String>);

/// Adds the key columns to the stages whose rows have a key, and returns the keys. To be called
/// before unused columns are pruned.
pub(crate) fn add_keys(
    plan: &mut Plan,
    table_key: &impl Fn(usize) -> Option<Vec<KeyColumn>>,
) -> Vec<Option<Vec<ColumnId>>> {
    let mut next = unused_column_number(plan);
    let mut stage_keys: Vec<Option<Vec<Part>>> = Vec::new();
    for stage in &mut plan.stages {
        let source_key = |source: Source| match source {
            Source::Table(at) => table_key(at),
            Source::Recursion => None,
            Source::Stage(at) => {
                let parts = stage_keys[at].as_ref()?.iter();
                Some(parts.map(|(id, kind)| (stage_column_name(*id), kind.clone())).collect())
            }
        };
        let key = match &stage.contents {
            StageContents::Groups { keys, .. } => {
                Some(keys.iter().map(|(id, _)| (*id, None)).collect())
            }
            // How its rows come of each other says nothing of what tells them apart.
            StageContents::Recursion { .. } => None,
            _ => node_key(&mut stage.input, &source_key, &mut next),
        };
        if let (Some(key), Some(columns)) = (&key, stage.contents.row_columns_mut()) {
            let missing: Vec<ColumnId> =
                key.iter().map(|(id, _)| *id).filter(|id| !columns.contains(id)).collect();
            columns.extend(missing);
        }
        stage_keys.push(key);
    }
    let all = stage_keys.into_iter();
    all.map(|key| key.map(|key| key.into_iter().map(|(id, _)| id).collect())).collect()
}

/// A number above those of all columns of a plan.
fn unused_column_number(plan: &Plan) -> u32 {
    let stage_columns = plan.stages.iter().flat_map(|stage| {
        let input_columns = stage.input.all_columns();
        input_columns.into_iter().chain(stage.contents.columns())
    });
    let presented = plan.presentation.node.all_columns();
    stage_columns.chain(presented).map(|id| id.0).max().unwrap_or_default() + 1
}

/// The columns that identify the rows of a node; none if it has no key.
fn node_key(
    node: &mut Node,
    source_key: &impl Fn(Source) -> Option<Vec<KeyColumn>>,
    next_number: &mut u32,
) -> Option<Vec<Part>> {
    match node {
        Node::Unit => Some(Vec::new()),
        Node::Scan { source, columns } => {
            let find_column = |(name, kind): KeyColumn| {
                let column = columns.iter().find(|(_, other)| *other == name);
                column.map(|(id, _)| (*id, kind))
            };
            source_key(*source)?.into_iter().map(find_column).collect()
        }
        Node::Filter { input, .. }
        | Node::TemporalFilter { input, .. }
        | Node::Project { input, .. } => node_key(input, source_key, next_number),
        Node::Join { kind: JoinKind::Semi | JoinKind::Anti, left, .. } => {
            node_key(left, source_key, next_number)
        }
        Node::Join { kind, left, right, .. } => {
            let sides = [
                node_key(left, source_key, next_number)?,
                node_key(right, source_key, next_number)?,
            ];
            // A row of one side without a match has nulls for the other side's key. It is unique
            // only if one side's key cannot be null.
            let is_never_null =
                |side: &Vec<Part>| !side.is_empty() && side.iter().all(|(_, kind)| kind.is_some());
            let is_key = *kind != JoinKind::Full || sides.iter().any(is_never_null);
            is_key.then(|| sides.concat())
        }
        Node::UnionAll { .. } => union_key(node, source_key, next_number),
        Node::FlatMap { .. } => None,
    }
}

/// The key of UNION ALL: the number of the input and the input's key, which become columns of the
/// union. None unless all inputs have keys of the same types.
fn union_key(
    node: &mut Node,
    source_key: &impl Fn(Source) -> Option<Vec<KeyColumn>>,
    next_number: &mut u32,
) -> Option<Vec<Part>> {
    let Node::UnionAll { inputs, columns } = node else {
        return None;
    };
    let input_keys = inputs
        .iter_mut()
        .map(|(input, _)| node_key(input, source_key, next_number))
        .collect::<Option<Vec<Vec<Part>>>>()?;
    let key_types = |key: &[Part]| key.iter().map(|(_, kind)| kind.clone()).collect();
    let first_types: Vec<Option<String>> = key_types(input_keys.first()?);
    let are_alike = first_types.iter().all(Option::is_some)
        && input_keys.iter().all(|key| key_types(key) == first_types);
    if !are_alike {
        return None;
    }
    let mut new_column = || {
        *next_number += 1;
        ColumnId(*next_number)
    };
    for (input_index, ((input, mapped), key)) in inputs.iter_mut().zip(input_keys).enumerate() {
        let number = new_column();
        let input_number = Expression::constant(&input_index.to_string());
        // The types of the sides are made alike in what is outermost of each.
        match input {
            Node::Project { columns, .. } => columns.push((number, input_number)),
            _ => {
                let inner = std::mem::replace(input, Node::Unit);
                *input =
                    Node::Project { input: Box::new(inner), columns: vec![(number, input_number)] };
            }
        }
        mapped.push(number);
        mapped.extend(key.iter().map(|(id, _)| *id));
    }
    let number = (new_column(), Some("integer".to_owned()));
    let parts = first_types.into_iter().map(|kind| (new_column(), kind));
    let key: Vec<Part> = std::iter::once(number).chain(parts).collect();
    columns.extend(key.iter().map(|(id, _)| *id));
    Some(key)
}
