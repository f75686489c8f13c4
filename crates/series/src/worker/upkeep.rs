//! The thread that keeps the store in shape: builds the index of new series, writes blocks, and does what it is asked
//! that must not happen at the same time.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use egret_log::Directory;

use super::flush::Flush;
use super::shard::{Ask, Shared, Submission};
use super::ticket::Ticket;
use crate::api::Inner;
use crate::core::block::window::WINDOWS_MS;
use crate::core::index::FRESH_MAX;
use crate::core::promql::LabelMatcher;
use crate::core::record::Deletion;
use crate::error::SeriesError;
use crate::model::TimeMs;
use crate::store::catalog::Catalog;
use crate::store::checkpoint::InBlocks;
use crate::store::deletion;

/// How long the thread sleeps at most.
const PAUSE: Duration = Duration::from_millis(100);

/// How long after the end of a window its samples are written to a block: some come late.
const GRACE_MS: TimeMs = 30 * 60_000;

/// How long to wait after a failure.
const RETRY_PAUSE: Duration = Duration::from_secs(30);

/// What the thread is asked to do.
pub(crate) type Job = Box<dyn FnOnce(&mut Upkeep) + Send>;

/// A shard, seen from here.
pub(crate) struct Kept {
    pub shared: Arc<Shared>,
    /// Where its checkpoint is.
    pub disk: Directory,
    /// What blocks have of it.
    pub in_blocks: InBlocks,
}

/// See the module.
pub(crate) struct Upkeep {
    pub inner: Arc<Inner>,
    pub catalog: Arc<Catalog<Directory>>,
    pub shards: Vec<Kept>,
    /// Where everything of the engine is.
    pub root: Directory,
    /// When work is tried again that failed.
    retry_at: Option<Instant>,
}

impl Upkeep {
    pub fn new(
        inner: Arc<Inner>,
        catalog: Arc<Catalog<Directory>>,
        shards: Vec<Kept>,
        root: Directory,
    ) -> Self {
        Self {
            inner,
            catalog,
            shards,
            root,
            retry_at: None,
        }
    }

    /// Works until nobody can ask for anything any more.
    pub fn run(mut self, jobs: Receiver<Job>) {
        if let Err(error) = self.go_on_deleting() {
            self.note_failure("finishing a deletion", &error);
        }
        loop {
            match jobs.recv_timeout(PAUSE) {
                Ok(job) => job(&mut self),
                Err(RecvTimeoutError::Timeout) => self.step(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn go_on_deleting(&mut self) -> Result<(), SeriesError> {
        match deletion::under_way(&self.root)? {
            Some(deletion) => self.finish_deletion(deletion),
            None => Ok(()),
        }
    }

    fn step(&mut self) {
        for kept in &self.shards {
            let index = &kept.shared.index;
            // Whoever asks looks through new series one by one, so even few become a segment when there is time.
            while let Some(work) = index.work(FRESH_MAX / 8) {
                index.carry_out(work);
            }
        }
        if self.retry_at.is_some_and(|at| Instant::now() < at) {
            return;
        }
        self.retry_at = None;
        if let Err(error) = self.flush_due() {
            self.note_failure("writing blocks", &error);
        }
    }

    fn note_failure(&mut self, what: &'static str, error: &SeriesError) {
        if self.inner.stopping.load(Ordering::Acquire) {
            return;
        }
        self.retry_at = Some(Instant::now() + RETRY_PAUSE);
        tracing::warn!(%error, what, "upkeep of the series failed and is tried again");
    }

    fn flush_due(&mut self) -> Result<(), SeriesError> {
        let window_ms = WINDOWS_MS[0];
        let ended_ms = self.inner.now_ms() - GRACE_MS;
        let due = ended_ms - ended_ms.rem_euclid(window_ms);
        for shard in 0..self.shards.len() {
            if self.shards[shard].in_blocks.end < due {
                self.flush(shard, due)?;
            }
        }
        Ok(())
    }

    /// Writes all samples to blocks.
    ///
    /// # Errors
    /// Those of [`Flush::run`].
    pub fn flush_all(&mut self) -> Result<(), SeriesError> {
        // Later than any that is taken in.
        let end =
            self.inner.now_ms() + 2 * self.inner.config.future_max.duration().as_millis() as TimeMs;
        (0..self.shards.len()).try_for_each(|shard| self.flush(shard, end))
    }

    /// Deletes samples, in heads and in blocks, for good.
    ///
    /// # Errors
    /// [`SeriesError`]: it is not sure what was deleted; the rest is when the engine starts again.
    pub fn delete(&mut self, deletion: Deletion) -> Result<(), SeriesError> {
        deletion::begin(&self.root, &deletion)?;
        self.finish_deletion(deletion)
    }

    /// Does what is left of a deletion that was begun.
    ///
    /// # Errors
    /// As of [`Upkeep::delete`].
    pub fn finish_deletion(&mut self, deletion: Deletion) -> Result<(), SeriesError> {
        let deletion = Arc::new(deletion);
        let (ticket, told) = Ticket::new(self.shards.len());
        for kept in &self.shards {
            let submission = Submission::Delete(deletion.clone(), ticket.clone());
            if kept.shared.inbox.push_always(submission).is_err() {
                ticket.done(Err(self.inner.why_ended(&kept.shared)));
            }
        }
        told.blocking_recv().map_err(|_| SeriesError::Stopping)??;
        let matchers = deletion.matchers.iter().cloned().map(LabelMatcher::new);
        let matchers = matchers.collect::<Result<Vec<_>, _>>()?;
        let (start, end) = (deletion.start, deletion.end);
        let snapshot = self.catalog.snapshot();
        for block in snapshot.within(start, end) {
            let series = block.select(&matchers)?;
            if !series.is_empty() {
                let series = series.into_iter().collect();
                self.catalog.delete(block.id(), series, start, end)?;
            }
        }
        deletion::end(&self.root)
    }

    /// Writes all samples of a shard before `end` to blocks.
    ///
    /// # Errors
    /// Those of [`Flush::run`].
    pub fn flush(&mut self, shard: usize, end: TimeMs) -> Result<(), SeriesError> {
        let kept = &self.shards[shard];
        let inner = &self.inner;
        let perform = |ask: Ask| {
            let pushed = kept.shared.inbox.push_always(Submission::Ask(ask));
            pushed.map_err(|_| inner.why_ended(&kept.shared))
        };
        let flush = Flush {
            shared: &kept.shared,
            perform: &perform,
            catalog: &self.catalog,
            disk: &kept.disk,
            now_ms: inner.now_ms(),
            before: kept.in_blocks,
            // As long as the work took: half of one core is left for others.
            pause: &std::thread::sleep,
            step: &|_| match inner.stopping.load(Ordering::Acquire) {
                true => Err(SeriesError::Stopping),
                false => Ok(()),
            },
        };
        let began = Instant::now();
        let in_blocks = flush.run(end)?;
        self.shards[shard].in_blocks = in_blocks;
        let took_ms = began.elapsed().as_millis() as u64;
        tracing::debug!(shard, end, took_ms, "samples were written to blocks");
        Ok(())
    }
}
