//! The format on disk, byte by byte: what version 1 wrote must be read for ever, and version 1 must
//! not change. The files in `tests/golden` are whole segments, cut after the last frame.

use std::sync::Arc;

use egret_base::SeededEntropy;
use egret_log::simulated::SimulatedDisk;
use egret_log::{AppendResult, Batch, Compaction, Disk, Durability, FileLog, Log, LogReader, Seq};

use crate::simulator::small_config;

const FIRST: &str = "00000000000000000001.log";
/// What the golden file was cut from.
const FILE_BYTES: usize = 6 << 10;
const PLAIN: &[u8] = include_bytes!("../golden/segment-v1.log");
const COMPACTED: &[u8] = include_bytes!("../golden/compacted-v1.log");

fn body(seq: u64) -> Vec<u8> {
    format!("record {seq}").into_bytes().repeat(seq as usize % 4)
}

fn write(durability: Durability) -> (SimulatedDisk, FileLog<SimulatedDisk>) {
    let disk = SimulatedDisk::new(1 << 20);
    let entropy = Arc::new(SeededEntropy::new(1));
    let config = small_config(durability);
    let opened = FileLog::open_with(disk.clone(), config, Seq::FIRST, entropy);
    let (mut log, _) = opened.expect("the disk works");
    let mut batch = Batch::new();
    for frame in [1..4, 4..5, 5..12u64] {
        let expected = Seq(frame.start);
        frame.for_each(|seq| batch.push(&body(seq)));
        let appended = log.append(&mut batch, expected).expect("the disk works");
        assert!(matches!(appended, AppendResult::Committed(_)));
    }
    (disk, log)
}

/// A segment that is full, so that the next append begins another.
fn compact(log: &mut FileLog<SimulatedDisk>) {
    let mut batch = Batch::new();
    batch.push(&[0; 5000 - 200]);
    let expected = log.next_seq();
    let appended = log.append(&mut batch, expected).expect("the disk works");
    assert!(matches!(appended, AppendResult::Committed(_)));
    let sealed = log.segments()[0];
    let compaction = log.prepare_compaction(sealed.first, sealed.last).expect("it is sealed");
    let compacted = compaction.run(|seq| seq.0 % 2 == 0).expect("the disk works");
    assert!(log.finish_compaction(compacted).expect("the log runs"));
    while log.housekeep().expect("the disk works") {}
}

fn assert_same(written: &[u8], golden: &[u8], name: &str) {
    let differs = std::iter::zip(written, golden).position(|(a, b)| a != b);
    assert_eq!(differs, None, "{name} differs from what version 1 wrote");
    assert_eq!(written.len(), golden.len(), "{name}");
}

#[test]
fn version_1_is_written_as_ever() {
    let (disk, mut log) = write(Durability::Fsync);
    let segment = disk.content(FIRST).expect("the segment is there");
    let used = log.segments()[0].used_bytes.expect("it is the active one");
    assert!(segment[used as usize..].iter().all(|byte| *byte == 0));
    compact(&mut log);
    let compacted = disk.content(FIRST).expect("the segment is there");
    assert_same(&segment[..used as usize], PLAIN, "segment-v1.log");
    assert_same(&compacted, COMPACTED, "compacted-v1.log");
}

#[test]
fn version_1_is_read_for_ever() {
    let disk = SimulatedDisk::new(1 << 20);
    disk.create(FIRST).expect("the disk is empty");
    disk.overwrite(FIRST, [PLAIN, &vec![0; FILE_BYTES - PLAIN.len()]].concat());
    let (log, recovery) = FileLog::open(disk, small_config(Durability::Fsync), Seq::FIRST)
        .expect("version 1 is read");
    assert_eq!((recovery.torn, log.next_seq()), (None, Seq(12)));
    for seq in 1..12 {
        assert_eq!(log.reader().read(Seq(seq)).expect("it is there"), body(seq));
    }
}

#[test]
fn a_compacted_segment_of_version_1_is_read_for_ever() {
    let disk = SimulatedDisk::new(1 << 20);
    disk.create(FIRST).expect("the disk is empty");
    disk.overwrite(FIRST, COMPACTED.to_vec());
    let (log, recovery) = FileLog::open(disk, small_config(Durability::Fsync), Seq::FIRST)
        .expect("version 1 is read");
    assert_eq!((recovery.torn, log.next_seq()), (None, Seq(12)));
    let kept: Vec<_> = log.read_from(Seq(1)).map(|item| item.expect("it is whole")).collect();
    let expected: Vec<_> = (2..12).step_by(2).map(|seq| (Seq(seq), body(seq).into())).collect();
    assert_eq!(kept, expected);
}
