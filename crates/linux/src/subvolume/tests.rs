//! Off btrfs, every call says so and changes nothing; on btrfs they are tested with the volumes of
//! `egret-branches`, which mount one.

use super::*;

#[test]
fn a_plain_directory_is_no_subvolume() {
    let directory = tempfile::tempdir().unwrap();
    assert!(!is_subvolume(directory.path()).unwrap());
    assert!(!is_subvolume(&directory.path().join("missing")).unwrap());
}

#[test]
fn deleting_a_plain_directory_as_a_subvolume_fails_and_keeps_it() {
    let directory = tempfile::tempdir().unwrap();
    let plain = directory.path().join("plain");
    std::fs::create_dir(&plain).unwrap();
    delete(&plain).unwrap_err();
    assert!(plain.is_dir());
    delete(Path::new("/")).unwrap_err();
}

#[test]
fn names_that_do_not_fit_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let long = directory.path().join("x".repeat(5_000));
    assert_eq!(create(&long).unwrap_err().kind(), io::ErrorKind::InvalidInput);
}
