//! Strangers on the volume, a lost registry, stale files, and that nothing is left over.

use egret_branches::model::{BranchState, DEFAULT_TENANT, From, NewBranch};

use crate::crashes::{DIRECTORY, SCENE};
use crate::home::{Home, name};

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
    for number in 20..1_020 {
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
async fn a_thousand_cycles_leave_nothing() {
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

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_backend_costs_sessions_and_nothing_else() {
    let home = Home::new("backend");
    let egret = home.start().await;
    egret.make_app().await;
    let mut request = NewBranch::named(name("one"));
    request.durable = true;
    egret.branches.create(request).await.unwrap();
    egret
        .ask("one", "UPDATE item SET name = 'kept' WHERE id = 1")
        .await
        .unwrap();
    let checkpointer = "SELECT pid::text FROM pg_stat_activity WHERE backend_type = 'checkpointer'";
    let pid = egret.ask("one", checkpointer).await.unwrap().unwrap();
    let pid = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    // The postmaster restarts its own children; meanwhile sessions are refused.
    let found = loop {
        if let Ok(found) = egret.ask("one", "SELECT name FROM item WHERE id = 1").await {
            break found;
        }
    };
    assert_eq!(found.as_deref(), Some("kept"));
    egret.assert_consistent().await;
    egret.stop().await;
}
