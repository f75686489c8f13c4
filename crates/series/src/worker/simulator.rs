//! A seeded simulator of a shard with its log, its checkpoints and its blocks on one disk that
//! forgets, fills up and fails, on a machine whose clock is set forwards and back: random writes,
//! flushes, merges and deletions, a loss of power at any write. What was acknowledged is always
//! there, once, until it is older than the retention by the clock; what was deleted is not.
//! `EGRET_SERIES_SEEDS` sets how many seeds are run, `EGRET_SERIES_SEED` runs one.

mod expected;
mod incarnation;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

use egret_base::sync::read_lock;
use egret_base_test::run_over_seeds;
use egret_blocks::block::{Block, BlockError};
use egret_blocks::catalog::BlockLimits;
use egret_blocks::core::plan::{BlockReplacement, CompactionJob, CompactionReason, Policy, plan};
use egret_log::simulated::{Fault, SimulatedDisk, SplitMix64};
use egret_metrics_model::{Labels, MatchOp, Matcher, TimeMs, TimeSpan};

use self::expected::{ExpectedState, SampleKey, Samples};
use self::incarnation::Incarnation;
use super::flush::Flush;
use super::shard::{CoreFn, NewSeries, Submission, Write, WritePriority};
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
    random: SplitMix64,
    disk: SimulatedDisk,
    /// What the clock of the machine says, which is set forwards and back now and then.
    clock_ms: TimeMs,
    policy: Policy,
    expected: ExpectedState,
    next_value: f64,
}

impl SimulatedWorld {
    fn new(seed: u64) -> Self {
        let mut random = SplitMix64::new(seed);
        let keep_ms = [2 * DAY_MS, 10 * DAY_MS, i64::MAX][random.next_below(3) as usize];
        Self {
            random,
            disk: SimulatedDisk::new(CAPACITY),
            clock_ms: NOW_MS,
            policy: Policy { keep_ms, ..Policy::default() },
            expected: ExpectedState::default(),
            next_value: 0.0,
        }
    }

    fn run(&mut self, seed: u64) {
        let mut incarnation: Option<Incarnation> = None;
        for step in 0..STEPS {
            self.pass_time();
            let Some(running) = &mut incarnation else {
                incarnation = self.start(seed + step);
                continue;
            };
            match self.random.next_below(100) {
                0..12 => {
                    let fault = self.random_fault();
                    self.disk.inject(fault);
                }
                12..15 => self.disk.resize(self.random.next_below(1 << 20)),
                15..30 => self.disk.resize(CAPACITY),
                _ => {}
            }
            let result = match self.random.next_below(12) {
                0 => self.flush(running),
                1 => self.flush_due(running),
                2 | 3 => self.delete(running),
                4 => self.merge(running),
                5 => self.compact(running),
                _ => self.write(running),
            };
            let can_continue = !result.as_ref().is_err_and(is_fatal);
            if self.disk.is_dead() || !can_continue || self.random.percent(4) {
                incarnation = None;
                if !self.disk.is_dead() && self.random.percent(50) {
                    self.disk.kill_processes();
                }
                self.disk.lose_power(&mut self.random);
                continue;
            }
            self.expected.check(&running.read_all_samples().expect("blocks are whole"), step);
        }
    }

    /// Lets some time pass. Now and then the clock jumps: forward by days, or back by hours.
    fn pass_time(&mut self) {
        self.clock_ms += self.random.next_below(2 << 20) as TimeMs;
        match self.random.next_below(25) {
            0 => self.clock_ms += self.random.next_below(3 * DAY_MS as u64) as TimeMs,
            1 | 2 => self.clock_ms -= self.random.next_below(DAY_MS as u64 / 2) as TimeMs,
            _ => {}
        }
    }

    fn random_fault(&mut self) -> Fault {
        let bytes = self.random.next_below(3_000);
        match self.random.next_below(7) {
            0 => Fault::SyncError,
            1 => Fault::WriteError(bytes as usize),
            2 => Fault::ShortWrite(bytes as usize),
            3 => Fault::Full(bytes as usize),
            _ => Fault::PowerLoss(bytes),
        }
    }

    fn start(&mut self, seed: u64) -> Option<Incarnation> {
        if self.random.percent(10) {
            let fault = self.random_fault();
            self.disk.inject(fault);
        }
        let started = Incarnation::start(&self.disk, seed, self.clock_ms).and_then(|incarnation| {
            let found = incarnation.read_all_samples()?;
            Ok((incarnation, found))
        });
        match started {
            Ok((life, found)) => {
                self.expected.resolve_uncertain(&found);
                self.expected.check(&found, u64::MAX);
                Some(life)
            }
            Err(error) => {
                let is_loss = matches!(error, SeriesError::Malformed { .. })
                    || error.to_string().contains("corrupt")
                    || error.to_string().contains("missing");
                assert!(!is_loss, "{error}");
                self.disk.resize(CAPACITY);
                self.disk.lose_power(&mut self.random);
                None
            }
        }
    }

    fn write(&mut self, incarnation: &mut Incarnation) -> Result<(), SeriesError> {
        let mut samples = Samples::new();
        let oldest_ms = self.oldest_ms();
        // Now and then a request of which many samples of a series are late.
        let count_max = if self.random.percent(10) { 700 } else { 40 };
        for _ in 0..1 + self.random.next_below(count_max) {
            let series = self.random.next_below(SERIES);
            let age_ms = match self.random.next_below(10) {
                0 => self.random.next_below(1 << 28) as TimeMs,
                1 => self.random.next_below(1 << 24) as TimeMs,
                2 => -(self.random.next_below(600_000) as TimeMs),
                _ => self.random.next_below(2 << 20) as TimeMs,
            };
            // Others are refused before they come here.
            let time_ms = (self.clock_ms - age_ms).max(oldest_ms);
            self.next_value += 1.0;
            let key = SampleKey { series, time_ms };
            let value = self.expected.value(&key).unwrap_or(self.next_value);
            samples.entry(key).or_insert(value);
        }
        let mut batch = SampleBatch::default();
        let mut new: BTreeMap<u64, NewSeries> = BTreeMap::new();
        for (SampleKey { series, time_ms }, value) in &samples {
            let shard = incarnation.shard.borrow();
            let keys = read_lock(&shard.core.series_keys);
            match keys.find_series(&labels(*series)) {
                Some(SeriesRef { number, .. }) => batch.push(number, *time_ms, *value),
                None => {
                    let unknown_series = new.entry(*series).or_insert_with(|| NewSeries {
                        labels: labels(*series),
                        alias: None,
                        samples: Vec::new(),
                        histograms: Vec::new(),
                    });
                    unknown_series.samples.push((*time_ms, *value));
                }
            }
        }
        let (ticket, mut receiver) = WriteAck::new(1);
        let write = Write {
            samples: batch,
            histograms: HistogramBatch::default(),
            new_series: new.into_values().collect(),
            priority: if count_max > 40 { WritePriority::Bulk } else { WritePriority::Live },
            ack: ticket,
        };
        let result = incarnation.process(Submission::Write(write));
        match receiver.try_recv() {
            Ok(Ok(outcome)) => {
                assert_eq!((outcome.conflicts, outcome.unknown_series), (0, 0));
                self.expected.add_acknowledged(samples);
            }
            Ok(Err(SeriesError::DiskFull { .. })) => {}
            _ => self.expected.add_unanswered(samples),
        }
        result
    }

    fn oldest_ms(&self) -> TimeMs {
        self.clock_ms.saturating_sub(self.policy.keep_ms)
    }

    /// Finishes a deletion that failed: nothing else is done with blocks before.
    fn finish_deletion(&mut self, incarnation: &mut Incarnation) -> Result<(), SeriesError> {
        if incarnation.has_unfinished_deletion {
            incarnation.run_deletion(&self.disk, |delete| delete.resume())?;
            incarnation.has_unfinished_deletion = false;
            self.expected.resolve_uncertain(&incarnation.read_all_samples()?);
        }
        Ok(())
    }

    fn flush(&mut self, incarnation: &mut Incarnation) -> Result<(), SeriesError> {
        let end = self.clock_ms - self.random.next_below(1 << 23) as TimeMs + (1 << 21);
        self.flush_until(incarnation, end)
    }

    /// Writes to blocks what is over by the clock, as the upkeep does.
    fn flush_due(&mut self, incarnation: &mut Incarnation) -> Result<(), SeriesError> {
        let due = incarnation.flush_schedule.due_end(
            self.clock_ms,
            SETTLE_MS,
            incarnation.flush_watermark.end,
        );
        if let Some(end) = due {
            self.flush_until(incarnation, end)?;
            incarnation.flush_schedule.mark_flushed(end);
            assert!(incarnation.flush_watermark.end >= end, "not all that is due was written");
        }
        Ok(())
    }

    fn flush_until(
        &mut self,
        incarnation: &mut Incarnation,
        end: TimeMs,
    ) -> Result<(), SeriesError> {
        self.finish_deletion(incarnation)?;
        let stops_at = self.random.next_below(30);
        let steps = RefCell::new(0);
        let run_on_core = |ask: CoreFn| incarnation.process(Submission::Run(ask));
        let flush = Flush {
            shared: &incarnation.shared,
            core_runner: &run_on_core,
            catalog: &incarnation.catalog,
            disk: &self.disk,
            now_ms: self.clock_ms,
            previous_watermark: incarnation.flush_watermark,
            pause: &|_| {},
            announce_step: &|_| {
                *steps.borrow_mut() += 1;
                if *steps.borrow() == stops_at { Err(SeriesError::Stopping) } else { Ok(()) }
            },
        };
        incarnation.flush_watermark = flush.run(end)?;
        Ok(())
    }

    /// Does all that is planned for blocks by the clock, as the upkeep does.
    fn compact(&mut self, incarnation: &mut Incarnation) -> Result<(), SeriesError> {
        self.finish_deletion(incarnation)?;
        let oldest_ms = self.oldest_ms();
        self.expected.expire(oldest_ms);
        loop {
            let facts = incarnation.catalog.collect_facts(&self.policy)?;
            let jobs = plan(&facts, &self.policy, self.clock_ms);
            let Some(job) = jobs.first() else { break };
            let limits = BlockLimits::default();
            let mut step = |_| ControlFlow::Continue(());
            incarnation.catalog.run_job(job, &self.policy, limits, &mut step)?;
        }
        let snapshot = incarnation.catalog.snapshot();
        let mut blocks = snapshot.blocks().iter();
        assert!(blocks.all(|block| block.meta().max_ms >= oldest_ms));
        Ok(())
    }

    /// Merges blocks, while others are written perhaps.
    fn merge(&mut self, incarnation: &mut Incarnation) -> Result<(), SeriesError> {
        self.finish_deletion(incarnation)?;
        let snapshot = incarnation.catalog.snapshot();
        let mut sources: Vec<_> = snapshot.blocks().iter().map(Block::id).collect();
        drop(snapshot);
        if sources.len() < 2 {
            return Ok(());
        }
        sources.sort_unstable();
        sources.drain(..self.random.next_below(sources.len() as u64 - 1) as usize);
        sources.truncate(2 + self.random.next_below(4) as usize);
        let job = CompactionJob {
            reason: CompactionReason::Merge,
            sources,
            replacement: BlockReplacement::Rewritten {
                drop_rules: Vec::new(),
                downsample_rules: Vec::new(),
            },
        };
        let limits = BlockLimits {
            block_series_max: 1 + self.random.next_below(SERIES),
            step_bytes: 1,
            ..BlockLimits::default()
        };
        let catalog = incarnation.catalog.clone();
        let mut flushes_at = self.random.next_below(10);
        let mut flushed = Ok(());
        let mut step = |_| {
            flushes_at = flushes_at.wrapping_sub(1);
            if flushes_at == 0 {
                flushed = self.flush(incarnation);
            }
            match flushed {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            }
        };
        let merged = catalog.run_job(&job, &Policy::default(), limits, &mut step);
        flushed?;
        Ok(merged.map(drop)?)
    }

    fn delete(&mut self, incarnation: &mut Incarnation) -> Result<(), SeriesError> {
        self.finish_deletion(incarnation)?;
        let start = self.clock_ms - self.random.next_below(1 << 25) as TimeMs;
        let end = start + self.random.next_below(1 << 22) as TimeMs;
        let series = self.random.percent(50).then(|| self.random.next_below(SERIES));
        let text = series.map(|series| series.to_string());
        let name_matcher =
            Matcher { name: "__name__".into(), op: MatchOp::Equal, value: "m".into() };
        let series_matcher =
            text.map(|text| Matcher { name: "n".into(), op: MatchOp::Equal, value: text.into() });
        let deletion = Deletion {
            id: self.random.next_below(u64::MAX),
            matchers: [name_matcher].into_iter().chain(series_matcher).collect(),
            start,
            end,
        };
        let span = TimeSpan { start, end };
        self.expected.begin_deletion(span, series);
        incarnation.has_unfinished_deletion = true;
        let bytes = self.random.next_below(30) as usize;
        let has_fault = self.random.percent(20);
        incarnation.fault_after_log = has_fault.then_some(Fault::WriteError(bytes));
        incarnation.run_deletion(&self.disk, |delete| delete.run(deletion))?;
        incarnation.has_unfinished_deletion = false;
        self.expected.finish_deletion();
        Ok(())
    }
}

/// Whether nothing can be done after an error before the next start.
fn is_fatal(error: &SeriesError) -> bool {
    matches!(error, SeriesError::Log(_) | SeriesError::Block(BlockError::Stopped { .. }))
}

#[test]
fn nothing_acknowledged_is_lost_and_nothing_deleted_comes_back() {
    run_over_seeds("SERIES", SEEDS, |seed| SimulatedWorld::new(seed).run(seed * 1_000));
}
