//! Logs of which one file is cut short, lengthened or changed: whatever the damage leaves whole is
//! kept by a repair, and what is lost is named before.

use std::collections::BTreeMap;

use egret_base::SeededEntropy;
use egret_base_test::run_over_seeds;

use super::*;
use crate::file::scan::{ScannedFrame, Window, read_frame, record_starts};
use crate::format::{FRAME_HEADER_BYTES, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::simulated::{SimulatedDisk, SplitMix64};
use crate::{AppendResult, Batch, Compaction, Durability, FileLog, Housekeeping, Log, LogReader};

const SEEDS: u64 = 200;

fn config() -> LogConfig {
    LogConfig {
        durability: Durability::Fsync,
        segment_bytes: 10 << 10,
        first_segment_bytes: 6 << 10,
        spare_segments: 0,
        recycled_segments_max: 0,
        batch_bytes_max: 5 << 10,
        index_stride_bytes: 400,
        housekeeping: Housekeeping::Owner,
        ..LogConfig::default()
    }
}

fn open(disk: &SimulatedDisk, replay_from: Seq) -> FileLog<SimulatedDisk> {
    let entropy = Arc::new(SeededEntropy::new(replay_from.0));
    let opened = FileLog::open_with(disk.clone(), config(), replay_from, entropy);
    opened.expect("the log opens").0
}

/// A log that has been closed, and the records that it has.
struct ClosedLog {
    disk: SimulatedDisk,
    bodies: BTreeMap<u64, Vec<u8>>,
    next: Seq,
}

fn write(chance: &mut SplitMix64) -> ClosedLog {
    let disk = SimulatedDisk::new(4 << 20);
    let mut log = open(&disk, Seq::FIRST);
    let mut bodies = BTreeMap::new();
    let mut batch = Batch::new();
    for _ in 0..4 + chance.next_below(50) {
        let expected = log.next_seq();
        for index in 0..1 + chance.next_below(4) {
            let body = vec![chance.next_below(256) as u8; chance.next_below(500) as usize];
            batch.push(&body);
            bodies.insert(expected.0 + index, body);
        }
        let appended = log.append(&mut batch, expected).expect("the disk works");
        assert!(matches!(appended, AppendResult::Committed(_)));
    }
    let segments = log.segments();
    if segments.len() > 3 && chance.percent(60) {
        let at = chance.next_below(segments.len() as u64 - 2) as usize;
        let (first, last) = (segments[at].first, segments[at + 1].last);
        let compaction = log.prepare_compaction(first, last).expect("they are sealed");
        let compacted = compaction.run(|seq| seq.0.is_multiple_of(3)).expect("the disk works");
        assert!(log.finish_compaction(compacted).expect("the log runs"));
        let covered = first.0..=last.0;
        bodies.retain(|seq, _| !covered.contains(seq) || seq.is_multiple_of(3));
    }
    while log.housekeep().expect("the disk works") {}
    let next = log.next_seq();
    drop(log);
    disk.kill_processes();
    ClosedLog { disk, bodies, next }
}

/// A segment's file, and where in it the frame of each record ends.
struct Layout {
    name: String,
    first: Seq,
    ends: BTreeMap<u64, u64>,
}

fn layouts(disk: &SimulatedDisk) -> Vec<Layout> {
    let mut names = disk.list().expect("the disk works");
    names.retain(|name| name.ends_with(".log"));
    names.into_iter().map(|name| layout(disk, name)).collect()
}

fn layout(disk: &SimulatedDisk, name: String) -> Layout {
    let content = disk.content(&name).expect("it is listed");
    let header = SegmentHeader::decode(&content).expect("the header is whole");
    let file = disk.open(&name).expect("it is listed");
    let mut window = Window::new(content.len() as u64);
    let mut offset = SEGMENT_HEADER_BYTES;
    let mut ends = BTreeMap::new();
    while let Ok(ScannedFrame::Frame(frame)) = read_frame(&mut window, &file, header.salt, offset) {
        let end = offset + (FRAME_HEADER_BYTES + frame.records.len()) as u64;
        ends.extend(record_starts(&frame.records).map(|(seq, _)| (seq.0, end)));
        offset += frame.header.frame_bytes();
    }
    Layout { name, first: header.first, ends }
}

/// What was done to a file.
struct FileDamage {
    /// From here on it is not what it was.
    at: u64,
    changes_length: bool,
}

fn damage(content: &mut Vec<u8>, chance: &mut SplitMix64) -> FileDamage {
    let length = content.len();
    let mut at = chance.next_below(length as u64) as usize;
    let kind = chance.next_below(5);
    match kind {
        0 => content.truncate(at),
        1 => {
            at = length;
            content.resize(length + 1 + chance.next_below(700) as usize, 0x55);
        }
        // Frames that are no part of the segment, although they look like it.
        2 => {
            at = length;
            content.extend_from_within(SEGMENT_HEADER_BYTES as usize..);
            content.push(0);
        }
        3 => content[at] ^= 1_u8 << chance.next_below(8),
        _ => {
            let end = length.min(at + 1 + chance.next_below(600) as usize);
            content[at..end].fill(0x55);
        }
    }
    FileDamage { at: at as u64, changes_length: kind < 3 }
}

/// The records that a repair must keep when the file of segment `hit` is damaged.
fn expected_records(
    layouts: &[Layout],
    hit: usize,
    fault: &FileDamage,
    replay_from: Seq,
) -> Vec<u64> {
    let has_header = fault.at >= SEGMENT_HEADER_BYTES;
    let is_whole = |end: u64| has_header && end <= fault.at;
    let of_hit = &layouts[hit].ends;
    let following = layouts.get(hit + 1);
    let goes_on = following.is_some_and(|layout| layout.first <= replay_from)
        || (has_header && of_hit.values().all(|end| is_whole(*end)));
    let mut kept = Vec::new();
    for (at, layout) in layouts.iter().enumerate() {
        let is_untouched = at < hit || (at > hit && goes_on);
        let ends =
            layout.ends.iter().filter(|(_, end)| is_untouched || (at == hit && is_whole(**end)));
        kept.extend(ends.map(|(seq, _)| *seq));
    }
    kept
}

fn contents(disk: &SimulatedDisk) -> BTreeMap<String, Option<Vec<u8>>> {
    let names = disk.list().expect("the disk works").into_iter();
    names.map(|name| (name.clone(), disk.content(&name))).collect()
}

fn check(seed: u64) {
    let mut chance = SplitMix64::new(seed);
    let ClosedLog { disk, bodies, next } = write(&mut chance);
    let layouts = layouts(&disk);
    let hit = chance.next_below(layouts.len() as u64) as usize;
    let mut content = disk.content(&layouts[hit].name).expect("it is listed");
    let fault = damage(&mut content, &mut chance);
    disk.overwrite(&layouts[hit].name, content);
    let replay_from =
        if chance.percent(50) { Seq::FIRST } else { Seq(1 + chance.next_below(next.0)) };
    let needed = ReplayNeeds { replay_from, reads_all: chance.percent(30) };
    let before = contents(&disk);
    let cut = examine(&disk, &config(), needed).expect("it is examined");
    assert!(contents(&disk) == before, "an examination changes nothing");
    let Some(cut) = cut else {
        // Other damage may lie in unused bytes, or in segments that are not read at a start.
        assert!(!fault.changes_length, "it is found");
        return;
    };
    disk.kill_processes();
    disk.remove("end").expect("there is one");
    salvage(&disk, &config(), replay_from).expect("it is repaired");
    disk.kill_processes();
    let log = open(&disk, replay_from);
    assert_eq!(log.next_seq(), cut.from);
    let kept = expected_records(&layouts, hit, &fault, replay_from);
    let reader = log.reader();
    for (seq, body) in &bodies {
        match reader.read(Seq(*seq)) {
            Ok(found) => assert_eq!(&*found, &**body, "record {seq}"),
            Err(error) => {
                assert!(!kept.contains(seq), "record {seq}: {error}");
                let named = |hole: &Hole| (hole.first.0..=hole.last.0).contains(seq);
                let is_named = (cut.from.0..cut.below.0).contains(seq);
                let is_named = is_named || cut.holes.iter().any(named);
                assert!(is_named, "record {seq} is lost, and {cut:?} does not say so");
            }
        }
    }
    drop(reader);
    drop(log);
    disk.kill_processes();
    let again = examine(&disk, &config(), needed).expect("it is examined");
    assert!(again.is_none(), "{again:?}");
}

#[test]
fn what_is_whole_is_kept_and_what_is_lost_is_named() {
    run_over_seeds("LOG_SALVAGE", SEEDS, check);
}
