//! Servers of branches that do not answer Egret, or with more than fits: each costs its own branch
//! alone.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use egret_base::settings::ConfigDuration;
use egret_base::{CodedError, condition};
use egret_base_test::eventually;
use egret_branches::model::{Branch, BranchSource, DEFAULT_TENANT, NewBranch};
use egret_branches::{BranchesError, Children, CrashPoints, ROLE};
use egret_postgres::pool;
use egret_postgres::superuser::socket_connection;
use egret_postgres::tokio_postgres::Client;
use tokio::task::JoinHandle;

use crate::home::{Egret, Home, name};

fn child_of(parent: &str, child: &str) -> NewBranch {
    NewBranch { from: BranchSource::Branch(name(parent)), ..NewBranch::named(name(child)) }
}

/// A session of the branch's user in database `app`.
async fn enter(home: &Home, branch: &Branch) -> Client {
    let socket_dir = home.directory.join("run/branches").join(branch.id.hex());
    let mut connection = socket_connection(&socket_dir, 5432, 0, "app", "test");
    connection.user(ROLE).options("");
    pool::connect_with_defaults(&connection).await.unwrap()
}

/// The number that a query returns.
async fn count(client: &Client, sql: &str) -> i64 {
    let row = client.query_one(sql, &[]).await;
    row.unwrap().get(0)
}

/// A branch in which Egret's session waits for a lock that the branch's user holds.
struct BlockedCreate {
    /// The create that the session is part of.
    create: JoinHandle<Result<(), BranchesError>>,
    _holder: Client,
}

impl BlockedCreate {
    async fn new(home: &Home, egret: &Arc<Egret>) -> Self {
        let request = NewBranch { ttl_ms: Some(3_600_000), ..NewBranch::named(name("held")) };
        let created = egret.branches.create(request).await.unwrap();
        let holder = enter(home, &created.into_branch()).await;
        let lock = "BEGIN; ALTER DATABASE postgres RENAME TO other";
        holder.batch_execute(lock).await.unwrap();
        let engine = egret.clone();
        let create = tokio::spawn(async move {
            let created = engine.branches.create(child_of("held", "child")).await;
            created.map(|_| ())
        });
        let waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted";
        eventually("the create waits for the lock", async || {
            assert!(!create.is_finished(), "the create waits for the lock");
            count(&holder, waiting).await > 0
        })
        .await;
        Self { create, _holder: holder }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_whose_server_does_not_answer_holds_up_its_own_template_alone() {
    let home = Home::new("unanswered");
    let egret = Arc::new(home.start().await);
    egret.make_app().await;
    egret.branch("other").await;
    let held = BlockedCreate::new(&home, &egret).await;
    egret.branches.refresh_template().await.unwrap();
    let child = child_of("other", "child-of-other");
    egret.branches.create(child).await.unwrap();
    let other = name("other");
    egret.branches.suspend(DEFAULT_TENANT, &other).await.unwrap();
    assert!(!held.create.is_finished());
    // Not even its own end waits for it.
    home.clock.jump(7_200);
    let is_there = async |branch: &str| {
        let shown = egret.branches.show(DEFAULT_TENANT, &name(branch)).await;
        shown.is_ok()
    };
    eventually("the branch is gone", async || !is_there("held").await).await;
    held.create.await.unwrap().unwrap_err();
    egret.assert_consistent().await;
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_of_egret_waits_for_no_answer_of_a_branch() {
    let home = Home::new("unanswered-stop");
    let egret = Arc::new(home.start().await);
    egret.make_app().await;
    let held = BlockedCreate::new(&home, &egret).await;
    egret.stop().await;
    let error = held.create.await.unwrap().unwrap_err();
    assert_eq!(error.code(), "stopping", "{error}");
}

/// Replaces the view of prepared transactions in a branch whose user is a superuser of it.
async fn replace_view(egret: &Egret, gid: &str, from: &str) {
    let request = NewBranch { superuser: true, ..NewBranch::named(name("one")) };
    egret.branches.create(request).await.unwrap();
    let sql = format!(
        "SET allow_system_table_mods = on;
         CREATE OR REPLACE VIEW pg_catalog.pg_prepared_xacts AS
         SELECT '0'::xid AS transaction, {gid} AS gid, now() AS prepared,
                'one'::name AS owner, current_database() AS database
         FROM {from}"
    );
    egret.ask("one", &sql).await.unwrap();
}

fn is_given_up() -> bool {
    let active = condition::active();
    let is_one = |one: &condition::ActiveCondition| one.name == "branches_server_given_up";
    active.iter().any(is_one)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_builder_that_does_not_answer_is_given_up() {
    let mut home = Home::new("unanswered-builder");
    let egret = home.start().await;
    egret.make_app().await;
    replace_view(&egret, "'g'::text", "pg_sleep(100000)").await;
    egret.stop().await;
    // Only now: what came before may take its time.
    home.config.server_timeout = ConfigDuration::secs(1);
    let egret = home.start().await;
    egret.assert_consistent().await;
    let error = egret.branches.create(child_of("one", "two")).await.unwrap_err();
    assert_eq!(error.code(), "branch_server_timeout", "{error}");
    assert!(is_given_up());
    egret.assert_consistent().await;
    assert!(home.processes("volume/templates").is_empty());
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_builder_that_answers_with_more_than_fits_is_given_up() {
    let home = Home::new("unanswered-bytes");
    let egret = home.start().await;
    egret.make_app().await;
    // A gigabyte and a half.
    replace_view(&egret, "repeat('x', 1000000)", "generate_series(1, 1500)").await;
    let error = egret.branches.create(child_of("one", "two")).await.unwrap_err();
    assert_eq!(error.code(), "branch_server_answer", "{error}");
    assert!(error.to_string().contains("branches.server_answer_max"));
    assert!(is_given_up());
    egret.assert_consistent().await;
    assert!(home.processes("volume/templates").is_empty());
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proof_of_a_branch_that_does_not_answer_is_given_up() {
    let mut home = Home::new("unanswered-proof");
    let egret = home.start().await;
    egret.make_app().await;
    let branch = egret.branch("one").await;
    egret.stop().await;
    home.config.server_timeout = ConfigDuration::secs(1);
    let egret = home.start().await;
    egret.assert_consistent().await;
    let holder = enter(&home, &branch).await;
    let lock = "BEGIN; ALTER DATABASE postgres RENAME TO other";
    holder.batch_execute(lock).await.unwrap();
    let one = name("one");
    let proof = egret.branches.verify(DEFAULT_TENANT, &one, "postgres");
    let error = proof.await.unwrap_err();
    assert_eq!(error.code(), "branch_server_timeout", "{error}");
    assert!(error.to_string().contains("branches.server_timeout"));
    // The branch is its user's as before.
    holder.batch_execute("ROLLBACK").await.unwrap();
    let proof = egret.branches.verify(DEFAULT_TENANT, &one, "app");
    assert!(proof.await.unwrap().source_unchanged);
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proof_gives_a_source_up_that_is_not_read_in_time() {
    let mut home = Home::new("unanswered-source");
    home.config.verify_timeout = ConfigDuration::ms(300);
    let egret = home.start().await;
    egret.make_app().await;
    egret.branch("one").await;
    let holder = egret.source("app").await;
    let lock = "BEGIN; LOCK TABLE item IN ACCESS EXCLUSIVE MODE";
    holder.batch_execute(lock).await.unwrap();
    let one = name("one");
    let proof = egret.branches.verify(DEFAULT_TENANT, &one, "app");
    let error = proof.await.unwrap_err();
    assert_eq!(error.code(), "branch_verify_timeout", "{error}");
    let text = error.to_string();
    assert!(text.contains("branches.verify_timeout (300 ms)"), "{text}");
    let lasts = condition::active().into_iter().find(|it| it.name == "branches_not_verified");
    assert_eq!(lasts.expect("a condition").reason, text);
    // The read of the source stops as well: no query goes on without its caller.
    let waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted";
    eventually("the read of the source stops", async || count(&holder, waiting).await == 0).await;
    egret.stop().await;
}

/// Tells which steps are taken, and holds each suspension up before it stops a server.
struct SuspensionGate {
    reached: Sender<&'static str>,
    go_on: Mutex<Receiver<()>>,
}

impl CrashPoints for SuspensionGate {
    fn before(&self, step: &'static str) {
        if step.starts_with("suspend.") {
            self.reached.send(step).unwrap();
        }
        if step == "suspend.stop" {
            // An error: the test is over.
            let _ = self.go_on.lock().unwrap().recv();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspension_that_waits_for_its_turn_holds_no_branch() {
    let mut home = Home::new("unanswered-turn");
    home.config.idle_suspend = Some(ConfigDuration::secs(60));
    home.config.start_concurrency = 1;
    let ((reached, steps), (go_on, going)) = (channel(), channel());
    let suspensions = SuspensionGate { reached, go_on: Mutex::new(going) };
    let egret = Arc::new(home.start_with(Some(Arc::new(suspensions))).await);
    egret.make_app().await;
    let branches = ["one", "other"];
    for branch in branches {
        egret.branch(branch).await;
    }
    home.clock.jump(120);
    // Both are due, and one is being stopped.
    let mut due: Vec<&str> =
        tokio::task::spawn_blocking(move || steps.iter().take(3).collect()).await.unwrap();
    due.sort_unstable();
    assert_eq!(due, ["suspend.stop", "suspend.turn", "suspend.turn"]);
    let destroy = |branch: &'static str| {
        let egret = egret.clone();
        tokio::spawn(async move {
            let (name, all) = (name(branch), |_: &_| true);
            let destroyed = egret.branches.destroy(DEFAULT_TENANT, &name, Children::Refuse, all);
            destroyed.await.map(drop)
        })
    };
    let destroyed = futures_util::future::select_all(branches.map(destroy));
    let destroyed = tokio::time::timeout(Duration::from_secs(60), destroyed).await;
    let (first, _, rest) = destroyed.expect("one of them is held by nothing");
    first.unwrap().unwrap();
    drop(go_on);
    for task in rest {
        task.await.unwrap().unwrap();
    }
    egret.stop().await;
}
