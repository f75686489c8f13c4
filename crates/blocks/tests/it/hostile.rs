//! Files whose bytes are not what was written: never a panic, never a wrong sample, and errors say
//! which block.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use egret_blocks::block::{BlockError, DamageExtent};
use egret_blocks::catalog::BlockLimits;
use egret_blocks::core::BlockId;
use egret_blocks::core::plan::{Policy, plan};
use egret_log::Disk;
use egret_log::simulated::{SimulatedDisk, SplitMix64};
use egret_metrics_model::{Labels, MatchOp, SeriesSamples, TimeMs};

use super::{Content, content, matcher, open, publish};

fn written(disk: &SimulatedDisk) -> Content {
    let mut chance = SplitMix64::new(1);
    let mut all = Content::new();
    for series in 0..200 {
        let instance = format!("host-{series:03}");
        let labels = Labels::new([("__name__", "up"), ("instance", &*instance), ("job", "node")]);
        let mut time_ms = 0;
        let samples = (0..100).map(|_| {
            time_ms += 1 + chance.next_below(1000) as i64;
            (time_ms, (chance.next_below(100_000) as f64 / 10.0).to_bits())
        });
        all.insert(labels, samples.collect());
    }
    let catalog = open(disk).expect("the disk works");
    publish(&catalog, &all).expect("the disk works");
    all
}

fn block_name(disk: &SimulatedDisk) -> String {
    let names = disk.list().expect("the disk works");
    names.into_iter().find(|name| name.starts_with("block-")).expect("there is a block")
}

#[test]
fn a_damaged_block_is_set_aside_or_named_or_tells_the_truth() {
    let disk = SimulatedDisk::new(16 << 20);
    let all = written(&disk);
    let name = block_name(&disk);
    let whole = disk.content(&name).expect("it is there");
    let mut chance = SplitMix64::new(2);
    for _ in 0..1500 {
        let mut damaged = whole.clone();
        chance.damage(&mut damaged);
        let disk = SimulatedDisk::new(16 << 20);
        drop(disk.create(&name).expect("the disk is empty"));
        disk.overwrite(&name, damaged);
        let catalog = match open(&disk) {
            Ok(catalog) => catalog,
            Err(BlockError::UnknownVersion { .. }) => continue,
            Err(other) => panic!("{other}"),
        };
        let snapshot = catalog.snapshot();
        let Some(block) = snapshot.blocks().first() else {
            let aside = &catalog.quarantined()[0];
            assert_eq!(aside.name, format!("quarantine-{name}"));
            assert!(aside.reason.is_some());
            continue;
        };
        let mut read = SeriesSamples::default();
        for series in 0..block.series() {
            read.clear();
            let labels = block.labels(series);
            match (labels, block.read(series, TimeMs::MIN, TimeMs::MAX, &mut read)) {
                (Ok(labels), Ok(())) => {
                    let bits = read.values.iter().map(|value| value.to_bits());
                    let samples: BTreeMap<TimeMs, u64> =
                        read.times_ms.iter().copied().zip(bits).collect();
                    assert_eq!(samples, all[&labels]);
                }
                (Err(error), _) | (_, Err(error)) => {
                    assert!(
                        matches!(error, BlockError::Corrupt { block: id, .. } if id == block.id())
                    );
                    assert!(read.is_empty(), "nothing is given with an error");
                }
            }
        }
        match block.select(&[matcher("instance", MatchOp::Matches, "host-0.*")]) {
            Ok(selected) => assert_eq!(selected, (0..100).collect::<Vec<u32>>()),
            Err(error) => {
                assert!(matches!(error, BlockError::Corrupt { damage: DamageExtent::Index, .. }))
            }
        }
    }
}

#[test]
fn damage_to_samples_leaves_other_series_readable() {
    let disk = SimulatedDisk::new(16 << 20);
    let all = written(&disk);
    let name = block_name(&disk);
    let mut damaged = disk.content(&name).expect("it is there");
    damaged[2000] ^= 1;
    disk.overwrite(&name, damaged);
    let catalog = open(&disk).expect("header and footer are whole");
    let snapshot = catalog.snapshot();
    let block = &snapshot.blocks()[0];
    let mut failed = 0;
    let mut read = SeriesSamples::default();
    for series in 0..block.series() {
        match block.read(series, TimeMs::MIN, TimeMs::MAX, &mut read) {
            Ok(()) => {}
            Err(BlockError::Corrupt { damage: DamageExtent::Samples, .. }) => failed += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!((failed, block.series() as usize), (1, all.len()));
}

#[test]
fn a_block_with_a_damaged_index_is_set_aside_while_others_answer() {
    let disk = SimulatedDisk::new(16 << 20);
    let all = written(&disk);
    let catalog = open(&disk).expect("the disk works");
    let second = publish(&catalog, &all).expect("the disk works");
    let first = catalog.snapshot().blocks()[0].id();
    catalog.delete(first, [3].into_iter().collect(), 0, 10).expect("the disk works");
    let damage = BlockError::Corrupt {
        block: first,
        offset: 7,
        what: "a page of series",
        damage: DamageExtent::Index,
    };
    catalog.record_read_error(&damage).expect("the disk works");
    let left = |snapshot: &egret_blocks::catalog::Snapshot| -> Vec<_> {
        snapshot.blocks().iter().map(|block| block.id()).collect()
    };
    assert_eq!(left(&catalog.snapshot()), [second]);
    assert!(
        catalog.quarantined()[0]
            .reason
            .as_ref()
            .is_some_and(|reason| reason.contains("a page of series"))
    );
    let catalog = open(&disk).expect("the disk works");
    assert_eq!(left(&catalog.snapshot()), [second]);
    assert_eq!(content(&catalog.snapshot().blocks()[0]).expect("it is whole"), all);
    let names: Vec<String> = catalog.quarantined().into_iter().map(|aside| aside.name).collect();
    assert_eq!(
        names,
        [format!("quarantine-block-{first}"), format!("quarantine-tombstones-{first}")]
    );
}

#[test]
fn a_block_with_damaged_samples_is_not_rewritten_and_holds_nobody_up() {
    let disk = SimulatedDisk::new(16 << 20);
    let all = written(&disk);
    let name = block_name(&disk);
    let mut damaged = disk.content(&name).expect("it is there");
    damaged[2000] ^= 1;
    disk.overwrite(&name, damaged);
    let catalog = open(&disk).expect("header and footer are whole");
    let second = publish(&catalog, &all).expect("the disk works");
    let third = publish(&catalog, &all).expect("the disk works");
    let policy = Policy::default();
    let mut done = Vec::new();
    for _ in 0..3 {
        let facts = catalog.collect_facts(&policy).expect("the indexes are whole");
        for job in plan(&facts, &policy, 1 << 50) {
            let result = catalog
                .run_job(&job, &policy, BlockLimits::default(), &mut |_| ControlFlow::Continue(()));
            done.push((job.sources, result.is_ok()));
        }
    }
    let first = BlockId(1);
    assert_eq!(done, [(vec![first, second, third], false), (vec![second, third], true)]);
    assert_eq!(catalog.damaged().into_iter().collect::<Vec<_>>(), [first]);
}

#[test]
fn damaged_tombstones_bring_nothing_back() {
    let disk = SimulatedDisk::new(16 << 20);
    written(&disk);
    let catalog = open(&disk).expect("the disk works");
    let id = catalog.snapshot().blocks()[0].id();
    catalog.delete(id, (0..200).collect(), TimeMs::MIN, TimeMs::MAX).expect("the disk works");
    let name = format!("tombstones-{id}");
    let mut damaged = disk.content(&name).expect("it is there");
    damaged[6] ^= 1;
    disk.overwrite(&name, damaged);
    let catalog = open(&disk).expect("the rest is whole");
    assert!(catalog.snapshot().blocks().is_empty(), "what was deleted would be there again");
    assert_eq!(catalog.quarantined().len(), 2);
}

#[test]
fn files_of_others_are_left_alone() {
    let disk = SimulatedDisk::new(1 << 20);
    let names =
        ["lock", "block-12", "block-00000000000000zz", "notes.new", "block-0000000000000001.old"];
    names.iter().for_each(|name| drop(disk.create(name).expect("it is new")));
    open(&disk).expect("the disk works");
    let mut left = disk.list().expect("the disk works");
    let mut expected = names.map(str::to_owned);
    left.sort_unstable();
    expected.sort_unstable();
    assert_eq!(left, expected);
}
