//! Properties of columns that are known without asking the server.

use super::Analysis;
use super::facts::RelationKind;
use crate::core::expression::{ColumnId, parse_stage_column};
use crate::core::tree::{JoinKind, Node, Source, StageContents};

/// Properties of a column that are known without asking the server.
#[derive(Clone, Copy, Default)]
pub(crate) struct ColumnProperties {
    pub is_not_null: bool,
    pub is_exact: bool,
}

impl Analysis<'_> {
    /// The properties of a column of an operator.
    pub(super) fn column_properties(&self, node: &Node, column: ColumnId) -> ColumnProperties {
        match node {
            Node::Unit => ColumnProperties::default(),
            Node::Scan { source, columns } => {
                let scanned = columns.iter().find(|(id, _)| *id == column);
                scanned.map_or(ColumnProperties::default(), |(_, name)| {
                    self.stored_properties(*source, name)
                })
            }
            Node::Filter { input, .. } | Node::TemporalFilter { input, .. } => {
                self.column_properties(input, column)
            }
            Node::Project { input, columns } => {
                match columns.iter().find(|(id, _)| *id == column) {
                    None => self.column_properties(input, column),
                    Some((_, expression)) => match expression.as_column() {
                        Some(source_column) => self.column_properties(input, source_column),
                        None => ColumnProperties::default(),
                    },
                }
            }
            Node::FlatMap { input, columns, .. } => {
                if columns.iter().any(|(id, _)| *id == column) {
                    ColumnProperties::default()
                } else {
                    self.column_properties(input, column)
                }
            }
            Node::Join { kind, left, right, .. } => {
                let is_left = left.columns().contains(&column);
                let mut properties =
                    self.column_properties(if is_left { left } else { right }, column);
                properties.is_not_null &= match kind {
                    JoinKind::Inner | JoinKind::Semi | JoinKind::Anti => true,
                    JoinKind::Left => is_left,
                    JoinKind::Full => false,
                };
                properties
            }
            Node::UnionAll { inputs, columns } => {
                let index = columns.iter().position(|id| *id == column);
                let side_properties = inputs.iter().filter_map(|(input, mapped)| {
                    let side_column = mapped.get(index?)?;
                    Some(self.column_properties(input, *side_column))
                });
                let combine = |one: ColumnProperties, other: ColumnProperties| ColumnProperties {
                    is_not_null: one.is_not_null && other.is_not_null,
                    is_exact: one.is_exact && other.is_exact,
                };
                side_properties.reduce(combine).unwrap_or_default()
            }
        }
    }

    fn stored_properties(&self, source: Source, name: &str) -> ColumnProperties {
        match source {
            Source::Table(table_index) => {
                let mut relations = self.facts.relations.values();
                let found = relations
                    .find(|relation| matches!(relation.kind, RelationKind::Table(other) if other == table_index));
                found.map_or(ColumnProperties::default(), |found| ColumnProperties {
                    is_not_null: found.not_null.contains(name),
                    is_exact: found.exact.contains(name),
                })
            }
            Source::Recursion => ColumnProperties::default(),
            Source::Stage(stage_index) => {
                let (stage, Some(column)) = (&self.stages[stage_index], parse_stage_column(name))
                else {
                    return ColumnProperties::default();
                };
                match &stage.contents {
                    StageContents::Groups { keys, .. } => {
                        let key = keys.iter().find(|(id, _)| *id == column);
                        let key_column = key.and_then(|(_, key)| key.as_column());
                        key_column.map_or(ColumnProperties::default(), |of| {
                            self.column_properties(&stage.input, of)
                        })
                    }
                    StageContents::Recursion { .. } => ColumnProperties::default(),
                    StageContents::Rows { .. }
                    | StageContents::TopK { .. }
                    | StageContents::Partitions { .. } => {
                        if stage.input.columns().contains(&column) {
                            self.column_properties(&stage.input, column)
                        } else {
                            ColumnProperties::default()
                        }
                    }
                }
            }
        }
    }
}
