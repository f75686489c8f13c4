//! How rows of a table are found by their key.
//!
//! Null is a key value like any other, but neither an index nor a hash join supports `IS NOT
//! DISTINCT FROM`. So where a key column is nullable, rows are found by a hash of the key, in a
//! column of its own, and then compared in full.

use std::collections::BTreeSet;

use crate::core::column_types::Types;
use crate::core::expression::{ColumnId, stage_column};

/// The hash of a key, or of a row that has no key.
pub const HASH: &str = "egret_hash";

/// The columns that identify a row of a table.
#[derive(Clone, Debug)]
pub struct Key {
    /// Key columns, in the order of the index.
    pub columns: Vec<ColumnId>,
    /// Whether the table has a column with the hash of the key.
    pub is_hashed: bool,
    /// Nullable key columns. A later stage may find others nullable.
    nullable: BTreeSet<ColumnId>,
}

impl Key {
    /// A key of these columns; hashed if one is nullable and all types can be hashed.
    pub fn new(columns: Vec<ColumnId>, types: &Types) -> Self {
        let nullable: BTreeSet<ColumnId> = columns
            .iter()
            .filter(|id| !types[*id].is_not_null)
            .copied()
            .collect();
        let has_hash = columns.iter().all(|id| types[id].has_hash);
        Self {
            is_hashed: !nullable.is_empty() && has_hash,
            columns,
            nullable,
        }
    }

    /// Names of the key columns.
    pub fn names(&self) -> Vec<String> {
        self.columns.iter().map(|id| stage_column(*id)).collect()
    }

    /// The columns of the index by which rows are found.
    pub fn indexed(&self) -> Vec<String> {
        if self.is_hashed {
            vec![HASH.to_owned()]
        } else {
            self.names()
        }
    }

    /// The hash of the key of the row `row`.
    pub fn hash(&self, row: &str) -> String {
        let each: Vec<String> = self
            .columns
            .iter()
            .map(|id| format!("{row}.{}", stage_column(*id)))
            .collect();
        format!("hash_record_extended(ROW({}), 0)", each.join(", "))
    }

    /// Condition that two rows have the same key. Both have the hash column, if there is one.
    pub fn same(&self, types: &Types, one: &str, other: &str) -> String {
        let values = self.same_values(types, one, other);
        if self.is_hashed {
            format!("{one}.{HASH} = {other}.{HASH} AND {values}")
        } else {
            values
        }
    }

    /// Condition that a row has the same key as one with the hash column, if there is one. The hash
    /// of the first row is computed, as in an index of [`Key::hash_index`].
    pub(crate) fn same_as_hashed(&self, types: &Types, row: &str, hashed: &str) -> String {
        let values = self.same_values(types, row, hashed);
        if self.is_hashed {
            format!("{} = {hashed}.{HASH} AND {values}", self.hash(row))
        } else {
            values
        }
    }

    /// Expression list of an index that finds rows without the hash column.
    pub(crate) fn hash_index(&self) -> String {
        if self.is_hashed {
            let names = self.names().join(", ");
            format!("hash_record_extended(ROW({names}), 0)")
        } else {
            self.names().join(", ")
        }
    }

    fn same_values(&self, types: &Types, one: &str, other: &str) -> String {
        let each = self.columns.iter().map(|id| {
            let name = stage_column(*id);
            let (one, other) = (format!("{one}.{name}"), format!("{other}.{name}"));
            let equality = types[id].equality.as_deref().unwrap_or("=");
            if !self.nullable.contains(id) {
                format!("{one} {equality} {other}")
            } else {
                // For composite values, `IS NULL` is true if all their fields are null.
                let null = |value: &str| format!("{value} IS NOT DISTINCT FROM NULL");
                let nulls = (null(&one), null(&other));
                format!(
                    "({one} {equality} {other} OR ({} AND {}))",
                    nulls.0, nulls.1
                )
            }
        });
        let all: Vec<String> = each.collect();
        if all.is_empty() {
            "true".to_owned()
        } else {
            all.join(" AND ")
        }
    }
}
