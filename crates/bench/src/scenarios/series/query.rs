//! Which query is asked when: its kind, what it is about, and for which moments.

use std::fmt::Write;

use super::evaluate::{Catalog, Labels};
use super::expression::{Expr, MINUTE_MS};
use super::fleet::{Fleet, INTERVAL_MS};
use super::kinds::{Form, KINDS, LabelValues, QueryKind};
use super::shape::{mix, unit_fraction};

/// This share of the queries is about the last hour.
const HOT_SHARE: f64 = 0.8;

const HOUR_MS: i64 = 60 * MINUTE_MS;

/// A query of its own kind is tried at so many others before there is none.
const KIND_TRIES: u64 = KINDS.len() as u64;

/// A query that is to be asked.
#[derive(Clone, Debug)]
pub(super) struct SeriesQuery {
    pub(super) kind: usize,
    pub(super) expr: Expr,
    pub(super) moments: EvalTimes,
    /// About the last hour.
    pub(super) is_hot: bool,
}

/// For which moments, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EvalTimes {
    One(i64),
    /// First, last, and from one to the next.
    Each(i64, i64, i64),
}

impl EvalTimes {
    pub(super) fn first_ms(&self) -> i64 {
        let (Self::One(first) | Self::Each(first, _, _)) = self;
        *first
    }

    pub(super) fn last_ms(&self) -> i64 {
        match self {
            Self::One(at) => *at,
            Self::Each(first, last, step) => first + (last - first) / step * step,
        }
    }

    pub(super) fn to_vec(self) -> Vec<i64> {
        match self {
            Self::One(at) => vec![at],
            Self::Each(first, last, step) => (first..=last).step_by(step as usize).collect(),
        }
    }
}

impl SeriesQuery {
    /// The query of a number, of samples before a step that are all there. The next kind takes the
    /// turn of one that reaches further back than there are samples.
    ///
    /// `None` when no kind has enough.
    pub(super) fn choose(fleet: &Fleet, number: u64, acknowledged: u64) -> Option<Self> {
        (0..KIND_TRIES).find_map(|offset| {
            let kind = ((number + offset) % KIND_TRIES) as usize;
            Self::of_kind(fleet, kind, mix(fleet.seed ^ 0x9e7, number), acknowledged)
        })
    }

    /// What there is to tell when some kinds reach further back than there are samples.
    pub(super) fn warning(fleet: &Fleet, acknowledged: u64) -> Option<String> {
        let has_enough = |kind| Self::of_kind(fleet, kind, 0, acknowledged).is_some();
        let skipped_kinds = (0..KINDS.len()).filter(|kind| !has_enough(*kind)).count();
        (skipped_kinds > 0).then(|| {
            format!(
                "{skipped_kinds} of {} kinds of query were skipped, because they reach further back \
                 than the samples: give more --preload",
                KINDS.len()
            )
        })
    }

    /// A query of this kind.
    pub(super) fn of_kind(
        fleet: &Fleet,
        kind: usize,
        random: u64,
        acknowledged: u64,
    ) -> Option<Self> {
        let QueryKind { form, .. } = KINDS[kind];
        let expr = KINDS[kind].expr_for(&LabelValues::new(fleet, random));
        let (length_ms, step_ms) = match form {
            Form::Instant => (0, INTERVAL_MS),
            Form::Hour => (HOUR_MS, MINUTE_MS),
            Form::Day => (24 * HOUR_MS, 15 * MINUTE_MS),
        };
        let end_ms = fleet.step_ms(acknowledged);
        let begin_ms = fleet.begin_ms + expr.lookback_ms() + length_ms;
        let wants_hot = unit_fraction(mix(random, 21)) < HOT_SHARE;
        // What is asked for moments of the last hour ends in its second half.
        let hot_range = (end_ms - HOUR_MS / 2).max(begin_ms)..end_ms;
        let cold_range = begin_ms..end_ms - HOUR_MS;
        let is_hot = wants_hot || cold_range.is_empty();
        let range = if is_hot { hot_range } else { cold_range };
        let steps = (range.end - range.start) / step_ms;
        if steps <= 0 {
            return None;
        }
        let back_ms = (unit_fraction(mix(random, 22)) * steps as f64) as i64 * step_ms;
        let last_ms = (range.end - back_ms).div_euclid(step_ms) * step_ms;
        let last_ms = match form {
            Form::Instant => between_minutes(last_ms, begin_ms),
            Form::Hour | Form::Day => last_ms,
        };
        let moments = match form {
            Form::Instant => EvalTimes::One(last_ms),
            Form::Hour | Form::Day => EvalTimes::Each(last_ms - length_ms, last_ms, step_ms),
        };
        let first_needed_ms = moments.first_ms() - expr.lookback_ms();
        (first_needed_ms >= fleet.begin_ms && last_ms <= end_ms).then_some(Self {
            kind,
            expr,
            moments,
            is_hot,
        })
    }

    pub(super) fn kind(&self) -> &'static QueryKind {
        &KINDS[self.kind]
    }

    /// Path and query below `api`.
    pub(super) fn path(&self, api: &str) -> String {
        let mut path = String::from(api);
        path.push_str(match self.moments {
            EvalTimes::One(_) => "/query?query=",
            EvalTimes::Each(..) => "/query_range?query=",
        });
        push_percent_encoded(&mut path, &self.expr.to_string());
        let seconds = |ms: i64| ms as f64 / 1_000.0;
        let result = match self.moments {
            EvalTimes::One(at) => write!(path, "&time={}", seconds(at)),
            EvalTimes::Each(first, last, step) => write!(
                path,
                "&start={}&end={}&step={}",
                seconds(first),
                seconds(last),
                seconds(step)
            ),
        };
        result.expect("memory takes what is written to it");
        path
    }

    /// What it must be answered with: labels, and values at moments (in milliseconds).
    pub(super) fn expected_series(&self, catalog: &Catalog) -> Vec<(Labels, Vec<(i64, f64)>)> {
        let mut series: std::collections::BTreeMap<Labels, Vec<(i64, f64)>> = Default::default();
        for moment_ms in self.moments.to_vec() {
            for (labels, value) in catalog.evaluate(&self.expr, moment_ms) {
                series.entry(labels).or_default().push((moment_ms, value));
            }
        }
        series.into_iter().collect()
    }
}

/// A moment not long before this one and not before `begin_ms`: a quarter of a minute off the whole
/// one, where subqueries are evaluated.
fn between_minutes(at_ms: i64, begin_ms: i64) -> i64 {
    let before_ms = at_ms.div_euclid(MINUTE_MS) * MINUTE_MS - MINUTE_MS / 4;
    if before_ms < begin_ms { before_ms + MINUTE_MS } else { before_ms }
}

/// Percent-encodes everything but letters, digits and a few others (RFC 3986).
fn push_percent_encoded(out: &mut String, text: &str) {
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                out.push(char::from(byte));
            }
            _ => {
                out.push('%');
                for nibble in [byte >> 4, byte & 15] {
                    let digit =
                        char::from_digit(nibble.into(), 16).expect("half a byte is a digit");
                    out.push(digit.to_ascii_uppercase());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
