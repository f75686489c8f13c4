//! Joins of which both sides change between two refreshes.

use crate::world::World;

/// Rows of `l` and `r` by their key: bit 0 of what a key stands for is the row `a`, bit 1 the row
/// `b`. The first four bits of a key say what is there at first, on the left and on the right, the
/// others what is there later.
const SIDES: &str = "CREATE TABLE l (k int, v text); CREATE TABLE r (k int, v text);
    CREATE FUNCTION wanted(shift int) RETURNS TABLE (k int, v text) LANGUAGE sql IMMUTABLE AS $$
        SELECT k, v FROM generate_series(0, 255) AS k, (VALUES (1, 'a'), (2, 'b')) AS bit (value, v)
        WHERE (k >> shift) & bit.value <> 0 $$;
    CREATE FUNCTION become(later int) RETURNS void LANGUAGE sql AS $$
        DELETE FROM l WHERE (k, v) NOT IN (SELECT k, v FROM wanted(later));
        INSERT INTO l SELECT * FROM (SELECT * FROM wanted(later) EXCEPT TABLE l) AS n;
        DELETE FROM r WHERE (k, v) NOT IN (SELECT k, v FROM wanted(later + 2));
        INSERT INTO r SELECT * FROM (SELECT * FROM wanted(later + 2) EXCEPT TABLE r) AS n; $$;
    SELECT become(0);";

const KINDS: [&str; 4] = ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"];

/// Views of both sides joined in every way, and of groups above that.
async fn world_with_sides(version: u32, keys: &str) -> World {
    let mut world = World::new(version, &format!("{SIDES} {keys}")).await;
    for kind in KINDS {
        let rows = format!("SELECT l.k, l.v, r.k AS k2, r.v AS v2 FROM l {kind} r ON l.k = r.k");
        world.view(&rows).await;
        let matched =
            format!("SELECT l.k, l.v, r.v AS w FROM l {kind} r ON l.k = r.k AND l.v = r.v");
        world.view(&matched).await;
        let groups = format!(
            "SELECT coalesce(l.k, r.k) AS key, count(*) AS n, count(l.v) AS o, count(r.v) AS p, max(r.v) AS m \
             FROM l {kind} r ON l.k = r.k GROUP BY coalesce(l.k, r.k)"
        );
        world.view(&groups).await;
    }
    world
}

#[tokio::test]
async fn both_sides_of_a_join_of_any_kind_change_in_one_window() {
    // From every state of both sides of a key to every other.
    for (version, keys) in [
        (18, ""),
        (15, "ALTER TABLE l ADD PRIMARY KEY (k, v); ALTER TABLE r ADD PRIMARY KEY (k, v)"),
    ] {
        let mut world = world_with_sides(version, keys).await;
        for later in [4, 0] {
            let moved = world.apply_change(&format!("SELECT become({later})")).await;
            assert!(moved.iter().all(|rows| *rows > 100), "{moved:?}");
        }
        assert!(
            world.apply_change("SELECT become(4), become(0)").await.iter().all(|rows| *rows == 0)
        );
    }
}

#[tokio::test]
async fn partners_that_are_deleted_together_are_taken_away_once() {
    let mut world = world_with_sides(18, "").await;
    world
        .apply_change(
            "BEGIN; DELETE FROM l WHERE k % 16 = 5; DELETE FROM r WHERE k % 16 = 5; COMMIT",
        )
        .await;
    // In transactions of their own, in either order.
    world.apply_change("DELETE FROM l WHERE k % 16 = 10; DELETE FROM r WHERE k % 16 = 10").await;
    world.apply_change("DELETE FROM r WHERE k % 16 = 15; DELETE FROM l WHERE k % 16 = 15").await;
    world.apply_change("DELETE FROM l; DELETE FROM r").await;
}

#[tokio::test]
async fn three_partners_that_are_deleted_together_are_taken_away_once() {
    let mut world = World::new(
        18,
        "CREATE TABLE a (k int, v int); CREATE TABLE b (k int, v int); CREATE TABLE c (k int, v int);
         INSERT INTO a SELECT i % 4, i FROM generate_series(1, 12) AS i; INSERT INTO b TABLE a; INSERT INTO c TABLE a",
    )
    .await;
    for kinds in [
        "JOIN JOIN",
        "LEFT_JOIN JOIN",
        "JOIN LEFT_JOIN",
        "FULL_JOIN FULL_JOIN",
        "RIGHT_JOIN LEFT_JOIN",
    ] {
        let (first, second) = kinds.split_once(' ').unwrap();
        let query = format!(
            "SELECT a.v AS x, b.v AS y, c.v AS z FROM a {first} b ON a.k = b.k {second} c ON b.k = c.k"
        );
        world.view(&query.replace('_', " ")).await;
    }
    for key in 0..4 {
        let change = format!(
            "BEGIN; DELETE FROM a WHERE k = {key} AND v % 3 = 0; DELETE FROM b WHERE k = {key}; DELETE FROM c WHERE k = {key}; \
             INSERT INTO c VALUES ({key} + 1, 100); UPDATE a SET k = k + 1 WHERE k = {key}; COMMIT"
        );
        world.apply_change(&change).await;
    }
}

#[tokio::test]
async fn several_partners_that_arrive_for_one_unmatched_row_take_its_nulls_away_once() {
    let mut world = world_with_sides(
        18,
        "TRUNCATE l, r; INSERT INTO l VALUES (1, 'a'); INSERT INTO r VALUES (2, 'b')",
    )
    .await;
    world.apply_change("INSERT INTO r VALUES (1, 'a'), (1, 'b'), (1, 'b'), (1, 'c')").await;
    world
        .apply_change("INSERT INTO l VALUES (2, 'b'), (2, 'b'); INSERT INTO l VALUES (2, 'a')")
        .await;
    world.apply_change("DELETE FROM r WHERE v <> 'c'").await;
    world.apply_change("DELETE FROM r; DELETE FROM l WHERE v = 'b'").await;
}

#[tokio::test]
async fn a_row_that_is_inserted_and_matched_in_one_window_is_never_unmatched() {
    let mut world = world_with_sides(18, "TRUNCATE l, r").await;
    for (change, rows) in [
        ("INSERT INTO l VALUES (1, 'a'); INSERT INTO r VALUES (1, 'a')", 1),
        (
            "BEGIN; INSERT INTO r VALUES (2, 'b'); INSERT INTO l VALUES (2, 'b'), (2, 'c'); COMMIT",
            2,
        ),
        // What has gone again was never there.
        (
            "INSERT INTO l VALUES (3, 'a'); INSERT INTO r VALUES (3, 'a'); DELETE FROM r WHERE k = 3; DELETE FROM l WHERE k = 3",
            0,
        ),
    ] {
        for moved in world.apply_change(change).await.iter().step_by(3) {
            assert_eq!(*moved, rows, "{change}");
        }
    }
}

#[tokio::test]
async fn keys_of_joins_are_updated_on_either_side_and_on_both() {
    for keys in ["", "ALTER TABLE l ADD PRIMARY KEY (k, v); ALTER TABLE r ADD PRIMARY KEY (k, v)"] {
        let mut world = world_with_sides(18, keys).await;
        for change in [
            "UPDATE l SET k = k + 1000 WHERE k % 3 = 0",
            "UPDATE r SET k = k + 1000 WHERE k % 2 = 0",
            "UPDATE l SET k = k - 500 WHERE k > 999; UPDATE r SET k = k - 500 WHERE k > 999",
            "BEGIN; UPDATE l SET k = -k WHERE k < 100; UPDATE r SET k = -k WHERE k < 100; COMMIT",
            // To a key that another row had.
            "DELETE FROM l WHERE k = 101; UPDATE l SET k = 101 WHERE k = 103; UPDATE r SET v = v || 'x' WHERE k = 101",
        ] {
            world.apply_change(change).await;
        }
        if keys.is_empty() {
            world
                .apply_change(
                    "UPDATE l SET k = NULL WHERE k % 5 = 0; UPDATE r SET k = NULL WHERE k % 7 = 0",
                )
                .await;
            world.apply_change("UPDATE l SET k = 7 WHERE k IS NULL; UPDATE r SET k = 7 WHERE k IS NULL AND v = 'a'").await;
        }
    }
}
