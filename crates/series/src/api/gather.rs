//! A request's samples, sorted by the shards that they go to.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

use super::elections::Sender;
use crate::config::SeriesConfig;
use crate::core::known::{KeyId, Known, Place};
use crate::core::record::{HistogramBatch, SampleBatch};
use crate::model::{Histogram, Labels, TimeMs};
use crate::wire::labels::parse;
use crate::wire::{LabelError, LabelLimits, WireError};
use crate::worker::shard::NewSeries;

/// Reasons that are told; of what is more, only the number is.
const REASONS_MAX: usize = 5;

/// What of a request was refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rejected {
    /// Samples, native histograms among them.
    pub samples: u64,
    /// Why, in the order of the request; not all of them.
    pub reasons: Vec<String>,
}

impl Rejected {
    /// Notes that so many samples are refused.
    pub fn add(&mut self, samples: u64, reason: impl fmt::Display) {
        self.samples += samples;
        if self.reasons.len() < REASONS_MAX {
            self.reasons.push(reason.to_string());
        }
    }
}

impl fmt::Display for Rejected {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} samples were refused: ", self.samples)?;
        formatter.write_str(&self.reasons.join("; "))?;
        match self.reasons.len() {
            REASONS_MAX => formatter.write_str("; and so on"),
            _ => Ok(()),
        }
    }
}

/// What of a request goes to one shard.
#[derive(Debug, Default)]
pub(crate) struct Part {
    pub samples: SampleBatch,
    pub histograms: HistogramBatch,
    pub new: Vec<NewSeries>,
}

impl Part {
    /// Whether there is nothing to be written.
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty() && self.histograms.is_empty() && self.new.is_empty()
    }
}

/// Which times are taken in, both included.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub oldest_ms: TimeMs,
    pub newest_ms: TimeMs,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Gather {
    pub parts: Vec<Part>,
    pub rejected: Rejected,
    /// Keys that are other ways to write the labels of series that are known.
    pub aliases: Vec<(Labels, Box<[u8]>)>,
    /// Samples that were gathered, native histograms among them.
    pub samples: u64,
    /// Of these, native histograms.
    pub histograms: u64,
    /// Who sends it, where replicas are told apart: the label that says so is taken off.
    pub sender: Option<Box<Sender>>,
    /// Where each of the new series is: their shards, and their places among the new ones of it.
    new: HashMap<Labels, (usize, usize)>,
    bounds: Bounds,
    limits: LabelLimits,
}

/// Where samples of a series go.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    /// To a series that is known.
    Known(Place),
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
    // For ever: it says in which log a series is.
    (xxh3_64(labels.as_key().as_bytes()) % shards as u64) as usize
}

impl Gather {
    pub fn new(shards: usize, bounds: Bounds, limits: LabelLimits) -> Self {
        Self {
            parts: (0..shards).map(|_| Part::default()).collect(),
            rejected: Rejected::default(),
            aliases: Vec::new(),
            samples: 0,
            histograms: 0,
            sender: None,
            new: HashMap::new(),
            bounds,
            limits,
        }
    }

    /// Adds a sample.
    #[inline]
    pub fn put(&mut self, target: Target, time_ms: TimeMs, value: f64) {
        if !self.admits(target, time_ms) {
            return;
        }
        match target {
            Target::Known(place) => {
                let part = &mut self.parts[usize::from(place.shard)];
                part.samples.push(place.number, time_ms, value);
            }
            Target::New(shard, at) => {
                let new = &mut self.parts[shard].new[at];
                new.samples.push((time_ms, value));
            }
            Target::Refused => unreachable!("what is refused is not admitted"),
        }
    }

    /// Adds a native histogram.
    pub fn put_histogram(&mut self, target: Target, time_ms: TimeMs, histogram: Arc<Histogram>) {
        if !self.admits(target, time_ms) {
            return;
        }
        self.histograms += 1;
        match target {
            Target::Known(place) => {
                let part = &mut self.parts[usize::from(place.shard)];
                part.histograms.push(place.number, time_ms, histogram);
            }
            Target::New(shard, at) => {
                let new = &mut self.parts[shard].new[at];
                new.histograms.push((time_ms, histogram));
            }
            Target::Refused => unreachable!("what is refused is not admitted"),
        }
    }

    #[inline]
    fn admits(&mut self, target: Target, time_ms: TimeMs) -> bool {
        let Bounds {
            oldest_ms,
            newest_ms,
        } = self.bounds;
        let is_within = time_ms >= oldest_ms && time_ms <= newest_ms;
        if is_within && !matches!(target, Target::Refused) {
            self.samples += 1;
            return true;
        }
        self.reject(target, time_ms);
        false
    }

    #[cold]
    fn reject(&mut self, target: Target, time_ms: TimeMs) {
        if matches!(target, Target::Refused) {
            // Why was said when the series was.
            self.rejected.samples += 1;
            return;
        }
        let side = match time_ms < self.bounds.oldest_ms {
            true => "too old: series.retention and series.keep are over",
            false => "too far in the future: see series.future_max",
        };
        self.rejected
            .add(1, format_args!("the time {time_ms} is {side}"));
    }

    /// Counts so many samples as refused for what is wrong with them alone.
    ///
    /// # Errors
    /// The same error, when it is about the whole request.
    #[cold]
    pub fn pass_over(&mut self, samples: u64, error: WireError) -> Result<(), WireError> {
        match error.is_of_series() {
            true => {
                self.rejected.add(samples, error);
                Ok(())
            }
            false => Err(error),
        }
    }

    /// Where samples of a series go whose key is known. A series of before replicas were told apart has the label that
    /// is taken off now: its samples go to the one without.
    ///
    /// # Errors
    /// As [`Gather::unknown`].
    #[inline]
    pub fn target(&mut self, known: &Known, id: KeyId, key: &[u8]) -> Result<Target, WireError> {
        if let Some(sender) = &self.sender
            && let Some(labels) = known.own(id)
            && !labels.get(&sender.replica_label).is_empty()
        {
            return self.unknown(known, key);
        }
        Ok(Target::Known(known.place(id)))
    }

    /// Where samples of a series go whose key is not known.
    ///
    /// # Errors
    /// Those of a key that is not made of labels.
    #[cold]
    pub fn unknown(&mut self, known: &Known, key: &[u8]) -> Result<Target, WireError> {
        let mut pairs = Vec::new();
        match parse(key, &self.limits, &mut pairs) {
            Ok(()) => {}
            Err(LabelError::Wire(error)) => {
                self.pass_over(0, error)?;
                return Ok(Target::Refused);
            }
            Err(error) => {
                self.rejected.add(0, error);
                return Ok(Target::Refused);
            }
        }
        if let Some(sender) = &self.sender {
            pairs.retain(|(name, _)| *name != &*sender.replica_label);
        }
        let labels = Labels::from_sorted(pairs.into_iter());
        let alias = (labels.as_key().as_bytes() != key).then(|| Box::from(key));
        Ok(self.labelled(known, labels, alias))
    }

    /// Where samples of a series go whose labels nobody has checked.
    pub fn unchecked(&mut self, known: &Known, labels: Labels) -> Target {
        if let Some(place) = known.series(&labels) {
            return Target::Known(place);
        }
        if let Some((shard, at)) = self.new.get(&labels) {
            return Target::New(*shard, *at);
        }
        let mut pairs: Vec<(&str, &str)> = labels.iter().collect();
        if let Err(error) = self.limits.check(&mut pairs) {
            self.rejected.add(0, error);
            return Target::Refused;
        }
        self.labelled(known, labels, None)
    }

    /// Where samples of a series go of which the labels are known, and perhaps another way to write them.
    pub fn labelled(&mut self, known: &Known, labels: Labels, alias: Option<Box<[u8]>>) -> Target {
        if let Some(place) = known.series(&labels) {
            self.aliases.extend(alias.map(|alias| (labels, alias)));
            return Target::Known(place);
        }
        if let Some(&(shard, at)) = self.new.get(&labels) {
            let first = &mut self.parts[shard].new[at].alias;
            *first = first.take().or(alias);
            return Target::New(shard, at);
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
        Target::New(shard, at)
    }

    /// Whether there are samples of series that are not known.
    pub fn has_new(&self) -> bool {
        self.parts.iter().any(|part| !part.new.is_empty())
    }

    /// Keeps up to `room` of the new series, and none without samples. Returns how many samples the others had.
    #[cold]
    pub fn leave_out_new(&mut self, mut room: u64) -> u64 {
        let (mut samples, mut histograms) = (0, 0);
        for part in &mut self.parts {
            part.new.retain(|new| {
                if new.samples.is_empty() && new.histograms.is_empty() {
                    return false;
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

    /// What goes to each shard.
    pub fn take_parts(&mut self) -> Vec<Part> {
        std::mem::take(&mut self.parts)
    }
}
