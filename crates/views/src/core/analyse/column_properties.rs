//! Properties of columns that are known without asking the server.

use super::Analysis;
use super::facts::RelationKind;
use crate::core::expression::{ColumnId, column_of_stage};
use crate::core::tree::{JoinKind, Node, Source, StageContents};

/// Properties of a column that are known without asking the server.
#[derive(Clone, Copy, Default)]
pub(crate) struct ColumnProperties {
    pub is_not_null: bool,
    pub is_exact: bool,
}

impl Analysis<'_> {
    /// The properties of a column of an operator.
    pub(super) fn nature(&self, node: &Node, column: ColumnId) -> ColumnProperties {
        match node {
            Node::Unit => ColumnProperties::default(),
            Node::Scan { source, columns } => {
                let found = columns.iter().find(|(id, _)| *id == column);
                found.map_or(ColumnProperties::default(), |(_, name)| {
                    self.stored_as(*source, name)
                })
            }
            Node::Filter { input, .. } | Node::Recent { input, .. } => self.nature(input, column),
            Node::Project { input, columns } => {
                match columns.iter().find(|(id, _)| *id == column) {
                    None => self.nature(input, column),
                    Some((_, expression)) => match expression.as_column() {
                        Some(of) => self.nature(input, of),
                        None => ColumnProperties::default(),
                    },
                }
            }
            Node::Expand { input, columns, .. } => {
                if columns.iter().any(|(id, _)| *id == column) {
                    ColumnProperties::default()
                } else {
                    self.nature(input, column)
                }
            }
            Node::Join {
                kind, left, right, ..
            } => {
                let is_left = left.columns().contains(&column);
                let mut found = self.nature(if is_left { left } else { right }, column);
                found.is_not_null &= match kind {
                    JoinKind::Inner | JoinKind::Semi | JoinKind::Anti => true,
                    JoinKind::Left => is_left,
                    JoinKind::Full => false,
                };
                found
            }
            Node::UnionAll { inputs, columns } => {
                let place = columns.iter().position(|id| *id == column);
                let each = inputs.iter().filter_map(|(input, mapped)| {
                    let of = mapped.get(place?)?;
                    Some(self.nature(input, *of))
                });
                let both = |one: ColumnProperties, other: ColumnProperties| ColumnProperties {
                    is_not_null: one.is_not_null && other.is_not_null,
                    is_exact: one.is_exact && other.is_exact,
                };
                each.reduce(both).unwrap_or_default()
            }
        }
    }

    fn stored_as(&self, source: Source, name: &str) -> ColumnProperties {
        match source {
            Source::Table(at) => {
                let mut relations = self.facts.relations.values();
                let found = relations
                    .find(|one| matches!(one.kind, RelationKind::Table(other) if other == at));
                found.map_or(ColumnProperties::default(), |found| ColumnProperties {
                    is_not_null: found.not_null.contains(name),
                    is_exact: found.exact.contains(name),
                })
            }
            Source::Itself => ColumnProperties::default(),
            Source::Stage(at) => {
                let (stage, Some(column)) = (&self.stages[at], column_of_stage(name)) else {
                    return ColumnProperties::default();
                };
                match &stage.contents {
                    StageContents::Groups { keys, .. } => {
                        let key = keys.iter().find(|(id, _)| *id == column);
                        let of = key.and_then(|(_, key)| key.as_column());
                        of.map_or(ColumnProperties::default(), |of| {
                            self.nature(&stage.input, of)
                        })
                    }
                    StageContents::Recursion { .. } => ColumnProperties::default(),
                    StageContents::Rows { .. }
                    | StageContents::Top { .. }
                    | StageContents::Partitions { .. } => {
                        if stage.input.columns().contains(&column) {
                            self.nature(&stage.input, column)
                        } else {
                            ColumnProperties::default()
                        }
                    }
                }
            }
        }
    }
}
