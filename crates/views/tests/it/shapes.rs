//! Every shape of query that is covered, by name: each view follows the same changes to the same
//! tables.

mod aggregates;
mod clock;
mod collations;
mod combined;
mod dependent;
mod groups;
mod joins;
mod lateral;
mod recursive;
mod rows;
mod scalars;
mod sources;
mod subqueries;
mod top;
mod values;
mod windows;
mod within;

use crate::world::World;

/// With a key, with another, and without.
const TABLES: &str = "CREATE TYPE mood AS ENUM ('sad', 'glad');
    CREATE TABLE t (id int PRIMARY KEY, k int, c text, i int, b bigint, m numeric(10,2), f float8, o boolean, v int[], h jsonb, d date, s timestamptz);
    CREATE TABLE u (id int PRIMARY KEY, k int, c text, i int);
    CREATE TABLE w (k int, c text, i int);
    INSERT INTO t SELECT i, i % 4, chr(97 + i % 3), i, i * 1000000007::bigint, i * 1.25, i / 2.0, i % 2 = 0, ARRAY[i, 1],
        jsonb_build_object('a', i), date '2013-01-01' + i, timestamptz '2013-01-01 00:00Z' + i * interval '7 h' FROM generate_series(1, 12) AS i;
    INSERT INTO u SELECT i, i % 5, chr(97 + i % 4), i FROM generate_series(1, 8) AS i;
    INSERT INTO w SELECT i % 6, chr(97 + i % 5), i % 4 FROM generate_series(1, 8) AS i;";

/// Rows that come, change, move from key to key, become null, go, and come back.
const CHANGES: [&str; 9] = [
    "INSERT INTO t (id, k, c, i, b, m, f, o) VALUES (20, 1, 'a', 2, 5, 0.10, 0.5, NULL), (21, NULL, NULL, NULL, NULL, NULL, NULL, true);
     INSERT INTO u VALUES (20, 1, 'a', 3), (21, NULL, NULL, NULL); INSERT INTO w VALUES (1, 'a', 2), (1, 'a', 2), (NULL, NULL, NULL)",
    "UPDATE t SET i = i + 1, m = m * 2, v = v || 7, h = h || '{\"b\": 1}' WHERE k = 1; UPDATE u SET i = i - 1; UPDATE w SET i = i + 1 WHERE k < 3",
    "BEGIN; UPDATE t SET k = k + 1 WHERE id < 7; UPDATE u SET k = k + 1, c = 'b' WHERE id > 3; UPDATE w SET k = 2 WHERE k = 1; COMMIT",
    "UPDATE t SET c = NULL, i = NULL, o = NULL, m = NULL, f = NULL, h = NULL, d = NULL, s = NULL WHERE id IN (2, 3); UPDATE u SET k = NULL, i = NULL WHERE id = 2",
    "UPDATE t SET o = NOT o, c = c || 'x', b = -b, f = f * 4, d = d + 100, s = s + interval '1 y' WHERE id % 3 = 0; UPDATE w SET c = 'b'",
    "BEGIN; DELETE FROM t WHERE k = 2 OR id = 21; DELETE FROM u WHERE k = 2; DELETE FROM w WHERE k = 2; COMMIT",
    "UPDATE t SET id = id + 100 WHERE id % 2 = 0; INSERT INTO u SELECT id + 50, k, c, i FROM u; INSERT INTO w TABLE w",
    "DELETE FROM t; DELETE FROM u WHERE id < 6; DELETE FROM w",
    "INSERT INTO t (id, k, c, i, b, m, f, o, v) VALUES (1, 1, 'a', 1, 1, 1, 1, true, '{1}'), (2, 1, 'b', 2, 2, 2, 2, false, NULL);
     INSERT INTO u VALUES (1, 1, 'a', 1); INSERT INTO w VALUES (1, 'a', 1), (1, 'b', 1)",
];

/// Views of queries over [`TABLES`] follow, each by what changed alone.
async fn check_changes(setup: &str, queries: &[&str]) {
    for version in [15, 18] {
        let mut world = World::new(version, &format!("{TABLES} {setup}")).await;
        for query in queries {
            world.view(query).await;
        }
        apply_changes(&mut world, &CHANGES).await;
    }
}

/// Changes something again and again; every view has changed by the end.
async fn apply_changes(world: &mut World, changes: &[&str]) {
    let mut moved = vec![0; world.views.len()];
    for change in changes {
        for (all, rows) in moved.iter_mut().zip(world.apply_change(change).await) {
            *all += rows;
        }
    }
    for (view, rows) in world.views.iter().zip(moved) {
        assert!(rows > 0, "nothing changed in {}", view.query);
    }
}
