//! Servers that crash: what unlogged tables had is gone then, and no view is taken for fresh that
//! has not seen it.

use std::sync::Arc;

use egret_postgres_test::{Recovery, Termination, TestDatabase, TestServer, start_own_server};
use egret_views::ViewsConfig;
use egret_views::model::{Mode, NewView};

use crate::engine::{Rig, new_view, view_ref};

const TABLES: &str = "CREATE TABLE t (id int PRIMARY KEY, g int, v int);
     CREATE TABLE u (g int PRIMARY KEY, name text);
     INSERT INTO t SELECT i, i % 5, i FROM generate_series(1, 200) AS i;
     INSERT INTO u SELECT i, 'g' || i FROM generate_series(0, 9) AS i";

const NAMES: [&str; 5] = ["names", "sums", "joined", "above", "at_once"];

/// What changes something in every view, each time it is run.
const CHANGE: &str = "INSERT INTO t SELECT max(id) + 1, 2, 7 FROM t; UPDATE t SET v = v + 1, g = (g + 1) % 5 WHERE id % 7 = 0;
     DELETE FROM t WHERE id = (SELECT min(id) FROM t); UPDATE u SET name = name || 'x'";

async fn new_rig(server: &Arc<TestServer>) -> Rig {
    let config = ViewsConfig { changes_unlogged: true, ..ViewsConfig::default() };
    let database = TestDatabase { name: "crashed".to_owned(), server: server.clone() };
    Rig::over_database(database, config).await
}

/// A database in which what changes in `u` is logged, and what changes in `t` is not.
async fn original_rig(server: &Arc<TestServer>) -> Rig {
    let database = TestDatabase::create_in(server.clone(), "crashed".to_owned()).await;
    let logged = Rig::over_database(database, ViewsConfig::default()).await;
    logged.execute(TABLES).await;
    let names = "SELECT name, count(*) AS n FROM u GROUP BY name";
    logged.create(new_view("names", names)).await.unwrap();
    let rig = new_rig(server).await;
    for (name, query) in [
        ("sums", "SELECT g, count(*) AS n, sum(v) AS s FROM t GROUP BY g"),
        ("joined", "SELECT t.id, t.v, u.name FROM t JOIN u ON u.g = t.g"),
        ("above", "SELECT n, count(*) AS c FROM sums GROUP BY n"),
    ] {
        rig.create(new_view(name, query)).await.unwrap();
    }
    let at_once = NewView {
        mode: Mode::Immediate,
        schedule: None,
        ..new_view("at_once", "SELECT g, max(v) AS m FROM t GROUP BY g")
    };
    rig.create(at_once).await.unwrap();
    rig
}

/// The outcomes of refreshing every view by itself. One that reads another is refreshed with it.
async fn refresh_outcomes(rig: &Rig) -> Vec<String> {
    let mut all = Vec::new();
    for name in NAMES {
        all.push(rig.refresh(name).await.outcome);
    }
    rig.verify(&NAMES).await;
    all
}

/// How many views are up to date, as SQL and the list of views say.
async fn current_state(rig: &Rig) -> (i64, usize) {
    let said =
        "SELECT count(*) FROM egret.view AS v, egret.freshness(v.name) AS f WHERE f.is_current";
    let listed = rig.views.list(None).await.unwrap();
    let listed = listed.iter().filter(|view| view.is_current).count();
    (rig.query_number(said).await, listed)
}

const BY_CHANGES: [&str; 5] = ["incremental", "incremental", "incremental", "nothing", "nothing"];
/// Only those that read what was not logged.
const ANEW: [&str; 5] = ["incremental", "full", "full", "nothing", "nothing"];

#[tokio::test]
async fn what_was_not_logged_is_computed_anew_once_after_a_crash_and_never_after_a_restart() {
    let server = start_own_server(18).await;
    let mut rig = original_rig(&server).await;
    let kinds = "SELECT count(*) FROM pg_class WHERE relnamespace = 'egret'::regnamespace AND relname ~ '^changes_[0-9]+$' AND relpersistence = 'u'";
    // Those of `t`, for all and for the view that is kept fresh at once.
    assert_eq!(rig.query_number(kinds).await, 2);
    for ending in [Termination::Stop, Termination::Kill, Termination::Kill, Termination::Stop] {
        rig.execute(CHANGE).await;
        assert_eq!(refresh_outcomes(&rig).await, BY_CHANGES);
        assert_eq!(current_state(&rig).await, (5, 5));
        // Some have seen what is lost, and others have not.
        rig.execute(CHANGE).await;
        rig.refresh("joined").await;
        server.restart(ending).await;
        rig = self::new_rig(&server).await;
        let (expected, up_to_date) = match ending {
            Termination::Stop => {
                (["incremental", "incremental", "nothing", "nothing", "nothing"], 2)
            }
            Termination::Kill => (ANEW, 1),
        };
        assert_eq!(current_state(&rig).await, (up_to_date, up_to_date as usize));
        if ending == Termination::Kill {
            rig.execute(CHANGE).await;
        }
        assert_eq!(refresh_outcomes(&rig).await, expected);
        assert_eq!(refresh_outcomes(&rig).await, ["nothing"; 5]);
    }
}

#[tokio::test]
async fn nothing_was_written_after_the_crash_and_a_view_is_made_before_others_are_refreshed() {
    let server = start_own_server(18).await;
    let rig = original_rig(&server).await;
    rig.execute(CHANGE).await;
    server.restart(Termination::Kill).await;
    let rig = self::new_rig(&server).await;
    let late = new_view("late", "SELECT v, count(*) AS n FROM t GROUP BY v");
    rig.create(late).await.unwrap();
    assert_eq!(refresh_outcomes(&rig).await, ANEW);
    rig.execute(CHANGE).await;
    assert_eq!(rig.refresh("late").await.outcome, "incremental");
    rig.verify(&["late"]).await;
    assert_eq!(refresh_outcomes(&rig).await, BY_CHANGES);
}

#[tokio::test]
async fn two_egrets_find_out_at_the_same_time_that_the_server_crashed() {
    let server = start_own_server(18).await;
    let mut rig = original_rig(&server).await;
    for _ in 0..3 {
        rig.execute(CHANGE).await;
        server.restart(Termination::Kill).await;
        let (one, other) = (self::new_rig(&server).await, self::new_rig(&server).await);
        one.execute(CHANGE).await;
        let (sums, joined) = (view_ref("sums"), view_ref("joined"));
        let done = tokio::join!(one.views.refresh(&sums), other.views.refresh(&joined));
        assert_eq!(
            (done.0.unwrap().outcome, done.1.unwrap().outcome),
            ("full".to_owned(), "full".to_owned())
        );
        one.verify(&NAMES).await;
        other.execute(CHANGE).await;
        assert_eq!(refresh_outcomes(&other).await, BY_CHANGES);
        rig = other;
    }
}

#[tokio::test]
async fn a_copy_of_the_files_has_nothing_of_what_was_not_logged() {
    let server = start_own_server(18).await;
    let rig = original_rig(&server).await;
    rig.execute(CHANGE).await;
    for (recovery, of_logged) in [(Recovery::Crash, "incremental"), (Recovery::Promotion, "full")] {
        let copy = self::new_rig(&server.copy(recovery).await).await;
        let mut expected = ANEW;
        expected[0] = of_logged;
        let found = refresh_outcomes(&copy).await;
        assert_eq!(found[..4], expected[..4]);
        copy.execute(CHANGE).await;
        assert_eq!(refresh_outcomes(&copy).await, BY_CHANGES);
    }
    assert_eq!(refresh_outcomes(&rig).await, BY_CHANGES);
}

/// A crash empties the table, and no trigger tells the view.
#[tokio::test]
async fn a_view_in_mode_immediate_over_an_unlogged_table_is_refused_after_a_crash() {
    let server = start_own_server(18).await;
    let database = TestDatabase::create_in(server.clone(), "crashed".to_owned()).await;
    let before = Rig::over_database(database, ViewsConfig::default()).await;
    before.execute("CREATE UNLOGGED TABLE t (g int); INSERT INTO t VALUES (1), (1), (2)").await;
    let counts = NewView {
        mode: Mode::Immediate,
        schedule: None,
        ..new_view("counts", "SELECT g, count(*) AS n FROM t GROUP BY g")
    };
    before.create(counts).await.unwrap();
    let count = "SELECT count(*) FROM counts";
    for ending in [Termination::Stop, Termination::Kill] {
        server.restart(ending).await;
        let rig = new_rig(&server).await;
        if ending == Termination::Stop {
            assert_eq!(rig.query_number(count).await, 2);
            continue;
        }
        let error = rig.client.query_one(count, &[]).await.unwrap_err();
        let message = error.as_db_error().unwrap().message().to_owned();
        assert!(message.contains("public.counts"), "{message}");
        assert_eq!(rig.refresh("counts").await.outcome, "full");
        assert_eq!(rig.query_number(count).await, 0);
    }
}
