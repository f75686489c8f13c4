//! What tests of this crate share.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::cgroup::ControlGroup;

/// Set in a test that runs again as an unprivileged user.
const UNPRIVILEGED: &str = "EGRET_TEST_UNPRIVILEGED";

/// The overflow user and group id, which owns nothing on most systems.
const NOBODY: u32 = 65_534;

/// Reports that a test skips its check, past the capture of the output of tests that pass.
pub fn not_checked(reason: impl std::fmt::Display) {
    // Without standard error there is no reader.
    let _ = std::io::stderr().write_all(format!("NOT CHECKED: {reason}\n").as_bytes());
}

/// A new group below the one of this process; `None`, which is said, where none can be made.
pub(crate) fn new_group(name: &str) -> Option<ControlGroup> {
    let made = ControlGroup::own().and_then(|own| {
        let group = own.child(&format!("egret-test-{name}-{}", std::process::id()));
        group.create().map_err(|error| error.to_string())?;
        Ok(group)
    });
    made.inspect_err(|reason| {
        not_checked(format_args!("no control group can be made here: {reason}"))
    })
    .ok()
}

/// Whether this process is not root. As root, the test of this name is run again, as another user.
pub fn is_unprivileged(test: &str) -> bool {
    if !rustix::process::geteuid().is_root() {
        return true;
    }
    assert!(std::env::var(UNPRIVILEGED).is_err(), "root is left");
    let ran = Command::new(std::env::current_exe().expect("a program"))
        .args(["--exact", test, "--nocapture"])
        .env(UNPRIVILEGED, "1")
        .uid(NOBODY)
        .gid(NOBODY)
        .output();
    match ran {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{said}{errors}");
            assert!(said.contains("1 passed"), "{said}{errors}");
        }
        Err(error) => not_checked(format_args!("another user cannot run the test: {error}")),
    }
    false
}
