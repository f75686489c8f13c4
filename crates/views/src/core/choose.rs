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
const CHANGE_MS: f64 = 0.01;

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
}

impl Costs {
    /// Learns from a refresh.
    pub fn learn(&mut self, way: Way, changes: i64, took_ms: f64) {
        match way {
            Way::Incremental => {
                self.incremental.push_back((changes, took_ms));
                if self.incremental.len() > REMEMBERED {
                    self.incremental.pop_front();
                }
            }
            Way::Full => {
                self.full.push_back(took_ms);
                if self.full.len() > REMEMBERED {
                    self.full.pop_front();
                }
            }
        }
    }

    /// What computing anew takes, in milliseconds, if that was done: the median.
    pub fn full_ms(&self) -> Option<f64> {
        let mut all: Vec<f64> = self.full.iter().copied().collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied()
    }

    /// What so many changes take, in milliseconds: by the straight line that fits best to those that were seen, which
    /// neither begins below zero nor falls.
    pub fn incremental_ms(&self, changes: i64) -> f64 {
        let count = self.incremental.len() as f64;
        let wanted = changes as f64;
        let sums = self.incremental.iter().fold([0.0; 4], |sums, (x, y)| {
            let x = *x as f64;
            [sums[0] + x, sums[1] + y, sums[2] + x * x, sums[3] + x * y]
        });
        let [x, y, xx, xy] = sums;
        if count == 0.0 {
            return BASE_MS + CHANGE_MS * wanted;
        }
        let spread = count * xx - x * x;
        let (mean_x, mean_y) = (x / count, y / count);
        // All alike: a line through nothing and through them, above what nothing takes.
        let flat = spread <= count * count * 0.01 * mean_x * mean_x;
        let slope = match flat {
            true if mean_x > 0.0 => (mean_y - BASE_MS).max(0.0) / mean_x,
            true => 0.0,
            false => ((count * xy - x * y) / spread).max(0.0),
        };
        let base = (mean_y - slope * mean_x).max(0.0);
        base + slope * wanted
    }
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
    let estimates = format!("{changes} changes: {incremental:.1} ms expected, full {full:.1} ms");
    match full < incremental * MARGIN {
        true => (Way::Full, estimates),
        false => (Way::Incremental, estimates),
    }
}

#[cfg(test)]
mod tests;
