//! Axes: where a value lies between two ends, and which values are named on the way.

use crate::quantity::format_tick;

/// How values become positions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scale {
    /// In proportion to the value.
    Linear {
        /// The value at the beginning.
        from: f64,
        /// The value at the end.
        to: f64,
    },
    /// By logarithm; both ends positive.
    Log {
        /// The value at the beginning.
        from: f64,
        /// The value at the end.
        to: f64,
    },
    /// Shares of 0 to 1 by their nines: 0%, 90%, 99% and 99.9% are equally far apart.
    Nines {
        /// How many nines the axis reaches.
        count: f64,
    },
}

impl Scale {
    /// From zero to a round value above `largest`.
    pub(crate) fn from_zero(largest: f64) -> Self {
        let largest = if largest > 0.0 && largest.is_finite() { largest } else { 1.0 };
        let step = round_step(largest / 5.0);
        Self::Linear { from: 0.0, to: (largest / step).ceil() * step }
    }

    /// Around all of `values` that are positive.
    pub(crate) fn log_around(values: impl IntoIterator<Item = f64>) -> Self {
        let positive = values.into_iter().filter(|value| *value > 0.0 && value.is_finite());
        let (low, high) = positive
            .fold((f64::MAX, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)));
        if high == 0.0 {
            return Self::Log { from: 0.1, to: 10.0 };
        }
        Self::Log { from: low * 0.8, to: high * 1.25 }
    }

    /// Where `value` lies: 0 at the beginning, 1 at the end; what is outside lies at the end.
    pub fn position(self, value: f64) -> f64 {
        let position = match self {
            Self::Linear { from, to } => (value - from) / (to - from),
            Self::Log { from, to } => (value.max(from) / from).ln() / (to / from).ln(),
            Self::Nines { count } => nines(value) / count,
        };
        position.clamp(0.0, 1.0)
    }

    /// Values to name, with their names; `unit` is a metric's unit.
    pub fn ticks(self, unit: &str) -> Vec<(f64, String)> {
        match self {
            Self::Linear { from, to } => {
                let step = round_step((to - from) / 5.0);
                let count = ((to - from) / step).round() as usize;
                (0..=count)
                    .map(|index| from + index as f64 * step)
                    .map(|value| (value, format_tick(value, unit)))
                    .collect()
            }
            Self::Log { from, to } if unit == "percent" => percent_ticks(from, to)
                .into_iter()
                .map(|value| (value, format_tick(value, unit)))
                .collect(),
            Self::Log { from, to } => log_ticks(from, to)
                .into_iter()
                .map(|value| (value, format_tick(value, unit)))
                .collect(),
            Self::Nines { count } => [0.0, 0.5, 0.9, 0.99, 0.999, 0.9999]
                .into_iter()
                .filter(|share| nines(*share) <= count + 1e-9)
                .map(|share| (share, format!("{}%", format_tick(share * 100.0, "count"))))
                .collect(),
        }
    }
}

fn nines(share: f64) -> f64 {
    -(1.0 - share).max(1e-12).log10()
}

/// The round number nearest above `rough`: 1, 2 or 5 of a power of ten.
fn round_step(rough: f64) -> f64 {
    let power = 10_f64.powf(rough.log10().floor());
    let digits = [1.0, 2.0, 5.0, 10.0];
    let fits = |digit: &&f64| **digit * power >= rough * 0.999;
    power * digits.iter().find(fits).copied().unwrap_or(10.0)
}

/// 1, 2 and 5 of each power of ten, or the powers alone where that would be a crowd.
fn log_ticks(from: f64, to: f64) -> Vec<f64> {
    const TICKS_MAX: usize = 7;
    let powers = from.log10().floor() as i32..=to.log10().ceil() as i32;
    let multiples = |digits: &[f64]| -> Vec<f64> {
        let values = powers
            .clone()
            .flat_map(|power| digits.iter().map(move |digit| digit * 10_f64.powi(power)));
        values.filter(|value| *value >= from && *value <= to).collect()
    };
    let candidates: [&[f64]; 4] =
        [&[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], &[1.0, 2.0, 5.0], &[1.0, 3.0], &[1.0]];
    candidates
        .iter()
        .map(|digits| multiples(digits))
        .find(|ticks| ticks.len() <= TICKS_MAX)
        .unwrap_or_else(|| multiples(&[1.0]))
}

/// Ratios that are round percentages, one of them no change at all.
fn percent_ticks(from: f64, to: f64) -> Vec<f64> {
    const TICKS: f64 = 6.0;
    let step = round_step((to - from) / TICKS);
    let steps_below = ((1.0 - from) / step).floor() as i32;
    let steps_above = ((to - 1.0) / step).floor() as i32;
    (-steps_below..=steps_above).map(|index| 1.0 + f64::from(index) * step).collect()
}

#[cfg(test)]
mod tests;
