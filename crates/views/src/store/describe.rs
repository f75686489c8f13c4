//! Describes a query by the catalogue: PostgreSQL resolves its names and types, as for a view of
//! its own.

use std::collections::{BTreeMap, BTreeSet};

use egret_postgres::tokio_postgres::{Row, Transaction};

use super::bare_equality::{BareEquality, read_bare_equalities};
use super::probe::probe;
use super::query_description::{
    Column, Function, NameResolution, QueryDescription, ReadView, SourceTable,
};
use crate::core::analyse::facts::{Facts, Relation, RelationKind};
use crate::core::analyse::parse::{MALFORMED, parse};
use crate::core::analyse::with_explicit_equalities;
use crate::core::refusal::Refusal;
use crate::error::ViewsError;
use crate::model::ViewName;

/// Aggregates that the analysis adds to a query.
const COMPARISON_AGGREGATES: [&str; 3] = ["count", "bool_or", "bool_and"];

/// Only during the probe: a role that may create objects in `public` must not be able to shadow
/// names of Egret's own statements.
const PUBLIC_SEARCH_PATH: &str = "SET LOCAL search_path = public";

/// Has the server resolve a query. Nothing of it remains. Its comparisons are written with their
/// operators where these are not PostgreSQL's own.
///
/// # Errors
/// [`ViewsError::Query`] if the server refuses the query; [`ViewsError::Unsupported`] for sources
/// whose changes cannot be recorded.
pub(crate) async fn describe_query(
    transaction: &mut Transaction<'_>,
    sql: &str,
    names: NameResolution,
) -> Result<QueryDescription, ViewsError> {
    let described = describe_as_written(transaction, sql, names).await?;
    if !described.equality.is_own {
        return Ok(described);
    }
    let explicit = with_explicit_equalities(&described.canonical, &described.facts)
        .map_err(ViewsError::Refused)?;
    let types = |described: &QueryDescription| -> Vec<String> {
        let columns = described.columns.iter();
        columns.map(|column| column.sql_type.clone()).collect()
    };
    match describe_as_written(transaction, &explicit, names).await {
        Ok(again) if !again.equality.is_own && types(&again) == types(&described) => Ok(again),
        Ok(_) | Err(ViewsError::Query { .. }) => Err(ViewsError::Refused(Refusal::in_every_mode(
            "USING, NULLIF, IS DISTINCT FROM or CASE with a value, over a type with an equality of its own,",
            None,
            "compare with `=`",
        ))),
        Err(error) => Err(error),
    }
}

/// Has the server resolve a query.
async fn describe_as_written(
    transaction: &mut Transaction<'_>,
    sql: &str,
    name_resolution: NameResolution,
) -> Result<QueryDescription, ViewsError> {
    let savepoint = transaction.transaction().await?;
    if let NameResolution::PublicSchema = name_resolution {
        savepoint.batch_execute(PUBLIC_SEARCH_PATH).await?;
    }
    let view = probe(&savepoint, sql).await?;
    savepoint.batch_execute("SET LOCAL search_path = ''").await?;
    let canonical: String =
        savepoint.query_one("SELECT pg_catalog.pg_get_viewdef($1::oid)", &[&view]).await?.get(0);
    let rows = savepoint.query(include_str!("sql/relations.sql"), &[&view]).await?;
    let mut oids: Vec<u32> = rows.iter().map(|row| row.get("oid")).collect();
    oids.push(view);
    let mut columns = read_columns(&savepoint, &oids).await?;
    let mut keys: BTreeMap<u32, Vec<String>> = savepoint
        .query(include_str!("sql/keys.sql"), &[&oids])
        .await?
        .iter()
        .map(|row| (row.get(0), row.get(1)))
        .collect();
    let functions = read_functions(&savepoint, &oids).await?;
    let equalities = read_bare_equalities(&savepoint, &oids).await?;
    let untrusted_code = find_untrusted_code(&savepoint, &oids).await?;
    let sql = include_str!("sql/dependencies.sql");
    let depends_on: Vec<u32> = savepoint.query_one(sql, &[&oids]).await?.get(0);
    savepoint.rollback().await?;
    let mut description = QueryDescription {
        canonical: canonical.trim_end().trim_end_matches(';').to_owned(),
        facts: Facts::default(),
        tables: Vec::new(),
        functions,
        columns: columns.remove(&view).unwrap_or_default(),
        inlined: Vec::new(),
        depends_on,
        read_views: read_views(&rows),
        has_untrusted_views: false,
        untrusted_code,
        equality: equalities.get(&view).copied().unwrap_or_default(),
    };
    for row in &rows {
        let oid: u32 = row.get("oid");
        let relation_columns = columns.remove(&oid).unwrap_or_default();
        let equality = equalities.get(&oid).copied().unwrap_or_default();
        description.add_relation(row, relation_columns, keys.remove(&oid), equality)?;
    }
    description.add_facts();
    Ok(description)
}

/// The result columns of a query.
///
/// # Errors
/// [`ViewsError::Query`] if the server refuses the query.
pub(crate) async fn describe_columns(
    transaction: &mut Transaction<'_>,
    sql: &str,
) -> Result<Vec<Column>, ViewsError> {
    let savepoint = transaction.transaction().await?;
    let view = probe(&savepoint, sql).await?;
    let mut columns = read_columns(&savepoint, &[view]).await?;
    savepoint.rollback().await?;
    Ok(columns.remove(&view).unwrap_or_default())
}

/// Describes a query as a caller wrote it.
///
/// # Errors
/// [`ViewsError::Refused`] and [`ViewsError::Query`] for a query that cannot define a view.
pub(crate) async fn describe_user_query(
    transaction: &mut Transaction<'_>,
    query: &str,
    name_resolution: NameResolution,
) -> Result<QueryDescription, ViewsError> {
    match parse(query) {
        Ok(_) => describe_query(transaction, query, name_resolution).await,
        // The server says where its language is broken. What only it takes is none by itself.
        Err(refusal) if refusal.construct == MALFORMED => {
            let description = describe_query(transaction, query, name_resolution).await;
            description.and(Err(ViewsError::Refused(refusal)))
        }
        Err(refusal) => Err(ViewsError::Refused(refusal)),
    }
}

async fn read_columns(
    transaction: &Transaction<'_>,
    oids: &[u32],
) -> Result<BTreeMap<u32, Vec<Column>>, ViewsError> {
    let mut columns_by_relation: BTreeMap<u32, Vec<Column>> = BTreeMap::new();
    for row in transaction.query(include_str!("sql/columns.sql"), &[&oids]).await? {
        let is_deterministic: bool = row.get("is_deterministic");
        let is_exact: bool = row.get("is_exact");
        columns_by_relation.entry(row.get("relation")).or_default().push(Column {
            name: row.get("name"),
            number: row.get("number"),
            sql_type: row.get("type"),
            base_type: row.get("base_type"),
            recorded_type: row.get("recorded_type"),
            recorded_collation: row.get("recorded_collation"),
            type_oid: row.get("type_oid"),
            is_not_null: row.get("is_not_null"),
            virtual_expression: row.get("computed"),
            collation: row.get("collation"),
            equality: row.get("equality"),
            has_hash: row.get::<_, Option<bool>>("has_hash").unwrap_or(false),
            is_exact: is_exact && is_deterministic,
            has_nondeterministic_collation: !is_deterministic,
        });
    }
    Ok(columns_by_relation)
}

async fn find_untrusted_code(
    transaction: &Transaction<'_>,
    oids: &[u32],
) -> Result<Option<(String, String)>, ViewsError> {
    let sql = include_str!("sql/table_code.sql");
    let row = transaction.query_opt(sql, &[&oids]).await?;
    Ok(row.map(|row| {
        let (schema, name): (&str, &str) = (row.get("schema"), row.get("name"));
        (row.get("relation"), format!("{schema}.{name}"))
    }))
}

async fn read_functions(
    transaction: &Transaction<'_>,
    oids: &[u32],
) -> Result<Vec<Function>, ViewsError> {
    let rows = transaction.query(include_str!("sql/functions.sql"), &[&oids]).await?;
    let function = |row: &Row| Function {
        schema: row.get("schema"),
        name: row.get("name"),
        is_aggregate: row.get("is_aggregate"),
        volatility: row.get("volatility"),
        is_set_returning: row.get("is_set"),
        returns_row_set: row.get("gives_rows"),
        is_trusted: row.get("is_trusted"),
    };
    Ok(rows.iter().map(function).collect())
}

impl QueryDescription {
    /// Adds what functions and columns say of all names in the query.
    fn add_facts(&mut self) {
        let names_where = |predicate: fn(&Function) -> bool| {
            let functions = self.functions.iter().filter(|function| predicate(function));
            functions
                .map(|function| {
                    let schema = (function.schema != "pg_catalog").then(|| function.schema.clone());
                    (schema, function.name.clone())
                })
                .collect::<BTreeSet<_>>()
        };
        let (mut aggregates, sets) = (
            names_where(|function| function.is_aggregate),
            names_where(|function| function.is_set_returning),
        );
        // Those that a comparison with a subquery is made of.
        aggregates.extend(COMPARISON_AGGREGATES.map(|name| (None, name.to_owned())));
        let row_sets =
            names_where(|function| function.returns_row_set && !function.is_set_returning);
        let has_collation =
            |column: &Column| column.collation.is_some() || column.has_nondeterministic_collation;
        let mut columns = self.tables.iter().flat_map(|table| &table.columns);
        self.facts.has_collations = columns.any(has_collation);
        self.facts.aggregates = aggregates;
        self.facts.set_functions = sets;
        self.facts.row_set_functions = row_sets;
    }

    fn add_relation(
        &mut self,
        row: &Row,
        columns: Vec<Column>,
        key: Option<Vec<String>>,
        equality: BareEquality,
    ) -> Result<(), ViewsError> {
        let kind: String = row.get("kind");
        let (schema, name): (String, String) = (row.get("schema"), row.get("name"));
        if let Some((what, advice)) = unsupported_relation_reason(row, &kind, &schema) {
            return Err(ViewsError::Unsupported {
                what: format!("{what} `{schema}.{name}`"),
                advice: advice.to_owned(),
            });
        }
        let names = columns.iter().map(|column| column.name.clone()).collect();
        let computed = columns.iter().filter_map(Column::typed_virtual_expression).collect();
        let columns_where = |predicate: fn(&Column) -> bool| {
            let columns = columns.iter().filter(|column| predicate(column));
            columns.map(|column| column.name.clone()).collect()
        };
        let (not_null, exact) =
            (columns_where(|column| column.is_not_null), columns_where(|column| column.is_exact));
        let view: Option<i64> = row.get("kept");
        let relation_kind = match (kind.as_str(), view) {
            ("v", None) => RelationKind::View(row.get("definition")),
            _ => RelationKind::Table(self.tables.len()),
        };
        let is_table = matches!(relation_kind, RelationKind::Table(_));
        self.has_untrusted_views |= kind == "v" && !row.get::<_, bool>("has_trusted_owner");
        if !is_table {
            self.inlined.push(row.get("oid"));
        }
        let shown: Option<String> = row.get("definition");
        if is_table {
            self.tables.push(SourceTable {
                oid: row.get("oid"),
                schema: schema.clone(),
                name: name.clone(),
                view,
                user_query: shown.filter(|_| view.is_some()),
                columns,
                key,
                rows: row.get("rows"),
                is_partitioned: kind == "p",
            });
        }
        let relation = Relation {
            columns: names,
            virtual_columns: computed,
            not_null,
            exact,
            kind: relation_kind,
            has_bare_equality: equality.is_own,
        };
        self.facts.relations.insert((schema, name), relation);
        Ok(())
    }
}

/// Why changes of a relation cannot be captured, with advice; none if they can be.
fn unsupported_relation_reason(
    row: &Row,
    kind: &str,
    schema: &str,
) -> Option<(&'static str, &'static str)> {
    let is_table = kind != "v";
    match kind {
        "v" | "r" | "p" => {}
        "m" => {
            let advice = "it cannot have triggers: read its tables instead";
            return Some(("the materialized view", advice));
        }
        "f" => return Some(("the foreign table", "its changes cannot be recorded here")),
        _ => return Some(("the relation", "only tables and views are supported")),
    }
    if schema == "egret" && row.get::<_, Option<i64>>("kept").is_none() {
        let advice = "it belongs to Egret, and has rows of every tenant";
        return Some(("the relation", advice));
    }
    if is_table && schema == "pg_catalog" || schema == "information_schema" {
        return Some(("the system table", "its changes cannot be recorded"));
    }
    if row.get::<_, String>("persistence") == "t" {
        return Some(("the temporary table", "it is visible only to its own session"));
    }
    if row.get("has_row_security") {
        let advice = "its recorded changes would contain the rows of all roles";
        return Some(("the table with row level security", advice));
    }
    if row.get("is_subscribed") {
        let advice = "replicated rows fire no triggers";
        return Some(("the table that a subscription writes to", advice));
    }
    if row.get("is_partition") {
        let advice = "read the partitioned table, with a condition";
        return Some(("the partition", advice));
    }
    if kind == "r" && row.get("inherits") {
        let advice = "changes of the related tables are not recorded";
        return Some(("the table that inherits or is inherited", advice));
    }
    None
}

/// The views of Egret's among the relations that a query reads, from rows of `relations.sql`.
pub fn read_views(rows: &[Row]) -> Vec<ReadView> {
    rows.iter().filter_map(|row| read_view(row, rows)).collect()
}

fn read_view(row: &Row, rows: &[Row]) -> Option<ReadView> {
    let id = row.get::<_, Option<i64>>("kept")?;
    let name = |row: &Row| ViewName { schema: row.get("schema"), name: row.get("name") };
    let named_by: Vec<u32> = row.get("named_by");
    let named = rows.iter().filter(|other| named_by.contains(&other.get("oid")));
    Some(ReadView { id, name: name(row), named_by: named.map(name).collect() })
}
