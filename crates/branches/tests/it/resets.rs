//! A reset that fails leaves the branch as it was.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use egret_base::CodedError;
use egret_base::lifecycle::{Readiness, Service};
use egret_base::settings::ByteSize;
use egret_base_test::{eventually, eventually_blocking};
use egret_branches::model::{Branch, BranchState, DEFAULT_TENANT};
use egret_branches::{BranchesError, CrashPoints};

use crate::crashes::crash;
use crate::home::{Egret, Home, lose_registry, name};

/// Moves a directory or file away before a step is taken, once each time that it is armed.
struct Thief {
    step: &'static str,
    path: Mutex<PathBuf>,
    is_armed: AtomicBool,
}

impl Thief {
    fn at(step: &'static str) -> Arc<Self> {
        Arc::new(Self { step, path: Mutex::default(), is_armed: AtomicBool::new(false) })
    }

    fn arm(&self, path: PathBuf) {
        *self.path.lock().unwrap() = path;
        self.is_armed.store(true, Ordering::SeqCst);
    }
}

pub fn hidden(path: &std::path::Path) -> PathBuf {
    path.with_extension("hidden")
}

impl CrashPoints for Thief {
    fn before(&self, step: &'static str) {
        if step == self.step && self.is_armed.swap(false, Ordering::SeqCst) {
            let path = self.path.lock().unwrap();
            std::fs::rename(&*path, hidden(&path)).unwrap();
        }
    }
}

pub async fn reset(egret: &Egret) -> Result<(), BranchesError> {
    let one = name("one");
    let reset = egret.branches.reset(DEFAULT_TENANT, &one, None);
    reset.await.map(drop)
}

/// Starts an Egret whose branch `one` has no rows, where its template has 1,000.
pub async fn start_emptied(home: &Home, steps: Arc<dyn CrashPoints>) -> (Egret, Branch) {
    let egret = home.start_with(Some(steps)).await;
    egret.make_app().await;
    let one = egret.branch("one").await;
    egret.ask("one", "DELETE FROM item").await.unwrap();
    (egret, one)
}

/// Rows of branch `one`.
pub async fn count(egret: &Egret) -> String {
    let rows = egret.ask("one", "SELECT count(*) FROM item").await;
    rows.unwrap().unwrap()
}

pub async fn state(egret: &Egret) -> BranchState {
    let shown = egret.branches.show(DEFAULT_TENANT, &name("one")).await;
    let branch = shown.unwrap().branch;
    assert_eq!(branch.failure, None);
    branch.state
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_that_cannot_copy_leaves_the_branch_running_as_it_was() {
    let mut home = Home::new("reset-copy");
    home.config.volume = "copy".to_owned();
    let thief = Thief::at("create.clone");
    let (egret, one) = start_emptied(&home, thief.clone()).await;
    let start = "SELECT pg_postmaster_start_time()::text";
    let before = egret.ask("one", start).await.unwrap();
    let templates = home.directory.join("volume/templates");
    let template = templates.join(one.template.hex());
    thief.arm(template.clone());
    let refused = reset(&egret).await.unwrap_err();
    assert_eq!(refused.code(), "branch_files", "{refused}");
    std::fs::rename(hidden(&template), &template).unwrap();
    assert_eq!(state(&egret).await, BranchState::Running);
    // Its server was not stopped at all.
    assert_eq!(egret.ask("one", start).await.unwrap(), before);
    assert_eq!(count(&egret).await, "0");
    reset(&egret).await.unwrap();
    assert_eq!(count(&egret).await, "1000");
    home.assert_nothing_leaks(&egret).await;
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_whose_server_does_not_start_leaves_the_branch_as_it_was() {
    let mut home = Home::new("reset-start");
    // No pool is filled, whose starts the thief would meet.
    home.config.volume = "copy".to_owned();
    let thief = Thief::at("start.launch");
    let (egret, one) = start_emptied(&home, thief.clone()).await;
    let data = home.directory.join("volume/branches").join(one.id.hex());
    for expected in [BranchState::Running, BranchState::Suspended] {
        if expected == BranchState::Suspended {
            let suspended = egret.branches.suspend(DEFAULT_TENANT, &name("one")).await;
            suspended.unwrap();
        }
        thief.arm(data.join("global/pg_control"));
        reset(&egret).await.unwrap_err();
        assert_eq!(state(&egret).await, expected);
        assert_eq!(count(&egret).await, "0", "{expected}");
    }
    // Egret has stopped its server itself.
    let ended = format!("exited unexpectedly branch={}", one.id);
    assert_eq!(crate::logs::seen(&ended), 0);
    reset(&egret).await.unwrap();
    assert_eq!(count(&egret).await, "1000");
    home.assert_nothing_leaks(&egret).await;
    egret.stop().await;
}

/// Holds up the first task that comes to a step, until it is opened.
pub struct Gate {
    step: &'static str,
    is_reached: AtomicBool,
    is_open: AtomicBool,
}

impl Gate {
    pub fn at(step: &'static str) -> Arc<Self> {
        Arc::new(Self { step, is_reached: AtomicBool::new(false), is_open: AtomicBool::new(false) })
    }

    /// Waits until a task is held up.
    pub async fn reached(&self) {
        eventually("a task is held up at the gate", async || {
            self.is_reached.load(Ordering::SeqCst)
        })
        .await;
    }

    pub fn open(&self) {
        self.is_open.store(true, Ordering::SeqCst);
    }
}

impl CrashPoints for Gate {
    fn before(&self, step: &'static str) {
        if step == self.step && !self.is_reached.swap(true, Ordering::SeqCst) {
            tokio::task::block_in_place(|| {
                eventually_blocking("the gate is opened", || self.is_open.load(Ordering::SeqCst));
            });
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_that_a_stop_interrupts_is_not_done_at_the_next_start() {
    let home = Home::new("reset-stop");
    let gate = Gate::at("reset.swap");
    let (egret, _) = start_emptied(&home, gate.clone()).await;
    let opening = async {
        eventually("the stop has begun", async || egret.branches.ready() != Readiness::Ready).await;
        gate.open();
    };
    let stopping = async {
        gate.reached().await;
        tokio::join!(egret.stop(), opening);
    };
    let (refused, ()) = tokio::join!(reset(&egret), stopping);
    assert!(matches!(refused, Err(BranchesError::Stopping)), "{refused:?}");
    let egret = home.start().await;
    assert_eq!(state(&egret).await, BranchState::Running);
    assert_eq!(count(&egret).await, "0");
    home.assert_nothing_leaks(&egret).await;
    egret.stop().await;
}

pub const ITEM: &str = "SELECT name FROM item WHERE id = 1";

/// Starts an Egret whose branch `kept` has an item `mine`, where its template has `item 1`.
pub async fn start_changed(home: &Home) -> (Egret, Branch) {
    let egret = home.start().await;
    egret.make_app().await;
    let kept = egret.branch("kept").await;
    let update = "UPDATE item SET name = 'mine' WHERE id = 1";
    egret.ask("kept", update).await.unwrap();
    (egret, kept)
}

/// Compares the first item of branch `kept`.
pub async fn assert_item(egret: &Egret, expected: &str) {
    let item = egret.ask("kept", ITEM).await.unwrap();
    assert_eq!(item.as_deref(), Some(expected));
}

/// Branch `kept` has failed and cannot be resumed; a reset makes it what its template is.
pub async fn assert_needs_reset(egret: &Egret) {
    let kept = name("kept");
    let shown = egret.branches.show(DEFAULT_TENANT, &kept).await.unwrap();
    assert_eq!(shown.branch.state, BranchState::Failed);
    let refused = egret.branches.resume(DEFAULT_TENANT, &kept).await.unwrap_err();
    assert_eq!(refused.code(), "branch_wrong_state", "{refused}");
    let reset = egret.branches.reset(DEFAULT_TENANT, &kept, None);
    reset.await.unwrap();
    assert_item(egret, "item 1").await;
}

/// One branch is being reset.
pub fn assert_resetting(egret: &Egret) {
    let counts = egret.branches.count_by_state().unwrap();
    assert_eq!(counts.get("resetting"), Some(&1), "{counts:?}");
}

/// A home where Egret has died before a step of the reset of branch `kept`, which is returned as it
/// was.
pub async fn interrupted(purpose: &str, step: &str) -> (Home, Branch) {
    interrupted_in(purpose, "reset", step).await
}

/// The same in another scene.
async fn interrupted_in(purpose: &str, scene: &str, step: &str) -> (Home, Branch) {
    let home = Home::new(purpose);
    let (egret, kept) = start_changed(&home).await;
    egret.stop().await;
    assert!(crash(&home, scene, step).await);
    (home, kept)
}

/// Changes the registry of an Egret that does not run.
pub fn change_row(home: &Home, sql: &str) {
    let state = home.directory.join("state.db");
    let connection = egret_state::rusqlite::Connection::open(state).unwrap();
    assert_eq!(connection.execute(sql, []).unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_reset_whose_server_does_not_start_keeps_the_former_files() {
    let (home, kept) = interrupted("reset-redone", "reset.swap").await;
    let thief = Thief::at("start.launch");
    let data = home.directory.join("volume/branches").join(kept.id.hex());
    thief.arm(data.join("global/pg_control"));
    let egret = home.start_with(Some(thief)).await;
    egret.resets_are_over().await;
    let kept = name("kept");
    let shown = egret.branches.show(DEFAULT_TENANT, &kept).await.unwrap();
    assert_eq!(shown.branch.state, BranchState::Failed);
    egret.stop().await;
    // The clean stop has recorded that its files are on the disk.
    let stopped = "UPDATE branch SET pid = NULL WHERE name = 'kept' AND boot_id IS NULL";
    change_row(&home, stopped);
    let egret = home.start().await;
    egret.branches.resume(DEFAULT_TENANT, &kept).await.unwrap();
    assert_item(&egret, "mine").await;
    home.assert_nothing_leaks(&egret).await;
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_reset_to_another_template_whose_server_does_not_start_is_undone() {
    let (home, before) = interrupted_in("reset-to-redone", "reset-to", "reset.swap").await;
    let thief = Thief::at("start.launch");
    let data = home.directory.join("volume/branches").join(before.id.hex());
    thief.arm(data.join("global/pg_control"));
    let egret = home.start_with(Some(thief)).await;
    egret.resets_are_over().await;
    let kept = name("kept");
    let shown = egret.branches.show(DEFAULT_TENANT, &kept).await.unwrap();
    assert_eq!(shown.branch.state, BranchState::Running);
    assert_eq!(shown.branch.parent.template, before.template.to_string());
    assert_item(&egret, "mine").await;
    home.assert_nothing_leaks(&egret).await;
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_that_a_crash_of_the_machine_interrupted_trusts_no_former_files() {
    let (home, kept) = interrupted("reset-torn", "reset.swap").await;
    change_row(&home, "UPDATE branch SET boot_id = 'another' WHERE name = 'kept'");
    let thief = Thief::at("start.launch");
    let data = home.directory.join("volume/branches").join(kept.id.hex());
    thief.arm(data.join("global/pg_control"));
    let egret = home.start_with(Some(thief)).await;
    egret.resets_are_over().await;
    egret.stop().await;
    // A clean stop makes nothing whole that a crash has torn.
    let egret = home.start().await;
    assert_needs_reset(&egret).await;
    home.assert_nothing_leaks(&egret).await;
    egret.stop().await;
}

/// Notes that something was cloned.
#[derive(Default)]
struct Clones(AtomicBool);

impl CrashPoints for Clones {
    fn before(&self, step: &'static str) {
        if step == "create.clone" {
            self.0.store(true, Ordering::SeqCst);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_reset_copies_nothing_while_there_is_no_room() {
    let (mut home, kept) = interrupted("reset-room", "reset.swap").await;
    let free_min = home.config.free_min;
    // More than any volume has.
    home.config.free_min = ByteSize::gib(1 << 20);
    let clones = Arc::new(Clones::default());
    let egret = home.start_with(Some(clones.clone())).await;
    let waits = format!("branch={} error=the volume has", kept.id);
    crate::logs::await_seen(&waits).await;
    assert!(!clones.0.load(Ordering::SeqCst));
    assert_resetting(&egret);
    egret.stop().await;
    home.config.free_min = free_min;
    let egret = home.start().await;
    egret.resets_are_over().await;
    assert_item(&egret, "item 1").await;
    home.assert_nothing_leaks(&egret).await;
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_agree_with_the_manifest_where_the_registry_is_lost_after_an_interrupted_reset() {
    let steps = [
        ("reset.swap", "mine"),
        ("reset.record", "mine"),
        ("reset.commit", "mine"),
        ("reset.manifest", "item 1"),
        ("reset.remove", "item 1"),
    ];
    for (step, expected) in steps {
        let purpose = step.replace("reset.", "lost-");
        // To another template, which the manifest must name where the files are its copy.
        let (home, before) = interrupted_in(&purpose, "reset-to", step).await;
        lose_registry(&home);
        for _ in 0..2 {
            let egret = home.start().await;
            let item = egret.ask("kept", ITEM).await.unwrap();
            assert_eq!(item.as_deref(), Some(expected), "{step}");
            let shown = egret.branches.show(DEFAULT_TENANT, &name("kept")).await;
            let template = shown.unwrap().branch.parent.template;
            let is_former = template == before.template.to_string();
            assert_eq!(is_former, expected == "mine", "{step}");
            home.assert_nothing_leaks(&egret).await;
            egret.stop().await;
        }
    }
}

/// Has the registry refuse that the reset of branch `one` is over, once.
struct Refusal {
    state: PathBuf,
    is_armed: AtomicBool,
}

impl CrashPoints for Refusal {
    fn before(&self, step: &'static str) {
        if step == "reset.record" && self.is_armed.swap(false, Ordering::SeqCst) {
            change_schema(
                &self.state,
                "CREATE TRIGGER refusal BEFORE UPDATE ON branch WHEN NEW.state = 'running'
                 AND OLD.state = 'resetting' AND NEW.pid <> OLD.pid
                 BEGIN SELECT RAISE(ABORT, 'refused'); END",
            );
        }
    }
}

pub fn change_schema(state: &std::path::Path, sql: &str) {
    let connection = egret_state::rusqlite::Connection::open(state).unwrap();
    connection.execute_batch(sql).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_that_cannot_be_recorded_leaves_the_branch_as_it_was() {
    let home = Home::new("reset-record");
    let refusal = Arc::new(Refusal {
        state: home.directory.join("state.db"),
        is_armed: AtomicBool::new(true),
    });
    let (egret, _) = start_emptied(&home, refusal).await;
    reset(&egret).await.unwrap_err();
    change_schema(&home.directory.join("state.db"), "DROP TRIGGER refusal");
    assert_eq!(state(&egret).await, BranchState::Running);
    assert_eq!(count(&egret).await, "0");
    reset(&egret).await.unwrap();
    assert_eq!(count(&egret).await, "1000");
    home.assert_nothing_leaks(&egret).await;
    egret.stop().await;
}
