//! Readers of a view never wait.

use egret_postgres::tokio_postgres::Client;

use crate::world::{AdvisoryGate, GATE, World, query_rows, wait_until_blocked};

const TABLE: &str = "CREATE TABLE t (id int PRIMARY KEY, k int); INSERT INTO t SELECT i, i % 3 FROM generate_series(1, 9) AS i;";
const QUERY: &str = "SELECT gate(k) AS k, count(*) AS n, max(id) AS m FROM t GROUP BY gate(k)";

/// A reader that would rather fail than wait.
async fn connect_reader(world: &World) -> Client {
    let client = world.database.connect().await;
    let impatient = "SET lock_timeout = '1ms'; SET search_path = public";
    client.batch_execute(impatient).await.unwrap();
    client
}

#[tokio::test]
async fn a_reader_is_not_blocked_by_a_refresh_of_everything_and_sees_what_was_before() {
    let mut world = World::new(18, &format!("{GATE} {TABLE}")).await;
    world.view(QUERY).await;
    let reader = connect_reader(&world).await;
    let before = query_rows(&reader, "TABLE v1").await;
    world.execute("TRUNCATE t; INSERT INTO t VALUES (1, 1)").await;
    let gate = AdvisoryGate::shut(&world.database).await;
    let refreshable = world.first().refreshable.clone();
    let meanwhile = async {
        wait_until_blocked(&reader).await;
        assert_eq!(query_rows(&reader, "TABLE v1").await, before);
        gate.open().await;
    };
    let (done, ()) = tokio::join!(refreshable.refresh(&mut world.client), meanwhile);
    assert!(done.unwrap().is_full);
    assert_eq!(query_rows(&reader, "TABLE v1").await, ["(1,1,1)"]);
}

#[tokio::test]
async fn a_transaction_that_reads_blocks_neither_truncate_nor_a_refresh() {
    let mut world = World::new(18, &format!("{GATE} {TABLE}")).await;
    world.view(QUERY).await;
    let (old, new) = (connect_reader(&world).await, connect_reader(&world).await);
    old.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ").await.unwrap();
    new.batch_execute("BEGIN").await.unwrap();
    let before = query_rows(&old, "TABLE v1").await;
    assert_eq!(query_rows(&new, "TABLE v1").await, before);
    // A refresh that had to wait for the readers would fail.
    world.execute("SET lock_timeout = '1ms'").await;
    for change in [
        "TRUNCATE t",
        "INSERT INTO t VALUES (1, 1), (2, 2)",
        "TRUNCATE t; INSERT INTO t VALUES (5, 5)",
    ] {
        world.execute(change).await;
        let done = world.refresh().await;
        assert_eq!(done[0].is_full, change.contains("TRUNCATE"));
        assert_eq!(query_rows(&old, "TABLE v1").await, before, "its snapshot");
        let now = query_rows(&world.client, "TABLE v1").await;
        assert_eq!(query_rows(&new, "TABLE v1").await, now);
    }
    for reader in [old, new] {
        reader.batch_execute("COMMIT").await.unwrap();
        assert_eq!(query_rows(&reader, "TABLE v1").await, ["(5,1,5)"]);
    }
}
