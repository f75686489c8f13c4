//! Each durability as the system sees it: what is synced, and when.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use egret_log::simulated::{Calls, SimulatedDisk};
use egret_log::{
    AppendResult, Batch, Directory, Disk, Durability, FileLog, Housekeeping, Log, LogConfig, Seq,
};

const APPENDS: u64 = 50;
const MODE: &str = "EGRET_LOG_TEST_DURABILITY";
const HOME: &str = "EGRET_LOG_TEST_DURABILITY_HOME";

fn durability(mode: &str) -> Durability {
    match mode {
        "fsync" => Durability::Fsync,
        "interval" => Durability::Interval(Duration::from_secs(3600)),
        _ => Durability::None,
    }
}

fn work<D: Disk>(disk: D, mode: &str, appends: u64) {
    let config = LogConfig {
        durability: durability(mode),
        segment_bytes: 4 << 20,
        batch_bytes_max: 1 << 20,
        first_segment_bytes: 64 << 10,
        housekeeping: Housekeeping::Owner,
        ..LogConfig::default()
    };
    let (mut log, _) = FileLog::open(disk, config, Seq::FIRST).expect("the disk works");
    let mut batch = Batch::new();
    for _ in 0..appends {
        batch.push(b"a record");
        let expected = log.next_seq();
        let appended = log.append(&mut batch, expected).expect("the disk works");
        assert_eq!(appended, AppendResult::Committed(expected));
    }
    // Far from due in an hour; the owner may ask all the same.
    assert_eq!(log.sync_deadline().is_some(), mode == "interval" && appends > 0);
    if mode == "interval" {
        log.sync().expect("the disk works");
    }
}

/// Syncs and writes that the appends made, over what opening the log takes.
fn calls_of(mode: &str) -> (u64, u64) {
    let calls = |appends| {
        let disk = SimulatedDisk::new(16 << 20);
        work(disk.clone(), mode, appends);
        disk.calls()
    };
    let (Calls { writes, syncs, .. }, opening) = (calls(APPENDS), calls(0));
    (writes - opening.writes, syncs - opening.syncs)
}

#[test]
fn every_append_is_one_write_and_each_sync_is_followed_by_a_mark() {
    assert_eq!(calls_of("fsync"), (2 * APPENDS, APPENDS));
    assert_eq!(calls_of("interval"), (APPENDS + 1, 1));
    // When it is closed.
    assert_eq!(calls_of("none"), (APPENDS + 1, 1));
}

/// The child of the test below; by itself it works on a directory of its own.
#[test]
fn a_process_that_appends() {
    let mode = std::env::var(MODE).unwrap_or_else(|_| "none".to_owned());
    let appends = if mode == "opening" { 0 } else { APPENDS };
    let own = tempfile::tempdir().expect("a temporary directory");
    let home = std::env::var_os(HOME).unwrap_or_else(|| own.path().join("log").into());
    let disk = Directory::open(Path::new(&home)).expect("the directory can be made");
    work(disk, &mode, appends);
}

fn traced_syncs(mode: &str) -> usize {
    let home = tempfile::tempdir().expect("a temporary directory");
    let trace = home.path().join("trace");
    let output = Command::new("strace")
        .args(["-f", "-e", "trace=fdatasync,fsync", "-o"])
        .arg(&trace)
        .arg(std::env::current_exe().expect("this program has a path"))
        .args(["--exact", "durability::a_process_that_appends"])
        .env(MODE, mode)
        .env(HOME, home.path().join("log"))
        .output()
        .expect("strace is installed: run tests/clients/prepare");
    assert!(output.status.success(), "{output:?}");
    let trace = std::fs::read_to_string(trace).expect("strace wrote it");
    trace.lines().filter(|line| line.contains("sync(")).count()
}

#[test]
fn strace_sees_the_same() {
    let opening = traced_syncs("opening");
    assert!(opening > 0);
    assert_eq!(traced_syncs("fsync") - opening, APPENDS as usize);
    assert_eq!(traced_syncs("interval") - opening, 1);
    assert_eq!(traced_syncs("none") - opening, 1);
}
