//! Which way a view is brought up to date: by what changed, or anew. Whatever is expected to take less, from what its own
//! refreshes have taken.

use std::collections::VecDeque;

use crate::model::Mode;

/// Refreshes that are remembered of each way.
const REMEMBERED: usize = 16;

/// Computing anew must be expected to take this much less, so that the choice does not swing with noise.
const MARGIN: f64 = 0.9;

/// Before anything is known: what a refresh by changes takes at least, in milliseconds, …
const BASE_MS: f64 = 2.0;

/// … and for each change.
const CHANGE_MS: f64 = 0.002;

/// What was seen fewer times than this, or never, is tried once more before it is given up, …
const TRIALS: usize = 3;

/// … and what was not for so many refreshes, …
const TRIED_AGAIN: u32 = 32;

/// … unless it is expected to take so many times as long.
const LOSS_MAX: f64 = 3.0;

/// A way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// By what changed.
    Incremental,
    /// By computing all of it.
    Full,
}

impl Way {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Incremental => "incremental",
            Self::Full => "full",
        }
    }
}

/// What refreshes of a view have taken.
#[derive(Clone, Debug, Default)]
pub struct Costs {
    /// Changes, and milliseconds.
    incremental: VecDeque<(i64, f64)>,
    /// Milliseconds.
    full: VecDeque<f64>,
    /// Refreshes that computed all of it since one did not.
    full_since: u32,
    /// Refreshes by what changed that failed.
    failed: usize,
    /// Whether the last refresh found something to do.
    was_busy: bool,
    /// Whether what changed could not be computed a moment ago.
    pub is_barred: bool,
}

impl Costs {
    /// Learns from a refresh.
    pub fn learn(&mut self, way: Way, changes: i64, took_ms: f64) {
        self.was_busy = true;
        match way {
            Way::Incremental => {
                self.full_since = 0;
                self.incremental.push_back((changes, took_ms));
                if self.incremental.len() > REMEMBERED {
                    self.incremental.pop_front();
                }
            }
            Way::Full => {
                self.full_since += 1;
                self.full.push_back(took_ms);
                if self.full.len() > REMEMBERED {
                    self.full.pop_front();
                }
            }
        }
    }

    /// Learns that a refresh failed, by what changed if it was not in the mode that computes all of it.
    pub fn fail(&mut self) {
        self.failed += 1;
        self.full_since = 0;
    }

    /// Learns that there was nothing to do.
    pub fn rest(&mut self) {
        self.was_busy = false;
    }

    /// Whether the next refresh has something to do, as it seems.
    pub fn expects(&self) -> bool {
        self.was_busy
    }

    /// What computing anew takes, in milliseconds, if that was done: the median.
    pub fn full_ms(&self) -> Option<f64> {
        median(self.full.iter().copied().collect())
    }

    /// What so many changes take, in milliseconds: by a straight line whose slope is the median of those between any two
    /// refreshes that were seen (Theil and Sen), so that one that had to wait or to prepare everything says little. It
    /// neither begins below zero nor falls.
    pub fn incremental_ms(&self, changes: i64) -> f64 {
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
                // Those that are nearly alike tell nothing of others.
                if (one.0 - other.0).abs() > 0.1 * one.0.max(other.0) {
                    slopes.push((one.1 - other.1) / (one.0 - other.0));
                }
            }
        }
        let usual = |of: fn(&(f64, f64)) -> f64| median(seen.iter().map(of).collect());
        let slope = match median(slopes) {
            Some(slope) => slope.max(0.0),
            // All alike: a line through nothing and through them, above what nothing takes.
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

    /// Whether a way that is expected to take more is worth another look: it was seen never or a few times only, the first of which
    /// had to prepare everything, or long ago.
    fn are_old(&self, incremental_ms: f64, full_ms: f64) -> bool {
        let is_bearable = incremental_ms <= full_ms * LOSS_MAX;
        let is_young = self.incremental.len() + self.failed < TRIALS && self.full_since > 0;
        is_bearable && (is_young || self.full_since >= TRIED_AGAIN)
    }
}

/// The middle one; none of none.
fn median(mut all: Vec<f64>) -> Option<f64> {
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied()
}

/// What is known when the choice is made.
#[derive(Clone, Copy, Debug)]
pub struct Situation {
    /// What the user wants.
    pub mode: Mode,
    /// Rows of changes, each side of an update being one.
    pub changes: i64,
    /// Rows of all that is read, about.
    pub rows: i64,
}

/// The way, and why in words.
pub fn choose(situation: Situation, costs: &Costs) -> (Way, String) {
    let Situation {
        mode,
        changes,
        rows,
    } = situation;
    match mode {
        Mode::Incremental => return (Way::Incremental, "mode incremental".to_owned()),
        Mode::Full => return (Way::Full, "mode full".to_owned()),
        Mode::Auto | Mode::Immediate => {}
    }
    let incremental = costs.incremental_ms(changes);
    let Some(full) = costs.full_ms() else {
        // An update is two changes: then all rows changed.
        return match changes >= rows.saturating_mul(2) && rows > 0 {
            true => (
                Way::Full,
                format!("{changes} changes of about {rows} rows; neither way was timed yet"),
            ),
            false => (
                Way::Incremental,
                "computing all of it was not timed yet".to_owned(),
            ),
        };
    };
    // What is usual decides as long as nothing was seen, and is no estimate for this view.
    let expected = match costs.incremental.is_empty() {
        true => "not timed yet".to_owned(),
        false => format!("{incremental:.1} ms expected"),
    };
    let estimates = format!("{changes} changes: {expected}, full {full:.1} ms");
    match full < incremental * MARGIN {
        true if costs.are_old(incremental, full) => {
            (Way::Incremental, format!("{estimates}; tried again"))
        }
        true => (Way::Full, estimates),
        false => (Way::Incremental, estimates),
    }
}

#[cfg(test)]
mod tests;
