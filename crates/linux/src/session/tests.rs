//! The child really leads its own session.

use std::process::{Command, Stdio};

use super::*;

#[test]
fn the_child_leads_its_own_session() {
    let mut command = Command::new("cat");
    command.arg("/proc/self/stat").stdout(Stdio::piped());
    let child = in_own_session(&mut command).spawn().unwrap();
    let pid = child.id().to_string();
    let output = child.wait_with_output().unwrap();
    let stat = String::from_utf8(output.stdout).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    // After the command name: state, ppid, pgrp, session (proc_pid_stat(5)).
    assert_eq!((fields[2], fields[3]), (pid.as_str(), pid.as_str()));
}
