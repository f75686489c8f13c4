//! What is written is read; what is damaged is told.

use std::path::Path;

use egret_log::simulated::{SimulatedDisk, SplitMix64};
use proptest::prelude::*;

use super::*;

fn checkpoint(at: u64, numbers: &[u64]) -> Checkpoint {
    let labels = |number: &u64| {
        let number_text = number.to_string();
        (*number, Labels::new([("__name__", "m"), ("n", &*number_text)]))
    };
    Checkpoint {
        next_seq: Seq(at),
        flush_watermark: FlushWatermark { seq: Seq(at / 2), end: -5 },
        next_number: numbers.last().map_or(0, |last| last + 1),
        series: numbers.iter().map(labels).collect(),
    }
}

proptest! {
    #[test]
    fn the_latest_comes_back(
        numbers in prop::collection::btree_set(0_u64..1_000_000, 0..3_000),
        at in 2_u64..1_000_000,
    ) {
        let disk = SimulatedDisk::new(1 << 30);
        prop_assert_eq!(Checkpoint::read(&disk).expect("nothing is no error"), None);
        let numbers: Vec<u64> = numbers.into_iter().collect();
        let earlier = checkpoint(at - 1, &numbers[..numbers.len() / 2]);
        earlier.write(&disk).expect("it is written");
        let later = checkpoint(at, &numbers);
        later.write(&disk).expect("it is written");
        let read = Checkpoint::read(&disk).expect("it is read");
        prop_assert_eq!(read, Some(later));
        prop_assert_eq!(disk.list().expect("it is listed").len(), 1);
    }

    #[test]
    fn what_is_damaged_is_told(seed in any::<u64>()) {
        let disk = SimulatedDisk::new(1 << 30);
        let written = checkpoint(9, &[1, 5, 7]);
        written.write(&disk).expect("it is written");
        let name = file_name(Seq(9));
        let file = disk.open(&name).expect("it is there");
        let size_bytes = file.size_bytes().expect("it has one") as usize;
        let mut bytes = egret_log::read_exactly(&file, 0, size_bytes).expect("it is read");
        SplitMix64::new(seed).damage(&mut bytes);
        disk.remove(&name).expect("it was there");
        let file = disk.create(&name).expect("it is not there");
        write_all(&file, &bytes, 0).expect("it is written");
        match Checkpoint::read(&disk) {
            Err(SeriesError::Malformed { .. }) => {}
            // What was added comes after the end.
            Ok(Some(read)) => prop_assert_eq!(read, written),
            other => prop_assert!(false, "{other:?}"),
        }
    }
}

#[test]
fn what_cannot_be_opened_or_listed_is_not_called_damaged() {
    const INPUT_OUTPUT_ERROR: i32 = 5;
    const TOO_MANY_OPEN_FILES: i32 = 24;
    let io_error = |action, code| {
        let error = io::Error::from_raw_os_error(code);
        SeriesError::io(action, Path::new("checkpoint-0000000000000009"), error)
    };
    assert!(is_damage(&io_error(READ_ACTION, INPUT_OUTPUT_ERROR)));
    assert!(!is_damage(&io_error(READ_ACTION, TOO_MANY_OPEN_FILES)));
    assert!(!is_damage(&io_error("opening", INPUT_OUTPUT_ERROR)));
    assert!(!is_damage(&io_error("listing", INPUT_OUTPUT_ERROR)));
}

#[test]
fn a_later_version_is_told_whatever_follows_its_head() {
    let disk = SimulatedDisk::new(1 << 20);
    let mut head = vec![0; 4];
    put_frame(&mut head, &[9, 1, 0, 0]);
    head[0] = head.len() as u8 - 4;
    head.extend([0xff; 40]);
    let name = file_name(Seq(9));
    drop(disk.create(&name).expect("it is made"));
    disk.overwrite(&name, head);
    let error = Checkpoint::read(&disk).expect_err("it is not read");
    let is_version_error = matches!(error, SeriesError::UnknownVersion { version: 9, .. });
    assert!(is_version_error && !is_damage(&error), "{error:?}");
}

#[test]
fn other_files_are_left_alone() {
    let disk = SimulatedDisk::new(1 << 30);
    drop(disk.create("checkpoint-7").expect("it is made"));
    checkpoint(3, &[]).write(&disk).expect("it is written");
    let mut names = disk.list().expect("it is listed");
    names.sort();
    assert_eq!(names, ["checkpoint-0000000000000003", "checkpoint-7"]);
}

#[test]
fn pieces_are_small_whatever_the_labels() {
    let disk = SimulatedDisk::new(1 << 30);
    let long = "x".repeat(64 << 10);
    let labels = |number: u64| {
        let names: Vec<String> = (0..8).map(|label| format!("l{label}")).collect();
        let pairs = names.iter().map(|name| (name.as_str(), long.as_str()));
        (number, Labels::new(pairs))
    };
    let written = Checkpoint { series: (0..40).map(labels).collect(), ..checkpoint(9, &[39]) };
    written.write(&disk).expect("it is written");
    let read = Checkpoint::read(&disk).expect("it is read");
    assert!(read.as_ref() == Some(&written), "it is another");
    let file = disk.open(&file_name(Seq(9))).expect("it is there");
    let (mut offset, mut frames) = (0, 0);
    while offset < file.size_bytes().expect("it has one") {
        let length = egret_log::read_exactly(&file, offset, 4).expect("it is read");
        let length = u32::from_le_bytes(length.try_into().expect("four bytes"));
        offset += 4 + u64::from(length);
        frames += 1;
    }
    // Two series of half a MiB reach the size; the head and the end are frames as well.
    assert_eq!(frames, 40 / 2 + 2);
}
