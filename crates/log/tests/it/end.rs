//! The end of a log is known: what is missing or bad before it is damage, whatever way the log
//! ended.

use std::sync::Arc;

use egret_base::SeededEntropy;
use egret_log::simulated::{Fault, SimulatedDisk};
use egret_log::{AppendResult, Batch, Disk, Durability, FileLog, Log, LogConfig, LogError, Seq};

use crate::simulator::small_config;

const FIRST: &str = "00000000000000000001.log";
const RECORDS: u64 = 5;

fn open(disk: &SimulatedDisk, config: LogConfig) -> Result<FileLog<SimulatedDisk>, LogError> {
    let entropy = Arc::new(SeededEntropy::new(1));
    FileLog::open_with(disk.clone(), config, Seq::FIRST, entropy).map(|(log, _)| log)
}

fn append(log: &mut FileLog<SimulatedDisk>, body: &str) {
    let mut batch = Batch::new();
    batch.push(body.as_bytes());
    let expected = log.next_seq();
    let appended = log.append(&mut batch, expected).expect("the disk works");
    assert_eq!(appended, AppendResult::Committed(expected));
}

fn written_log() -> (SimulatedDisk, FileLog<SimulatedDisk>) {
    let disk = SimulatedDisk::new(1 << 20);
    let mut log = open(&disk, small_config(Durability::Fsync)).expect("the disk works");
    (1..=RECORDS).for_each(|seq| append(&mut log, &format!("record {seq}")));
    (disk, log)
}

/// Changes one bit of the last record.
fn flip_last_record(disk: &SimulatedDisk) {
    let mut content = disk.content(FIRST).expect("the segment is there");
    let body = format!("record {RECORDS}");
    let at = content
        .windows(body.len())
        .position(|window| window == body.as_bytes())
        .expect("the record is there");
    content[at] ^= 1;
    disk.overwrite(FIRST, content);
}

fn flip(disk: &SimulatedDisk, name: &str, at: usize) {
    let mut content = disk.content(name).expect("the file is there");
    content[at] ^= 1;
    disk.overwrite(name, content);
}

fn code(opened: Result<FileLog<SimulatedDisk>, LogError>) -> &'static str {
    match opened {
        Ok(_) => "opened",
        Err(error) => egret_base::CodedError::code(&error),
    }
}

#[test]
fn a_flipped_bit_in_the_last_record_of_a_closed_log_is_corruption() {
    let (disk, log) = written_log();
    drop(log);
    disk.kill_processes();
    flip_last_record(&disk);
    match open(&disk, small_config(Durability::Fsync)) {
        Err(LogError::Corrupt { seq, .. }) => assert_eq!(seq, Seq(RECORDS)),
        other => panic!("{}", code(other)),
    }
}

#[test]
fn so_it_is_when_the_process_was_killed() {
    let (disk, log) = written_log();
    disk.kill_processes();
    drop(log);
    flip_last_record(&disk);
    assert_eq!(code(open(&disk, small_config(Durability::Fsync))), "log_corrupt");
}

#[test]
fn a_log_that_was_never_synced_is_sealed_when_it_is_closed() {
    let disk = SimulatedDisk::new(1 << 20);
    let mut log = open(&disk, small_config(Durability::None)).expect("the disk works");
    (1..=RECORDS).for_each(|seq| append(&mut log, &format!("record {seq}")));
    drop(log);
    disk.kill_processes();
    flip_last_record(&disk);
    assert_eq!(code(open(&disk, small_config(Durability::None))), "log_corrupt");
}

#[test]
fn an_append_that_a_crash_interrupted_is_cut() {
    let (disk, mut log) = written_log();
    disk.inject(Fault::PowerLoss(60));
    let mut batch = Batch::new();
    batch.push(&[7; 300]);
    let expected = log.next_seq();
    assert!(log.append(&mut batch, expected).is_err());
    disk.kill_processes();
    drop(log);
    let log = open(&disk, small_config(Durability::Fsync)).expect("only its end is torn");
    assert_eq!(log.next_seq(), expected);
}

#[test]
fn segments_that_are_gone_are_missed() {
    let (disk, mut log) = written_log();
    while log.segments().len() < 3 {
        append(&mut log, &"x".repeat(900));
    }
    drop(log);
    disk.kill_processes();
    let mut names = disk.list().expect("the disk works");
    names.retain(|name| name.ends_with(".log"));
    disk.remove(&names[2]).expect("it is listed");
    assert_eq!(code(open(&disk, small_config(Durability::Fsync))), "log_shortened");
    disk.kill_processes();
    disk.remove(&names[0]).expect("it is listed");
    disk.remove(&names[1]).expect("it is listed");
    assert_eq!(code(open(&disk, small_config(Durability::Fsync))), "log_absent");
}

#[test]
fn an_older_copy_is_refused_by_an_owner_who_knows_better() {
    let (disk, log) = written_log();
    drop(log);
    disk.kill_processes();
    let config = |durable_below| LogConfig {
        durable_below: Seq(durable_below),
        ..small_config(Durability::Fsync)
    };
    assert_eq!(code(open(&disk, config(RECORDS + 2))), "log_shortened");
    disk.kill_processes();
    assert_eq!(code(open(&disk, config(RECORDS + 1))), "opened");
    let empty = SimulatedDisk::new(1 << 20);
    assert_eq!(code(open(&empty, config(2))), "log_absent");
}

#[test]
fn a_log_of_a_version_without_a_mark_gets_one() {
    let (disk, log) = written_log();
    drop(log);
    disk.kill_processes();
    disk.remove("end").expect("there is one");
    flip_last_record(&disk);
    let log = open(&disk, small_config(Durability::Fsync)).expect("nothing proves the record");
    assert_eq!(log.next_seq(), Seq(RECORDS));
    drop(log);
    disk.kill_processes();
    assert!(disk.content("end").is_some());
}

#[test]
fn a_log_that_had_a_mark_must_have_it() {
    let must_have = || LogConfig { end_mark_must_exist: true, ..small_config(Durability::Fsync) };
    let (disk, log) = written_log();
    assert!(log.has_end_mark());
    drop(log);
    disk.kill_processes();
    assert_eq!(code(open(&disk, must_have())), "opened");
    disk.kill_processes();
    disk.remove("end").expect("there is one");
    assert_eq!(code(open(&disk, must_have())), "log_corrupt");
    disk.kill_processes();
    assert!(disk.content("end").is_none(), "none is made in silence");
}

#[test]
fn one_slot_of_the_mark_is_enough() {
    let (disk, log) = written_log();
    drop(log);
    disk.kill_processes();
    let next = Seq(RECORDS + 1);
    flip(&disk, "end", 20);
    flip(&disk, "end", 532);
    let log = open(&disk, small_config(Durability::Fsync)).expect("the last slot is whole");
    assert_eq!(log.next_seq(), next);
    drop(log);
    disk.kill_processes();
    for slot in 0..3 {
        flip(&disk, "end", 512 * slot + 20);
    }
    assert_eq!(code(open(&disk, small_config(Durability::Fsync))), "log_corrupt");
}
