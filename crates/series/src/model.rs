//! The nouns: labels, samples, matchers. Plain types without behaviour of their own.

mod histogram;
mod labels;
mod samples;

pub use histogram::{Buckets, CounterReset, Counts, Histogram, Span};
pub use labels::{Labels, LabelsBuilder, METRIC_NAME};
pub use samples::SeriesSamples;

/// Milliseconds since 1970, UTC; negative before.
pub type TimeMs = i64;

/// The bits of the NaN that says a series has ended: "staleness marker" in Prometheus's data model.
pub const STALE_NAN_BITS: u64 = 0x7ff0_0000_0000_0002;

/// The bits of the NaN that is an ordinary value.
pub const NORMAL_NAN_BITS: u64 = 0x7ff8_0000_0000_0001;

/// A number that was read from text: there, all that are none are the same one.
pub fn number_of_text(value: f64) -> f64 {
    match value.is_nan() {
        true => f64::from_bits(NORMAL_NAN_BITS),
        false => value,
    }
}

/// Whether a value says that its series has ended.
pub fn is_stale(value: f64) -> bool {
    value.to_bits() == STALE_NAN_BITS
}

/// How a matcher compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MatchOp {
    /// `=`
    Equal,
    /// `!=`
    NotEqual,
    /// `=~`, anchored at both ends.
    Matches,
    /// `!~`, anchored at both ends.
    NotMatches,
}

/// What a label must be for a series to be selected. A label that is missing is empty.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Matcher {
    /// The label.
    pub name: Box<str>,
    /// How it is compared…
    pub op: MatchOp,
    /// …with what: a value, or a regular expression in RE2 syntax.
    pub value: Box<str>,
}
