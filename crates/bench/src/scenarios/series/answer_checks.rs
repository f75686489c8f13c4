//! After a load: which of the answers were wrong. Working them out takes processor time, so it
//! waits until nothing is measured any more.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::answer;
use super::evaluate::Catalog;
use super::read::{ReaderResult, SeriesCounts, UncheckedAnswer};
use super::system::Vendor;

/// Wrong answers that are told in full.
const EXAMPLES_MAX: usize = 3;

/// Number of right and wrong answers.
#[derive(Debug, Default)]
pub(super) struct CheckCounts {
    pub(super) answers: u64,
    /// Answers that were compared value by value.
    pub(super) checked: u64,
    pub(super) wrong: u64,
    pub(super) empty: u64,
    /// Of the wrong ones, what some of them were.
    pub(super) examples: Vec<String>,
}

/// An answer, or a number of series, that is still to be checked.
enum PendingCheck {
    Values(UncheckedAnswer),
    SeriesCount(SeriesCounts),
}

/// Works out what the readers have kept. Kinds of query by which the system means something else
/// are only counted.
pub(super) fn check_answers(
    reader_results: Vec<ReaderResult>,
    catalog: &Catalog,
    vendor: Vendor,
) -> CheckCounts {
    let mut counts = CheckCounts::default();
    let mut pending = Vec::new();
    for result in reader_results {
        counts.answers += result.answers;
        counts.empty += result.empty;
        pending.extend(result.counts.into_values().map(PendingCheck::SeriesCount));
        let answers = result.unchecked_answers.into_iter();
        let kept = answers.filter(|kept| {
            vendor != Vendor::VictoriaMetrics || kept.query.kind().same_in_victoria_metrics
        });
        pending.extend(kept.map(PendingCheck::Values));
    }
    let (next_index, totals) = (AtomicUsize::new(0), Mutex::new(counts));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(check) = pending.get(next_index.fetch_add(1, Ordering::Relaxed)) {
                    let (checked, wrong, example) = run_check(check, catalog, vendor);
                    let mut all = totals.lock().unwrap_or_else(PoisonError::into_inner);
                    all.checked += checked;
                    all.wrong += wrong;
                    if all.examples.len() < EXAMPLES_MAX {
                        all.examples.extend(example);
                    }
                }
            });
        }
    });
    totals.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// How many answers were compared by value, how many were wrong, and how.
fn run_check(
    check: &PendingCheck,
    catalog: &Catalog,
    vendor: Vendor,
) -> (u64, u64, Option<String>) {
    match check {
        PendingCheck::Values(answer) => {
            let result = answer::check_answer(&answer.query, catalog, vendor, &answer.body);
            let example = result.err().map(|error| {
                let (name, moments) = (answer.query.kind().name, answer.query.moments);
                format!("{name}: {} at {moments:?}: {error:#}", answer.query.expr)
            });
            (1, u64::from(example.is_some()), example)
        }
        PendingCheck::SeriesCount(series_counts) => {
            let query = &series_counts.query;
            let expected = catalog.evaluate(&query.expr, query.moments.last_ms()).len();
            let mismatches = series_counts.answers.iter().filter(|(count, _)| **count != expected);
            let wrong = mismatches.clone().map(|(_, answers)| answers).sum();
            let told = mismatches.map(|(count, _)| *count).next().map(|count| {
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
