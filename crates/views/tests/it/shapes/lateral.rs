//! Functions in FROM, LATERAL, and functions that give several values.

use super::check_changes;

#[tokio::test]
async fn rows_of_functions() {
    check_changes(
        "",
        &[
            "SELECT id, x FROM t, unnest(v) AS x",
            "SELECT id, e.key, e.value FROM t CROSS JOIN LATERAL jsonb_each(h) AS e",
            "SELECT id, x, n FROM t LEFT JOIN LATERAL unnest(v) WITH ORDINALITY AS x (x, n) ON x > 1",
            "SELECT id, x, y FROM t, ROWS FROM (unnest(v), generate_series(1, k)) AS r (x, y)",
            "SELECT g, count(t.id) AS n FROM generate_series(1, 4) AS g LEFT JOIN t ON t.k = g GROUP BY g",
            "SELECT id, r.a, r.b FROM t, jsonb_to_record(h) AS r (a int, b text)",
            "SELECT x, count(*) AS n, sum(id) AS s FROM t, unnest(v) AS x GROUP BY x",
            "SELECT t.id, u.id AS j, x FROM t JOIN u ON t.k = u.k, generate_series(1, u.i) AS x WHERE x > 2",
            "SELECT g, w.c FROM w FULL JOIN generate_series(1, 3) AS g ON g = w.k",
            "SELECT id, p FROM t JOIN LATERAL string_to_array(c || ',x', ',') AS p ON p[1] > 'a'",
        ],
    )
    .await;
}

#[tokio::test]
async fn several_values_among_what_is_shown() {
    check_changes(
        "",
        &[
            "SELECT id, unnest(v) AS x FROM t",
            "SELECT id, unnest(v) + 1 AS x, generate_series(1, k) AS g FROM t",
            "SELECT DISTINCT unnest(v) AS x FROM t",
            "SELECT k, generate_series(1, count(*)) AS n FROM t GROUP BY k",
            "SELECT jsonb_object_keys(h) AS key, count(*) AS n FROM t GROUP BY jsonb_object_keys(h)",
            "SELECT id FROM t WHERE k IN (SELECT generate_series(1, i) FROM u)",
            "SELECT id, unnest(v) AS x FROM t ORDER BY 2, 1 LIMIT 5",
        ],
    )
    .await;
}

#[tokio::test]
async fn subqueries_that_depend_on_what_stands_before_them() {
    check_changes(
        "",
        &[
            "SELECT t.id, x.j FROM t, LATERAL (SELECT u.id AS j FROM u WHERE u.k = t.k) AS x",
            "SELECT t.id, x.d FROM t CROSS JOIN LATERAL (SELECT u.i - t.i AS d FROM u WHERE u.k = t.k AND u.i > 2) AS x",
            "SELECT t.id, x.j, x.c FROM t LEFT JOIN LATERAL (SELECT u.id AS j, coalesce(u.c, 'none') AS c FROM u WHERE u.k = t.k) AS x ON x.j > 2",
            "SELECT t.id, y.s FROM t, LATERAL (SELECT t.i + 1 AS a) AS x, LATERAL (SELECT x.a * 2 AS s) AS y",
            "SELECT t.id, x.n FROM t, LATERAL (SELECT count(*) AS n FROM u) AS x",
            "SELECT t.id, x.v, x.n FROM t, LATERAL (VALUES (t.i, 'i'), (t.k, 'k')) AS x (v, n)",
            "SELECT t.id, x.v FROM t LEFT JOIN LATERAL (VALUES (t.i), (t.k)) AS x (v) ON x.v > 2",
            "SELECT v.name, count(t.id) AS n FROM (VALUES (1, 'one'), (2, 'two'), (9, 'nine')) AS v (k, name) LEFT JOIN t ON t.k = v.k GROUP BY v.name",
            "SELECT k FROM t UNION ALL VALUES (1), (NULL)",
            "SELECT t.id, x.c FROM t JOIN LATERAL (SELECT w.c, w.i FROM w WHERE EXISTS (SELECT FROM u WHERE u.i = w.i) AND w.k = t.k) AS x ON x.i > 0",
        ],
    )
    .await;
}
