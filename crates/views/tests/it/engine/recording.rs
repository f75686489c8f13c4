//! What recorded changes may take, and when their space is given back.

use super::*;

/// Returns once the recorded changes take no space. A refresh leaves a table as it is that another session has locked at that moment,
/// as autovacuum does.
async fn until_truncated(rig: &Rig) {
    let size = "SELECT pg_relation_size('egret.changes_1')";
    let waits = async {
        while rig.number(size).await != 0 {
            rig.refresh("sums").await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(60), waits).await;
    assert!(waited.is_ok(), "changes still take space");
}

#[tokio::test]
async fn changes_that_take_too_much_are_not_recorded_and_no_write_fails() {
    let config = ViewsConfig {
        changes_size_max: Size::mib(1),
        ..ViewsConfig::default()
    };
    let rig = Rig::with(18, config).await;
    rig.run(TABLES).await;
    rig.create(view("sums", "SELECT g, sum(v) AS s FROM t GROUP BY g"))
        .await
        .unwrap();
    for round in 0..6 {
        rig.run(&format!(
            "INSERT INTO t SELECT i, i % 9, i FROM generate_series({}, {}) AS i",
            1000 + round * 10_000,
            999 + (round + 1) * 10_000
        ))
        .await;
    }
    let size = "SELECT pg_relation_size('egret.changes_1')";
    assert!(rig.number(size).await < 3 << 20);
    let done = rig.refresh("sums").await;
    assert_eq!((done.outcome.as_str(), done.changes > 0), ("full", true));
    rig.verify(&["sums"]).await;
    until_truncated(&rig).await;
    rig.run("DELETE FROM t WHERE id > 40000").await;
    rig.verify(&["sums"]).await;
    until_truncated(&rig).await;
    rig.run("INSERT INTO t VALUES (-1, 1, 1)").await;
    assert_eq!(rig.refresh("sums").await.outcome, "incremental");
    rig.verify(&["sums"]).await;
}
