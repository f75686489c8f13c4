//! Sockets beside links that lead to them.

use std::os::unix::fs::{chown, symlink};
use std::os::unix::net::{UnixListener, UnixStream};

use super::*;

const NAME: &str = "socket";

fn name() -> &'static OsStr {
    OsStr::new(NAME)
}

fn find_error(directory: &Path) -> String {
    let error = SocketPath::find(directory, name()).expect_err("it is refused");
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
    error.to_string()
}

#[test]
fn a_socket_is_reached_whatever_becomes_of_its_name() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(NAME);
    let listener = UnixListener::bind(&path).unwrap();
    let found = SocketPath::find(directory.path(), name()).unwrap();
    std::fs::remove_file(&path).unwrap();
    symlink("/nonexistent", &path).unwrap();
    let connection = UnixStream::connect(found.path()).unwrap();
    found.check_peer(&connection).unwrap();
    drop(listener);
}

#[test]
fn links_and_files_in_the_place_of_a_socket_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let other = directory.path().join("other");
    let _listener = UnixListener::bind(&other).unwrap();
    let path = directory.path().join(NAME);
    symlink(&other, &path).unwrap();
    assert!(find_error(directory.path()).contains("did not create"));
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "").unwrap();
    assert!(find_error(directory.path()).contains("not a socket"));
    std::fs::remove_file(&path).unwrap();
    let missing = SocketPath::find(directory.path(), name()).expect_err("there is none");
    assert_eq!(missing.kind(), io::ErrorKind::NotFound);
}

#[test]
fn only_a_link_of_root_leads_below_the_root_of_a_process() {
    let directory = tempfile::tempdir().unwrap();
    let inner = std::fs::canonicalize(directory.path()).unwrap().join("in");
    std::fs::create_dir(&inner).unwrap();
    let _listener = UnixListener::bind(inner.join(NAME)).unwrap();
    let path = directory.path().join(NAME);
    let root = Path::new("/proc").join(std::process::id().to_string());
    let inside = inner.strip_prefix("/").unwrap();
    symlink(root.join("root").join(inside).join(NAME), &path).unwrap();
    if !rustix::process::geteuid().is_root() {
        find_error(directory.path());
        return;
    }
    let found = SocketPath::find(directory.path(), name()).unwrap();
    let connection = UnixStream::connect(found.path()).unwrap();
    found.check_peer(&connection).unwrap();
    // The server's user replaces the socket there.
    std::fs::rename(inner.join(NAME), inner.join("other")).unwrap();
    symlink(inner.join("other"), inner.join(NAME)).unwrap();
    assert!(find_error(directory.path()).contains("the server's user"));
    // The same link made by that user.
    std::os::unix::fs::lchown(&path, Some(65_534), None).unwrap();
    assert!(find_error(directory.path()).contains("did not create"));
}

#[test]
fn a_process_of_another_user_is_not_taken_for_the_server() {
    if !rustix::process::geteuid().is_root() {
        crate::test_support::not_checked("root alone gives files away");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(NAME);
    let _listener = UnixListener::bind(&path).unwrap();
    chown(&path, Some(65_534), None).unwrap();
    let found = SocketPath::find(directory.path(), name()).unwrap();
    let connection = UnixStream::connect(found.path()).unwrap();
    let error = found.check_peer(&connection).expect_err("it is root's");
    assert!(error.to_string().contains("another user"), "{error}");
}
