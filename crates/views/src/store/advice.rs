//! The indexes that a view lacks: compares what its stages look up with the indexes of its tables.

use std::collections::BTreeMap;

use egret_postgres::tokio_postgres::GenericClient;

use super::materialized_view::MaterializedView;
use super::refreshable::{Refreshable, ViewSource};
use crate::core::lookups::{MissingIndex, TableFacts, missing};
use crate::core::tree::Source;
use crate::error::ViewsError;
use crate::model::Advice;

/// A table with fewer rows is scanned as fast as it is searched by an index.
const ROWS_MIN: i64 = 1_000;

/// A source of a view.
pub struct ReadTable {
    /// Name with schema, as messages show it.
    pub name: String,
    /// Oid of the table; none for a view of Egret's, whose storage has its own indexes.
    pub oid: Option<u32>,
}

/// The indexes that a view lacks.
pub(crate) async fn of_view(
    client: &impl GenericClient,
    view: &Refreshable,
) -> Result<Vec<Advice>, ViewsError> {
    let names = view.record.reads.iter().map(|(name, _)| name.clone());
    let reads = names.zip(&view.reads).map(|(name, read)| ReadTable {
        name,
        oid: match read {
            ViewSource::Table { oid, .. } => Some(*oid),
            ViewSource::View(_) => None,
        },
    });
    advice(client, &view.built, &reads.collect::<Vec<_>>()).await
}

/// The indexes that are missing on tables, which are in the order of the places of the stages'
/// sources.
pub async fn advice(
    client: &impl GenericClient,
    built: &MaterializedView,
    tables: &[ReadTable],
) -> Result<Vec<Advice>, ViewsError> {
    if built.is_whole {
        return Ok(Vec::new());
    }
    let known = read_statistics(client, built, tables).await?;
    let stages = built.stages.iter().map(|stage| stage.reads(&built.types));
    let facts = known.iter().map(|(table, known)| (*table, known.facts()));
    let found = missing(&stages.collect::<Vec<_>>(), &facts.collect());
    let advice = found.into_iter().filter_map(|missing| {
        let known = known.get(&missing.table)?;
        let columns = missing.columns.iter();
        // One that is gone since is not advised.
        let columns = columns
            .map(|name| Some(known.columns.get(name)?.sql.as_str()))
            .collect::<Option<Vec<&str>>>()?;
        Some(Advice {
            table: tables[missing.table].name.clone(),
            statement: format!("CREATE INDEX ON {} ({})", known.sql, columns.join(", ")),
            reason: reason(&missing, tables),
            columns: missing.columns,
            rows: (known.rows >= 0).then_some(known.rows),
        })
    });
    Ok(advice.collect())
}

fn reason(missing: &MissingIndex, tables: &[ReadTable]) -> String {
    let changed: Vec<&str> = missing
        .changed
        .iter()
        .map(|table| tables[*table].name.as_str())
        .collect();
    let changes = (!changed.is_empty()).then(|| format!("when {} changes", changed.join(" or ")));
    let asked = missing
        .is_asked
        .then(|| "when one of their groups is recomputed".to_owned());
    let passes = missing.has_clock.then(|| "as time passes".to_owned());
    let when: Vec<String> = changes.into_iter().chain(asked).chain(passes).collect();
    format!(
        "rows of {} are looked up by {} {}",
        tables[missing.table].name,
        missing.columns.join(", "),
        when.join(", and ")
    )
}

/// Rows and indexes of a table, from the catalogue.
struct TableStatistics {
    /// Name of the table, as in SQL.
    sql: String,
    /// Estimated rows; -1 if the server has no statistics.
    rows: i64,
    columns: BTreeMap<String, ColumnIndexing>,
}

struct ColumnIndexing {
    sql: String,
    is_found_by_text: bool,
    is_indexed: bool,
}

impl TableStatistics {
    fn facts(&self) -> TableFacts {
        let named = |is_so: fn(&ColumnIndexing) -> bool| {
            let columns = self.columns.iter();
            let so = columns.filter(|(_, column)| is_so(column));
            so.map(|(name, _)| name.clone()).collect()
        };
        TableFacts {
            is_small: (0..ROWS_MIN).contains(&self.rows),
            indexed: named(|column| column.is_indexed),
            texts: named(|column| column.is_found_by_text),
        }
    }
}

async fn read_statistics(
    client: &impl GenericClient,
    built: &MaterializedView,
    tables: &[ReadTable],
) -> Result<BTreeMap<usize, TableStatistics>, ViewsError> {
    let mut oids: Vec<u32> = Vec::new();
    let mut names: Vec<String> = Vec::new();
    let mut places = BTreeMap::new();
    for (place, table) in tables.iter().enumerate() {
        let Some(oid) = table.oid else { continue };
        places.insert(oid, place);
        for column in built.columns_of(Source::Table(place)) {
            oids.push(oid);
            names.push(column);
        }
    }
    let sql = include_str!("sql/indexes.sql");
    let mut all: BTreeMap<usize, TableStatistics> = BTreeMap::new();
    for row in client.query(sql, &[&oids, &names]).await? {
        let Some(place) = places.get(&row.get::<_, u32>("relation")) else {
            continue;
        };
        let known = all.entry(*place).or_insert_with(|| TableStatistics {
            sql: row.get("table_sql"),
            rows: row.get("rows"),
            columns: BTreeMap::new(),
        });
        let column = ColumnIndexing {
            sql: row.get("column_sql"),
            is_found_by_text: row.get("is_found_by_text"),
            is_indexed: row.get("is_indexed"),
        };
        known.columns.insert(row.get("column"), column);
    }
    Ok(all)
}
