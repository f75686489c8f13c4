//! Window functions, DISTINCT ON and ORDER BY.

use super::{CHANGES, TABLES, apply_changes, check_changes};
use crate::world::World;

#[tokio::test]
async fn numbers_and_ranks_within_partitions() {
    check_changes(
        "",
        &[
            "SELECT id, k, row_number() OVER (PARTITION BY k ORDER BY id) AS n FROM t",
            "SELECT id, rank() OVER (PARTITION BY k ORDER BY c) AS r, dense_rank() OVER (PARTITION BY k ORDER BY c DESC NULLS LAST) AS d FROM t",
            "SELECT c, i, rank() OVER (PARTITION BY c ORDER BY i) AS r FROM w",
            "SELECT id, rank() OVER (ORDER BY i, id) AS r FROM t",
            "SELECT id, percent_rank() OVER w AS p, cume_dist() OVER w AS c, ntile(2) OVER (w ROWS UNBOUNDED PRECEDING) AS n \
             FROM t WINDOW w AS (PARTITION BY c ORDER BY id)",
            "SELECT t.id, u.id AS j, row_number() OVER (PARTITION BY u.id ORDER BY t.id) AS n FROM t LEFT JOIN u ON t.k = u.k",
            "SELECT id, rank() OVER (PARTITION BY k % 2, upper(c) ORDER BY id) AS r FROM t WHERE i > 1",
        ],
    )
    .await;
}

#[tokio::test]
async fn aggregates_and_neighbours_over_frames() {
    check_changes(
        "",
        &[
            "SELECT id, sum(i) OVER (PARTITION BY k) AS s, count(*) OVER () AS n, avg(m) OVER (PARTITION BY k, c) AS a FROM t",
            "SELECT id, lag(i) OVER (PARTITION BY k ORDER BY id) AS a, lead(i, 2, 0) OVER (PARTITION BY k ORDER BY id) AS b FROM t",
            "SELECT id, sum(i) OVER (PARTITION BY c ORDER BY id ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING EXCLUDE CURRENT ROW) AS s FROM t",
            "SELECT id, count(*) OVER (ORDER BY i RANGE BETWEEN 2 PRECEDING AND CURRENT ROW) AS n FROM t WHERE i IS NOT NULL",
            "SELECT id, first_value(c) OVER p AS a, last_value(c) OVER p AS b, nth_value(c, 2) OVER p AS d FROM t \
             WINDOW p AS (PARTITION BY k ORDER BY id GROUPS BETWEEN 1 PRECEDING AND 1 FOLLOWING)",
            "SELECT id, sum(i) FILTER (WHERE o) OVER (PARTITION BY k) * 2 + 1 AS s FROM t",
            "SELECT id, i - avg(i) OVER (PARTITION BY k) AS d, CASE WHEN i > max(i) OVER (PARTITION BY c) / 2 THEN 'high' ELSE 'low' END AS h FROM t",
        ],
    )
    .await;
}

#[tokio::test]
async fn windows_over_groups_and_under_other_stages() {
    check_changes(
        "",
        &[
            "SELECT k, c, sum(i) AS s, rank() OVER (PARTITION BY c ORDER BY sum(i) DESC, k) AS r FROM t GROUP BY k, c",
            "SELECT k, sum(count(*)) OVER () AS n, count(*) * 100 / sum(count(*)) OVER () AS share FROM t GROUP BY k",
            "SELECT k, max(r) AS m, count(*) AS n FROM (SELECT k, rank() OVER (PARTITION BY k ORDER BY i, id) AS r FROM t) AS x GROUP BY k",
            "SELECT x.id, u.c FROM (SELECT id, k, row_number() OVER (PARTITION BY k ORDER BY i DESC, id) AS n FROM t) AS x JOIN u ON u.k = x.k WHERE x.n <= 2",
            "SELECT DISTINCT c, count(*) OVER (PARTITION BY c) AS n FROM t",
            "SELECT id FROM t WHERE id IN (SELECT first_value(id) OVER (PARTITION BY k ORDER BY i, id) FROM t)",
            "SELECT x.n, rank() OVER (ORDER BY x.n) AS r FROM (SELECT count(*) OVER (PARTITION BY k) AS n FROM w) AS x",
            "SELECT k, row_number() OVER (PARTITION BY k ORDER BY c) AS n FROM (SELECT k, c FROM u UNION ALL SELECT k, c FROM w) AS both_of",
        ],
    )
    .await;
}

#[tokio::test]
async fn the_first_row_of_each() {
    check_changes(
        "",
        &[
            "SELECT DISTINCT ON (k) k, id, c FROM t ORDER BY k, i DESC NULLS LAST, id",
            "SELECT DISTINCT ON (k, c) id FROM t ORDER BY k, c, id",
            "SELECT DISTINCT ON (upper(c)) c, i FROM w ORDER BY upper(c), i, c",
            "SELECT DISTINCT ON (t.k) t.id, u.id AS j FROM t JOIN u ON u.k = t.k ORDER BY t.k, u.i, u.id, t.id",
            "SELECT DISTINCT ON (k) k, count(*) AS n, c FROM t GROUP BY k, c ORDER BY k, count(*) DESC, c",
            "SELECT count(*) AS n, sum(i) AS s FROM (SELECT DISTINCT ON (k) i FROM t ORDER BY k, id) AS x",
            "SELECT DISTINCT ON (1) k, i FROM w ORDER BY 1, 2",
        ],
    )
    .await;
}

#[tokio::test]
async fn rows_are_read_in_their_order() {
    for version in [15, 18] {
        let mut world = World::new(version, TABLES).await;
        for query in [
            "SELECT id, c FROM t ORDER BY c DESC NULLS FIRST, id",
            "SELECT c, count(*) AS n FROM t GROUP BY c ORDER BY count(*), c",
            "SELECT id FROM t ORDER BY i + k DESC, id",
            "SELECT k, c FROM u UNION ALL SELECT k, c FROM w ORDER BY 2, k",
            "SELECT DISTINCT c FROM w ORDER BY c DESC",
            "SELECT id FROM t ORDER BY c COLLATE \"C\", id",
            "SELECT c AS x, id FROM t ORDER BY x USING >, id",
        ] {
            world.view(query).await;
        }
        apply_changes(&mut world, &CHANGES[..4]).await;
        for view in &world.views {
            let array = |from: &str| format!("SELECT array_agg(r.*)::text FROM ({from}) AS r");
            let kept = world.text(&array(&format!("TABLE {}", view.name))).await;
            assert_eq!(kept, world.text(&array(&view.query)).await, "{}", view.query);
        }
    }
}
