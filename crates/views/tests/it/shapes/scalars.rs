//! Subqueries that are values.

use super::check_changes;

#[tokio::test]
async fn values_that_have_nothing_to_do_with_the_rows_around_them() {
    check_changes(
        "",
        &[
            "SELECT id, i, (SELECT max(i) FROM u) AS m FROM t",
            "SELECT id, i FROM t WHERE i > (SELECT avg(i) FROM t)",
            "SELECT k, sum(i) AS s FROM t GROUP BY k HAVING sum(i) > (SELECT sum(i) / 4 FROM t)",
            "SELECT id, ARRAY(SELECT id FROM u ORDER BY i, id LIMIT 3) AS a FROM t",
            "SELECT id, EXISTS (SELECT FROM u WHERE k = 2) AS e FROM t",
            "SELECT id FROM t WHERE k = 1 OR EXISTS (SELECT FROM w WHERE k = 2 AND i > 2)",
            "SELECT id, (SELECT c FROM u ORDER BY i, id LIMIT 1) AS c FROM t",
            "SELECT k, sum(i * (SELECT count(*) FROM u)) AS s FROM t GROUP BY k",
            "SELECT (SELECT count(*) FROM t) AS t, (SELECT count(*) FROM u) AS u, (SELECT min(i) FROM w) AS w",
            "SELECT id, i * 100 / (SELECT sum(i) FROM t) AS share FROM t WHERE i > 0",
            "SELECT id, ARRAY(SELECT generate_series(1, max(k)) FROM u) AS a FROM t",
        ],
    )
    .await;
}

#[tokio::test]
async fn values_for_each_row_around_them() {
    check_changes(
        "",
        &[
            "SELECT t.id, (SELECT max(u.i) FROM u WHERE u.k = t.k) AS m FROM t",
            "SELECT t.id, (SELECT count(*) FROM u WHERE u.k = t.k AND u.i > 2) AS n FROM t",
            "SELECT t.id, (SELECT coalesce(sum(w.i), 0) + count(*) FROM w WHERE t.k = w.k AND w.c = t.c) AS n FROM t",
            "SELECT t.id FROM t WHERE t.i >= (SELECT max(x.i) FROM t AS x WHERE x.k = t.k)",
            "SELECT t.id FROM t WHERE t.i > (SELECT 0.5 * avg(x.i) FROM t AS x WHERE x.c = t.c) AND t.k > 0",
            "SELECT t.id, (SELECT u.c FROM u WHERE u.id = t.i) AS c FROM t",
            "SELECT t.id, ARRAY(SELECT u.id FROM u WHERE u.k = t.k ORDER BY u.i DESC, u.id) AS a FROM t",
            "SELECT t.id, EXISTS (SELECT FROM u WHERE u.k = t.k) AS e FROM t",
            "SELECT t.id, t.k IN (SELECT u.k FROM u) AS a, t.i NOT IN (SELECT u.i FROM u WHERE u.k = t.k) AS b FROM t",
            "SELECT t.id FROM t WHERE t.k IN (SELECT u.k FROM u WHERE u.i > 4) OR t.i NOT IN (SELECT w.i FROM w)",
            "SELECT t.id, t.i IN (SELECT w.k FROM w WHERE w.c = t.c) AS a, t.k IN (SELECT max(u.k) FROM u GROUP BY u.c) AS b FROM t",
            "SELECT t.id FROM t WHERE t.o OR EXISTS (SELECT FROM u WHERE u.k = t.k AND u.c = 'b')",
            "SELECT t.k, count(*) AS n, (SELECT count(*) FROM u WHERE u.k = t.k) AS m FROM t GROUP BY t.k",
            "SELECT t.id FROM t WHERE t.id IN (SELECT u.id FROM u WHERE u.i > (SELECT count(*) FROM w WHERE w.k = u.k))",
            "SELECT t.id, (SELECT max(u.i) FROM u WHERE u.k = t.k HAVING count(*) > 1) AS m FROM t",
            "SELECT t.id, EXISTS (SELECT max(u.i) FROM u WHERE u.k = t.k HAVING count(*) > 1) AS e, ARRAY(SELECT sum(u.i) FROM u WHERE u.k = t.k HAVING count(*) > 1) AS a FROM t",
            "SELECT t.id, EXISTS (SELECT max(u.i) FROM u WHERE u.k = t.k) AS e, ARRAY(SELECT count(*) FROM u WHERE u.k = t.k) AS a FROM t",
            "SELECT t.id, t.i + (SELECT sum(u.i) FROM u WHERE u.k = t.k + 1) AS s, rank() OVER (ORDER BY (SELECT count(*) FROM u WHERE u.k = t.k)) AS r FROM t",
        ],
    )
    .await;
}
