//! Finding the own group, and the life of one below it.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use super::*;
use crate::test_support::new_group;

const V2: &str = "31 23 0:28 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";

fn locate_path(membership: &str, mounts: &str) -> Result<String, String> {
    locate(membership, mounts).map(|path| path.display().to_string())
}

#[test]
fn the_own_group_is_found_below_the_mounted_hierarchy() {
    let found = locate_path("0::/system.slice/egret.service\n", V2);
    assert_eq!(found.unwrap(), "/sys/fs/cgroup/system.slice/egret.service");
    assert_eq!(locate_path("0::/\n", V2).unwrap(), "/sys/fs/cgroup");
}

#[test]
fn version_1_beside_it_is_passed_over() {
    let membership = "5:memory:/process\n1:cpu:/\n0::/box\n";
    let mounts = "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                  41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
    let found = locate_path(membership, mounts);
    assert_eq!(found.unwrap(), "/sys/fs/cgroup/unified/box");
}

#[test]
fn a_mount_of_a_part_of_the_hierarchy_shows_what_is_below_that_part() {
    let part = "31 23 0:28 /docker/one /mnt/with\\040blank rw - cgroup2 cgroup rw\n";
    let found = locate_path("0::/docker/one/child\n", part);
    assert_eq!(found.unwrap(), "/mnt/with blank/child");
    let refused = locate_path("0::/docker/other\n", part).unwrap_err();
    assert!(refused.contains("/docker/other"), "{refused}");
}

#[test]
fn a_group_that_cannot_be_seen_is_named() {
    let outside = locate_path("0::/../other\n", V2).unwrap_err();
    assert!(outside.contains("/../other"), "{outside}");
    let no_mount = locate_path("0::/\n", "").unwrap_err();
    assert!(no_mount.contains("no hierarchy"), "{no_mount}");
    let no_kernel = locate_path("1:cpu:/\n", V2).unwrap_err();
    assert!(no_kernel.contains("version 2"), "{no_kernel}");
}

#[test]
fn counts_are_read_by_their_whole_key() {
    let events = "low 0\noom 7\noom_kill 3\noom_group_kill 1\n";
    assert_eq!(value_of(events, "oom_kill"), Some(3));
    assert_eq!(value_of(events, "oom_k"), None);
}

#[test]
#[should_panic(expected = "a name of letters")]
fn a_name_with_a_dot_is_none() {
    let group = ControlGroup { path: "/sys/fs/cgroup".into() };
    drop(group.child("memory.max"));
}

/// A shell in a group that has a child of its own and says when both are there.
fn shell_in(group: &ControlGroup) -> std::process::Child {
    let entrance = group.open_entrance().expect("a group that takes processes in");
    let mut command = Command::new("/bin/sh");
    command
        .args(["-c", "exec 3<&0; cat <&3 & echo; wait"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    #[expect(unsafe_code, reason = "pre_exec is the only way to act in the child")]
    // SAFETY: one bare system call, see `Entrance::enter`.
    unsafe {
        command.pre_exec(move || entrance.enter());
    }
    let mut child = command.spawn().expect("a shell");
    let stdout = child.stdout.as_mut().expect("a pipe");
    io::Read::read_exact(stdout, &mut [0]).expect("a shell that runs");
    child
}

#[test]
fn a_group_is_entered_before_exec_killed_as_a_whole_and_removed() {
    let Some(group) = new_group("life") else {
        return;
    };
    assert!(!group.create().expect("it exists"), "it is not new any more");
    assert!(!group.is_populated().expect("a group"));
    assert!(group.open_entrance().expect("a group").try_enter().is_ok());
    let mut child = shell_in(&group);
    let pid = child.id().cast_signed();
    assert_eq!(ControlGroup::of_process(pid).as_ref(), Ok(&group));
    let inside = group.processes().expect("a group");
    assert!(inside.contains(&pid) && inside.len() == 2, "{inside:?}");
    let own = std::process::id().cast_signed();
    assert!(inside.iter().all(|pid| ancestry(*pid).any(|above| above == own)));
    assert_eq!(ancestry(1).collect::<Vec<_>>(), vec![1]);
    assert!(group.remove().is_err(), "it has processes");
    assert!(!group.await_empty(Duration::ZERO).expect("a group"));
    group.kill_and_remove(Duration::from_secs(60)).expect("it ends");
    assert!(!group.path().exists());
    let status = child.wait().expect("a child");
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGKILL));
    group.kill_and_remove(Duration::ZERO).expect("what is gone has ended");
}

#[test]
fn a_group_ends_with_those_below_it() {
    let Some(group) = new_group("tree") else {
        return;
    };
    let below = group.child("below");
    below.create().expect("a group below");
    assert_eq!(below.parent().as_ref(), Some(&group));
    assert_eq!(group.children().expect("a group"), vec![below.clone()]);
    let mut child = shell_in(&below);
    assert!(group.is_populated().expect("a group"));
    // As a kernel before 5.14 has it done.
    below.kill_one_by_one().expect("processes that end");
    assert!(below.await_empty(Duration::from_secs(60)).expect("a group"));
    child.wait().expect("a child");
    group.kill_and_remove(Duration::ZERO).expect("it ends");
    assert!(!group.path().exists());
}

#[test]
fn a_group_is_locked_by_one_at_a_time() {
    let Some(group) = new_group("lock") else {
        return;
    };
    let held = group.lock().expect("a group").expect("the lock is free");
    assert!(group.lock().expect("a group").is_none());
    drop(held);
    group.remove().expect("an empty group");
    assert!(group.lock().is_err(), "there is none");
}
