//! Crashes at every step, strangers on the volume, a lost registry, and that nothing is left over.
//!
//! A crash is real: the test binary runs itself again as a child, which ends itself with SIGKILL
//! just before the step it is told; the parent then starts an Egret on what is left.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use egret_branches::model::{BranchState, DEFAULT_TENANT, From, NewBranch};
use egret_branches::{Children, Steps};

use crate::home::{Egret, Home, name};

const DIRECTORY: &str = "EGRET_TEST_CRASH_DIRECTORY";
const STEP: &str = "EGRET_TEST_CRASH_STEP";
const SCENE: &str = "EGRET_TEST_CRASH_SCENE";

/// Ends the process when a step is reached, or notes which were.
struct Crash {
    at: Option<String>,
    seen: Mutex<BTreeSet<&'static str>>,
}

impl Steps for Crash {
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
            request.from = From::Head;
            branches.create(request).await.unwrap();
        }
        "nested" => {
            let mut request = NewBranch::named(name("new"));
            request.from = From::Branch(name("kept"));
            branches.create(request).await.unwrap();
        }
        "destroy" => {
            egret.branch("new").await;
            branches
                .destroy(DEFAULT_TENANT, &name("new"), Children::Refuse)
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
        "reset" => {
            branches
                .reset(DEFAULT_TENANT, &name("kept"), None)
                .await
                .unwrap();
        }
        other => panic!("no scene {other}"),
    }
}

/// Runs in the child: starts, plays the scene and dies in it.
#[tokio::test(flavor = "multi_thread")]
async fn child_of_the_crash_tests() {
    let Ok(directory) = std::env::var(DIRECTORY) else {
        return;
    };
    let crash = Crash {
        at: std::env::var(STEP).ok(),
        seen: Mutex::default(),
    };
    let home = Home::at(directory.as_ref());
    let egret = home.start_with(Some(Arc::new(crash))).await;
    let note = home.directory.join("pid");
    play(&egret, &std::env::var(SCENE).unwrap(), &note).await;
    // Reached only when the step was not on the way; then the parent says so.
    egret.stop().await;
}

/// Plays a scene in a child that dies before `step`; returns whether it died.
async fn crash(home: &Home, scene: &str, step: &str) -> bool {
    let status = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "faults::child_of_the_crash_tests", "--nocapture"])
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
    let crash = Arc::new(Crash {
        at: None,
        seen: Mutex::default(),
    });
    let egret = home.start_with(Some(crash.clone())).await;
    if egret
        .branches
        .list(DEFAULT_TENANT)
        .await
        .unwrap()
        .is_empty()
    {
        egret.make_app().await;
        egret.branch("kept").await;
        egret
            .ask("kept", "UPDATE item SET name = 'kept' WHERE id = 1")
            .await
            .unwrap();
    }
    crash.seen.lock().unwrap().clear();
    play(&egret, scene, &home.directory.join("pid")).await;
    let seen = crash.seen.lock().unwrap().clone();
    clear(&egret).await;
    egret.stop().await;
    seen
}

/// Removes what a scene may have made.
async fn clear(egret: &Egret) {
    if egret
        .branches
        .show(DEFAULT_TENANT, &name("new"))
        .await
        .is_ok()
    {
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
            let before = if scene == "reset" {
                "reset.remove"
            } else {
                "start.launch"
            };
            crash(
                &home,
                if scene == "reset" { "reset" } else { "create" },
                before,
            )
            .await;
        }
        assert!(
            crash(&home, scene, step).await,
            "{scene} never reached {step}"
        );
        let egret = home.start().await;
        while egret
            .branches
            .count_by_state()
            .unwrap()
            .contains_key("resetting")
        {
            tokio::task::yield_now().await;
        }
        clear(&egret).await;
        let kept = loop {
            // It may just be starting again.
            if let Ok(kept) = egret
                .ask("kept", "SELECT name FROM item WHERE id = 1")
                .await
            {
                break kept;
            }
        };
        let expected = ["item 1", "kept"];
        assert!(
            expected.contains(&kept.as_deref().unwrap()),
            "{scene} before {step}: {kept:?}"
        );
        let source = egret.source("app").await;
        let rows = source.query_one("SELECT count(*) FROM item WHERE name = 'item ' || id", &[]);
        assert_eq!(
            rows.await.unwrap().get::<_, i64>(0),
            1_000,
            "the source is unchanged"
        );
        drop(source);
        egret.branch("new").await;
        clear(&egret).await;
        egret.stop().await;
    }
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

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_or_corrupt_registry_is_made_again_from_the_manifests() {
    let home = Home::new("registry");
    let egret = home.start().await;
    egret.make_app().await;
    egret.branch("one").await;
    egret
        .ask("one", "UPDATE item SET name = 'mine' WHERE id = 1")
        .await
        .unwrap();
    let password = egret
        .branches
        .credentials(DEFAULT_TENANT, &name("one"))
        .unwrap()
        .password;
    let state = home.directory.join("state.db");
    egret.stop().await;
    for suffix in ["", "-wal", "-shm"] {
        let path = state.with_file_name(format!("state.db{suffix}"));
        if path.exists() {
            std::fs::remove_file(path).unwrap();
        }
    }
    let egret = home.start().await;
    let mine = egret
        .ask("one", "SELECT name FROM item WHERE id = 1")
        .await
        .unwrap();
    assert_eq!(mine.as_deref(), Some("mine"));
    assert_eq!(
        egret
            .branches
            .credentials(DEFAULT_TENANT, &name("one"))
            .unwrap()
            .password,
        password
    );
    egret.assert_consistent().await;
    egret.stop().await;

    for suffix in ["-wal", "-shm"] {
        let path = state.with_file_name(format!("state.db{suffix}"));
        if path.exists() {
            std::fs::remove_file(path).unwrap();
        }
    }
    std::fs::write(&state, "no database").unwrap();
    let aside =
        egret_state::set_aside_if_corrupt(&state, egret_base::Timestamp::from_micros(1)).unwrap();
    assert!(aside.is_some());
    let egret = home.start().await;
    let mine = egret
        .ask("one", "SELECT name FROM item WHERE id = 1")
        .await
        .unwrap();
    assert_eq!(mine.as_deref(), Some("mine"));
    egret.assert_consistent().await;
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_on_the_volume_are_reported_and_left_alone() {
    let home = Home::new("strangers");
    let egret = home.start().await;
    egret.make_app().await;
    egret.branch("one").await;
    let branches = home.directory.join("volume/branches");
    let foreign = branches.join("0".repeat(32));
    std::fs::create_dir(&foreign).unwrap();
    std::fs::write(branches.join("notes.txt"), "mine").unwrap();
    let check = egret.branches.check_registry().await.unwrap();
    let found: Vec<&str> = check
        .findings
        .iter()
        .map(|finding| finding.which.as_str())
        .collect();
    assert!(
        !check.consistent && found.iter().any(|which| which.ends_with("notes.txt")),
        "{found:?}"
    );
    egret.stop().await;
    let egret = home.start().await;
    egret.branch("two").await;
    assert!(foreign.is_dir() && branches.join("notes.txt").is_file());
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stale_pid_socket_and_lock_files_and_recycled_pids_are_seen_through() {
    let home = Home::new("stale");
    let egret = home.start().await;
    egret.make_app().await;
    let branch = egret.branch("one").await;
    egret.stop().await;
    let data = home.directory.join("volume");
    // Opened by hand, since the volume is unmounted after a clean stop.
    let mounted = egret_branches::open_volume(&home.directory, &home.config).unwrap();
    let pid_file = data
        .join("branches")
        .join(branch.id.hex())
        .join("postmaster.pid");
    let recycled = format!(
        "{}\n{}\n1\n5432\n/\n\n0 0\nready   \n",
        std::process::id(),
        pid_file.parent().unwrap().display()
    );
    std::fs::write(&pid_file, recycled).unwrap();
    let socket = home.directory.join("run/branches").join(branch.id.hex());
    std::fs::create_dir_all(&socket).unwrap();
    std::fs::write(socket.join(".s.PGSQL.5432.lock"), "1\n").unwrap();
    let stray = home
        .directory
        .join("run/branches")
        .join("01a1fbcff8987329a2194c53a36918bf");
    std::fs::create_dir_all(&stray).unwrap();
    drop(mounted);
    let egret = home.start().await;
    assert_eq!(
        egret
            .ask("one", "SELECT count(*) FROM item")
            .await
            .unwrap()
            .as_deref(),
        Some("1000")
    );
    assert!(
        !stray.exists(),
        "a socket directory of no branch is removed"
    );
    egret.assert_consistent().await;
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_source_may_crash_while_it_is_copied() {
    let home = Home::new("source-crash");
    let egret = home.start().await;
    egret.make_app().await;
    egret.branch("one").await;
    for _ in 0..3 {
        let file =
            egret_postgres::pidfile::PidFile::read(&home.directory.join("volume/source")).unwrap();
        let pid = rustix::process::Pid::from_raw(file.pid).unwrap();
        let mut request = NewBranch::named(name("late"));
        request.from = From::Head;
        let creating = egret.branches.create(request);
        let killing =
            async { rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap() };
        let (created, ()) = tokio::join!(creating, killing);
        if created.is_ok() {
            assert_eq!(
                egret
                    .ask("late", "SELECT count(*) FROM item")
                    .await
                    .unwrap()
                    .as_deref(),
                Some("1000")
            );
            egret.destroy("late").await;
        }
        assert_eq!(
            egret
                .ask("one", "SELECT count(*) FROM item")
                .await
                .unwrap()
                .as_deref(),
            Some("1000")
        );
        egret.assert_consistent().await;
        // The supervisor brings the source back.
        while egret_postgres::pool::connect(&egret.source.connection("app", "test"))
            .await
            .is_err()
        {
            tokio::task::yield_now().await;
        }
    }
    egret.stop().await;
}

/// Open descriptors of this process that are not other tests' is not a thing; so the count is taken
/// in a process of its own.
#[tokio::test(flavor = "multi_thread")]
async fn child_of_the_cycle_test() {
    let Ok(directory) = std::env::var(DIRECTORY) else {
        return;
    };
    if std::env::var(SCENE).as_deref() != Ok("cycle") {
        return;
    }
    let home = Home::at(directory.as_ref());
    let egret = home.start().await;
    egret.make_app().await;
    let cycle = async |number: u32| {
        let branch = format!("b{number}");
        egret.branch(&branch).await;
        egret.ask(&branch, "SELECT 1").await.unwrap();
        egret.destroy(&branch).await;
    };
    for number in 0..20 {
        cycle(number).await;
    }
    egret.assert_consistent().await;
    let before = usage();
    for number in 20..120 {
        cycle(number).await;
    }
    egret.assert_consistent().await;
    let after = usage();
    assert!(
        after.0 <= before.0 + 5,
        "descriptors grew from {} to {}",
        before.0,
        after.0
    );
    assert!(
        after.1 <= before.1 + (16 << 10),
        "memory grew from {} to {} kB",
        before.1,
        after.1
    );
    let kept = std::fs::read_dir(home.directory.join("volume/branches"))
        .unwrap()
        .count();
    let sockets = std::fs::read_dir(home.directory.join("run/branches"))
        .unwrap()
        .count();
    assert_eq!((kept, sockets), (0, 0), "files are left over");
    egret.stop().await;
}

/// Open descriptors, and resident memory in kB.
fn usage() -> (usize, usize) {
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().count();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    (
        descriptors,
        line.split_whitespace().nth(1).unwrap().parse().unwrap(),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_cycles_leave_nothing() {
    let home = Home::new("cycle");
    let output = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "faults::child_of_the_cycle_test", "--nocapture"])
        .env(DIRECTORY, &home.directory)
        .env(SCENE, "cycle")
        .output()
        .await
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_without_files_says_so_and_can_be_destroyed() {
    let home = Home::new("missing");
    let egret = home.start().await;
    egret.make_app().await;
    let branch = egret.branch("one").await;
    egret
        .branches
        .suspend(DEFAULT_TENANT, &name("one"))
        .await
        .unwrap();
    egret.stop().await;
    let mounted = egret_branches::open_volume(&home.directory, &home.config).unwrap();
    let files = mounted.root.join("branches").join(branch.id.hex());
    egret_linux::subvolume::delete(&files).unwrap();
    let egret = home.start().await;
    let shown = egret
        .branches
        .show(DEFAULT_TENANT, &name("one"))
        .await
        .unwrap();
    assert_eq!(shown.branch.state, BranchState::Failed);
    assert!(shown.branch.failure.unwrap().contains("missing"));
    egret.destroy("one").await;
    egret.assert_consistent().await;
    egret.stop().await;
}
