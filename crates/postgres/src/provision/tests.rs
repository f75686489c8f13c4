//! Versions are read as PostgreSQL prints them; wrong directories and archives are refused.

use super::*;

#[test]
fn versions_are_read_as_printed() {
    let debian = "postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n";
    assert_eq!(parse_version(debian), Some(("15.18".to_owned(), 15)));
    assert_eq!(parse_version("postgres (PostgreSQL) 19devel"), Some(("19devel".to_owned(), 19)));
    assert_eq!(parse_version("bash: no such thing"), None);
}

#[test]
fn a_directory_without_programs_is_refused_by_name() {
    let empty = tempfile::tempdir().unwrap();
    let error = Binaries::examine(empty.path(), Source::Configured).unwrap_err();
    assert!(error.to_string().contains("there is no postgres"), "{error}");
}

#[test]
fn a_release_too_old_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["postgres", "initdb"] {
        let path = directory.path().join(name);
        fs::write(&path, "#!/bin/sh\necho 'postgres (PostgreSQL) 14.9'\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let error = Binaries::examine(directory.path(), Source::Configured).unwrap_err();
    assert_eq!(
        error.to_string(),
        "PostgreSQL 14.9 is not supported: Egret works with 15, 16, 17 and 18"
    );
}

#[test]
fn a_program_that_is_open_for_writing_is_tried_again() {
    let mut attempts = 0;
    let outcome = retry_while_busy(|| {
        attempts += 1;
        if attempts < 3 { Err(ErrorKind::ExecutableFileBusy.into()) } else { Ok(attempts) }
    });
    assert_eq!(outcome.unwrap(), 3);
    let mut attempts = 0;
    let outcome = retry_while_busy::<()>(|| {
        attempts += 1;
        Err(ErrorKind::NotFound.into())
    });
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(attempts, 1);
}

#[test]
fn every_pinned_sum_is_a_sha_256() {
    for (major, version, _, sum) in PINNED_RELEASES {
        assert!(version.starts_with(&format!("{major}.")));
        assert!(sum.len() == 64 && sum.chars().all(|c| c.is_ascii_hexdigit()), "{version}");
    }
}

#[test]
fn programs_that_others_can_change_are_not_run() {
    let directory = tempfile::tempdir().unwrap();
    let trace = directory.path().join("it-ran");
    for name in ["postgres", "initdb"] {
        let path = directory.path().join(name);
        let script = format!("#!/bin/sh\ntouch '{}'\n", trace.display());
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let error = Binaries::examine(directory.path(), Source::Configured).unwrap_err();
    assert!(error.to_string().contains("can be written by other users"), "{error}");
    assert!(!trace.exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_tasks_that_fetch_the_same_release_both_get_the_whole() {
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let cache = directory.path().to_owned();
    let fetched = [cache.clone(), cache.clone()]
        .map(|cache| tokio::spawn(async move { fetch(&cache, DEFAULT_MAJOR).await }));
    for fetched in fetched {
        let binaries = fetched.await.unwrap().unwrap();
        assert_eq!(binaries.major, DEFAULT_MAJOR);
    }
    let left: Vec<_> = fs::read_dir(&cache).unwrap().flatten().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}
