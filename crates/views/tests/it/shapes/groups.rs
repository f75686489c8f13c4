//! Groups: what they are made of and which are shown; and queries that are named before they are
//! used.

use super::check_changes;

#[tokio::test]
async fn groups_by_columns_expressions_and_places() {
    check_changes(
        "",
        &[
            "SELECT k, c, count(*) AS n FROM t GROUP BY k, c",
            "SELECT i % 3 AS r, upper(c) AS l, count(*) AS n FROM t GROUP BY 1, 2",
            "SELECT i % 3 + 1 AS r, i % 3 AS q, sum(m) + count(*) AS s FROM t GROUP BY i % 3",
            "SELECT CASE WHEN i > 3 THEN 'big' WHEN i IS NULL THEN 'none' ELSE 'small' END AS size, avg(m) AS a FROM t GROUP BY 1",
            "SELECT count(*) AS n FROM t GROUP BY c",
            "SELECT t.k, u.c, sum(t.i * u.i) AS s FROM t JOIN u ON t.k = u.k GROUP BY t.k, u.c",
            "SELECT date_trunc('month', d::timestamp) AS month, count(*) AS n FROM t GROUP BY date_trunc('month', d::timestamp)",
            "SELECT sum(i) AS s, count(*) AS n, max(c) AS m FROM t",
        ],
    )
    .await;
}

#[tokio::test]
async fn columns_that_depend_on_the_key_that_is_grouped_by() {
    check_changes(
        "CREATE TABLE j (id int PRIMARY KEY, json json, p point, n numeric); INSERT INTO j VALUES (1, '{}', '(1,2)', 1.0), (2, '{ }', NULL, 2);
         CREATE FUNCTION follows() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             UPDATE j SET json = '{\"new\": 1}', p = '(3,4)', n = 1.00 WHERE id = 1; RETURN NULL; END $$;
         CREATE TRIGGER follows AFTER UPDATE ON w EXECUTE FUNCTION follows();",
        &[
            "SELECT t.id, t.c, t.m, count(u.id) AS n FROM t LEFT JOIN u ON t.k = u.k GROUP BY t.id",
            "SELECT j.json, j.p, j.n, count(t.id) AS rows FROM j LEFT JOIN t ON t.k = j.id GROUP BY j.id",
        ],
    )
    .await;
}

#[tokio::test]
async fn having() {
    check_changes(
        "",
        &[
            "SELECT 1 AS one FROM w HAVING count(*) > 6",
            "SELECT c, count(*) AS n FROM t GROUP BY c HAVING count(*) > 3",
            "SELECT c FROM t GROUP BY c HAVING sum(i) > 10 AND bool_or(o)",
            "SELECT c, sum(m) AS s FROM t GROUP BY c HAVING c <> 'a' OR c IS NULL",
            "SELECT k, max(i) AS m FROM t GROUP BY k HAVING min(i) IS NULL OR max(i) - min(i) > 4",
            "SELECT sum(i) AS s FROM t HAVING count(*) > 5",
            "SELECT 1 AS one FROM t HAVING max(i) > 5",
        ],
    )
    .await;
}

#[tokio::test]
async fn queries_that_are_named_first() {
    check_changes(
        "",
        &[
            "WITH big AS (SELECT * FROM t WHERE i > 3) SELECT id, c FROM big",
            // Used twice, and of groups.
            "WITH g AS (SELECT k, count(*) AS n FROM t GROUP BY k) SELECT a.k, a.n, b.k AS other FROM g AS a JOIN g AS b ON a.n = b.n",
            "WITH b AS (SELECT k, i FROM t UNION ALL SELECT k, i FROM u) SELECT x.k, x.i, y.i AS j FROM b AS x LEFT JOIN b AS y ON x.k = y.i",
            "WITH one (a, b) AS (SELECT k, c FROM w), two AS (SELECT a AS x, count(b) AS n FROM one GROUP BY a) SELECT one.a, one.b, two.n FROM one LEFT JOIN two ON one.a = two.x",
            "WITH f AS (SELECT id, k, i FROM t ORDER BY i DESC, id LIMIT 6) SELECT x.id, y.k, (SELECT sum(f.i) FROM f) AS s FROM f AS x JOIN f AS y ON x.k = y.i",
            "WITH r AS (SELECT k, sum(i) AS s FROM u GROUP BY k) SELECT t.id, r.s FROM t JOIN r ON r.k = t.k WHERE r.s = (SELECT max(r.s) FROM r)",
            "WITH p AS (SELECT id, rank() OVER (PARTITION BY c ORDER BY i) AS r FROM t) SELECT a.id, b.id AS j FROM p AS a LEFT JOIN p AS b ON b.r = a.r + 1",
            "WITH m AS MATERIALIZED (SELECT DISTINCT k FROM u), n AS NOT MATERIALIZED (SELECT k FROM w) SELECT m.k, n.k AS l FROM m FULL JOIN n ON m.k = n.k",
            // Called like a table, and one inside of another.
            "WITH t AS (SELECT k, i FROM u WHERE i > 2) SELECT t.k, s.n FROM t JOIN (WITH t AS (SELECT i AS n, k FROM w) SELECT * FROM t) AS s ON s.k = t.k",
            "WITH x AS (SELECT k FROM t), y AS (SELECT k FROM x WHERE k > 0), unused AS (SELECT * FROM w) SELECT y.k, count(*) AS n FROM y GROUP BY y.k",
        ],
    )
    .await;
}

#[tokio::test]
async fn subqueries_in_from() {
    check_changes(
        "",
        &[
            "SELECT s.x, s.y FROM (SELECT k AS x, i + 1 AS y FROM t WHERE o) AS s WHERE s.y > 2",
            "SELECT s.a, s.b FROM (SELECT k, c FROM w) AS s (a, b)",
            "SELECT g.n, u.c FROM (SELECT k, count(*) AS n FROM (SELECT * FROM t WHERE i > 2) AS f GROUP BY k) AS g RIGHT JOIN u ON u.k = g.k",
        ],
    )
    .await;
}
