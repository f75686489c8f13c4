//! What is written is read; what is damaged is told.

use egret_log::simulated::{Chance, SimulatedDisk};
use proptest::prelude::*;

use super::*;

fn checkpoint(at: u64, numbers: &[u64]) -> Checkpoint {
    let labels = |number: &u64| {
        let number_text = number.to_string();
        (
            *number,
            Labels::new([("__name__", "m"), ("n", &*number_text)]),
        )
    };
    Checkpoint {
        at: Seq(at),
        in_blocks: InBlocks {
            seq: Seq(at / 2),
            end: -5,
        },
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
        let name = name_of(Seq(9));
        let file = disk.open(&name).expect("it is there");
        let size_bytes = file.size_bytes().expect("it has one") as usize;
        let mut bytes = egret_log::read_exactly(&file, 0, size_bytes).expect("it is read");
        Chance::new(seed).damage(&mut bytes);
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
fn other_files_are_left_alone() {
    let disk = SimulatedDisk::new(1 << 30);
    drop(disk.create("checkpoint-7").expect("it is made"));
    checkpoint(3, &[]).write(&disk).expect("it is written");
    let mut names = disk.list().expect("it is listed");
    names.sort();
    assert_eq!(names, ["checkpoint-0000000000000003", "checkpoint-7"]);
}
