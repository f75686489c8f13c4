//! Changes recorded in two segments by turns: truncation loses nothing, whichever transaction wrote
//! to the segment and when.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use egret_base::settings::ByteSize;
use egret_postgres::tokio_postgres::error::SqlState;
use egret_postgres::tokio_postgres::{Client, Error};
use egret_postgres_test::TestDatabase;
use egret_views::ViewsConfig;
use egret_views::model::{MakerRights, NewView};

use crate::engine::{Rig, new_view, view_ref};

const TABLES: &str =
    "CREATE TABLE t (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, g int, v int, note text);
     CREATE TABLE u (g int PRIMARY KEY, name text);
     INSERT INTO u SELECT i, 'g' || i FROM generate_series(0, 9) AS i";

const SUMS: &str = "SELECT g, count(*) AS n, sum(v) AS s FROM t GROUP BY g";

/// Enough for the two to change over.
const MUCH: &str = "INSERT INTO t (g, v) SELECT i % 10, i FROM generate_series(1, 3000) AS i";

const FIRST: &str = "SELECT pg_relation_size('egret.changes_1')";
const SECOND: &str = "SELECT coalesce(pg_relation_size(to_regclass('egret.changes_1_second')), -1)";
const WRITTEN: &str = "SELECT segment::bigint FROM egret.view_capture WHERE id = 1";

fn config() -> ViewsConfig {
    ViewsConfig { changes_segment_size: ByteSize(64 << 10), ..ViewsConfig::default() }
}

/// A database in which changes of `t` are recorded, for a view of this query.
async fn new_rig(version: u32, config: ViewsConfig, query: &str) -> Rig {
    let rig = Rig::over_database(TestDatabase::create(version).await, config).await;
    rig.execute(TABLES).await;
    rig.create(new_view("sums", query)).await.unwrap();
    rig
}

/// Checks before the next write: applied changes are removed after a refresh, if no session reads
/// at that moment.
const LOOKS: usize = 50;

/// Rounds of refreshes at most, if the tables do not change over as often as a test would like.
const ROUNDS_MAX: usize = 100;

/// Writes and refreshes until a query, of a boolean, says so.
async fn refresh_until(rig: &Rig, sql: &str) {
    for _ in 0..200 {
        for _ in 0..LOOKS {
            if rig.client.query_one(sql, &[]).await.unwrap().get(0) {
                return;
            }
        }
        rig.execute("INSERT INTO t (g, v) VALUES (1, 1)").await;
        rig.refresh("sums").await;
    }
    panic!("never: {sql}");
}

async fn refresh_until_switched(rig: &Rig) {
    rig.execute(MUCH).await;
    rig.refresh("sums").await;
    refresh_until(rig, "SELECT segment = 2 FROM egret.view_capture WHERE id = 1").await;
}

#[tokio::test]
async fn a_transaction_that_wrote_to_the_old_segment_commits_late() {
    for version in [18, 15] {
        let rig = new_rig(version, config(), SUMS).await;
        rig.execute("INSERT INTO t (g, v) VALUES (77, 1)").await;
        rig.refresh("sums").await;
        assert_eq!(rig.query_number(SECOND).await, -1, "little is written");
        let late = rig.database.connect().await;
        let begin = "BEGIN; INSERT INTO t (g, v) VALUES (42, 1)";
        late.batch_execute(begin).await.unwrap();
        refresh_until_switched(&rig).await;
        // As often as it likes: it is not known whether anything is in the first that will be
        // needed.
        for _ in 0..5 {
            rig.execute(MUCH).await;
            assert_eq!(rig.refresh("sums").await.outcome, "incremental");
        }
        assert!(rig.query_number(FIRST).await > 0);
        assert_eq!(rig.query_number(WRITTEN).await, 2);
        let more =
            "UPDATE t SET v = v + 1 WHERE g = 42; INSERT INTO t (g, v) VALUES (43, 1); COMMIT";
        late.batch_execute(more).await.unwrap();
        let done = rig.refresh("sums").await;
        assert_eq!((done.outcome.as_str(), done.changes), ("incremental", 4));
        rig.verify(&["sums"]).await;
        assert_eq!(rig.query_number("SELECT s FROM sums WHERE g = 42").await, 2);
        // Now they change over.
        refresh_until(&rig, "SELECT pg_relation_size('egret.changes_1') = 0").await;
        rig.execute(MUCH).await;
        rig.refresh("sums").await;
        refresh_until(&rig, "SELECT segment = 1 FROM egret.view_capture WHERE id = 1").await;
        refresh_until(&rig, "SELECT pg_relation_size('egret.changes_1_second') = 0").await;
        rig.verify(&["sums"]).await;
        rig.views.drop(&view_ref("sums")).await.unwrap();
        let left = "SELECT count(*) FROM pg_class WHERE relnamespace = 'egret'::regnamespace AND relname LIKE 'changes%'";
        assert_eq!(rig.query_number(left).await, 0);
    }
}

#[tokio::test]
async fn a_view_that_is_behind_keeps_what_it_has_not_seen() {
    let rig = new_rig(18, config(), SUMS).await;
    let behind = "SELECT g, max(v) AS m, min(id) AS i FROM t GROUP BY g";
    rig.create(new_view("behind", behind)).await.unwrap();
    for round in 0..6 {
        rig.execute(MUCH).await;
        assert_eq!(rig.refresh("sums").await.outcome, "incremental");
        refresh_until(&rig, "SELECT segment = 2 FROM egret.view_capture WHERE id = 1").await;
        if round == 3 {
            let done = rig.refresh("behind").await;
            assert_eq!(done.outcome, "incremental");
            assert!(done.changes >= 12_000, "{}", done.changes);
            rig.verify(&["behind"]).await;
            refresh_until(&rig, "SELECT pg_relation_size('egret.changes_1') = 0 OR segment = 1 FROM egret.view_capture WHERE id = 1").await;
            refresh_until(&rig, "SELECT segment = 1 FROM egret.view_capture WHERE id = 1").await;
            break;
        }
    }
    // The changes of another session's prepared transaction are kept as well.
    let other = rig.database.connect().await;
    other
        .batch_execute("BEGIN; INSERT INTO t (g, v) VALUES (88, 5); PREPARE TRANSACTION 'segments'")
        .await
        .unwrap();
    for _ in 0..4 {
        rig.execute(MUCH).await;
        rig.refresh("sums").await;
        rig.refresh("behind").await;
    }
    rig.execute("COMMIT PREPARED 'segments'").await;
    rig.refresh("sums").await;
    rig.refresh("behind").await;
    assert_eq!(rig.query_number("SELECT s FROM sums WHERE g = 88").await, 5);
    rig.verify(&["sums", "behind"]).await;
}

#[tokio::test]
async fn columns_come_and_go_while_there_are_two() {
    let config = ViewsConfig { changes_unlogged: true, ..config() };
    let rig = new_rig(18, config, "SELECT id, g, v FROM t WHERE v > 5").await;
    refresh_until_switched(&rig).await;
    let unlogged = "SELECT count(*) FROM pg_class WHERE relname LIKE 'changes_1%' AND relkind = 'r' AND relpersistence = 'u'";
    assert_eq!(rig.query_number(unlogged).await, 2);
    rig.execute(
        "CREATE ROLE reader; GRANT SELECT ON t TO reader; GRANT CREATE ON SCHEMA public TO reader",
    )
    .await;
    let notes = "SELECT id, note FROM t WHERE g < 5";
    rig.create(NewView { owner: Some("reader".to_owned()), ..new_view("notes", notes) })
        .await
        .unwrap();
    for round in 0..8 {
        rig.execute(&format!(
            "UPDATE t SET note = 'n' || id % 3, v = v + 1 WHERE id % 8 = {round}"
        ))
        .await;
        for name in ["sums", "notes"] {
            assert_eq!(rig.refresh(name).await.outcome, "incremental");
        }
        rig.verify(&["sums", "notes"]).await;
    }
    // A column that is dropped and comes again, of another type and of the one that it had.
    rig.views.drop(&view_ref("notes")).await.unwrap();
    rig.execute("ALTER TABLE t DROP COLUMN note").await;
    refresh_until_switched_again(&rig).await;
    rig.execute("ALTER TABLE t ADD COLUMN note int DEFAULT 7").await;
    rig.execute(MUCH).await;
    rig.verify(&["sums"]).await;
    rig.create(new_view("notes", notes)).await.unwrap();
    rig.execute("UPDATE t SET note = 8 WHERE id % 5 = 0").await;
    rig.verify(&["sums", "notes"]).await;
    rig.execute("ALTER TABLE t ALTER COLUMN note TYPE text").await;
    // It is suspended, and nothing is kept for it. No write fails, whatever is recorded by now.
    rig.views.refresh(&view_ref("notes")).await.unwrap_err();
    rig.execute(MUCH).await;
    rig.verify(&["sums"]).await;
    rig.execute("UPDATE t SET note = 'some' WHERE id % 2 = 0").await;
    rig.views.repair(&view_ref("notes"), &MakerRights::administrator()).await.unwrap();
    rig.execute("UPDATE t SET note = 'other' WHERE id % 3 = 0").await;
    rig.refresh("notes").await;
    rig.verify(&["sums", "notes"]).await;
    rig.execute("DROP OWNED BY reader; DROP ROLE reader").await;
}

/// The two change over once more.
async fn refresh_until_switched_again(rig: &Rig) {
    let written = rig.query_number(WRITTEN).await;
    rig.execute(MUCH).await;
    rig.refresh("sums").await;
    refresh_until(
        rig,
        &format!("SELECT segment <> {written} FROM egret.view_capture WHERE id = 1"),
    )
    .await;
    rig.verify(&["sums"]).await;
}

#[tokio::test]
async fn both_count_for_how_much_may_wait() {
    let config = ViewsConfig { changes_size_max: ByteSize::mib(1), ..config() };
    let rig = new_rig(18, config, SUMS).await;
    let late = rig.database.connect().await;
    let hold = "BEGIN; INSERT INTO t (g, v) VALUES (42, 1)";
    late.batch_execute(hold).await.unwrap();
    for _ in 0..2 {
        rig.execute(MUCH).await;
    }
    rig.refresh("sums").await;
    refresh_until(&rig, "SELECT segment = 2 FROM egret.view_capture WHERE id = 1").await;
    let both =
        "SELECT pg_relation_size('egret.changes_1') + pg_relation_size('egret.changes_1_second')";
    let first = rig.query_number(FIRST).await;
    assert!(first > 300_000, "{first}");
    for _ in 0..10 {
        rig.execute(MUCH).await;
    }
    let size = rig.query_number(both).await;
    assert!((900_000..1_300_000).contains(&size), "{size}");
    assert_eq!(rig.refresh("sums").await.outcome, "full");
    rig.verify(&["sums"]).await;
    late.batch_execute("COMMIT").await.unwrap();
    rig.refresh("sums").await;
    rig.verify(&["sums"]).await;
    refresh_until(&rig, &format!("{both} < 300000")).await;
    // All of it is for both again.
    rig.execute(MUCH).await;
    rig.execute(MUCH).await;
    assert_eq!(rig.refresh("sums").await.outcome, "incremental");
    rig.verify(&["sums"]).await;
}

/// Writes until it is told to stop, in short transactions and in some that stay open for long.
async fn write_until_stopped(
    database: Arc<TestDatabase>,
    number: usize,
    stop: Arc<AtomicBool>,
) -> usize {
    let client = database.connect().await;
    let mut round = 0;
    while !stop.load(Ordering::Acquire) {
        round += 1;
        let id = number * 1_000_000 + round;
        let statements = match (round + number) % 7 {
            0 => format!(
                "BEGIN; INSERT INTO t (g, v) SELECT i % 10, i FROM generate_series(1, 300) AS i; SAVEPOINT s; DELETE FROM t WHERE g = {}; ROLLBACK TO s; COMMIT",
                round % 10
            ),
            1 => format!("BEGIN; UPDATE t SET v = v + 1 WHERE id % 50 = {number}; ROLLBACK"),
            2 => format!(
                "BEGIN; UPDATE t SET v = v + 1, g = (g + 1) % 10 WHERE id % 4 = {number} AND id % 97 = {}; SELECT count(*) FROM t; DELETE FROM t WHERE id % 4 = {number} AND id % 53 = 1; COMMIT",
                round % 97
            ),
            // About as much goes as comes.
            _ => format!(
                "DELETE FROM t WHERE id IN (SELECT id FROM t WHERE id % 4 = {number} ORDER BY id LIMIT 70 FOR UPDATE SKIP LOCKED); \
                 INSERT INTO t (g, v, note) SELECT {id} % 10, {id}, 'n' FROM generate_series(1, 20)"
            ),
        };
        assert_written(&client, client.batch_execute(&statements).await).await;
    }
    round
}

/// Deadlocks among the writers themselves are not a fault of the views.
async fn assert_written(client: &Client, written: Result<(), Error>) {
    if let Err(error) = written {
        let code = error.code();
        assert_eq!(code, Some(&SqlState::T_R_DEADLOCK_DETECTED), "{error}");
        client.batch_execute("ROLLBACK").await.unwrap();
    }
}

#[tokio::test]
async fn many_write_without_a_pause_and_the_tables_are_truncated_meanwhile() {
    for version in [18, 15] {
        let rig = new_rig(version, config(), SUMS).await;
        let joined = "SELECT u.name, t.id % 100 AS part, count(*) AS n, max(t.v) AS m FROM t JOIN u ON u.g = t.g GROUP BY u.name, t.id % 100";
        rig.create(new_view("joined", joined)).await.unwrap();
        rig.create(new_view("above", "SELECT n, count(*) AS c FROM sums GROUP BY n"))
            .await
            .unwrap();
        let names = ["sums", "joined", "above"];
        let database = Arc::new(TestDatabase {
            name: rig.database.name.clone(),
            server: rig.database.server.clone(),
        });
        let stop = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = (0..4)
            .map(|number| tokio::spawn(write_until_stopped(database.clone(), number, stop.clone())))
            .collect();
        let late = rig.database.connect().await;
        let (mut turns, mut emptied, mut written) = (0, 0, 1);
        for round in 0_usize.. {
            if round >= 24 && turns >= 2 && emptied >= 2 || round >= ROUNDS_MAX {
                break;
            }
            match round % 12 {
                2 => late.batch_execute("BEGIN; INSERT INTO t (g, v) VALUES (5, 1)").await.unwrap(),
                7 => {
                    let more = "UPDATE t SET v = v + 1 WHERE v = 1; COMMIT";
                    assert_written(&late, late.batch_execute(more).await).await;
                }
                _ => {}
            }
            for name in &names[..1 + round % 3] {
                rig.refresh(name).await;
            }
            rig.verify(&names[round % 3..=round % 3]).await;
            let now = rig.query_number(WRITTEN).await;
            turns += usize::from(now != written);
            written = now;
            let (first, second) = (rig.query_number(FIRST).await, rig.query_number(SECOND).await);
            emptied += usize::from(second >= 0 && [second, first][now as usize - 1] == 0);
        }
        assert!(writers.iter().all(|writer| !writer.is_finished()));
        stop.store(true, Ordering::Release);
        for writer in writers {
            assert!(writer.await.unwrap() > 0);
        }
        rig.verify(&names).await;
    }
}
