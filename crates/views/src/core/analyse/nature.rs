//! What is known of columns without asking the server.

use super::{Analysis, RelationKind, column_of_stage};
use crate::core::expression::ColumnId;
use crate::core::tree::{JoinKind, Keeps, Node, Source};

/// What is known of a column without the server.
#[derive(Clone, Copy, Default)]
pub struct Nature {
    pub is_not_null: bool,
    pub is_exact: bool,
}

impl Analysis<'_> {
    /// What is known of a column of rows.
    pub(super) fn nature(&self, node: &Node, column: ColumnId) -> Nature {
        match node {
            Node::Unit => Nature::default(),
            Node::Scan { source, columns } => {
                let found = columns.iter().find(|(id, _)| *id == column);
                found.map_or(Nature::default(), |(_, name)| self.stored_as(*source, name))
            }
            Node::Filter { input, .. } | Node::Recent { input, .. } => self.nature(input, column),
            Node::Project { input, columns } => {
                match columns.iter().find(|(id, _)| *id == column) {
                    None => self.nature(input, column),
                    Some((_, expression)) => match expression.as_column() {
                        Some(of) => self.nature(input, of),
                        None => Nature::default(),
                    },
                }
            }
            Node::Expand { input, columns, .. } => {
                match columns.iter().any(|(id, _)| *id == column) {
                    true => Nature::default(),
                    false => self.nature(input, column),
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
                let both = |one: Nature, other: Nature| Nature {
                    is_not_null: one.is_not_null && other.is_not_null,
                    is_exact: one.is_exact && other.is_exact,
                };
                each.reduce(both).unwrap_or_default()
            }
        }
    }

    fn stored_as(&self, source: Source, name: &str) -> Nature {
        match source {
            Source::Table(at) => {
                let mut relations = self.facts.relations.values();
                let found = relations
                    .find(|one| matches!(one.kind, RelationKind::Table(other) if other == at));
                found.map_or(Nature::default(), |found| Nature {
                    is_not_null: found.not_null.contains(name),
                    is_exact: found.exact.contains(name),
                })
            }
            Source::Itself => Nature::default(),
            Source::Stage(at) => {
                let (stage, Some(column)) = (&self.stages[at], column_of_stage(name)) else {
                    return Nature::default();
                };
                match &stage.keeps {
                    Keeps::Groups { keys, .. } => {
                        let key = keys.iter().find(|(id, _)| *id == column);
                        let of = key.and_then(|(_, key)| key.as_column());
                        of.map_or(Nature::default(), |of| self.nature(&stage.input, of))
                    }
                    Keeps::Recursion { .. } => Nature::default(),
                    Keeps::Rows { .. } | Keeps::Top { .. } | Keeps::Partitions { .. } => {
                        match stage.input.columns().contains(&column) {
                            true => self.nature(&stage.input, column),
                            false => Nature::default(),
                        }
                    }
                }
            }
        }
    }
}
