//! What the catalogue says of a query: its names, tables, functions and columns.

use super::bare_equality::BareEquality;
use crate::core::analyse::facts::{Facts, RelationKind};
use crate::core::analyse::remove_order_by;
use crate::core::expression::quote_identifier;
use crate::core::locate::calls_clock;
use crate::model::ViewName;

/// A query as the catalogue describes it.
#[derive(Clone, Debug)]
pub struct QueryDescription {
    /// The query with every name resolved.
    pub canonical: String,
    /// Facts about the names in the query, for its analysis.
    pub facts: Facts,
    /// The tables that it reads, in the order of [`RelationKind::Table`].
    pub tables: Vec<SourceTable>,
    /// The functions that the query and its plain views call.
    pub functions: Vec<Function>,
    /// The result columns of the query.
    pub columns: Vec<Column>,
    /// Oids of the plain views that it reads, directly or through others.
    pub inlined: Vec<u32>,
    /// Oids of the functions, operators, types and collations that it depends on, directly or
    /// through others, and that are not PostgreSQL's own.
    pub depends_on: Vec<u32>,
    /// The views of Egret's among its sources.
    pub read_views: Vec<ReadView>,
    /// Whether an untrusted role may replace a view that it reads.
    pub has_untrusted_views: bool,
    /// A table that it reads, and a function of an untrusted role that an index, a constraint or
    /// statistics of the table call.
    pub untrusted_code: Option<(String, String)>,
    /// How the query itself compares where the server prints no operator.
    pub equality: BareEquality,
}

impl QueryDescription {
    /// Whether the query or a view in it calls the clock.
    pub(crate) fn calls_clock(&self) -> bool {
        let view_definitions =
            self.facts.relations.values().filter_map(|relation| match &relation.kind {
                RelationKind::View(definition) => Some(definition),
                RelationKind::Table(_) => None,
            });
        view_definitions.chain([&self.canonical]).any(|sql| calls_clock(sql))
    }

    /// Estimated rows of all its sources.
    pub(crate) fn estimated_rows(&self) -> i64 {
        self.tables.iter().map(|table| table.rows).sum()
    }

    /// Whether it reads views, plain ones or Egret's.
    pub(crate) fn has_views(&self) -> bool {
        !self.inlined.is_empty() || self.tables.iter().any(|table| table.view.is_some())
    }

    /// Whether it reads partitioned tables.
    pub(crate) fn has_partitions(&self) -> bool {
        self.tables.iter().any(|table| table.is_partitioned)
    }
}

/// A table that a query reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceTable {
    pub oid: u32,
    pub schema: String,
    pub name: String,
    /// Number of the view, if the source is a view of Egret's.
    pub view: Option<i64>,
    /// Query by which users read the view, if the source is a view of Egret's.
    pub user_query: Option<String>,
    /// The columns of the table, in order.
    pub columns: Vec<Column>,
    /// The columns of its key, if it has one.
    pub key: Option<Vec<String>>,
    /// Estimated number of its rows.
    pub rows: i64,
    /// Whether the table is partitioned.
    pub is_partitioned: bool,
}

impl SourceTable {
    /// The rows of the table in SQL. A view of Egret's is not read by its name, as its owner may
    /// put another view in its place.
    pub(crate) fn rows_sql(&self) -> String {
        match &self.user_query {
            Some(shown) => format!("({})", remove_order_by(shown)),
            None => self.quoted_name(),
        }
    }

    /// The key columns with their types and collations.
    pub(crate) fn typed_key(&self) -> Option<Vec<(String, Option<String>)>> {
        let typed = |name: &String| {
            let mut columns = self.columns.iter();
            let key_column = columns.find(|column| column.name == *name);
            let kind =
                key_column.map(|column| format!("{} {:?}", column.sql_type, column.collation));
            (name.clone(), kind)
        };
        Some(self.key.as_ref()?.iter().map(typed).collect())
    }

    /// Name with schema, as messages and the registry have it.
    pub fn full_name(&self) -> String {
        let name = ViewName { schema: self.schema.clone(), name: self.name.clone() };
        name.to_string()
    }

    /// Name with schema, quoted for SQL.
    pub(crate) fn quoted_name(&self) -> String {
        format!("{}.{}", quote_identifier(&self.schema), quote_identifier(&self.name))
    }
}

/// A column of a table or a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    /// Number of the column in its table, which is never used again.
    pub number: i16,
    /// Type in SQL, with modifiers.
    pub sql_type: String,
    /// Type in SQL, without modifiers.
    pub base_type: String,
    /// Type in SQL with which the column is recorded: for a domain, the type below it.
    pub recorded_type: String,
    /// Collation, if it differs from that of the recorded type.
    pub recorded_collation: Option<String>,
    /// Oid of the type.
    pub type_oid: u32,
    /// Whether the column is declared NOT NULL.
    pub is_not_null: bool,
    /// Expression of a generated column that is computed when it is read.
    pub virtual_expression: Option<String>,
    /// Collation, if it differs from that of the type.
    pub collation: Option<String>,
    /// The operator by which values are grouped, if the type has one.
    pub equality: Option<String>,
    /// Whether values can be hashed.
    pub has_hash: bool,
    /// Whether equal values look the same: `1.0` and `1.00` do not.
    pub is_exact: bool,
    /// Whether its collation is not deterministic: it takes different texts for equal.
    pub has_nondeterministic_collation: bool,
}

impl Column {
    /// Name and typed expression of a column that is computed when it is read.
    pub(super) fn typed_virtual_expression(&self) -> Option<(String, String)> {
        let expression = self.virtual_expression.as_ref()?;
        let mut typed = format!("CAST({expression} AS {})", self.sql_type);
        if let Some(collation) = &self.collation {
            typed.push_str(&format!(" COLLATE {collation}"));
        }
        Some((self.name.clone(), typed))
    }
}

/// A function that a query calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    pub schema: String,
    pub name: String,
    /// Whether the function is an aggregate.
    pub is_aggregate: bool,
    /// `pg_proc.provolatile`: `i`, `s` or `v`.
    pub volatility: String,
    /// Whether it is set-returning, with one column.
    pub is_set_returning: bool,
    /// Whether it is set-returning, with any number of columns.
    pub returns_row_set: bool,
    /// Whether it is in `pg_catalog`, or owned by a superuser or this session's role.
    pub is_trusted: bool,
}

/// Where names without a schema are resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameResolution {
    /// By the search path of the session: all names are qualified, or the session is the user's
    /// own.
    SessionSearchPath,
    /// In schema `public`, for a query as a caller wrote it.
    PublicSchema,
}

/// A view of Egret's that a query reads, directly or through plain views.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadView {
    pub id: i64,
    pub name: ViewName,
    /// Relations in the query itself through which this view is read.
    pub named_by: Vec<ViewName>,
}
