//! Samples come in.

use std::sync::{Arc, PoisonError};
use std::time::Instant;

use egret_log::Refused;

use super::gather::{Bounds, Gather, Part, Rejected, limits};
use super::pieces::split;
use super::remote_write::{Buffers, Read};
use super::{Inner, Series};
use crate::error::SeriesError;
use crate::metrics::Component;
use crate::model::{Histogram, Labels, TimeMs};
use crate::worker::shard::{Submission, Write};
use crate::worker::ticket::{Outcome, Ticket};

/// What became of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Samples that were added, or were there already; native histograms among them.
    pub samples: u64,
    /// Of these, native histograms.
    pub histograms: u64,
    /// Of these, those that came late.
    pub late: u64,
    /// Those that were refused.
    pub rejected: Rejected,
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
pub enum Value {
    /// A number.
    Number(f64),
    /// A native histogram.
    Histogram(Arc<Histogram>),
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Number(value)
    }
}

/// How often a request is looked up again whose series went away meanwhile.
const TRIES: usize = 3;

impl Series {
    /// Takes in a request of remote write 1.0 as it came, compressed.
    ///
    /// # Errors
    /// [`SeriesError::Wire`], and then nothing was taken in; [`SeriesError::Overloaded`] and others of writing.
    pub async fn remote_write_v1(&self, body: &[u8]) -> Result<Written, SeriesError> {
        self.write_compressed(body, Inner::gather_v1).await
    }

    /// Takes in a request of remote write 2.0 as it came, compressed.
    ///
    /// # Errors
    /// As [`Series::remote_write_v1`].
    pub async fn remote_write_v2(&self, body: &[u8]) -> Result<Written, SeriesError> {
        self.write_compressed(body, Inner::gather_v2).await
    }

    /// Takes in samples of labelled series.
    ///
    /// # Errors
    /// As [`Series::remote_write_v1`].
    pub async fn append(
        &self,
        samples: impl IntoIterator<Item = (Labels, TimeMs, impl Into<Value>)> + Clone + Send,
    ) -> Result<Written, SeriesError> {
        let inner = &self.inner;
        for _ in 0..TRIES {
            let gather = inner.gather_labelled(samples.clone())?;
            if let Some(written) = inner.submit(gather).await? {
                return Ok(written);
            }
        }
        Err(SeriesError::Stopping)
    }

    async fn write_compressed(
        &self,
        body: &[u8],
        read: fn(&Inner, &[u8], &mut Buffers) -> Result<Read, SeriesError>,
    ) -> Result<Written, SeriesError> {
        for _ in 0..TRIES {
            let gather = match self.inner.gather_compressed(body, read)? {
                Read::Gather(gather) => gather,
                Read::Duplicates(duplicates) => {
                    self.inner.metrics.duplicates.inc_by(duplicates.samples);
                    return Ok(Written {
                        duplicates,
                        ..Written::default()
                    });
                }
            };
            if let Some(written) = self.inner.submit(gather).await? {
                return Ok(written);
            }
        }
        // Series do not go away that fast.
        Err(SeriesError::Stopping)
    }
}

impl Inner {
    pub(super) fn new_gather(&self) -> Result<Gather, SeriesError> {
        let config = &self.config;
        let now_ms = self.now_ms();
        let keep_max_ms = self.keep_max_ms.get().copied().unwrap_or(TimeMs::MAX);
        let bounds = Bounds {
            oldest_ms: match keep_max_ms {
                TimeMs::MAX => TimeMs::MIN,
                _ => now_ms.saturating_sub(keep_max_ms),
            },
            newest_ms: now_ms + config.future_max.duration().as_millis() as TimeMs,
        };
        Ok(Gather::new(self.shards()?.len(), bounds, limits(config)))
    }

    fn gather_labelled(
        &self,
        samples: impl IntoIterator<Item = (Labels, TimeMs, impl Into<Value>)>,
    ) -> Result<Gather, SeriesError> {
        let mut gather = self.new_gather()?;
        let known = self.known();
        for (labels, time_ms, value) in samples {
            let target = gather.unchecked(&known, labels);
            match value.into() {
                Value::Number(value) => gather.put(target, time_ms, value),
                Value::Histogram(histogram) => gather.put_histogram(target, time_ms, histogram),
            }
        }
        Ok(gather)
    }

    /// Hands a request's samples to their shards and waits until they are durable. Nothing comes back when
    /// series went away meanwhile, and the request has to be read again.
    async fn submit(&self, mut gather: Gather) -> Result<Option<Written>, SeriesError> {
        self.bound_series(&mut gather)?;
        if !gather.aliases.is_empty() {
            let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
            for (labels, alias) in gather.aliases.drain(..) {
                known.add_alias(&labels, &alias);
            }
        }
        let outcome = self.hand_over(gather.take_parts()).await?;
        if outcome.nowhere > 0 {
            return Ok(None);
        }
        let mut rejected = gather.rejected;
        if let Some((labels, time_ms)) = outcome.first_conflict {
            let reason = format!("{labels} has another value at {time_ms}, which stays");
            rejected.add(outcome.conflicts, reason);
        }
        self.metrics.rejected.inc_by(rejected.samples);
        Ok(Some(Written {
            samples: gather.samples - outcome.conflicts,
            histograms: gather.histograms - outcome.histogram_conflicts,
            late: outcome.late,
            rejected,
            duplicates: Duplicates::default(),
        }))
    }

    async fn hand_over(&self, parts: Vec<Part>) -> Result<Outcome, SeriesError> {
        let pieces: Vec<(usize, Part)> = parts
            .into_iter()
            .enumerate()
            .flat_map(|(shard, part)| split(part).into_iter().map(move |piece| (shard, piece)))
            .collect();
        if pieces.is_empty() {
            return Ok(Outcome::default());
        }
        let shards = self.shards()?;
        let began = Instant::now();
        let (ticket, told) = Ticket::new(pieces.len());
        for (shard, part) in pieces {
            let write = Write {
                samples: part.samples,
                histograms: part.histograms,
                new: part.new,
                ticket: ticket.clone(),
            };
            let bytes = write.log_bytes();
            let ticket = write.ticket.clone();
            if let Err(refused) = shards[shard].inbox.push(Submission::Write(write), bytes) {
                ticket.done(Err(match refused {
                    Refused::Full(_, limit) => SeriesError::Overloaded(limit),
                    Refused::Closed(_) => self.why_ended(&shards[shard]),
                }));
            }
        }
        let outcome = told.await.unwrap_or(Err(SeriesError::Stopping));
        self.metrics.took(Component::Wait, began.elapsed());
        outcome
    }

    /// Leaves out the new series for which there is no room: those that are known, and as many new ones as there is
    /// room for, are written all the same.
    ///
    /// # Errors
    /// [`SeriesError::TooManySeries`] when nothing is left to be written.
    fn bound_series(&self, gather: &mut Gather) -> Result<(), SeriesError> {
        if !gather.has_new() {
            return Ok(());
        }
        let max = self.config.series_max;
        let room = max.saturating_sub(self.known().len() as u64);
        let left_out = gather.leave_out_new(room);
        if left_out == 0 {
            return Ok(());
        }
        let error = SeriesError::TooManySeries { max };
        if gather.samples == 0 {
            return Err(error);
        }
        gather.rejected.add(left_out, error);
        Ok(())
    }
}
