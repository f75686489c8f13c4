//! On real directories laid out as PostgreSQL's are.

use std::fs;

use super::*;

/// A `base` with two databases, sorts at work, and what does not belong there.
fn base() -> tempfile::TempDir {
    let base = tempfile::tempdir().expect("a directory");
    for (directory, files) in [
        ("1", &["2601", "2601_fsm"][..]),
        ("16384", &["16385", "16385.1", "t3_16400", "PG_VERSION"]),
        ("pgsql_tmp", &["pgsql_tmp42.0"]),
    ] {
        let directory = base.path().join(directory);
        fs::create_dir(&directory).expect("made");
        for file in files {
            fs::write(directory.join(file), [1; 8192]).expect("written");
        }
    }
    base
}

fn touched(path: &Path, at: SystemTime) {
    let file = fs::File::options().write(true).open(path).expect("open");
    file.set_modified(at).expect("its time is set");
}

#[test]
fn files_of_tables_that_stay_are_started() {
    let base = base();
    let started = run_round(base.path(), SystemTime::UNIX_EPOCH, &|| false).expect("a round");
    assert_eq!(started, 4);
}

#[test]
fn only_what_changed_since_then_is_started() {
    let base = base();
    let then = SystemTime::now() - Duration::from_secs(3600);
    for file in ["1/2601", "1/2601_fsm", "16384/16385"] {
        touched(&base.path().join(file), then);
    }
    let since = then + Duration::from_nanos(1);
    assert_eq!(run_round(base.path(), since, &|| false).expect("a round"), 1);
    assert_eq!(run_round(base.path(), then, &|| false).expect("a round"), 4);
}

#[test]
fn no_link_is_followed_and_no_pipe_waited_for() {
    let base = base();
    let elsewhere = tempfile::tempdir().expect("a directory");
    fs::write(elsewhere.path().join("5"), [1; 8192]).expect("written");
    std::os::unix::fs::symlink(elsewhere.path(), base.path().join("7")).expect("a link");
    let database = base.path().join("1");
    std::os::unix::fs::symlink(elsewhere.path().join("5"), database.join("5")).expect("a link");
    let mode = rustix::fs::Mode::RUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, database.join("6"), mode).expect("a pipe");
    let started = run_round(base.path(), SystemTime::UNIX_EPOCH, &|| false).expect("a round");
    assert_eq!(started, 4);
}

#[test]
fn what_is_gone_is_no_error() {
    let base = base();
    let gone = base.path().join("gone");
    assert_eq!(run_round(&gone, SystemTime::UNIX_EPOCH, &|| false).expect("a round"), 0);
}

#[test]
fn a_round_ends_when_it_is_over() {
    let base = base();
    let started = run_round(base.path(), SystemTime::UNIX_EPOCH, &|| true).expect("a round");
    assert_eq!(started, 0);
}

#[tokio::test]
async fn nothing_is_open_once_stopped() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().to_owned();
    let database = data.join("base/1");
    fs::create_dir_all(&database).expect("made");
    for file in 1..5_000 {
        fs::write(database.join(file.to_string()), [1; 8]).expect("written");
    }
    let rounds = WriteBack::start(&data, Duration::from_millis(1));
    // The runtime of this test has one thread: the first round is at work from here on.
    tokio::task::yield_now().await;
    rounds.stop().await;
    let never = WriteBack::start(&data, Duration::ZERO);
    never.stop().await;
    let open = fs::read_dir("/proc/self/fd")
        .expect("descriptors")
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
        .filter(|path| path.starts_with(&data))
        .count();
    assert_eq!(open, 0);
}
