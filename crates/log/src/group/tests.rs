//! Every record is in the log once, and every caller gets its outcome.

use egret_base_test::eventually_blocking;

use super::*;
use crate::simulated::{Fault, SimulatedDisk};
use crate::{Durability, FileLog, Housekeeping, LogConfig, LogReader};

fn group(config: LogConfig) -> (SimulatedDisk, GroupCommitter<FileLog<SimulatedDisk>>) {
    let disk = SimulatedDisk::new(64 << 20);
    let config = LogConfig {
        segment_bytes: 1 << 20,
        first_segment_bytes: 1 << 20,
        batch_bytes_max: 256 << 10,
        housekeeping: Housekeeping::Owner,
        ..config
    };
    let (log, _) = FileLog::open(disk.clone(), config, Seq(1)).expect("the disk works");
    let group = GroupCommitter::start(log, GroupConfig::default()).expect("a thread starts");
    (disk, group)
}

#[test]
fn appenders_share_writes_and_each_gets_its_own_number() {
    let (disk, group) = group(LogConfig::default());
    let before = disk.calls();
    let told: Vec<(Seq, Vec<u8>)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4u8)
            .map(|thread| {
                let group = &group;
                scope.spawn(move || {
                    let mut told = Vec::new();
                    for number in 0..500u16 {
                        let body = [&[thread], &number.to_le_bytes()[..]].concat();
                        let seq = match number % 2 {
                            0 => group.append(&body),
                            _ => group.submit(&body).and_then(|ticket| group.wait(ticket)),
                        };
                        told.push((seq.expect("the disk works"), body));
                    }
                    told
                })
            })
            .collect();
        let results = threads.into_iter().map(|thread| thread.join().expect("no panic"));
        results.flatten().collect()
    });
    let reader = group.with_log(|log| log.reader());
    let mut seqs: Vec<u64> = told.iter().map(|(seq, _)| seq.0).collect();
    for (seq, body) in told {
        assert_eq!(reader.read(seq).expect("it was committed"), body);
    }
    seqs.sort_unstable();
    assert!(seqs.into_iter().eq(1..=2000));
    assert!(disk.calls().syncs > before.syncs);
}

#[test]
fn a_full_disk_fails_its_batch_only_and_numbers_go_on() {
    let (disk, group) = group(LogConfig::default());
    assert_eq!(group.append(b"one").expect("the disk works"), Seq(1));
    disk.inject(Fault::Full(10));
    assert!(matches!(group.append(b"refused"), Err(LogError::Full { .. })));
    assert_eq!(group.append(b"two").expect("there is space again"), Seq(2));
    let ticket = group.submit(b"three").expect("the log runs");
    assert_eq!(group.wait(ticket).expect("the disk works"), Seq(3));
}

#[test]
fn a_failed_sync_ends_it_for_everybody() {
    let (disk, group) = group(LogConfig::default());
    disk.inject(Fault::SyncError);
    assert!(matches!(group.append(b"lost"), Err(LogError::Stopped { .. })));
    assert!(matches!(group.submit(b"late"), Err(LogError::Stopped { .. })));
}

#[test]
fn an_interval_is_synced_by_the_writer() {
    let (disk, group) = group(LogConfig {
        durability: Durability::Interval(Duration::from_millis(1)),
        ..LogConfig::default()
    });
    let before = disk.calls().syncs;
    group.append(b"soon").expect("the disk works");
    eventually_blocking("the writer syncs", || disk.calls().syncs > before);
}

#[test]
fn limits_refuse_by_name() {
    let (_, group) = group(LogConfig::default());
    match group.submit(&vec![0; 300 << 10]) {
        Err(LogError::BatchTooLarge(limit)) => assert_eq!(limit.name, "waiting_bytes_max"),
        other => panic!("{other:?}"),
    }
    let held = group.shared.lock_writer();
    let mut accepted = 0;
    let refused = loop {
        match group.submit(&[0; 10_000]) {
            Ok(_) => accepted += 1,
            Err(error) => break error,
        }
    };
    drop(held);
    assert!(accepted > 20, "{accepted}");
    assert!(matches!(refused, LogError::Busy(limit) if limit.name == "waiting_bytes_max"));
}
