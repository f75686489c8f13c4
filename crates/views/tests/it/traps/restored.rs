//! Databases that were restored: the frontier of a view is one of the server that it was written
//! on, and so are the numbers of tables and types.

use std::path::PathBuf;
use std::process::Command;

use egret_postgres_test::{
    Recovery, TestDatabase, client_programs, start_own_server, test_directory,
};
use egret_views::ViewsConfig;
use egret_views::model::{MakerRights, Mode, NewView};

use crate::engine::{Rig, new_view, view_ref};
use crate::world::wait_until;

const TABLES: &str = "CREATE TYPE mood AS ENUM ('good', 'bad');
     CREATE TABLE t (id int PRIMARY KEY, g int, v int);
     CREATE TABLE u (id int PRIMARY KEY, g int, v int, mood mood);
     CREATE TABLE p (id int, g int, v int) PARTITION BY LIST (g);
     CREATE TABLE p1 PARTITION OF p FOR VALUES IN (0, 1, 2);
     CREATE TABLE p2 PARTITION OF p DEFAULT;
     CREATE VIEW low AS SELECT id, g, v FROM t WHERE v < 500;
     INSERT INTO t SELECT i, i % 5, i FROM generate_series(1, 50) AS i;
     INSERT INTO u SELECT i, i % 5, i * 10, CASE i % 2 WHEN 0 THEN 'good' ELSE 'bad' END::mood FROM generate_series(1, 20) AS i;
     INSERT INTO p SELECT i, i % 5, i FROM generate_series(1, 30) AS i";

const VIEWS: [(&str, &str); 5] = [
    ("joined", "SELECT t.id, t.v, u.v AS w, u.mood FROM t JOIN u ON t.g = u.g"),
    ("sums", "SELECT g, count(*) AS n, sum(v) AS s FROM low GROUP BY g"),
    ("moods", "SELECT mood, count(*) AS n, max(v) AS m FROM u GROUP BY mood"),
    ("parts", "SELECT p.g, sum(p.v) AS s FROM p GROUP BY p.g"),
    ("nested", "SELECT s.g, s.n, m.s FROM sums AS s JOIN parts AS m ON m.g = s.g"),
];

const NAMES: [&str; 5] = ["joined", "sums", "moods", "parts", "nested"];

/// A view that is kept fresh within the transactions that write.
const AT_ONCE: &str = "at_once";

/// What changes something in every view, each time it is run.
const CHANGE: &str = "INSERT INTO t SELECT max(id) + 1, 2, 7 FROM t; UPDATE t SET v = v + 1, g = (g + 1) % 5 WHERE id % 7 = 0;
     DELETE FROM t WHERE id = (SELECT min(id) FROM t); UPDATE u SET mood = 'good', v = v + 1 WHERE id % 3 = 0;
     INSERT INTO u SELECT max(id) + 1, 3, 1, 'bad' FROM u; UPDATE p SET v = v + 1; DELETE FROM p2 WHERE id = (SELECT max(id) FROM p2)";

/// Has a server go on by many transactions, so that their numbers on another are lower.
const GO_ON: &str =
    "DO $$ BEGIN FOR i IN 1..20000 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$";

async fn new_rig(database: TestDatabase) -> Rig {
    let rig = Rig::over_database(database, ViewsConfig::default()).await;
    rig.execute("SET search_path = public").await;
    rig
}

/// A database with views that are not up to date.
async fn original_rig(database: TestDatabase) -> Rig {
    let rig = new_rig(database).await;
    rig.execute(TABLES).await;
    for (name, query) in VIEWS {
        rig.create(new_view(name, query)).await.unwrap();
    }
    let at_once =
        NewView { mode: Mode::Immediate, schedule: None, ..new_view(AT_ONCE, VIEWS[2].1) };
    rig.create(at_once).await.unwrap();
    rig.execute(GO_ON).await;
    rig.execute(CHANGE).await;
    rig.verify(&NAMES).await;
    rig.execute(CHANGE).await;
    rig
}

/// A dump of a database, removed with this.
struct Dump(PathBuf);

impl Dump {
    fn create(database: &TestDatabase) -> Self {
        let directory = test_directory("dump");
        let file = directory.join("dump").display().to_string();
        run_program(database, "pg_dump", &["-Fc", "-f", &file, &database.name]);
        Self(directory)
    }

    /// Restores it, with more arguments.
    fn restore(&self, database: &TestDatabase, more: &[&str]) {
        let file = self.0.join("dump").display().to_string();
        let into = ["--exit-on-error", "-d", &database.name, &file];
        run_program(database, "pg_restore", &[more, &into].concat());
    }
}

impl Drop for Dump {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

/// Runs a program against the server of a database.
fn run_program(database: &TestDatabase, name: &str, arguments: &[&str]) {
    let (server, connection) = (&database.server, database.connection());
    let output = Command::new(client_programs().1.join(name))
        .arg("-h")
        .arg(&server.socket_dir)
        .args(["-p", &server.port.to_string()])
        .args(["-U", connection.get_user().unwrap()])
        .args(arguments)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {said}");
}

/// The outcomes of refreshing every view by itself.
async fn refresh_outcomes(rig: &Rig) -> Vec<String> {
    let mut all = Vec::new();
    for name in NAMES {
        all.push(rig.refresh(name).await.outcome);
    }
    all
}

/// Views of a restored database, in which something was changed before an Egret came, are computed
/// anew, and then go on by what changes.
async fn assert_refreshes_continue(rig: &Rig) {
    let before = rig.query_number("SELECT sum(n)::bigint FROM sums").await;
    assert!(before > 0, "it shows what it showed");
    let current = "SELECT count(*) FROM egret.view AS v, egret.freshness(v.schema || '.' || v.name) AS f WHERE f.is_current";
    assert_eq!(rig.query_number(current).await, 0);
    for found in rig.views.list(None).await.unwrap() {
        // One in mode immediate refuses to be read until then.
        if found.name.name == AT_ONCE {
            assert_eq!(found.state.as_str(), "new");
        } else {
            assert_eq!((found.state.as_str(), found.reason), ("active", None));
        }
        assert!(!found.is_current);
    }
    rig.execute(CHANGE).await;
    assert_eq!(refresh_outcomes(rig).await, ["full", "full", "full", "nothing", "nothing"]);
    rig.verify(&NAMES).await;
    rig.verify(&[AT_ONCE]).await;
    for _ in 0..3 {
        rig.execute(CHANGE).await;
        let outcome = ["incremental", "incremental", "incremental", "nothing", "nothing"];
        assert_eq!(refresh_outcomes(rig).await, outcome);
        rig.verify(&NAMES).await;
        assert_eq!(refresh_outcomes(rig).await, ["nothing"; 5]);
    }
    let left = "SELECT 0 = sum((xpath('/row/n/text()', query_to_xml('SELECT count(*) AS n FROM egret.' || relname, false, true, '')))[1]::text::bigint)::bigint \
                FROM pg_class WHERE relnamespace = 'egret'::regnamespace AND relname LIKE 'changes%' AND relkind = 'r'";
    wait_until(&rig.client, left).await;
    // What stands between a view and its table is noticed too.
    rig.execute("CREATE OR REPLACE VIEW low AS SELECT id, g, v FROM t WHERE v >= 10").await;
    assert_eq!(rig.refresh("sums").await.outcome, "full");
    rig.verify(&NAMES).await;
}

#[tokio::test]
async fn a_dump_is_restored_into_another_database_and_on_another_server() {
    let original = original_rig(TestDatabase::create(client_programs().0).await).await;
    let dump = Dump::create(&original.database);
    let elsewhere =
        TestDatabase::create_in(start_own_server(18).await, "elsewhere".to_owned()).await;
    // A dump names the role of views, which a server that Egret has started has.
    let client = elsewhere.connect().await;
    let role = "CREATE ROLE egret_views NOLOGIN NOINHERIT";
    client.batch_execute(role).await.unwrap();
    for database in [TestDatabase::create(client_programs().0).await, elsewhere] {
        dump.restore(&database, &[]);
        let restored = new_rig(database).await;
        restored.execute(CHANGE).await;
        assert_refreshes_continue(&restored).await;
        restored.views.uninstall(None, true).await.unwrap();
    }
    assert_eq!(refresh_outcomes(&original).await[0], "incremental", "it has nothing to do with it");
    original.verify(&NAMES).await;
}

/// Numbers of tables that are those of others where they are restored.
const CONFUSED: &str = "UPDATE egret.view_capture SET relation = (relation::bigint + 1000000)::oid;
     UPDATE egret.view_capture SET relation = (ARRAY['u', 't', 'p']::regclass[])[id]::oid WHERE id <= 3;
     UPDATE egret.view SET inlined = ARRAY['sums'::regclass::oid] WHERE name = 'sums'";

#[tokio::test]
async fn the_numbers_of_tables_on_the_old_server_are_those_of_others_on_the_new_one() {
    let original = original_rig(TestDatabase::create(client_programs().0).await).await;
    let dump = Dump::create(&original.database);
    let restored = TestDatabase::create(client_programs().0).await;
    dump.restore(&restored, &[]);
    let restored = new_rig(restored).await;
    restored.execute(CONFUSED).await;
    restored.execute(CHANGE).await;
    assert_refreshes_continue(&restored).await;
}

#[tokio::test]
async fn a_view_is_made_or_repaired_before_others_of_a_restored_database_are_refreshed() {
    let original = original_rig(TestDatabase::create(client_programs().0).await).await;
    let dump = Dump::create(&original.database);
    for is_new in [true, false] {
        let restored = TestDatabase::create(client_programs().0).await;
        dump.restore(&restored, &[]);
        let restored = new_rig(restored).await;
        restored.execute(CONFUSED).await;
        restored.execute(CHANGE).await;
        let first = if is_new { "early" } else { "joined" };
        match is_new {
            true => restored.create(new_view(first, "SELECT id, v FROM t")).await,
            false => restored
                .views
                .repair(&view_ref(first), &MakerRights::administrator())
                .await
                .map(drop),
        }
        .unwrap();
        restored.verify(&[first]).await;
        for _ in 0..2 {
            restored.execute(CHANGE).await;
            restored.verify(&[first]).await;
            restored.verify(&NAMES).await;
        }
    }
}

#[tokio::test]
async fn a_database_is_restored_under_an_egret_that_runs() {
    let original = original_rig(TestDatabase::create(client_programs().0).await).await;
    let dump = Dump::create(&original.database);
    original.verify(&NAMES).await;
    dump.restore(&original.database, &["--clean"]);
    original.execute(CHANGE).await;
    assert_refreshes_continue(&original).await;

    let Rig { database, views, .. } = original;
    run_program(&database, "dropdb", &["--force", &database.name]);
    run_program(&database, "createdb", &[&database.name]);
    dump.restore(&database, &[]);
    let again = Rig { views, ..new_rig(database).await };
    again.execute(CHANGE).await;
    assert_refreshes_continue(&again).await;
}

#[tokio::test]
async fn a_copy_of_the_files_goes_on_from_the_frontier_that_it_has() {
    let server = start_own_server(18).await;
    let database = TestDatabase::create_in(server.clone(), "copied".to_owned()).await;
    let original = original_rig(database).await;
    let first = [
        (Recovery::Crash, "incremental"),
        // On another timeline nothing is taken for granted.
        (Recovery::Promotion, "full"),
    ];
    for (recovery, outcome) in first {
        let server = server.copy(recovery).await;
        let copy = new_rig(TestDatabase { name: "copied".to_owned(), server }).await;
        copy.execute(CHANGE).await;
        assert_eq!(copy.refresh("joined").await.outcome, outcome);
        copy.verify(&NAMES).await;
        copy.execute(CHANGE).await;
        assert_eq!(copy.refresh("nested").await.outcome, "incremental");
        copy.verify(&NAMES).await;
    }
    original.verify(&NAMES).await;
}
