//! The indexes that a view lacks: compares what its stages look up with the indexes of its tables.

use std::collections::BTreeMap;

use egret_postgres::tokio_postgres::GenericClient;

use super::materialized_view::MaterializedView;
use super::refreshable::{Refreshable, ViewSource};
use crate::core::lookups::{MissingIndex, TableFacts, find_missing_indexes};
use crate::core::tree::Source;
use crate::error::ViewsError;
use crate::model::Advice;

/// A table with fewer rows is scanned as fast as it is searched by an index.
const ROWS_MIN: i64 = 1_000;

/// A source of a view.
pub(crate) struct ReadTable {
    /// Name with schema, as messages show it.
    pub name: String,
    /// Oid of the table; none for a view of Egret's, whose storage has its own indexes.
    pub oid: Option<u32>,
}

/// The indexes that a view lacks.
pub(crate) async fn advise_view(
    client: &impl GenericClient,
    view: &Refreshable,
) -> Result<Vec<Advice>, ViewsError> {
    let names = view.record.reads.iter().map(|(name, _)| name.clone());
    let reads = names.zip(&view.sources).map(|(name, read)| ReadTable {
        name,
        oid: match read {
            ViewSource::Table { oid, .. } => Some(*oid),
            ViewSource::View(_) => None,
        },
    });
    advise_tables(client, &view.materialized_view, &reads.collect::<Vec<_>>()).await
}

/// The indexes that are missing on tables, which are in the order of the places of the stages'
/// sources.
pub(crate) async fn advise_tables(
    client: &impl GenericClient,
    materialized_view: &MaterializedView,
    tables: &[ReadTable],
) -> Result<Vec<Advice>, ViewsError> {
    if materialized_view.is_full_only {
        return Ok(Vec::new());
    }
    let statistics = read_statistics(client, materialized_view, tables).await?;
    let stages =
        materialized_view.stages.iter().map(|stage| stage.stage_input(&materialized_view.types));
    let facts = statistics.iter().map(|(table, known)| (*table, known.facts()));
    let missing_indexes = find_missing_indexes(&stages.collect::<Vec<_>>(), &facts.collect());
    let advice = missing_indexes.into_iter().filter_map(|missing| {
        let known = statistics.get(&missing.table)?;
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
    let changed: Vec<&str> =
        missing.changed_tables.iter().map(|table| tables[*table].name.as_str()).collect();
    let change_trigger =
        (!changed.is_empty()).then(|| format!("when {} changes", changed.join(" or ")));
    let recomputation_trigger =
        missing.is_for_recomputation.then(|| "when one of their groups is recomputed".to_owned());
    let clock_trigger = missing.is_for_clock.then(|| "as time passes".to_owned());
    let triggers: Vec<String> =
        change_trigger.into_iter().chain(recomputation_trigger).chain(clock_trigger).collect();
    format!(
        "rows of {} are looked up by {} {}",
        tables[missing.table].name,
        missing.columns.join(", "),
        triggers.join(", and ")
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
        let columns_where = |predicate: fn(&ColumnIndexing) -> bool| {
            let columns = self.columns.iter();
            let matching = columns.filter(|(_, column)| predicate(column));
            matching.map(|(name, _)| name.clone()).collect()
        };
        TableFacts {
            is_small: (0..ROWS_MIN).contains(&self.rows),
            indexed_columns: columns_where(|column| column.is_indexed),
            text_indexed_columns: columns_where(|column| column.is_found_by_text),
        }
    }
}

async fn read_statistics(
    client: &impl GenericClient,
    materialized_view: &MaterializedView,
    tables: &[ReadTable],
) -> Result<BTreeMap<usize, TableStatistics>, ViewsError> {
    let mut oids: Vec<u32> = Vec::new();
    let mut names: Vec<String> = Vec::new();
    let mut table_indexes = BTreeMap::new();
    for (table_index, table) in tables.iter().enumerate() {
        let Some(oid) = table.oid else { continue };
        table_indexes.insert(oid, table_index);
        for column in materialized_view.read_columns(Source::Table(table_index)) {
            oids.push(oid);
            names.push(column);
        }
    }
    let sql = include_str!("sql/indexes.sql");
    let mut statistics_by_table: BTreeMap<usize, TableStatistics> = BTreeMap::new();
    for row in client.query(sql, &[&oids, &names]).await? {
        let Some(place) = table_indexes.get(&row.get::<_, u32>("relation")) else {
            continue;
        };
        let statistics = statistics_by_table.entry(*place).or_insert_with(|| TableStatistics {
            sql: row.get("table_sql"),
            rows: row.get("rows"),
            columns: BTreeMap::new(),
        });
        let column = ColumnIndexing {
            sql: row.get("column_sql"),
            is_found_by_text: row.get("is_found_by_text"),
            is_indexed: row.get("is_indexed"),
        };
        statistics.columns.insert(row.get("column"), column);
    }
    Ok(statistics_by_table)
}
