//! Files as they are found.

use super::*;

#[test]
fn patterns_match_files_and_each_is_read_once() {
    let directory = tempfile::tempdir().expect("a directory");
    for (name, text) in [("b.yml", "b"), ("a.yml", "a"), ("c.txt", "c")] {
        std::fs::write(directory.path().join(name), text).expect("a file");
    }
    let of = |name: &str| directory.path().join(name).display().to_string();
    let read = read_matching(&[of("*.yml"), of("a.yml")], 10).expect("files");
    let texts: Vec<&str> = read.iter().map(|document| document.text.as_str()).collect();
    assert_eq!(texts, ["a", "b"]);
    assert_eq!(read_matching(&[of("*.nothing")], 10).expect("no files"), []);
    let missing = read_matching(&[of("missing.yml")], 10).expect_err("it must be there");
    assert!(matches!(missing, FileError::Unreadable { .. }), "{missing}");
    std::fs::write(of("a.yml"), "12345678901").expect("a file");
    let long = read_matching(&[of("a.yml")], 10).expect_err("it is too long");
    assert!(matches!(long, FileError::TooLong { .. }), "{long}");
    let none = read_matching(&["a[".to_owned()], 10).expect_err("no pattern");
    assert!(matches!(none, FileError::Pattern { .. }), "{none}");
}

#[test]
fn a_secret_has_no_blanks_around_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("token").display().to_string();
    std::fs::write(&path, " s3cret\n").expect("a file");
    assert_eq!(read_secret(&path).expect("a secret"), "s3cret");
}

#[test]
fn a_pipe_is_refused_without_waiting_for_its_writer() {
    let directory = tempfile::tempdir().expect("a directory");
    let pipe = directory.path().join("targets.yml");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("mkfifo runs").success());
    let error = read_secret(&pipe.display().to_string()).expect_err("it is no file");
    assert!(error.to_string().ends_with("it is not a regular file"), "{error}");
}
