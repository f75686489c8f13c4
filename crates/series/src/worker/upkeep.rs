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
use super::flush::{CoreRunner, Flush, run_on_core};
use super::shard::{Core, CoreFn, ShardShared, Submission};
use super::write_ack::WriteAck;
use crate::core::index::FRESH_SERIES_MAX;
use crate::core::record::Deletion;
use crate::engine::EngineInner;
use crate::error::SeriesError;
use crate::metrics::Component;
use crate::store::checkpoint::FlushWatermark;

/// How long the thread sleeps at most.
const STEP_INTERVAL: Duration = Duration::from_millis(100);

/// How often it is looked whether something is to be done with blocks.
const COMPACTION_INTERVAL: Duration = Duration::from_secs(10);

/// How long to wait after a failure.
const RETRY_DELAY: Duration = Duration::from_secs(30);

/// A job for the upkeep thread.
pub(crate) type Job = Box<dyn FnOnce(&mut BlockMaintenance) + Send>;

/// What the maintenance thread needs of a shard.
pub(crate) struct ShardHandle {
    pub shared: Arc<ShardShared>,
    /// Where its checkpoint is.
    pub disk: Directory,
    /// What blocks have of it.
    pub flush_watermark: FlushWatermark,
    /// When which samples are due to be flushed.
    pub flush_schedule: FlushSchedule,
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
    deferred_jobs: VecDeque<Job>,
    /// When blocks last needed no compaction.
    compactions_done_at: Option<Instant>,
    /// A deletion may have been begun and not finished: nothing else is done before it is.
    has_unfinished_deletion: bool,
    /// When work with blocks, and deleting, is tried again that failed.
    retry_at: Option<Instant>,
    /// Failing activities, by name.
    failing: ConditionSet,
}

/// Whether the retry of failed work is not due yet.
fn is_backing_off(retry_at: Option<Instant>) -> bool {
    retry_at.is_some_and(|at| Instant::now() < at)
}

impl ShardHandle {
    fn core_runner<'a>(
        &'a self,
        inner: &'a EngineInner,
    ) -> impl Fn(CoreFn) -> Result<(), SeriesError> + 'a {
        |core_fn| {
            let pushed = self.shared.inbox.push_unbounded(Submission::Run(core_fn));
            pushed.map_err(|_| inner.shard_end_error(&self.shared))
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
            deferred_jobs: VecDeque::new(),
            compactions_done_at: None,
            inner,
            catalog,
            shards,
            root,
            has_unfinished_deletion: true,
            retry_at: None,
            failing: ConditionSet::new("series_upkeep_failing"),
        }
    }

    /// Works until all senders of jobs are dropped.
    pub(crate) fn run(mut self) {
        loop {
            if let Some(job) = self.deferred_jobs.pop_front() {
                job(&mut self);
                continue;
            }
            match self.jobs.recv_timeout(STEP_INTERVAL) {
                Ok(job) => job(&mut self),
                Err(RecvTimeoutError::Timeout) => self.run_maintenance(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn run_maintenance(&mut self) {
        self.build_indexes();
        self.update_gauges();
        if is_backing_off(self.retry_at) {
            return;
        }
        self.retry_at = None;
        let result = self.finish_deletion();
        self.retry_at = self.note_outcome("deleting samples", &result);
        if result.is_err() {
            return;
        }
        // Where no space is left for that, what is over still goes, and gives some back.
        self.flush_due();
        let tended = self.run_next_compaction();
        self.retry_at = self.note_outcome("merging blocks", &tended);
    }

    fn build_indexes(&self) {
        for handle in &self.shards {
            let index = &handle.shared.index;
            // A search looks through new series one by one, so even few become a segment when there
            // is time.
            while let Some(job) = index.next_job(FRESH_SERIES_MAX / 8) {
                index.run_job(job);
            }
        }
    }

    /// Sets the metrics that say how much there is.
    fn update_gauges(&self) {
        let metrics = &self.inner.metrics;
        let sum = |counter: fn(&ShardShared) -> &AtomicU64| {
            let each = self.shards.iter();
            each.map(|handle| counter(&handle.shared).load(Ordering::Relaxed)).sum::<u64>() as i64
        };
        metrics.head_bytes.set(sum(|shared| &shared.head_bytes));
        metrics.log_bytes.set(sum(|shared| &shared.log_bytes));
        metrics.active_series.set(self.inner.read_series_keys().len() as i64);
        let snapshot = self.catalog.snapshot();
        metrics.blocks.set(snapshot.blocks().len() as i64);
        metrics.block_bytes.set(snapshot.size_bytes() as i64);
        self.catalog.cache().update_metrics();
        let quarantined = self.catalog.quarantined().len();
        metrics.quarantined_blocks.set(quarantined as i64);
    }

    /// Notes whether some work failed, and says when to try it again.
    fn note_outcome(&self, activity: &str, outcome: &Result<(), SeriesError>) -> Option<Instant> {
        match outcome {
            Ok(()) => {
                self.failing.recover(activity, "maintenance of the series works again");
                None
            }
            Err(_) if self.inner.stopping.load(Ordering::Acquire) => None,
            Err(error) => {
                let message = "maintenance of the series failed; retrying";
                self.failing.fail(activity, error, message);
                Some(Instant::now() + RETRY_DELAY)
            }
        }
    }

    /// Writes to blocks what is due of each shard. One that cannot be written holds up neither the
    /// others nor what else is to be done: it is told of and tried again after a while, unless the
    /// shard has ended, which is told by itself.
    fn flush_due(&mut self) {
        for shard in 0..self.shards.len() {
            let handle = &self.shards[shard];
            if handle.shared.failure.get().is_some() || is_backing_off(handle.retry_at) {
                continue;
            }
            let result = self.flush_if_due(shard);
            let activity = format!("writing blocks of shard {shard}");
            self.shards[shard].retry_at = self.note_outcome(&activity, &result);
        }
    }

    /// Writes samples of a shard to blocks whose window is over, and all when there are too many.
    fn flush_if_due(&mut self, shard: usize) -> Result<(), SeriesError> {
        let (now_ms, settle_ms) = (self.inner.now_ms(), self.policy.settle_ms);
        let handle = &mut self.shards[shard];
        if let Some(end) =
            handle.flush_schedule.due_end(now_ms, settle_ms, handle.flush_watermark.end)
        {
            self.flush(shard, end)?;
            self.shards[shard].flush_schedule.mark_flushed(end);
        }
        if self.exceeds_size_limits(shard) {
            let newest = |core: &mut Core| core.newest_ms;
            let newest_ms = run_on_core(&self.shards[shard].core_runner(&self.inner), newest)?;
            self.flush(shard, newest_ms.saturating_add(1))?;
        }
        Ok(())
    }

    /// Does something with each shard, whatever becomes of the others, and returns the first error.
    fn for_each_shard(
        &mut self,
        mut action: impl FnMut(&mut Self, usize) -> Result<(), SeriesError>,
    ) -> Result<(), SeriesError> {
        let mut result = Ok(());
        for shard in 0..self.shards.len() {
            result = result.and(action(self, shard));
        }
        result
    }

    fn exceeds_size_limits(&self, shard: usize) -> bool {
        let config = &self.inner.config;
        let shared = &self.shards[shard].shared;
        let exceeds = |bytes: &AtomicU64, bytes_max: u64| {
            bytes.load(Ordering::Relaxed) > bytes_max / self.shards.len() as u64
        };
        exceeds(&shared.head_bytes, config.head_size.bytes())
            || exceeds(&shared.log_bytes, config.log_size.bytes())
    }

    /// Does the most urgent of what is to be done with blocks: merging them, deleting what is over.
    fn run_next_compaction(&mut self) -> Result<(), SeriesError> {
        if self.compactions_done_at.is_some_and(|at| at.elapsed() < COMPACTION_INTERVAL) {
            return Ok(());
        }
        match self.next_compaction_job()? {
            // Waiting jobs get a turn before the next.
            Some(job) => self.run_compaction(&job, true),
            None => {
                self.compactions_done_at = Some(Instant::now());
                Ok(())
            }
        }
    }

    fn next_compaction_job(&self) -> Result<Option<plan::CompactionJob>, SeriesError> {
        let facts = self.catalog.collect_facts(&self.policy)?;
        let jobs = plan(&facts, &self.policy, self.inner.now_ms());
        Ok(jobs.into_iter().next())
    }

    /// Writes to blocks what is over, and does all that is to be done with blocks.
    ///
    /// # Errors
    /// Those of writing blocks.
    pub(crate) fn compact(&mut self) -> Result<(), SeriesError> {
        self.finish_deletion()?;
        let flush_result = self.for_each_shard(Self::flush_if_due);
        while let Some(job) = self.next_compaction_job()? {
            self.run_compaction(&job, false)?;
        }
        flush_result
    }

    /// Replaces blocks. Urgent work is done meanwhile. With `yields_to_jobs`, a waiting job ends it
    /// early.
    fn run_compaction(
        &mut self,
        job: &plan::CompactionJob,
        yields_to_jobs: bool,
    ) -> Result<(), SeriesError> {
        let (catalog, policy) = (self.catalog.clone(), self.policy.clone());
        let began = Instant::now();
        let mut step = |bytes: u64| self.run_between_steps(bytes, yields_to_jobs);
        match catalog.run_job(job, &policy, BlockLimits::default(), &mut step) {
            Ok(made) => {
                let (why, sources, made) = (job.reason, job.sources.len(), made.len());
                let took_ms = began.elapsed().as_millis() as u64;
                match why {
                    plan::CompactionReason::Expired | plan::CompactionReason::TooMuch => {
                        tracing::info!(?why, sources, made, "samples were removed from blocks");
                    }
                    _ => tracing::debug!(?why, sources, made, took_ms, "blocks were replaced"),
                }
                self.inner.metrics.observe_duration(Component::Merge, began.elapsed());
                Ok(())
            }
            Err(BlockError::Interrupted) if yields_to_jobs => Ok(()),
            Err(BlockError::Interrupted) => Err(SeriesError::Stopping),
            Err(error) => Err(error.into()),
        }
    }

    /// Runs after every `bytes` bytes of merged samples: limits the rate, flushes, collects jobs.
    fn run_between_steps(&mut self, bytes: u64, yields_to_jobs: bool) -> ControlFlow<()> {
        let rate = self.inner.config.merge_rate.bytes().max(1);
        let resume_at = Instant::now() + Duration::from_secs_f64(bytes as f64 / rate as f64);
        loop {
            std::thread::sleep(
                resume_at.saturating_duration_since(Instant::now()).min(STEP_INTERVAL),
            );
            self.build_indexes();
            self.update_gauges();
            self.flush_due();
            match self.jobs.try_recv() {
                Ok(job) => self.deferred_jobs.push_back(job),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => {}
            }
            let is_stopping = self.inner.stopping.load(Ordering::Acquire);
            if is_stopping || (yields_to_jobs && !self.deferred_jobs.is_empty()) {
                return ControlFlow::Break(());
            }
            if Instant::now() >= resume_at {
                return ControlFlow::Continue(());
            }
        }
    }

    /// Gives back the space of all that was deleted and is still in files.
    ///
    /// # Errors
    /// Those of rewriting blocks.
    pub(crate) fn clean_tombstones(&mut self) -> Result<(), SeriesError> {
        // It knows blocks by their ids, and they get others.
        self.finish_deletion()?;
        let facts = self.catalog.collect_facts(&self.policy)?;
        let with_tombstones = facts.iter().filter(|block| block.has_tombstones);
        for block in with_tombstones.filter(|block| !block.is_damaged) {
            let job = plan::CompactionJob {
                reason: plan::CompactionReason::Clean,
                sources: vec![block.meta.id],
                replacement: plan::BlockReplacement::Rewritten {
                    drop_rules: Vec::new(),
                    downsample_rules: Vec::new(),
                },
            };
            self.run_compaction(&job, false)?;
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
        self.for_each_shard(|upkeep, shard| upkeep.flush(shard, end))
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
        self.run_deletion(|delete| delete.resume().and_then(|()| delete.run(deletion)))
    }

    /// Finishes a deletion that was begun, if there is one.
    ///
    /// # Errors
    /// As of [`BlockMaintenance::delete`].
    pub(crate) fn finish_deletion(&mut self) -> Result<(), SeriesError> {
        if self.has_unfinished_deletion {
            self.run_deletion(|delete| delete.resume())
        } else {
            Ok(())
        }
    }

    fn run_deletion(
        &mut self,
        action: impl FnOnce(&Delete<'_, Directory>) -> Result<(), SeriesError>,
    ) -> Result<(), SeriesError> {
        let core_runners: Vec<_> =
            self.shards.iter().map(|handle| handle.core_runner(&self.inner)).collect();
        let performs: Vec<CoreRunner<'_>> =
            core_runners.iter().map(|perform| perform as _).collect();
        let submit = |shard: usize, deletion: Arc<Deletion>| {
            let shared = &self.shards[shard].shared;
            let (ticket, receiver) = WriteAck::new(1);
            let pushed = shared.inbox.push_unbounded(Submission::Delete(deletion, ticket));
            pushed.map_err(|_| self.inner.shard_end_error(shared))?;
            let reply = receiver.blocking_recv();
            reply.map_err(|_| SeriesError::Stopping)?.map(drop)
        };
        let delete = Delete {
            core_runners: &performs,
            submit: &submit,
            catalog: &self.catalog,
            disk: &self.root,
        };
        let result = action(&delete);
        self.has_unfinished_deletion = result.is_err();
        result
    }

    /// Writes all samples of a shard before `end` to blocks.
    ///
    /// # Errors
    /// Those of [`Flush::run`].
    pub(crate) fn flush(&mut self, shard: usize, end: TimeMs) -> Result<(), SeriesError> {
        self.finish_deletion()?;
        let handle = &self.shards[shard];
        let inner = &self.inner;
        let core_runner = handle.core_runner(inner);
        let flush = Flush {
            shared: &handle.shared,
            core_runner: &core_runner,
            catalog: &self.catalog,
            disk: &handle.disk,
            now_ms: inner.now_ms(),
            previous_watermark: handle.flush_watermark,
            // As long as the work took: half of one core is left for others. Series that are new
            // meanwhile are not to be looked through one by one until it is all done.
            pause: &|duration| {
                self.build_indexes();
                std::thread::sleep(duration);
            },
            announce_step: &|_| {
                if inner.stopping.load(Ordering::Acquire) {
                    Err(SeriesError::Stopping)
                } else {
                    Ok(())
                }
            },
        };
        let began = Instant::now();
        let result = flush.run(end);
        drop(core_runner);
        let flush_watermark = result?;
        self.shards[shard].flush_watermark = flush_watermark;
        inner.metrics.observe_duration(Component::Flush, began.elapsed());
        let took_ms = began.elapsed().as_millis() as u64;
        tracing::debug!(shard, end, took_ms, "samples were written to blocks");
        Ok(())
    }
}

#[cfg(test)]
mod tests;
