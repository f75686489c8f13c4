//! Files that Egret writes into a data directory.

use egret_base::SeededEntropy;

use super::*;
use crate::provision::Source;

#[test]
fn passwords_are_long_and_differ() {
    let entropy = SeededEntropy::new(1);
    let (one, other) = (generate_password(&entropy), generate_password(&entropy));
    assert_eq!(one.len(), 32);
    assert_ne!(one, other);
}

#[test]
fn no_line_of_pg_hba_trusts_a_client() {
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
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn links_in_a_directory_of_another_user_are_not_followed() {
    let directory = tempfile::tempdir().unwrap();
    let (target, link) = (directory.path().join("precious"), directory.path().join("link"));
    fs::write(&target, "kept").unwrap();
    std::os::unix::fs::symlink(&target, &link).unwrap();
    read_no_follow(&link).unwrap_err();
    write_private(&link, "new").unwrap();
    assert_eq!(fs::read_to_string(&target).unwrap(), "kept");
    assert_eq!(fs::read_to_string(&link).unwrap(), "new");
}

#[test]
fn only_what_an_interrupted_initdb_left_is_removed() {
    let directory = tempfile::tempdir().unwrap();
    let (data, password) = (directory.path().join("data"), directory.path().join("password"));
    fs::create_dir(&data).unwrap();
    let marker = unfinished_marker(&data);
    clear_unfinished(&data, &marker, &password).unwrap();
    fs::write(data.join("PG_VERSION"), "18\n").unwrap();
    assert!(is_complete(&data));
    let error = clear_unfinished(&data, &marker, &password).unwrap_err().to_string();
    assert!(error.contains("it holds files"), "{error}");
    fs::write(&marker, "").unwrap();
    assert!(!is_complete(&data));
    clear_unfinished(&data, &marker, &password).unwrap();
    assert!(!data.join("PG_VERSION").exists());
    fs::remove_file(&marker).unwrap();
    fs::write(&password, "secret").unwrap();
    let error = clear_unfinished(&data, &marker, &password).unwrap_err().to_string();
    assert!(error.contains("is a file system not mounted?"), "{error}");
}

#[test]
fn a_file_of_another_user_is_read_up_to_a_bound() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("postmaster.pid");
    let file = fs::File::create(&path).unwrap();
    file.set_len(OWN_FILE_BYTES_MAX).unwrap();
    assert_eq!(read_no_follow(&path).unwrap().len() as u64, OWN_FILE_BYTES_MAX);
    // A hole of a terabyte takes no room on the disk.
    file.set_len(1 << 40).unwrap();
    let error = read_no_follow(&path).unwrap_err().to_string();
    assert!(error.contains("larger than 262144 bytes"), "{error}");
}

/// As a process has it that was forked while `initdb` was being unpacked.
#[test]
fn an_initdb_that_is_open_for_writing_is_tried_again() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("initdb");
    fs::write(&program, "#!/bin/sh\nexit 0\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let binaries = Binaries {
        directory: directory.path().to_owned(),
        version: "18.6".to_owned(),
        major: 18,
        source: Source::Configured,
    };
    let writer = fs::OpenOptions::new().write(true).open(&program).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // Meanwhile the first attempt fails.
            for _ in 0..50 {
                drop(Command::new(&program).output());
            }
            drop(writer);
        });
        initdb(&binaries, directory.path(), &RunAsUser::current(), directory.path()).unwrap();
    });
}
