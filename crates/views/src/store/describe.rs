//! What the catalogue says of a query: PostgreSQL resolves its names and types, as it does for a view of its own.

use std::collections::{BTreeMap, BTreeSet};

use egret_postgres::tokio_postgres::{Row, Transaction};

use super::probe::probe;
use super::readable::{ReadView, read_views};
use crate::core::analyse::{Facts, MALFORMED, Relation, RelationKind, parse, unordered};
use crate::core::expression::quoted;
use crate::core::locate::names_clock;
use crate::error::ViewsError;
use crate::model::ViewName;

/// A query with all that is known of it.
#[derive(Clone, Debug)]
pub struct Described {
    /// Its text with every name resolved.
    pub canonical: String,
    /// What it names.
    pub facts: Facts,
    /// The tables among that, in the order of [`RelationKind::Table`].
    pub tables: Vec<SourceTable>,
    /// The functions that it and the views in it call.
    pub functions: Vec<Function>,
    /// Its own columns.
    pub columns: Vec<Column>,
    /// The oids of the plain views that it reads, directly or through others.
    pub inlined: Vec<u32>,
    /// The views that are kept fresh among what it reads.
    pub read_views: Vec<ReadView>,
    /// Whether a role that is not trusted may put another query in the place of a view that it reads.
    pub has_untrusted_views: bool,
    /// A table that it reads, and a function of a role that is not trusted which an index, a constraint or statistics of the
    /// table call.
    pub untrusted_code: Option<(String, String)>,
}

impl Described {
    /// Whether it, or a view in it, calls the clock.
    pub fn names_clock(&self) -> bool {
        let of_views = self.facts.relations.values();
        let of_views = of_views.filter_map(|relation| match &relation.kind {
            RelationKind::View(definition) => Some(definition),
            RelationKind::Table(_) => None,
        });
        of_views
            .chain([&self.canonical])
            .any(|sql| names_clock(sql))
    }
}

/// A table that a query reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceTable {
    /// Its oid.
    pub oid: u32,
    /// Its schema.
    pub schema: String,
    /// Its name.
    pub name: String,
    /// The number of the view, where it is one that is kept fresh, …
    pub kept: Option<i64>,
    /// … and the query over its storage that users see under its name.
    pub shown: Option<String>,
    /// Its columns in their order.
    pub columns: Vec<Column>,
    /// The columns of a key, if it has one.
    pub key: Option<Vec<String>>,
    /// How many rows it has, about.
    pub rows: i64,
    /// Whether it has partitions.
    pub is_partitioned: bool,
}

impl SourceTable {
    /// Where its rows are read. Of a view that is kept fresh not by its name: who owns it may put another in its place.
    pub fn rows_sql(&self) -> String {
        match &self.shown {
            Some(shown) => format!("({})", unordered(shown)),
            None => self.sql(),
        }
    }

    /// The columns of its key with their types and collations.
    pub fn typed_key(&self) -> Option<Vec<(String, Option<String>)>> {
        let typed = |name: &String| {
            let mut columns = self.columns.iter();
            let found = columns.find(|column| column.name == *name);
            let kind = found.map(|column| format!("{} {:?}", column.sql_type, column.collation));
            (name.clone(), kind)
        };
        Some(self.key.as_ref()?.iter().map(typed).collect())
    }

    /// Its name with its schema, as it is shown and remembered: as that of a view is.
    pub fn full_name(&self) -> String {
        let name = ViewName {
            schema: self.schema.clone(),
            name: self.name.clone(),
        };
        name.to_string()
    }

    /// Its name as it is written.
    pub fn sql(&self) -> String {
        format!("{}.{}", quoted(&self.schema), quoted(&self.name))
    }
}

/// A column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its number in its table, which no other ever has.
    pub number: i16,
    /// Its type, as it is written.
    pub sql_type: String,
    /// The same without modifiers.
    pub base_type: String,
    /// The same of what a domain is made of, where it is one.
    pub recorded_type: String,
    /// Its collation, where it is not that of the recorded type.
    pub recorded_collation: Option<String>,
    /// The oid of its type.
    pub type_oid: u32,
    /// Whether it is declared never to be null.
    pub is_not_null: bool,
    /// The expression that it stands for, where it is computed when it is read.
    pub computed: Option<String>,
    /// Its collation, where it is not that of its type.
    pub collation: Option<String>,
    /// By which operator it is grouped.
    pub equality: Option<String>,
    /// Whether its values can be hashed.
    pub has_hash: bool,
    /// Whether values that are equal look the same.
    pub is_exact: bool,
    /// Whether its collation says that texts are equal which are not the same.
    pub has_own_equality: bool,
}

impl Column {
    /// Its name, and the expression that it stands for with its type, where it is computed when it is read.
    fn computed(&self) -> Option<(String, String)> {
        let expression = self.computed.as_ref()?;
        let mut typed = format!("CAST({expression} AS {})", self.sql_type);
        if let Some(collation) = &self.collation {
            typed.push_str(&format!(" COLLATE {collation}"));
        }
        Some((self.name.clone(), typed))
    }
}

/// A function that is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its schema.
    pub schema: String,
    /// Its name.
    pub name: String,
    /// Whether it is an aggregate.
    pub is_aggregate: bool,
    /// `pg_proc.provolatile`: `i`, `s` or `v`.
    pub volatility: String,
    /// Whether it gives several values of one column.
    pub is_set: bool,
    /// Whether it gives several rows, of one column or of more.
    pub gives_rows: bool,
    /// Whether it does nothing that another role than this session's has thought of.
    pub is_trusted: bool,
}

/// Aggregates that are not in a query, and may be in what it means.
const COMPARING: [&str; 3] = ["count", "bool_or", "bool_and"];

/// Where names without a schema are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// Where the session looks: all names are resolved, or the session is the user's own.
    OfSession,
    /// In `public`, as somebody has typed the query.
    Typed,
}

/// For the time of the probe only: who may make something in `public` must not be able to take the place of what Egret's
/// own statements name.
const TYPED: &str = "SET LOCAL search_path = public";

/// Has the server resolve a query. Nothing is left of that.
///
/// # Errors
/// What the server says of the query; [`ViewsError::Unsupported`] for sources that cannot be watched.
pub async fn describe(
    transaction: &mut Transaction<'_>,
    sql: &str,
    names: Names,
) -> Result<Described, ViewsError> {
    let probing = transaction.transaction().await?;
    if let Names::Typed = names {
        probing.batch_execute(TYPED).await?;
    }
    let view = probe(&probing, sql).await?;
    probing.batch_execute("SET LOCAL search_path = ''").await?;
    let canonical: String = probing
        .query_one("SELECT pg_catalog.pg_get_viewdef($1::oid)", &[&view])
        .await?
        .get(0);
    let rows = probing
        .query(include_str!("sql/relations.sql"), &[&view])
        .await?;
    let mut oids: Vec<u32> = rows.iter().map(|row| row.get("oid")).collect();
    oids.push(view);
    let mut columns = columns_of(&probing, &oids).await?;
    let mut keys: BTreeMap<u32, Vec<String>> = probing
        .query(include_str!("sql/keys.sql"), &[&oids])
        .await?
        .iter()
        .map(|row| (row.get(0), row.get(1)))
        .collect();
    let functions = functions_of(&probing, &oids).await?;
    let untrusted_code = untrusted_code(&probing, &oids).await?;
    probing.rollback().await?;
    let mut described = Described {
        canonical: canonical.trim_end().trim_end_matches(';').to_owned(),
        facts: Facts::default(),
        tables: Vec::new(),
        functions,
        columns: columns.remove(&view).unwrap_or_default(),
        inlined: Vec::new(),
        read_views: read_views(&rows),
        has_untrusted_views: false,
        untrusted_code,
    };
    for row in &rows {
        let oid: u32 = row.get("oid");
        let of_relation = columns.remove(&oid).unwrap_or_default();
        described.add(row, of_relation, keys.remove(&oid))?;
    }
    let names = |of: fn(&Function) -> bool| {
        let functions = described.functions.iter().filter(|one| of(one));
        functions
            .map(|one| {
                let schema = (one.schema != "pg_catalog").then(|| one.schema.clone());
                (schema, one.name.clone())
            })
            .collect::<BTreeSet<_>>()
    };
    let (mut aggregates, sets) = (names(|one| one.is_aggregate), names(|one| one.is_set));
    // Those that a comparison with a subquery is made of.
    aggregates.extend(COMPARING.map(|name| (None, name.to_owned())));
    let row_sets = names(|one| one.gives_rows && !one.is_set);
    let has_collation = |column: &Column| column.collation.is_some() || column.has_own_equality;
    let mut columns = described.tables.iter().flat_map(|table| &table.columns);
    described.facts.has_collations = columns.clone().any(has_collation);
    described.facts.has_own_equality = columns.any(has_own_operator);
    described.facts.aggregates = aggregates;
    described.facts.sets = sets;
    described.facts.row_sets = row_sets;
    Ok(described)
}

/// Whether values are equal by an operator that is not the system's.
fn has_own_operator(column: &Column) -> bool {
    let equality = column.equality.as_deref();
    equality.is_some_and(|operator| !operator.starts_with("OPERATOR(pg_catalog."))
}

/// The columns that a query has.
///
/// # Errors
/// What the server says of the query.
pub async fn columns(
    transaction: &mut Transaction<'_>,
    sql: &str,
) -> Result<Vec<Column>, ViewsError> {
    let probing = transaction.transaction().await?;
    let view = probe(&probing, sql).await?;
    let mut columns = columns_of(&probing, &[view]).await?;
    probing.rollback().await?;
    Ok(columns.remove(&view).unwrap_or_default())
}

/// What is known of a query as somebody has written it.
///
/// # Errors
/// [`ViewsError::Refused`] and [`ViewsError::Query`]: why it is none.
pub async fn describe_written(
    transaction: &mut Transaction<'_>,
    query: &str,
    names: Names,
) -> Result<Described, ViewsError> {
    match parse(query) {
        Ok(_) => describe(transaction, query, names).await,
        // The server says where its language is broken. What only it takes is none by itself.
        Err(refusal) if refusal.construct == MALFORMED => {
            let described = describe(transaction, query, names).await;
            described.and(Err(ViewsError::Refused(refusal)))
        }
        Err(refusal) => Err(ViewsError::Refused(refusal)),
    }
}

async fn columns_of(
    transaction: &Transaction<'_>,
    oids: &[u32],
) -> Result<BTreeMap<u32, Vec<Column>>, ViewsError> {
    let mut all: BTreeMap<u32, Vec<Column>> = BTreeMap::new();
    for row in transaction
        .query(include_str!("sql/columns.sql"), &[&oids])
        .await?
    {
        let is_deterministic: bool = row.get("is_deterministic");
        let is_exact: bool = row.get("is_exact");
        all.entry(row.get("relation")).or_default().push(Column {
            name: row.get("name"),
            number: row.get("number"),
            sql_type: row.get("type"),
            base_type: row.get("base_type"),
            recorded_type: row.get("recorded_type"),
            recorded_collation: row.get("recorded_collation"),
            type_oid: row.get("type_oid"),
            is_not_null: row.get("is_not_null"),
            computed: row.get("computed"),
            collation: row.get("collation"),
            equality: row.get("equality"),
            has_hash: row.get::<_, Option<bool>>("has_hash").unwrap_or(false),
            is_exact: is_exact && is_deterministic,
            has_own_equality: !is_deterministic,
        });
    }
    Ok(all)
}

async fn untrusted_code(
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

async fn functions_of(
    transaction: &Transaction<'_>,
    oids: &[u32],
) -> Result<Vec<Function>, ViewsError> {
    let rows = transaction
        .query(include_str!("sql/functions.sql"), &[&oids])
        .await?;
    let function = |row: &Row| Function {
        schema: row.get("schema"),
        name: row.get("name"),
        is_aggregate: row.get("is_aggregate"),
        volatility: row.get("volatility"),
        is_set: row.get("is_set"),
        gives_rows: row.get("gives_rows"),
        is_trusted: row.get("is_trusted"),
    };
    Ok(rows.iter().map(function).collect())
}

impl Described {
    /// How many rows all that it reads has, about.
    pub fn rows(&self) -> i64 {
        self.tables.iter().map(|table| table.rows).sum()
    }

    /// Whether it reads views, plain ones or others.
    pub fn has_views(&self) -> bool {
        !self.inlined.is_empty() || self.tables.iter().any(|table| table.kept.is_some())
    }

    /// Whether it reads tables with partitions.
    pub fn has_partitions(&self) -> bool {
        self.tables.iter().any(|table| table.is_partitioned)
    }

    fn add(
        &mut self,
        row: &Row,
        columns: Vec<Column>,
        key: Option<Vec<String>>,
    ) -> Result<(), ViewsError> {
        let kind: String = row.get("kind");
        let (schema, name): (String, String) = (row.get("schema"), row.get("name"));
        if let Some((what, advice)) = not_watched(row, &kind, &schema) {
            return Err(ViewsError::Unsupported {
                what: format!("{what} `{schema}.{name}`"),
                advice: advice.to_owned(),
            });
        }
        let names = columns.iter().map(|column| column.name.clone()).collect();
        let computed = columns.iter().filter_map(Column::computed).collect();
        let of = |is_so: fn(&Column) -> bool| {
            let columns = columns.iter().filter(|column| is_so(column));
            columns.map(|column| column.name.clone()).collect()
        };
        let (not_null, exact) = (of(|one| one.is_not_null), of(|one| one.is_exact));
        let kept: Option<i64> = row.get("kept");
        let kind_of = match (kind.as_str(), kept) {
            ("v", None) => RelationKind::View(row.get("definition")),
            _ => RelationKind::Table(self.tables.len()),
        };
        let is_table = matches!(kind_of, RelationKind::Table(_));
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
                kept,
                shown: shown.filter(|_| kept.is_some()),
                columns,
                key,
                rows: row.get("rows"),
                is_partitioned: kind == "p",
            });
        }
        let relation = Relation {
            columns: names,
            computed,
            not_null,
            exact,
            kind: kind_of,
        };
        self.facts.relations.insert((schema, name), relation);
        Ok(())
    }
}

/// Why changes of a relation cannot be seen, and what to do.
fn not_watched(row: &Row, kind: &str, schema: &str) -> Option<(&'static str, &'static str)> {
    let is_table = kind != "v";
    match kind {
        "v" | "r" | "p" => {}
        "m" => {
            let advice = "it has no triggers: read its tables instead";
            return Some(("the materialized view", advice));
        }
        "f" => return Some(("the foreign table", "its changes cannot be seen from here")),
        _ => return Some(("the relation", "only tables and views are covered")),
    }
    if schema == "egret" && row.get::<_, Option<i64>>("kept").is_none() {
        let advice = "it belongs to Egret, and has rows of every tenant";
        return Some(("the relation", advice));
    }
    if is_table && schema == "pg_catalog" || schema == "information_schema" {
        return Some(("the system table", "its changes cannot be seen"));
    }
    if row.get::<_, String>("persistence") == "t" {
        return Some(("the temporary table", "only its own session sees it"));
    }
    if row.get("has_row_security") {
        let advice = "what is recorded of it has the rows of everybody";
        return Some(("the table with row level security", advice));
    }
    if row.get("is_subscribed") {
        let advice = "what is replicated fires no triggers";
        return Some(("the table that a subscription writes to", advice));
    }
    if row.get("is_partition") {
        let advice = "read the partitioned table, with a condition";
        return Some(("the partition", advice));
    }
    if kind == "r" && row.get("inherits") {
        let advice = "changes of the others are not seen";
        return Some(("the table that inherits or is inherited", advice));
    }
    None
}
