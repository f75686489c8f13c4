//! LIMIT and OFFSET.

use super::check_changes;
use crate::world::World;

#[tokio::test]
async fn the_first_rows_of_an_order() {
    check_changes(
        "",
        &[
            "SELECT id, c FROM t ORDER BY i DESC NULLS LAST, id LIMIT 4",
            "SELECT k, c, i FROM w ORDER BY i, k, c LIMIT 3",
            "SELECT id FROM t ORDER BY id LIMIT 3 OFFSET 2",
            "SELECT id, i FROM t ORDER BY id OFFSET 5",
            "SELECT i FROM w ORDER BY i FETCH FIRST 2 ROWS WITH TIES",
            "SELECT i FROM w ORDER BY i OFFSET 1 FETCH FIRST 2 ROWS WITH TIES",
            "SELECT c, count(*) AS n, sum(i) AS s FROM t GROUP BY c ORDER BY count(*) DESC, c LIMIT 2",
            "SELECT t.id, u.id AS j FROM t JOIN u ON t.k = u.k ORDER BY t.id, u.id DESC LIMIT 5",
            "SELECT DISTINCT c FROM w ORDER BY c DESC LIMIT 2",
            "SELECT k, c FROM u UNION ALL SELECT k, c FROM w ORDER BY 1, 2 LIMIT 4",
            "SELECT x.c, count(*) AS n FROM (SELECT c FROM t ORDER BY id LIMIT 6) AS x GROUP BY x.c",
            "SELECT u.id FROM u WHERE u.k IN (SELECT k FROM t ORDER BY i, id LIMIT 3)",
            "SELECT x.id, u.id AS j FROM (SELECT id, k FROM t ORDER BY id DESC LIMIT 5) AS x LEFT JOIN u ON u.k = x.k",
            "SELECT max(i) AS m FROM (SELECT i FROM t ORDER BY id LIMIT ALL OFFSET 0) AS x",
            "SELECT count(*) AS n FROM (SELECT id FROM t LIMIT 7) AS x",
            "SELECT id, (SELECT 1 LIMIT 1) AS one FROM t",
            "SELECT id FROM t WHERE EXISTS (SELECT FROM w LIMIT 1)",
        ],
    )
    .await;
}

/// Rows that come before and beyond the last that is kept, go, and move from one side to the other.
const MOVES: [&str; 12] = [
    "INSERT INTO k VALUES (5001, 0, 'x'), (5002, 100000, 'x'), (5003, 500, NULL); INSERT INTO d VALUES (0, 'x'), (0, 'x'), (100000, 'y')",
    "DELETE FROM k WHERE v BETWEEN 1 AND 90; DELETE FROM d WHERE v BETWEEN 1 AND 9",
    "UPDATE k SET v = v + 500 WHERE id % 3 = 0; UPDATE d SET v = v + 50 WHERE v % 3 = 0",
    "UPDATE k SET v = 1000 - v; UPDATE d SET v = 100 - v",
    "DELETE FROM k WHERE v < 700; DELETE FROM d WHERE v < 60",
    "INSERT INTO k SELECT i + 10000, i % 7, 'n' FROM generate_series(1, 900) AS i; INSERT INTO d SELECT i % 7, 'n' || i % 100 FROM generate_series(1, 900) AS i",
    "UPDATE k SET v = NULL WHERE v = 3; UPDATE d SET v = NULL WHERE v = 3",
    "DELETE FROM k WHERE v IS NULL OR v < 6; DELETE FROM d WHERE v IS NULL OR v < 6",
    "DELETE FROM k; DELETE FROM d",
    "INSERT INTO k SELECT i, 5, 'e' FROM generate_series(1, 700) AS i; INSERT INTO d SELECT 5, 'e' FROM generate_series(1, 700) AS i",
    "DELETE FROM k WHERE id < 650; DELETE FROM d WHERE ctid IN (SELECT ctid FROM d LIMIT 650)",
    "INSERT INTO k SELECT i, -i, 'e' FROM generate_series(1, 649) AS i; INSERT INTO d SELECT -i, 'e' FROM generate_series(1, 700) AS i",
];

#[tokio::test]
async fn rows_on_either_side_of_the_last_that_is_kept() {
    for version in [15, 18] {
        let mut world = World::new(
            version,
            "CREATE TABLE k (id int PRIMARY KEY, v int, c text); CREATE TABLE d (v int, c text);
             INSERT INTO k SELECT i, i, chr(97 + i % 3) FROM generate_series(1, 1000) AS i;
             INSERT INTO d SELECT i / 10, chr(97 + i % 3) FROM generate_series(1, 1000) AS i;",
        )
        .await;
        for query in [
            "SELECT id, v, c FROM k ORDER BY v, id LIMIT 5",
            "SELECT id, v FROM k ORDER BY v DESC NULLS FIRST, id DESC LIMIT 5",
            "SELECT v, c FROM d ORDER BY v, c LIMIT 5",
            "SELECT v, c FROM d ORDER BY v DESC, c LIMIT 250 OFFSET 3",
            "SELECT k.v, count(*) AS n FROM k JOIN d ON d.v = k.v GROUP BY k.v ORDER BY count(*) DESC, k.v LIMIT 3",
        ] {
            world.view(query).await;
        }
        for change in MOVES {
            world.apply_change(change).await;
        }
    }
}

#[tokio::test]
async fn more_rows_go_at_once_than_are_in_reserve() {
    for version in [15, 18] {
        let mut world = World::new(
            version,
            "CREATE DOMAIN given AS int NOT NULL; CREATE TABLE p (id int PRIMARY KEY, v given); CREATE TABLE q (v int);
             INSERT INTO p SELECT i, i FROM generate_series(1, 2000) AS i; INSERT INTO q SELECT generate_series(1, 2000)",
        )
        .await;
        for query in [
            "SELECT id, v FROM p ORDER BY v LIMIT 5",
            "SELECT v FROM p ORDER BY v LIMIT 5",
            "SELECT v FROM q ORDER BY v LIMIT 5",
            "SELECT v FROM q ORDER BY v OFFSET 1 FETCH FIRST 0 ROWS WITH TIES",
        ] {
            world.view(query).await;
        }
        for last in [203, 204, 612, 1900, 1996, 1999] {
            let change =
                format!("DELETE FROM p WHERE v <= {last}; DELETE FROM q WHERE v <= {last}");
            world.apply_change(&change).await;
        }
    }
}
