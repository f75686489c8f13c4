//! Native histograms as the evaluator computes with them: counts are floating-point, buckets a
//! sorted list.

mod arithmetic;
mod bounds;
mod quantile;
mod total;
mod trim;

use std::fmt;
use std::sync::Arc;

use egret_metrics_model::{Buckets, CounterReset, Counts, Histogram};

pub use arithmetic::{HistogramConflicts, Incompatible};
pub(crate) use arithmetic::{ResetConflict, combine_resets};
pub(crate) use quantile::NanEffect;
pub(crate) use total::Total;
pub(crate) use trim::TrimSide;

use super::number::short;

/// The schema of histograms whose bounds are listed.
pub(crate) const CUSTOM_SCHEMA: i32 = -53;

/// Buckets of one sign that are not empty: index and count, by index ascending.
pub type Side = Vec<(i32, f64)>;

/// A native histogram to compute with.
#[derive(Clone, Debug, PartialEq)]
pub struct FloatHistogram {
    /// −4 to 8: bounds are powers of 2^(2^−schema), bucket 0 ends with 1. −53: bounds are
    /// `custom_bounds`.
    pub schema: i32,
    /// The bucket around zero ends so far from it.
    pub zero_threshold: f64,
    /// Number of observations in the zero bucket.
    pub zero_count: f64,
    /// Number of all observations.
    pub count: f64,
    /// Sum of all observations.
    pub sum: f64,
    /// Buckets above zero, or those of custom bounds.
    pub positive: Side,
    /// Buckets of values below zero.
    pub negative: Side,
    /// Upper bounds of the buckets, without +Inf, where the schema is −53.
    pub custom_bounds: Arc<[f64]>,
    /// Whether the counter was reset since the sample before.
    pub counter_reset: CounterReset,
    /// The sides for which buckets were written that hold nothing.
    pub empty_buckets: EmptyBuckets,
}

/// The sides of a histogram that have buckets without observations. As in Prometheus, they bound
/// where the observations around zero lie, until the histogram is combined with another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EmptyBuckets {
    /// Whether there are some above zero.
    pub positive: bool,
    /// Whether there are some below zero.
    pub negative: bool,
}

impl Default for FloatHistogram {
    fn default() -> Self {
        Self {
            schema: 0,
            zero_threshold: 0.0,
            zero_count: 0.0,
            count: 0.0,
            sum: 0.0,
            positive: Vec::new(),
            negative: Vec::new(),
            custom_bounds: Arc::from([]),
            counter_reset: CounterReset::Unknown,
            empty_buckets: EmptyBuckets::default(),
        }
    }
}

/// A bucket with its bounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bucket {
    pub lower: f64,
    pub upper: f64,
    pub count: f64,
}

impl From<&Histogram> for FloatHistogram {
    fn from(stored: &Histogram) -> Self {
        let integer = stored.integer_counts.map(|(zero, all)| (zero as f64, all as f64));
        let (zero_count, count) = integer.unwrap_or((stored.zero_count, stored.count));
        let (positive, negative) = (to_side(&stored.positive), to_side(&stored.negative));
        Self {
            schema: i32::from(stored.schema),
            zero_threshold: stored.zero_threshold,
            zero_count,
            count,
            sum: stored.sum,
            empty_buckets: EmptyBuckets {
                positive: positive.len() < stored.positive.counts.len(),
                negative: negative.len() < stored.negative.counts.len(),
            },
            positive,
            negative,
            custom_bounds: Arc::clone(&stored.custom_bounds),
            counter_reset: stored.counter_reset,
        }
    }
}

/// What these histograms take in memory, roughly, in bytes. What one shares with the one before it
/// counts once.
pub(crate) fn size_bytes<'a>(histograms: impl IntoIterator<Item = &'a Arc<FloatHistogram>>) -> u64 {
    let mut bytes = 0;
    let mut previous: Option<&Arc<FloatHistogram>> = None;
    for histogram in histograms {
        if !previous.is_some_and(|before| Arc::ptr_eq(before, histogram)) {
            let (bounds, shares) = (&histogram.custom_bounds, previous);
            let has_own_bounds = !shares.is_some_and(|one| Arc::ptr_eq(&one.custom_bounds, bounds));
            bytes += histogram.own_bytes();
            bytes += if has_own_bounds { size_of_val(&**bounds) } else { 0 };
        }
        previous = Some(histogram);
    }
    bytes as u64
}

fn to_side(buckets: &Buckets) -> Side {
    let mut next_index = 0_i32;
    let indices: Vec<i32> = buckets
        .spans
        .iter()
        .flat_map(|span| {
            let first = next_index.wrapping_add(span.offset);
            next_index = first.wrapping_add_unsigned(span.length);
            first..next_index
        })
        .collect();
    let with_counts = |counts: &mut dyn Iterator<Item = f64>| {
        let pairs = indices.iter().copied().zip(counts);
        pairs.filter(|(_, count)| *count != 0.0).collect()
    };
    match &buckets.counts {
        Counts::Integer(counts) => with_counts(&mut counts.iter().map(|count| *count as f64)),
        Counts::Float(counts) => with_counts(&mut counts.iter().copied()),
    }
}

impl FloatHistogram {
    /// Whether its bounds are listed.
    pub(crate) fn is_custom(&self) -> bool {
        self.schema == CUSTOM_SCHEMA
    }

    /// Whether there are buckets above zero, with observations or without.
    pub(super) fn has_positive(&self) -> bool {
        self.empty_buckets.positive || !self.positive.is_empty()
    }

    /// Whether there are buckets below zero, with observations or without.
    pub(super) fn has_negative(&self) -> bool {
        self.empty_buckets.negative || !self.negative.is_empty()
    }

    /// What it takes in memory, in bytes, without a list of bounds, which many may share.
    pub(super) fn own_bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.positive) + size_of_val(&*self.negative)
    }

    fn positive_bucket(&self, index: i32, count: f64) -> Bucket {
        Bucket { lower: self.upper_bound(index - 1), upper: self.upper_bound(index), count }
    }

    fn negative_bucket(&self, index: i32, count: f64) -> Bucket {
        Bucket { lower: -self.upper_bound(index), upper: -self.upper_bound(index - 1), count }
    }

    /// Buckets that are not empty, from the lowest to the highest, the one around zero in its
    /// place; others that reach into it end at its threshold.
    pub(crate) fn buckets(&self) -> Vec<Bucket> {
        let mut all: Vec<Bucket> = Vec::new();
        let threshold = self.zero_threshold;
        let negative = self.negative.iter().rev();
        all.extend(negative.map(|(index, count)| {
            let mut bucket = self.negative_bucket(*index, *count);
            if bucket.upper < 0.0 && bucket.upper > -threshold {
                bucket.upper = -threshold;
            }
            bucket
        }));
        if self.zero_count > 0.0 {
            all.push(self.zero_bucket());
        }
        all.extend(self.positive.iter().map(|(index, count)| {
            let mut bucket = self.positive_bucket(*index, *count);
            if bucket.lower > 0.0 && bucket.lower < threshold {
                bucket.lower = threshold;
            }
            bucket
        }));
        all
    }

    fn zero_bucket(&self) -> Bucket {
        Bucket { lower: -self.zero_threshold, upper: self.zero_threshold, count: self.zero_count }
    }

    /// Inclusiveness as 0 for `(a,b]`, 1 for `[a,b)`, 3 for `[a,b]`.
    fn inclusiveness(&self, bucket: &Bucket) -> u8 {
        if self.is_custom() {
            return if bucket.lower == f64::NEG_INFINITY { 3 } else { 0 };
        }
        if bucket.lower == -bucket.upper {
            return 3;
        }
        if bucket.lower < 0.0 { 1 } else { 0 }
    }

    /// Inclusiveness as 0 for `(a,b]`, 1 for `[a,b)`, 3 for `[a,b]`, bounds and count: what the API
    /// shows.
    pub fn rendered_buckets(&self) -> Vec<(u8, f64, f64, f64)> {
        let buckets = self.buckets();
        let rendered = buckets.iter().map(|bucket| {
            let kind = self.inclusiveness(bucket);
            (kind, bucket.lower, bucket.upper, bucket.count)
        });
        rendered.collect()
    }
}

/// Whether two histograms are the same, whatever they say of resets.
pub(crate) fn is_equal_ignoring_reset(left: &FloatHistogram, right: &FloatHistogram) -> bool {
    let without_reset = |histogram: &FloatHistogram| FloatHistogram {
        counter_reset: CounterReset::Unknown,
        empty_buckets: EmptyBuckets::default(),
        ..histogram.clone()
    };
    without_reset(left) == without_reset(right)
}

impl fmt::Display for FloatHistogram {
    /// As Prometheus writes one: `{count:3, sum:4, (0.5,1]:1, (1,2]:2}`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, sum) = (short(self.count), short(self.sum));
        write!(formatter, "{{count:{count}, sum:{sum}")?;
        let zero = (self.zero_count != 0.0).then(|| self.zero_bucket());
        let negative =
            self.negative.iter().rev().map(|(index, count)| self.negative_bucket(*index, *count));
        let positive =
            self.positive.iter().map(|(index, count)| self.positive_bucket(*index, *count));
        for bucket in negative.chain(zero).chain(positive) {
            let (left, right) = match self.inclusiveness(&bucket) {
                0 => ('(', ']'),
                1 => ('[', ')'),
                _ => ('[', ']'),
            };
            let [lower, upper, count] = [bucket.lower, bucket.upper, bucket.count].map(short);
            write!(formatter, ", {left}{lower},{upper}{right}:{count}")?;
        }
        formatter.write_str("}")
    }
}

#[cfg(test)]
mod tests;
