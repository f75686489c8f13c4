//! Groups whose aggregates cannot be told from what is shown of them.

use crate::world::World;

const TABLE: &str = "CREATE TYPE mood AS ENUM ('sad', 'glad'); \
    CREATE TABLE t (id int, c text, i int, b bigint, s smallint, n numeric, m numeric(10,2), f float8, r real, e mood, o boolean); \
    INSERT INTO t SELECT i, chr(97 + i % 3), i, i, i, i, i, i, i, 'sad', true FROM generate_series(1, 9) AS i;";

/// Everything that may be null of every type of number.
fn sums_query() -> String {
    let each = ["i", "b", "s", "n", "m", "f", "r"].map(|column| {
        format!("sum({column}) AS sum_{column}, avg({column}) AS avg_{column}, sum({column}) FILTER (WHERE id > 4) AS some_{column}")
    });
    each.join(", ")
}

#[tokio::test]
async fn sums_and_averages_of_nothing_but_nulls_are_null() {
    for version in [15, 18] {
        let mut world = World::new(version, TABLE).await;
        world.view(&format!("SELECT c, {} FROM t GROUP BY c", sums_query())).await;
        world.view(&format!("SELECT {} FROM t", sums_query())).await;
        world.view("SELECT c, avg(m) AS a FROM t GROUP BY c HAVING sum(i) IS NULL").await;
        for change in [
            "UPDATE t SET i = NULL, b = NULL, s = NULL, n = NULL, m = NULL, f = NULL, r = NULL WHERE c = 'a'",
            "UPDATE t SET i = 0, b = 0, m = 0, f = 0 WHERE id = 3",
            "UPDATE t SET i = NULL, b = NULL, m = NULL, f = NULL WHERE id = 3",
            "INSERT INTO t (id, c) VALUES (10, 'new'), (11, 'new')",
            "INSERT INTO t (id, c, i, m) VALUES (12, 'new', -1, 0.10), (13, 'new', 1, -0.10)",
            "DELETE FROM t WHERE id >= 12",
            "DELETE FROM t WHERE i IS NOT NULL",
            "DELETE FROM t",
            "INSERT INTO t (id, c, i) VALUES (5, 'a', 7)",
        ] {
            assert!(world.apply_change(change).await[1] <= 1);
        }
    }
}

#[tokio::test]
async fn what_is_carried_beside_the_shown_value_moves_although_that_stays() {
    let mut world = World::new(18, TABLE).await;
    world.view("SELECT c, avg(i) AS a, avg(m) AS b FROM t GROUP BY c").await;
    world.view("SELECT c, sum(i) AS s, sum(m) AS n FROM t GROUP BY c").await;
    world.view("SELECT c FROM t GROUP BY c").await;
    world.view("SELECT DISTINCT c, o FROM t").await;
    world.view("SELECT o, count(*) AS n FROM (SELECT c, o, avg(i) AS a FROM t GROUP BY c, o) AS g WHERE a > 4 GROUP BY o").await;
    world
        .execute("DELETE FROM t; INSERT INTO t (id, c, i, m) VALUES (1, 'a', 4, 4), (2, 'a', 6, 6)")
        .await;
    world.refresh().await;
    for change in [
        // An average of 5 all the time, of other numbers of rows; then what they were matters.
        "INSERT INTO t (id, c, i, m) VALUES (3, 'a', 5, 5), (4, 'a', 5, 5)",
        "DELETE FROM t WHERE id < 3",
        "INSERT INTO t (id, c, i, m) VALUES (5, 'a', 20, 20)",
        // A sum of 30 all the time, of other numbers of values.
        "UPDATE t SET i = 30, m = 30 WHERE id = 5; DELETE FROM t WHERE id IN (3, 4)",
        "UPDATE t SET i = 10, m = 10 WHERE id = 5; INSERT INTO t (id, c, i, m) VALUES (6, 'a', 20, 20), (7, 'a', NULL, NULL)",
        "UPDATE t SET i = 0, m = 0 WHERE id = 5; UPDATE t SET i = 30, m = 30 WHERE id = 6",
        "UPDATE t SET i = NULL, m = NULL WHERE id = 6",
        "UPDATE t SET i = NULL, m = NULL",
        "INSERT INTO t (id, c) SELECT 100 + i, 'a' FROM generate_series(1, 3) AS i",
        "DELETE FROM t WHERE id > 100",
        "DELETE FROM t WHERE id <> 7",
        "DELETE FROM t",
    ] {
        world.apply_change(change).await;
    }
}

#[tokio::test]
async fn the_least_and_greatest_are_found_again_when_they_go() {
    let all = ["c", "i", "b", "n", "m", "f", "e"].map(|column| {
        format!("min({column}) AS min_{column}, max({column}) AS max_{column}, max({column}) FILTER (WHERE id % 2 = 0) AS even_{column}")
    });
    let all = all.join(", ");
    let mut world = World::new(18, TABLE).await;
    world.view(&format!("SELECT c, {all} FROM t GROUP BY c")).await;
    world.view(&format!("SELECT {all} FROM t")).await;
    for change in [
        "DELETE FROM t WHERE i = (SELECT max(i) FROM t)",
        "DELETE FROM t WHERE i = (SELECT min(i) FROM t)",
        // One of several that are the same stays.
        "INSERT INTO t (id, c, i, b, n, m, f, e) VALUES (20, 'a', 50, 50, 50, 50, 50, 'glad'), (21, 'a', 50, 50, 50.0, 50, 50, 'glad')",
        "DELETE FROM t WHERE id = 21",
        "DELETE FROM t WHERE id = 20",
        "UPDATE t SET i = -i, b = -b, n = -n, m = -m, f = -f, e = 'glad'",
        "UPDATE t SET i = NULL, n = NULL, e = NULL WHERE c = 'a'",
        "UPDATE t SET c = 'b' WHERE c = 'c'",
        "INSERT INTO t (id, c, i) VALUES (30, 'a', 1); DELETE FROM t WHERE id = 30",
        "DELETE FROM t WHERE c = 'b'",
        "DELETE FROM t",
    ] {
        world.apply_change(change).await;
    }
}

#[tokio::test]
async fn null_is_a_key_of_groups_like_any_other() {
    for version in [15, 18] {
        let mut world = World::new(version, TABLE).await;
        world.view("SELECT c, count(*) AS n, sum(i) AS s FROM t GROUP BY c").await;
        world.view("SELECT c, o, m, max(i) AS s FROM t GROUP BY c, o, m").await;
        world.view("SELECT DISTINCT c, e FROM t").await;
        world
            .view("SELECT nullif(c, 'a') AS c, count(*) AS n FROM t GROUP BY nullif(c, 'a')")
            .await;
        for change in [
            "INSERT INTO t (id, c, i) VALUES (10, NULL, 1), (11, NULL, 2)",
            "INSERT INTO t (id, c, i, o, m) VALUES (12, NULL, 3, true, NULL), (13, NULL, 3, NULL, 1), (14, 'a', 3, NULL, NULL)",
            "UPDATE t SET i = i + 1 WHERE c IS NULL",
            "UPDATE t SET c = NULL WHERE c = 'a'",
            "UPDATE t SET o = NULL, e = NULL WHERE id < 5",
            "DELETE FROM t WHERE c IS NULL AND id > 9",
            "UPDATE t SET c = 'a' WHERE c IS NULL",
            "DELETE FROM t WHERE c = 'a'",
            "INSERT INTO t (id) VALUES (20)",
            "DELETE FROM t",
        ] {
            world.apply_change(change).await;
        }
    }
}

#[tokio::test]
async fn keys_of_groups_are_updated() {
    let mut world = World::new(18, TABLE).await;
    world.view("SELECT c, o, count(*) AS n, sum(m) AS s, min(i) AS i FROM t GROUP BY c, o").await;
    world
        .view("SELECT upper(c) AS c, i % 2 AS odd, avg(i) AS a FROM t GROUP BY upper(c), i % 2")
        .await;
    world.view("SELECT DISTINCT c, i > 5 AS big FROM t").await;
    for change in [
        "UPDATE t SET c = 'b' WHERE id = 3",
        // All of a group go to another, all of that to a third.
        "UPDATE t SET c = CASE c WHEN 'a' THEN 'b' WHEN 'b' THEN 'c' ELSE 'a' END",
        "UPDATE t SET c = upper(c) WHERE id < 5",
        "UPDATE t SET o = NOT o, i = i + 1 WHERE id > 5",
        // There and back in one window.
        "UPDATE t SET c = 'z'; UPDATE t SET c = 'a'",
        "UPDATE t SET c = 'q', o = NULL, i = 0, m = NULL",
    ] {
        world.apply_change(change).await;
    }
}

#[tokio::test]
async fn aggregates_of_aggregates_follow() {
    let mut world = World::new(18, TABLE).await;
    for query in [
        "SELECT n, count(*) AS groups, sum(s) AS total FROM (SELECT c, count(*) AS n, sum(i) AS s FROM t GROUP BY c) AS g GROUP BY n",
        "SELECT max(n) AS most, min(s) AS least, avg(n) AS usual FROM (SELECT c, count(*) AS n, sum(m) AS s FROM t GROUP BY c) AS g",
        "SELECT g.big, count(*) AS n FROM (SELECT h.s > 10 AS big, h.c FROM (SELECT c, o, sum(i) AS s FROM t GROUP BY c, o) AS h) AS g GROUP BY g.big",
        "SELECT t.id, t.i, g.a FROM t JOIN (SELECT c, avg(i) AS a FROM t GROUP BY c) AS g ON t.c = g.c WHERE t.i > g.a",
        "SELECT count(*) AS n FROM (SELECT DISTINCT n FROM (SELECT c, count(*) AS n FROM t GROUP BY c HAVING count(*) > 1) AS g) AS d",
        "SELECT t.id, g.n FROM t LEFT JOIN (SELECT c, count(*) AS n FROM t WHERE i > 3 GROUP BY c HAVING min(i) > 4) AS g ON t.c = g.c",
    ] {
        world.view(query).await;
    }
    for change in [
        "INSERT INTO t (id, c, i, m) VALUES (10, 'a', 10, 1), (11, 'new', 11, 2)",
        "UPDATE t SET c = 'a' WHERE id = 2",
        "UPDATE t SET i = i * 2 WHERE c = 'b'",
        "UPDATE t SET c = NULL, i = NULL WHERE id IN (3, 6)",
        "DELETE FROM t WHERE c = 'new' OR id = 9",
        "UPDATE t SET c = 'one'",
        "DELETE FROM t",
        "INSERT INTO t (id, c, i) VALUES (1, 'x', 1)",
    ] {
        world.apply_change(change).await;
    }
}
