//! Samples come in.

use std::sync::{Arc, PoisonError};
use std::time::Instant;

use egret_log::Refused;

use super::describe::Said;
use super::elections::{Elections, Judged};
use super::gather::{Bounds, Gather, Part, Rejected, Target};
use super::{Inner, Series, lock};
use crate::core::known::KeyId;
use crate::error::SeriesError;
use crate::metrics::Component;
use crate::model::{Histogram, Labels, TimeMs};
use crate::wire::histogram::Histograms;
use crate::wire::remote_write_v1::{self, Entry, WriteRequest};
use crate::wire::remote_write_v2::{KeyMemory, Request, SymbolMemory};
use crate::wire::snappy::Snappy;
use crate::wire::{LabelLimits, Sample, Samples, WireError, WireHistogram};
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

impl Duplicates {
    fn count(
        &mut self,
        samples: Samples<'_>,
        mut histograms: Histograms<'_>,
    ) -> Result<(), WireError> {
        for sample in samples {
            sample?;
            self.samples += 1;
        }
        let mut read = WireHistogram::default();
        while histograms.read(&mut read)? {
            self.samples += 1;
            self.histograms += 1;
        }
        Ok(())
    }
}

/// What was made of a request.
enum Read {
    Gather(Gather),
    Duplicates(Duplicates),
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

/// Memory that a request needs while it is read.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    snappy: Snappy,
    symbols: SymbolMemory,
    key: KeyMemory,
}

/// Sets of buffers that are kept.
const BUFFERS_MAX: usize = 16;

/// Memory for decompression that is kept in each.
const BUFFER_BYTES_MAX: usize = 8 << 20;

/// Series that are looked up before others may change what is known.
const LOOKUPS: usize = 256;

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
    fn new_gather(&self) -> Result<Gather, SeriesError> {
        let config = &self.config;
        let now_ms = self.now_ms();
        let retention_ms = config.retention.duration().as_millis() as TimeMs;
        let bounds = Bounds {
            oldest_ms: match retention_ms {
                0 => TimeMs::MIN,
                _ => now_ms - retention_ms,
            },
            newest_ms: now_ms + config.future_max.duration().as_millis() as TimeMs,
        };
        let limits = LabelLimits {
            labels_per_series_max: config.labels_per_series_max,
            label_name_bytes_max: config.label_name_bytes_max.bytes(),
            label_value_bytes_max: config.label_value_bytes_max.bytes(),
        };
        Ok(Gather::new(self.shards()?.len(), bounds, limits))
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

    fn gather_compressed(
        &self,
        body: &[u8],
        read: fn(&Self, &[u8], &mut Buffers) -> Result<Read, SeriesError>,
    ) -> Result<Read, SeriesError> {
        let mut buffers = lock(&self.buffers).pop().unwrap_or_default();
        let mut snappy = std::mem::take(&mut buffers.snappy);
        let began = Instant::now();
        let decoded = snappy.decode(body, self.config.decoded_bytes_max.bytes());
        let gather = decoded.map_err(SeriesError::from).and_then(|decoded| {
            let decompressed = Instant::now();
            self.metrics
                .took(Component::Decompress, decompressed - began);
            let gather = read(self, decoded, &mut buffers);
            self.metrics
                .took(Component::Resolve, decompressed.elapsed());
            gather
        });
        snappy.shrink(BUFFER_BYTES_MAX);
        buffers.snappy = snappy;
        let mut kept = lock(&self.buffers);
        if kept.len() < BUFFERS_MAX {
            kept.push(buffers);
        }
        gather
    }

    fn gather_v1(&self, body: &[u8], _: &mut Buffers) -> Result<Read, SeriesError> {
        let mut gather = self.new_gather()?;
        if let Some(elections) = self.elections.get()
            && let Some(first) = next_series_v1(&mut WriteRequest::new(body))?
            && !self.is_listened_to(elections, &first.labels, &mut gather)?
        {
            let mut duplicates = Duplicates::default();
            let mut request = WriteRequest::new(body);
            while let Some(series) = next_series_v1(&mut request)? {
                duplicates.count(series.samples(), series.histograms())?;
            }
            return Ok(Read::Duplicates(duplicates));
        }
        let mut request = WriteRequest::new(body);
        let mut said = Said::default();
        let mut last: Option<KeyId> = None;
        'request: loop {
            let known = self.known();
            for _ in 0..LOOKUPS {
                let predicted = last.and_then(|last| known.after(last));
                if let Some((id, key)) = predicted
                    && let Some(series) = request.next_if(key)?
                {
                    gather_series_v1(&mut gather, Target::Known(known.place(id)), &series)?;
                    last = Some(id);
                    continue;
                }
                let series = match request.next()? {
                    None => break 'request,
                    Some(Entry::Metadata(metadata)) => {
                        said.push(&metadata);
                        continue;
                    }
                    Some(Entry::Series(series)) => series,
                };
                let found = known.find(&series.labels);
                let target = match found {
                    Some(id) => Target::Known(known.place(id)),
                    None => gather.unknown(&known, &series.labels)?,
                };
                gather_series_v1(&mut gather, target, &series)?;
                if let (Some(last), Some(id)) = (last, found) {
                    known.note_after(last, id);
                }
                last = found;
            }
            if said.is_full() {
                self.note(&mut said);
            }
        }
        self.note(&mut said);
        Ok(Read::Gather(gather))
    }

    fn gather_v2(&self, body: &[u8], buffers: &mut Buffers) -> Result<Read, SeriesError> {
        let mut gather = self.new_gather()?;
        let Buffers { symbols, key, .. } = buffers;
        if let Some(elections) = self.elections.get()
            && let Some(first) = Request::new(body, symbols)?.next()?
            && !self.is_listened_to(elections, first.key(key)?, &mut gather)?
        {
            let mut duplicates = Duplicates::default();
            let mut request = Request::new(body, symbols)?;
            while let Some(series) = request.next()? {
                duplicates.count(series.samples(), series.histograms())?;
            }
            return Ok(Read::Duplicates(duplicates));
        }
        let mut request = Request::new(body, symbols)?;
        let mut said = Said::default();
        'request: loop {
            let known = self.known();
            for _ in 0..LOOKUPS {
                let Some(series) = request.next()? else {
                    break 'request;
                };
                let key = series.key(key)?;
                let target = match known.find(key) {
                    Some(id) => Target::Known(known.place(id)),
                    None => gather.unknown(&known, key)?,
                };
                for sample in series.samples() {
                    let Sample { time_ms, value } = sample?;
                    gather.put(target, time_ms, value);
                }
                if series.has_histograms() {
                    gather_histograms(&mut gather, target, series.histograms())?;
                }
                said.push_of(&series)?;
            }
            if said.is_full() {
                self.note(&mut said);
            }
        }
        self.note(&mut said);
        Ok(Read::Gather(gather))
    }

    /// Whether a request is taken in whose first series has these label fields.
    fn is_listened_to(
        &self,
        elections: &Elections,
        first: &[u8],
        gather: &mut Gather,
    ) -> Result<bool, SeriesError> {
        let label = match elections.judge(first, self.clock.running())? {
            Judged::Plain => return Ok(true),
            Judged::Refused => return Ok(false),
            Judged::Accepted(label) => label,
            Judged::Elected(label) => {
                self.metrics.elections.inc();
                elections.remember();
                label
            }
        };
        gather.replica_label = Some(label);
        Ok(true)
    }

    /// Hands a request's samples to their shards and waits until they are durable. Nothing comes back when
    /// series went away meanwhile, and the request has to be read again.
    async fn submit(&self, mut gather: Gather) -> Result<Option<Written>, SeriesError> {
        self.check_series(&gather)?;
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

    fn check_series(&self, gather: &Gather) -> Result<(), SeriesError> {
        let new: usize = gather.parts.iter().map(|part| part.new.len()).sum();
        if new == 0 {
            return Ok(());
        }
        let known = self.known();
        let max = self.config.series_max;
        match (known.len() + new) as u64 > max {
            true => Err(SeriesError::TooManySeries { max }),
            false => Ok(()),
        }
    }
}

/// The next series, whatever metadata is before it.
fn next_series_v1<'a>(
    request: &mut WriteRequest<'a>,
) -> Result<Option<remote_write_v1::Series<'a>>, WireError> {
    loop {
        match request.next()? {
            None => return Ok(None),
            Some(Entry::Metadata(_)) => {}
            Some(Entry::Series(series)) => return Ok(Some(series)),
        }
    }
}

#[inline]
fn gather_series_v1(
    gather: &mut Gather,
    target: Target,
    series: &remote_write_v1::Series<'_>,
) -> Result<(), WireError> {
    for sample in series.samples() {
        let Sample { time_ms, value } = sample?;
        gather.put(target, time_ms, value);
    }
    if series.has_histograms() {
        gather_histograms(gather, target, series.histograms())?;
    }
    Ok(())
}

#[cold]
fn gather_histograms(
    gather: &mut Gather,
    target: Target,
    mut histograms: Histograms<'_>,
) -> Result<(), WireError> {
    let mut read = WireHistogram::default();
    while histograms.read(&mut read)? {
        let histogram = Arc::new(read.to_histogram());
        gather.put_histogram(target, read.time_ms, histogram);
    }
    Ok(())
}

/// Samples that are written together at most: one append takes several times as many.
const PIECE_SAMPLES: usize = 100_000;

/// New series that are written together at most.
const PIECE_SERIES: usize = 1_000;

/// A part in pieces that an append can take; none of an empty one.
fn split(mut part: Part) -> Vec<Part> {
    let mut pieces = Vec::new();
    while part.samples.len() > PIECE_SAMPLES {
        let samples = part.samples.split_off(part.samples.len() - PIECE_SAMPLES);
        pieces.push(Part {
            samples,
            ..Part::default()
        });
    }
    while part.new.len() > PIECE_SERIES {
        let new = part.new.split_off(part.new.len() - PIECE_SERIES);
        pieces.push(Part {
            new,
            ..Part::default()
        });
    }
    if !part.is_empty() {
        pieces.push(part);
    }
    // What came first is written first.
    pieces.reverse();
    pieces
}
