//! A request's samples, sorted by the shards that they go to.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use egret_metrics_model::{Histogram, Labels, TimeMs};
use egret_metrics_wire::labels::parse;
use egret_metrics_wire::{LabelError, LabelLimits, WireError};
use xxhash_rust::xxh3::xxh3_64;

use crate::config::SeriesConfig;
use crate::core::record::{HistogramBatch, SampleBatch};
use crate::core::series_keys::{KeyId, SeriesKeyTable, SeriesRef};
use crate::store::ha_tracker::HaReplica;
use crate::worker::shard::NewSeries;

/// Reasons that are told; of what is more, only the number is.
const REASONS_MAX: usize = 5;

/// What of a request was refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RejectedSamples {
    /// Samples, native histograms among them.
    pub samples: u64,
    /// Why, in the order of the request; not all of them.
    pub reasons: Vec<String>,
}

impl RejectedSamples {
    /// Notes that so many samples are refused.
    pub fn add(&mut self, samples: u64, reason: impl fmt::Display) {
        self.samples += samples;
        if self.reasons.len() < REASONS_MAX {
            self.reasons.push(reason.to_string());
        }
    }
}

impl fmt::Display for RejectedSamples {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} samples were refused: ", self.samples)?;
        formatter.write_str(&self.reasons.join("; "))?;
        match self.reasons.len() {
            REASONS_MAX => formatter.write_str("; and more"),
            _ => Ok(()),
        }
    }
}

/// What of a request goes to one shard.
#[derive(Debug, Default)]
pub(crate) struct ShardPart {
    pub samples: SampleBatch,
    pub histograms: HistogramBatch,
    pub new: Vec<NewSeries>,
}

impl ShardPart {
    /// Whether there is nothing to be written.
    pub(crate) fn is_empty(&self) -> bool {
        self.samples.is_empty() && self.histograms.is_empty() && self.new.is_empty()
    }
}

/// The span of times that are accepted, both ends included.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AcceptedSpan {
    pub oldest_ms: TimeMs,
    pub newest_ms: TimeMs,
}

#[derive(Debug)]
pub(crate) struct ShardedBatch {
    pub parts: Vec<ShardPart>,
    pub rejected: RejectedSamples,
    /// How many samples were left out for want of room for their series, and why.
    pub without_room: Option<String>,
    /// Series that are written however many there are.
    pub beyond_limit: HashSet<Labels>,
    /// Keys that are other ways to write the labels of series that are known.
    pub aliases: Vec<(Labels, Box<[u8]>)>,
    /// Samples that were gathered, native histograms among them.
    pub samples: u64,
    /// Of these, native histograms.
    pub histograms: u64,
    /// The replica that sent the request, where replicas are told apart: its label is taken off.
    pub sender: Option<Box<HaReplica>>,
    /// Where each of the new series is: their shards, and their places among the new ones of it.
    new: HashMap<Labels, (usize, usize)>,
    bounds: AcceptedSpan,
    limits: LabelLimits,
}

/// Destination of a series' samples.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SampleTarget {
    /// To a series that is known.
    Known(SeriesRef),
    /// To a new one of a shard, by its place among them.
    New(usize, usize),
    /// Nowhere: something is wrong with the series.
    Refused,
}

/// Labels that are too many or too long for the settings are refused.
pub(super) fn limits(config: &SeriesConfig) -> LabelLimits {
    LabelLimits {
        labels_per_series_max: config.labels_per_series_max,
        label_name_bytes_max: config.label_name_bytes_max.bytes(),
        label_value_bytes_max: config.label_value_bytes_max.bytes(),
    }
}

/// Which of so many shards has the series with these labels.
pub(crate) fn shard_of(labels: &Labels, shards: usize) -> usize {
    // Must never change: it decides in which log a series is.
    (xxh3_64(labels.as_key().as_bytes()) % shards as u64) as usize
}

impl ShardedBatch {
    pub(crate) fn new(shards: usize, bounds: AcceptedSpan, limits: LabelLimits) -> Self {
        Self {
            parts: (0..shards).map(|_| ShardPart::default()).collect(),
            rejected: RejectedSamples::default(),
            without_room: None,
            beyond_limit: HashSet::new(),
            aliases: Vec::new(),
            samples: 0,
            histograms: 0,
            sender: None,
            new: HashMap::new(),
            bounds,
            limits,
        }
    }

    /// Adds a sample to its shard's part.
    #[inline]
    pub(crate) fn put(&mut self, target: SampleTarget, time_ms: TimeMs, value: f64) {
        if !self.admits(target, time_ms) {
            return;
        }
        match target {
            SampleTarget::Known(place) => {
                let part = &mut self.parts[usize::from(place.shard)];
                part.samples.push(place.number, time_ms, value);
            }
            SampleTarget::New(shard, at) => {
                let new = &mut self.parts[shard].new[at];
                new.samples.push((time_ms, value));
            }
            SampleTarget::Refused => unreachable!("what is refused is not admitted"),
        }
    }

    /// Adds a native histogram.
    pub(crate) fn put_histogram(
        &mut self,
        target: SampleTarget,
        time_ms: TimeMs,
        histogram: Arc<Histogram>,
    ) {
        if !self.admits(target, time_ms) {
            return;
        }
        self.histograms += 1;
        match target {
            SampleTarget::Known(place) => {
                let part = &mut self.parts[usize::from(place.shard)];
                part.histograms.push(place.number, time_ms, histogram);
            }
            SampleTarget::New(shard, at) => {
                let new = &mut self.parts[shard].new[at];
                new.histograms.push((time_ms, histogram));
            }
            SampleTarget::Refused => unreachable!("what is refused is not admitted"),
        }
    }

    #[inline]
    fn admits(&mut self, target: SampleTarget, time_ms: TimeMs) -> bool {
        let AcceptedSpan {
            oldest_ms,
            newest_ms,
        } = self.bounds;
        let is_within = time_ms >= oldest_ms && time_ms <= newest_ms;
        if is_within && !matches!(target, SampleTarget::Refused) {
            self.samples += 1;
            return true;
        }
        self.reject(target, time_ms);
        false
    }

    #[cold]
    fn reject(&mut self, target: SampleTarget, time_ms: TimeMs) {
        if matches!(target, SampleTarget::Refused) {
            // Why was said when the series was.
            self.rejected.samples += 1;
            return;
        }
        let side = if time_ms < self.bounds.oldest_ms {
            "too old: see series.retention and series.keep"
        } else {
            "too far in the future: see series.future_max"
        };
        self.rejected
            .add(1, format_args!("the time {time_ms} is {side}"));
    }

    /// Counts so many samples as refused for what is wrong with them alone.
    ///
    /// # Errors
    /// The same error, when it is about the whole request.
    #[cold]
    pub(crate) fn pass_over(&mut self, samples: u64, error: WireError) -> Result<(), WireError> {
        if error.is_of_series() {
            self.rejected.add(samples, error);
            Ok(())
        } else {
            Err(error)
        }
    }

    /// Where samples of a series go whose key is known. A series of before replicas were told apart
    /// has the label that is taken off now: its samples go to the one without.
    ///
    /// # Errors
    /// As [`ShardedBatch::unknown`].
    #[inline]
    pub(crate) fn target(
        &mut self,
        known: &SeriesKeyTable,
        id: KeyId,
        key: &[u8],
    ) -> Result<SampleTarget, WireError> {
        if let Some(sender) = &self.sender
            && let Some(labels) = known.own(id)
            && !labels.get(&sender.replica_label).is_empty()
        {
            return self.unknown(known, key);
        }
        Ok(SampleTarget::Known(known.place(id)))
    }

    /// The target of a series whose key is not in the table.
    ///
    /// # Errors
    /// Those of a key that is not made of labels.
    #[cold]
    pub(crate) fn unknown(
        &mut self,
        known: &SeriesKeyTable,
        key: &[u8],
    ) -> Result<SampleTarget, WireError> {
        let mut pairs = Vec::new();
        match parse(key, &self.limits, &mut pairs) {
            Ok(()) => {}
            Err(LabelError::Wire(error)) => {
                self.pass_over(0, error)?;
                return Ok(SampleTarget::Refused);
            }
            Err(error) => {
                self.rejected.add(0, error);
                return Ok(SampleTarget::Refused);
            }
        }
        if let Some(sender) = &self.sender {
            pairs.retain(|(name, _)| *name != &*sender.replica_label);
        }
        let labels = Labels::from_sorted(pairs.into_iter());
        let alias = (labels.as_key().as_bytes() != key).then(|| Box::from(key));
        Ok(self.labelled(known, labels, alias))
    }

    /// Where samples of a series go whose labels have not been validated yet.
    pub(crate) fn unchecked(&mut self, known: &SeriesKeyTable, labels: Labels) -> SampleTarget {
        if let Some(place) = known.series(&labels) {
            return SampleTarget::Known(place);
        }
        if let Some((shard, at)) = self.new.get(&labels) {
            return SampleTarget::New(*shard, *at);
        }
        let mut pairs: Vec<(&str, &str)> = labels.iter().collect();
        if let Err(error) = self.limits.check(&mut pairs) {
            self.rejected.add(0, error);
            return SampleTarget::Refused;
        }
        self.labelled(known, labels, None)
    }

    /// Where samples of a series go of which the labels are known, and perhaps another way to write
    /// them.
    pub(crate) fn labelled(
        &mut self,
        known: &SeriesKeyTable,
        labels: Labels,
        alias: Option<Box<[u8]>>,
    ) -> SampleTarget {
        if let Some(place) = known.series(&labels) {
            self.aliases.extend(alias.map(|alias| (labels, alias)));
            return SampleTarget::Known(place);
        }
        if let Some(&(shard, at)) = self.new.get(&labels) {
            let first = &mut self.parts[shard].new[at].alias;
            *first = first.take().or(alias);
            return SampleTarget::New(shard, at);
        }
        let shard = shard_of(&labels, self.parts.len());
        let new = &mut self.parts[shard].new;
        let at = new.len();
        self.new.insert(labels.clone(), (shard, at));
        new.push(NewSeries {
            labels,
            alias,
            samples: Vec::new(),
            histograms: Vec::new(),
        });
        SampleTarget::New(shard, at)
    }

    /// Whether there are samples of series that are not known.
    pub(crate) fn has_new(&self) -> bool {
        self.parts.iter().any(|part| !part.new.is_empty())
    }

    /// Keeps up to `room` of the new series beside those of `beyond_limit`, and none without
    /// samples. Returns how many samples the
    /// others had.
    #[cold]
    pub(crate) fn leave_out_new(&mut self, mut room: u64) -> u64 {
        let (mut samples, mut histograms) = (0, 0);
        for part in &mut self.parts {
            part.new.retain(|new| {
                if new.samples.is_empty() && new.histograms.is_empty() {
                    return false;
                }
                if self.beyond_limit.contains(&new.labels) {
                    return true;
                }
                if room > 0 {
                    room -= 1;
                    return true;
                }
                samples += new.samples.len() as u64;
                histograms += new.histograms.len() as u64;
                false
            });
        }
        self.samples -= samples + histograms;
        self.histograms -= histograms;
        samples + histograms
    }

    /// Takes out what was gathered, one part for each shard.
    pub(crate) fn take_parts(&mut self) -> Vec<ShardPart> {
        std::mem::take(&mut self.parts)
    }
}
