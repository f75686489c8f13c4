//! What views compute: the queries that pg_trickle publishes its figures of, and others.

use egret_bench_cli::ViewsShape;

use super::tables::extra_column_name;

/// Columns of a source besides its own, with the shape `wide`: so that it has sixty.
const WIDE_EXTRA_COLUMNS: u32 = 55;

/// A query, and what a table with its rows is like.
pub(super) struct Definition {
    pub(super) query: String,
    /// The column by which a row is found.
    pub(super) key: &'static str,
    pub(super) columns: Vec<String>,
}

impl Definition {
    /// Columns that the source of a shape has besides its own.
    pub(super) fn extra_columns(shape: ViewsShape) -> u32 {
        match shape {
            ViewsShape::Wide => WIDE_EXTRA_COLUMNS,
            _ => 0,
        }
    }

    /// Of a shape over these tables.
    pub(super) fn for_shape(shape: ViewsShape, source: &str, dimension: &str) -> Self {
        let aggregates = "sum(amount) AS total, count(*) AS rows";
        let join = format!("{source} AS s JOIN {dimension} AS d ON s.region = d.region");
        let (query, key, columns): (String, _, &[&str]) = match shape {
            ViewsShape::Scan => (
                format!("SELECT id, region, category, amount, score FROM {source}"),
                "id",
                &["region", "category", "amount", "score"],
            ),
            ViewsShape::Filter => (
                format!("SELECT id, region, amount FROM {source} WHERE amount > 5000"),
                "id",
                &["region", "amount"],
            ),
            ViewsShape::Aggregate => (
                format!("SELECT region, {aggregates} FROM {source} GROUP BY region"),
                "region",
                &["total", "rows"],
            ),
            ViewsShape::Join => (
                format!("SELECT s.id, s.region, s.amount, d.region_name FROM {join}"),
                "id",
                &["region", "amount", "region_name"],
            ),
            ViewsShape::JoinAggregate => (
                format!("SELECT d.region_name, {aggregates} FROM {join} GROUP BY d.region_name"),
                "region_name",
                &["total", "rows"],
            ),
            ViewsShape::Wide => return Self::wide(source),
            other => return Self::for_other_shape(other, source, dimension),
        };
        Self { query, key, columns: columns.iter().map(|&name| name.to_owned()).collect() }
    }

    fn wide(source: &str) -> Self {
        let base_columns = ["region", "category", "amount", "score"].map(str::to_owned);
        let columns: Vec<String> = base_columns
            .into_iter()
            .chain((0..WIDE_EXTRA_COLUMNS).map(extra_column_name))
            .collect();
        Self {
            query: format!("SELECT id, {} FROM {source}", columns.join(", ")),
            key: "id",
            columns,
        }
    }

    fn for_other_shape(shape: ViewsShape, source: &str, dimension: &str) -> Self {
        let columns: &[_] = match shape {
            ViewsShape::Window => &["region", "amount", "place"],
            ViewsShape::Lateral => &["region", "region_name", "scaled"],
            ViewsShape::Cte => &["region_name", "total", "rows"],
            ViewsShape::OuterJoin => &["region", "amount", "region_name"],
            _ => &["region", "amount"],
        };
        let query = match shape {
            ViewsShape::Window => format!(
                "SELECT id, region, amount, rank() OVER (PARTITION BY region ORDER BY amount DESC) AS place FROM {source}"
            ),
            ViewsShape::Lateral => format!(
                "SELECT s.id, s.region, l.region_name, l.scaled FROM {source} AS s, \
                 LATERAL (SELECT d.region_name, s.amount * 2 AS scaled FROM {dimension} AS d WHERE d.region = s.region) AS l"
            ),
            ViewsShape::Cte => format!(
                "WITH regional AS (SELECT region, sum(amount) AS total, count(*) AS rows FROM {source} GROUP BY region) \
                 SELECT r.region, d.region_name, r.total, r.rows FROM regional AS r JOIN {dimension} AS d ON d.region = r.region"
            ),
            ViewsShape::UnionAll => format!(
                "SELECT id, region, amount FROM {source} WHERE amount > 5000 \
                 UNION ALL SELECT id, region, amount FROM {source} WHERE amount <= 2500"
            ),
            ViewsShape::Exists => format!(
                "SELECT s.id, s.region, s.amount FROM {source} AS s WHERE EXISTS (SELECT FROM {dimension} AS d WHERE d.region = s.region)"
            ),
            ViewsShape::OuterJoin => format!(
                "SELECT s.id, s.region, s.amount, d.region_name FROM {source} AS s LEFT JOIN {dimension} AS d ON d.region = s.region"
            ),
            _ => format!(
                "SELECT id, region, amount FROM {source} ORDER BY amount DESC, id LIMIT 100"
            ),
        };
        let key = match shape {
            ViewsShape::Cte => "region",
            _ => "id",
        };
        Self { query, key, columns: columns.iter().map(|&name| name.to_owned()).collect() }
    }
}
