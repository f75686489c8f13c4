//! The maintenance thread: indexes new series, flushes samples to blocks, merges blocks, and runs
//! jobs that must not overlap with these.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use egret_base::condition::ConditionSet;
use egret_blocks::block::BlockError;
use egret_blocks::catalog::{BlockLimits, Catalog};
use egret_blocks::core::plan::{self, Policy, plan};
use egret_blocks::core::window::FlushSchedule;
use egret_log::Directory;
use egret_metrics_model::TimeMs;

use super::delete::Delete;
use super::flush::{Flush, Perform, ask};
use super::shard::{Ask, Core, ShardShared, Submission};
use super::write_ack::WriteAck;
use crate::core::index::FRESH_MAX;
use crate::core::record::Deletion;
use crate::engine::EngineInner;
use crate::error::SeriesError;
use crate::metrics::Component;
use crate::store::checkpoint::FlushWatermark;

/// How long the thread sleeps at most.
const PAUSE: Duration = Duration::from_millis(100);

/// How often it is looked whether something is to be done with blocks.
const TEND_PAUSE: Duration = Duration::from_secs(10);

/// How long to wait after a failure.
const RETRY_PAUSE: Duration = Duration::from_secs(30);

/// A job for the upkeep thread.
pub(crate) type Job = Box<dyn FnOnce(&mut BlockMaintenance) + Send>;

/// What the maintenance thread needs of a shard.
pub(crate) struct ShardHandle {
    pub shared: Arc<ShardShared>,
    /// Where its checkpoint is.
    pub disk: Directory,
    /// What blocks have of it.
    pub in_blocks: FlushWatermark,
    /// When which samples are due to be flushed.
    pub due: FlushSchedule,
    /// When it is tried again to write to blocks what is due, after that failed.
    pub retry_at: Option<Instant>,
}

pub(crate) struct BlockMaintenance {
    pub inner: Arc<EngineInner>,
    pub catalog: Arc<Catalog<Directory>>,
    pub shards: Vec<ShardHandle>,
    /// Where everything of the engine is.
    pub root: Directory,
    policy: Arc<Policy>,
    /// Jobs from other threads.
    jobs: Receiver<Job>,
    /// Jobs that arrived while blocks were merged.
    waiting: VecDeque<Job>,
    /// When blocks last needed no compaction.
    tended_at: Option<Instant>,
    /// A deletion may have been begun and not finished: nothing else is done before it is.
    is_deleting: bool,
    /// When work with blocks, and deleting, is tried again that failed.
    retry_at: Option<Instant>,
    /// Failing activities, by name.
    failing: ConditionSet,
}

/// Whether the retry of failed work is not due yet.
fn rests(retry_at: Option<Instant>) -> bool {
    retry_at.is_some_and(|at| Instant::now() < at)
}

impl ShardHandle {
    fn perform<'a>(
        &'a self,
        inner: &'a EngineInner,
    ) -> impl Fn(Ask) -> Result<(), SeriesError> + 'a {
        |ask| {
            let pushed = self.shared.inbox.push_always(Submission::Ask(ask));
            pushed.map_err(|_| inner.why_ended(&self.shared))
        }
    }
}

impl BlockMaintenance {
    pub(crate) fn new(
        inner: Arc<EngineInner>,
        catalog: Arc<Catalog<Directory>>,
        shards: Vec<ShardHandle>,
        root: Directory,
        policy: Policy,
        jobs: Receiver<Job>,
    ) -> Self {
        Self {
            policy: Arc::new(policy),
            jobs,
            waiting: VecDeque::new(),
            tended_at: None,
            inner,
            catalog,
            shards,
            root,
            is_deleting: true,
            retry_at: None,
            failing: ConditionSet::new("series_upkeep_failing"),
        }
    }

    /// Works until all senders of jobs are dropped.
    pub(crate) fn run(mut self) {
        loop {
            if let Some(job) = self.waiting.pop_front() {
                job(&mut self);
                continue;
            }
            match self.jobs.recv_timeout(PAUSE) {
                Ok(job) => job(&mut self),
                Err(RecvTimeoutError::Timeout) => self.step(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn step(&mut self) {
        self.build_indexes();
        self.measure();
        if rests(self.retry_at) {
            return;
        }
        self.retry_at = None;
        let deleted = self.finish_deletion();
        self.retry_at = self.note_outcome("deleting samples", &deleted);
        if deleted.is_err() {
            return;
        }
        // Where no space is left for that, what is over still goes, and gives some back.
        self.flush_due();
        let tended = self.tend_blocks();
        self.retry_at = self.note_outcome("merging blocks", &tended);
    }

    fn build_indexes(&self) {
        for kept in &self.shards {
            let index = &kept.shared.index;
            // A search looks through new series one by one, so even few become a segment when there
            // is time.
            while let Some(work) = index.work(FRESH_MAX / 8) {
                index.carry_out(work);
            }
        }
    }

    /// Sets the metrics that say how much there is.
    fn measure(&self) {
        let metrics = &self.inner.metrics;
        let sum = |of: fn(&ShardShared) -> &AtomicU64| {
            let each = self.shards.iter();
            each.map(|kept| of(&kept.shared).load(Ordering::Relaxed))
                .sum::<u64>() as i64
        };
        metrics.head_bytes.set(sum(|shared| &shared.head_bytes));
        metrics.log_bytes.set(sum(|shared| &shared.log_bytes));
        metrics.series.set(self.inner.known().len() as i64);
        let snapshot = self.catalog.snapshot();
        metrics.blocks.set(snapshot.blocks().len() as i64);
        metrics.block_bytes.set(snapshot.size_bytes() as i64);
        self.catalog.cache().measure();
        let quarantined = self.catalog.quarantined().len();
        metrics.quarantined.set(quarantined as i64);
    }

    /// Notes whether some work failed, and says when to try it again.
    fn note_outcome(&self, what: &str, outcome: &Result<(), SeriesError>) -> Option<Instant> {
        match outcome {
            Ok(()) => {
                self.failing
                    .recover(what, "maintenance of the series works again");
                None
            }
            Err(_) if self.inner.stopping.load(Ordering::Acquire) => None,
            Err(error) => {
                let message = "maintenance of the series failed; retrying";
                self.failing.fail(what, error, message);
                Some(Instant::now() + RETRY_PAUSE)
            }
        }
    }

    /// Writes to blocks what is due of each shard. One that cannot be written holds up neither the
    /// others nor what else is to be done: it is told of and tried again after a while, unless the
    /// shard has ended, which is told by itself.
    fn flush_due(&mut self) {
        for shard in 0..self.shards.len() {
            let kept = &self.shards[shard];
            if kept.shared.failure.get().is_some() || rests(kept.retry_at) {
                continue;
            }
            let flushed = self.flush_if_due(shard);
            let what = format!("writing blocks of shard {shard}");
            self.shards[shard].retry_at = self.note_outcome(&what, &flushed);
        }
    }

    /// Writes samples of a shard to blocks whose window is over, and all when there are too many.
    fn flush_if_due(&mut self, shard: usize) -> Result<(), SeriesError> {
        let (now_ms, settle_ms) = (self.inner.now_ms(), self.policy.settle_ms);
        let kept = &mut self.shards[shard];
        if let Some(end) = kept.due.at(now_ms, settle_ms, kept.in_blocks.end) {
            self.flush(shard, end)?;
            self.shards[shard].due.is_done(end);
        }
        if self.has_too_much(shard) {
            let newest = |core: &mut Core| core.newest_ms;
            let newest_ms = ask(&self.shards[shard].perform(&self.inner), newest)?;
            self.flush(shard, newest_ms.saturating_add(1))?;
        }
        Ok(())
    }

    /// Does something with each shard, whatever becomes of the others, and returns the first error.
    fn with_each_shard(
        &mut self,
        mut work: impl FnMut(&mut Self, usize) -> Result<(), SeriesError>,
    ) -> Result<(), SeriesError> {
        let mut done = Ok(());
        for shard in 0..self.shards.len() {
            done = done.and(work(self, shard));
        }
        done
    }

    fn has_too_much(&self, shard: usize) -> bool {
        let config = &self.inner.config;
        let shared = &self.shards[shard].shared;
        let is_over = |bytes: &AtomicU64, most: u64| {
            bytes.load(Ordering::Relaxed) > most / self.shards.len() as u64
        };
        is_over(&shared.head_bytes, config.head_size.bytes())
            || is_over(&shared.log_bytes, config.log_size.bytes())
    }

    /// Does the most urgent of what is to be done with blocks: merging them, deleting what is over.
    fn tend_blocks(&mut self) -> Result<(), SeriesError> {
        if self.tended_at.is_some_and(|at| at.elapsed() < TEND_PAUSE) {
            return Ok(());
        }
        match self.most_urgent()? {
            // Waiting jobs get a turn before the next.
            Some(job) => self.carry_out(&job, true),
            None => {
                self.tended_at = Some(Instant::now());
                Ok(())
            }
        }
    }

    fn most_urgent(&self) -> Result<Option<plan::CompactionJob>, SeriesError> {
        let facts = self.catalog.facts(&self.policy)?;
        let jobs = plan(&facts, &self.policy, self.inner.now_ms());
        Ok(jobs.into_iter().next())
    }

    /// Writes to blocks what is over, and does all that is to be done with blocks.
    ///
    /// # Errors
    /// Those of writing blocks.
    pub(crate) fn compact(&mut self) -> Result<(), SeriesError> {
        self.finish_deletion()?;
        let flushed = self.with_each_shard(Self::flush_if_due);
        while let Some(job) = self.most_urgent()? {
            self.carry_out(&job, false)?;
        }
        flushed
    }

    /// Replaces blocks. Urgent work is done meanwhile. If `gives_way`, a waiting job ends it early.
    fn carry_out(&mut self, job: &plan::CompactionJob, gives_way: bool) -> Result<(), SeriesError> {
        let (catalog, policy) = (self.catalog.clone(), self.policy.clone());
        let began = Instant::now();
        let mut step = |bytes: u64| self.between(bytes, gives_way);
        match catalog.run(job, &policy, BlockLimits::default(), &mut step) {
            Ok(made) => {
                let (why, sources, made) = (job.why, job.sources.len(), made.len());
                let took_ms = began.elapsed().as_millis() as u64;
                match why {
                    plan::CompactionReason::Expired | plan::CompactionReason::TooMuch => {
                        tracing::info!(?why, sources, made, "samples were removed from blocks");
                    }
                    _ => tracing::debug!(?why, sources, made, took_ms, "blocks were replaced"),
                }
                self.inner.metrics.took(Component::Merge, began.elapsed());
                Ok(())
            }
            Err(BlockError::Ended) if gives_way => Ok(()),
            Err(BlockError::Ended) => Err(SeriesError::Stopping),
            Err(error) => Err(error.into()),
        }
    }

    /// Runs after every `bytes` bytes of merged samples: limits the rate, flushes, collects jobs.
    fn between(&mut self, bytes: u64, gives_way: bool) -> ControlFlow<()> {
        let rate = self.inner.config.merge_rate.bytes().max(1);
        let until = Instant::now() + Duration::from_secs_f64(bytes as f64 / rate as f64);
        loop {
            std::thread::sleep(until.saturating_duration_since(Instant::now()).min(PAUSE));
            self.build_indexes();
            self.measure();
            self.flush_due();
            match self.jobs.try_recv() {
                Ok(job) => self.waiting.push_back(job),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => {}
            }
            let stops = self.inner.stopping.load(Ordering::Acquire);
            if stops || (gives_way && !self.waiting.is_empty()) {
                return ControlFlow::Break(());
            }
            if Instant::now() >= until {
                return ControlFlow::Continue(());
            }
        }
    }

    /// Gives back the space of all that was deleted and is still in files.
    ///
    /// # Errors
    /// Those of rewriting blocks.
    pub(crate) fn clean(&mut self) -> Result<(), SeriesError> {
        // It knows blocks by their ids, and they get others.
        self.finish_deletion()?;
        let facts = self.catalog.facts(&self.policy)?;
        let with_tombstones = facts.iter().filter(|block| block.has_tombstones);
        for block in with_tombstones.filter(|block| !block.is_damaged) {
            let job = plan::CompactionJob {
                why: plan::CompactionReason::Clean,
                sources: vec![block.meta.id],
                by: plan::BlockReplacement::Rewritten {
                    without: Vec::new(),
                    coarsen: Vec::new(),
                },
            };
            self.carry_out(&job, false)?;
        }
        Ok(())
    }

    /// Writes all samples to blocks.
    ///
    /// # Errors
    /// Those of [`Flush::run`].
    pub(crate) fn flush_all(&mut self) -> Result<(), SeriesError> {
        // Later than any that is taken in.
        let end =
            self.inner.now_ms() + 2 * self.inner.config.future_max.duration().as_millis() as TimeMs;
        self.with_each_shard(|upkeep, shard| upkeep.flush(shard, end))
    }

    /// Deletes samples, in heads and in blocks, for good.
    ///
    /// # Errors
    /// [`SeriesError`]: it is not sure what was deleted. The rest is tried again.
    pub(crate) fn delete(&mut self, deletion: Deletion) -> Result<(), SeriesError> {
        // A deletion that is begun and cannot be finished would hold up everything else.
        let mut shards = self.inner.shards.get().into_iter().flatten();
        if let Some(failure) = shards.find_map(|shard| shard.failure.get()) {
            return Err(failure.clone());
        }
        self.deleting(|delete| delete.go_on().and_then(|()| delete.run(deletion)))
    }

    /// Finishes a deletion that was begun, if there is one.
    ///
    /// # Errors
    /// As of [`BlockMaintenance::delete`].
    pub(crate) fn finish_deletion(&mut self) -> Result<(), SeriesError> {
        if self.is_deleting {
            self.deleting(|delete| delete.go_on())
        } else {
            Ok(())
        }
    }

    fn deleting(
        &mut self,
        work: impl FnOnce(&Delete<'_, Directory>) -> Result<(), SeriesError>,
    ) -> Result<(), SeriesError> {
        let performs: Vec<_> = self
            .shards
            .iter()
            .map(|kept| kept.perform(&self.inner))
            .collect();
        let performs: Vec<Perform<'_>> = performs.iter().map(|perform| perform as _).collect();
        let submit = |shard: usize, deletion: Arc<Deletion>| {
            let shared = &self.shards[shard].shared;
            let (ticket, told) = WriteAck::new(1);
            let pushed = shared
                .inbox
                .push_always(Submission::Delete(deletion, ticket));
            pushed.map_err(|_| self.inner.why_ended(shared))?;
            let told = told.blocking_recv();
            told.map_err(|_| SeriesError::Stopping)?.map(drop)
        };
        let delete = Delete {
            performs: &performs,
            submit: &submit,
            catalog: &self.catalog,
            disk: &self.root,
        };
        let done = work(&delete);
        self.is_deleting = done.is_err();
        done
    }

    /// Writes all samples of a shard before `end` to blocks.
    ///
    /// # Errors
    /// Those of [`Flush::run`].
    pub(crate) fn flush(&mut self, shard: usize, end: TimeMs) -> Result<(), SeriesError> {
        self.finish_deletion()?;
        let kept = &self.shards[shard];
        let inner = &self.inner;
        let perform = kept.perform(inner);
        let flush = Flush {
            shared: &kept.shared,
            perform: &perform,
            catalog: &self.catalog,
            disk: &kept.disk,
            now_ms: inner.now_ms(),
            before: kept.in_blocks,
            // As long as the work took: half of one core is left for others. Series that are new
            // meanwhile are not to be looked through one by one until it is all done.
            pause: &|duration| {
                self.build_indexes();
                std::thread::sleep(duration);
            },
            step: &|_| {
                if inner.stopping.load(Ordering::Acquire) {
                    Err(SeriesError::Stopping)
                } else {
                    Ok(())
                }
            },
        };
        let began = Instant::now();
        let flushed = flush.run(end);
        drop(perform);
        let in_blocks = flushed?;
        self.shards[shard].in_blocks = in_blocks;
        inner.metrics.took(Component::Flush, began.elapsed());
        let took_ms = began.elapsed().as_millis() as u64;
        tracing::debug!(shard, end, took_ms, "samples were written to blocks");
        Ok(())
    }
}

#[cfg(test)]
mod tests;
