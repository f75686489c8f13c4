//! Repair of a damaged part on real files: what it says, what it keeps, and where the original
//! stays.

mod snapshots;
mod unexamined;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use egret_base::parts::{KnownParts, claim_place, end_mark_name};
use egret_log::repair::{CountFile, Part, Snapshots};
use egret_log::{
    AppendResult, Batch, Directory, FileLog, Log, LogConfig, LogError, LogReader, Seq,
};

const RECORDS: u64 = 9;

fn part(directory: &Path) -> Part<'_> {
    Part {
        engine: "queue",
        directory,
        name: "001".to_owned(),
        record_content: "changes",
        log_only_content: "payloads",
        reads_all: false,
        part_content: "all tasks",
        snapshots: snapshot_before(Seq::FIRST),
    }
}

fn snapshot_before(replay_from: Seq) -> Snapshots {
    Snapshots { replay_from: Ok(replay_from), older: None }
}

fn open(directory: &Path) -> FileLog {
    let disk = Directory::open(&directory.join("001/log")).expect("the directory opens");
    let opened = FileLog::open(disk, LogConfig::default(), Seq::FIRST);
    opened.expect("the log opens").0
}

/// A part with a log of [`RECORDS`] records, known to the directory, and nothing that runs.
fn write(directory: &Path) {
    let mut log = open(directory);
    let mut batch = Batch::new();
    for seq in 1..=RECORDS {
        batch.push(format!("record {seq}").as_bytes());
        let appended = log.append(&mut batch, Seq(seq)).expect("the disk works");
        assert_eq!(appended, AppendResult::Committed(Seq(seq)));
    }
    let known = KnownParts::read(directory).expect("the directory can be read");
    let note = known.change(|parts| {
        parts.insert("001".to_owned(), RECORDS + 1);
    });
    note.expect("the list is written");
}

fn flip_record(directory: &Path, seq: u64) {
    let path = directory.join("001/log/00000000000000000001.log");
    let mut content = fs::read(&path).expect("the segment is there");
    let body = format!("record {seq}");
    let at = content
        .windows(body.len())
        .position(|window| window == body.as_bytes())
        .expect("the record is there");
    content[at] ^= 1;
    fs::write(&path, content).expect("the segment is written");
}

#[test]
fn a_damaged_log_is_cut_before_its_first_bad_record_and_the_original_stays() {
    let place = tempfile::tempdir().expect("a directory");
    write(place.path());
    assert_eq!(part(place.path()).examine().expect("it is examined"), None);
    flip_record(place.path(), 4);
    let damaged = fs::read(place.path().join("001/log/00000000000000000001.log")).ok();
    let finding = part(place.path()).examine().expect("it is examined").expect("it is damaged");
    assert_eq!(finding.part, "queue/001");
    assert_eq!(finding.loss, "6 records (changes), numbers 4 to 9");
    let mended = part(place.path()).repair("now").expect("it is mended");
    assert_eq!(mended, Some(finding));
    let kept = place.path().join("001.damaged-now/log/00000000000000000001.log");
    assert_eq!(fs::read(kept).ok(), damaged);
    assert_eq!(part(place.path()).examine().expect("it is examined"), None);
    let log = open(place.path());
    assert_eq!(log.next_seq(), Seq(4));
    assert_eq!(&*log.reader().read(Seq(3)).expect("it is kept"), b"record 3");
    let known = KnownParts::read(place.path()).expect("the directory can be read");
    assert_eq!(known.number("001"), Some(4));
}

#[test]
fn the_last_record_alone_is_lost_when_it_alone_is_damaged() {
    let place = tempfile::tempdir().expect("a directory");
    write(place.path());
    flip_record(place.path(), RECORDS);
    let finding = part(place.path()).repair("now").expect("it is mended");
    let loss = finding.expect("it was damaged").loss;
    assert_eq!(loss, "1 record (changes), number 9");
    assert_eq!(open(place.path()).next_seq(), Seq(RECORDS));
}

/// Changes the only segment of the part.
fn change_segment(directory: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let path = directory.join("001/log/00000000000000000001.log");
    let mut content = fs::read(&path).expect("the segment is there");
    change(&mut content);
    fs::write(&path, content).expect("the segment is written");
}

/// Where the last byte of a segment's last record is.
fn last_byte(content: &[u8]) -> usize {
    let at = content.iter().rposition(|byte| *byte != 0);
    at.expect("it has a record")
}

#[test]
fn a_segment_that_is_cut_short_loses_what_is_not_whole_any_more() {
    let place = tempfile::tempdir().expect("a directory");
    write(place.path());
    let segment = place.path().join("001/log/00000000000000000001.log");
    let length = segment.metadata().expect("it is there").len();
    change_segment(place.path(), |content| {
        let at = last_byte(content);
        content.truncate(at);
    });
    let finding = part(place.path()).examine().expect("it is examined").expect("it is damaged");
    assert_eq!(finding.loss, "1 record (changes), number 9");
    assert!(finding.action.contains("extend"), "{}", finding.action);
    let mended = part(place.path()).repair("now").expect("it is mended");
    assert_eq!(mended, Some(finding));
    assert_eq!(segment.metadata().expect("it is there").len(), length);
    let mut log = open(place.path());
    assert_eq!(log.next_seq(), Seq(RECORDS));
    let mut batch = Batch::new();
    batch.push(b"another");
    let appended = log.append(&mut batch, Seq(RECORDS));
    assert_eq!(appended.expect("the disk works"), AppendResult::Committed(Seq(RECORDS)));
    drop(log);
    let log = open(place.path());
    let reader = log.reader();
    assert_eq!(&*reader.read(Seq(8)).expect("it is kept"), b"record 8");
    assert_eq!(&*reader.read(Seq(9)).expect("it is new"), b"another");
}

#[test]
fn a_segment_with_something_behind_it_loses_nothing() {
    let place = tempfile::tempdir().expect("a directory");
    write(place.path());
    change_segment(place.path(), |content| content.extend([0x55_u8; 300]));
    let segment = place.path().join("001/log/00000000000000000001.log");
    let damaged = fs::read(&segment).ok();
    let finding = part(place.path()).repair("now").expect("it is mended").expect("it was damaged");
    assert_eq!(finding.loss, "nothing");
    assert!(finding.action.starts_with("cut 300 bytes off"), "{}", finding.action);
    let kept = place.path().join("001.damaged-now/log/00000000000000000001.log");
    assert_eq!(fs::read(kept).ok(), damaged);
    assert_eq!(open(place.path()).next_seq(), Seq(RECORDS + 1));
}

/// The log's front is still needed: payloads are there that the snapshot only refers to.
#[test]
fn records_before_the_snapshot_are_kept_up_to_the_damage() {
    let place = tempfile::tempdir().expect("a directory");
    write(place.path());
    let part = Part { snapshots: snapshot_before(Seq(7)), ..part(place.path()) };
    flip_record(place.path(), 4);
    let finding = part.repair("now").expect("it is mended").expect("it was damaged");
    assert_eq!(
        finding.loss,
        "3 records (changes), numbers 7 to 9; data of the snapshot that only records 4 to 6 hold (payloads)"
    );
    assert_eq!(part.examine().expect("it is examined"), None);
    let log = open(place.path());
    assert_eq!(log.next_seq(), Seq(7));
    let reader = log.reader();
    assert_eq!(&*reader.read(Seq(3)).expect("it is kept"), b"record 3");
    assert!(reader.read(Seq(4)).is_err());
}

#[test]
fn a_first_segment_that_was_removed_is_missed() {
    let place = tempfile::tempdir().expect("a directory");
    let log_path = place.path().join("001/log");
    let disk = Directory::open(&log_path).expect("the directory opens");
    let opened = FileLog::open(disk, small_config(), Seq::FIRST);
    let mut log = opened.expect("it opens").0;
    fill(&mut log, 8);
    drop(log);
    fs::remove_file(log_path.join("00000000000000000001.log")).expect("it was there");
    let finding = part(place.path())
        .examine()
        .expect("it is examined")
        .expect("the owner cannot begin with what is left");
    assert!(finding.problem.contains("are missing from"), "{}", finding.problem);
    assert!(finding.loss.ends_with("numbers 1 to 8"), "{}", finding.loss);
}

#[test]
fn a_part_that_is_gone_is_begun_empty() {
    let place = tempfile::tempdir().expect("a directory");
    write(place.path());
    fs::remove_dir_all(place.path().join("001")).expect("it was there");
    let finding = part(place.path()).repair("now").expect("it is mended").expect("it was missing");
    let loss = "everything in it, all tasks: 9 records (changes)";
    assert_eq!(finding.loss, loss);
    assert_eq!(finding.action, "create it empty");
    let known = KnownParts::read(place.path()).expect("the directory can be read");
    assert_eq!(known.number("001"), None);
}

#[test]
fn a_damaged_header_loses_the_segment_and_what_follows() {
    let place = tempfile::tempdir().expect("a directory");
    write(place.path());
    let path = place.path().join("001/log/00000000000000000001.log");
    let mut content = fs::read(&path).expect("the segment is there");
    content[20] ^= 1;
    fs::write(&path, content).expect("the segment is written");
    let finding = part(place.path()).repair("now").expect("it is mended").expect("it was damaged");
    assert_eq!(finding.loss, "9 records (changes), numbers 1 to 9");
    assert_eq!(open(place.path()).next_seq(), Seq(1));
}

fn small_config() -> LogConfig {
    LogConfig {
        segment_bytes: 256 << 10,
        first_segment_bytes: 256 << 10,
        batch_bytes_max: 128 << 10,
        recycled_segments_max: 8,
        ..LogConfig::default()
    }
}

#[test]
fn the_original_stays_as_it_was_when_the_repaired_log_goes_on() {
    let place = tempfile::tempdir().expect("a directory");
    let log_path = place.path().join("001/log");
    let disk = Directory::open(&log_path).expect("the directory opens");
    let mut log = FileLog::open(disk, small_config(), Seq::FIRST).expect("it opens").0;
    fill(&mut log, 8);
    drop(log);
    let segments = segments(&log_path);
    assert!(segments.len() > 3, "{segments:?}");
    let (last, _) = segments.last_key_value().expect("there are some");
    flip_last_byte(&log_path.join(last));
    let damaged = self::segments(&log_path);
    let part = part(place.path());
    part.repair("now").expect("it is mended").expect("it was damaged");
    let disk = Directory::open(&log_path).expect("the directory opens");
    let mut log = FileLog::open(disk, small_config(), Seq::FIRST).expect("it opens").0;
    // Segments that are dropped are written anew as spare ones, but not those that the original has
    // too.
    log.truncate_below(log.next_seq()).expect("the log runs");
    fill(&mut log, 12);
    drop(log);
    let kept = self::segments(&place.path().join("001.damaged-now/log"));
    assert!(kept == damaged, "the original has changed");
}

fn flip_last_byte(segment: &Path) {
    let mut content = fs::read(segment).expect("the segment is there");
    let at = last_byte(&content);
    content[at] ^= 1;
    fs::write(segment, content).expect("the segment is written");
}

/// Without its end mark a copy of the log can be opened: its end looks like an interrupted write,
/// and nothing is read of what the snapshot has.
#[test]
fn what_is_announced_is_done_where_only_the_end_mark_tells_of_the_damage() {
    let place = tempfile::tempdir().expect("a directory");
    let log_path = place.path().join("001/log");
    let open = || {
        let disk = Directory::open(&log_path).expect("the directory opens");
        FileLog::open(disk, small_config(), Seq(5)).expect("it opens").0
    };
    let disk = Directory::open(&log_path).expect("the directory opens");
    let opened = FileLog::open(disk, small_config(), Seq::FIRST);
    let mut log = opened.expect("it opens").0;
    fill(&mut log, 8);
    drop(log);
    let names: Vec<String> = segments(&log_path).into_keys().collect();
    // The last record of the first segment, and the last of all.
    for name in [names.first(), names.last()] {
        flip_last_byte(&log_path.join(name.expect("there are some")));
    }
    let part = Part { snapshots: snapshot_before(Seq(5)), ..part(place.path()) };
    let finding = part.repair("now").expect("it is mended").expect("it was damaged");
    assert!(finding.action.contains("close"), "{}", finding.action);
    let log = open();
    assert_eq!(log.next_seq(), Seq(8));
    let reader = log.reader();
    for seq in [1, 3, 7] {
        assert!(reader.read(Seq(seq)).is_ok(), "record {seq} is kept");
    }
    let lost = reader.read(Seq(2));
    assert!(matches!(lost, Err(LogError::Compacted { seq: Seq(2) })), "{lost:?}");
}

/// Appends records of which two make a batch full.
fn fill(log: &mut FileLog, records: u64) {
    let mut batch = Batch::new();
    for _ in 0..records {
        batch.push(&[7; 100 << 10]);
        let expected = log.next_seq();
        let appended = log.append(&mut batch, expected).expect("the disk works");
        assert_eq!(appended, AppendResult::Committed(expected));
    }
}

/// The segments of a log, by their names.
fn segments(log: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(log).expect("the directory is there");
    let names = entries
        .map(|entry| entry.expect("it is read").file_name())
        .map(|name| name.into_string().expect("a name of a log"));
    let segments = names.filter(|name| name.ends_with(".log"));
    let read = |name: String| {
        let content = fs::read(log.join(&name)).expect("it is read");
        (name, content)
    };
    segments.map(read).collect()
}

#[test]
fn the_number_of_parts_is_found_again() {
    let place = tempfile::tempdir().expect("a directory");
    write(place.path());
    let count = CountFile { engine: "queue", directory: place.path(), name: "partitions" };
    fs::write(place.path().join("partitions"), [0xff; 4]).expect("it is written");
    assert_eq!(count.count().expect("it is counted"), 2);
    let finding = count.repair().expect("it is mended").expect("it was damaged");
    assert_eq!(finding.part, "queue/partitions");
    assert_eq!(finding.loss, "nothing");
    let text = fs::read_to_string(place.path().join("partitions")).expect("it is read");
    assert_eq!(text, "2\n");
    assert_eq!(count.examine().expect("it is examined"), None);
}

#[test]
fn a_part_in_the_place_of_another_and_a_log_without_its_mark_are_named() {
    let place = tempfile::tempdir().expect("a directory");
    write(place.path());
    let known = KnownParts::read(place.path()).expect("the directory can be read");
    let noted = known.change(|known| {
        known.insert(end_mark_name("001"), 1);
    });
    noted.expect("the list is written");
    assert_eq!(part(place.path()).examine().expect("it is examined"), None);
    fs::remove_file(place.path().join("001/log/end")).expect("there is one");
    let finding = part(place.path()).repair("now").expect("it is mended");
    let problem = finding.expect("the mark is missed").problem;
    assert!(problem.ends_with("log/end is missing"), "{problem}");
    assert_eq!(part(place.path()).examine().expect("it is examined"), None);
    claim_place(&place.path().join("001"), "queue/000").expect("it says nothing yet");
    let finding = part(place.path()).examine().expect("it is examined");
    let problem = finding.expect("it is another part").problem;
    assert!(problem.ends_with("is the directory of queue/000"), "{problem}");
}

/// The other part's tasks stay under the name that the repair gives its directory.
#[test]
fn a_misplaced_part_is_set_aside_whole_and_begun_empty() {
    let place = tempfile::tempdir().expect("a directory");
    write(place.path());
    claim_place(&place.path().join("001"), "queue/000").expect("it says nothing yet");
    let examined = part(place.path()).examine().expect("it is examined");
    let finding = part(place.path()).repair("now").expect("it is mended");
    assert_eq!(finding, examined);
    let finding = finding.expect("it is another part");
    assert_eq!(finding.action, "create it empty");
    let known = KnownParts::read(place.path()).expect("the directory can be read");
    assert_eq!(known.number("001"), None);
    assert_eq!(part(place.path()).examine().expect("it is examined"), None);
    assert!(!place.path().join("001").exists());
    fs::rename(place.path().join("001.damaged-now"), place.path().join("001")).expect("it is kept");
    assert_eq!(open(place.path()).next_seq(), Seq(RECORDS + 1));
}
