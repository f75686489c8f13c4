//! Control groups and users of branches. What the machine does not offer is said and not checked.

use std::path::PathBuf;

use egret_base::{CodedError, Kind};
use egret_base_test::eventually;
use egret_branches::BranchesError;
use egret_branches::model::{BranchState, DEFAULT_TENANT, NewBranch};

use crate::home::{Egret, Home, name};

/// The control group of a process below the mounted hierarchy of version 2.
fn group_of(pid: i32) -> PathBuf {
    let membership = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let group = membership.lines().find_map(|line| line.strip_prefix("0::"));
    PathBuf::from(group.unwrap_or_default())
}

/// Where that group's directory is, by what Egret says of its limits.
fn groups_of(egret: &Egret) -> Option<PathBuf> {
    let limits = egret.branches.volume().unwrap().limits;
    let Some(rest) = limits.strip_prefix("control groups in ") else {
        use std::io::Write;
        std::io::stderr().write_all(format!("NOT CHECKED: {limits}\n").as_bytes()).unwrap();
        return None;
    };
    let (path, _) = rest.split_once(": ").unwrap();
    Some(path.into())
}

fn names(directory: &PathBuf) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return Vec::new();
    };
    let entries = entries.map(Result::unwrap);
    let directories = entries.filter(|entry| entry.file_type().unwrap().is_dir());
    let names = directories.map(|entry| entry.file_name().into_string().unwrap());
    names.collect()
}

/// Waits until only one group is left, that of the branch with this id.
async fn until_left(groups: &PathBuf, id: &str) {
    eventually("one control group is left", async || {
        let names = names(groups);
        if let [left] = &names[..] {
            assert!(left.starts_with(id), "{names:?}");
            Ok(())
        } else {
            Err(names)
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_of_a_branch_is_in_a_group_of_its_own() {
    let home = Home::new("group");
    let egret = home.start().await;
    egret.make_app().await;
    let (one, two) = (egret.branch("one").await, egret.branch("two").await);
    let Some(groups) = groups_of(&egret) else {
        return egret.stop().await;
    };
    let pid = one.postmaster.unwrap().0;
    let group = group_of(pid);
    let own = group.file_name().unwrap().to_str().unwrap();
    assert!(own.starts_with(&one.id.hex()), "{}", group.display());
    // All of its processes, and neither those of the other branch nor the template's builder, which
    // has ended.
    let members = std::fs::read_to_string(groups.join(own).join("cgroup.procs")).unwrap();
    let mut members: Vec<i32> = members.lines().map(|line| line.parse().unwrap()).collect();
    let data = home.directory.join("volume/branches").join(one.id.hex());
    let mut processes = egret_postgres::postmaster::pids_in_directory(&data);
    members.sort_unstable();
    processes.sort_unstable();
    assert!(members.contains(&pid) && members.len() > 1, "{members:?}");
    assert_eq!(members, processes);
    assert_ne!(group, group_of(two.postmaster.unwrap().0));
    assert_eq!(names(&groups).len(), 2);
    assert_ne!(group_of(std::process::id().cast_signed()), group);
    let suspended = egret.branches.suspend(DEFAULT_TENANT, &name("one")).await;
    assert_eq!(suspended.unwrap().state, BranchState::Suspended);
    until_left(&groups, &two.id.hex()).await;
    egret.ask("one", "SELECT 1").await.unwrap();
    assert_eq!(names(&groups).len(), 2);
    egret.destroy("two").await;
    until_left(&groups, &one.id.hex()).await;
    egret.stop().await;
    assert!(!groups.exists(), "{:?}", names(&groups));
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_that_are_missing_are_refused_where_they_are_required() {
    let mut home = Home::new("groups");
    home.config.cgroup = "all of them".to_owned();
    let refused = home.try_start().await.err().expect("no such value");
    assert!(refused.contains("use auto, full or off"), "{refused}");
    home.config.cgroup = "full".to_owned();
    match home.try_start().await {
        Ok(egret) => {
            let limits = egret.branches.volume().unwrap().limits;
            assert!(!limits.contains("NOT bounded"), "{limits}");
            egret.stop().await;
        }
        Err(refused) => assert!(refused.contains("branches.cgroup is full"), "{refused}"),
    }
    home.config.cgroup = "off".to_owned();
    let egret = home.start().await;
    assert_eq!(groups_of(&egret), None);
    egret.make_app().await;
    let one = egret.branch("one").await;
    let own = group_of(std::process::id().cast_signed());
    assert_eq!(group_of(one.postmaster.unwrap().0), own);
    egret.stop().await;
}

/// Attempts until a server can be started: what the last one had is given back a moment later.
async fn until_room<T>(attempt: impl AsyncFn() -> Result<T, BranchesError>) -> T {
    eventually("a server has room", async || match attempt().await {
        Err(error) if error.code() == "branch_servers_full" => Err(error),
        result => Ok(result.unwrap()),
    })
    .await
}

/// An Egret that has one user id for servers, which no other test takes: a multiple of the usual
/// count above the usual ones. A branch is suspended with content of its own, and another one has
/// that id.
async fn full_of_servers(home: &mut Home, multiple: u32, superuser: bool) -> Egret {
    home.config.uid_base += multiple * home.config.uid_count;
    home.config.uid_count = 1;
    let egret = home.start().await;
    egret.make_app().await;
    let create = async |wanted: &str| {
        let request = NewBranch { superuser, ..NewBranch::named(name(wanted)) };
        egret.branches.create(request).await.map(drop)
    };
    until_room(async || create("first").await).await;
    egret.ask("first", "DELETE FROM item").await.unwrap();
    let suspended = egret.branches.suspend(DEFAULT_TENANT, &name("first")).await;
    suspended.unwrap();
    until_room(async || create("second").await).await;
    egret
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_without_room_for_its_server_stays_suspended_and_is_woken_later() {
    let mut home = Home::new("servers-full");
    let egret = full_of_servers(&mut home, 1, false).await;
    match egret.ask("first", "SELECT 1").await {
        // Where servers share the source's user there is room for both.
        Ok(_) => {
            let isolation = egret.branches.volume().unwrap().isolation;
            assert!(isolation.contains("the source's"), "{isolation}");
        }
        Err(refused) => {
            assert_eq!(refused.code(), "branch_servers_full", "{refused}");
            assert_eq!(refused.kind(), Kind::Unavailable);
            let shown = egret.branches.show(DEFAULT_TENANT, &name("first")).await;
            let branch = shown.unwrap().branch;
            assert_eq!(branch.state, BranchState::Suspended);
            assert_eq!(branch.failure, None);
        }
    }
    egret.destroy("second").await;
    let answer = until_room(async || egret.ask("first", "SELECT 1").await).await;
    assert_eq!(answer.as_deref(), Some("1"));
    egret.assert_consistent().await;
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_without_room_for_the_server_leaves_the_branch_as_it_was() {
    for (multiple, superuser) in [(2, false), (3, true)] {
        let mut home = Home::new(&format!("reset-full-{superuser}"));
        let egret = full_of_servers(&mut home, multiple, superuser).await;
        // Where servers share the source's user there is room for both.
        let reset = egret.branches.reset(DEFAULT_TENANT, &name("first"), None).await;
        let isolation = egret.branches.volume().unwrap().isolation;
        let are_shared = isolation.contains("the source's");
        assert_eq!(reset.is_ok(), are_shared, "{isolation}");
        let mut rows = "1000";
        if let Err(refused) = reset {
            assert_eq!(refused.code(), "branch_servers_full", "{refused}");
            let shown = egret.branches.show(DEFAULT_TENANT, &name("first")).await;
            let branch = shown.unwrap().branch;
            assert_eq!(branch.state, BranchState::Suspended);
            assert_eq!(branch.failure, None);
            rows = "0";
        }
        egret.destroy("second").await;
        let count = "SELECT count(*) FROM item";
        let answer = until_room(async || egret.ask("first", count).await).await;
        assert_eq!(answer.as_deref(), Some(rows));
        egret.assert_consistent().await;
        egret.stop().await;
    }
}
