//! Texts that are compared otherwise than the database does.

use super::apply_changes;
use crate::world::World;

/// One sorts as people do, one holds upper and lower case to be equal.
const COLLATIONS: &str = "CREATE COLLATION human (provider = icu, locale = 'en', deterministic = true);
    CREATE COLLATION blind (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
    CREATE DOMAIN name_of_any AS text COLLATE blind;
    CREATE TABLE t (id int PRIMARY KEY, h text COLLATE human, b text COLLATE blind, c text COLLATE \"C\", d name_of_any);
    CREATE TABLE u (b text COLLATE blind PRIMARY KEY, h varchar(9) COLLATE human);
    CREATE TABLE w (b text COLLATE blind, h text COLLATE human NOT NULL);
    CREATE TABLE k (b text COLLATE blind NOT NULL, n int); CREATE UNIQUE INDEX ON k (b COLLATE \"C\");";

const CHANGES: [&str; 6] = [
    "INSERT INTO t VALUES (1, 'a', 'a', 'a', 'a'), (2, 'B', 'A', 'B', 'A'), (3, 'b', 'b', 'b', 'B'), (4, NULL, NULL, NULL, NULL);
     INSERT INTO u VALUES ('a', 'b'), ('B', 'C'); INSERT INTO w SELECT b, coalesce(h, 'none') FROM t; INSERT INTO k VALUES ('a', 1), ('A', 2)",
    "UPDATE t SET b = upper(b), d = upper(d), h = upper(h) WHERE id = 1; UPDATE w SET b = 'B' WHERE b = 'a'; UPDATE k SET n = n + 1",
    "UPDATE u SET b = 'A' WHERE b = 'a'; INSERT INTO w VALUES ('C', 'c'), ('c', 'C'); UPDATE k SET b = 'B' WHERE n = 2",
    "INSERT INTO t VALUES (5, 'Z', 'Z', 'Z', 'Z'), (6, 'z', 'z', 'z', 'z'); UPDATE w SET h = 'z'; DELETE FROM k WHERE b = 'A'",
    "DELETE FROM t WHERE id IN (1, 5); DELETE FROM u WHERE b = 'b'; DELETE FROM w WHERE b = 'c' AND ctid = (SELECT min(ctid) FROM w WHERE b = 'c')",
    "UPDATE t SET h = NULL, b = NULL, c = NULL, d = NULL; DELETE FROM u; DELETE FROM w; DELETE FROM k",
];

#[tokio::test]
async fn columns_with_collations_of_their_own() {
    for version in [15, 18] {
        let mut world = World::new(version, COLLATIONS).await;
        for query in [
            "SELECT id, h, b, c, d FROM t",
            "SELECT b, h FROM u",
            "SELECT b, h FROM w",
            "SELECT b, n FROM k",
            // Less and equal by the collation of the column, or by that which the query names.
            "SELECT id FROM t WHERE h < 'B'",
            "SELECT id FROM t WHERE b = 'A' OR d = 'z'",
            "SELECT id, h < 'b' AS less, b = 'a' AS same, h < 'b' COLLATE \"C\" AS bytes, least(h, 'b') AS l FROM t",
            "SELECT min(h) AS least, max(h) AS most, max(c) AS c, count(*) AS n FROM t",
            "SELECT t.id, u.b, u.h FROM t JOIN u ON t.b = u.b",
            "SELECT t.id, u.b, w.b AS c FROM t LEFT JOIN u ON t.b = u.b LEFT JOIN w ON w.h = t.h AND w.h > u.h",
            "SELECT t.id, w.b FROM t FULL JOIN w ON t.d = w.b",
            "SELECT h, count(*) AS n FROM t GROUP BY h",
            "SELECT n, m FROM (SELECT h, count(*) AS n, max(h) AS m FROM t GROUP BY h) AS g WHERE m < 'C'",
            "SELECT t.id, g.n FROM t JOIN (SELECT h, count(*) AS n FROM w GROUP BY h) AS g ON g.h > t.h",
            "SELECT h, b FROM t UNION ALL SELECT h, b FROM w",
            "SELECT t.id, (SELECT count(*) FROM w WHERE w.b = t.b) AS n, t.b IN (SELECT u.b FROM u) AS a FROM t",
            "SELECT t.id, (SELECT count(*) FROM w WHERE w.h > t.h COLLATE \"C\") AS n FROM t",
        ] {
            world.view(query).await;
        }
        for query in [
            "SELECT b, count(*) AS n, max(h) AS h FROM t GROUP BY b",
            "SELECT DISTINCT d FROM t",
            "SELECT u.b, count(t.id) AS n FROM u LEFT JOIN t ON t.b = u.b GROUP BY u.b",
            "SELECT g.n, count(*) AS m FROM (SELECT b, count(*) AS n FROM w GROUP BY b) AS g JOIN t ON t.b = g.b GROUP BY g.n",
            "SELECT t.id, g.n FROM t LEFT JOIN (SELECT b, count(*) AS n FROM w GROUP BY b) AS g ON g.b = t.b",
            "SELECT b FROM t UNION SELECT b FROM w",
            "SELECT CASE WHEN id > 2 THEN 'a' ELSE 'A' END AS b FROM t UNION SELECT b FROM w",
            "SELECT CASE WHEN id > 2 THEN 'a' ELSE 'A' END AS b FROM t EXCEPT SELECT b FROM w",
            "SELECT x.b FROM (SELECT CASE WHEN id > 2 THEN 'a' ELSE 'A' END AS b FROM t UNION ALL SELECT b FROM w) AS x WHERE x.b = 'A'",
        ] {
            world.view_by_value(query).await;
        }
        apply_changes(&mut world, &CHANGES).await;
    }
}
