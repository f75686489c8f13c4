//! A seeded simulator of a shard with its log, its checkpoints and its blocks on one disk that
//! forgets, fills up and fails, on a machine whose clock is set forwards and back: random writes,
//! flushes, merges and deletions, a loss of power at any write. What was acknowledged is always
//! there, once, until it is older than the retention by the clock; what was deleted is not.
//! `EGRET_SERIES_SEEDS` sets how many seeds are run, `EGRET_SERIES_SEED` runs one.

mod expected;
mod life;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

use egret_base::sync::read_lock;
use egret_base_test::over_seeds;
use egret_blocks::block::{Block, BlockError};
use egret_blocks::catalog::BlockLimits;
use egret_blocks::core::plan::{BlockReplacement, CompactionJob, CompactionReason, Policy, plan};
use egret_log::simulated::{Fault, SimulatedDisk, SplitMix64};
use egret_metrics_model::{Labels, MatchOp, Matcher, TimeMs, TimeSpan};

use self::expected::{ExpectedState, SampleKey, Samples};
use self::life::Incarnation;
use super::flush::Flush;
use super::shard::{Ask, NewSeries, Submission, Write};
use super::write_ack::WriteAck;
use crate::core::record::{Deletion, HistogramBatch, SampleBatch};
use crate::core::series_keys::SeriesRef;
use crate::error::SeriesError;

const SEEDS: u64 = 300;
const STEPS: u64 = 60;
const SERIES: u64 = 4;
const CAPACITY: u64 = 64 << 20;
const NOW_MS: TimeMs = 1_700_000_000_000;
const DAY_MS: TimeMs = 86_400_000;
const SETTLE_MS: TimeMs = 1_800_000;

fn labels(series: u64) -> Labels {
    let text = series.to_string();
    Labels::new([("__name__", "m"), ("n", &*text)])
}

struct SimulatedWorld {
    chance: SplitMix64,
    disk: SimulatedDisk,
    /// What the clock of the machine says, which is set forwards and back now and then.
    clock_ms: TimeMs,
    policy: Policy,
    expected: ExpectedState,
    next_value: f64,
}

impl SimulatedWorld {
    fn new(seed: u64) -> Self {
        let mut chance = SplitMix64::new(seed);
        let keep_ms = [2 * DAY_MS, 10 * DAY_MS, i64::MAX][chance.below(3) as usize];
        Self {
            chance,
            disk: SimulatedDisk::new(CAPACITY),
            clock_ms: NOW_MS,
            policy: Policy {
                keep_ms,
                ..Policy::default()
            },
            expected: ExpectedState::default(),
            next_value: 0.0,
        }
    }

    fn run(&mut self, seed: u64) {
        let mut life: Option<Incarnation> = None;
        for step in 0..STEPS {
            self.pass_time();
            let Some(now) = &mut life else {
                life = self.begin(seed + step);
                continue;
            };
            match self.chance.below(100) {
                0..12 => {
                    let fault = self.fault();
                    self.disk.inject(fault);
                }
                12..15 => self.disk.resize(self.chance.below(1 << 20)),
                15..30 => self.disk.resize(CAPACITY),
                _ => {}
            }
            let done = match self.chance.below(12) {
                0 => self.flush(now),
                1 => self.flush_due(now),
                2 | 3 => self.delete(now),
                4 => self.merge(now),
                5 => self.tend(now),
                _ => self.write(now),
            };
            let goes_on = !done.as_ref().is_err_and(is_the_end);
            if self.disk.is_dead() || !goes_on || self.chance.percent(4) {
                life = None;
                if !self.disk.is_dead() && self.chance.percent(50) {
                    self.disk.kill();
                }
                self.disk.lose_power(&mut self.chance);
                continue;
            }
            self.expected
                .check(&now.read().expect("blocks are whole"), step);
        }
    }

    /// Lets some time pass. Now and then the clock jumps: forward by days, or back by hours.
    fn pass_time(&mut self) {
        self.clock_ms += self.chance.below(2 << 20) as TimeMs;
        match self.chance.below(25) {
            0 => self.clock_ms += self.chance.below(3 * DAY_MS as u64) as TimeMs,
            1 | 2 => self.clock_ms -= self.chance.below(DAY_MS as u64 / 2) as TimeMs,
            _ => {}
        }
    }

    fn fault(&mut self) -> Fault {
        let bytes = self.chance.below(3_000);
        match self.chance.below(7) {
            0 => Fault::SyncError,
            1 => Fault::WriteError(bytes as usize),
            2 => Fault::ShortWrite(bytes as usize),
            3 => Fault::Full(bytes as usize),
            _ => Fault::PowerLoss(bytes),
        }
    }

    fn begin(&mut self, seed: u64) -> Option<Incarnation> {
        if self.chance.percent(10) {
            let fault = self.fault();
            self.disk.inject(fault);
        }
        let begun = Incarnation::begin(&self.disk, seed, self.clock_ms).and_then(|life| {
            let found = life.read()?;
            Ok((life, found))
        });
        match begun {
            Ok((life, found)) => {
                self.expected.settle(&found);
                self.expected.check(&found, u64::MAX);
                Some(life)
            }
            Err(error) => {
                let is_loss = matches!(error, SeriesError::Malformed { .. })
                    || error.to_string().contains("corrupt")
                    || error.to_string().contains("missing");
                assert!(!is_loss, "{error}");
                self.disk.resize(CAPACITY);
                self.disk.lose_power(&mut self.chance);
                None
            }
        }
    }

    fn write(&mut self, life: &mut Incarnation) -> Result<(), SeriesError> {
        let mut samples = Samples::new();
        let oldest_ms = self.oldest_ms();
        for _ in 0..1 + self.chance.below(40) {
            let series = self.chance.below(SERIES);
            let before_ms = match self.chance.below(10) {
                0 => self.chance.below(1 << 28) as TimeMs,
                1 => self.chance.below(1 << 24) as TimeMs,
                2 => -(self.chance.below(600_000) as TimeMs),
                _ => self.chance.below(2 << 20) as TimeMs,
            };
            // Others are refused before they come here.
            let time_ms = (self.clock_ms - before_ms).max(oldest_ms);
            self.next_value += 1.0;
            let key = SampleKey { series, time_ms };
            let value = self.expected.value(&key).unwrap_or(self.next_value);
            samples.entry(key).or_insert(value);
        }
        let mut batch = SampleBatch::default();
        let mut new: BTreeMap<u64, NewSeries> = BTreeMap::new();
        for (SampleKey { series, time_ms }, value) in &samples {
            let shard = life.shard.borrow();
            let known = read_lock(&shard.core.known);
            match known.series(&labels(*series)) {
                Some(SeriesRef { number, .. }) => batch.push(number, *time_ms, *value),
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
        let (ticket, mut told) = WriteAck::new(1);
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
                self.expected.acknowledged(samples);
            }
            Ok(Err(SeriesError::DiskFull { .. })) => {}
            _ => self.expected.unanswered(samples),
        }
        done
    }

    fn oldest_ms(&self) -> TimeMs {
        self.clock_ms.saturating_sub(self.policy.keep_ms)
    }

    /// Finishes a deletion that failed: nothing else is done with blocks before.
    fn finish_deletion(&mut self, life: &mut Incarnation) -> Result<(), SeriesError> {
        if life.is_deleting {
            life.deleting(&self.disk, |delete| delete.go_on())?;
            life.is_deleting = false;
            self.expected.settle(&life.read()?);
        }
        Ok(())
    }

    fn flush(&mut self, life: &mut Incarnation) -> Result<(), SeriesError> {
        let end = self.clock_ms - self.chance.below(1 << 23) as TimeMs + (1 << 21);
        self.flush_until(life, end)
    }

    /// Writes to blocks what is over by the clock, as the upkeep does.
    fn flush_due(&mut self, life: &mut Incarnation) -> Result<(), SeriesError> {
        let due = life.due.at(self.clock_ms, SETTLE_MS, life.in_blocks.end);
        if let Some(end) = due {
            self.flush_until(life, end)?;
            life.due.is_done(end);
            assert!(life.in_blocks.end >= end, "not all that is due was written");
        }
        Ok(())
    }

    fn flush_until(&mut self, life: &mut Incarnation, end: TimeMs) -> Result<(), SeriesError> {
        self.finish_deletion(life)?;
        let stops_at = self.chance.below(30);
        let steps = RefCell::new(0);
        let perform = |ask: Ask| life.turn(Submission::Ask(ask));
        let flush = Flush {
            shared: &life.shared,
            perform: &perform,
            catalog: &life.catalog,
            disk: &self.disk,
            now_ms: self.clock_ms,
            before: life.in_blocks,
            pause: &|_| {},
            step: &|_| {
                *steps.borrow_mut() += 1;
                if *steps.borrow() == stops_at {
                    Err(SeriesError::Stopping)
                } else {
                    Ok(())
                }
            },
        };
        life.in_blocks = flush.run(end)?;
        Ok(())
    }

    /// Does all that is planned for blocks by the clock, as the upkeep does.
    fn tend(&mut self, life: &mut Incarnation) -> Result<(), SeriesError> {
        self.finish_deletion(life)?;
        let oldest_ms = self.oldest_ms();
        self.expected.expire(oldest_ms);
        loop {
            let facts = life.catalog.facts(&self.policy)?;
            let jobs = plan(&facts, &self.policy, self.clock_ms);
            let Some(job) = jobs.first() else { break };
            let limits = BlockLimits::default();
            let mut step = |_| ControlFlow::Continue(());
            life.catalog.run(job, &self.policy, limits, &mut step)?;
        }
        let snapshot = life.catalog.snapshot();
        let mut blocks = snapshot.blocks().iter();
        assert!(blocks.all(|block| block.meta().max_ms >= oldest_ms));
        Ok(())
    }

    /// Merges blocks, while others are written perhaps.
    fn merge(&mut self, life: &mut Incarnation) -> Result<(), SeriesError> {
        self.finish_deletion(life)?;
        let snapshot = life.catalog.snapshot();
        let mut sources: Vec<_> = snapshot.blocks().iter().map(Block::id).collect();
        drop(snapshot);
        if sources.len() < 2 {
            return Ok(());
        }
        sources.sort_unstable();
        sources.drain(..self.chance.below(sources.len() as u64 - 1) as usize);
        sources.truncate(2 + self.chance.below(4) as usize);
        let job = CompactionJob {
            why: CompactionReason::Merge,
            sources,
            by: BlockReplacement::Rewritten {
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

    fn delete(&mut self, life: &mut Incarnation) -> Result<(), SeriesError> {
        self.finish_deletion(life)?;
        let start = self.clock_ms - self.chance.below(1 << 25) as TimeMs;
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
        let span = TimeSpan { start, end };
        self.expected.deletion_begun(span, series);
        life.is_deleting = true;
        let bytes = self.chance.below(30) as usize;
        let fails = self.chance.percent(20);
        life.fault_after_log = fails.then_some(Fault::WriteError(bytes));
        life.deleting(&self.disk, |delete| delete.run(deletion))?;
        life.is_deleting = false;
        self.expected.deleted();
        Ok(())
    }
}

/// Whether nothing can be done after an error before the next start.
fn is_the_end(error: &SeriesError) -> bool {
    matches!(
        error,
        SeriesError::Log(_) | SeriesError::Block(BlockError::Stopped { .. })
    )
}

#[test]
fn nothing_acknowledged_is_lost_and_nothing_deleted_comes_back() {
    over_seeds("SERIES", SEEDS, |seed| {
        SimulatedWorld::new(seed).run(seed * 1_000)
    });
}
