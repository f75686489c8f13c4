//! WITH RECURSIVE.

use super::{apply_changes, check_changes};
use crate::world::World;

#[tokio::test]
async fn recursion_over_the_tables_of_every_shape() {
    check_changes(
        "",
        &[
            "WITH RECURSIVE r AS (SELECT id, k FROM t WHERE k = 1 UNION SELECT u.id, u.k FROM r JOIN u ON u.i = r.k) SELECT id, k FROM r",
            "WITH RECURSIVE r (id, depth) AS (SELECT id, 0 FROM t WHERE k = 1 UNION ALL SELECT u.id, r.depth + 1 FROM r JOIN u ON u.k = r.id % 5 WHERE r.depth < 3) SELECT id, depth FROM r",
            "WITH RECURSIVE r AS (SELECT k, c FROM w UNION SELECT r.k + 1, r.c FROM r WHERE r.k < 7) SELECT k, c, count(*) AS n FROM r GROUP BY k, c",
            "WITH RECURSIVE r AS (SELECT k, 1 AS n FROM w UNION ALL SELECT r.k, r.n + 1 FROM r WHERE r.n < coalesce(r.k, 2)) SELECT k, n FROM r",
            "WITH RECURSIVE r (m) AS (SELECT m FROM t UNION SELECT (r.m / 2)::numeric(10,2) FROM r WHERE r.m > 1) SELECT m + 0.00 AS m FROM r WHERE m > 0.5",
            "WITH RECURSIVE r AS (SELECT i FROM t UNION SELECT r.i - 1 FROM r WHERE r.i > 0 AND NOT EXISTS (SELECT FROM u WHERE u.i = r.i)) SELECT i FROM r",
            "WITH RECURSIVE r AS (SELECT id, i FROM t WHERE k < 2 UNION SELECT r.id, coalesce(u.i, 0) FROM r LEFT JOIN u ON u.id = r.i AND u.k > 1) SELECT id, i FROM r",
            "WITH RECURSIVE r AS (SELECT k, 0 AS d FROM t UNION ALL SELECT w.i, r.d + 1 FROM r LEFT JOIN w ON w.k = r.k WHERE r.d < 2) SELECT k, d FROM r",
            "WITH RECURSIVE r AS (SELECT k, 0 AS d FROM t UNION ALL SELECT r.k, r.d + 1 FROM r WHERE r.d < 2 AND r.k IN (SELECT k FROM w)) SELECT k, d FROM r",
            "WITH RECURSIVE r AS (SELECT k FROM t UNION SELECT g.x FROM r CROSS JOIN LATERAL generate_series(r.k, 5) AS g (x)) SELECT k FROM r",
            "WITH RECURSIVE r AS (SELECT k, (SELECT max(i) FROM u) AS m FROM w UNION SELECT r.k + 1, (SELECT max(w.i) FROM w WHERE w.k = r.k) FROM r WHERE r.k < 5) SELECT k, m FROM r",
            "WITH RECURSIVE r AS (SELECT id, c, ARRAY[id] AS path FROM t WHERE k = 1 UNION ALL SELECT u.id, u.c, r.path || u.id FROM r JOIN u ON u.c = r.c AND u.id <> ALL (r.path) WHERE cardinality(r.path) < 3) SELECT id, path FROM r",
            "WITH RECURSIVE x AS (SELECT DISTINCT k FROM t), r AS (SELECT k FROM x UNION SELECT x.k + 1 FROM r JOIN x ON x.k = r.k) SELECT r.k, x.k AS other FROM r LEFT JOIN x ON x.k = r.k",
            "WITH RECURSIVE r (n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM r WHERE n < 12) SELECT r.n, t.c FROM r JOIN t ON t.id = r.n",
            "WITH RECURSIVE a AS (SELECT k FROM t UNION SELECT a.k + 1 FROM a WHERE a.k < 4), b AS (SELECT k, 1 AS n FROM a UNION ALL SELECT b.k, b.n + 1 FROM b JOIN a ON a.k = b.k AND b.n < 3) SELECT k, n FROM b",
            "SELECT id FROM t WHERE k IN (WITH RECURSIVE r AS (SELECT k FROM w UNION SELECT u.i FROM r JOIN u ON u.k = r.k) SELECT k FROM r)",
            "WITH RECURSIVE r AS (SELECT k FROM w UNION SELECT u.i FROM r JOIN u ON u.k = r.k) SELECT one.k, other.k AS o FROM r AS one JOIN r AS other ON one.k < other.k",
            "WITH RECURSIVE r AS (SELECT k, i FROM w UNION ALL SELECT k, i FROM t) SELECT k, sum(i) AS s FROM r GROUP BY k",
        ],
    )
    .await;
}

/// Employees with their superiors.
const PEOPLE: &str = "CREATE TABLE p (id int PRIMARY KEY, boss int, name text, pay int);
    INSERT INTO p SELECT i, nullif(i / 3, 0), 'p' || i, i * 10 FROM generate_series(1, 40) AS i;";

#[tokio::test]
async fn an_organisation_whose_parts_move() {
    for version in [15, 18] {
        let mut world = World::new(version, PEOPLE).await;
        let below = "WITH RECURSIVE below AS (SELECT id, boss, name, 0 AS depth, ARRAY[id] AS path FROM p WHERE boss IS NULL \
             UNION ALL SELECT p.id, p.boss, p.name, below.depth + 1, below.path || p.id FROM below JOIN p ON p.boss = below.id)";
        let all = "WITH RECURSIVE above AS (SELECT id, boss, id AS who FROM p UNION SELECT p.id, p.boss, above.who FROM above JOIN p ON p.id = above.boss)";
        for query in [
            format!("{below} SELECT id, name, depth, path FROM below"),
            format!(
                "{below} SELECT depth, count(*) AS n, max(name) AS last FROM below GROUP BY depth"
            ),
            format!("{all} SELECT who, id FROM above"),
            format!(
                "{all} SELECT above.id, sum(p.pay) AS pay FROM above JOIN p ON p.id = above.who GROUP BY above.id"
            ),
        ] {
            world.view(&query).await;
        }
        apply_changes(
            &mut world,
            &[
                "UPDATE p SET boss = 5 WHERE id = 2",
                "UPDATE p SET boss = NULL WHERE id = 4; UPDATE p SET pay = pay + 1 WHERE id % 7 = 0",
                "INSERT INTO p VALUES (100, 4, 'new', 7), (101, 100, 'newer', 8); DELETE FROM p WHERE id = 3",
                "UPDATE p SET boss = 101 WHERE boss IN (4, 7) AND id < 100",
                "BEGIN; DELETE FROM p WHERE id = 1; INSERT INTO p VALUES (3, NULL, 'back', 1); UPDATE p SET name = name || 'x' WHERE id > 20; COMMIT",
                "UPDATE p SET id = id + 1000, boss = boss + 1000",
                "DELETE FROM p",
                "INSERT INTO p VALUES (1, NULL, 'a', 1), (2, 1, 'b', 2), (3, 2, 'c', 3)",
            ],
        )
        .await;
    }
}

/// A graph with cycles, and the nodes to start from.
const GRAPH: &str = "CREATE TABLE e (a int, b int); CREATE TABLE s (a int);
    INSERT INTO e VALUES (1, 2), (2, 3), (3, 1), (3, 4), (4, 5), (5, 4), (6, 7), (7, 6), (NULL, 8), (8, NULL);
    INSERT INTO s VALUES (1), (NULL);";

/// Edges of circles that come and go.
const EDGES: [&str; 14] = [
    "DELETE FROM e WHERE (a, b) = (3, 1)",
    "INSERT INTO e VALUES (3, 1), (3, 1)",
    "DELETE FROM e WHERE (a, b) = (1, 2)",
    // What is not reached any more goes round in a circle that comes.
    "BEGIN; INSERT INTO e VALUES (1, 2), (5, 6); DELETE FROM e WHERE (a, b) = (7, 6); COMMIT",
    "BEGIN; DELETE FROM e WHERE (a, b) = (3, 4); INSERT INTO e VALUES (5, 4), (6, 4), (7, 6); COMMIT",
    "BEGIN; DELETE FROM s WHERE a = 1; INSERT INTO s VALUES (6); COMMIT",
    "BEGIN; INSERT INTO s VALUES (4); DELETE FROM s WHERE a = 6; COMMIT",
    "DELETE FROM s WHERE a IS NULL; INSERT INTO e VALUES (4, NULL)",
    "UPDATE e SET b = a, a = b",
    "INSERT INTO s VALUES (NULL), (3), (3)",
    "DELETE FROM s WHERE ctid IN (SELECT min(ctid) FROM s WHERE a = 3)",
    "BEGIN; INSERT INTO e SELECT i, i % 20 + 1 FROM generate_series(1, 20) AS i; DELETE FROM e WHERE a = 4; COMMIT",
    "DELETE FROM e WHERE a = 10",
    "DELETE FROM e; DELETE FROM s WHERE a = 3",
];

#[tokio::test]
async fn a_graph_with_circles() {
    for version in [15, 18] {
        let mut world = World::new(version, GRAPH).await;
        for query in [
            "WITH RECURSIVE r AS (SELECT a FROM s UNION SELECT e.b FROM r JOIN e ON e.a = r.a) SELECT a FROM r",
            "WITH RECURSIVE r AS (SELECT a, b FROM e UNION SELECT r.a, e.b FROM r JOIN e ON e.a = r.b) SELECT a, b FROM r",
            "WITH RECURSIVE r AS (SELECT a FROM s UNION SELECT e.b FROM r JOIN e ON e.a IS NOT DISTINCT FROM r.a) SELECT count(*) AS n, sum(a) AS s FROM r",
            "WITH RECURSIVE r (a, d) AS (SELECT a, 0 FROM s UNION SELECT e.b, r.d + 1 FROM r JOIN e ON e.a = r.a WHERE r.d < 6) SELECT a, min(d) AS d FROM r GROUP BY a",
            "WITH RECURSIVE r (a, d) AS (SELECT a, 0 FROM s UNION ALL SELECT e.b, r.d + 1 FROM r JOIN e ON e.a = r.a WHERE r.d < 6) SELECT a, d FROM r",
            "WITH RECURSIVE r (a) AS (SELECT a::numeric FROM s UNION SELECT e.b FROM r JOIN e ON e.a = r.a) SELECT a FROM r",
            "WITH RECURSIVE r AS (SELECT a FROM s UNION SELECT e.b FROM r JOIN e ON e.a = r.a WHERE NOT EXISTS (SELECT FROM s WHERE s.a = e.b)) SELECT e.a, e.b FROM e WHERE e.a IN (SELECT a FROM r)",
        ] {
            world.view(query).await;
        }
        apply_changes(&mut world, &EDGES).await;
        world
            .execute("INSERT INTO s VALUES (1), (2); INSERT INTO e VALUES (1, 2), (2, 1), (2, 3)")
            .await;
        world.refresh().await;
        world.execute("TRUNCATE e").await;
        world.refresh().await;
        world.apply_change("INSERT INTO e VALUES (2, 1), (1, 9)").await;
    }
}

#[tokio::test]
async fn a_bill_of_materials() {
    for version in [15, 18] {
        let mut world = World::new(
            version,
            "CREATE TABLE part (id int PRIMARY KEY, price numeric(10,2));
             CREATE TABLE needs (whole int, part int, times int, PRIMARY KEY (whole, part));
             INSERT INTO part SELECT i, i * 1.5 FROM generate_series(1, 20) AS i;
             INSERT INTO needs SELECT i, j, i % 3 + 1 FROM generate_series(1, 20) AS i, generate_series(1, 20) AS j WHERE j > i AND (i + j) % 5 = 0;",
        )
        .await;
        let parts = "WITH RECURSIVE parts (whole, part, times) AS (SELECT whole, part, times FROM needs \
             UNION ALL SELECT parts.whole, needs.part, parts.times * needs.times FROM parts JOIN needs ON needs.whole = parts.part)";
        for query in [
            format!(
                "{parts} SELECT whole, part, sum(times) AS times FROM parts GROUP BY whole, part"
            ),
            format!(
                "{parts} SELECT whole, sum(times * price) AS price FROM parts JOIN part ON part.id = parts.part GROUP BY whole"
            ),
            format!("{parts} SELECT whole, part, times FROM parts"),
        ] {
            world.view(&query).await;
        }
        apply_changes(
            &mut world,
            &[
                "UPDATE needs SET times = times + 1 WHERE whole = 4",
                "BEGIN; DELETE FROM needs WHERE part = 8; INSERT INTO needs VALUES (1, 3, 2), (3, 20, 5); UPDATE part SET price = price + 1 WHERE id > 15; COMMIT",
                "UPDATE needs SET part = part + 1 WHERE whole = 2 AND part = 13",
                "BEGIN; UPDATE needs SET whole = whole - 1 WHERE whole = 7; DELETE FROM needs WHERE whole = 1; COMMIT",
                "DELETE FROM needs",
                "INSERT INTO needs VALUES (1, 2, 2), (2, 3, 3), (1, 3, 1), (3, 4, 4)",
            ],
        )
        .await;
    }
}
