//! How rows of a table are found by their key.
//!
//! Null is a key value like any other, but neither an index nor a hash join supports `IS NOT
//! DISTINCT FROM`. So where a key column is nullable, rows are found by a hash of the key, in a
//! column of its own, and then compared in full.

use std::collections::BTreeSet;

use crate::core::column_types::Types;
use crate::core::expression::{ColumnId, stage_column_name};

/// The hash of a key, or of a row that has no key.
pub(crate) const HASH_COLUMN: &str = "egret_hash";

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
        let nullable: BTreeSet<ColumnId> =
            columns.iter().filter(|id| !types[*id].is_not_null).copied().collect();
        let has_hash = columns.iter().all(|id| types[id].has_hash);
        Self { is_hashed: !nullable.is_empty() && has_hash, columns, nullable }
    }

    /// Names of the key columns.
    pub(crate) fn column_names(&self) -> Vec<String> {
        self.columns.iter().map(|id| stage_column_name(*id)).collect()
    }

    /// The columns of the index by which rows are found.
    pub(crate) fn index_columns(&self) -> Vec<String> {
        if self.is_hashed { vec![HASH_COLUMN.to_owned()] } else { self.column_names() }
    }

    /// The hash of the key of the row `row`.
    pub(crate) fn hash_sql(&self, row: &str) -> String {
        let columns: Vec<String> =
            self.columns.iter().map(|id| format!("{row}.{}", stage_column_name(*id))).collect();
        format!("hash_record_extended(ROW({}), 0)", columns.join(", "))
    }

    /// Condition that two rows have the same key. Both have the hash column, if there is one.
    pub(crate) fn same_key_condition(&self, types: &Types, left: &str, right: &str) -> String {
        let values = self.same_values_condition(types, left, right);
        if self.is_hashed {
            format!("{left}.{HASH_COLUMN} = {right}.{HASH_COLUMN} AND {values}")
        } else {
            values
        }
    }

    /// Condition that a row has the same key as one with the hash column, if there is one. The hash
    /// of the first row is computed, as in an index of [`Key::index_expressions`].
    pub(crate) fn same_key_as_hashed_condition(
        &self,
        types: &Types,
        row: &str,
        hashed: &str,
    ) -> String {
        let values = self.same_values_condition(types, row, hashed);
        if self.is_hashed {
            format!("{} = {hashed}.{HASH_COLUMN} AND {values}", self.hash_sql(row))
        } else {
            values
        }
    }

    /// Expression list of an index that finds rows without the hash column.
    pub(crate) fn index_expressions(&self) -> String {
        if self.is_hashed {
            let names = self.column_names().join(", ");
            format!("hash_record_extended(ROW({names}), 0)")
        } else {
            self.column_names().join(", ")
        }
    }

    fn same_values_condition(&self, types: &Types, left: &str, right: &str) -> String {
        let conditions = self.columns.iter().map(|id| {
            let name = stage_column_name(*id);
            let (one, other) = (format!("{left}.{name}"), format!("{right}.{name}"));
            let equality = types[id].equality.as_deref().unwrap_or("=");
            if !self.nullable.contains(id) {
                format!("{one} {equality} {other}")
            } else {
                // For composite values, `IS NULL` is true if all their fields are null.
                let null_condition = |value: &str| format!("{value} IS NOT DISTINCT FROM NULL");
                let nulls = (null_condition(&one), null_condition(&other));
                format!("({one} {equality} {other} OR ({} AND {}))", nulls.0, nulls.1)
            }
        });
        let all: Vec<String> = conditions.collect();
        if all.is_empty() { "true".to_owned() } else { all.join(" AND ") }
    }
}
