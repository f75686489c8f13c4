//! Look-ups of series and their labels, in the heads and in blocks.
//!
//! A series counts when its head has samples in the span of time that is asked about, or a block
//! that reaches into the span has it: as in Prometheus, samples in blocks are not looked at.
//! Without selectors all series of the heads count.

use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use egret_blocks::catalog::Snapshot;
use egret_metrics_model::{LabelMatcher, Labels, TimeMs};
use egret_promql::QueryError;

use super::Series;
use super::budget::Budget;
use crate::engine::EngineInner;
use crate::error::SeriesError;

/// The series of a query of labels: those that one of the selectors takes, with samples in a span
/// of time. Without selectors, all of them.
#[derive(Clone, Debug)]
pub struct Scope {
    /// Each a list of matchers that must all hold.
    pub selectors: Vec<Vec<LabelMatcher>>,
    /// No sample before counts.
    pub start: TimeMs,
    /// No sample after counts; inclusive, like `start`.
    pub end: TimeMs,
}

/// Series that are examined between two checks of the budget and the limit.
const SERIES_PER_CHECK: usize = 1_024;

/// Approximate memory of a result beside its text.
const RESULT_BYTES: u64 = 64;

/// The first results in sorted order, never more than the limit.
struct SortedResults<'a, T> {
    results: BTreeSet<T>,
    limit: usize,
    has_more: bool,
    /// What they take in memory, and how much of it is one's text.
    bytes: u64,
    text_bytes: fn(&T) -> usize,
    budget: &'a Budget,
}

impl<'a, T: Ord> SortedResults<'a, T> {
    fn new(limit: usize, budget: &'a Budget, text_bytes: fn(&T) -> usize) -> Self {
        Self { results: BTreeSet::new(), limit, has_more: false, bytes: 0, text_bytes, budget }
    }

    /// Whether more may be looked for.
    ///
    /// # Errors
    /// As [`Budget::check`].
    fn check(&self) -> Result<(), QueryError> {
        self.budget.check(self.bytes)
    }

    fn size_bytes(&self, result: &T) -> u64 {
        RESULT_BYTES + (self.text_bytes)(result) as u64
    }

    /// Adds a result. Breaks off when neither it nor any later one in order is among the first.
    fn insert<Q>(&mut self, result: &Q) -> ControlFlow<()>
    where
        T: Borrow<Q>,
        Q: Ord + ToOwned<Owned = T> + ?Sized,
    {
        let is_full = self.results.len() >= self.limit;
        let is_beyond = is_full && self.results.last().is_none_or(|last| last.borrow() < result);
        if is_beyond {
            self.has_more = true;
            return ControlFlow::Break(());
        }
        if !self.results.contains(result) {
            let one = result.to_owned();
            self.bytes += self.size_bytes(&one);
            self.results.insert(one);
            if is_full {
                let last = self.results.pop_last();
                self.bytes -= last.map_or(0, |last| self.size_bytes(&last));
                self.has_more = true;
            }
        }
        ControlFlow::Continue(())
    }

    fn finish(self) -> (Vec<T>, bool) {
        (self.results.into_iter().collect(), self.has_more)
    }
}

impl Scope {
    /// The selectors; one that takes everything when there is none.
    pub(super) fn selectors(&self) -> &[Vec<LabelMatcher>] {
        const ALL: &[Vec<LabelMatcher>] = &[Vec::new()];
        if self.selectors.is_empty() { ALL } else { &self.selectors }
    }
}

impl Series {
    /// The labels of the series in scope, sorted, at most `limit` of them, and whether there are
    /// more. It counts as a query.
    ///
    /// # Errors
    /// [`SeriesError::Query`] when that takes more time or memory than a query may,
    /// [`SeriesError::Block`] for a block that cannot be read, and [`SeriesError::Stopping`].
    pub async fn series(
        &self,
        scope: Scope,
        limit: usize,
    ) -> Result<(Vec<Labels>, bool), SeriesError> {
        self.run_as_query(Some(self.query_timeout()), move |inner, budget| {
            inner.list_series(
                &scope,
                SortedResults::new(limit, budget, |labels| labels.as_key().len()),
            )
        })
        .await
    }

    /// The names of labels of the series in scope, sorted; otherwise as [`Series::series`].
    ///
    /// # Errors
    /// As [`Series::series`].
    pub async fn label_names(
        &self,
        scope: Scope,
        limit: usize,
    ) -> Result<(Vec<String>, bool), SeriesError> {
        self.run_as_query(Some(self.query_timeout()), move |inner, budget| {
            inner.list_label_names(&scope, SortedResults::new(limit, budget, String::len))
        })
        .await
    }

    /// The values of a label in the series in scope, sorted; otherwise as [`Series::series`].
    ///
    /// # Errors
    /// As [`Series::series`].
    pub async fn label_values(
        &self,
        name: String,
        scope: Scope,
        limit: usize,
    ) -> Result<(Vec<String>, bool), SeriesError> {
        self.run_as_query(Some(self.query_timeout()), move |inner, budget| {
            inner.list_label_values(&name, &scope, SortedResults::new(limit, budget, String::len))
        })
        .await
    }
}

impl EngineInner {
    /// Taken before the heads are looked at: what they release later is in these blocks.
    fn block_snapshot(&self) -> Result<Arc<Snapshot>, SeriesError> {
        Ok(self.catalog()?.snapshot())
    }

    /// Offers something of each series of the heads that a selector takes, with samples in the
    /// span.
    fn visit_heads<T: Ord>(
        &self,
        scope: &Scope,
        selector: &[LabelMatcher],
        results: &mut SortedResults<'_, T>,
        visit: impl Fn(&mut SortedResults<'_, T>, &Labels),
    ) -> Result<(), SeriesError> {
        let mut heads = Vec::new();
        for shard in self.shards()? {
            shard.index.view().select(selector, &mut heads);
        }
        let (start, end) = (scope.start, scope.end);
        for piece in heads.chunks(SERIES_PER_CHECK) {
            for series in piece.iter().filter(|series| series.has_samples(start, end)) {
                visit(results, &series.labels);
            }
            results.check()?;
        }
        Ok(())
    }

    fn list_series(
        &self,
        scope: &Scope,
        mut results: SortedResults<'_, Labels>,
    ) -> Result<(Vec<Labels>, bool), SeriesError> {
        let blocks = self.block_snapshot()?;
        for selector in scope.selectors() {
            self.visit_heads(scope, selector, &mut results, |first, labels| {
                let _ = first.insert(labels);
            })?;
            for block in blocks.blocks_overlapping(scope.start, scope.end) {
                let matching = self.check_read(block.select(selector))?;
                // They ascend.
                for piece in matching.chunks(SERIES_PER_CHECK) {
                    let mut flow = ControlFlow::Continue(());
                    self.check_read(block.for_each_name(piece.iter().copied(), |_, name| {
                        flow = results.insert(&name.labels());
                    }))?;
                    results.check()?;
                    if flow.is_break() {
                        break;
                    }
                }
            }
        }
        Ok(results.finish())
    }

    fn list_label_names(
        &self,
        scope: &Scope,
        mut results: SortedResults<'_, String>,
    ) -> Result<(Vec<String>, bool), SeriesError> {
        let blocks = self.block_snapshot()?;
        if scope.selectors.is_empty() {
            for shard in self.shards()? {
                shard.index.view().visit_names(|name| {
                    let _ = results.insert(name);
                });
                results.check()?;
            }
        }
        for selector in &scope.selectors {
            self.visit_heads(scope, selector, &mut results, |first, labels| {
                for (name, _) in labels.iter() {
                    let _ = first.insert(name);
                }
            })?;
        }
        for selector in scope.selectors() {
            for block in blocks.blocks_overlapping(scope.start, scope.end) {
                for name in self.check_read(block.label_names(selector))? {
                    let _ = results.insert(&*name);
                }
                results.check()?;
            }
        }
        Ok(results.finish())
    }

    fn list_label_values(
        &self,
        name: &str,
        scope: &Scope,
        mut results: SortedResults<'_, String>,
    ) -> Result<(Vec<String>, bool), SeriesError> {
        let blocks = self.block_snapshot()?;
        if scope.selectors.is_empty() {
            for shard in self.shards()? {
                shard.index.view().visit_values(name, |value, _| {
                    let _ = results.insert(value);
                });
                results.check()?;
            }
        }
        for selector in &scope.selectors {
            self.visit_heads(scope, selector, &mut results, |first, labels| {
                match labels.get(name) {
                    "" => {}
                    value => drop(first.insert(value)),
                }
            })?;
        }
        for selector in scope.selectors() {
            for block in blocks.blocks_overlapping(scope.start, scope.end) {
                let (mut value_count, mut checked) = (0_usize, Ok(()));
                let result = block.label_values(name, selector, |value| {
                    value_count += 1;
                    if value_count.is_multiple_of(SERIES_PER_CHECK) {
                        checked = results.check();
                    }
                    match checked {
                        Ok(()) => results.insert(value),
                        Err(_) => ControlFlow::Break(()),
                    }
                });
                self.check_read(result)?;
                checked.and_then(|()| results.check())?;
            }
        }
        Ok(results.finish())
    }
}

#[cfg(test)]
mod tests;
