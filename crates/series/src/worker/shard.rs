//! A shard's thread: takes everything that waits, writes it with one append, adds it to the head,
//! and answers each request with its outcome.
//!
//! New series get their numbers before the append; a record says so once. Samples are in the log
//! before they are in the head, and in the head before they are acknowledged: what is acknowledged
//! is seen at once. When the log fails, the shard ends.

mod backlog;
mod core;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use egret_base::sync::{read_lock, write_lock};
use egret_log::{AppendResult, Batch, DrainResult as Waiting, Inbox, Log, LogError};
use egret_metrics_model::{Histogram, Labels, TimeMs};

use self::backlog::BulkBacklog;
pub(crate) use self::core::Core;
use super::write_ack::{Outcome, WriteAck};
use crate::core::head::HeadSeries;
use crate::core::index::Index;
use crate::core::record::{self, Deletion, HistogramBatch, SampleBatch};
use crate::error::SeriesError;
use crate::metrics::{Component, Metrics};

/// State of a shard that other threads share.
pub(crate) struct ShardShared {
    pub number: u16,
    pub inbox: Inbox<Submission>,
    pub index: Index,
    /// Approximate memory of the head's samples, in bytes.
    pub head_bytes: AtomicU64,
    /// Bytes that these samples take in the log.
    pub log_bytes: AtomicU64,
    /// Whether a series may be in the head twice: removed, and created again before a restart.
    pub has_duplicate_series: AtomicBool,
    /// Why the shard has ended, unless it was stopped.
    pub failure: OnceLock<SeriesError>,
}

/// A series that was not known when a request was read.
#[derive(Debug)]
pub(crate) struct NewSeries {
    pub labels: Labels,
    /// The bytes by which it came, where they are not those of its labels.
    pub alias: Option<Box<[u8]>>,
    pub samples: Vec<(TimeMs, f64)>,
    pub histograms: Vec<(TimeMs, Arc<Histogram>)>,
}

/// How soon a write is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WritePriority {
    /// In the next turn.
    Live,
    /// After all live writes, a bounded number of samples a turn: of a request with very many.
    Bulk,
}

/// What of a request goes to one shard.
#[derive(Debug)]
pub(crate) struct Write {
    pub samples: SampleBatch,
    pub histograms: HistogramBatch,
    pub new_series: Vec<NewSeries>,
    pub priority: WritePriority,
    pub ack: Arc<WriteAck>,
}

/// What a shard is asked to do between two appends.
pub(crate) type CoreFn = Box<dyn FnOnce(&mut Core) + Send>;

/// An item in a shard's inbox.
pub(crate) enum Submission {
    Write(Write),
    Delete(Arc<Deletion>, Arc<WriteAck>),
    Run(CoreFn),
}

/// What a log needs for a sample, in bytes, at most: number and time as varints, value.
pub(crate) const SAMPLE_BYTES_MAX: usize = 10 + 10 + 8;

/// What a log needs for a native histogram, in bytes, at most.
pub(crate) fn histogram_bytes_max(histogram: &Histogram) -> usize {
    SAMPLE_BYTES_MAX + histogram.encoded_bytes_max()
}

impl NewSeries {
    /// Whether it has no samples.
    pub(crate) fn is_empty(&self) -> bool {
        self.samples.is_empty() && self.histograms.is_empty()
    }

    /// Number of samples and histograms.
    pub(crate) fn sample_count(&self) -> usize {
        self.samples.len() + self.histograms.len()
    }
}

impl Write {
    /// Number of samples and histograms.
    pub(crate) fn sample_count(&self) -> usize {
        let new_series = self.new_series.iter();
        let new_samples = new_series.map(NewSeries::sample_count);
        self.samples.len() + self.histograms.len() + new_samples.sum::<usize>()
    }

    /// What it takes in the log, at most.
    pub(crate) fn log_bytes(&self) -> usize {
        let histogram_bytes = |all: &mut dyn Iterator<Item = &Arc<Histogram>>| -> usize {
            all.map(|histogram| histogram_bytes_max(histogram)).sum()
        };
        let new_series_bytes = self.new_series.iter().map(|new| {
            let histograms = &mut new.histograms.iter().map(|(_, histogram)| histogram);
            new.labels.as_key().len()
                + 20
                + new.samples.len() * SAMPLE_BYTES_MAX
                + histogram_bytes(histograms)
        });
        128 + self.samples.len() * SAMPLE_BYTES_MAX
            + histogram_bytes(&mut self.histograms.histograms.iter())
            + new_series_bytes.sum::<usize>()
    }
}

pub(crate) struct Shard<L: Log> {
    pub core: Core,
    pub log: L,
    metrics: Arc<Metrics>,
    backlog: BulkBacklog,
    batch: Batch,
    /// New series that are not in the log yet: the append that had them was refused.
    unlogged_series: Vec<Arc<HeadSeries>>,
}

/// How long a shard sleeps at most.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// How long to wait before a log is asked again what became of a batch.
const RESOLVE_RETRY_DELAY: Duration = Duration::from_millis(20);

impl<L: Log + 'static> Shard<L> {
    pub(crate) fn new(mut core: Core, log: L, metrics: Arc<Metrics>) -> Self {
        core.next_seq = log.next_seq();
        Self {
            core,
            log,
            metrics,
            backlog: BulkBacklog::default(),
            batch: Batch::new(),
            unlogged_series: Vec::new(),
        }
    }

    /// Works until the inbox is closed and empty, or the log fails. However it ends, waiting
    /// requests are answered with an error, and later ones are refused.
    ///
    /// # Errors
    /// Why the shard cannot go on.
    pub(crate) fn run(mut self) -> Result<(), SeriesError> {
        let shared = self.core.shared.clone();
        let mut queued = Vec::new();
        // What a panic has left is not looked at any more.
        let result = catch_unwind(AssertUnwindSafe(|| self.process_inbox(&mut queued)));
        let failure = match result {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(SeriesError::from(error)),
            Err(_) => Some(SeriesError::ShardFailed { shard: shared.number }),
        };
        if let Some(failure) = &failure {
            // It is set once.
            let _ = shared.failure.set(failure.clone());
        }
        shared.inbox.close();
        let mut arrived = Vec::new();
        shared.inbox.take_all(&mut arrived, None);
        queued.extend(self.backlog.drain().chain(arrived));
        let error = failure.clone().unwrap_or(SeriesError::Stopping);
        for submission in queued {
            match submission {
                Submission::Write(Write { ack: ticket, .. }) | Submission::Delete(_, ticket) => {
                    ticket.complete_part(Err(error.clone()));
                }
                Submission::Run(_) => {}
            }
        }
        failure.map_or(Ok(()), Err)
    }

    fn process_inbox(&mut self, queued: &mut Vec<Submission>) -> Result<(), LogError> {
        loop {
            let deadline = self.log.sync_deadline();
            let time_left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            let wait = match time_left {
                _ if !self.backlog.is_empty() => Duration::ZERO,
                Some(until) => until.min(WAIT_MAX),
                None => WAIT_MAX,
            };
            let drained = self.core.shared.inbox.take_all(queued, Some(wait));
            if drained == Waiting::Closed && self.backlog.is_empty() {
                return self.log.sync();
            }
            self.run_turn(queued)?;
            let (items, bytes) = (self.backlog.len(), self.backlog.bytes());
            self.core.shared.inbox.set_unprocessed(items, bytes);
        }
    }

    /// Does all that has come, except for bulk writes that are put off to the next turn.
    ///
    /// # Errors
    /// [`LogError`] when the log takes nothing any more; `queued` has what was not answered then.
    pub(crate) fn run_turn(&mut self, queued: &mut Vec<Submission>) -> Result<(), LogError> {
        self.backlog.plan_turn(queued);
        self.process_submissions(queued)
    }

    /// Whether bulk writes were put off to the next turn.
    #[cfg(test)]
    pub(crate) fn has_backlog(&self) -> bool {
        !self.backlog.is_empty()
    }

    fn process_submissions(&mut self, queued: &mut Vec<Submission>) -> Result<(), LogError> {
        let mut writes = Vec::new();
        let mut bytes = 0;
        let bytes_max = self.log.batch_bytes_max() / 2;
        let mut submissions = std::mem::take(queued).into_iter();
        while let Some(submission) = submissions.next() {
            let result = match submission {
                Submission::Write(write) => {
                    let write_bytes = write.log_bytes();
                    let is_full = bytes + write_bytes > bytes_max && !writes.is_empty();
                    let done = if is_full { self.commit(&mut writes) } else { Ok(()) };
                    bytes = if is_full { write_bytes } else { bytes + write_bytes };
                    writes.push(write);
                    done
                }
                Submission::Delete(deletion, ticket) => {
                    bytes = 0;
                    let done = self.commit(&mut writes);
                    if done.is_ok() { self.delete(&deletion, &ticket) } else { done }
                }
                Submission::Run(core_fn) => {
                    let done = self.commit(&mut writes);
                    bytes = 0;
                    if done.is_ok() {
                        core_fn(&mut self.core);
                    }
                    done
                }
            };
            if let Err(error) = result {
                queued.extend(writes.into_iter().map(Submission::Write));
                queued.extend(submissions);
                return Err(error);
            }
        }
        if let Err(error) = self.commit(&mut writes) {
            queued.extend(writes.into_iter().map(Submission::Write));
            return Err(error);
        }
        self.core.publish_sizes();
        if let Some(seq) = self.core.truncate_below.take() {
            self.log.truncate_below(seq)?;
        }
        if self.log.sync_deadline().is_some_and(|at| at <= Instant::now()) {
            self.log.sync()?;
        }
        Ok(())
    }

    fn delete(&mut self, deletion: &Deletion, ack: &WriteAck) -> Result<(), LogError> {
        self.batch.push_with(|body| record::put_deletion(body, deletion));
        match self.append() {
            Ok(()) => {
                self.core.apply_deletion(self.core.next_seq, deletion);
                self.core.next_seq = self.log.next_seq();
                ack.complete_part(Ok(Outcome::default()));
                Ok(())
            }
            Err(error @ (LogError::Full { .. } | LogError::BatchTooLarge(_))) => {
                self.batch.clear();
                ack.complete_part(Err(error.into()));
                Ok(())
            }
            Err(error) => {
                ack.complete_part(Err(error.clone().into()));
                Err(error)
            }
        }
    }

    /// Writes requests with one append, adds them to the head, and answers them.
    fn commit(&mut self, writes: &mut Vec<Write>) -> Result<(), LogError> {
        if writes.is_empty() {
            return Ok(());
        }
        self.metrics.append_requests.observe(writes.len() as f64);
        let began = Instant::now();
        self.assign_series_numbers(writes);
        let numbered_at = Instant::now();
        self.metrics.observe_duration(Component::Insert, numbered_at - began);
        let (records, log_bytes) = match self.append_to_log(writes, numbered_at) {
            Ok(logged) => logged,
            // What is too much for the log is no reason to take nothing more.
            Err(error @ (LogError::Full { .. } | LogError::BatchTooLarge(_))) => {
                self.batch.clear();
                let error = SeriesError::from(error);
                writes.drain(..).for_each(|write| write.ack.complete_part(Err(error.clone())));
                return Ok(());
            }
            Err(error) => {
                self.batch.clear();
                return Err(error);
            }
        };
        let logged_at = Instant::now();
        let last_seq = self.core.next_seq.plus(records - 1);
        for write in writes.drain(..) {
            self.core.note_samples(last_seq, &write.samples.times_ms);
            let mut outcome = self.core.append_samples(&write.samples);
            if !write.histograms.is_empty() {
                self.core.note_samples(last_seq, &write.histograms.times_ms);
                outcome.merge(self.core.append_histograms(&write.histograms));
            }
            let count = write.samples.len() + write.histograms.len();
            let added = count as u64 - outcome.duplicates - outcome.conflicts;
            self.metrics.acknowledged_samples.inc_by(added);
            self.metrics.late_samples.inc_by(outcome.late);
            write.ack.complete_part(Ok(outcome));
        }
        self.core.note_bytes(log_bytes);
        self.core.next_seq = self.log.next_seq();
        self.metrics.observe_duration(Component::Append, logged_at.elapsed());
        Ok(())
    }

    /// Gives new series their numbers, and puts their samples with the others.
    fn assign_series_numbers(&mut self, writes: &mut [Write]) {
        let unlogged_before = self.unlogged_series.len();
        for write in writes {
            for new_series in std::mem::take(&mut write.new_series) {
                let keys = read_lock(&self.core.series_keys);
                let series_ref = keys.find_series(&new_series.labels);
                drop(keys);
                let known_number = series_ref
                    .map(|place| place.number)
                    .or_else(|| self.core.revive(&new_series.labels));
                let number = known_number.unwrap_or_else(|| {
                    let number = self.core.head.next_number();
                    self.unlogged_series
                        .push(self.core.add_series(number, new_series.labels.clone()));
                    number
                });
                if let Some(alias) = &new_series.alias {
                    let series_keys = &self.core.series_keys;
                    let mut known = write_lock(series_keys);
                    known.add_alias(&new_series.labels, alias);
                }
                for (time_ms, value) in new_series.samples {
                    write.samples.push(number, time_ms, value);
                }
                for (time_ms, histogram) in new_series.histograms {
                    write.histograms.push(number, time_ms, histogram);
                }
            }
        }
        let added = &self.unlogged_series[unlogged_before..];
        if !added.is_empty() {
            self.metrics.added_series.inc_by(added.len() as u64);
            self.core.shared.index.add(added.iter().cloned());
        }
    }

    /// Appends what new series and requests say. Returns how many records the last append had, and
    /// their bytes.
    fn append_to_log(
        &mut self,
        writes: &[Write],
        began: Instant,
    ) -> Result<(u64, usize), LogError> {
        while let Some(count) = self.count_separate_series() {
            self.encode_series(count);
            self.append()?;
            self.unlogged_series.drain(..count);
            self.core.next_seq = self.log.next_seq();
        }
        let records = self.encode_records(writes);
        let bytes = self.batch.frame_bytes();
        let encoded_at = Instant::now();
        self.metrics.observe_duration(Component::Encode, encoded_at - began);
        self.append()?;
        self.unlogged_series.clear();
        self.metrics.observe_duration(Component::Log, encoded_at.elapsed());
        Ok((records, bytes))
    }

    /// How many of the new series are written apart, because all of them are too much for one
    /// append: while the disk was full there may have come any number.
    fn count_separate_series(&self) -> Option<usize> {
        let bytes_max = self.log.batch_bytes_max() / 4;
        let mut bytes = 0;
        self.unlogged_series
            .iter()
            .position(|series| {
                bytes += series.labels.as_key().len() + SAMPLE_BYTES_MAX;
                bytes > bytes_max
            })
            // The one that is over is too large by itself only when a label may be as large as an
            // append.
            .map(|count| count.max(1))
    }

    /// Lays out the record of the first of the new series.
    fn encode_series(&mut self, count: usize) {
        let series = &self.unlogged_series[..count];
        self.batch.push_with(|body| {
            let pairs = series.iter().map(|one| (one.number, one.labels.as_key().as_bytes()));
            record::put_series(body, pairs);
        });
    }

    /// Lays out the records of new series and of requests, and returns how many there are.
    fn encode_records(&mut self, writes: &[Write]) -> u64 {
        if !self.unlogged_series.is_empty() {
            self.encode_series(self.unlogged_series.len());
        }
        for write in writes {
            if !write.samples.is_empty() {
                self.batch.push_with(|body| record::put_samples(body, &write.samples));
            }
            if !write.histograms.is_empty() {
                self.batch.push_with(|body| record::put_histograms(body, &write.histograms));
            }
        }
        self.batch.len() as u64
    }

    fn append(&mut self) -> Result<(), LogError> {
        let expected = self.core.next_seq;
        let mut result = self.log.append(&mut self.batch, expected)?;
        loop {
            match result {
                AppendResult::Committed(_) => return Ok(()),
                AppendResult::Unknown => {
                    std::thread::sleep(RESOLVE_RETRY_DELAY);
                    result = self.log.resolve(&mut self.batch, expected)?;
                }
                AppendResult::Fenced => {
                    return Err(LogError::Stopped {
                        place: format!("shard {}", self.core.shared.number),
                        reason: "another writer has taken its log over".into(),
                    });
                }
            }
        }
    }
}
