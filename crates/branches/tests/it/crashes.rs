//! A crash of Egret before every step of what it does.
//!
//! A crash is real: the test binary runs itself again as a child, which ends itself with SIGKILL
//! just before the step it is told; the parent then starts an Egret on what is left.

use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use egret_base::settings::ConfigDuration;
use egret_base::{Entropy, SeededEntropy};
use egret_base_test::eventually;
use egret_branches::model::{BranchSource, DEFAULT_TENANT, NewBranch};
use egret_branches::{Children, CrashPoints};

use crate::home::{Egret, Home, name};

/// Names the directory of a child.
pub const DIRECTORY: &str = "EGRET_TEST_CRASH_DIRECTORY";
const STEP: &str = "EGRET_TEST_CRASH_STEP";
/// Names what a child does.
pub const SCENE: &str = "EGRET_TEST_CRASH_SCENE";

/// Ends the process when a step is reached, or notes which were.
struct Crash {
    at: Option<String>,
    seen: Mutex<BTreeSet<&'static str>>,
}

impl CrashPoints for Crash {
    fn before(&self, step: &'static str) {
        self.seen.lock().unwrap().insert(step);
        if self.at.as_deref() == Some(step) {
            end();
        }
    }
}

/// Ends this process as kill -9 does.
fn end() {
    let own = rustix::process::getpid();
    rustix::process::kill_process(own, rustix::process::Signal::KILL).unwrap();
}

/// The pid of a process that every postmaster keeps for as long as it lives.
const CHECKPOINTER: &str =
    "SELECT pid::text FROM pg_stat_activity WHERE backend_type = 'checkpointer'";

/// What is done while a crash may come; by then branch `kept` exists.
async fn play(egret: &Egret, scene: &str, pid_note: &Path) {
    let branches = &egret.branches;
    match scene {
        "create" => {
            egret.branch("new").await;
        }
        "head" => {
            let mut request = NewBranch::named(name("new"));
            request.from = BranchSource::Head;
            branches.create(request).await.unwrap();
        }
        "nested" => {
            let mut request = NewBranch::named(name("new"));
            request.from = BranchSource::Branch(name("kept"));
            branches.create(request).await.unwrap();
        }
        "destroy" => {
            egret.branch("new").await;
            branches
                .destroy(DEFAULT_TENANT, &name("new"), Children::Refuse, |_| true)
                .await
                .unwrap();
            egret.assert_consistent().await;
        }
        "populate" => {
            egret.make_app().await;
            for number in 0..4 {
                egret.branch(&format!("b{number}")).await;
                let sql = format!("UPDATE item SET name = 'changed' WHERE id <= {number}");
                egret.ask(&format!("b{number}"), &sql).await.unwrap();
            }
            let pid = egret.ask("b1", CHECKPOINTER).await.unwrap().unwrap();
            std::fs::write(pid_note, pid).unwrap();
            end();
        }
        "refill" => {
            egret.fill(2).await;
        }
        "lease" => {
            egret.fill(1).await;
            egret.branch("new").await;
        }
        "retire" => {
            egret.fill(2).await;
            egret.fill(0).await;
            egret.assert_consistent().await;
        }
        "leased" => {
            egret.make_app().await;
            egret.fill(1).await;
            egret.branch("new").await;
            end();
        }
        "reset" => {
            branches.reset(DEFAULT_TENANT, &name("kept"), None).await.unwrap();
        }
        "reset-to" => {
            let template = branches.refresh_template().await.unwrap();
            branches.reset(DEFAULT_TENANT, &name("kept"), Some(template.id)).await.unwrap();
        }
        "wake" => egret.resume("kept").await,
        other => panic!("no scene {other}"),
    }
}

/// Ends the process before the step that is taken when the count is down, once it is armed.
struct Countdown {
    armed: AtomicBool,
    left: AtomicU32,
}

impl CrashPoints for Countdown {
    fn before(&self, _: &'static str) {
        if self.armed.load(Ordering::SeqCst) && self.left.fetch_sub(1, Ordering::SeqCst) == 0 {
            end();
        }
    }
}

/// Names the number of steps after which the child of the storm ends itself.
const STORM: &str = "EGRET_TEST_CRASH_STORM";

/// How many branches the pool of the storm holds.
const STORM_POOL: u32 = 3;

fn storm_home(directory: &Path) -> Home {
    let mut home = Home::at(directory);
    home.config.pool_quiet = ConfigDuration::ms(5);
    home.config.pool_patience = ConfigDuration::ms(20);
    home
}

/// Runs in the child: checks what the crash before left, then leases and destroys until it dies
/// of a step; of an even number of steps they are counted from the start on, recovery included.
#[tokio::test(flavor = "multi_thread")]
async fn child_of_the_storm() {
    let (Ok(directory), Ok(steps)) = (std::env::var(DIRECTORY), std::env::var(STORM)) else {
        return;
    };
    let steps: u32 = steps.parse().unwrap();
    let countdown = Arc::new(Countdown {
        armed: AtomicBool::new(steps.is_multiple_of(2)),
        left: AtomicU32::new(steps),
    });
    let home = storm_home(directory.as_ref());
    let egret = home.start_with(Some(countdown.clone())).await;
    assert_whole(&home, &egret).await;
    countdown.armed.store(true, Ordering::SeqCst);
    for number in 0.. {
        let branch = format!("b{number}");
        egret.branch(&branch).await;
        if number >= 2 {
            egret.destroy(&format!("b{}", number - 2)).await;
        }
    }
}

/// The pool is at its target, nothing is left over, and every branch that is there works.
async fn assert_whole(home: &Home, egret: &Egret) {
    let pool = egret.filled().await;
    assert_eq!((pool.target, pool.hot), (STORM_POOL, STORM_POOL as usize));
    home.assert_nothing_leaks(egret).await;
    for view in egret.branches.list(DEFAULT_TENANT, |_| true).await.unwrap() {
        let branch = view.branch.name;
        let rows = egret.ask(&branch, "SELECT count(*) FROM item").await;
        assert_eq!(rows.unwrap().as_deref(), Some("1000"), "{branch}");
        egret.destroy(&branch).await;
    }
    home.assert_nothing_leaks(egret).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_crashes_in_mid_refill_and_mid_lease_leave_nothing() {
    let seed = u64::from(std::process::id());
    println!("seed {seed}");
    let entropy = SeededEntropy::new(seed);
    let home = Home::new("storm");
    let egret = storm_home(&home.directory).start().await;
    egret.make_app().await;
    egret.fill(STORM_POOL).await;
    egret.stop().await;
    for round in 0..50 {
        let steps = u32::from(entropy.ten_bytes()[0]) % 48;
        let child = tokio::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crashes::child_of_the_storm", "--nocapture"])
            .env(DIRECTORY, &home.directory)
            .env(STORM, steps.to_string())
            .output();
        let output = child.await.unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            output.status.signal(),
            Some(9),
            "seed {seed}, round {round}, {steps} steps: {text}"
        );
    }
    let egret = storm_home(&home.directory).start().await;
    assert_whole(&home, &egret).await;
    let source = egret.source("app").await;
    let rows = source.query_one("SELECT count(*) FROM item", &[]);
    assert_eq!(rows.await.unwrap().get::<_, i64>(0), 1_000);
    drop(source);
    egret.fill(0).await;
    home.assert_nothing_leaks(&egret).await;
    egret.stop().await;
}

/// Runs in the child: starts, plays the scene and dies in it.
#[tokio::test(flavor = "multi_thread")]
async fn child_of_the_crash_tests() {
    let Ok(directory) = std::env::var(DIRECTORY) else {
        return;
    };
    let crash = Crash { at: std::env::var(STEP).ok(), seen: Mutex::default() };
    let mut home = Home::at(directory.as_ref());
    if std::env::var(SCENE).as_deref() == Ok("leased") {
        // What waits for a quiet moment is not done before the end.
        home.config.pool_quiet = ConfigDuration::secs(600);
        home.config.pool_patience = ConfigDuration::secs(600);
    }
    let egret = home.start_with(Some(Arc::new(crash))).await;
    let note = home.directory.join("pid");
    play(&egret, &std::env::var(SCENE).unwrap(), &note).await;
    // Reached only when the step was not on the way; then the parent says so.
    egret.stop().await;
}

/// Plays a scene in a child that dies before `step`; returns whether it died.
pub async fn crash(home: &Home, scene: &str, step: &str) -> bool {
    let status = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crashes::child_of_the_crash_tests", "--nocapture"])
        .env(DIRECTORY, &home.directory)
        .env(SCENE, scene)
        .env(STEP, step)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .await
        .unwrap();
    !status.success()
}

/// Every step of a scene, seen by playing it once without a crash.
async fn steps_of(home: &Home, scene: &str) -> BTreeSet<&'static str> {
    let crash = Arc::new(Crash { at: None, seen: Mutex::default() });
    let egret = home.start_with(Some(crash.clone())).await;
    if egret.branches.list(DEFAULT_TENANT, |_| true).await.unwrap().is_empty() {
        egret.make_app().await;
        egret.branch("kept").await;
        egret.ask("kept", "UPDATE item SET name = 'kept' WHERE id = 1").await.unwrap();
    }
    crash.seen.lock().unwrap().clear();
    play(&egret, scene, &home.directory.join("pid")).await;
    let mut seen = crash.seen.lock().unwrap().clone();
    if scene == "lease" {
        // The refill that follows is a scene of its own, of which more or less is seen here.
        seen.retain(|step| step.starts_with("lease."));
    }
    clear(&egret).await;
    // Every crash finds an empty pool.
    egret.fill(0).await;
    egret.stop().await;
    seen
}

/// Removes what a scene may have made.
async fn clear(egret: &Egret) {
    if egret.branches.show(DEFAULT_TENANT, &name("new")).await.is_ok() {
        egret.destroy("new").await;
    }
    egret.assert_consistent().await;
}

async fn survives_a_crash_before_every_step_of(scene: &str) {
    let home = Home::new(&format!("crash-{scene}"));
    let mut steps = steps_of(&home, scene).await;
    assert!(!steps.is_empty());
    // A crash during recovery comes on top of one that left something to recover.
    steps.insert("recover.repair");
    for step in steps {
        if step == "recover.repair" {
            let before = if scene == "reset" { "reset.remove" } else { "start.launch" };
            crash(&home, if scene == "reset" { "reset" } else { "create" }, before).await;
        }
        assert!(crash(&home, scene, step).await, "{scene} never reached {step}");
        let egret = home.start().await;
        egret.resets_are_over().await;
        clear(&egret).await;
        // It may just be starting again.
        let kept = eventually("the branch accepts sessions", async || {
            egret.ask("kept", "SELECT name FROM item WHERE id = 1").await
        })
        .await;
        let expected = ["item 1", "kept"];
        assert!(expected.contains(&kept.as_deref().unwrap()), "{scene} before {step}: {kept:?}");
        let source = egret.source("app").await;
        let rows = source.query_one("SELECT count(*) FROM item WHERE name = 'item ' || id", &[]);
        assert_eq!(rows.await.unwrap().get::<_, i64>(0), 1_000, "the source is unchanged");
        drop(source);
        egret.branch("new").await;
        clear(&egret).await;
        home.assert_nothing_leaks(&egret).await;
        egret.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refill_survives_a_crash_before_every_step() {
    survives_a_crash_before_every_step_of("refill").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_survives_a_crash_before_every_step() {
    survives_a_crash_before_every_step_of("lease").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn throwing_a_pool_away_survives_a_crash_before_every_step() {
    survives_a_crash_before_every_step_of("retire").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn create_survives_a_crash_before_every_step() {
    survives_a_crash_before_every_step_of("create").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn create_from_head_survives_a_crash_before_every_step() {
    survives_a_crash_before_every_step_of("head").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn create_from_a_branch_survives_a_crash_before_every_step() {
    survives_a_crash_before_every_step_of("nested").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn destroy_survives_a_crash_before_every_step() {
    survives_a_crash_before_every_step_of("destroy").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reset_survives_a_crash_before_every_step() {
    survives_a_crash_before_every_step_of("reset").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn branches_outlive_a_crash_of_egret_and_a_clean_stop() {
    let home = Home::new("outlive");
    assert!(crash(&home, "populate", "none").await);
    let pid = std::fs::read_to_string(home.directory.join("pid")).unwrap();
    let egret = home.start().await;
    let same = egret.ask("b1", CHECKPOINTER).await.unwrap();
    assert_eq!(same, Some(pid), "the running postmaster was taken over");
    egret.assert_consistent().await;
    egret.stop().await;

    let egret = home.start().await;
    for number in 0..4 {
        let sql = "SELECT count(*) FROM item WHERE name = 'changed'";
        let changed = egret.ask(&format!("b{number}"), sql).await;
        assert_eq!(changed.unwrap(), Some(number.to_string()));
    }
    egret.assert_consistent().await;
    egret.stop().await;
}
