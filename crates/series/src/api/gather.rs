//! A request's samples, sorted by the shards that they go to.

use std::fmt;

use xxhash_rust::xxh3::xxh3_64;

use crate::core::known::{Known, Place};
use crate::core::record::SampleBatch;
use crate::model::{Labels, TimeMs};
use crate::wire::labels::parse;
use crate::wire::{LabelError, LabelLimits, Sample, WireError};
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
    pub new: Vec<NewSeries>,
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
    /// Samples that were gathered.
    pub samples: u64,
    bounds: Bounds,
    limits: LabelLimits,
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
            bounds,
            limits,
        }
    }

    /// Adds samples of a series that is known.
    ///
    /// # Errors
    /// Those of the samples.
    #[inline]
    pub fn known(
        &mut self,
        place: Place,
        samples: impl Iterator<Item = Result<Sample, WireError>>,
    ) -> Result<(), WireError> {
        let Bounds {
            oldest_ms,
            newest_ms,
        } = self.bounds;
        for sample in samples {
            let Sample { time_ms, value } = sample?;
            if time_ms < oldest_ms || time_ms > newest_ms {
                self.reject_time(time_ms);
                continue;
            }
            self.samples += 1;
            let part = &mut self.parts[usize::from(place.shard)];
            part.samples.push(place.number, time_ms, value);
        }
        Ok(())
    }

    #[cold]
    fn reject_time(&mut self, time_ms: TimeMs) {
        let side = match time_ms < self.bounds.oldest_ms {
            true => "too old: series.retention is over",
            false => "too far in the future: see series.future_max",
        };
        self.rejected
            .add(1, format_args!("the time {time_ms} is {side}"));
    }

    /// Adds samples of a series whose key is not known.
    ///
    /// # Errors
    /// Those of the samples, and of a key that is not made of labels.
    pub fn unknown(
        &mut self,
        known: &Known,
        key: &[u8],
        samples: impl Iterator<Item = Result<Sample, WireError>>,
    ) -> Result<(), WireError> {
        let mut pairs = Vec::new();
        match parse(key, &self.limits, &mut pairs) {
            Ok(()) => {}
            Err(LabelError::Wire(error)) => return Err(error),
            Err(error) => {
                let count = samples.collect::<Result<Vec<_>, _>>()?.len();
                self.rejected.add(count as u64, error);
                return Ok(());
            }
        }
        let labels = Labels::from_sorted(pairs.into_iter());
        let alias = (labels.as_key().as_bytes() != key).then(|| Box::from(key));
        self.labelled(known, labels, alias, samples)
    }

    /// Adds samples of a series of which the labels are known, and perhaps another way to write them.
    ///
    /// # Errors
    /// Those of the samples.
    pub fn labelled(
        &mut self,
        known: &Known,
        labels: Labels,
        alias: Option<Box<[u8]>>,
        samples: impl Iterator<Item = Result<Sample, WireError>>,
    ) -> Result<(), WireError> {
        if let Some(place) = known.series(&labels) {
            self.aliases.extend(alias.map(|alias| (labels, alias)));
            return self.known(place, samples);
        }
        let mut within = Vec::new();
        for sample in samples {
            let Sample { time_ms, value } = sample?;
            match (self.bounds.oldest_ms..=self.bounds.newest_ms).contains(&time_ms) {
                true => within.push((time_ms, value)),
                false => self.reject_time(time_ms),
            }
        }
        if !within.is_empty() {
            self.samples += within.len() as u64;
            let shard = shard_of(&labels, self.parts.len());
            self.parts[shard].new.push(NewSeries {
                labels,
                alias,
                samples: within,
            });
        }
        Ok(())
    }
}
