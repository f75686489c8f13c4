//! Starts on logs that are not what they were.

use egret_base::{CodedError, SeededEntropy};
use egret_log::simulated::SimulatedDisk;
use egret_log::{Durability, Housekeeping};

use super::*;

fn config() -> LogConfig {
    LogConfig {
        durability: Durability::Fsync,
        segment_bytes: 64 << 10,
        first_segment_bytes: 8 << 10,
        batch_bytes_max: 32 << 10,
        housekeeping: Housekeeping::Owner,
        ..LogConfig::default()
    }
}

fn open(disk: &SimulatedDisk, from: u64) -> Result<FileLog<SimulatedDisk>, LogError> {
    let entropy = Arc::new(SeededEntropy::new(1));
    open_log(disk.clone(), config(), Seq(from), entropy).map(|(log, _)| log)
}

/// A log with one record for each command.
fn write(disk: &SimulatedDisk, commands: &[Command<'_>]) -> FileLog<SimulatedDisk> {
    let mut log = open(disk, 1).unwrap();
    let mut batch = Batch::new();
    for command in commands {
        batch.push_with(|out| record::encode(command, out));
        let next = log.next_seq();
        let appended = log.append(&mut batch, next).unwrap();
        assert_eq!(appended, AppendResult::Committed(next));
    }
    log
}

fn code(opened: Result<FileLog<SimulatedDisk>, LogError>) -> &'static str {
    opened.err().map_or("opened", |error| error.code())
}

#[test]
fn a_log_that_was_removed_is_missed() {
    let disk = SimulatedDisk::new(1 << 20);
    drop(write(&disk, &vec![Command::Advance { budget: 1 }; 10]));
    assert_eq!(code(open(&disk, 5)), "opened");
    for name in disk.list().unwrap() {
        disk.remove(&name).unwrap();
    }
    // Not only the first time.
    assert_eq!(code(open(&disk, 5)), "log_absent");
    assert_eq!(code(open(&disk, 5)), "log_absent");
    assert_eq!(code(open(&disk, 1)), "opened");
}

#[test]
fn a_log_that_begins_too_late_is_missed() {
    let disk = SimulatedDisk::new(16 << 20);
    let mut log = write(&disk, &vec![Command::Advance { budget: 1 }; 10_000]);
    log.truncate_below(Seq(5_000)).unwrap();
    while log.housekeep().unwrap() {}
    let first = log.first_seq().0;
    assert!(first > 1);
    drop(log);
    assert_eq!(code(open(&disk, first - 1)), "log_segment_missing");
    assert_eq!(code(open(&disk, first)), "opened");
}

#[test]
fn a_record_that_the_state_refuses_ends_the_replay() {
    let disk = SimulatedDisk::new(1 << 20);
    let clock = Command::Clock { now_ms: 1, seed: 1 };
    let log = write(&disk, &[clock, Command::Cancel { number: 9 }]);
    let replayed = replay(&log, Seq::FIRST, 3, &mut State::default()).unwrap_err();
    assert_eq!(replayed.code(), "queue_corrupt");
    let text = replayed.to_string();
    assert!(text.contains("partition 3") && text.contains("record 2"), "{text}");
}

/// The commands of a turn: the clock, a chain of three tasks where the second waits for the first,
/// and a task after it.
fn turn_with_a_chain(state: &mut State) -> Vec<Vec<u8>> {
    let settings = Box::default();
    let put = Command::PutQueue { queue: 1, tenant: "default", name: "q", settings };
    let commands = [
        put,
        Command::Chain { tasks: 3 },
        Command::Enqueue(task(b"1")),
        Command::Enqueue(task(b"2")),
        Command::Enqueue(task(b"3")),
        Command::Enqueue(task(b"alone")),
    ];
    let mut records = Vec::new();
    for (seq, command) in (1..).zip(&commands) {
        state.apply(seq, command).unwrap();
        let mut record = Vec::new();
        record::encode(command, &mut record);
        records.push(record);
    }
    records
}

fn task(content: &[u8]) -> crate::core::command::Enqueue<'_> {
    crate::core::command::Enqueue { queue: 1, priority: 5, content, ..Default::default() }
}

#[test]
fn a_chain_that_a_crash_has_cut_is_not_there() {
    let mut whole = State::default();
    let records = turn_with_a_chain(&mut whole);
    for kept in 0..=records.len() {
        let disk = SimulatedDisk::new(1 << 20);
        let mut log = open(&disk, 1).unwrap();
        let mut batch = Batch::new();
        for record in &records[..kept] {
            batch.push_with(|out| out.extend_from_slice(record));
        }
        // What a start writes after the cut, and a task that is no part of the chain.
        for command in [Command::Clock { now_ms: 1, seed: 1 }, Command::Enqueue(task(b"later"))] {
            batch.push_with(|out| record::encode(&command, out));
        }
        let next = log.next_seq();
        assert!(matches!(log.append(&mut batch, next), Ok(AppendResult::Committed(_))));
        if kept == 0 {
            continue;
        }
        let mut state = State::default();
        replay(&log, Seq(1), 0, &mut state).unwrap();
        let expected = match kept {
            1..5 => 1,
            5 => 4,
            _ => 5,
        };
        assert_eq!(state.len(), expected, "{kept} records");
    }
}
