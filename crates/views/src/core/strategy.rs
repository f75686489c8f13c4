//! Chooses between an incremental and a full refresh of a view, by the durations of earlier ones.

use std::collections::VecDeque;

use crate::model::Mode;

/// Durations that are kept of each strategy.
const SAMPLES_MAX: usize = 16;

/// A full refresh must be estimated to take less than this part of an incremental one, so that
/// noise does not alternate the choice.
const FULL_MARGIN: f64 = 0.9;

/// Estimate without samples: fixed duration of an incremental refresh, in milliseconds.
const BASE_MS: f64 = 2.0;

/// Estimate without samples: time for each change, in milliseconds.
const CHANGE_MS: f64 = 0.002;

/// A strategy with fewer samples than this is tried again.
const SAMPLES_MIN: usize = 3;

/// A strategy that was not used for this many refreshes is tried again.
const RETRY_REFRESHES: u32 = 32;

/// A strategy is not tried again if it is estimated to take more than this many times as long.
const SLOWDOWN_MAX: f64 = 3.0;

/// How a view is refreshed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefreshStrategy {
    /// By applying changes to its stages.
    Incremental,
    /// By recomputing the query.
    Full,
}

impl RefreshStrategy {
    /// The word for it in reports and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Incremental => "incremental",
            Self::Full => "full",
        }
    }
}

/// Durations of the refreshes of a view, from which its next ones are estimated.
#[derive(Clone, Debug, Default)]
pub(crate) struct CostModel {
    /// Changes and milliseconds of incremental refreshes.
    incremental: VecDeque<(i64, f64)>,
    /// Milliseconds of full refreshes.
    full: VecDeque<f64>,
    /// Full refreshes since the last incremental one.
    full_since_incremental: u32,
    /// Incremental refreshes that failed.
    failed_incremental: usize,
    /// Whether the last refresh had changes to apply.
    had_changes: bool,
    /// Whether the changes could not be computed in the last attempt.
    pub is_incremental_barred: bool,
}

impl CostModel {
    /// Adds the duration of a refresh.
    pub(crate) fn record_duration(
        &mut self,
        strategy: RefreshStrategy,
        changes: i64,
        took_ms: f64,
    ) {
        self.had_changes = true;
        match strategy {
            RefreshStrategy::Incremental => {
                self.full_since_incremental = 0;
                self.incremental.push_back((changes, took_ms));
                if self.incremental.len() > SAMPLES_MAX {
                    self.incremental.pop_front();
                }
            }
            RefreshStrategy::Full => {
                self.full_since_incremental += 1;
                self.full.push_back(took_ms);
                if self.full.len() > SAMPLES_MAX {
                    self.full.pop_front();
                }
            }
        }
    }

    /// Counts a failed refresh as an incremental one.
    pub(crate) fn record_failure(&mut self) {
        self.failed_incremental += 1;
        self.full_since_incremental = 0;
    }

    /// Notes that a refresh had nothing to do.
    pub(crate) fn record_idle(&mut self) {
        self.had_changes = false;
    }

    /// Whether the next refresh will probably have changes to apply.
    pub(crate) fn expects_changes(&self) -> bool {
        self.had_changes
    }

    /// Estimate for a full refresh in milliseconds: the median; none without samples.
    pub(crate) fn full_ms(&self) -> Option<f64> {
        median(self.full.iter().copied().collect())
    }

    /// Estimate for an incremental refresh of so many changes, in milliseconds: a line with the
    /// median slope between any two samples (Theil–Sen estimator), which is robust against outliers
    /// such as lock waits and first executions. Neither slope nor intercept is negative.
    pub(crate) fn incremental_ms(&self, changes: i64) -> f64 {
        let change_count = changes as f64;
        let samples: Vec<(f64, f64)> =
            self.incremental.iter().map(|(changes, took_ms)| (*changes as f64, *took_ms)).collect();
        if samples.is_empty() {
            return BASE_MS + CHANGE_MS * change_count;
        }
        let mut slopes = Vec::new();
        for (index, sample) in samples.iter().enumerate() {
            for other_sample in &samples[index + 1..] {
                // Samples with nearly as many changes say nothing of the slope.
                if (sample.0 - other_sample.0).abs() > 0.1 * sample.0.max(other_sample.0) {
                    slopes.push((sample.1 - other_sample.1) / (sample.0 - other_sample.0));
                }
            }
        }
        let median_of = |value: fn(&(f64, f64)) -> f64| median(samples.iter().map(value).collect());
        let slope = match median(slopes) {
            Some(slope) => slope.max(0.0),
            // All samples are alike: a line through the origin and through them, above the base
            // cost.
            None => match (median_of(|one| one.0), median_of(|one| one.1)) {
                (Some(changes), Some(took_ms)) if changes > 0.0 => {
                    (took_ms - BASE_MS).max(0.0) / changes
                }
                _ => 0.0,
            },
        };
        let intercepts = samples.iter().map(|(changes, took_ms)| took_ms - slope * changes);
        median(intercepts.collect()).unwrap_or(0.0).max(0.0) + slope * change_count
    }

    /// Whether the slower strategy is worth another try: it has few samples, the first of which
    /// includes preparing all statements, or only old ones.
    fn is_retry_due(&self, incremental_ms: f64, full_ms: f64) -> bool {
        let is_affordable = incremental_ms <= full_ms * SLOWDOWN_MAX;
        let has_few_samples = self.incremental.len() + self.failed_incremental < SAMPLES_MIN
            && self.full_since_incremental > 0;
        is_affordable && (has_few_samples || self.full_since_incremental >= RETRY_REFRESHES)
    }
}

/// The middle value; none of an empty list.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// Inputs of the choice between strategies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CostInputs {
    /// Mode that the user has set.
    pub mode: Mode,
    /// Recorded change rows; an update counts as two.
    pub changes: i64,
    /// Estimated rows of all tables that the view reads.
    pub rows: i64,
}

/// The strategy, with its reason in words.
pub(crate) fn choose_strategy(inputs: CostInputs, costs: &CostModel) -> (RefreshStrategy, String) {
    let CostInputs { mode, changes, rows } = inputs;
    match mode {
        Mode::Incremental => return (RefreshStrategy::Incremental, "mode incremental".to_owned()),
        Mode::Full => return (RefreshStrategy::Full, "mode full".to_owned()),
        Mode::Auto | Mode::Immediate => {}
    }
    let incremental = costs.incremental_ms(changes);
    let Some(full) = costs.full_ms() else {
        // An update is two changes: at this point, all rows may have changed.
        return if changes >= rows.saturating_mul(2) && rows > 0 {
            (
                RefreshStrategy::Full,
                format!("{changes} changes of about {rows} rows; neither strategy was timed yet"),
            )
        } else {
            (RefreshStrategy::Incremental, "a full refresh was not timed yet".to_owned())
        };
    };
    // The default estimate without samples is used to choose, but not reported as one for this
    // view.
    let incremental_estimate = if costs.incremental.is_empty() {
        "not timed yet".to_owned()
    } else {
        format!("{incremental:.1} ms expected")
    };
    let estimates = format!("{changes} changes: {incremental_estimate}, full {full:.1} ms");
    match full < incremental * FULL_MARGIN {
        true if costs.is_retry_due(incremental, full) => {
            (RefreshStrategy::Incremental, format!("{estimates}; tried again"))
        }
        true => (RefreshStrategy::Full, estimates),
        false => (RefreshStrategy::Incremental, estimates),
    }
}

#[cfg(test)]
mod tests;
