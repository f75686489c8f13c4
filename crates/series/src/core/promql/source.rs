//! Where samples come from: the only things the evaluator knows of storage.

use std::sync::Arc;

use regex::{Regex, RegexBuilder};

use super::error::QueryError;
use super::histogram::FloatHistogram;
use crate::model::{Labels, MatchOp, Matcher, TimeMs, is_stale};

/// Compiled, a regular expression of a query takes at most so much memory.
const REGEX_BYTES_MAX: usize = 16 << 20;

/// A matcher whose regular expression is compiled.
#[derive(Clone, Debug)]
pub struct LabelMatcher {
    matcher: Matcher,
    regex: Option<Regex>,
}

impl LabelMatcher {
    /// Compiles the matcher's regular expression, if it has one.
    ///
    /// # Errors
    /// [`QueryError::Parse`] when the expression is malformed or too large.
    pub fn new(matcher: Matcher) -> Result<Self, QueryError> {
        let regex = match matcher.op {
            MatchOp::Equal | MatchOp::NotEqual => None,
            MatchOp::Matches | MatchOp::NotMatches => Some(anchored(&matcher.value)?),
        };
        Ok(Self { matcher, regex })
    }

    /// What it was made of.
    pub fn matcher(&self) -> &Matcher {
        &self.matcher
    }

    /// Whether it takes this value; of a label that is missing, the empty one.
    pub fn matches(&self, value: &str) -> bool {
        let by_regex = || {
            self.regex
                .as_ref()
                .is_some_and(|regex| regex.is_match(value))
        };
        match self.matcher.op {
            MatchOp::Equal => *self.matcher.value == *value,
            MatchOp::NotEqual => *self.matcher.value != *value,
            MatchOp::Matches => by_regex(),
            MatchOp::NotMatches => !by_regex(),
        }
    }
}

/// A regular expression that must match all of a value, as Prometheus anchors it.
pub(crate) fn anchored(pattern: &str) -> Result<Regex, QueryError> {
    let build = |pattern: &str| {
        RegexBuilder::new(&format!("^(?s:{pattern})$"))
            .size_limit(REGEX_BYTES_MAX)
            .build()
    };
    // RE2 takes a brace that begins no repetition for itself; `regex` wants it escaped.
    let escaped = || build(&escape_braces(pattern));
    build(pattern)
        .or_else(|error| escaped().map_err(|_| error))
        .map_err(|error| {
            let message = format!("error parsing regexp `{pattern}`: {error}");
            QueryError::Parse { message }
        })
}

fn escape_braces(pattern: &str) -> String {
    let mut escaped = String::with_capacity(pattern.len() + 2);
    let mut rest = pattern.chars();
    while let Some(next) = rest.next() {
        let ahead = rest.as_str();
        if next == '{' {
            let inside = ahead.split_once('}').map_or("", |(inside, _)| inside);
            let is_repetition = inside.starts_with(|first: char| first.is_ascii_digit())
                && inside.chars().all(|c| c.is_ascii_digit() || c == ',');
            if !is_repetition {
                escaped.push('\\');
            }
        }
        escaped.push(next);
        if next == '\\' {
            escaped.extend(rest.next());
        }
    }
    escaped
}

/// Which series a query wants, and how much of them.
#[derive(Clone, Debug)]
pub struct Selection {
    /// All of them must hold.
    pub matchers: Vec<LabelMatcher>,
    /// No sample before is of interest.
    pub start: TimeMs,
    /// No sample after is of interest; inclusive, like `start`.
    pub end: TimeMs,
    /// What the samples are for.
    pub hints: Hints,
}

/// What a source may know to be quicker. Whether it heeds them makes no difference to an answer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hints {
    /// Between two evaluations, in milliseconds; 0 when there is but one.
    pub step_ms: i64,
    /// How far back each evaluation looks, in milliseconds.
    pub range_ms: i64,
    /// The function that the samples go to, or nothing.
    pub function: Option<&'static str>,
}

/// Samples, by something that has them.
pub trait Source: Sync {
    /// The series that match.
    ///
    /// # Errors
    /// Of the source.
    fn select(&self, selection: &Selection) -> Result<Box<dyn SeriesSet + '_>, QueryError>;
}

/// Series that were selected. Several threads may read different ones at once.
pub trait SeriesSet: Sync {
    /// How many there are.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The labels of one.
    fn labels(&self, index: usize) -> &Labels;

    /// Replaces `into` with the samples of one within the selected time, times ascending and none twice.
    /// Samples outside of it may be there; they are not used.
    ///
    /// # Errors
    /// Of the source.
    fn read(&self, index: usize, into: &mut Columns) -> Result<(), QueryError>;
}

/// The samples of one series, decoded. Reused from series to series, so that it is allocated once.
#[derive(Clone, Debug, Default)]
pub struct Columns {
    /// Of the numbers.
    pub times: Vec<TimeMs>,
    /// As many as there are times; staleness markers among them, also those that end histograms.
    pub values: Vec<f64>,
    /// Of the native histograms.
    pub histogram_times: Vec<TimeMs>,
    /// As many as there are times.
    pub histograms: Vec<Arc<FloatHistogram>>,
}

impl Columns {
    /// Takes everything out.
    pub fn clear(&mut self) {
        self.times.clear();
        self.values.clear();
        self.histogram_times.clear();
        self.histograms.clear();
    }

    /// Samples in it.
    pub fn len(&self) -> usize {
        self.times.len() + self.histogram_times.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a number at the end.
    pub fn push(&mut self, time: TimeMs, value: f64) {
        self.times.push(time);
        self.values.push(value);
    }

    /// Adds a histogram at the end. One that is a staleness marker becomes a marker among the numbers.
    pub fn push_histogram(&mut self, time: TimeMs, histogram: Arc<FloatHistogram>) {
        if is_stale(histogram.sum) {
            return self.push(time, histogram.sum);
        }
        self.histogram_times.push(time);
        self.histograms.push(histogram);
    }

    /// Takes staleness markers out: ranges do not see them.
    pub(crate) fn drop_stale(&mut self) {
        if !self.values.iter().any(|value| is_stale(*value)) {
            return;
        }
        let mut kept = 0;
        for at in 0..self.values.len() {
            if !is_stale(self.values[at]) {
                self.times[kept] = self.times[at];
                self.values[kept] = self.values[at];
                kept += 1;
            }
        }
        self.times.truncate(kept);
        self.values.truncate(kept);
    }
}

#[cfg(test)]
mod tests;
