//! Chooses between an incremental and a full refresh of a view, by the durations of earlier ones.

use std::collections::VecDeque;

use crate::model::Mode;

/// Durations that are kept of each strategy.
const REMEMBERED: usize = 16;

/// A full refresh must be estimated to take less than this part of an incremental one, so that
/// noise does not alternate the choice.
const MARGIN: f64 = 0.9;

/// Estimate without samples: fixed duration of an incremental refresh, in milliseconds.
const BASE_MS: f64 = 2.0;

/// Estimate without samples: time for each change, in milliseconds.
const CHANGE_MS: f64 = 0.002;

/// A strategy with fewer samples than this is tried again.
const TRIALS: usize = 3;

/// A strategy that was not used for this many refreshes is tried again.
const TRIED_AGAIN: u32 = 32;

/// A strategy is not tried again if it is estimated to take more than this many times as long.
const LOSS_MAX: f64 = 3.0;

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
pub struct CostModel {
    /// Changes and milliseconds of incremental refreshes.
    incremental: VecDeque<(i64, f64)>,
    /// Milliseconds of full refreshes.
    full: VecDeque<f64>,
    /// Full refreshes since the last incremental one.
    full_since: u32,
    /// Incremental refreshes that failed.
    failed: usize,
    /// Whether the last refresh had changes to apply.
    was_busy: bool,
    /// Whether the changes could not be computed in the last attempt.
    pub is_barred: bool,
}

impl CostModel {
    /// Adds the duration of a refresh.
    pub fn learn(&mut self, way: RefreshStrategy, changes: i64, took_ms: f64) {
        self.was_busy = true;
        match way {
            RefreshStrategy::Incremental => {
                self.full_since = 0;
                self.incremental.push_back((changes, took_ms));
                if self.incremental.len() > REMEMBERED {
                    self.incremental.pop_front();
                }
            }
            RefreshStrategy::Full => {
                self.full_since += 1;
                self.full.push_back(took_ms);
                if self.full.len() > REMEMBERED {
                    self.full.pop_front();
                }
            }
        }
    }

    /// Counts a failed refresh as an incremental one.
    pub fn fail(&mut self) {
        self.failed += 1;
        self.full_since = 0;
    }

    /// Notes that a refresh had nothing to do.
    pub fn rest(&mut self) {
        self.was_busy = false;
    }

    /// Whether the next refresh will probably have changes to apply.
    pub(crate) fn expects(&self) -> bool {
        self.was_busy
    }

    /// Estimate for a full refresh in milliseconds: the median; none without samples.
    pub(crate) fn full_ms(&self) -> Option<f64> {
        median(self.full.iter().copied().collect())
    }

    /// Estimate for an incremental refresh of so many changes, in milliseconds: a line with the
    /// median slope between any two samples (Theil–Sen estimator), which is robust against outliers
    /// such as lock waits and first executions. Neither slope nor intercept is negative.
    pub(crate) fn incremental_ms(&self, changes: i64) -> f64 {
        let wanted = changes as f64;
        let seen: Vec<(f64, f64)> = self
            .incremental
            .iter()
            .map(|(changes, took_ms)| (*changes as f64, *took_ms))
            .collect();
        if seen.is_empty() {
            return BASE_MS + CHANGE_MS * wanted;
        }
        let mut slopes = Vec::new();
        for (at, one) in seen.iter().enumerate() {
            for other in &seen[at + 1..] {
                // Samples with nearly as many changes say nothing of the slope.
                if (one.0 - other.0).abs() > 0.1 * one.0.max(other.0) {
                    slopes.push((one.1 - other.1) / (one.0 - other.0));
                }
            }
        }
        let usual = |of: fn(&(f64, f64)) -> f64| median(seen.iter().map(of).collect());
        let slope = match median(slopes) {
            Some(slope) => slope.max(0.0),
            // All samples are alike: a line through the origin and through them, above the base
            // cost.
            None => match (usual(|one| one.0), usual(|one| one.1)) {
                (Some(changes), Some(took_ms)) if changes > 0.0 => {
                    (took_ms - BASE_MS).max(0.0) / changes
                }
                _ => 0.0,
            },
        };
        let rests = seen
            .iter()
            .map(|(changes, took_ms)| took_ms - slope * changes);
        median(rests.collect()).unwrap_or(0.0).max(0.0) + slope * wanted
    }

    /// Whether the slower strategy is worth another try: it has few samples, the first of which
    /// includes preparing all statements, or only old ones.
    fn are_old(&self, incremental_ms: f64, full_ms: f64) -> bool {
        let is_bearable = incremental_ms <= full_ms * LOSS_MAX;
        let is_young = self.incremental.len() + self.failed < TRIALS && self.full_since > 0;
        is_bearable && (is_young || self.full_since >= TRIED_AGAIN)
    }
}

/// The middle value; none of an empty list.
fn median(mut all: Vec<f64>) -> Option<f64> {
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied()
}

/// Inputs of the choice between strategies.
#[derive(Clone, Copy, Debug)]
pub struct CostInputs {
    /// Mode that the user has set.
    pub mode: Mode,
    /// Recorded change rows; an update counts as two.
    pub changes: i64,
    /// Estimated rows of all tables that the view reads.
    pub rows: i64,
}

/// The strategy, with its reason in words.
pub fn choose(situation: CostInputs, costs: &CostModel) -> (RefreshStrategy, String) {
    let CostInputs {
        mode,
        changes,
        rows,
    } = situation;
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
            (
                RefreshStrategy::Incremental,
                "a full refresh was not timed yet".to_owned(),
            )
        };
    };
    // The default estimate without samples is used to choose, but not reported as one for this
    // view.
    let expected = if costs.incremental.is_empty() {
        "not timed yet".to_owned()
    } else {
        format!("{incremental:.1} ms expected")
    };
    let estimates = format!("{changes} changes: {expected}, full {full:.1} ms");
    match full < incremental * MARGIN {
        true if costs.are_old(incremental, full) => (
            RefreshStrategy::Incremental,
            format!("{estimates}; tried again"),
        ),
        true => (RefreshStrategy::Full, estimates),
        false => (RefreshStrategy::Incremental, estimates),
    }
}

#[cfg(test)]
mod tests;
