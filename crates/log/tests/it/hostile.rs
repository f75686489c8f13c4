//! Segments whose bytes are not what was written: wrong data is never handed out, and what had been
//! durable is never dropped without a word.

use std::sync::Arc;

use egret_base::SeededEntropy;
use egret_log::simulated::SimulatedDisk;
use egret_log::{AppendResult, Batch, Durability, FileLog, Log, LogError, LogReader, Seq};
use proptest::prelude::*;

use crate::simulator::small_config;

fn body(seq: u64) -> Vec<u8> {
    vec![seq as u8; (seq * 37 % 300) as usize]
}

/// Some segments of a log that was closed, and the last frame's first record.
fn written_log() -> (SimulatedDisk, u64) {
    let disk = SimulatedDisk::new(1 << 20);
    let entropy = Arc::new(SeededEntropy::new(3));
    let opened =
        FileLog::open_with(disk.clone(), small_config(Durability::Fsync), Seq::FIRST, entropy);
    let (mut log, _) = opened.expect("the disk works");
    let mut batch = Batch::new();
    let mut last_frame = 0;
    for frame in 0..40u64 {
        last_frame = log.next_seq().0;
        (0..frame % 5 + 1).for_each(|index| batch.push(&body(last_frame + index)));
        let expected = log.next_seq();
        let appended = log.append(&mut batch, expected).expect("the disk works");
        assert!(matches!(appended, AppendResult::Committed(_)));
    }
    (disk, last_frame)
}

fn segments(disk: &SimulatedDisk) -> Vec<String> {
    use egret_log::Disk;
    let mut names = disk.list().expect("the disk works");
    names.retain(|name| name.ends_with(".log"));
    names
}

/// What a mutation does to one segment.
#[derive(Clone, Debug)]
enum Mutation {
    Flip { at: usize, mask: u8 },
    Fill { at: usize, bytes: Vec<u8> },
    Cut { at: usize },
    Copy { from: usize, to: usize, length: usize },
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let at = 0..10_240usize;
    prop_oneof![
        3 => (at.clone(), 1..=255u8).prop_map(|(at, mask)| Mutation::Flip { at, mask }),
        1 => (at.clone(), prop::collection::vec(any::<u8>(), 1..200))
            .prop_map(|(at, bytes)| Mutation::Fill { at, bytes }),
        1 => at.clone().prop_map(|at| Mutation::Cut { at }),
        1 => (at.clone(), at, 1..600usize)
            .prop_map(|(from, to, length)| Mutation::Copy { from, to, length }),
    ]
}

fn apply(content: &mut Vec<u8>, mutation: &Mutation) {
    let size = content.len();
    match mutation {
        Mutation::Flip { at, mask } => content[at % size] ^= mask,
        Mutation::Fill { at, bytes } => {
            let at = at % size;
            let end = size.min(at + bytes.len());
            content[at..end].copy_from_slice(&bytes[..end - at]);
        }
        Mutation::Cut { at } => content.truncate(at % size),
        Mutation::Copy { from, to, length } => {
            let (from, to) = (from % size, to % size);
            let length = (*length).min(size - from).min(size - to);
            content.copy_within(from..from + length, to);
        }
    }
}

/// Every record is the one written, or the error names where the damage is.
fn check_reads(log: &FileLog<SimulatedDisk>) {
    for seq in 1..log.next_seq().0 {
        match log.reader().read(Seq(seq)) {
            Ok(found) => assert_eq!(found, body(seq), "record {seq}"),
            Err(LogError::Corrupt { seq: named, .. }) => assert!(named.0 <= seq),
            Err(other) => panic!("{other}"),
        }
    }
    for (item, expected) in std::iter::zip(log.read_from(Seq(1)), 1..) {
        match item {
            Ok((seq, found)) => assert_eq!((seq.0, &*found), (expected, &*body(expected))),
            Err(LogError::Corrupt { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damage_is_named(
        which in any::<prop::sample::Index>(),
        mutations in prop::collection::vec(mutation(), 1..3),
        replay_all in any::<bool>(),
    ) {
        let (disk, last_frame) = written_log();
        let names = segments(&disk);
        let name = which.get(&names);
        let mut content = disk.content(name).expect("it is listed");
        for mutation in mutations {
            if !content.is_empty() {
                apply(&mut content, &mutation);
            }
        }
        disk.overwrite(name, content);
        disk.kill_processes();
        let from = if replay_all { 1 } else { last_frame };
        match FileLog::open(disk, small_config(Durability::Fsync), Seq(from)) {
            Ok((log, _)) => {
                assert!(log.next_seq().0 > last_frame, "lost what was durable");
                check_reads(&log);
            }
            Err(LogError::Corrupt { .. } | LogError::UnknownVersion { .. }) => {}
            Err(LogError::Shortened { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn any_bytes_at_all_are_no_reason_to_panic(
        content in prop::collection::vec(any::<u8>(), 0..9000),
        header in any::<bool>(),
    ) {
        let (disk, _) = written_log();
        let names = segments(&disk);
        let name = names.last().expect("there are segments");
        let mut segment = disk.content(name).expect("it is listed");
        let keep = if header { 4096 } else { 0 };
        segment.truncate(keep);
        segment.extend(content);
        disk.overwrite(name, segment);
        disk.kill_processes();
        if let Ok((log, _)) = FileLog::open(disk, small_config(Durability::Fsync), Seq::FIRST) {
            check_reads(&log);
        }
    }
}

#[test]
fn a_segment_that_was_deleted_is_missed() {
    let (disk, last_frame) = written_log();
    let names = segments(&disk);
    egret_log::Disk::remove(&disk, &names[1]).expect("it is listed");
    disk.kill_processes();
    for from in [1, last_frame] {
        match FileLog::open(disk.clone(), small_config(Durability::Fsync), Seq(from)) {
            Err(LogError::Missing { .. } | LogError::Corrupt { .. }) => {}
            Err(other) => panic!("{other}"),
            // The missing segment is not replayed; a read of its records fails.
            Ok((log, _)) => {
                assert!(from > 1);
                check_reads(&log);
            }
        }
    }
}
