//! What recorded changes may take, and when their space is given back.

use super::*;

/// Returns once the table of recorded changes is no larger than the 1 MiB from which an empty one
/// is truncated: autovacuum may have cut off a part of it. A table that another session, for
/// example autovacuum, has locked at that moment is truncated after the next refresh that has
/// changes, or by itself where the engine runs.
async fn wait_until_truncated(rig: &Rig) {
    let size = "SELECT pg_relation_size('egret.changes_1')";
    eventually("the table of changes is truncated", async || {
        let bytes = rig.query_number(size).await;
        if bytes <= 1 << 20 {
            return Ok(());
        }
        rig.execute("UPDATE t SET v = v + 1 WHERE id = 1000").await;
        rig.refresh("sums").await;
        // The table is truncated behind the refresh, and not while the next one reads it.
        for _ in 0..100 {
            if rig.query_number(size).await <= 1 << 20 {
                return Ok(());
            }
        }
        Err(bytes)
    })
    .await;
}

#[tokio::test]
async fn changes_that_take_too_much_are_not_recorded_and_no_write_fails() {
    let config = ViewsConfig { changes_size_max: ByteSize::mib(1), ..ViewsConfig::default() };
    let rig = Rig::with_config(18, config).await;
    rig.execute(TABLES).await;
    rig.create(new_view("sums", "SELECT g, sum(v) AS s FROM t GROUP BY g")).await.unwrap();
    for round in 0..6 {
        rig.execute(&format!(
            "INSERT INTO t SELECT i, i % 9, i FROM generate_series({}, {}) AS i",
            1000 + round * 10_000,
            999 + (round + 1) * 10_000
        ))
        .await;
    }
    let size = "SELECT pg_relation_size('egret.changes_1')";
    assert!(rig.query_number(size).await < 3 << 20);
    let done = rig.refresh("sums").await;
    assert_eq!((done.outcome.as_str(), done.changes > 0), ("full", true));
    rig.verify(&["sums"]).await;
    wait_until_truncated(&rig).await;
    rig.execute("DELETE FROM t WHERE id > 40000").await;
    rig.verify(&["sums"]).await;
    wait_until_truncated(&rig).await;
    rig.execute("INSERT INTO t VALUES (-1, 1, 1)").await;
    assert_eq!(rig.refresh("sums").await.outcome, "incremental");
    rig.verify(&["sums"]).await;
}

/// As where refreshes follow upon each other without a pause: one of them always reads the table.
/// Nothing changes any more.
#[tokio::test]
async fn a_table_of_changes_that_is_always_read_is_waited_for_in_the_end() {
    let rig = Rig::new(18).await;
    rig.execute(TABLES).await;
    rig.views.start().await.unwrap();
    rig.create(new_view("sums", "SELECT g, sum(v) AS s FROM t GROUP BY g")).await.unwrap();
    rig.execute("INSERT INTO t SELECT i, i % 9, i FROM generate_series(1000, 60000) AS i").await;
    let reader = rig.database.connect().await;
    let read = "BEGIN; LOCK TABLE egret.changes_1 IN ACCESS SHARE MODE";
    reader.batch_execute(read).await.unwrap();
    rig.refresh("sums").await;
    let until = async |sql: &str, wanted: i64| {
        eventually(&format!("`{sql}` returns {wanted}"), async || {
            let number = rig.query_number(sql).await;
            if number == wanted { Ok(()) } else { Err(number) }
        })
        .await;
    };
    let waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock' \
         AND relation = 'egret.changes_1'::regclass";
    until(waiting, 1).await;
    reader.batch_execute("COMMIT").await.unwrap();
    until("SELECT pg_relation_size('egret.changes_1')", 0).await;
    rig.verify(&["sums"]).await;
    rig.views.stop().await;
}
