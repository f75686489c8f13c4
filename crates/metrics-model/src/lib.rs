//! The data model of Prometheus as types: labels, samples, native histograms, matchers, and the
//! text of numbers and durations. Everything that reads, writes, stores or evaluates metrics
//! shares them.

mod histogram;
mod labels;
pub mod matcher;
pub mod number;
mod samples;

pub use histogram::{Buckets, CounterReset, Counts, Histogram, Span};
pub use labels::{Labels, LabelsBuilder, METRIC_NAME};
pub use matcher::{LabelMatcher, MatchOp, Matcher, MatcherError};
pub use samples::SeriesSamples;

/// Milliseconds since 1970, UTC; negative before.
pub type TimeMs = i64;

/// A span of time; both ends are included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeSpan {
    /// The first time in it.
    pub start: TimeMs,
    /// The last time in it.
    pub end: TimeMs,
}

impl TimeSpan {
    /// All times there are.
    pub const ALL: Self = Self { start: TimeMs::MIN, end: TimeMs::MAX };

    /// The shortest span that has all times of both.
    pub fn union(self, other: Self) -> Self {
        Self { start: self.start.min(other.start), end: self.end.max(other.end) }
    }
}

/// The bits of the NaN that says a series has ended: "staleness marker" in Prometheus's data model.
pub const STALE_NAN_BITS: u64 = 0x7ff0_0000_0000_0002;

/// The bits of the NaN that is an ordinary value.
pub const NORMAL_NAN_BITS: u64 = 0x7ff8_0000_0000_0001;

/// Replaces any NaN by the ordinary one: text has only one spelling for it.
pub fn normalize_nan(value: f64) -> f64 {
    if value.is_nan() { f64::from_bits(NORMAL_NAN_BITS) } else { value }
}

/// Whether a value says that its series has ended.
pub fn is_stale(value: f64) -> bool {
    value.to_bits() == STALE_NAN_BITS
}
