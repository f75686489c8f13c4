//! Writes samples: submits them to their shards and waits for the outcome.

use std::sync::Arc;
use std::time::Instant;

use egret_base::sync::write_lock;
use egret_log::InboxRejection;
use egret_metrics_model::{Histogram, Labels, TimeMs};

use super::Series;
use super::append_chunks::{PIECE_SAMPLES, split_part};
use super::ingest_batch::{AcceptedSpan, RejectedSamples, ShardPart, ShardedBatch, label_limits};
use super::remote_write::ReadResult;
use crate::core::rules::NewSample;
use crate::engine::{Buffers, EngineInner};
use crate::error::SeriesError;
use crate::metrics::Component;
use crate::worker::shard::{Submission, Write, WritePriority};
use crate::worker::write_ack::{Outcome, WriteAck};

/// Outcome of a write request, as counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteCounts {
    /// Samples that were added, or were there already; native histograms among them.
    pub samples: u64,
    /// Of these, native histograms.
    pub histograms: u64,
    /// Of these, those that came late.
    pub late: u64,
    /// Samples and series that were refused.
    pub rejected: RejectedSamples,
    /// How many of these have no room for their series, and why, if there are any.
    pub without_room: Option<String>,
    /// Those that were dropped because another replica is listened to.
    pub duplicates: Duplicates,
}

/// Samples of a replica that is not listened to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Duplicates {
    /// Samples, native histograms among them.
    pub samples: u64,
    /// Of these, native histograms.
    pub histograms: u64,
}

/// The value of a sample.
#[derive(Clone, Debug)]
pub enum WrittenValue {
    /// A number, as a float.
    Number(f64),
    /// A native histogram sample.
    Histogram(Arc<Histogram>),
}

impl From<f64> for WrittenValue {
    fn from(value: f64) -> Self {
        Self::Number(value)
    }
}

/// How often a request is looked up again whose series went away meanwhile.
const ATTEMPTS_MAX: usize = 3;

impl Series {
    /// Takes in a request of remote write 1.0 as it came, compressed.
    ///
    /// # Errors
    /// [`SeriesError::Wire`], and then nothing was taken in; [`SeriesError::Overloaded`] and others
    /// of writing.
    pub async fn remote_write_v1(&self, body: &[u8]) -> Result<WriteCounts, SeriesError> {
        self.write_compressed(body, EngineInner::read_v1).await
    }

    /// Takes in a request of remote write 2.0 as it came, compressed.
    ///
    /// # Errors
    /// As [`Series::remote_write_v1`].
    pub async fn remote_write_v2(&self, body: &[u8]) -> Result<WriteCounts, SeriesError> {
        self.write_compressed(body, EngineInner::read_v2).await
    }

    /// Takes in samples of labelled series.
    ///
    /// # Errors
    /// As [`Series::remote_write_v1`].
    pub async fn append(
        &self,
        samples: impl IntoIterator<Item = (Labels, TimeMs, impl Into<WrittenValue>)> + Clone + Send,
    ) -> Result<WriteCounts, SeriesError> {
        let inner = &self.inner;
        for _ in 0..ATTEMPTS_MAX {
            let batch = inner.collect_labelled(samples.clone())?;
            if let Some(written) = inner.submit(batch).await? {
                return Ok(written);
            }
        }
        Err(SeriesError::Stopping)
    }

    /// Like [`Series::append`], for a scrape: the samples of `report` are written beyond the limit
    /// on series.
    pub(super) async fn append_with_report(
        &self,
        samples: &[NewSample],
        report: &[NewSample],
    ) -> Result<WriteCounts, SeriesError> {
        let inner = &self.inner;
        let written = samples.iter().chain(report);
        let written = written.map(|sample| (sample.labels.clone(), sample.time_ms, sample.value));
        for _ in 0..ATTEMPTS_MAX {
            let mut gather = inner.collect_labelled(written.clone())?;
            gather.beyond_limit = report.iter().map(|sample| sample.labels.clone()).collect();
            if let Some(counts) = inner.submit(gather).await? {
                return Ok(counts);
            }
        }
        Err(SeriesError::Stopping)
    }

    async fn write_compressed(
        &self,
        body: &[u8],
        read_body: fn(&EngineInner, &[u8], &mut Buffers) -> Result<ReadResult, SeriesError>,
    ) -> Result<WriteCounts, SeriesError> {
        for _ in 0..ATTEMPTS_MAX {
            let batch = match self.inner.read_compressed(body, read_body)? {
                ReadResult::Batch(gather) => gather,
                ReadResult::Duplicates(duplicates) => {
                    self.inner.metrics.deduplicated_samples.inc_by(duplicates.samples);
                    return Ok(WriteCounts { duplicates, ..WriteCounts::default() });
                }
            };
            if let Some(counts) = self.inner.submit(batch).await? {
                return Ok(counts);
            }
        }
        // Series do not go away that fast.
        Err(SeriesError::Stopping)
    }
}

impl EngineInner {
    pub(super) fn new_batch(&self) -> Result<ShardedBatch, SeriesError> {
        let config = &self.config;
        let now_ms = self.now_ms();
        let retention_max_ms = self.retention_max_ms.get().copied().unwrap_or(TimeMs::MAX);
        let bounds = AcceptedSpan {
            oldest_ms: match retention_max_ms {
                TimeMs::MAX => TimeMs::MIN,
                _ => now_ms.saturating_sub(retention_max_ms),
            },
            newest_ms: now_ms + config.future_max.duration().as_millis() as TimeMs,
        };
        Ok(ShardedBatch::new(self.shards()?.len(), bounds, label_limits(config)))
    }

    fn collect_labelled(
        &self,
        samples: impl IntoIterator<Item = (Labels, TimeMs, impl Into<WrittenValue>)>,
    ) -> Result<ShardedBatch, SeriesError> {
        let mut batch = self.new_batch()?;
        let keys = self.read_series_keys();
        for (labels, time_ms, value) in samples {
            let target = batch.resolve_unchecked_labels(&keys, labels);
            match value.into() {
                WrittenValue::Number(value) => batch.add_sample(target, time_ms, value),
                WrittenValue::Histogram(histogram) => {
                    batch.add_histogram(target, time_ms, histogram)
                }
            }
        }
        Ok(batch)
    }

    /// Hands a request's samples to their shards and waits until they are durable. Nothing comes
    /// back when series went away meanwhile, and the request has to be read again.
    async fn submit(&self, mut batch: ShardedBatch) -> Result<Option<WriteCounts>, SeriesError> {
        self.enforce_series_max(&mut batch)?;
        if !batch.aliases.is_empty() {
            let mut keys = write_lock(&self.series_keys);
            for (labels, alias) in batch.aliases.drain(..) {
                keys.add_alias(&labels, &alias);
            }
        }
        let outcome = self.submit_parts(batch.take_parts()).await?;
        if outcome.unknown_series > 0 {
            return Ok(None);
        }
        let mut rejected = batch.rejected;
        if let Some((labels, time_ms)) = outcome.first_conflict {
            let reason = format!("{labels} already has another value at {time_ms}, which is kept");
            rejected.add(outcome.conflicts, reason);
        }
        self.metrics.rejected_samples.inc_by(rejected.samples);
        Ok(Some(WriteCounts {
            samples: batch.samples - outcome.conflicts,
            histograms: batch.histograms - outcome.histogram_conflicts,
            late: outcome.late,
            rejected,
            without_room: batch.without_room,
            duplicates: Duplicates::default(),
        }))
    }

    async fn submit_parts(&self, parts: Vec<ShardPart>) -> Result<Outcome, SeriesError> {
        let sample_count: usize = parts.iter().map(ShardPart::sample_count).sum();
        let priority =
            if sample_count > PIECE_SAMPLES { WritePriority::Bulk } else { WritePriority::Live };
        let pieces: Vec<(usize, ShardPart)> = parts
            .into_iter()
            .enumerate()
            .flat_map(|(shard, part)| split_part(part).into_iter().map(move |piece| (shard, piece)))
            .collect();
        if pieces.is_empty() {
            return Ok(Outcome::default());
        }
        let shards = self.shards()?;
        let began = Instant::now();
        let (ack, receiver) = WriteAck::new(pieces.len());
        for (shard, part) in pieces {
            let write = Write {
                samples: part.samples,
                histograms: part.histograms,
                new_series: part.new_series,
                priority,
                ack: ack.clone(),
            };
            let bytes = write.log_bytes();
            let ticket = write.ack.clone();
            if let Err(rejection) = shards[shard].inbox.push(Submission::Write(write), bytes) {
                ticket.complete_part(Err(match rejection {
                    InboxRejection::Full(_, limit) => SeriesError::Overloaded(limit),
                    InboxRejection::Closed(_) => self.shard_end_error(&shards[shard]),
                }));
            }
        }
        let outcome = receiver.await.unwrap_or(Err(SeriesError::Stopping));
        self.metrics.observe_duration(Component::Wait, began.elapsed());
        outcome
    }

    /// Leaves out the new series for which there is no room: those that are known, and as many new
    /// ones as there is room for, are written all the same.
    ///
    /// # Errors
    /// [`SeriesError::TooManySeries`] when nothing is left to be written.
    fn enforce_series_max(&self, batch: &mut ShardedBatch) -> Result<(), SeriesError> {
        if !batch.has_new() {
            return Ok(());
        }
        let max = self.config.series_max;
        let free_count = max.saturating_sub(self.read_series_keys().len() as u64);
        let dropped_samples = batch.drop_new_series(free_count);
        if dropped_samples == 0 {
            return Ok(());
        }
        let error = SeriesError::TooManySeries { max };
        if batch.samples == 0 {
            return Err(error);
        }
        batch.without_room = Some(format!("{dropped_samples} samples were refused: {error}"));
        batch.rejected.add(dropped_samples, error);
        Ok(())
    }
}
