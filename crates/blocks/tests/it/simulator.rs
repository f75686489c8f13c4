//! A seeded simulator: random work on a catalog whose disk loses power, fills up and fails,
//! compared with plain maps after each step. `EGRET_BLOCK_SEEDS` sets how many seeds are run,
//! `EGRET_BLOCK_SEED` runs just one.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use egret_base_test::run_over_seeds;
use egret_blocks::block::BlockError;
use egret_blocks::catalog::{BlockLimits, Catalog, Snapshot};
use egret_blocks::core::BlockId;
use egret_blocks::core::plan::{
    BlockReplacement, CompactionJob, CompactionReason, DownsampleRule, Policy, RetentionRule,
};
use egret_log::simulated::{Fault, SimulatedDisk, SplitMix64};
use egret_metrics_model::{Labels, MatchOp};

use super::{Content, content, matcher, open, publish};

const SEEDS: u64 = 1_000;
const STEPS: u64 = 40;
const DISK_BYTES: u64 = 200 << 10;

type Blocks = BTreeMap<BlockId, Content>;

struct Simulation {
    chance: SplitMix64,
    disk: SimulatedDisk,
    catalog: Option<Catalog<SimulatedDisk>>,
    model: Blocks,
    /// What may be found instead of the model, when a change did not say whether it was made: all
    /// but its new ids.
    perhaps: Option<Vec<Content>>,
    held: Option<(Arc<Snapshot>, Blocks)>,
    policy: Policy,
    seed: u64,
}

fn policy() -> Policy {
    let job = |value| vec![matcher("job", MatchOp::Equal, value)];
    Policy {
        retention_rules: vec![RetentionRule { selector: job("a"), keep_ms: 1 }],
        downsample_rules: vec![DownsampleRule {
            name: "coarse".into(),
            selector: job("b"),
            after_ms: 0,
            interval_ms: 10,
        }],
        ..Policy::default()
    }
}

impl Simulation {
    fn new(seed: u64) -> Self {
        Self {
            chance: SplitMix64::new(seed),
            disk: SimulatedDisk::new(DISK_BYTES),
            catalog: None,
            model: Blocks::new(),
            perhaps: None,
            held: None,
            policy: policy(),
            seed,
        }
    }

    fn run(&mut self) {
        self.reopen();
        for _ in 0..STEPS {
            self.step();
            let end = self.disk.is_dead() || self.perhaps.is_some();
            if end || self.chance.percent(4) {
                self.end_life();
            }
        }
        self.end_life();
    }

    fn end_life(&mut self) {
        self.held = None;
        self.catalog = None;
        if self.disk.is_dead() || self.chance.percent(60) {
            self.disk.lose_power(&mut self.chance)
        } else {
            self.disk.kill_processes()
        }
        self.disk.resize(DISK_BYTES);
        self.reopen();
    }

    /// Opens the directory, perhaps with the power going meanwhile, and compares.
    fn reopen(&mut self) {
        while self.chance.percent(15) {
            self.disk.inject(Fault::PowerLoss(self.chance.next_below(40)));
            let opened = open(&self.disk);
            if !self.disk.is_dead() {
                assert!(opened.is_ok(), "seed {}", self.seed);
            }
            drop(opened);
            self.disk.lose_power(&mut self.chance);
        }
        let catalog = open(&self.disk).expect("the disk works");
        assert_eq!(catalog.quarantined(), [], "seed {}", self.seed);
        let found = self.found(&catalog.snapshot());
        if found != self.model {
            let perhaps = self.perhaps.take();
            let found_contents: Vec<&Content> = found.values().collect();
            let is_other =
                perhaps.is_some_and(|other| other.iter().collect::<Vec<_>>() == found_contents);
            assert!(is_other, "seed {}: neither before nor after", self.seed);
            self.model = found;
        }
        self.perhaps = None;
        self.catalog = Some(catalog);
    }

    fn found(&self, snapshot: &Snapshot) -> Blocks {
        let each = |block: &egret_blocks::block::Block| {
            (
                block.id(),
                content(block).unwrap_or_else(|error| panic!("seed {}: {error}", self.seed)),
            )
        };
        snapshot.blocks().iter().map(each).collect()
    }

    fn step(&mut self) {
        match self.chance.next_below(100) {
            0..35 => self.publish(),
            35..60 => self.run_job(),
            60..75 => self.delete(),
            75..80 => self.hold(),
            80..90 => self.inject(),
            90..95 => self.disk.resize(20 << 10),
            _ => self.disk.resize(DISK_BYTES),
        }
        let Some(catalog) = &self.catalog else {
            return;
        };
        if self.disk.is_dead() || self.perhaps.is_some() {
            return;
        }
        assert_eq!(self.found(&catalog.snapshot()), self.model, "seed {}", self.seed);
        if let Some((snapshot, blocks)) = &self.held {
            assert_eq!(self.found(snapshot), *blocks, "seed {}: an old snapshot", self.seed);
        }
    }

    fn random_content(&mut self) -> Content {
        let mut all = Content::new();
        for _ in 0..1 + self.chance.next_below(5) {
            let job = ["a", "b", "c"][self.chance.next_below(3) as usize];
            let instance = self.chance.next_below(4).to_string();
            let labels = Labels::new([("__name__", "m"), ("job", job), ("instance", &instance)]);
            let samples = (0..1 + self.chance.next_below(20)).map(|_| {
                let time_ms = self.chance.next_below(100) as i64;
                (time_ms, (self.chance.next_below(1000) as f64).to_bits())
            });
            all.insert(labels, samples.collect());
        }
        all
    }

    /// Takes note of a change that was not told to be made.
    fn note(&mut self, error: &BlockError, after: Vec<Content>) {
        match error {
            BlockError::Stopped { .. } => self.perhaps = Some(after),
            BlockError::Io { .. } | BlockError::Full { .. } => {}
            other => panic!("seed {}: {other}", self.seed),
        }
    }

    fn publish(&mut self) {
        let new = self.random_content();
        let catalog = self.catalog.as_ref().expect("it is open between steps");
        match publish(catalog, &new) {
            Ok(id) => drop(self.model.insert(id, new)),
            Err(error) => {
                let after = self.model.values().cloned().chain([new]).collect();
                self.note(&error, after);
            }
        }
    }

    fn delete(&mut self) {
        let ids: Vec<BlockId> = self.model.keys().copied().collect();
        if ids.is_empty() {
            return;
        }
        let id = ids[self.chance.next_below(ids.len() as u64) as usize];
        let start_ms = self.chance.next_below(100) as i64;
        let end_ms = start_ms + self.chance.next_below(50) as i64;
        let job = ["a", "b", "c"][self.chance.next_below(3) as usize];
        let mut after = self.model.clone();
        for (labels, samples) in after.entry(id).or_default() {
            if labels.get("job") == job {
                samples.retain(|time_ms, _| !(start_ms..=end_ms).contains(time_ms));
            }
        }
        let catalog = self.catalog.as_ref().expect("it is open between steps");
        let snapshot = catalog.snapshot();
        let block = snapshot.block(id).expect("the model has it");
        let deleted = block
            .select(&[matcher("job", MatchOp::Equal, job)])
            .and_then(|series| catalog.delete(id, series.into_iter().collect(), start_ms, end_ms));
        match deleted {
            Ok(()) => self.model = after,
            Err(error) => self.note(&error, after.into_values().collect()),
        }
    }

    fn run_job(&mut self) {
        let mut sources: Vec<BlockId> = self.model.keys().copied().collect();
        sources.retain(|_| self.chance.percent(60));
        if sources.is_empty() {
            return;
        }
        let by = match self.chance.next_below(6) {
            0 => BlockReplacement::Nothing,
            _ => BlockReplacement::Rewritten {
                drop_rules: if self.chance.percent(20) { vec![0] } else { Vec::new() },
                downsample_rules: if self.chance.percent(20) { vec![0] } else { Vec::new() },
            },
        };
        let limits = BlockLimits {
            block_series_max: if self.chance.percent(30) { 3 } else { u64::MAX },
            ..BlockLimits::default()
        };
        let expected = self.rewritten(&sources, &by, limits.block_series_max as usize);
        let job = CompactionJob {
            reason: CompactionReason::Merge,
            sources: sources.clone(),
            replacement: by,
        };
        let catalog = self.catalog.as_ref().expect("it is open between steps");
        let done = catalog.run_job(&job, &self.policy, limits, &mut |_| ControlFlow::Continue(()));
        match done {
            Ok(results) => {
                self.model.retain(|id, _| !sources.contains(id));
                assert_eq!(results.len(), expected.len(), "seed {}", self.seed);
                self.model.extend(results.iter().map(|block| block.id()).zip(expected));
            }
            Err(error) => {
                let rest = self.model.iter().filter(|(id, _)| !sources.contains(id));
                let after = rest.map(|(_, content)| content.clone()).chain(expected).collect();
                self.note(&error, after);
            }
        }
    }

    /// What blocks become, by the plainest way there is.
    fn rewritten(
        &self,
        sources: &[BlockId],
        by: &BlockReplacement,
        series_max: usize,
    ) -> Vec<Content> {
        let BlockReplacement::Rewritten { drop_rules: without, downsample_rules: coarsen } = by
        else {
            return Vec::new();
        };
        let mut merged = Content::new();
        for id in sources {
            for (labels, samples) in &self.model[id] {
                let mut samples = samples.clone();
                if labels.get("job") == "a" && !without.is_empty() {
                    samples.clear();
                }
                if labels.get("job") == "b" && !coarsen.is_empty() {
                    let last: BTreeMap<i64, i64> =
                        samples.keys().map(|time_ms| (time_ms / 10, *time_ms)).collect();
                    samples.retain(|time_ms, _| last[&(time_ms / 10)] == *time_ms);
                }
                merged.entry(labels.clone()).or_default().extend(samples);
            }
        }
        merged.retain(|_, samples| !samples.is_empty());
        let merged: Vec<_> = merged.into_iter().collect();
        merged.chunks(series_max).map(|part| part.iter().cloned().collect()).collect()
    }

    fn hold(&mut self) {
        if let Some(catalog) = &self.catalog {
            self.held = Some((catalog.snapshot(), self.model.clone()));
        }
    }

    fn inject(&mut self) {
        let bytes = self.chance.next_below(2000) as usize;
        let fault = match self.chance.next_below(6) {
            0 => Fault::ShortWrite(bytes),
            1 => Fault::Full(bytes),
            2 => Fault::WriteError(bytes),
            3 => Fault::SyncError,
            _ => Fault::PowerLoss(self.chance.next_below(6000)),
        };
        self.disk.inject(fault);
    }
}

#[test]
fn every_change_is_found_made_or_not_made() {
    run_over_seeds("BLOCK", SEEDS, |seed| Simulation::new(seed).run());
}

/// Two blocks are merged into two others, from one of which is deleted then, on a disk whose power
/// goes after so many steps. What is found then, and whether the power went at all.
fn merged(steps: u64, chance: &mut SplitMix64) -> (Content, bool) {
    let disk = SimulatedDisk::new(DISK_BYTES);
    let catalog = open(&disk).expect("the disk works");
    let content_of = |job: &str, from_ms: i64| -> Content {
        let labels = Labels::new([("job", job)]);
        [(labels, (from_ms..from_ms + 3).map(|time_ms| (time_ms, 7)).collect())].into()
    };
    let sources = [("a", 0), ("b", 5)].map(|(job, from_ms)| {
        publish(&catalog, &content_of(job, from_ms)).expect("the disk works")
    });
    disk.inject(Fault::PowerLoss(steps));
    let job = CompactionJob {
        reason: CompactionReason::Merge,
        sources: sources.to_vec(),
        replacement: BlockReplacement::Rewritten {
            drop_rules: Vec::new(),
            downsample_rules: Vec::new(),
        },
    };
    let limits = BlockLimits { block_series_max: 1, ..BlockLimits::default() };
    let done =
        catalog.run_job(&job, &Policy::default(), limits, &mut |_| ControlFlow::Continue(()));
    if let Ok(blocks) = done {
        _ = catalog.delete(blocks[1].id(), [0].into_iter().collect(), 5, 5);
    }
    drop(catalog);
    let is_dead = disk.is_dead();
    disk.lose_power(chance);
    let catalog = open(&disk).expect("the disk works");
    assert_eq!(catalog.quarantined(), []);
    let mut all = Content::new();
    for block in catalog.snapshot().blocks() {
        for (labels, samples) in content(block).expect("it is whole") {
            all.entry(labels).or_default().extend(samples);
        }
    }
    (all, is_dead)
}

#[test]
fn a_loss_of_power_at_any_step_of_a_replacement_loses_nothing() {
    let mut chance = SplitMix64::new(1);
    let survives = |steps: &u64| !merged(*steps, &mut SplitMix64::new(0)).1;
    let (mut dies, mut lives) = (0, 1 << 20);
    while dies + 1 < lives {
        let middle = (dies + lives) / 2;
        if survives(&middle) { lives = middle } else { dies = middle }
    }
    let count = |content: &Content| -> Vec<usize> { content.values().map(BTreeMap::len).collect() };
    let mut found = [0; 2];
    // Near the end are the changes of names, before it the bytes of the blocks.
    let names = (lives - 250..=lives).flat_map(|steps| std::iter::repeat_n(steps, 20));
    for steps in (0..lives).step_by(17).chain(names) {
        let (content, _) = merged(steps, &mut chance);
        match *count(&content) {
            [3, 3] => found[0] += 1,
            [3, 2] => found[1] += 1,
            _ => panic!("after {steps} steps: {content:?}"),
        }
    }
    assert!(found.iter().all(|times| *times > 0), "before and after the deletion: {found:?}");
}
