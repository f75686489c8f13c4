//! What an interval says about a margin.

use serde::Serialize;

use crate::result::Better;

/// The answer to "is B worse than A?", best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Surely an improvement, and not surely a negligible one.
    Better,
    /// Surely within the margin.
    Equivalent,
    /// The interval allows more than one of the others.
    Inconclusive,
    /// Surely worse by more than the margin.
    Worse,
}

impl Verdict {
    /// The verdict on several figures: the worst of them; where all are at least equivalent, better
    /// as soon as one is. `None` of none.
    pub(crate) fn overall(verdicts: impl Iterator<Item = Self> + Clone) -> Option<Self> {
        match verdicts.clone().max() {
            Some(Self::Equivalent) => verdicts.min(),
            worst => worst,
        }
    }

    /// Exit code of the process.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Better | Self::Equivalent => 0,
            Self::Worse => 1,
            Self::Inconclusive => 2,
        }
    }

    /// The word for people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Equivalent => "equivalent",
            Self::Inconclusive => "inconclusive",
            Self::Worse => "worse",
        }
    }
}

/// An interval of log ratios turned so that positive is always worse.
#[derive(Clone, Copy, Debug)]
pub struct Interval {
    low: f64,
    high: f64,
}

impl Interval {
    /// Turns the interval from `low` to `high` of ln(B/A).
    pub(crate) fn towards_worse(low: f64, high: f64, better: Better) -> Self {
        match better {
            Better::Higher => Self { low: -high, high: -low },
            Better::Lower | Better::Neither => Self { low, high },
        }
    }
}

/// Judges one metric.
///
/// `plain` is its interval at the stated confidence, `wide` the one that holds for all compared
/// metrics together; `None` where there are too few runs for it. A difference has to be seen in
/// `wide`: with twenty metrics one of twenty plain intervals errs. That nothing differs is seen in
/// `plain`: "all are equivalent" is wrong only if one that differs passes, and that chance does not
/// grow with the others.
pub(crate) fn judge(plain: Interval, wide: Option<Interval>, margin: f64) -> Verdict {
    let margin = margin.ln_1p();
    if plain.low > -margin && plain.high < margin {
        return Verdict::Equivalent;
    }
    match wide {
        Some(wide) if wide.low > margin => Verdict::Worse,
        Some(wide) if wide.high < 0.0 => Verdict::Better,
        _ => Verdict::Inconclusive,
    }
}

/// How many pairs or runs in all would probably decide it, from the half width of the interval of
/// `runs` of them: a width shrinks with the square root of the number.
pub fn runs_needed(plain: Interval, margin: f64, runs: usize) -> f64 {
    let half_width = (plain.high - plain.low) / 2.0;
    let centre = f64::midpoint(plain.low, plain.high);
    let to_margin = (margin.ln_1p() - centre.abs()).abs();
    // An improvement is also decided once the interval leaves zero.
    let decision_distance = to_margin.max(-centre);
    runs as f64 * (half_width / decision_distance).powi(2) * SAFETY_FACTOR
}

/// The estimate itself will move: a little more than the bare number.
const SAFETY_FACTOR: f64 = 1.2;

#[cfg(test)]
mod tests;
