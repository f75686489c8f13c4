//! Subqueries that depend on the rows around them by more than what is equal.

use super::check_changes;

#[tokio::test]
async fn values_by_any_condition() {
    check_changes(
        "",
        &[
            "SELECT t.id, (SELECT max(u.i) FROM u WHERE u.k < t.k) AS m FROM t",
            "SELECT t.id, (SELECT count(*) FROM u WHERE u.i BETWEEN t.k AND t.i) AS n FROM t",
            "SELECT t.id, (SELECT count(DISTINCT u.c) FROM u WHERE u.i > t.k) AS n FROM t",
            "SELECT t.id, ARRAY(SELECT u.id FROM u WHERE u.i > t.i ORDER BY u.id DESC LIMIT 2) AS a FROM t",
            "SELECT t.id, (SELECT u.c FROM u WHERE u.i <= t.i ORDER BY u.i DESC, u.id LIMIT 1) AS c FROM t",
            "SELECT t.id, EXISTS (SELECT FROM u WHERE u.k = t.k OR u.i = t.i) AS e FROM t",
            "SELECT t.id, (SELECT count(*) FROM u WHERE u.c = t.m::text OR t.m > u.i) AS n FROM t",
            "SELECT t.id, (SELECT string_agg(t.c || u.c, ',' ORDER BY u.id) FROM u WHERE u.k = t.k) AS s FROM t",
            "SELECT t.id FROM t WHERE t.i > (SELECT avg(x.i) FROM t AS x WHERE x.k <= t.k)",
            "SELECT t.k, count(*) AS n, (SELECT sum(u.i) FROM u WHERE u.k > t.k) AS m FROM t GROUP BY t.k",
            "SELECT t.k, count(*) AS n FROM t GROUP BY t.k HAVING count(*) < (SELECT count(*) FROM u WHERE u.k < t.k)",
            "SELECT t.id, (SELECT max((SELECT count(*) FROM w WHERE w.i < u.i AND w.k = t.k)) FROM u WHERE u.k = t.k) AS m FROM t",
        ],
    )
    .await;
}

#[tokio::test]
async fn conditions_on_groups_sets_and_first_rows() {
    check_changes(
        "",
        &[
            "SELECT t.id FROM t WHERE EXISTS (SELECT u.c FROM u WHERE u.k = t.k GROUP BY u.c HAVING count(*) > 1)",
            "SELECT t.id FROM t WHERE t.i IN (SELECT max(u.i) FROM u WHERE u.k < t.k GROUP BY u.c)",
            "SELECT t.id FROM t WHERE t.k NOT IN (SELECT u.k FROM u WHERE u.i > t.i ORDER BY u.i, u.id LIMIT 2)",
            "SELECT t.id FROM t WHERE t.i >= ALL (SELECT w.i FROM w WHERE w.k = t.k UNION SELECT u.i FROM u WHERE u.k = t.k)",
            "SELECT t.id FROM t WHERE EXISTS (SELECT FROM u WHERE u.k = t.k AND EXISTS (SELECT FROM w WHERE w.i < u.i AND w.k = t.k))",
            "SELECT t.id FROM t WHERE NOT EXISTS (SELECT FROM u LEFT JOIN w ON w.k = u.k AND w.i > t.k WHERE u.i < t.i AND w.k IS NULL)",
            "SELECT t.id FROM t WHERE EXISTS (SELECT FROM (SELECT max(u.i) AS m FROM u WHERE u.k = t.k) AS x WHERE x.m > t.k)",
            "SELECT t.id FROM t WHERE t.k < ANY (SELECT rank() OVER (ORDER BY u.i) FROM u WHERE u.c = t.c)",
            "SELECT t.id FROM t WHERE t.k IN (SELECT DISTINCT ON (u.c) u.k FROM u WHERE u.i <> t.i ORDER BY u.c, u.i, u.id)",
            "SELECT t.id FROM t WHERE (t.k, t.i) < ANY (SELECT u.k, u.i FROM u WHERE u.c = t.c)",
            "SELECT t.id FROM t WHERE EXISTS (SELECT u.k FROM u WHERE u.i > t.k EXCEPT ALL SELECT w.k FROM w WHERE w.i < t.k)",
        ],
    )
    .await;
}

#[tokio::test]
async fn comparisons_with_subqueries_as_values() {
    check_changes(
        "",
        &[
            "SELECT t.id, t.i < ANY (SELECT u.i FROM u) AS a, t.i > ALL (SELECT u.k FROM u WHERE u.c = t.c) AS b FROM t",
            "SELECT t.id, t.k <> ALL (SELECT w.k FROM w WHERE w.i < t.k) AS a FROM t",
            "SELECT t.id, (t.k, t.c) IN (SELECT u.k, u.c FROM u) AS a, (t.k, t.c) NOT IN (SELECT w.k, w.c FROM w) AS b FROM t",
            "SELECT t.id FROM t WHERE t.o OR t.i > ALL (SELECT u.i FROM u WHERE u.k < t.k)",
            "SELECT t.k, sum(t.i) > ANY (SELECT u.i * 3 FROM u WHERE u.k <= t.k) AS a FROM t GROUP BY t.k",
            "SELECT t.id, CASE WHEN t.c LIKE ANY (SELECT w.c || '%' FROM w) THEN 1 ELSE 0 END AS a FROM t",
        ],
    )
    .await;
}

#[tokio::test]
async fn lateral_subqueries_of_groups_and_first_rows() {
    check_changes(
        "",
        &[
            "SELECT t.id, x.n, x.m FROM t, LATERAL (SELECT count(*) AS n, max(u.i) AS m FROM u WHERE u.i < t.i) AS x",
            "SELECT t.id, x.n FROM t LEFT JOIN LATERAL (SELECT count(*) * 2 + 1 AS n FROM u WHERE u.k = t.k) AS x ON x.n > 1",
            "SELECT t.id, x.j, x.i FROM t, LATERAL (SELECT u.id AS j, u.i FROM u WHERE u.k = t.k ORDER BY u.i DESC, u.id LIMIT 2) AS x",
            "SELECT t.id, x.j FROM t LEFT JOIN LATERAL (SELECT w.i AS j FROM w WHERE w.k >= t.k ORDER BY w.i FETCH FIRST 1 ROW WITH TIES) AS x ON true",
            "SELECT t.id, x.c, x.n FROM t CROSS JOIN LATERAL (SELECT u.c, count(*) AS n FROM u WHERE u.i > t.k GROUP BY u.c) AS x",
            "SELECT t.id, x.r FROM t, LATERAL (SELECT row_number() OVER (ORDER BY u.id) AS r FROM u WHERE u.k = t.k) AS x",
            "SELECT t.id, x.k FROM t, LATERAL (SELECT u.k FROM u WHERE u.i > t.i UNION SELECT t.k) AS x",
            "SELECT t.id, x.b FROM t LEFT JOIN LATERAL (SELECT t.i + u.i AS b FROM u WHERE u.k = t.k) AS x ON true",
            "SELECT t.id, y.n FROM t, LATERAL (SELECT t.k + 1 AS a) AS x, LATERAL (SELECT count(*) AS n FROM u WHERE u.k < x.a) AS y",
            "SELECT t.id, x.n FROM t, LATERAL (SELECT count(*) AS n FROM u WHERE u.k = t.k HAVING count(*) <> 1) AS x",
            "SELECT t.k, sum(x.s) AS s FROM t, LATERAL (SELECT sum(u.i) AS s FROM u WHERE u.k <= t.k) AS x GROUP BY t.k",
            "SELECT t.id, x.f FROM t, LATERAL (SELECT DISTINCT t.f || u.c AS f FROM u WHERE u.i < t.f) AS x",
        ],
    )
    .await;
}
