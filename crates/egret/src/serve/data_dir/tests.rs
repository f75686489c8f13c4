//! One Egret a directory, and sockets that fit.

use super::*;

#[test]
fn a_second_egret_on_one_directory_is_refused_by_pid() {
    let directory = tempfile::tempdir().unwrap();
    let first = DataDir::open(directory.path().join("data")).unwrap();
    let error = DataDir::open(directory.path().join("data")).err().unwrap().to_string();
    assert!(error.contains(&format!("pid {}", std::process::id())), "{error}");
    drop(first);
    DataDir::open(directory.path().join("data")).unwrap();
}

#[test]
fn a_directory_too_long_for_sockets_gets_a_shorter_one_for_them() {
    let directory = tempfile::tempdir().unwrap();
    let long = directory.path().join("d".repeat(90));
    match DataDir::open(long.clone()) {
        Ok(home) => {
            let sockets = home.branch_sockets();
            assert!(!sockets.starts_with(&long), "{}", sockets.display());
            fs::remove_dir(sockets.parent().unwrap()).unwrap();
        }
        // An ordinary user without a directory for sockets is told what to change.
        Err(error) => assert!(error.to_string().contains("shorter path"), "{error}"),
    }
}

#[test]
fn a_directory_of_somebody_else_is_not_trusted() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("link");
    std::os::unix::fs::symlink("/", &path).unwrap();
    assert!(create_private_directory(&path).is_err());
}
