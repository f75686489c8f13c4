//! A seeded simulator of a shard with its log, its checkpoints and its blocks on one disk that forgets, fills up and
//! fails: random writes, flushes, merges and deletions, a loss of power at any write. What was acknowledged is always there,
//! once, and what was deleted is not. `EGRET_SERIES_SEEDS` sets how many seeds are run, `EGRET_SERIES_SEED` runs one.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use egret_base::SeededEntropy;
use egret_log::simulated::{Chance, Fault, SimulatedDisk};
use egret_log::{FileLog, Housekeeping, Inbox, InboxLimits, LogConfig, Seq};
use prometheus_client::registry::Registry;

use super::delete::Delete;
use super::flush::{Flush, Perform};
use super::recover::{replay, restore};
use super::shard::{Ask, Core, NewSeries, Shard, Shared, Submission, Write};
use super::ticket::Ticket;
use crate::api::source::select;
use crate::core::block::plan::{By, Job, Policy, Why};
use crate::core::index::Index;
use crate::core::known::{Known, Place};
use crate::core::promql::LabelMatcher;
use crate::core::record::{Deletion, HistogramBatch, SampleBatch};
use crate::error::SeriesError;
use crate::metrics::Metrics;
use crate::model::{Labels, MatchOp, Matcher, SeriesSamples, TimeMs};
use crate::store::block::{Block, BlockCache};
use crate::store::catalog::{BlockLimits, Catalog};
use crate::store::checkpoint::{Checkpoint, InBlocks};

const SEEDS: u64 = 300;
const STEPS: u64 = 60;
const SERIES: u64 = 4;
const CAPACITY: u64 = 64 << 20;
const NOW_MS: TimeMs = 1_700_000_000_000;

/// By series and time.
type Model = BTreeMap<(u64, TimeMs), f64>;

fn labels(series: u64) -> Labels {
    let text = series.to_string();
    Labels::new([("__name__", "m"), ("n", &*text)])
}

/// What runs between two losses of power.
struct Life {
    shard: RefCell<Shard<FileLog<SimulatedDisk>>>,
    shared: Arc<Shared>,
    catalog: Arc<Catalog<SimulatedDisk>>,
    in_blocks: InBlocks,
}

struct World {
    chance: Chance,
    disk: SimulatedDisk,
    /// What was acknowledged, and not deleted since.
    model: Model,
    /// What was under way when the power went: there as a whole, or not.
    pending: Vec<(u64, TimeMs, f64)>,
    /// The same of a deletion.
    deleting: Option<(TimeMs, TimeMs, Option<u64>)>,
    newest_ms: TimeMs,
    next_value: f64,
}

impl Life {
    fn begin(disk: &SimulatedDisk, seed: u64) -> Result<Self, SeriesError> {
        let cache = Arc::new(BlockCache::new(1 << 20));
        let catalog = Arc::new(Catalog::open(disk.clone(), cache)?);
        let checkpoint = Checkpoint::read(disk)?;
        let config = LogConfig {
            segment_bytes: 64 << 10,
            first_segment_bytes: 64 << 10,
            batch_bytes_max: 32 << 10,
            spare_segments: 1,
            recycled_segments_max: 1,
            must_exist: checkpoint.is_some(),
            housekeeping: Housekeeping::Owner,
            ..LogConfig::default()
        };
        let entropy = Arc::new(SeededEntropy::new(seed));
        let (log, _) = FileLog::open_with(disk.clone(), config, Seq::FIRST, entropy)?;
        let shared = Arc::new(Shared {
            number: 0,
            inbox: Inbox::new(InboxLimits {
                items_name: "items",
                items_max: 1_000,
                bytes_name: "bytes",
                bytes_max: 1 << 20,
            }),
            index: Index::default(),
            head_bytes: AtomicU64::new(0),
            log_bytes: AtomicU64::new(0),
            has_twins: AtomicBool::new(false),
            failure: Default::default(),
        });
        let known = Arc::new(std::sync::RwLock::new(Known::new(seed)));
        let mut core = Core::new(shared.clone(), known);
        let in_blocks = checkpoint
            .as_ref()
            .map_or(InBlocks::NOTHING, |checkpoint| checkpoint.in_blocks);
        if let Some(checkpoint) = checkpoint {
            restore(checkpoint, &mut core);
        }
        replay(&log, in_blocks, &mut core)?;
        let metrics = Arc::new(Metrics::register(&mut Registry::default()));
        let life = Self {
            shard: RefCell::new(Shard::new(core, log, metrics)),
            shared,
            catalog,
            in_blocks,
        };
        life.deleting(disk, |delete| delete.go_on())?;
        Ok(life)
    }

    fn turn(&self, submission: Submission) -> Result<(), SeriesError> {
        let mut shard = self.shard.borrow_mut();
        shard.log.housekeep()?;
        shard.turn(&mut vec![submission]).map_err(SeriesError::from)
    }

    fn deleting(
        &self,
        disk: &SimulatedDisk,
        work: impl FnOnce(&Delete<'_, SimulatedDisk>) -> Result<(), SeriesError>,
    ) -> Result<(), SeriesError> {
        let perform = |ask: Ask| self.turn(Submission::Ask(ask));
        let performs: [Perform<'_>; 1] = [&perform];
        let submit = |_: usize, deletion: Arc<Deletion>| {
            let (ticket, mut told) = Ticket::new(1);
            self.turn(Submission::Delete(deletion, ticket))?;
            told.try_recv().expect("a turn tells").map(drop)
        };
        work(&Delete {
            performs: &performs,
            submit: &submit,
            catalog: &self.catalog,
            disk,
        })
    }

    /// All that is there.
    fn read(&self) -> Result<Model, SeriesError> {
        let matcher = Matcher {
            name: "__name__".into(),
            op: MatchOp::Equal,
            value: "m".into(),
        };
        let matchers = [LabelMatcher::new(matcher)?];
        let shards = [self.shared.clone()];
        let span = (TimeMs::MIN, TimeMs::MAX);
        let selected = select(&shards, self.catalog.snapshot(), &matchers, span)?;
        let mut all = Model::new();
        let mut samples = SeriesSamples::default();
        for at in 0..selected.series.len() {
            selected.samples(at, &mut samples)?;
            let number = selected.series[at].labels.get("n").parse();
            let number: u64 = number.expect("the label is a number");
            for (time_ms, value) in samples.times_ms.iter().zip(&samples.values) {
                let twice = all.insert((number, *time_ms), *value);
                assert!(twice.is_none(), "{number} at {time_ms} is there twice");
            }
        }
        Ok(all)
    }
}

impl World {
    fn new(seed: u64) -> Self {
        Self {
            chance: Chance::new(seed),
            disk: SimulatedDisk::new(CAPACITY),
            model: Model::new(),
            pending: Vec::new(),
            deleting: None,
            newest_ms: NOW_MS - 40 * 3_600_000,
            next_value: 0.0,
        }
    }

    fn run(&mut self, seed: u64) {
        let mut life: Option<Life> = None;
        for step in 0..STEPS {
            let Some(now) = &mut life else {
                life = self.begin(seed + step);
                continue;
            };
            if self.chance.percent(12) {
                let fault = self.fault();
                self.disk.inject(fault);
            }
            let done = match self.chance.below(10) {
                0 | 1 => self.flush(now),
                2 => self.delete(now),
                3 => self.merge(now),
                _ => self.write(now),
            };
            let failed = done.is_err();
            if self.disk.is_dead() || (failed && self.chance.percent(50)) || self.chance.percent(3)
            {
                life = None;
                self.disk.lose_power(&mut self.chance);
                continue;
            }
            if failed {
                // A log or a catalog that has failed says so for ever.
                life = None;
                self.disk.kill();
                self.disk.lose_power(&mut self.chance);
                continue;
            }
            self.check(now.read().expect("blocks are whole"), step);
        }
    }

    fn fault(&mut self) -> Fault {
        let bytes = self.chance.below(3_000);
        match self.chance.below(6) {
            0 => Fault::SyncError,
            1 => Fault::WriteError(bytes as usize),
            2 => Fault::ShortWrite(bytes as usize),
            _ => Fault::PowerLoss(bytes),
        }
    }

    fn begin(&mut self, seed: u64) -> Option<Life> {
        if self.chance.percent(10) {
            let fault = self.fault();
            self.disk.inject(fault);
        }
        match Life::begin(&self.disk, seed) {
            Ok(life) => match life.read() {
                Ok(found) => {
                    self.settle(&found);
                    self.check(found, u64::MAX);
                    Some(life)
                }
                Err(error) => {
                    assert!(self.disk.is_dead(), "{error}");
                    self.disk.lose_power(&mut self.chance);
                    None
                }
            },
            Err(error) => {
                let is_loss = matches!(error, SeriesError::Malformed { .. })
                    || error.to_string().contains("corrupt")
                    || error.to_string().contains("missing");
                assert!(!is_loss, "{error}");
                self.disk.lose_power(&mut self.chance);
                None
            }
        }
    }

    /// Learns what became of what was under way.
    fn settle(&mut self, found: &Model) {
        if let Some((start, end, series)) = self.deleting.take() {
            let is_in = |(number, time_ms): &(u64, TimeMs)| {
                (start..=end).contains(time_ms) && series.is_none_or(|series| series == *number)
            };
            let was_done = !found.keys().any(is_in);
            if was_done {
                self.model.retain(|key, _| !is_in(key));
            }
        }
        let pending = std::mem::take(&mut self.pending);
        let is_new = |(series, time_ms, _): &&(u64, TimeMs, f64)| {
            !self.model.contains_key(&(*series, *time_ms))
        };
        let new: Vec<_> = pending.iter().filter(is_new).copied().collect();
        let there = new
            .iter()
            .filter(|(series, time_ms, value)| found.get(&(*series, *time_ms)) == Some(value));
        if there.count() == new.len() {
            for (series, time_ms, value) in new {
                self.model.insert((series, time_ms), value);
            }
        }
    }

    fn check(&self, found: Model, step: u64) {
        if found != self.model {
            let lost = self
                .model
                .iter()
                .find(|(key, value)| found.get(key) != Some(*value));
            let extra = found
                .iter()
                .find(|(key, value)| self.model.get(key) != Some(*value));
            panic!("step {step}: lost {lost:?}, not to be there {extra:?}");
        }
    }

    fn write(&mut self, life: &mut Life) -> Result<(), SeriesError> {
        let mut samples: BTreeMap<(u64, TimeMs), f64> = BTreeMap::new();
        for _ in 0..1 + self.chance.below(40) {
            let series = self.chance.below(SERIES);
            let time_ms = match self.chance.below(10) {
                0 => self.newest_ms - self.chance.below(1 << 24) as TimeMs,
                1 => self.newest_ms,
                _ => {
                    self.newest_ms += 1 + self.chance.below(200_000) as TimeMs;
                    self.newest_ms
                }
            };
            self.next_value += 1.0;
            let value = self.model.get(&(series, time_ms)).copied();
            let value = value.unwrap_or(self.next_value);
            samples.entry((series, time_ms)).or_insert(value);
        }
        let mut batch = SampleBatch::default();
        let mut new: BTreeMap<u64, NewSeries> = BTreeMap::new();
        for ((series, time_ms), value) in &samples {
            let shard = life.shard.borrow();
            let known = shard.core.known.read().expect("nobody panics");
            match known.series(&labels(*series)) {
                Some(Place { number, .. }) => batch.push(number, *time_ms, *value),
                None => {
                    let one = new.entry(*series).or_insert_with(|| NewSeries {
                        labels: labels(*series),
                        alias: None,
                        samples: Vec::new(),
                        histograms: Vec::new(),
                    });
                    one.samples.push((*time_ms, *value));
                }
            }
        }
        let (ticket, mut told) = Ticket::new(1);
        let write = Write {
            samples: batch,
            histograms: HistogramBatch::default(),
            new: new.into_values().collect(),
            ticket,
        };
        let done = life.turn(Submission::Write(write));
        match told.try_recv() {
            Ok(Ok(outcome)) => {
                assert_eq!((outcome.conflicts, outcome.nowhere), (0, 0));
                self.model.extend(samples);
            }
            Ok(Err(SeriesError::DiskFull { .. })) => {}
            _ => {
                let pending = samples.into_iter();
                self.pending = pending.map(|((one, at), value)| (one, at, value)).collect();
            }
        }
        done
    }

    fn flush(&mut self, life: &mut Life) -> Result<(), SeriesError> {
        let end = self.newest_ms - self.chance.below(1 << 23) as TimeMs + (1 << 21);
        let stops_at = self.chance.below(30);
        let steps = RefCell::new(0);
        let perform = |ask: Ask| life.turn(Submission::Ask(ask));
        let flush = Flush {
            shared: &life.shared,
            perform: &perform,
            catalog: &life.catalog,
            disk: &self.disk,
            now_ms: NOW_MS,
            before: life.in_blocks,
            pause: &|_| {},
            step: &|_| {
                *steps.borrow_mut() += 1;
                match *steps.borrow() == stops_at {
                    true => Err(SeriesError::Stopping),
                    false => Ok(()),
                }
            },
        };
        life.in_blocks = flush.run(end)?;
        Ok(())
    }

    /// Merges blocks, while others are written perhaps.
    fn merge(&mut self, life: &mut Life) -> Result<(), SeriesError> {
        let snapshot = life.catalog.snapshot();
        let mut sources: Vec<_> = snapshot.blocks().iter().map(Block::id).collect();
        drop(snapshot);
        if sources.len() < 2 {
            return Ok(());
        }
        sources.sort_unstable();
        sources.drain(..self.chance.below(sources.len() as u64 - 1) as usize);
        sources.truncate(2 + self.chance.below(4) as usize);
        let job = Job {
            why: Why::Merge,
            sources,
            by: By::Rewritten {
                without: Vec::new(),
                coarsen: Vec::new(),
            },
        };
        let limits = BlockLimits {
            block_series_max: 1 + self.chance.below(SERIES),
            step_bytes: 1,
            ..BlockLimits::default()
        };
        let catalog = life.catalog.clone();
        let mut flushes_at = self.chance.below(10);
        let mut flushed = Ok(());
        let mut step = |_| {
            flushes_at = flushes_at.wrapping_sub(1);
            if flushes_at == 0 {
                flushed = self.flush(life);
            }
            match flushed {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            }
        };
        let merged = catalog.run(&job, &Policy::default(), limits, &mut step);
        flushed?;
        Ok(merged.map(drop)?)
    }

    fn delete(&mut self, life: &mut Life) -> Result<(), SeriesError> {
        let start = self.newest_ms - self.chance.below(1 << 25) as TimeMs;
        let end = start + self.chance.below(1 << 22) as TimeMs;
        let series = self.chance.percent(50).then(|| self.chance.below(SERIES));
        let text = series.map(|series| series.to_string());
        let name = Matcher {
            name: "__name__".into(),
            op: MatchOp::Equal,
            value: "m".into(),
        };
        let one = text.map(|text| Matcher {
            name: "n".into(),
            op: MatchOp::Equal,
            value: text.into(),
        });
        let deletion = Deletion {
            id: self.chance.below(u64::MAX),
            matchers: [name].into_iter().chain(one).collect(),
            start,
            end,
        };
        self.deleting = Some((start, end, series));
        life.deleting(&self.disk, |delete| delete.run(deletion))?;
        self.deleting = None;
        self.model.retain(|(number, time_ms), _| {
            !(start..=end).contains(time_ms) || series.is_some_and(|series| series != *number)
        });
        Ok(())
    }
}

fn seeds() -> std::ops::Range<u64> {
    let number = |name| {
        std::env::var(name)
            .ok()
            .and_then(|text: String| text.parse().ok())
    };
    match (number("EGRET_SERIES_SEED"), number("EGRET_SERIES_SEEDS")) {
        (Some(seed), _) => seed..seed + 1,
        (None, seeds) => 0..seeds.unwrap_or(SEEDS),
    }
}

#[test]
fn nothing_acknowledged_is_lost_and_nothing_deleted_comes_back() {
    for seed in seeds() {
        let run = std::panic::AssertUnwindSafe(|| World::new(seed).run(seed * 1_000));
        if let Err(panic) = std::panic::catch_unwind(run) {
            eprintln!("seed {seed}");
            std::panic::resume_unwind(panic);
        }
    }
}
