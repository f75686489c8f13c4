//! After a load: which of the answers were wrong. Working them out takes processor time, so it
//! waits until nothing is measured any more.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::answer;
use super::evaluate::Catalog;
use super::read::{ReaderResult, SeriesCounts, UncheckedAnswer};
use super::system::Vendor;

/// Wrong answers that are told in full.
const TOLD_MAX: usize = 3;

/// Number of right and wrong answers.
#[derive(Debug, Default)]
pub(super) struct CheckCounts {
    pub(super) answers: u64,
    /// Answers that were compared value by value.
    pub(super) checked: u64,
    pub(super) wrong: u64,
    pub(super) empty: u64,
    /// Of the wrong ones, what some of them were.
    pub(super) told: Vec<String>,
}

/// An answer, or a number of series, that is still to be checked.
enum PendingCheck {
    Whole(UncheckedAnswer),
    Number(SeriesCounts),
}

/// Works out what the readers have kept. Kinds of query by which the system means something else
/// are only counted.
pub(super) fn judge(asked: Vec<ReaderResult>, catalog: &Catalog, make: Vendor) -> CheckCounts {
    let mut verdict = CheckCounts::default();
    let mut doubts = Vec::new();
    for asked in asked {
        verdict.answers += asked.answers;
        verdict.empty += asked.empty;
        doubts.extend(asked.counts.into_values().map(PendingCheck::Number));
        let kept = asked.kept.into_iter();
        let kept = kept.filter(|kept| {
            make != Vendor::VictoriaMetrics || kept.query.kind().same_in_victoria_metrics
        });
        doubts.extend(kept.map(PendingCheck::Whole));
    }
    let (next, all) = (AtomicUsize::new(0), Mutex::new(verdict));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(doubt) = doubts.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (checked, wrong, told) = settle(doubt, catalog, make);
                    let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
                    all.checked += checked;
                    all.wrong += wrong;
                    if all.told.len() < TOLD_MAX {
                        all.told.extend(told);
                    }
                }
            });
        }
    });
    all.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// How many answers were compared by value, how many were wrong, and how.
fn settle(doubt: &PendingCheck, catalog: &Catalog, make: Vendor) -> (u64, u64, Option<String>) {
    match doubt {
        PendingCheck::Whole(kept) => {
            let checked = answer::check(&kept.query, catalog, make, &kept.body);
            let told = checked.err().map(|error| {
                let (name, moments) = (kept.query.kind().name, kept.query.moments);
                format!("{name}: {} at {moments:?}: {error:#}", kept.query.expr)
            });
            (1, u64::from(told.is_some()), told)
        }
        PendingCheck::Number(counted) => {
            let query = &counted.query;
            let expected = catalog.evaluate(&query.expr, query.moments.last_ms()).len();
            let others = counted
                .answers
                .iter()
                .filter(|(count, _)| **count != expected);
            let wrong = others.clone().map(|(_, answers)| answers).sum();
            let told = others.map(|(count, _)| *count).next().map(|count| {
                format!(
                    "{}: {count} series, expected {expected}: {}",
                    query.kind().name,
                    query.expr
                )
            });
            (0, wrong, told)
        }
    }
}
