//! A shard's thread: takes everything that waits, writes it with one append, adds it to the head,
//! and answers each request with its outcome.
//!
//! New series get their numbers before the append; a record says so once. Samples are in the log
//! before they are in the head, and in the head before they are acknowledged: what is acknowledged
//! is seen at once. When the log fails, the shard ends.

mod core;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use egret_base::sync::{read_lock, write_lock};
use egret_log::{AppendResult, Batch, DrainResult as Waiting, Inbox, Log, LogError};
use egret_metrics_model::{Histogram, Labels, TimeMs};

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
    /// Memory of samples that are not in blocks, as it was a moment ago.
    pub head_bytes: AtomicU64,
    /// What they take in the log.
    pub log_bytes: AtomicU64,
    /// Whether a series may be in the head twice: removed, and created again before a restart.
    pub has_twins: AtomicBool,
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

/// What of a request goes to one shard.
#[derive(Debug)]
pub(crate) struct Write {
    pub samples: SampleBatch,
    pub histograms: HistogramBatch,
    pub new: Vec<NewSeries>,
    pub ticket: Arc<WriteAck>,
}

/// What a shard is asked to do between two appends.
pub(crate) type Ask = Box<dyn FnOnce(&mut Core) + Send>;

/// An item in a shard's inbox.
pub(crate) enum Submission {
    Write(Write),
    Delete(Arc<Deletion>, Arc<WriteAck>),
    Ask(Ask),
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
}

impl Write {
    /// What it takes in the log, at most.
    pub(crate) fn log_bytes(&self) -> usize {
        let of_histograms = |all: &mut dyn Iterator<Item = &Arc<Histogram>>| -> usize {
            all.map(|histogram| histogram_bytes_max(histogram)).sum()
        };
        let new = self.new.iter().map(|new| {
            let histograms = &mut new.histograms.iter().map(|(_, histogram)| histogram);
            new.labels.as_key().len()
                + 20
                + new.samples.len() * SAMPLE_BYTES_MAX
                + of_histograms(histograms)
        });
        128 + self.samples.len() * SAMPLE_BYTES_MAX
            + of_histograms(&mut self.histograms.histograms.iter())
            + new.sum::<usize>()
    }
}

pub(crate) struct Shard<L: Log> {
    pub core: Core,
    pub log: L,
    metrics: Arc<Metrics>,
    batch: Batch,
    /// New series that are not in the log yet: the append that had them was refused.
    unlogged: Vec<Arc<HeadSeries>>,
}

/// How long a shard sleeps at most.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// How long to wait before a log is asked again what became of a batch.
const RESOLVE_PAUSE: Duration = Duration::from_millis(20);

impl<L: Log + 'static> Shard<L> {
    pub(crate) fn new(mut core: Core, log: L, metrics: Arc<Metrics>) -> Self {
        core.next = log.next();
        Self {
            core,
            log,
            metrics,
            batch: Batch::new(),
            unlogged: Vec::new(),
        }
    }

    /// Works until the inbox is closed and empty, or the log fails. However it ends, waiting
    /// requests are answered with an error, and later ones are refused.
    ///
    /// # Errors
    /// Why the shard cannot go on.
    pub(crate) fn run(mut self) -> Result<(), SeriesError> {
        let shared = self.core.shared.clone();
        let mut waiting = Vec::new();
        // What a panic has left is not looked at any more.
        let worked = catch_unwind(AssertUnwindSafe(|| self.work(&mut waiting)));
        let failure = match worked {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(SeriesError::from(error)),
            Err(_) => Some(SeriesError::ShardFailed {
                shard: shared.number,
            }),
        };
        if let Some(failure) = &failure {
            // It is set once.
            let _ = shared.failure.set(failure.clone());
        }
        shared.inbox.close();
        shared.inbox.take_all(&mut waiting, None);
        let error = failure.clone().unwrap_or(SeriesError::Stopping);
        for submission in waiting {
            match submission {
                Submission::Write(Write { ticket, .. }) | Submission::Delete(_, ticket) => {
                    ticket.done(Err(error.clone()));
                }
                Submission::Ask(_) => {}
            }
        }
        failure.map_or(Ok(()), Err)
    }

    fn work(&mut self, waiting: &mut Vec<Submission>) -> Result<(), LogError> {
        loop {
            let deadline = self.log.sync_deadline();
            let until = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            let pause = until.map_or(PAUSE_MAX, |until| until.min(PAUSE_MAX));
            if self.core.shared.inbox.take_all(waiting, Some(pause)) == Waiting::Closed {
                return self.log.sync();
            }
            self.turn(waiting)?;
        }
    }

    /// Does all that waits.
    ///
    /// # Errors
    /// [`LogError`] when the log takes nothing any more; what waits then has not been told.
    pub(crate) fn turn(&mut self, waiting: &mut Vec<Submission>) -> Result<(), LogError> {
        let mut writes = Vec::new();
        let mut bytes = 0;
        let room = self.log.batch_bytes_max() / 2;
        let mut all = std::mem::take(waiting).into_iter();
        while let Some(submission) = all.next() {
            let done = match submission {
                Submission::Write(write) => {
                    let needed = write.log_bytes();
                    let full = bytes + needed > room && !writes.is_empty();
                    let done = if full {
                        self.commit(&mut writes)
                    } else {
                        Ok(())
                    };
                    bytes = if full { needed } else { bytes + needed };
                    writes.push(write);
                    done
                }
                Submission::Delete(deletion, ticket) => {
                    bytes = 0;
                    let done = self.commit(&mut writes);
                    if done.is_ok() {
                        self.delete(&deletion, &ticket)
                    } else {
                        done
                    }
                }
                Submission::Ask(ask) => {
                    let done = self.commit(&mut writes);
                    bytes = 0;
                    if done.is_ok() {
                        ask(&mut self.core);
                    }
                    done
                }
            };
            if let Err(error) = done {
                waiting.extend(writes.into_iter().map(Submission::Write));
                waiting.extend(all);
                return Err(error);
            }
        }
        if let Err(error) = self.commit(&mut writes) {
            waiting.extend(writes.into_iter().map(Submission::Write));
            return Err(error);
        }
        self.core.publish();
        if let Some(seq) = self.core.cut.take() {
            self.log.truncate_below(seq)?;
        }
        if self
            .log
            .sync_deadline()
            .is_some_and(|at| at <= Instant::now())
        {
            self.log.sync()?;
        }
        Ok(())
    }

    fn delete(&mut self, deletion: &Deletion, ticket: &WriteAck) -> Result<(), LogError> {
        self.batch
            .push_with(|body| record::put_deletion(body, deletion));
        match self.append() {
            Ok(()) => {
                self.core.delete(self.core.next, deletion);
                self.core.next = self.log.next();
                ticket.done(Ok(Outcome::default()));
                Ok(())
            }
            Err(error @ (LogError::Full { .. } | LogError::BatchTooLarge(_))) => {
                self.batch.clear();
                ticket.done(Err(error.into()));
                Ok(())
            }
            Err(error) => {
                ticket.done(Err(error.clone().into()));
                Err(error)
            }
        }
    }

    /// Writes requests with one append, adds them to the head, and answers them.
    fn commit(&mut self, writes: &mut Vec<Write>) -> Result<(), LogError> {
        if writes.is_empty() {
            return Ok(());
        }
        self.metrics.requests.observe(writes.len() as f64);
        let began = Instant::now();
        self.number_new(writes);
        let numbered = Instant::now();
        self.metrics.took(Component::Insert, numbered - began);
        let (records, log_bytes) = match self.log(writes, numbered) {
            Ok(logged) => logged,
            // What is too much for the log is no reason to take nothing more.
            Err(error @ (LogError::Full { .. } | LogError::BatchTooLarge(_))) => {
                self.batch.clear();
                let error = SeriesError::from(error);
                writes
                    .drain(..)
                    .for_each(|write| write.ticket.done(Err(error.clone())));
                return Ok(());
            }
            Err(error) => {
                self.batch.clear();
                return Err(error);
            }
        };
        let logged = Instant::now();
        let last = self.core.next.plus(records - 1);
        for write in writes.drain(..) {
            self.core.note(last, &write.samples.times_ms);
            let mut outcome = self.core.take(&write.samples);
            if !write.histograms.is_empty() {
                self.core.note(last, &write.histograms.times_ms);
                outcome.add(self.core.take_histograms(&write.histograms));
            }
            let count = write.samples.len() + write.histograms.len();
            let added = count as u64 - outcome.same - outcome.conflicts;
            self.metrics.samples.inc_by(added);
            self.metrics.late.inc_by(outcome.late);
            write.ticket.done(Ok(outcome));
        }
        self.core.note_bytes(log_bytes);
        self.core.next = self.log.next();
        self.metrics.took(Component::Append, logged.elapsed());
        Ok(())
    }

    /// Gives new series their numbers, and puts their samples with the others.
    fn number_new(&mut self, writes: &mut [Write]) {
        let before = self.unlogged.len();
        for write in writes {
            for new in std::mem::take(&mut write.new) {
                let known = read_lock(&self.core.known);
                let place = known.series(&new.labels);
                drop(known);
                let known = place
                    .map(|place| place.number)
                    .or_else(|| self.core.revive(&new.labels));
                let number = known.unwrap_or_else(|| {
                    let number = self.core.head.next_number();
                    self.unlogged
                        .push(self.core.add(number, new.labels.clone()));
                    number
                });
                if let Some(alias) = &new.alias {
                    let known = &self.core.known;
                    let mut known = write_lock(known);
                    known.add_alias(&new.labels, alias);
                }
                for (time_ms, value) in new.samples {
                    write.samples.push(number, time_ms, value);
                }
                for (time_ms, histogram) in new.histograms {
                    write.histograms.push(number, time_ms, histogram);
                }
            }
        }
        let added = &self.unlogged[before..];
        if !added.is_empty() {
            self.metrics.added.inc_by(added.len() as u64);
            self.core.shared.index.add(added.iter().cloned());
        }
    }

    /// Appends what new series and requests say. Returns how many records the last append had, and
    /// their bytes.
    fn log(&mut self, writes: &[Write], began: Instant) -> Result<(u64, usize), LogError> {
        while let Some(count) = self.too_many_new() {
            self.put_series(count);
            self.append()?;
            self.unlogged.drain(..count);
            self.core.next = self.log.next();
        }
        let records = self.encode(writes);
        let bytes = self.batch.bytes();
        let encoded = Instant::now();
        self.metrics.took(Component::Encode, encoded - began);
        self.append()?;
        self.unlogged.clear();
        self.metrics.took(Component::Log, encoded.elapsed());
        Ok((records, bytes))
    }

    /// How many of the new series are written apart, because all of them are too much for one
    /// append: while the disk was full there may have come any number.
    fn too_many_new(&self) -> Option<usize> {
        let room = self.log.batch_bytes_max() / 4;
        let mut bytes = 0;
        self.unlogged
            .iter()
            .position(|series| {
                bytes += series.labels.as_key().len() + SAMPLE_BYTES_MAX;
                bytes > room
            })
            // The one that is over is too large by itself only when a label may be as large as an
            // append.
            .map(|before| before.max(1))
    }

    /// Lays out the record of the first of the new series.
    fn put_series(&mut self, count: usize) {
        let series = &self.unlogged[..count];
        self.batch.push_with(|body| {
            let pairs = series
                .iter()
                .map(|one| (one.number, one.labels.as_key().as_bytes()));
            record::put_series(body, pairs);
        });
    }

    /// Lays out the records of new series and of requests, and returns how many there are.
    fn encode(&mut self, writes: &[Write]) -> u64 {
        if !self.unlogged.is_empty() {
            self.put_series(self.unlogged.len());
        }
        for write in writes {
            if !write.samples.is_empty() {
                self.batch
                    .push_with(|body| record::put_samples(body, &write.samples));
            }
            if !write.histograms.is_empty() {
                self.batch
                    .push_with(|body| record::put_histograms(body, &write.histograms));
            }
        }
        self.batch.len() as u64
    }

    fn append(&mut self) -> Result<(), LogError> {
        let expected = self.core.next;
        let mut appended = self.log.append(&mut self.batch, expected)?;
        loop {
            match appended {
                AppendResult::Committed(_) => return Ok(()),
                AppendResult::Unknown => {
                    std::thread::sleep(RESOLVE_PAUSE);
                    appended = self.log.resolve(&mut self.batch, expected)?;
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
