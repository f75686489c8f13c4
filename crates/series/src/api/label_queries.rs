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
const PIECE: usize = 1_024;

/// Approximate memory of a result beside its text.
const FOUND_BYTES: u64 = 64;

/// The first results in sorted order, never more than the limit.
struct First<'a, T> {
    found: BTreeSet<T>,
    limit: usize,
    has_more: bool,
    /// What they take in memory, and how much of it is one's text.
    bytes: u64,
    text_bytes: fn(&T) -> usize,
    budget: &'a Budget,
}

impl<'a, T: Ord> First<'a, T> {
    fn new(limit: usize, budget: &'a Budget, text_bytes: fn(&T) -> usize) -> Self {
        Self {
            found: BTreeSet::new(),
            limit,
            has_more: false,
            bytes: 0,
            text_bytes,
            budget,
        }
    }

    /// Whether more may be looked for.
    ///
    /// # Errors
    /// As [`Budget::check`].
    fn check(&self) -> Result<(), QueryError> {
        self.budget.check(self.bytes)
    }

    fn bytes_of(&self, one: &T) -> u64 {
        FOUND_BYTES + (self.text_bytes)(one) as u64
    }

    /// Adds a result. Breaks off when neither it nor any later one in order is among the first.
    fn offer<Q>(&mut self, one: &Q) -> ControlFlow<()>
    where
        T: Borrow<Q>,
        Q: Ord + ToOwned<Owned = T> + ?Sized,
    {
        let is_full = self.found.len() >= self.limit;
        let is_beyond = is_full && self.found.last().is_none_or(|last| last.borrow() < one);
        if is_beyond {
            self.has_more = true;
            return ControlFlow::Break(());
        }
        if !self.found.contains(one) {
            let one = one.to_owned();
            self.bytes += self.bytes_of(&one);
            self.found.insert(one);
            if is_full {
                let last = self.found.pop_last();
                self.bytes -= last.map_or(0, |last| self.bytes_of(&last));
                self.has_more = true;
            }
        }
        ControlFlow::Continue(())
    }

    fn finish(self) -> (Vec<T>, bool) {
        (self.found.into_iter().collect(), self.has_more)
    }
}

impl Scope {
    /// The selectors; one that takes everything when there is none.
    pub(super) fn selectors(&self) -> &[Vec<LabelMatcher>] {
        const ALL: &[Vec<LabelMatcher>] = &[Vec::new()];
        if self.selectors.is_empty() {
            ALL
        } else {
            &self.selectors
        }
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
        self.as_query(Some(self.query_timeout()), move |inner, budget| {
            inner.series_in(
                &scope,
                First::new(limit, budget, |labels| labels.as_key().len()),
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
        self.as_query(Some(self.query_timeout()), move |inner, budget| {
            inner.names_in(&scope, First::new(limit, budget, String::len))
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
        self.as_query(Some(self.query_timeout()), move |inner, budget| {
            inner.values_in(&name, &scope, First::new(limit, budget, String::len))
        })
        .await
    }
}

impl EngineInner {
    /// Taken before the heads are looked at: what they release later is in these blocks.
    fn blocks(&self) -> Result<Arc<Snapshot>, SeriesError> {
        Ok(self.catalog()?.snapshot())
    }

    /// Offers something of each series of the heads that a selector takes, with samples in the
    /// span.
    fn offer_heads<T: Ord>(
        &self,
        scope: &Scope,
        selector: &[LabelMatcher],
        first: &mut First<'_, T>,
        offer: impl Fn(&mut First<'_, T>, &Labels),
    ) -> Result<(), SeriesError> {
        let mut heads = Vec::new();
        for shard in self.shards()? {
            shard.index.view().select(selector, &mut heads);
        }
        let (start, end) = (scope.start, scope.end);
        for piece in heads.chunks(PIECE) {
            for series in piece.iter().filter(|series| series.has_samples(start, end)) {
                offer(first, &series.labels);
            }
            first.check()?;
        }
        Ok(())
    }

    fn series_in(
        &self,
        scope: &Scope,
        mut first: First<'_, Labels>,
    ) -> Result<(Vec<Labels>, bool), SeriesError> {
        let blocks = self.blocks()?;
        for selector in scope.selectors() {
            self.offer_heads(scope, selector, &mut first, |first, labels| {
                let _ = first.offer(labels);
            })?;
            for block in blocks.within(scope.start, scope.end) {
                let matching = self.noted(block.select(selector))?;
                // They ascend.
                for piece in matching.chunks(PIECE) {
                    let mut flow = ControlFlow::Continue(());
                    self.noted(block.names(piece.iter().copied(), |_, name| {
                        flow = first.offer(&name.labels());
                    }))?;
                    first.check()?;
                    if flow.is_break() {
                        break;
                    }
                }
            }
        }
        Ok(first.finish())
    }

    fn names_in(
        &self,
        scope: &Scope,
        mut first: First<'_, String>,
    ) -> Result<(Vec<String>, bool), SeriesError> {
        let blocks = self.blocks()?;
        if scope.selectors.is_empty() {
            for shard in self.shards()? {
                shard.index.view().names(|name| {
                    let _ = first.offer(name);
                });
                first.check()?;
            }
        }
        for selector in &scope.selectors {
            self.offer_heads(scope, selector, &mut first, |first, labels| {
                for (name, _) in labels.iter() {
                    let _ = first.offer(name);
                }
            })?;
        }
        for selector in scope.selectors() {
            for block in blocks.within(scope.start, scope.end) {
                for name in self.noted(block.label_names(selector))? {
                    let _ = first.offer(&*name);
                }
                first.check()?;
            }
        }
        Ok(first.finish())
    }

    fn values_in(
        &self,
        name: &str,
        scope: &Scope,
        mut first: First<'_, String>,
    ) -> Result<(Vec<String>, bool), SeriesError> {
        let blocks = self.blocks()?;
        if scope.selectors.is_empty() {
            for shard in self.shards()? {
                shard.index.view().values(name, |value, _| {
                    let _ = first.offer(value);
                });
                first.check()?;
            }
        }
        for selector in &scope.selectors {
            self.offer_heads(scope, selector, &mut first, |first, labels| {
                match labels.get(name) {
                    "" => {}
                    value => drop(first.offer(value)),
                }
            })?;
        }
        for selector in scope.selectors() {
            for block in blocks.within(scope.start, scope.end) {
                let (mut values, mut checked) = (0_usize, Ok(()));
                let told = block.label_values(name, selector, |value| {
                    values += 1;
                    if values.is_multiple_of(PIECE) {
                        checked = first.check();
                    }
                    match checked {
                        Ok(()) => first.offer(value),
                        Err(_) => ControlFlow::Break(()),
                    }
                });
                self.noted(told)?;
                checked.and_then(|()| first.check())?;
            }
        }
        Ok(first.finish())
    }
}

#[cfg(test)]
mod tests;
