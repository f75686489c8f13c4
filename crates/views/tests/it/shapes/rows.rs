//! Rows: what is computed of each, and which there are.

use super::check_changes;
use crate::world::World;

#[tokio::test]
async fn projections_with_expressions() {
    check_changes(
        "",
        &[
            "SELECT id, i + b AS x, upper(c) AS y, CASE WHEN o THEN i ELSE -1 END AS z, coalesce(c, 'none') AS q, m * 2 AS w FROM t",
            "SELECT c || '-' || i AS x, i BETWEEN 1 AND 5 AS y, i IN (1, 2, NULL) AS z, c LIKE 'a%' AS l, greatest(i, b, 3) AS g, nullif(i, 2) AS n FROM t",
            "SELECT CASE c WHEN 'a' THEN 1 WHEN 'b' THEN 2 END AS x, c IS DISTINCT FROM 'a' AS y, (i > 3) IS NOT TRUE AS z, -i AS n, i::text || 'x' AS s FROM t",
            "SELECT ARRAY[i, k] AS a, v[1] AS first, v[1:2] AS two, i = ANY (v) AS has, h -> 'a' AS x, h ->> 'a' AS y, h @> '{\"a\": 1}' AS z FROM t",
            "SELECT d + 1 AS tomorrow, extract(year FROM d) AS year, date_trunc('month', s AT TIME ZONE 'UTC') AS month, s - interval '1 h' AS before, s::date AS day FROM t",
            "SELECT substring(c FROM 1 FOR 1) AS a, trim(both 'x' FROM c) AS b, position('a' IN c) AS p, overlay(c PLACING 'z' FROM 1) AS o, c COLLATE \"C\" < 'b' AS l FROM t",
            "SELECT 1 AS one, NULL::int AS nothing, 'letter' AS letter FROM t",
            "SELECT x.i AS \"I\", x.i AS again, (x.i, x.c) = (1, 'a') AS same FROM t AS x",
            "SELECT * FROM t",
            "SELECT DISTINCT ON_.* FROM (SELECT k, c FROM w) AS ON_",
        ],
    )
    .await;
}

/// More columns than are compared one by one, of rows that are told apart by all of them, and of
/// groups.
#[tokio::test]
async fn wide_rows() {
    let list = |column: &dyn Fn(usize) -> String| -> String {
        let all: Vec<String> = (0..60).map(column).collect();
        all.join(", ")
    };
    let numbers = list(&|at| format!("i + {at} AS x{at}"));
    let words = list(&|at| match at % 3 {
        0 => format!("c || {at} AS x{at}"),
        1 => format!("v AS x{at}"),
        _ => format!("h AS x{at}"),
    });
    let sums = list(&|at| format!("sum(i + {at}) AS x{at}"));
    let greatest = list(&|at| format!("max(c || {at}) AS x{at}"));
    check_changes(
        "",
        &[
            &format!("SELECT {numbers} FROM t"),
            &format!("SELECT {words} FROM t"),
            &format!("SELECT c, {sums} FROM t GROUP BY c"),
            &format!("SELECT k, {greatest} FROM t GROUP BY k"),
        ],
    )
    .await;
}

#[tokio::test]
async fn a_query_without_tables() {
    let mut world = World::new(18, "").await;
    world.view("SELECT 1 AS one, 'x' AS letter").await;
    world.view("SELECT count(*) AS n").await;
    world.view("SELECT 1 AS one WHERE false").await;
    assert_eq!(world.apply_change("").await, [0, 0, 0]);
}

#[tokio::test]
async fn filters_with_the_logic_of_null() {
    check_changes(
        "",
        &[
            "SELECT id FROM t WHERE i > 2",
            "SELECT id FROM t WHERE NOT (i > 2)",
            "SELECT id FROM t WHERE i > 2 OR c IS NULL",
            "SELECT id FROM t WHERE (i > 2) IS NOT TRUE",
            "SELECT id FROM t WHERE (i > 2 AND o) IS UNKNOWN",
            "SELECT id FROM t WHERE o",
            "SELECT id FROM t WHERE NOT o",
            "SELECT id FROM t WHERE i NOT IN (1, 2)",
            "SELECT id FROM t WHERE i = ANY (ARRAY[1, 2, NULL])",
            "SELECT id FROM t WHERE (i <> ALL (ARRAY[1, NULL])) IS NULL",
            "SELECT id FROM t WHERE c IS NOT DISTINCT FROM NULL",
            "SELECT id FROM t WHERE nullif(i, 2) IS NULL",
            "SELECT id FROM t WHERE coalesce(o, i > 3, true)",
            "SELECT id FROM t WHERE NULL::boolean OR i = 1",
            "SELECT id FROM t WHERE CASE WHEN i = 0 THEN false ELSE 10 / i > 2 END",
            "SELECT k, c FROM w WHERE i IS NOT NULL AND NOT (c = 'a' AND k IS NULL)",
        ],
    )
    .await;
}

#[tokio::test]
async fn distinct_rows() {
    check_changes(
        "",
        &[
            "SELECT DISTINCT c FROM t",
            "SELECT DISTINCT k, o, i % 2 AS odd FROM t",
            "SELECT DISTINCT t.k, u.c FROM t LEFT JOIN u ON t.k = u.k",
            "SELECT DISTINCT count(*) AS n FROM t GROUP BY c",
            "SELECT DISTINCT * FROM w",
            "SELECT k, c FROM w UNION SELECT k, c FROM u",
        ],
    )
    .await;
}

#[tokio::test]
async fn union_all() {
    check_changes(
        "",
        &[
            "SELECT k, c FROM w UNION ALL SELECT k, c FROM u",
            "SELECT k, c FROM w UNION ALL SELECT k, c FROM w UNION ALL (SELECT i, c FROM u UNION ALL SELECT id, NULL FROM t)",
            "SELECT 'w' AS of, count(*) AS n FROM w UNION ALL SELECT 'u', count(*) FROM u UNION ALL SELECT c, sum(i) FROM t GROUP BY c",
            "SELECT b.k, sum(b.i) AS s FROM (SELECT k, i FROM t UNION ALL SELECT k, i FROM u UNION ALL SELECT k, i FROM w) AS b GROUP BY b.k",
            "SELECT b.c, u.id FROM (SELECT k, c FROM t UNION ALL SELECT k, c FROM w) AS b LEFT JOIN u ON u.k = b.k",
            "SELECT t.id, b.c FROM t FULL JOIN (SELECT k, c FROM u UNION ALL SELECT i, c FROM w) AS b ON t.k = b.k",
        ],
    )
    .await;
}

/// What becomes of it is of the type that the server finds for all, whichever of them changed.
#[tokio::test]
async fn union_all_of_different_types() {
    check_changes(
        "CREATE TABLE small (x int, y varchar(3), z date, q char(4)); CREATE TABLE large (x numeric, y text, z timestamp, q text);
         CREATE FUNCTION both_change() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             INSERT INTO small VALUES (3, 'abc', '2013-01-01', 'ab'), (NULL, NULL, NULL, NULL);
             INSERT INTO large VALUES (3.50, 'abc', '2013-01-01', 'ab'); RETURN NULL; END $$;
         CREATE TRIGGER both_change AFTER INSERT ON u EXECUTE FUNCTION both_change();
         CREATE FUNCTION one_changes() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             UPDATE small SET x = x + 2; RETURN NULL; END $$;
         CREATE TRIGGER one_changes AFTER UPDATE ON w EXECUTE FUNCTION one_changes();",
        &[
            "SELECT x, y, z, q FROM small UNION ALL SELECT x, y, z, q FROM large",
            "SELECT b.x / 2 AS half, b.z::text AS at, b.q || '|' AS q, length(b.q) AS l FROM (SELECT x, z, q FROM small UNION ALL SELECT x, z, q FROM large) AS b",
            "SELECT b.x / 2 AS half, count(*) AS n, sum(b.x) AS s, avg(b.x) AS a FROM (SELECT x FROM small UNION ALL SELECT x FROM large) AS b GROUP BY b.x / 2",
            "SELECT b.x / 2 AS half FROM (SELECT x FROM small UNION ALL SELECT id FROM u UNION ALL SELECT x FROM large) AS b WHERE b.x / 2 > 1",
            "SELECT b.x / 2 AS half FROM (SELECT x FROM small UNION SELECT f FROM t) AS b",
            "SELECT t.id, b.x / 2 AS half FROM t JOIN (SELECT x FROM small UNION ALL SELECT x FROM large) AS b ON t.id > b.x / 2",
        ],
    )
    .await;
}
