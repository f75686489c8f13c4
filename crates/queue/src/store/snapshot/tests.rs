//! Writing, reading back, and what is not a snapshot.

use super::*;
use crate::core::command::{Command, Enqueue, TaskReport};
use crate::model::{QueueSettings, TaskOptions};

/// A state with some of everything, and how many results and errors it knows.
fn busy() -> (State, usize) {
    let mut state = State::default();
    let run = |state: &mut State, seq: u64, command: Command<'_>| {
        state.apply(seq, &command).unwrap();
    };
    run(&mut state, 1, Command::Clock { now_ms: 1_000, seed: 7 });
    run(&mut state, 2, Command::Epoch { epoch: 1, instance: 99, grace_ms: 0 });
    run(
        &mut state,
        3,
        Command::PutQueue {
            queue: 1,
            tenant: "t",
            name: "q",
            settings: Box::new(QueueSettings::default()),
        },
    );
    for number in 0..3_000_u64 {
        let task = Enqueue {
            queue: 1,
            shard: (number % 4_096) as u16,
            priority: (number % 10) as u8,
            run_at_ms: if number % 3 == 0 { 5_000 + number } else { 0 },
            key: u128::from(number % 7),
            unique: (number % 5 == 0).then_some((u128::from(number) + 1, 10_000)),
            options: TaskOptions {
                max_attempts: (number % 2 == 0).then_some(2),
                ..TaskOptions::default()
            },
            tags: if number % 11 == 0 { b"b\x01x" } else { b"" },
            ..Enqueue::default()
        };
        run(&mut state, 10 + number, Command::Enqueue(task));
    }
    let mut claimed = Vec::new();
    state.claim(1, "w", 300, 60_000, &mut claimed);
    let mut reports = 0;
    for (at, one) in claimed.iter().enumerate() {
        let held = TaskReport { number: one.task.number, token: one.token, content: b"\0r" };
        reports += usize::from(at % 3 < 2);
        match at % 3 {
            0 => assert!(state.complete(5_000 + at as u64, &held).unwrap()),
            1 => assert!(state.fail(5_000 + at as u64, &held, false).unwrap()),
            _ => {}
        }
    }
    (state, reports)
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn a_state_comes_back_as_it_was() {
    let directory = directory();
    let (mut state, reports) = busy();
    let mut held = Vec::new();
    let written =
        write(directory.path(), Seq(77), &state.take_snapshot(), &mut |seq| held.push(seq));
    let (seq, mut again, file_bytes) = read(directory.path()).unwrap().unwrap();
    assert_eq!((seq, file_bytes), (Seq(77), written.unwrap().file_bytes));
    assert_eq!(held.len(), 3_000 + reports);
    let other = self::directory();
    write(other.path(), Seq(77), &again.take_snapshot(), &mut |_| {}).unwrap();
    let bytes = |directory: &Path| std::fs::read(snapshot_path(directory, Seq(77))).unwrap();
    assert_eq!(bytes(directory.path()), bytes(other.path()));
}

/// On a full disk, whatever was written of it goes.
#[test]
fn one_that_is_not_written_leaves_nothing() {
    let directory = directory();
    let image = busy().0.take_snapshot();
    write(directory.path(), Seq(5), &image, &mut |_| {}).unwrap();
    std::os::unix::fs::symlink("/dev/full", directory.path().join("snapshot.new")).unwrap();
    let failed = write(directory.path(), Seq(9), &image, &mut |_| {});
    assert!(matches!(failed, Err(QueueError::Io { .. })), "{failed:?}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    assert_eq!(read(directory.path()).unwrap().unwrap().0, Seq(5));
}

#[test]
fn older_ones_go_and_damaged_ones_are_refused() {
    let directory = directory();
    assert!(read(directory.path()).unwrap().is_none());
    let image = busy().0.take_snapshot();
    for seq in [5, 9] {
        write(directory.path(), Seq(seq), &image, &mut |_| {}).unwrap();
    }
    assert_eq!(list(directory.path()).unwrap().len(), 1);
    let path = snapshot_path(directory.path(), Seq(9));
    let whole = std::fs::read(&path).unwrap();
    for at in (0..whole.len()).step_by(997) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x20;
        std::fs::write(&path, &damaged).unwrap();
        assert!(read(directory.path()).is_err(), "byte {at}");
    }
    std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    assert!(read(directory.path()).is_err());
}

/// What a later version adds to the end of an item is passed over.
#[test]
fn what_is_added_to_an_item_is_passed_over() {
    let mut to =
        BlockWriter { output: Vec::new(), block: Vec::new(), item: Vec::new(), bytes_written: 0 };
    for number in [5_u8, 6] {
        to.write_sized_item(|out| out.extend_from_slice(&[number, 99, 98])).unwrap();
    }
    to.flush().unwrap();
    let mut from =
        BlockReader { input: &to.output[..], block: Vec::new(), offset: 0, path: PathBuf::new() };
    assert_eq!(from.read_sized_item(|reader| reader.u8()).unwrap(), 5);
    assert_eq!(from.read_sized_item(|reader| reader.u8()).unwrap(), 6);
}

#[test]
fn another_version_is_named() {
    let mut bytes = Vec::new();
    write_to(&mut bytes, Seq(77), &busy().0.take_snapshot(), &mut |_| {}).unwrap();
    bytes[8] = 9;
    let error = read_from(&bytes[..], PathBuf::new()).unwrap_err().to_string();
    assert!(error.contains("version 9"), "{error}");
}
