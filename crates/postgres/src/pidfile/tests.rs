//! Complete, growing and foreign files.

use proptest::prelude::*;

use super::*;

const COMPLETE: &str =
    "4711\n/srv/data\n1795248000\n7433\n/srv/run\n127.0.0.1\n  1234567   65536\nready   \n";

#[test]
fn reads_a_complete_file() {
    let file = PidFile::parse(COMPLETE).unwrap();
    assert_eq!(file.pid, 4711);
    assert_eq!(file.port, Some(7433));
    assert_eq!(file.socket_dir.as_deref(), Some(Path::new("/srv/run")));
    assert!(file.is_ready);
}

#[test]
fn a_starting_postmaster_is_not_ready() {
    let starting = COMPLETE.replace("ready   ", "starting");
    assert!(!PidFile::parse(&starting).unwrap().is_ready);
    let first_lines = "4711\n/srv/data\n1795248000\n";
    assert!(!PidFile::parse(first_lines).unwrap().is_ready);
    assert_eq!(PidFile::parse("47"), None);
    assert_eq!(PidFile::parse(""), None);
}

proptest! {
    #[test]
    fn never_panics(text in "(.{0,30}\n){0,10}") {
        let _ = PidFile::parse(&text);
    }
}
