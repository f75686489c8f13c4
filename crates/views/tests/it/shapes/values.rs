//! Columns of types whose values are compared, grouped and shown in ways of their own.

use super::apply_changes;
use crate::world::World;

#[tokio::test]
async fn enums_domains_and_arrays() {
    for version in [15, 18] {
        let mut world = World::new(
            version,
            "CREATE TYPE mood AS ENUM ('sad', 'so so', 'glad'); CREATE DOMAIN positive AS int CHECK (VALUE > 0);
             CREATE DOMAIN small AS positive CHECK (VALUE < 100); CREATE DOMAIN label AS text COLLATE \"C\";
             CREATE TABLE t (id int PRIMARY KEY, e mood, p positive, s small, l label, a int[], b text[], f float8[], es mood[])",
        )
        .await;
        for query in [
            "SELECT e, p, s, l, a, b, f, es FROM t",
            "SELECT e, count(*) AS n, sum(p) AS p, min(s) AS s, max(e) AS m, max(l) AS l FROM t GROUP BY e",
            "SELECT p, s, l, count(*) AS n FROM t GROUP BY p, s, l",
            "SELECT a, count(*) AS n, max(b) AS b FROM t GROUP BY a",
            "SELECT DISTINCT b, es FROM t",
            "SELECT id FROM t WHERE e > 'sad' AND l < 'b' AND a @> ARRAY[1]",
            "SELECT x.id, y.id AS j FROM t AS x FULL JOIN t AS y ON x.e = y.e AND x.p = y.s",
            "SELECT x.id, y.p, y.s FROM t AS x LEFT JOIN t AS y ON x.id = y.p",
            "SELECT e FROM t UNION ALL SELECT es[1] FROM t",
            "SELECT p FROM t UNION ALL SELECT s FROM t",
        ] {
            world.view(query).await;
        }
        apply_changes(
            &mut world,
            &[
                "INSERT INTO t VALUES (1, 'sad', 1, 1, 'a', '{1,2}', '{a,NULL}', '{0.5,-0}', '{glad}'), (2, 'glad', 2, 1, 'B', '{}', '{}', '{0.5,0}', '{}')",
                "INSERT INTO t SELECT id + 10, e, p, s, l, a, b, f, es FROM t; INSERT INTO t VALUES (5)",
                "UPDATE t SET e = 'so so', a = a || 3, s = 5 WHERE id = 1; UPDATE t SET e = NULL, p = NULL, l = NULL, b = NULL WHERE id = 2",
                "UPDATE t SET p = s, l = l || 'x', es = es || 'sad'::mood, f = NULL",
                "DELETE FROM t WHERE id > 10; UPDATE t SET a = '{{1,2},{3,4}}' WHERE id = 1",
                "DELETE FROM t",
            ],
        )
        .await;
    }
}

#[tokio::test]
async fn json_and_others_without_equality() {
    for version in [15, 18] {
        let mut world = World::new(
            version,
            "CREATE TYPE pair AS (x int, y numeric); CREATE TABLE t (id int PRIMARY KEY, j json, h jsonb, p point, r pair, x xml, i interval, g int4range);
             CREATE TABLE w (j json, h jsonb, p point, r pair, i interval, g int4range)",
        )
        .await;
        for query in [
            "SELECT j, h, p, r, x, i, g FROM t",
            "SELECT * FROM w",
            "SELECT t.j, w.p, w.h FROM t LEFT JOIN w ON t.h = w.h",
            "SELECT j ->> 'a' AS a, h -> 'a' AS b, p[0] AS c, (r).y AS d, upper(g) AS e FROM t",
            "SELECT j, p FROM t UNION ALL SELECT j, p FROM w",
        ] {
            world.view(query).await;
        }
        for query in [
            "SELECT h, r, i, g, count(*) AS n, count(j) AS o FROM w GROUP BY h, r, i, g",
            "SELECT h -> 'a' AS a, json_agg(j ORDER BY id)::text AS all FROM t GROUP BY h -> 'a'",
            "SELECT DISTINCT i, r FROM t",
        ] {
            world.view_by_value(query).await;
        }
        apply_changes(
            &mut world,
            &[
                "INSERT INTO t VALUES (1, '{\"a\": 1}', '{\"a\": 1}', '(1,2)', '(1,2)', '<a/>', '1 day', '[1,3)'), (2, '{\"a\":1}', '{\"a\": 1.0}', '(1,2)', '(1,2.0)', '<a />', '24 h', '[1,2]'), (3, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
                 INSERT INTO w SELECT j, h, p, r, i, g FROM t; INSERT INTO w TABLE w",
                "UPDATE t SET j = '{\"a\": 1 }' WHERE id = 1; UPDATE t SET h = '{\"a\": 1.00}' WHERE id = 2; UPDATE w SET j = '{}' WHERE h = '{\"a\": 1}'",
                "UPDATE t SET p = '(3,4)', r = NULL, x = NULL; DELETE FROM w WHERE ctid = (SELECT min(ctid) FROM w)",
                "UPDATE t SET h = '{\"a\": [1, {\"b\": null}]}', i = i + '1 day', g = 'empty' WHERE id < 3",
                "DELETE FROM t WHERE id = 1; DELETE FROM w WHERE h IS NULL; UPDATE w SET i = '24 h', r = '(1,2.00)'",
                "DELETE FROM t; DELETE FROM w",
            ],
        )
        .await;
    }
}

/// Values that are equal and look different: what is shown of rows is what they look like.
#[tokio::test]
async fn numbers_with_other_scales() {
    for version in [15, 18] {
        let mut world = World::new(
            version,
            "CREATE TABLE t (n numeric PRIMARY KEY, m numeric(10,2), k numeric(12,4), f float8); CREATE TABLE w (n numeric, f float8)",
        )
        .await;
        for query in [
            "SELECT n, m, k, f FROM t",
            "SELECT n, f FROM w",
            "SELECT m + k AS x, m * k AS y, n / 3 AS z FROM t",
            "SELECT sum(m) AS a, sum(k) AS b, sum(n) AS c, avg(m) AS d, avg(n) AS e, max(n) AS g FROM t",
            "SELECT sum(m * k) AS a, sum(m::numeric(20,6)) AS b, avg(round(n, 1)) AS c FROM t",
            "SELECT t.n, w.n AS o, w.f FROM t LEFT JOIN w ON t.n = w.n",
            "SELECT n FROM t UNION ALL SELECT m FROM t UNION ALL SELECT n FROM w",
        ] {
            world.view(query).await;
        }
        for query in [
            "SELECT n, f, count(*) AS n2 FROM w GROUP BY n, f",
            "SELECT DISTINCT n FROM w",
            "SELECT w.n, sum(t.m) AS s FROM t JOIN w ON t.n = w.n GROUP BY w.n",
        ] {
            world.view_by_value(query).await;
        }
        apply_changes(
            &mut world,
            &[
                "INSERT INTO t VALUES (1.0, 1, 1, 0), (2, 0.10, 0.0001, '-0'); INSERT INTO w VALUES (1, 0), (1.00, '-0'), (1, 0), (2.5, 1)",
                "UPDATE t SET n = 1.000 WHERE n = 1; UPDATE w SET n = 1.0 WHERE n = 1",
                "UPDATE t SET f = -f, m = m + 0.01; DELETE FROM w WHERE ctid = (SELECT min(ctid) FROM w)",
                "UPDATE t SET m = NULL; INSERT INTO w VALUES ('NaN', 'NaN'), (0.00, 0)",
                "UPDATE t SET m = 0; UPDATE w SET f = 0.0 WHERE f = 0; INSERT INTO t VALUES (1000000000000.000001, 99999999.99, NULL, 1e300)",
                "DELETE FROM t WHERE n = 1; UPDATE w SET n = 2",
            ],
        )
        .await;
    }
}

/// No hash finds them.
#[tokio::test]
async fn groups_of_types_without_a_hash() {
    for version in [15, 18] {
        let mut world = World::new(
            version,
            "CREATE TABLE t (id int, m money, b bit varying, v tsvector, a bit varying[])",
        )
        .await;
        for query in [
            "SELECT m, count(*) AS n FROM t GROUP BY m",
            "SELECT b, v, max(id) AS i FROM t GROUP BY b, v",
            "SELECT a, count(*) AS n FROM t GROUP BY a",
            "SELECT DISTINCT b FROM t",
            "SELECT m, b, v, a FROM t",
        ] {
            world.view(query).await;
        }
        apply_changes(
            &mut world,
            &[
                "INSERT INTO t VALUES (1, 1, B'101', 'a b', ARRAY[B'1']), (2, NULL, NULL, NULL, NULL), (3, 1, B'101', 'a', NULL)",
                "UPDATE t SET m = NULL, b = B'0', a = ARRAY[B'01'] WHERE id = 1",
                "UPDATE t SET m = 2, b = NULL, v = 'c' WHERE id = 2",
                "DELETE FROM t WHERE id = 3",
            ],
        )
        .await;
        world.execute("TRUNCATE t; INSERT INTO t VALUES (1, 1, B'101', 'a b', ARRAY[B'1']), (2, NULL, NULL, NULL, NULL)").await;
        assert!(world.refresh().await.iter().all(|done| done.is_full));
    }
}
