//! Native histograms, as Prometheus defines them: integer or floating-point counts, exponential or
//! custom bounds. Kept without loss.

use std::sync::Arc;

/// A run of buckets that are there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Buckets left out since the end of the span before; of the first span, its first index.
    pub offset: i32,
    /// Number of buckets in the span.
    pub length: u32,
}

/// Absolute counts, one a bucket.
#[derive(Clone, Debug, PartialEq)]
pub enum Counts {
    /// Counts of an integer histogram.
    Integer(Vec<u64>),
    /// Counts of a float histogram.
    Float(Vec<f64>),
}

/// The buckets of one sign.
#[derive(Clone, Debug, PartialEq)]
pub struct Buckets {
    /// Indices of the buckets that are there.
    pub spans: Vec<Span>,
    /// What they hold; as many as the spans are long together.
    pub counts: Counts,
}

/// Whether a histogram's counters were reset since the sample before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CounterReset {
    /// To be found out by comparing.
    #[default]
    Unknown,
    /// The counters were reset.
    Reset,
    /// The counters were not reset.
    NotReset,
    /// The question does not arise: it is a gauge.
    Gauge,
}

/// A native histogram sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    /// −4 to 8: bounds are powers of 2^(2^−schema). −53: bounds are `custom_bounds`.
    pub schema: i8,
    /// Buckets around zero count what is at most so far from it.
    pub zero_threshold: f64,
    /// Observations in the bucket around zero. An integer histogram has the exact number in the
    /// integer counts below.
    pub zero_count: f64,
    /// All observations of a float histogram.
    pub count: f64,
    /// Zero count and count of an integer histogram, exactly.
    pub integer_counts: Option<(u64, u64)>,
    /// Sum of all observations.
    pub sum: f64,
    /// Buckets above zero, or those of custom bounds.
    pub positive: Buckets,
    /// Buckets of values below zero.
    pub negative: Buckets,
    /// Upper bounds of the buckets, without +Inf, where the schema is −53.
    pub custom_bounds: Arc<[f64]>,
    /// Whether the counters were reset.
    pub counter_reset: CounterReset,
}

impl Counts {
    /// Number of counts, one per bucket.
    pub fn len(&self) -> usize {
        match self {
            Self::Integer(counts) => counts.len(),
            Self::Float(counts) => counts.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Buckets {
    fn is_same(&self, other: &Self) -> bool {
        let has_same_counts = match (&self.counts, &other.counts) {
            (Counts::Float(one), Counts::Float(other)) => have_same_bits(one, other),
            (one, other) => one == other,
        };
        self.spans == other.spans && has_same_counts
    }
}

/// Whether numbers have the same bits: NaN is like itself then, and no zero like the other.
fn have_same_bits(one: &[f64], other: &[f64]) -> bool {
    let bits = |all: &[f64]| all.iter().map(|number| number.to_bits()).collect::<Vec<_>>();
    bits(one) == bits(other)
}

impl Histogram {
    /// Whether it is the other bit by bit, as a staleness marker is itself.
    pub fn is_same(&self, other: &Self) -> bool {
        let scalars = |all: &Self| [all.zero_threshold, all.zero_count, all.count, all.sum];
        self.schema == other.schema
            && self.integer_counts == other.integer_counts
            && self.counter_reset == other.counter_reset
            && have_same_bits(&scalars(self), &scalars(other))
            && have_same_bits(&self.custom_bounds, &other.custom_bounds)
            && self.positive.is_same(&other.positive)
            && self.negative.is_same(&other.negative)
    }

    /// What it takes in memory, roughly, in bytes.
    pub fn size_bytes(&self) -> usize {
        let buckets_bytes = |buckets: &Buckets| {
            let counts = buckets.counts.len() * size_of::<u64>();
            size_of_val(&*buckets.spans) + counts
        };
        let bounds = size_of_val(&*self.custom_bounds);
        size_of::<Self>() + buckets_bytes(&self.positive) + buckets_bytes(&self.negative) + bounds
    }

    /// What it takes in a log or a block at most, roughly, in bytes.
    pub fn encoded_bytes_max(&self) -> usize {
        let buckets_bytes =
            |buckets: &Buckets| buckets.spans.len() * 16 + buckets.counts.len() * 10;
        80 + buckets_bytes(&self.positive)
            + buckets_bytes(&self.negative)
            + self.custom_bounds.len() * 8
    }
}
