//! A view that is loaded for refreshes, and the sources that it reads.

use super::materialized_view::MaterializedView;
use super::record::Record;
use super::views_role::VIEWS_ROLE;
use crate::core::capture::{TRANSACTION, TableCapture};
use crate::core::compile::StageStorage;
use crate::core::sql::WEIGHT;
use crate::core::tree::Source;

/// A view that is loaded for refreshes.
#[derive(Clone, Debug)]
pub struct Refreshable {
    /// The view's row in the registry.
    pub record: Record,
    /// Its stages and their tables.
    pub materialized_view: MaterializedView,
    /// What it reads, in the order of the plan's sources.
    pub sources: Vec<ViewSource>,
    /// Names and columns of its tables, as [`signature`](super::status::signature) returns them.
    pub signature: String,
    /// Estimated rows of all its sources.
    pub source_rows: i64,
    /// Whether it reads other views, plain ones or Egret's.
    pub reads_views: bool,
    /// Whether it reads partitioned tables.
    pub has_partitions: bool,
}

/// A source of a view.
#[derive(Clone, Debug)]
pub enum ViewSource {
    /// A table whose changes are recorded.
    Table {
        /// Oid of the table.
        oid: u32,
        /// Number and columns of the capture.
        capture: TableCapture,
    },
    /// Another view of Egret's, by its number.
    View(i64),
}

impl Refreshable {
    /// Whether it can be compared with its query. The owner may be allowed to read a view of
    /// Egret's, but not the tables below it.
    pub(crate) fn can_be_compared(&self) -> bool {
        !(self.record.has_other_owner && self.reads_views && self.record.owner != VIEWS_ROLE)
    }

    /// Whether its query returns the same rows under every plan. A sum of floating-point numbers
    /// depends on their order.
    pub(crate) fn is_reproducible(&self) -> bool {
        let mut stages = self.materialized_view.stages.iter();
        !self.materialized_view.is_full_only
            && stages.all(|stage| match &stage.storage {
                StageStorage::Rows(_) | StageStorage::TopK(_) => true,
                StageStorage::Groups(groups) => {
                    groups.are_reproducible(&self.materialized_view.types)
                }
                StageStorage::Recursion(recursion) => !recursion.is_recomputed(),
                // Rows that are equal in ORDER BY may come in any order.
                StageStorage::Partitions(_) => false,
            })
    }

    /// The captures of its tables.
    pub fn captures(&self) -> impl Iterator<Item = &TableCapture> {
        self.sources.iter().filter_map(|source| match source {
            ViewSource::Table { capture: captured, .. } => Some(captured),
            ViewSource::View(_) => None,
        })
    }

    /// The views that it reads, by number.
    pub(crate) fn source_views(&self) -> impl Iterator<Item = i64> {
        self.sources.iter().filter_map(|source| match source {
            ViewSource::Table { .. } => None,
            ViewSource::View(view) => Some(*view),
        })
    }

    /// The names of its tables, as in SQL.
    pub(crate) fn table_names(&self) -> impl Iterator<Item = &str> {
        let named = self.materialized_view.sources.iter();
        named.filter_map(|(source, sql)| match source {
            Source::Table(at)
                if matches!(self.sources.get(*at), Some(ViewSource::Table { .. })) =>
            {
                Some(sql.rows.as_str())
            }
            _ => None,
        })
    }

    /// Conditions, one for each table, that it has changes which the view has not applied.
    pub(crate) fn change_conditions(&self) -> impl Iterator<Item = String> {
        self.captures().map(|capture| {
            format!(
                "EXISTS (SELECT FROM {} WHERE NOT pg_catalog.pg_visible_in_snapshot({TRANSACTION}, \
                 (SELECT snapshot FROM egret.view WHERE id = {})))",
                capture.changes_table(),
                self.record.id
            )
        })
    }

    /// Queries that count its new changes by table, and the breaks among them.
    pub(crate) fn count_queries(&self) -> impl Iterator<Item = String> {
        let id = self.record.id;
        let count_query = move |(source_index, view_source): (usize, &ViewSource)| match view_source
        {
            ViewSource::View(_) => None,
            ViewSource::Table { capture: captured, .. } => Some(format!(
                "SELECT {id}::bigint, {source_index}::bigint, count(*), count(*) FILTER (WHERE {WEIGHT} = 0) FROM {} \
                 WHERE NOT pg_visible_in_snapshot({TRANSACTION}, (SELECT snapshot FROM egret.view WHERE id = {id}))",
                captured.changes_table(),
            )),
        };
        self.sources.iter().enumerate().filter_map(count_query)
    }
}
