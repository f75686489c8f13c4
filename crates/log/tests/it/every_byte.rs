//! One scenario, stopped after every single step that it takes on its disk.

use std::sync::Arc;
use std::time::Duration;

use egret_base::SeededEntropy;
use egret_log::simulated::{Chance, Fault, SimulatedDisk};
use egret_log::{Appended, Batch, Compaction, Durability, FileLog, Log, LogError, Seq};

use crate::model::Model;
use crate::simulator::small;

const DISK_BYTES: u64 = 1 << 20;

/// A new log, some appends with a roll, a compaction, a truncation, more appends.
fn scenario(
    disk: &SimulatedDisk,
    durability: Durability,
    model: &mut Model,
) -> Result<(), LogError> {
    let entropy = Arc::new(SeededEntropy::new(5));
    let config = small(durability);
    let (mut log, _) = FileLog::open_with(disk.clone(), config, Seq::FIRST, entropy)?;
    append(&mut log, model, 24)?;
    while log.housekeep()? {}
    let (first, last) = (log.segments()[0].first, log.segments()[1].last);
    let compacted = log.compact(first, last)?.run(|seq| seq.0 % 2 == 0)?;
    if log.finish(compacted)? {
        model.dropped(first.0, last.0, |seq| seq % 2 == 0);
    }
    while log.housekeep()? {}
    append(&mut log, model, 6)?;
    log.sync()?;
    model.durable_below = model.next();
    let newest = log
        .segments()
        .last()
        .map_or(Seq(1), |segment| segment.first);
    model.truncated_below = newest.0;
    log.truncate_below(newest)?;
    while log.housekeep()? {}
    append(&mut log, model, 3)
}

fn append(
    log: &mut FileLog<SimulatedDisk>,
    model: &mut Model,
    batches: u64,
) -> Result<(), LogError> {
    let mut batch = Batch::new();
    for _ in 0..batches {
        let bodies: Vec<Vec<u8>> = (0..3).map(|byte| vec![byte; 150 * byte as usize]).collect();
        bodies.iter().for_each(|body| batch.push(body));
        model.uncertain.clone_from(&bodies);
        let expected = log.next();
        let appended = log.append(&mut batch, expected)?;
        assert!(matches!(appended, Appended::Committed(_)));
        model.uncertain.clear();
        model.commit(bodies);
        if log.synced_below() == log.next() {
            model.durable_below = model.next();
        }
    }
    Ok(())
}

/// Writing zeros is most of the steps and all alike; in between every one is tried.
fn strides(step: u64) -> u64 {
    if step % 4096 < 2048 { 1 } else { 61 }
}

#[test]
fn a_loss_of_power_or_a_kill_at_any_byte_loses_nothing_acknowledged() {
    for durability in [
        Durability::Fsync,
        Durability::Interval(Duration::ZERO),
        Durability::None,
    ] {
        let mut step = 0;
        loop {
            let disk = SimulatedDisk::new(DISK_BYTES);
            let mut model = Model::default();
            disk.inject(Fault::PowerLoss(step));
            let done = scenario(&disk, durability, &mut model);
            if done.is_ok() {
                break;
            }
            let mut chance = Chance::new(step);
            let least = match step % 2 {
                0 => model.next(),
                _ => model.durable_below,
            };
            match step % 2 {
                0 => disk.kill(),
                _ => disk.lose_power(&mut chance),
            }
            let opened = FileLog::open(disk, small(durability), Seq::FIRST);
            let (log, _) = opened.unwrap_or_else(|error| panic!("step {step}: {error}"));
            model.reopened(&log, least.max(1));
            step += strides(step);
        }
        assert!(step > 20_000, "{step}");
    }
}
