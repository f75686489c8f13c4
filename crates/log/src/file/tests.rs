//! The simple path on real files.

mod cold;

use std::time::Duration;

use super::*;
use crate::LogReader;

fn config() -> LogConfig {
    LogConfig {
        segment_bytes: 256 << 10,
        first_segment_bytes: 64 << 10,
        batch_bytes_max: 128 << 10,
        cache_bytes: 32 << 10,
        chunk_cache_bytes: 64 << 10,
        ..LogConfig::default()
    }
}

fn body(seq: u64) -> Vec<u8> {
    vec![seq as u8; (seq % 200) as usize]
}

fn fill(log: &mut FileLog, count: u64) {
    let mut batch = Batch::new();
    let mut next = log.next_seq();
    let end = next.plus(count);
    while next < end {
        for _ in 0..(next.0 % 50 + 1).min(end.0 - next.0) {
            batch.push(&body(next.0));
            next = next.next();
        }
        let expected = log.next_seq();
        let appended = log.append(&mut batch, expected).expect("the disk works");
        assert_eq!(appended, AppendResult::Committed(next.previous()));
    }
}

fn open(path: &std::path::Path, from: u64) -> (FileLog, Recovery) {
    let disk = Directory::open(path).expect("a temporary directory opens");
    FileLog::open(disk, config(), Seq(from)).expect("the log opens")
}

#[test]
fn what_is_appended_is_read_back_also_after_a_restart() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let (mut log, recovery) = open(home.path(), 1);
    assert_eq!(recovery, Recovery::default());
    fill(&mut log, 20_000);
    let check = |log: &FileLog| {
        assert_eq!((log.first_seq(), log.next_seq()), (Seq(1), Seq(20_001)));
        let reader = log.reader();
        for seq in (1..=20_000).chain((1..=20_000).rev().step_by(37)) {
            assert_eq!(reader.read(Seq(seq)).expect("it was appended"), body(seq));
        }
        let mut expected = 7_777;
        for item in log.read_from(Seq(expected)) {
            let (seq, found) = item.expect("the log is whole");
            assert_eq!((seq.0, &*found), (expected, &*body(expected)));
            expected += 1;
        }
        assert_eq!(expected, 20_001);
    };
    check(&log);
    drop(log);
    for from in [1, 15_000, 20_001] {
        let (log, recovery) = open(home.path(), from);
        assert_eq!(recovery.torn, None);
        check(&log);
    }
}

#[test]
fn a_second_writer_is_told_who_has_the_log() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let _first = open(home.path(), 1);
    let disk = Directory::open(home.path()).expect("a temporary directory opens");
    match FileLog::open(disk, config(), Seq(1)) {
        Err(LogError::Locked { holder, .. }) => assert_eq!(holder, std::process::id().to_string()),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("two writers have one log"),
    }
}

#[test]
fn a_compaction_runs_elsewhere_and_keeps_sequence_numbers() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let (mut log, _) = open(home.path(), 1);
    fill(&mut log, 10_000);
    let segments = log.segments();
    assert!(segments.len() > 4, "{segments:?}");
    let (first, last) = (segments[1].first, segments[3].last);
    let compaction = log.prepare_compaction(first, last).expect("the run is sealed");
    let running =
        std::thread::spawn(move || crate::Compaction::run(compaction, |seq| seq.0 % 3 == 0));
    fill(&mut log, 1_000);
    let compacted = running.join().expect("no panic").expect("the disk works");
    assert!(log.finish_compaction(compacted).expect("the log runs"));
    assert_eq!(
        log.segments().len() + 2,
        segments.len() + log.segments().len() - (segments.len() - 2)
    );
    let check = |log: &FileLog| {
        let reader = log.reader();
        for seq in 1..=11_000u64 {
            let dropped = (first.0..=last.0).contains(&seq) && seq % 3 != 0;
            match reader.read(Seq(seq)) {
                Ok(found) => assert_eq!(found, body(seq)),
                Err(LogError::Compacted { .. }) => assert!(dropped),
                Err(other) => panic!("{other}"),
            }
        }
        let kept = log.read_from(Seq(1)).map(|item| item.expect("whole").0.0);
        let wanted = (1..=11_000).filter(|seq| !(first.0..=last.0).contains(seq) || seq % 3 == 0);
        assert!(kept.eq(wanted));
    };
    check(&log);
    drop(log);
    check(&open(home.path(), 1).0);
    check(&open(home.path(), 11_001).0);
}

/// How many records the first segment holds.
fn records(log: &FileLog) -> u64 {
    log.segments()[0].records
}

#[test]
fn a_compacted_segment_knows_its_records_and_is_never_too_large() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let (mut log, _) = open(home.path(), 1);
    fill(&mut log, 10_000);
    let (first, last) = (log.segments()[0].first, log.segments()[1].last);
    let mut compaction = log.prepare_compaction(first, last).expect("the run is sealed");
    compaction.bytes_max = 128 << 10;
    let too_large = crate::Compaction::run(compaction, |_| true).err();
    let told = too_large.expect("two segments do not fit").to_string();
    assert!(told.contains("larger than 131072 bytes"), "{told}");
    assert_eq!(records(&log), log.segments()[0].last.0);
    let compaction = log.prepare_compaction(first, last).expect("the run is sealed");
    let compacted =
        crate::Compaction::run(compaction, |seq| seq.0 % 10 == 0).expect("the disk works");
    assert!(log.finish_compaction(compacted).expect("the log runs"));
    assert_eq!(records(&log), last.0 / 10);
    drop(log);
    assert_eq!(records(&open(home.path(), 10_001).0), last.0 / 10);
}

#[test]
fn truncated_segments_become_spare_ones() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let (mut log, _) = open(home.path(), 1);
    fill(&mut log, 10_000);
    log.truncate_below(Seq(5_000)).expect("the log runs");
    let first = log.first_seq();
    assert!(first > Seq(1) && first <= Seq(5_000));
    match log.reader().read(Seq(1)) {
        Err(LogError::Truncated { first: told, .. }) => assert_eq!(told, first),
        other => panic!("{other:?}"),
    }
    fill(&mut log, 10_000);
    drop(log);
    let (log, _) = open(home.path(), 10_000);
    assert_eq!((log.first_seq(), log.next_seq()), (first, Seq(20_001)));
    let tail = log.read_from(first).map(|item| item.expect("whole").0.0);
    assert!(tail.eq(first.0..=20_000));
}

#[test]
fn an_interval_says_when_to_sync() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let disk = Directory::open(home.path()).expect("a temporary directory opens");
    let config = LogConfig { durability: Durability::Interval(Duration::from_secs(5)), ..config() };
    let (mut log, _) = FileLog::open(disk, config, Seq(1)).expect("the log opens");
    assert_eq!(log.sync_deadline(), None);
    fill(&mut log, 10);
    let deadline = log.sync_deadline().expect("something is not synced");
    assert!(deadline > Instant::now() && deadline <= Instant::now() + Duration::from_secs(5));
    assert_eq!(log.synced_below(), Seq(1));
    log.sync().expect("the disk works");
    assert_eq!((log.synced_below(), log.sync_deadline()), (Seq(11), None));
}

#[test]
fn reading_in_order_costs_a_call_a_chunk_and_what_is_recent_none() {
    let disk = crate::simulated::SimulatedDisk::new(64 << 20);
    let config = LogConfig {
        index_stride_bytes: 4 << 10,
        housekeeping: crate::Housekeeping::Owner,
        ..config()
    };
    let (mut log, _) = FileLog::open(disk.clone(), config, Seq(1)).expect("the disk works");
    let mut batch = Batch::new();
    for _ in 0..10_000 {
        batch.push(&[1; 84]);
        let expected = log.next_seq();
        let appended = log.append(&mut batch, expected).expect("the disk works");
        assert!(matches!(appended, AppendResult::Committed(_)));
    }
    let reader = log.reader();
    let before = disk.calls().reads;
    for seq in 9_950..=10_000 {
        reader.read(Seq(seq)).expect("it is in memory");
    }
    assert_eq!(disk.calls().reads, before);
    for seq in 1..=10_000 {
        reader.read(Seq(seq)).expect("it was appended");
    }
    // 10,000 frames of 192 bytes, in chunks of 64 KiB once the order is seen, some segments.
    let calls = disk.calls().reads - before;
    assert!(calls < 60, "{calls}");
}
