//! One scenario, stopped after every single step that it takes on its disk.

use std::sync::Arc;
use std::time::Duration;

use egret_base::SeededEntropy;
use egret_log::simulated::{Fault, SimulatedDisk, SplitMix64};
use egret_log::{AppendResult, Batch, Compaction, Durability, FileLog, Log, LogError, Seq};

use crate::model::Model;
use crate::simulator::small_config;

const DISK_BYTES: u64 = 1 << 20;

/// A new log, some appends with a roll, a compaction, a truncation, more appends.
fn scenario(
    disk: &SimulatedDisk,
    durability: Durability,
    model: &mut Model,
) -> Result<(), LogError> {
    let entropy = Arc::new(SeededEntropy::new(5));
    let config = small_config(durability);
    let (mut log, _) = FileLog::open_with(disk.clone(), config, Seq::FIRST, entropy)?;
    append(&mut log, model, 24)?;
    while log.housekeep()? {}
    let (first, last) = (log.segments()[0].first, log.segments()[1].last);
    let compacted = log.prepare_compaction(first, last)?.run(|seq| seq.0 % 2 == 0)?;
    if log.finish_compaction(compacted)? {
        model.remove_compacted(first.0, last.0, |seq| seq % 2 == 0);
    }
    while log.housekeep()? {}
    append(&mut log, model, 6)?;
    log.sync()?;
    model.durable_below = model.next();
    let newest = log.segments().last().map_or(Seq(1), |segment| segment.first);
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
        let expected = log.next_seq();
        let appended = log.append(&mut batch, expected)?;
        assert!(matches!(appended, AppendResult::Committed(_)));
        model.uncertain.clear();
        model.commit(bodies);
        if log.synced_below() == log.next_seq() {
            model.durable_below = model.next();
        }
    }
    Ok(())
}

/// Which step is tried next. Every one, but in a long write of zeros they are all alike.
#[derive(Default)]
struct Strides {
    step: u64,
    stride: u64,
    /// Calls of the disk before the last step tried, and how many steps were tried in that call.
    calls: u64,
    within: u64,
}

impl Strides {
    fn advance(&mut self, calls: u64) {
        if calls == self.calls {
            self.within += self.stride;
            self.stride = if self.within > 1500 { 61 } else { 1 };
        } else if self.stride > 1 {
            // Calls may have been passed over: go back to the last step of the one before.
            self.step -= self.stride;
            (self.stride, self.within) = (1, 0);
        } else {
            (self.calls, self.stride, self.within) = (calls, 1, 0);
        }
        self.step += self.stride;
    }
}

fn check(durability: Durability) {
    let mut strides = Strides::default();
    let mut tried = 0;
    while let Some(calls) = stop_at(durability, strides.step, 0) {
        // What is found of several unsynced changes of names is a matter of luck.
        if calls != strides.calls {
            for luck in 1..40 {
                stop_at(durability, strides.step, luck);
            }
        }
        strides.advance(calls);
        tried += 1;
    }
    assert!(tried > 10_000, "{tried}");
}

/// Stops the scenario after so many steps and answers in which call of the disk that was, or
/// nothing when it had ended.
fn stop_at(durability: Durability, step: u64, luck: u64) -> Option<u64> {
    let disk = SimulatedDisk::new(DISK_BYTES);
    let mut model = Model::default();
    disk.inject(Fault::PowerLoss(step));
    scenario(&disk, durability, &mut model).err()?;
    let calls = disk.calls();
    let least = if (step + luck).is_multiple_of(3) {
        disk.kill_processes();
        model.next()
    } else {
        disk.lose_power(&mut SplitMix64::new(step ^ (luck << 32)));
        model.durable_below
    };
    let opened = FileLog::open(disk, small_config(durability), Seq::FIRST);
    let (log, _) = opened.unwrap_or_else(|error| panic!("step {step}, luck {luck}: {error}"));
    model.check_reopened(&log, least.max(1));
    Some(calls.writes + calls.syncs + calls.directory_syncs + calls.name_changes)
}

#[test]
fn fsync_loses_nothing_acknowledged_at_any_byte() {
    check(Durability::Fsync);
}

#[test]
fn an_interval_loses_nothing_synced_at_any_byte() {
    check(Durability::Interval(Duration::ZERO));
}

#[test]
fn no_durability_loses_nothing_synced_at_any_byte() {
    check(Durability::None);
}
