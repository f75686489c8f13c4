//! What is written, and what the system is asked to make durable, in which order.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use super::*;

const HOME: &str = "EGRET_BASE_TEST_DURABLE_HOME";

#[test]
fn a_file_is_replaced_as_a_whole_whatever_a_crash_left() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("key");
    write_file(&path, b"first", 0o600).unwrap();
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    fs::write(home.path().join("key.new"), b"hal").unwrap();
    write_file(&path, b"second", 0o600).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"second");
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
}

#[test]
fn directories_are_made_once_and_not_over_files() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("a/b/c");
    create_directory(&path).unwrap();
    create_directory(&path).unwrap();
    assert!(path.is_dir());
    fs::write(home.path().join("file"), b"").unwrap();
    assert!(create_directory(&home.path().join("file/d")).is_err());
}

/// The child of the test below; by itself it works on a directory of its own.
#[test]
fn a_process_that_writes() {
    let own = tempfile::tempdir().unwrap();
    let home = std::env::var_os(HOME).map_or_else(|| own.path().to_owned(), PathBuf::from);
    create_directory(&home.join("a/b")).unwrap();
    create_directory(&home.join("a/b")).unwrap();
    write_file(&home.join("a/b/key"), b"content", 0o600).unwrap();
}

#[test]
fn strace_sees_each_name_made_durable() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path().canonicalize().unwrap();
    let trace = home.join("trace");
    let output = Command::new("strace")
        .args(["-f", "-y", "-e", "trace=/^(mkdir|fsync|rename)", "-o"])
        .arg(&trace)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "durable::tests::a_process_that_writes"])
        .env(HOME, &home)
        .output()
        .expect("strace is installed: run tests/clients/prepare");
    assert!(output.status.success(), "{output:?}");
    let trace = fs::read_to_string(trace).unwrap();
    let place = home.to_str().unwrap();
    let calls: Vec<String> = trace
        .lines()
        .filter(|line| line.contains(place))
        .map(|line| {
            let call = line.split_once(' ').unwrap().1.trim_start();
            let name = call.split_once('(').unwrap().0;
            let after = call.rsplit_once(place).unwrap().1;
            let path = after.split(['"', '>']).next().unwrap();
            format!("{name} .{path}")
        })
        .collect();
    let expected = [
        "mkdir ./a",
        "fsync .",
        "mkdir ./a/b",
        "fsync ./a",
        "fsync ./a",
        "fsync ./a/b/key.new",
        "rename ./a/b/key",
        "fsync ./a/b",
    ];
    assert_eq!(calls, expected);
}
