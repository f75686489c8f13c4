//! Values that are equal and not the same, null and not nothing, or infinite.

use crate::world::World;

#[tokio::test]
async fn sums_of_parts_of_infinite_dates_become_finite_again() {
    let setup = "CREATE TABLE e (id integer PRIMARY KEY, k integer, at timestamptz);
        INSERT INTO e VALUES (1, 1, '2013-01-01'), (2, 1, '2014-01-01')";
    let mut world = World::new(18, setup).await;
    let sums = "SELECT k, sum(extract(year FROM at)) AS s, avg(extract(month FROM at)) AS a, max(extract(year FROM at)) AS m FROM e GROUP BY k";
    world.view(sums).await;
    world.view("SELECT extract(year FROM at) AS y, count(*) AS n FROM e GROUP BY 1").await;
    for change in [
        "INSERT INTO e VALUES (3, 1, 'infinity'), (4, 1, '-infinity')",
        "DELETE FROM e WHERE id = 4",
        "DELETE FROM e WHERE id = 3",
    ] {
        world.apply_change(change).await;
    }
}

#[tokio::test]
async fn a_constraint_that_was_not_validated_says_nothing_of_what_is_there() {
    let setup = "CREATE TABLE t (id integer PRIMARY KEY, k integer);
        CREATE TABLE u (id integer PRIMARY KEY, i integer);
        INSERT INTO t VALUES (1, NULL), (2, 2); INSERT INTO u VALUES (1, 5), (2, 50);
        ALTER TABLE t ADD CONSTRAINT filled NOT NULL k NOT VALID; CREATE UNIQUE INDEX ON t (k)";
    let mut world = World::new(18, setup).await;
    world
        .view("SELECT t.id, (SELECT count(*) FROM u WHERE u.i < coalesce(t.k, 100)) AS n FROM t")
        .await;
    world.view("SELECT k, count(*) AS n FROM t GROUP BY k").await;
    world.apply_change("INSERT INTO u VALUES (3, 1)").await;
    world.apply_change("DELETE FROM t WHERE k IS NULL").await;
}

#[tokio::test]
async fn a_row_of_nulls_is_not_null() {
    let setup = "CREATE TYPE addr AS (s text, z text);
        CREATE TABLE p (id integer PRIMARY KEY, a addr); CREATE TABLE q (id integer PRIMARY KEY, a addr);
        INSERT INTO p VALUES (1, ROW('x', NULL)), (2, NULL), (3, ROW(NULL, NULL)), (4, ROW('x', 'y'));
        INSERT INTO q VALUES (1, ROW(NULL, NULL))";
    let mut world = World::new(18, setup).await;
    for query in [
        "SELECT count(a) AS n FROM p",
        "SELECT p.id FROM p WHERE p.a NOT IN (SELECT q.a FROM q)",
        "SELECT p.id, p.a IN (SELECT q.a FROM q) AS b FROM p",
        "SELECT a, count(*) AS n FROM p GROUP BY a",
    ] {
        world.view(query).await;
    }
    for change in [
        "INSERT INTO p VALUES (5, ROW(NULL, NULL)), (6, NULL), (7, ROW(NULL, 'z'))",
        "DELETE FROM p WHERE id IN (2, 3)",
        "UPDATE q SET a = ROW('x', 'y')",
        "DELETE FROM q",
    ] {
        world.apply_change(change).await;
    }
}

#[tokio::test]
async fn what_a_collation_takes_for_equal_is_shown_as_it_is() {
    let setup = "CREATE COLLATION blind (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
        CREATE TABLE t (id integer PRIMARY KEY, k integer, b text COLLATE blind);
        INSERT INTO t VALUES (1, 1, 'a'), (2, 2, 'b')";
    let mut world = World::new(18, setup).await;
    world.view("SELECT k, md5(max(b)) AS h, max(b) AS b FROM t GROUP BY k").await;
    world.apply_change("UPDATE t SET b = 'A' WHERE b = 'a'").await;
}
