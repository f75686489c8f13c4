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
    pub built: MaterializedView,
    /// What it reads, in the order of the plan's sources.
    pub reads: Vec<ViewSource>,
    /// Names and columns of its tables, as [`signature`](super::status::signature) returns them.
    pub signature: String,
    /// Estimated rows of all its sources.
    pub rows: i64,
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
        captured: TableCapture,
    },
    /// Another view of Egret's, by its number.
    View(i64),
}

impl Refreshable {
    /// Whether it can be compared with its query. The owner may be allowed to read a view of
    /// Egret's, but not the tables below it.
    pub(crate) fn can_be_compared(&self) -> bool {
        !(self.record.is_of_another && self.reads_views && self.record.owner != VIEWS_ROLE)
    }

    /// Whether its query returns the same rows under every plan. A sum of floating-point numbers
    /// depends on their order.
    pub(crate) fn is_reproducible(&self) -> bool {
        let mut stages = self.built.stages.iter();
        !self.built.is_whole
            && stages.all(|stage| match &stage.storage {
                StageStorage::Rows(_) | StageStorage::Top(_) => true,
                StageStorage::Groups(groups) => groups.are_reproducible(&self.built.types),
                StageStorage::Recursion(recursion) => !recursion.is_anew(),
                // Rows that are equal in ORDER BY may come in any order.
                StageStorage::Partitions(_) => false,
            })
    }

    /// The captures of its tables.
    pub fn captured(&self) -> impl Iterator<Item = &TableCapture> {
        self.reads.iter().filter_map(|read| match read {
            ViewSource::Table { captured, .. } => Some(captured),
            ViewSource::View(_) => None,
        })
    }

    /// The views that it reads, by number.
    pub fn views(&self) -> impl Iterator<Item = i64> {
        self.reads.iter().filter_map(|read| match read {
            ViewSource::Table { .. } => None,
            ViewSource::View(view) => Some(*view),
        })
    }

    /// The names of its tables, as in SQL.
    pub fn tables(&self) -> impl Iterator<Item = &str> {
        let named = self.built.sources.iter();
        named.filter_map(|(source, sql)| match source {
            Source::Table(at) if matches!(self.reads.get(*at), Some(ViewSource::Table { .. })) => {
                Some(sql.rows.as_str())
            }
            _ => None,
        })
    }

    /// Conditions, one for each table, that it has changes which the view has not applied.
    pub(crate) fn has_changes(&self) -> impl Iterator<Item = String> {
        self.captured().map(|captured| {
            format!(
                "EXISTS (SELECT FROM {} WHERE NOT pg_catalog.pg_visible_in_snapshot({TRANSACTION}, \
                 (SELECT snapshot FROM egret.view WHERE id = {})))",
                captured.changes(),
                self.record.id
            )
        })
    }

    /// Queries that count its new changes by table, and the breaks among them.
    pub fn counts(&self) -> impl Iterator<Item = String> {
        let id = self.record.id;
        let of_table = move |(at, read): (usize, &ViewSource)| match read {
            ViewSource::View(_) => None,
            ViewSource::Table { captured, .. } => Some(format!(
                "SELECT {id}::bigint, {at}::bigint, count(*), count(*) FILTER (WHERE {WEIGHT} = 0) FROM {} \
                 WHERE NOT pg_visible_in_snapshot({TRANSACTION}, (SELECT snapshot FROM egret.view WHERE id = {id}))",
                captured.changes(),
            )),
        };
        self.reads.iter().enumerate().filter_map(of_table)
    }
}
