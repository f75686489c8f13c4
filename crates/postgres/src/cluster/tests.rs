//! Files that Egret writes into a data directory.

use egret_base::SeededEntropy;

use super::*;

#[test]
fn passwords_are_long_and_differ() {
    let entropy = SeededEntropy::new(1);
    let (one, other) = (password(&entropy), password(&entropy));
    assert_eq!(one.len(), 32);
    assert_ne!(one, other);
}

#[test]
fn nobody_enters_by_trust() {
    let text = host_based_authentication();
    assert!(!text.contains("trust"));
    assert!(text.contains("local all egret peer map=egret"));
}

#[test]
fn secrets_are_for_their_owner_only() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("secret");
    fs::write(&path, "old").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    write_private(&path, "new").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
}

#[test]
fn links_in_a_directory_of_another_user_are_not_followed() {
    let directory = tempfile::tempdir().unwrap();
    let (target, link) = (
        directory.path().join("precious"),
        directory.path().join("link"),
    );
    fs::write(&target, "kept").unwrap();
    std::os::unix::fs::symlink(&target, &link).unwrap();
    read_own(&link).unwrap_err();
    write_private(&link, "new").unwrap();
    assert_eq!(fs::read_to_string(&target).unwrap(), "kept");
    assert_eq!(fs::read_to_string(&link).unwrap(), "new");
}

#[test]
fn a_complete_cluster_is_never_emptied() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("half"), "").unwrap();
    empty(directory.path()).unwrap();
    assert!(!directory.path().join("half").exists());
    fs::write(directory.path().join("PG_VERSION"), "18\n").unwrap();
    fs::write(directory.path().join("egret.conf"), "").unwrap();
    assert!(is_complete(directory.path()));
    empty(directory.path()).unwrap_err();
    assert!(directory.path().join("PG_VERSION").exists());
}
