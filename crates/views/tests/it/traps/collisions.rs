//! Different values with the same hash, 64 bits wide. Where rows are found by a hash they are
//! compared in full.

use crate::world::World;

/// The first of two texts that have the same hash when they stand in parentheses. PostgreSQL's hash
/// takes twelve bytes at a time into a state of twelve, and can be run backwards: the second block
/// takes away what the first made different.
const ONE: &str = "egretegretehabauakAtaAa";
/// The second text, with the same hash.
const OTHER: &str = "wFE32jgGXYuAy0k0K0x0HyV";

/// That they still do on this server.
async fn check_hashes(world: &World) {
    let sql = format!(
        "SELECT hashtextextended(ROW('{ONE}'::text)::text, 0) = hashtextextended(ROW('{OTHER}'::text)::text, 0) \
         AND hash_record_extended(ROW('({ONE})'::text), 0) = hash_record_extended(ROW('({OTHER})'::text), 0)"
    );
    assert_eq!(world.text(&sql).await.as_deref(), Some("true"));
}

/// The hashes that the rows of the first view have, each once.
async fn stored_hashes(world: &World) -> Option<String> {
    let sql = "SELECT count(DISTINCT egret_hash) || ' of ' || count(*) FROM egret.view_1_0";
    world.text(sql).await
}

#[tokio::test]
async fn rows_without_a_key_that_have_the_same_hash_stay_apart() {
    let mut world = World::new(18, "CREATE TABLE t (a text)").await;
    check_hashes(&world).await;
    world.view("SELECT a FROM t").await;
    world.apply_change(&format!("INSERT INTO t VALUES ('{ONE}'), ('{OTHER}'), ('{ONE}')")).await;
    assert_eq!(stored_hashes(&world).await.as_deref(), Some("1 of 2"));
    for change in [
        format!("DELETE FROM t WHERE a = '{ONE}'"),
        format!("INSERT INTO t VALUES ('{ONE}')"),
        format!("UPDATE t SET a = '{ONE}' WHERE a = '{OTHER}'"),
        format!("UPDATE t SET a = '{OTHER}' WHERE ctid = (SELECT min(ctid) FROM t)"),
        "DELETE FROM t".to_owned(),
    ] {
        world.apply_change(&change).await;
    }
}

#[tokio::test]
async fn groups_whose_keys_have_the_same_hash_stay_apart() {
    let mut world = World::new(18, "CREATE TABLE t (a text, d int)").await;
    check_hashes(&world).await;
    world.view("SELECT a, count(*) AS n, sum(d) AS s, max(d) AS m FROM t GROUP BY a").await;
    world.view("SELECT DISTINCT a FROM t").await;
    world
        .apply_change(&format!(
            "INSERT INTO t VALUES ('({ONE})', 1), ('({OTHER})', 10), ('({ONE})', 2), (NULL, 100)"
        ))
        .await;
    assert_eq!(stored_hashes(&world).await.as_deref(), Some("2 of 3"));
    for change in [
        format!("UPDATE t SET d = d + 5 WHERE a = '({OTHER})'"),
        format!("DELETE FROM t WHERE a = '({ONE})'"),
        format!("UPDATE t SET a = '({ONE})' WHERE d = 15"),
        format!("INSERT INTO t VALUES ('({OTHER})', 1); UPDATE t SET d = NULL WHERE a = '({ONE})'"),
        "UPDATE t SET a = NULL".to_owned(),
    ] {
        world.apply_change(&change).await;
    }
}

#[tokio::test]
async fn keys_of_rows_that_have_the_same_hash_stay_apart() {
    let mut world = World::new(
        18,
        "CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (k text PRIMARY KEY, id int, d int); INSERT INTO t VALUES (1), (2)",
    )
    .await;
    check_hashes(&world).await;
    // Its key is that of both sides, of which one may be null.
    world.view("SELECT t.id, u.k, u.d FROM t LEFT JOIN u ON u.id = t.id").await;
    world
        .apply_change(&format!("INSERT INTO u VALUES ('({ONE})', 1, 1), ('({OTHER})', 1, 2)"))
        .await;
    assert_eq!(stored_hashes(&world).await.as_deref(), Some("2 of 3"));
    for change in [
        format!("UPDATE u SET d = 3 WHERE k = '({OTHER})'"),
        format!("UPDATE u SET id = 2 WHERE k = '({ONE})'"),
        format!("DELETE FROM u WHERE k = '({ONE})'; INSERT INTO u VALUES ('({ONE})', 1, 4)"),
        format!("UPDATE u SET k = 'x' || k; UPDATE u SET k = '({ONE})' WHERE k = 'x({OTHER})'"),
        "DELETE FROM u".to_owned(),
    ] {
        world.apply_change(&change).await;
    }
}
