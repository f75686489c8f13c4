//! Orders of commits: every change is applied by exactly one refresh, which sees all tables in one
//! snapshot.

use egret_postgres::tokio_postgres::Client;

use crate::world::{
    AdvisoryGate, GATE, World, changed_row_count, create_empty_view, query_rows, wait_until_blocked,
};

const TABLES: &str = "CREATE TABLE t (id int PRIMARY KEY, k int, v int); CREATE TABLE u (id int PRIMARY KEY, k int, v int); \
    INSERT INTO t SELECT i, i % 5, i FROM generate_series(1, 20) AS i; \
    INSERT INTO u SELECT i, i % 5, i * 10 FROM generate_series(1, 10) AS i;";

const JOINED: &str = "SELECT t.id, t.v, u.v AS w FROM t JOIN u ON t.k = u.k";
const GROUPED: &str = "SELECT t.k, count(*) AS n, sum(u.v) AS s, max(u.v) AS m FROM t LEFT JOIN u ON t.k = u.k GROUP BY t.k";

/// Of two stages: what the first finds has been read when the second reads `u`.
const GATED: &str = "SELECT s.k, s.n, u.id, u.v FROM \
    (SELECT gate(t.k) AS k, count(*) AS n FROM t GROUP BY gate(t.k)) AS s LEFT JOIN u ON u.k = s.k";

#[tokio::test]
async fn rows_that_change_between_the_window_and_the_read_are_neither_lost_nor_counted_twice() {
    let mut world = World::new(18, &format!("{GATE} {TABLES}")).await;
    world.view(GATED).await;
    let other = world.database.connect().await;
    for round in 0..3 {
        let change = format!(
            "UPDATE t SET v = 1, k = k + 1 WHERE id = {round} + 1; UPDATE u SET v = v + 1 WHERE k = 2"
        );
        world.execute(&change).await;
        let expected = query_rows(&world.client, GATED).await;
        let gate = AdvisoryGate::shut(&world.database).await;
        let view = world.first();
        let meanwhile = async {
            wait_until_blocked(&other).await;
            let change = format!(
                "BEGIN; INSERT INTO t VALUES ({round} + 100, 2, 0); INSERT INTO u VALUES ({round} + 100, 2, 0); \
                 UPDATE u SET k = 3 WHERE id = {round} + 2; DELETE FROM t WHERE id = {round} + 10; COMMIT"
            );
            other.batch_execute(&change).await.unwrap();
            gate.open().await;
        };
        let refreshable = view.refreshable.clone();
        let mut client = world.database.connect().await;
        let (done, ()) = tokio::join!(refreshable.refresh(&mut client), meanwhile);
        assert!(!done.unwrap().is_full);
        assert_eq!(view.rows(&other).await, expected, "as in its snapshot");
        world.refresh().await;
    }
}

/// A copy of `t` or `u` as a snapshot sees it, from what writers said of themselves.
const HISTORY: &str = "CREATE TABLE t (k int, v int); CREATE TABLE u (k int, v int); \
    CREATE TABLE history (xid xid8 DEFAULT pg_current_xact_id(), name text, k int, v int, weight int); \
    CREATE FUNCTION seen(of text, at pg_snapshot) RETURNS TABLE (k int, v int) STABLE BEGIN ATOMIC \
    SELECT h.k, h.v FROM (SELECT k, v, sum(weight) AS n FROM history WHERE name = of AND pg_visible_in_snapshot(xid, at) \
    GROUP BY k, v) AS h, generate_series(1, h.n); END;";

async fn run_writer(client: Client, writer: i32) {
    for step in 0..60 {
        let (table, other) = if (step + writer) % 2 == 0 { ("t", "u") } else { ("u", "t") };
        let (key, end) =
            ((step * 7 + writer) % 6, if step % 9 == 8 { "ROLLBACK" } else { "COMMIT" });
        let sql = format!(
            "BEGIN;
             WITH r AS (INSERT INTO {table} VALUES ({key}, {writer}), ({key}, {writer}) RETURNING *)
             INSERT INTO history (name, k, v, weight) SELECT '{table}', k, v, 1 FROM r;
             WITH r AS (DELETE FROM {other} WHERE v = {writer} AND k = ({key} + 1) % 6 RETURNING *)
             INSERT INTO history (name, k, v, weight) SELECT '{other}', k, v, -1 FROM r;
             WITH r AS (UPDATE {table} SET k = (k + 1) % 6 WHERE v = {writer} AND k = {key} % 3 RETURNING *)
             INSERT INTO history (name, k, v, weight)
             SELECT '{table}', k, v, 1 FROM r UNION ALL SELECT '{table}', (k + 5) % 6, v, -1 FROM r;
             {end}"
        );
        client.batch_execute(&sql).await.unwrap();
    }
}

#[tokio::test]
async fn a_view_is_what_its_query_says_at_the_snapshot_of_its_refresh_while_others_write() {
    let mut world = World::new(18, HISTORY).await;
    let queries = [
        "SELECT t.k, t.v, u.v AS w FROM {t} AS t LEFT JOIN {u} AS u ON t.k = u.k",
        "SELECT k, count(*) AS n, sum(v) AS s FROM (SELECT * FROM {t} AS t UNION ALL SELECT * FROM {u} AS u) AS b GROUP BY k",
    ];
    for query in queries {
        let query = query.replace("{t}", "t").replace("{u}", "u");
        world.view(&query).await;
    }
    let mut writers = Vec::new();
    for writer in 0..4 {
        let client = world.database.connect().await;
        writers.push(tokio::spawn(run_writer(client, writer)));
    }
    let mut is_last = false;
    while !is_last {
        is_last = writers.iter().all(|writer| writer.is_finished());
        for (view, query) in world.views.iter().zip(queries) {
            let done = view.refresh(&mut world.client).await;
            assert!(!done.is_full);
            let seen = |name| format!("seen('{name}', '{}')", done.refresh_point.snapshot);
            let then = query.replace("{t}", &seen("t")).replace("{u}", &seen("u"));
            view.assert_matches(&world.client, &then).await;
        }
    }
    for writer in writers {
        writer.await.unwrap();
    }
    world.refresh().await;
    let left = world.text("SELECT count(*) FROM egret.changes_1").await;
    assert_eq!(left.as_deref(), Some("0"));
}

#[tokio::test]
async fn a_transaction_that_commits_behind_later_ones_is_not_lost() {
    let mut world = World::new(18, TABLES).await;
    world.view(JOINED).await;
    world.view(GROUPED).await;
    let (early, late) = (world.database.connect().await, world.database.connect().await);
    let began = "BEGIN; INSERT INTO t VALUES (101, 1, 1); UPDATE u SET v = v + 1 WHERE k = 1";
    early.batch_execute(began).await.unwrap();
    // With a number but without changes: those come after the refresh that has seen a later number.
    late.batch_execute("BEGIN; SELECT pg_current_xact_id()").await.unwrap();
    world.apply_change("INSERT INTO t VALUES (102, 1, 2)").await;
    early.batch_execute("COMMIT").await.unwrap();
    assert!(world.apply_change("INSERT INTO t VALUES (103, 1, 3)").await[0] > 2);
    late.batch_execute("DELETE FROM t WHERE id < 5").await.unwrap();
    world.apply_change("INSERT INTO u VALUES (104, 1, 4)").await;
    late.batch_execute("COMMIT").await.unwrap();
    assert!(world.apply_change("").await[0] > 3);
    assert_eq!(world.apply_change("").await, [0, 0]);
}

#[tokio::test]
async fn a_writer_that_stays_idle_in_its_transaction_over_several_refreshes_is_seen_once() {
    for version in [15, 18] {
        let mut world = World::new(version, TABLES).await;
        world.view(JOINED).await;
        world.view(GROUPED).await;
        let idle = world.database.connect().await;
        for end in ["COMMIT", "ROLLBACK", "PREPARE TRANSACTION 'later'"] {
            let change = "BEGIN; DELETE FROM t WHERE id = 1; SAVEPOINT s; UPDATE t SET k = k + 1 WHERE id IN (2, 3); \
                 RELEASE s; INSERT INTO u VALUES (200, 3, 1), (201, 4, 1); DELETE FROM u WHERE id = 201";
            idle.batch_execute(change).await.unwrap();
            for id in 300..305 {
                let others = format!(
                    "INSERT INTO t VALUES ({id}, 3, 1); UPDATE u SET v = v + 1 WHERE id = 7"
                );
                world.apply_change(&others).await;
            }
            idle.batch_execute(end).await.unwrap();
            if end.starts_with("PREPARE") {
                assert_eq!(world.apply_change("").await, [0, 0], "it has not committed");
                world.execute("COMMIT PREPARED 'later'").await;
            }
            let is_kept = end != "ROLLBACK";
            assert_eq!(world.apply_change("").await[0] > 0, is_kept, "{end}");
            assert_eq!(world.apply_change("").await, [0, 0], "{end}");
            world.apply_change("DELETE FROM t WHERE id >= 300; DELETE FROM u WHERE id >= 200; INSERT INTO t VALUES (1, 1, 1) ON CONFLICT DO NOTHING").await;
        }
        let kept = world.text("SELECT count(*) FROM egret.changes_1").await;
        assert_eq!(kept.as_deref(), Some("0"));
    }
}

#[tokio::test]
async fn a_refresh_that_waited_for_a_lock_has_a_snapshot_from_after_it() {
    let mut world = World::new(18, TABLES).await;
    world.view(JOINED).await;
    let writer = world.database.connect().await;
    for id in 100..103 {
        // Without anything to see it would not look at the tables.
        world.execute("UPDATE t SET v = v + 1 WHERE id = 1").await;
        let locked = format!(
            "BEGIN; LOCK TABLE u IN ACCESS EXCLUSIVE MODE; INSERT INTO t VALUES ({id}, 1, 1); UPDATE u SET v = v + 1"
        );
        writer.batch_execute(&locked).await.unwrap();
        let refreshable = world.first().refreshable.clone();
        let commits = async {
            wait_until_blocked(&writer).await;
            writer.batch_execute("COMMIT").await.unwrap();
        };
        let (done, ()) = tokio::join!(refreshable.refresh(&mut world.client), commits);
        let done = done.unwrap();
        assert!(!done.is_full && changed_row_count(&done) > 3, "{done:?}");
        world.first().assert_matches_query(&world.client).await;
        assert_eq!(world.apply_change("").await, [0]);
    }
}

#[tokio::test]
async fn a_refresh_that_waited_for_a_truncate_does_not_read_what_was_before() {
    let mut world = World::new(18, TABLES).await;
    world.view(JOINED).await;
    let writer = world.database.connect().await;
    let before = world.first().rows(&writer).await;
    world.execute("UPDATE t SET v = v + 1 WHERE id = 1").await;
    let truncates = "BEGIN; TRUNCATE t; INSERT INTO t VALUES (1, 1, 1)";
    writer.batch_execute(truncates).await.unwrap();
    let refreshable = world.first().refreshable.clone();
    let commits = async {
        wait_until_blocked(&writer).await;
        writer.batch_execute("COMMIT").await.unwrap();
    };
    let (done, ()) = tokio::join!(refreshable.refresh(&mut world.client), commits);
    assert!(done.unwrap().is_full);
    world.first().assert_matches_query(&world.client).await;
    assert_ne!(world.first().rows(&writer).await, before);
    assert_eq!(world.apply_change("").await, [0]);
}

#[tokio::test]
async fn truncate_cannot_come_between_the_snapshot_and_the_read() {
    let mut world = World::new(18, &format!("{GATE} {TABLES}")).await;
    world.view(GATED).await;
    world.execute("UPDATE t SET k = k + 1 WHERE id = 1").await;
    let expected = query_rows(&world.client, GATED).await;
    let (writer, other) = (world.database.connect().await, world.database.connect().await);
    let gate = AdvisoryGate::shut(&world.database).await;
    let refreshable = world.first().refreshable.clone();
    let meanwhile = async {
        wait_until_blocked(&other).await;
        let hasty = "SET lock_timeout = '1ms'; TRUNCATE u";
        let refused = other.batch_execute(hasty).await.err();
        let code = refused.as_ref().and_then(|error| error.code()).cloned();
        assert_eq!(code.map(|code| code.code().to_owned()).as_deref(), Some("55P03"), "it waits");
        // One that waits as long as it takes comes after the refresh.
        let (truncated, ()) = tokio::join!(writer.batch_execute("TRUNCATE t, u"), gate.open());
        truncated.unwrap();
    };
    let (done, ()) = tokio::join!(refreshable.refresh(&mut world.client), meanwhile);
    assert!(!done.unwrap().is_full);
    assert_eq!(world.first().rows(&other).await, expected);
    assert!(world.refresh().await[0].is_full);
    assert!(world.first().rows(&other).await.is_empty());
}

#[tokio::test]
async fn what_commits_while_a_view_is_filled_is_not_forgotten_by_the_refresh_of_another() {
    let World { mut client, database, .. } = World::new(18, &format!("{GATE} {TABLES}")).await;
    let mut other = database.connect().await;
    let slow = create_empty_view(&mut client, "slow", GATED).await.unwrap();
    let quick = create_empty_view(&mut client, "quick", JOINED).await.unwrap();
    quick.refresh(&mut other).await.unwrap();
    let gate = AdvisoryGate::shut(&database).await;
    let meanwhile = async {
        wait_until_blocked(&other).await;
        let change = "UPDATE t SET k = 4 WHERE id < 4; DELETE FROM u WHERE id = 4; INSERT INTO u VALUES (50, 4, 4)";
        other.batch_execute(change).await.unwrap();
        assert!(!quick.refresh(&mut other).await.unwrap().is_full);
        gate.open().await;
    };
    let (filled, ()) = tokio::join!(slow.refresh(&mut client), meanwhile);
    assert!(filled.unwrap().is_full);
    let done = slow.refresh(&mut client).await.unwrap();
    assert!(!done.is_full && changed_row_count(&done) > 0, "{done:?}");
    assert_eq!(query_rows(&client, "TABLE slow").await, query_rows(&client, GATED).await);
    let left = query_rows(&client, "TABLE egret.changes_1").await;
    assert!(left.is_empty(), "{left:?}");
}
