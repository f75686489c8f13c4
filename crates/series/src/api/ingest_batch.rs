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

/// Reasons that are kept; further ones are only counted.
const REASONS_MAX: usize = 5;

/// What of a request was refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RejectedSamples {
    /// Samples, native histograms among them.
    pub samples: u64,
    /// Why, in the order of the request; not all of them.
    pub reasons: Vec<String>,
    /// Further reasons, which are not kept.
    pub omitted_reasons: u64,
}

impl RejectedSamples {
    /// Notes that so many samples are refused.
    pub fn add(&mut self, samples: u64, reason: impl fmt::Display) {
        self.samples += samples;
        if self.reasons.len() < REASONS_MAX {
            self.reasons.push(reason.to_string());
        } else {
            self.omitted_reasons += 1;
        }
    }
}

impl fmt::Display for RejectedSamples {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} samples were refused: ", self.samples)?;
        formatter.write_str(&self.reasons.join("; "))?;
        if self.omitted_reasons > 0 { formatter.write_str("; and more") } else { Ok(()) }
    }
}

/// What of a request goes to one shard.
#[derive(Debug, Default)]
pub(crate) struct ShardPart {
    pub samples: SampleBatch,
    pub histograms: HistogramBatch,
    pub new_series: Vec<NewSeries>,
}

impl ShardPart {
    /// Whether there is nothing to be written.
    pub(crate) fn is_empty(&self) -> bool {
        self.samples.is_empty() && self.histograms.is_empty() && self.new_series.is_empty()
    }

    /// Number of samples and histograms.
    pub(crate) fn sample_count(&self) -> usize {
        let new_series = self.new_series.iter();
        let new_samples = new_series.map(NewSeries::sample_count);
        self.samples.len() + self.histograms.len() + new_samples.sum::<usize>()
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
    new_series_slots: HashMap<Labels, (usize, usize)>,
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
pub(super) fn label_limits(config: &SeriesConfig) -> LabelLimits {
    LabelLimits {
        labels_per_series_max: config.labels_per_series_max,
        label_name_bytes_max: config.label_name_bytes_max.bytes(),
        label_value_bytes_max: config.label_value_bytes_max.bytes(),
    }
}

/// Which of so many shards has the series with these labels.
pub(crate) fn shard_index(labels: &Labels, shards: usize) -> usize {
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
            new_series_slots: HashMap::new(),
            bounds,
            limits,
        }
    }

    /// Adds a sample to its shard's part.
    #[inline]
    pub(crate) fn add_sample(&mut self, target: SampleTarget, time_ms: TimeMs, value: f64) {
        if !self.admit(target, time_ms) {
            return;
        }
        match target {
            SampleTarget::Known(series_ref) => {
                let part = &mut self.parts[usize::from(series_ref.shard)];
                part.samples.push(series_ref.number, time_ms, value);
            }
            SampleTarget::New(shard, index) => {
                let new = &mut self.parts[shard].new_series[index];
                new.samples.push((time_ms, value));
            }
            SampleTarget::Refused => unreachable!("what is refused is not admitted"),
        }
    }

    /// Adds a native histogram.
    pub(crate) fn add_histogram(
        &mut self,
        target: SampleTarget,
        time_ms: TimeMs,
        histogram: Arc<Histogram>,
    ) {
        if !self.admit(target, time_ms) {
            return;
        }
        self.histograms += 1;
        match target {
            SampleTarget::Known(series_ref) => {
                let part = &mut self.parts[usize::from(series_ref.shard)];
                part.histograms.push(series_ref.number, time_ms, histogram);
            }
            SampleTarget::New(shard, index) => {
                let new = &mut self.parts[shard].new_series[index];
                new.histograms.push((time_ms, histogram));
            }
            SampleTarget::Refused => unreachable!("what is refused is not admitted"),
        }
    }

    #[inline]
    fn admit(&mut self, target: SampleTarget, time_ms: TimeMs) -> bool {
        let AcceptedSpan { oldest_ms, newest_ms } = self.bounds;
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
        self.rejected.add(1, format_args!("the time {time_ms} is {side}"));
    }

    /// Counts so many samples as refused for what is wrong with them alone.
    ///
    /// # Errors
    /// The same error, when it is about the whole request.
    #[cold]
    pub(crate) fn reject_or_fail(
        &mut self,
        samples: u64,
        error: WireError,
    ) -> Result<(), WireError> {
        if error.is_series_error() {
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
    /// As [`ShardedBatch::resolve_key`].
    #[inline]
    pub(crate) fn known_target(
        &mut self,
        keys: &SeriesKeyTable,
        id: KeyId,
        key: &[u8],
    ) -> Result<SampleTarget, WireError> {
        if let Some(sender) = &self.sender
            && let Some(labels) = keys.own_labels(id)
            && !labels.get(&sender.replica_label).is_empty()
        {
            return self.resolve_key(keys, key);
        }
        Ok(SampleTarget::Known(keys.series_ref(id)))
    }

    /// The target of a series whose key is not in the table.
    ///
    /// # Errors
    /// Those of a key that is not made of labels.
    #[cold]
    pub(crate) fn resolve_key(
        &mut self,
        keys: &SeriesKeyTable,
        key: &[u8],
    ) -> Result<SampleTarget, WireError> {
        let mut pairs = Vec::new();
        match parse(key, &self.limits, &mut pairs) {
            Ok(()) => {}
            Err(LabelError::Wire(error)) => {
                self.reject_or_fail(0, error)?;
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
        Ok(self.resolve_labels(keys, labels, alias))
    }

    /// Where samples of a series go whose labels have not been validated yet.
    pub(crate) fn resolve_unchecked_labels(
        &mut self,
        keys: &SeriesKeyTable,
        labels: Labels,
    ) -> SampleTarget {
        if let Some(series_ref) = keys.find_series(&labels) {
            return SampleTarget::Known(series_ref);
        }
        if let Some((shard, index)) = self.new_series_slots.get(&labels) {
            return SampleTarget::New(*shard, *index);
        }
        let mut pairs: Vec<(&str, &str)> = labels.iter().collect();
        if let Err(error) = self.limits.check(&mut pairs) {
            self.rejected.add(0, error);
            return SampleTarget::Refused;
        }
        self.resolve_labels(keys, labels, None)
    }

    /// Where samples of a series go of which the labels are known, and perhaps another way to write
    /// them.
    pub(crate) fn resolve_labels(
        &mut self,
        keys: &SeriesKeyTable,
        labels: Labels,
        alias: Option<Box<[u8]>>,
    ) -> SampleTarget {
        if let Some(series_ref) = keys.find_series(&labels) {
            self.aliases.extend(alias.map(|alias| (labels, alias)));
            return SampleTarget::Known(series_ref);
        }
        if let Some(&(shard, index)) = self.new_series_slots.get(&labels) {
            let alias_slot = &mut self.parts[shard].new_series[index].alias;
            *alias_slot = alias_slot.take().or(alias);
            return SampleTarget::New(shard, index);
        }
        let shard = shard_index(&labels, self.parts.len());
        let new_series = &mut self.parts[shard].new_series;
        let at = new_series.len();
        self.new_series_slots.insert(labels.clone(), (shard, at));
        new_series.push(NewSeries { labels, alias, samples: Vec::new(), histograms: Vec::new() });
        SampleTarget::New(shard, at)
    }

    /// Whether there are samples of series that are not known.
    pub(crate) fn has_new(&self) -> bool {
        self.parts.iter().any(|part| !part.new_series.is_empty())
    }

    /// Keeps up to `room` of the new series beside those of `beyond_limit`, and none without
    /// samples. Returns how many samples the
    /// others had.
    #[cold]
    pub(crate) fn drop_new_series(&mut self, mut series_max: u64) -> u64 {
        let (mut samples, mut histograms) = (0, 0);
        for part in &mut self.parts {
            part.new_series.retain(|new| {
                if new.samples.is_empty() && new.histograms.is_empty() {
                    return false;
                }
                if self.beyond_limit.contains(&new.labels) {
                    return true;
                }
                if series_max > 0 {
                    series_max -= 1;
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

#[cfg(test)]
mod tests;
