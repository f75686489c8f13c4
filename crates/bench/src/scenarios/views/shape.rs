//! What views compute: the queries that pg_trickle publishes its figures of.

use crate::cli::ViewsShape;

/// A query, and what a table with its rows is like.
pub(super) struct Definition {
    /// The query.
    pub(super) query: String,
    /// The column by which a row is found.
    pub(super) key: &'static str,
    /// The other columns.
    pub(super) columns: &'static [&'static str],
}

impl Definition {
    /// Of a shape over these tables.
    pub(super) fn of(shape: ViewsShape, source: &str, dimension: &str) -> Self {
        let groups = "sum(amount) AS total, count(*) AS rows";
        let joined = format!("{source} AS s JOIN {dimension} AS d ON s.region = d.region");
        match shape {
            ViewsShape::Scan => Self {
                query: format!("SELECT id, region, category, amount, score FROM {source}"),
                key: "id",
                columns: &["region", "category", "amount", "score"],
            },
            ViewsShape::Filter => Self {
                query: format!("SELECT id, region, amount FROM {source} WHERE amount > 5000"),
                key: "id",
                columns: &["region", "amount"],
            },
            ViewsShape::Aggregate => Self {
                query: format!("SELECT region, {groups} FROM {source} GROUP BY region"),
                key: "region",
                columns: &["total", "rows"],
            },
            ViewsShape::Join => Self {
                query: format!("SELECT s.id, s.region, s.amount, d.region_name FROM {joined}"),
                key: "id",
                columns: &["region", "amount", "region_name"],
            },
            ViewsShape::JoinAggregate => Self {
                query: format!(
                    "SELECT d.region_name, {groups} FROM {joined} GROUP BY d.region_name"
                ),
                key: "region_name",
                columns: &["total", "rows"],
            },
        }
    }
}
