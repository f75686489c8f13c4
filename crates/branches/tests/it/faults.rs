//! Strangers on the volume, a lost registry, stale files, and that nothing is left over.

use egret_base::settings::ConfigDuration;
use egret_base::{CodedError, Kind};
use egret_base_test::{eventually, repetitions};
use egret_branches::model::{
    Branch, BranchSource, BranchState, BranchUpdate, DEFAULT_TENANT, NewBranch,
};

use crate::crashes::{DIRECTORY, SCENE, crash};
use crate::home::{Egret, Home, kill, name};
use crate::pool::brisk;

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_or_corrupt_registry_is_made_again_from_the_manifests() {
    let home = Home::new("registry");
    let egret = home.start().await;
    egret.make_app().await;
    egret.branch("one").await;
    egret.ask("one", "UPDATE item SET name = 'mine' WHERE id = 1").await.unwrap();
    let password = egret.branches.credentials(DEFAULT_TENANT, &name("one")).unwrap().password;
    let state = home.directory.join("state.db");
    egret.stop().await;
    for suffix in ["", "-wal", "-shm"] {
        let path = state.with_file_name(format!("state.db{suffix}"));
        if path.exists() {
            std::fs::remove_file(path).unwrap();
        }
    }
    let egret = home.start().await;
    let mine = egret.ask("one", "SELECT name FROM item WHERE id = 1").await.unwrap();
    assert_eq!(mine.as_deref(), Some("mine"));
    assert_eq!(
        egret.branches.credentials(DEFAULT_TENANT, &name("one")).unwrap().password,
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
    let mine = egret.ask("one", "SELECT name FROM item WHERE id = 1").await.unwrap();
    assert_eq!(mine.as_deref(), Some("mine"));
    egret.assert_consistent().await;
    egret.stop().await;
}

/// A branch that runs may hold files that are not on the disk yet: it must not be taken for one
/// that was stopped.
#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_says_whether_its_branch_runs() {
    let home = Home::new("manifest");
    let egret = home.start().await;
    egret.make_app().await;
    let one = egret.branch("one").await;
    let manifest = format!("volume/branches/{}.json", one.id.hex());
    let manifest = home.directory.join(manifest);
    let read = || -> Branch {
        let text = std::fs::read(&manifest).unwrap();
        serde_json::from_slice(&text).unwrap()
    };
    let name = name("one");
    for _ in 0..2 {
        let suspended = egret.branches.suspend(DEFAULT_TENANT, &name).await;
        suspended.unwrap();
        // A change writes the manifest as well.
        egret.branches.update(DEFAULT_TENANT, &name, &BranchUpdate::default()).unwrap();
        let stopped = read();
        assert_eq!(stopped.state, BranchState::Suspended);
        assert_eq!(stopped.boot_id, None);
        egret.ask("one", "SELECT 1").await.unwrap();
        let running = read();
        assert_eq!(running.state, BranchState::Running);
        assert!(running.boot_id.is_some());
    }
    egret.stop().await;
}

/// What the manifest of a leased branch says is written in a quiet moment, which may never come.
#[tokio::test(flavor = "multi_thread")]
async fn a_leased_branch_is_found_again_without_the_registry() {
    let mut home = brisk("lease-lost");
    home.config.pool_quiet = ConfigDuration::secs(600);
    home.config.pool_patience = ConfigDuration::secs(600);
    assert!(crash(&home, "leased", "none").await);
    let adopted = home.start().await;
    assert_eq!(adopted.ask("new", "SELECT 1").await.unwrap().as_deref(), Some("1"));
    adopted.stop().await;
    for suffix in ["", "-wal", "-shm"] {
        let path = home.directory.join(format!("state.db{suffix}"));
        if path.exists() {
            std::fs::remove_file(path).unwrap();
        }
    }
    let egret = home.start().await;
    let rows = egret.ask("new", "SELECT count(*) FROM item").await;
    assert_eq!(rows.unwrap().as_deref(), Some("1000"));
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
    let found: Vec<&str> = check.findings.iter().map(|finding| finding.which.as_str()).collect();
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
    let pid_file = data.join("branches").join(branch.id.hex()).join("postmaster.pid");
    let recycled = format!(
        "{}\n{}\n1\n5432\n/\n\n0 0\nready   \n",
        std::process::id(),
        pid_file.parent().unwrap().display()
    );
    std::fs::write(&pid_file, recycled).unwrap();
    let socket = home.directory.join("run/branches").join(branch.id.hex());
    std::fs::create_dir_all(&socket).unwrap();
    std::fs::write(socket.join(".s.PGSQL.5432.lock"), "1\n").unwrap();
    let stray = home.directory.join("run/branches").join("01a1fbcff8987329a2194c53a36918bf");
    std::fs::create_dir_all(&stray).unwrap();
    drop(mounted);
    let egret = home.start().await;
    assert_eq!(
        egret.ask("one", "SELECT count(*) FROM item").await.unwrap().as_deref(),
        Some("1000")
    );
    assert!(!stray.exists(), "a socket directory of no branch is removed");
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
        request.from = BranchSource::Head;
        let creating = egret.branches.create(request);
        let killing =
            async { rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap() };
        let (created, ()) = tokio::join!(creating, killing);
        if created.is_ok() {
            assert_eq!(
                egret.ask("late", "SELECT count(*) FROM item").await.unwrap().as_deref(),
                Some("1000")
            );
            egret.destroy("late").await;
        }
        assert_eq!(
            egret.ask("one", "SELECT count(*) FROM item").await.unwrap().as_deref(),
            Some("1000")
        );
        egret.assert_consistent().await;
        // The supervisor brings the source back.
        let source = egret.source.connection("app", "test");
        eventually("the source accepts sessions", async || {
            egret_postgres::pool::connect(&source).await
        })
        .await;
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
    cycle(&home, &egret, 0, repetitions(100)).await;
    egret.stop().await;
}

/// The same with branches of the pool.
#[tokio::test(flavor = "multi_thread")]
async fn child_of_the_pooled_cycle_test() {
    let Ok(directory) = std::env::var(DIRECTORY) else {
        return;
    };
    if std::env::var(SCENE).as_deref() != Ok("pooled-cycle") {
        return;
    }
    let mut home = Home::at(directory.as_ref());
    home.config.pool_quiet = ConfigDuration::ms(1);
    home.config.pool_patience = ConfigDuration::ms(20);
    let egret = home.start().await;
    egret.make_app().await;
    egret.fill(4).await;
    cycle(&home, &egret, 4, repetitions(100)).await;
    egret.stop().await;
}

/// Creates, asks and destroys, again and again, while the pool is to hold `pooled` branches.
async fn cycle(home: &Home, egret: &Egret, pooled: usize, cycles: u32) {
    let cycle = async |number: u32| {
        let branch = format!("b{number}");
        let made = egret.branch(&branch).await;
        egret.ask(&branch, "SELECT 1").await.unwrap();
        egret.destroy(&branch).await;
        u32::from(made.receipt.unwrap().kind == "pooled")
    };
    for number in 0..20 {
        cycle(number).await;
    }
    home.assert_nothing_leaks(egret).await;
    let before = usage();
    let mut leased = 0;
    for number in 20..20 + cycles {
        // As many as the pool holds, then it has its time.
        if pooled > 0 && number % pooled as u32 == 0 {
            egret.filled().await;
        }
        leased += cycle(number).await;
    }
    assert_eq!(leased, if pooled > 0 { cycles } else { 0 });
    home.assert_nothing_leaks(egret).await;
    let after = usage();
    assert!(after.0 <= before.0 + 5, "descriptors grew from {} to {}", before.0, after.0);
    assert!(after.1 <= before.1 + (16 << 10), "memory grew from {} to {} kB", before.1, after.1);
    assert_eq!(egret.pool().hot, pooled);
}

/// Open descriptors, and resident memory in kB.
fn usage() -> (usize, usize) {
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().count();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    (descriptors, line.split_whitespace().nth(1).unwrap().parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn many_cycles_leave_nothing() {
    in_a_process_of_its_own("cycle", "faults::child_of_the_cycle_test").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_pooled_cycles_leave_nothing() {
    in_a_process_of_its_own("pooled-cycle", "faults::child_of_the_pooled_cycle_test").await;
}

async fn in_a_process_of_its_own(scene: &str, test: &str) {
    let home = Home::new(scene);
    let output = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(DIRECTORY, &home.directory)
        .env(SCENE, scene)
        .output()
        .await
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_without_files_says_so_and_can_be_destroyed() {
    let home = Home::new("missing");
    let egret = home.start().await;
    egret.make_app().await;
    let branch = egret.branch("one").await;
    egret.branches.suspend(DEFAULT_TENANT, &name("one")).await.unwrap();
    egret.stop().await;
    let mounted = egret_branches::open_volume(&home.directory, &home.config).unwrap();
    let files = mounted.root.join("branches").join(branch.id.hex());
    egret_linux::subvolume::delete(&files).unwrap();
    let egret = home.start().await;
    let shown = egret.branches.show(DEFAULT_TENANT, &name("one")).await.unwrap();
    assert_eq!(shown.branch.state, BranchState::Failed);
    assert!(shown.branch.failure.unwrap().contains("missing"));
    egret.destroy("one").await;
    egret.assert_consistent().await;
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_backend_costs_sessions_and_nothing_else() {
    let home = Home::new("backend");
    let egret = home.start().await;
    egret.make_app().await;
    let mut request = NewBranch::named(name("one"));
    request.durable = true;
    egret.branches.create(request).await.unwrap();
    egret.ask("one", "UPDATE item SET name = 'kept' WHERE id = 1").await.unwrap();
    let checkpointer = "SELECT pid::text FROM pg_stat_activity WHERE backend_type = 'checkpointer'";
    let pid = egret.ask("one", checkpointer).await.unwrap().unwrap();
    let pid = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    // The postmaster restarts its own children; meanwhile sessions are refused.
    let found = eventually("the branch accepts sessions", async || {
        egret.ask("one", "SELECT name FROM item WHERE id = 1").await
    })
    .await;
    assert_eq!(found.as_deref(), Some("kept"));
    egret.assert_consistent().await;
    egret.stop().await;
}

/// Waits until branch `one` answers; errors until then are retryable.
async fn await_recovery(egret: &Egret) {
    eventually("the branch answers", async || {
        let answer = egret.ask("one", "SELECT 1").await;
        if let Err(error) = &answer {
            assert!(error.retryable(), "{error}");
        }
        answer
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_whose_process_is_killed_is_named_and_the_branch_recovers() {
    let home = Home::new("session-killed");
    let egret = home.start().await;
    egret.make_app().await;
    egret.branch("one").await;
    let killing = async {
        let find = "SELECT pid FROM pg_stat_activity
                    WHERE state = 'active' AND query LIKE 'SELECT pg_sleep%'";
        let pid =
            eventually("the statement runs", async || egret.ask("one", find).await.unwrap()).await;
        kill(pid.parse().unwrap());
    };
    let (slept, ()) = tokio::join!(egret.ask("one", "SELECT pg_sleep(3600)"), killing);
    let error = slept.unwrap_err();
    assert_eq!(error.code(), "branch_session_crashed", "{error}");
    assert!(!error.retryable());
    // A session that the server is about to end may still be used.
    await_recovery(&egret).await;
    egret.assert_consistent().await;
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_whose_server_is_killed_may_be_repeated() {
    let home = Home::new("server-killed");
    let egret = home.start().await;
    egret.make_app().await;
    let (postmaster, _) = egret.branch("one").await.postmaster.unwrap();
    let killing = async {
        let find = "SELECT count(*) FROM pg_stat_activity
                    WHERE state = 'active' AND query LIKE 'SELECT pg_sleep%'";
        eventually("the statement runs", async || {
            egret.ask("one", find).await.unwrap().as_deref() == Some("1")
        })
        .await;
        kill(postmaster);
    };
    let (slept, ()) = tokio::join!(egret.ask("one", "SELECT pg_sleep(3600)"), killing);
    let error = slept.unwrap_err();
    assert_ne!(error.code(), "branch_session_crashed", "{error}");
    assert_eq!(error.kind(), Kind::Unavailable, "{error}");
    assert!(error.retryable(), "{error}");
    await_recovery(&egret).await;
    egret.assert_consistent().await;
    egret.stop().await;
}
