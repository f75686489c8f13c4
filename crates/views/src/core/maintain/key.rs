//! How rows of a table are found by their key.
//!
//! Null is a value of a key like any other. No index and no hash join finds nulls by `IS NOT DISTINCT FROM`, so that where
//! a column of a key may be null rows are found by a hash of the key, in a column of its own, and compared in full then.

use std::collections::BTreeSet;

use super::Types;
use crate::core::analyse::stage_column;
use crate::core::expression::ColumnId;

/// The hash of a key, or of a row that has no key.
pub const HASH: &str = "egret_hash";

/// See the module.
#[derive(Clone, Debug)]
pub struct Key {
    /// Its columns.
    pub columns: Vec<ColumnId>,
    /// Whether there is a column with its hash.
    pub is_hashed: bool,
    /// Those that may be null here: what reads them later may have them null of its own.
    nullable: BTreeSet<ColumnId>,
}

impl Key {
    /// Of these columns.
    pub fn new(columns: Vec<ColumnId>, types: &Types) -> Self {
        let nullable = columns.iter().filter(|id| !types[*id].is_not_null);
        let nullable: BTreeSet<ColumnId> = nullable.copied().collect();
        let has_hash = columns.iter().all(|id| types[id].has_hash);
        Self {
            is_hashed: !nullable.is_empty() && has_hash,
            columns,
            nullable,
        }
    }

    /// The names of its columns.
    pub fn names(&self) -> Vec<String> {
        self.columns.iter().map(|id| stage_column(*id)).collect()
    }

    /// What an index is made of that finds rows.
    pub fn indexed(&self) -> Vec<String> {
        match self.is_hashed {
            true => vec![HASH.to_owned()],
            false => self.names(),
        }
    }

    /// The hash of the key of a row that is called `row`.
    pub fn hash(&self, row: &str) -> String {
        let each = self.columns.iter();
        let each: Vec<String> = each
            .map(|id| format!("{row}.{}", stage_column(*id)))
            .collect();
        format!("hash_record_extended(ROW({}), 0)", each.join(", "))
    }

    /// Whether two rows have the same key. Both have the column with the hash, where there is one.
    pub fn same(&self, types: &Types, one: &str, other: &str) -> String {
        let values = self.same_values(types, one, other);
        match self.is_hashed {
            true => format!("{one}.{HASH} = {other}.{HASH} AND {values}"),
            false => values,
        }
    }

    /// Whether a row has the same key as one that has the column with the hash, where there is one. The row has no such column: its
    /// hash is computed, as in an index of [`Key::hash_index`].
    pub fn same_as_hashed(&self, types: &Types, row: &str, hashed: &str) -> String {
        let values = self.same_values(types, row, hashed);
        match self.is_hashed {
            true => format!("{} = {hashed}.{HASH} AND {values}", self.hash(row)),
            false => values,
        }
    }

    /// What an index is made of that finds rows which have no column with the hash.
    pub fn hash_index(&self) -> String {
        match self.is_hashed {
            true => {
                let names = self.names().join(", ");
                format!("hash_record_extended(ROW({names}), 0)")
            }
            false => self.names().join(", "),
        }
    }

    fn same_values(&self, types: &Types, one: &str, other: &str) -> String {
        let each = self.columns.iter().map(|id| {
            let name = stage_column(*id);
            let (one, other) = (format!("{one}.{name}"), format!("{other}.{name}"));
            let equality = types[id].equality.as_deref().unwrap_or("=");
            match self.nullable.contains(id) {
                false => format!("{one} {equality} {other}"),
                true => {
                    // Of values made of others `IS NULL` is true where all of these are.
                    let null = |value: &str| format!("{value} IS NOT DISTINCT FROM NULL");
                    let nulls = (null(&one), null(&other));
                    format!(
                        "({one} {equality} {other} OR ({} AND {}))",
                        nulls.0, nulls.1
                    )
                }
            }
        });
        let all: Vec<String> = each.collect();
        match all.is_empty() {
            true => "true".to_owned(),
            false => all.join(" AND "),
        }
    }
}
