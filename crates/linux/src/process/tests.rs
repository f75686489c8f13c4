//! Working directories of processes of this and of another user.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use super::working_directory;

/// A user without an account.
const OTHER: u32 = 61_234;

#[test]
fn a_process_of_another_user_is_seen_without_the_capability_to_trace_it() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new("cat");
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        command.uid(OTHER).gid(OTHER);
    }
    // Of a directory that is open to all: the child changes into it as the other user.
    let place = std::fs::canonicalize("/").unwrap();
    let mut child = command.current_dir(&place).spawn().unwrap();
    let pid = i32::try_from(child.id()).unwrap();
    let looked = std::thread::spawn(move || {
        if is_root {
            let mut sets = capabilities(None).unwrap();
            sets.effective.remove(CapabilitySet::SYS_PTRACE);
            set_capabilities(None, sets).unwrap();
            std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap_err();
        }
        let found = working_directory(pid);
        // The credentials are root's again: what belongs to root alone can be changed.
        let file = directory.path().join("own");
        std::fs::write(file, "x").unwrap();
        found
    });
    let found = looked.join().unwrap().unwrap();
    drop(child.stdin.take());
    child.wait().unwrap();
    assert_eq!(found, place);
}

#[test]
fn a_process_that_does_not_exist_has_none() {
    let mut child = Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    let pid = i32::try_from(child.id()).unwrap();
    assert!(working_directory(pid).is_err());
}
