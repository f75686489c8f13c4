//! Segments that have not been read for long: how many of their files are open, what is read of
//! them, and which errors damaged or missing ones cause.

use std::cell::Cell;

use super::*;
use crate::simulated::SimulatedDisk;
use crate::{Compaction, Housekeeping, LogReader};

/// 100 bytes each with what goes before them, so that a segment holds some thousands.
const BODY: [u8; 84] = [3; 84];

fn config() -> LogConfig {
    LogConfig {
        housekeeping: Housekeeping::Owner,
        recycled_segments_max: 2,
        cache_bytes: 0,
        chunk_cache_bytes: 0,
        ..super::config()
    }
}

fn open(disk: &SimulatedDisk, config: LogConfig, from: u64) -> FileLog<SimulatedDisk> {
    let opened = FileLog::open(disk.clone(), config, Seq(from));
    opened.expect("nothing is wrong with the disk").0
}

/// Appends until the log has so many segments.
fn fill(log: &mut FileLog<SimulatedDisk>, segments: usize) {
    let mut batch = Batch::new();
    while log.segments().len() < segments {
        (0..100).for_each(|_| batch.push(&BODY));
        let expected = log.next_seq();
        let appended = log.append(&mut batch, expected).expect("the disk works");
        assert!(matches!(appended, AppendResult::Committed(_)));
        housekeep(log);
    }
}

/// A log of so many segments, none of whose files is kept open: every read opens its file by name.
fn filled(segments: usize) -> (SimulatedDisk, FileLog<SimulatedDisk>) {
    let disk = SimulatedDisk::new(64 << 20);
    let config = LogConfig { open_segments_max: 0, ..config() };
    let mut log = open(&disk, config, 1);
    fill(&mut log, segments);
    (disk, log)
}

fn housekeep(log: &FileLog<SimulatedDisk>) {
    while log.housekeep().expect("the disk works") {}
}

fn compact(
    log: &mut FileLog<SimulatedDisk>,
    segments: std::ops::Range<usize>,
    keep: impl FnMut(Seq) -> bool,
) {
    let known = log.segments();
    let (first, last) = (known[segments.start].first, known[segments.end - 1].last);
    let compaction = log.prepare_compaction(first, last).expect("the run is sealed");
    let compacted = compaction.run(keep).expect("the disk works");
    assert!(log.finish_compaction(compacted).expect("the log runs"));
}

fn read_all(log: &FileLog<SimulatedDisk>) {
    let reader = log.reader();
    let whole = log.first_seq().0..log.next_seq().0;
    for seq in whole.clone().chain(whole.clone().rev()).step_by(97) {
        match reader.read(Seq(seq)) {
            Ok(body) => assert_eq!(body, BODY[..]),
            Err(LogError::Compacted { .. }) => assert!(seq % 2 == 1),
            Err(other) => panic!("{other}"),
        }
    }
    let read = log.read_from(log.first_seq()).map(|item| item.expect("the log is whole").0.0);
    assert!(read.filter(|seq| seq % 2 == 0).eq(whole.filter(|seq| seq % 2 == 0)));
}

#[test]
fn many_segments_are_few_open_files() {
    for durability in [Durability::Fsync, Durability::None] {
        let disk = SimulatedDisk::new(64 << 20);
        // Of segments, spare ones, the active one, those a tail and a compaction are at, the end
        // mark.
        disk.limit_open_files(
            4 + 2 + 1 + 2 + 1 + if durability == Durability::None { 5 } else { 0 },
        );
        let config = LogConfig { durability, open_segments_max: 4, ..config() };
        let mut log = open(&disk, config, 1);
        fill(&mut log, 60);
        read_all(&log);
        compact(&mut log, 10..12, |seq| seq.0 % 2 == 0);
        read_all(&log);
        housekeep(&log);
        read_all(&log);
        log.truncate_below(log.segments()[5].first).expect("the log runs");
        housekeep(&log);
        read_all(&log);
        log.sync().expect("the disk works");
        let (first, next) = (log.first_seq(), log.next_seq());
        drop(log);
        for from in [next, first] {
            let log = open(&disk, config, from.0);
            assert_eq!((log.first_seq(), log.next_seq()), (first, next));
            read_all(&log);
        }
    }
}

/// Another file may have the name.
#[test]
fn a_compacted_segment_is_read_before_and_after_it_has_its_name() {
    let (_, mut log) = filled(4);
    compact(&mut log, 1..2, |seq| seq.0 % 2 == 0);
    read_all(&log);
    housekeep(&log);
    read_all(&log);
}

#[test]
fn whoever_meets_a_segment_that_goes_takes_the_one_in_its_place() {
    let (_, mut log) = filled(5);
    let shared = Arc::clone(&log.shared);
    let seq = log.segments()[1].first;
    let attempts = Cell::new(0);
    let file = shared.with_segment(seq, |segment| {
        attempts.set(attempts.get() + 1);
        if attempts.get() == 1 {
            compact(&mut log, 1..2, |seq| seq.0 % 2 == 0);
            housekeep(&log);
        }
        segment.file()
    });
    assert!(file.is_ok());
    assert_eq!(attempts.get(), 2);
    let seq = log.segments()[0].first;
    let gone = shared.with_segment(seq, |segment| {
        log.truncate_below(Seq(u64::MAX)).expect("the log runs");
        housekeep(&log);
        segment.file()
    });
    assert!(matches!(gone, Err(LogError::Truncated { .. })));
}

#[test]
fn a_compaction_of_what_has_been_truncated_is_refused() {
    let (_, mut log) = filled(4);
    let oldest = log.segments()[0];
    let compaction = log.prepare_compaction(oldest.first, oldest.last).expect("it is sealed");
    log.truncate_below(oldest.last.next()).expect("the log runs");
    housekeep(&log);
    let refused = compaction.run(|_| true).err();
    assert!(matches!(refused, Some(LogError::NotSealed { .. })));
}

#[test]
fn a_segment_file_that_is_gone_or_another_is_named() {
    use crate::Disk;
    let (disk, log) = filled(4);
    let names: Vec<_> =
        log.segments().iter().map(|known| known.first).map(segment::segment_name).collect();
    let another = disk.content(&names[1]).expect("it is there");
    disk.overwrite(&names[0], another);
    let told = log.reader().read(Seq(1)).expect_err("it is another").to_string();
    assert!(
        told.contains("corrupt segment simulated/00000000000000000001.log at offset 0"),
        "{told}"
    );
    disk.remove(&names[0]).expect("it is there");
    let told = log.reader().read(Seq(1)).expect_err("it is gone").to_string();
    assert!(told.contains("log: open simulated/00000000000000000001.log failed"), "{told}");
}

#[test]
fn an_open_looks_at_headers_and_a_first_read_at_what_is_before_it() {
    let disk = SimulatedDisk::new(64 << 20);
    let config = LogConfig {
        segment_bytes: 8 << 20,
        first_segment_bytes: 8 << 20,
        spare_segments: 0,
        ..config()
    };
    let mut log = open(&disk, config, 1);
    fill(&mut log, 4);
    let (sealed, active, next) = (log.segments()[1], log.segments()[3], log.next_seq());
    drop(log);
    let before = disk.calls().read_bytes;
    let log = open(&disk, config, next.0);
    let read_bytes = |before| disk.calls().read_bytes - before;
    // The active segment, and what it may have of an earlier life.
    let most = 4 * 4096 + 2 * active.file_bytes + (2 << 20);
    assert!(read_bytes(before) < most, "{}", read_bytes(before));
    let reader = log.reader();
    let before = disk.calls().read_bytes;
    reader.read(sealed.first).expect("it was appended");
    assert!(read_bytes(before) < 1 << 20, "{}", read_bytes(before));
    let before = disk.calls().read_bytes;
    reader.read(sealed.last).expect("it was appended");
    assert!(read_bytes(before) > sealed.file_bytes / 2);
    let before = disk.calls().read_bytes;
    reader.read(Seq((sealed.first.0 + sealed.last.0) / 2)).expect("it was appended");
    assert!(read_bytes(before) < 64 << 10, "{}", read_bytes(before));
}

/// A record that a compaction has dropped and one that was lost with a frame are not the same.
#[test]
fn damage_in_a_compacted_segment_is_not_taken_for_what_was_dropped() {
    let disk = SimulatedDisk::new(64 << 20);
    let config = LogConfig { chunk_cache_bytes: 1 << 20, ..config() };
    let mut log = open(&disk, config, 1);
    fill(&mut log, 6);
    compact(&mut log, 1..4, |seq| seq.0 % 2 == 0);
    housekeep(&log);
    let (compacted, next) = (log.segments()[1], log.next_seq());
    drop(log);
    let name = segment::segment_name(compacted.first);
    let mut content = disk.content(&name).expect("it is there");
    let marks: Vec<usize> = content
        .windows(4)
        .enumerate()
        .filter(|(_, bytes)| bytes == b"FRAM")
        .map(|(at, _)| at)
        .collect();
    assert!(marks.len() > 1, "what follows is read in the same chunk");
    content[marks[1]] = 0;
    disk.overwrite(&name, content);
    let log = open(&disk, config, next.0);
    let reader = log.reader();
    let (mut whole, mut corrupt) = (0, 0);
    for seq in (compacted.first.0..=compacted.last.0).filter(|seq| seq % 2 == 0) {
        match reader.read(Seq(seq)) {
            Ok(body) => {
                assert_eq!(body, BODY[..]);
                whole += 1;
            }
            Err(LogError::Corrupt { .. }) => corrupt += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(whole + corrupt, compacted.records);
    assert!(whole > 0 && corrupt > 0);
}

/// A request for room before an append is answered from the disk, not from an earlier result.
#[test]
fn room_that_is_secured_is_there_and_room_that_is_not_is_refused_before_it_is_needed() {
    for spare_segments in [0, 1, 2] {
        fill_and_make_room(LogConfig { spare_segments, ..config() });
    }
}

fn fill_and_make_room(config: LogConfig) {
    let segment = config.segment_bytes;
    let disk = SimulatedDisk::new(8 * segment);
    let mut log = open(&disk, config, 1);
    let mut batch = Batch::new();
    let mut append = |log: &mut FileLog<SimulatedDisk>| {
        (0..100).for_each(|_| batch.push(&BODY));
        let expected = log.next_seq();
        log.append(&mut batch, expected)
    };
    let refused = loop {
        match log.reserve(segment) {
            Ok(()) => assert!(matches!(append(&mut log), Ok(AppendResult::Committed(_)))),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, LogError::Full { .. }), "{refused}");
    let used = log.segments().len() as u64;
    assert!(used >= 6, "most of the disk can be used: {used} segments");
    // What was kept back is still there.
    (0..segment / 2 / (100 * 100)).for_each(|_| {
        assert!(matches!(append(&mut log), Ok(AppendResult::Committed(_))));
    });
    disk.resize(10 * segment);
    assert!(log.reserve(segment).is_err(), "the housekeeping tries again");
    housekeep(&log);
    log.reserve(segment).expect("there is room again");
}
