//! Facts about the names in a query, from the catalogue.

use std::collections::{BTreeMap, BTreeSet};

/// What the catalogue says of the names in a query.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Tables and views, by schema and name.
    pub relations: BTreeMap<(String, String), Relation>,
    /// Names of aggregate functions; with their schema where that is not `pg_catalog`.
    pub aggregates: BTreeSet<(Option<String>, String)>,
    /// Names of set-returning functions with one column.
    pub set_functions: BTreeSet<(Option<String>, String)>,
    /// Names of set-returning functions with several columns.
    pub row_set_functions: BTreeSet<(Option<String>, String)>,
    /// Whether a column has a collation of its own: equality of its values is not known here then.
    pub has_collations: bool,
}

/// A table or view that a query names.
#[derive(Clone, Debug)]
pub(crate) struct Relation {
    /// Names of its columns, in order.
    pub columns: Vec<String>,
    /// Expressions of columns that are computed and not stored.
    pub virtual_columns: BTreeMap<String, String>,
    /// Columns that have no nulls.
    pub not_null: BTreeSet<String>,
    /// Columns whose equal values look the same.
    pub exact: BTreeSet<String>,
    /// The table or view definition behind it.
    pub kind: RelationKind,
    /// Whether its definition compares by operators that are not PostgreSQL's own and are not
    /// printed.
    pub has_bare_equality: bool,
}

/// Where the rows of a relation come from.
#[derive(Clone, Debug)]
pub(crate) enum RelationKind {
    /// A table, by its index in the view's list of tables.
    Table(usize),
    /// A plain view with this definition, as the server prints it.
    View(String),
}
