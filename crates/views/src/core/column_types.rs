//! Types of columns, with the properties that decide how values are compared.

use std::collections::BTreeMap;

use super::expression::ColumnId;

/// The type of a column, with the properties that decide how it is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnType {
    /// The type in SQL, with schema and modifiers.
    pub sql: String,
    /// Collation, if it differs from that of the type.
    pub collation: Option<String>,
    /// The operator by which two values are in one group, if the type has one.
    pub equality: Option<String>,
    /// Whether values of the type can be hashed.
    pub has_hash: bool,
    /// Whether equal values look the same: `1.0` and `1.00` do not.
    pub is_exact: bool,
    /// Whether the column has no nulls.
    pub is_not_null: bool,
}

/// The types of columns, by id.
pub type Types = BTreeMap<ColumnId, ColumnType>;

/// The type of a column, as in CREATE TABLE.
pub(crate) fn declared_type(types: &Types, column: ColumnId) -> String {
    let column_type = &types[&column];
    match &column_type.collation {
        Some(collation) => format!("{} COLLATE {collation}", column_type.sql),
        None => column_type.sql.clone(),
    }
}

/// The expression by which two values of a column look the same.
pub(crate) fn identity_sql(types: &Types, column: ColumnId, name: &str) -> String {
    if types[&column].is_exact { name.to_owned() } else { format!("({name})::text COLLATE \"C\"") }
}
