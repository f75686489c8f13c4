//! Which series there are, and what they are called: in the heads and in blocks.
//!
//! A series counts when its head has samples in the span of time that is asked about, or a block that reaches into the
//! span has it: as in Prometheus, samples in blocks are not looked at. Without selectors all series of the heads count.

use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::{Inner, Series};
use crate::core::head::HeadSeries;
use crate::core::promql::LabelMatcher;
use crate::error::SeriesError;
use crate::model::{Labels, TimeMs};
use crate::store::catalog::Snapshot;

/// Which series somebody asks about: those that one of the selectors takes, with samples in a span of time. Without
/// selectors all of them.
#[derive(Clone, Debug)]
pub struct Scope {
    /// Each a list of matchers that must all hold.
    pub selectors: Vec<Vec<LabelMatcher>>,
    /// No sample before counts.
    pub start: TimeMs,
    /// No sample after counts; inclusive, like `start`.
    pub end: TimeMs,
}

/// Series of a block that are looked at before it is asked whether more are wanted.
const PIECE: usize = 1_024;

/// The first of what is found, in order, and never more than are wanted.
struct First<T> {
    found: BTreeSet<T>,
    limit: usize,
    has_more: bool,
}

impl<T: Ord> First<T> {
    fn new(limit: usize) -> Self {
        Self {
            found: BTreeSet::new(),
            limit,
            has_more: false,
        }
    }

    /// Notes one. It breaks off when none that comes after it in order is wanted.
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
            self.found.insert(one.to_owned());
            if is_full {
                self.found.pop_last();
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
        match self.selectors.is_empty() {
            true => ALL,
            false => &self.selectors,
        }
    }
}

impl Series {
    /// The labels of the series in scope, sorted, at most `limit` of them, and whether there are more.
    ///
    /// # Errors
    /// [`SeriesError::Query`] for a malformed regular expression, [`SeriesError::Block`] for a block that cannot be
    /// read, and [`SeriesError::Stopping`].
    pub async fn series(
        &self,
        scope: Scope,
        limit: usize,
    ) -> Result<(Vec<Labels>, bool), SeriesError> {
        self.look(move |inner| inner.series_in(&scope, limit)).await
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
        self.look(move |inner| inner.names_in(&scope, limit)).await
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
        self.look(move |inner| inner.values_in(&name, &scope, limit))
            .await
    }

    pub(super) async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Inner) -> Result<T, SeriesError> + Send + 'static,
    ) -> Result<T, SeriesError> {
        let inner = self.inner.clone();
        match tokio::task::spawn_blocking(move || look(&inner)).await {
            Ok(found) => found,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => Err(SeriesError::Stopping),
        }
    }
}

impl Inner {
    /// Taken before the heads are looked at: what they release later is in these blocks.
    fn blocks(&self) -> Result<Arc<Snapshot>, SeriesError> {
        Ok(self.catalog()?.snapshot())
    }

    /// The series of the heads that a selector takes, with samples in the span.
    fn heads_in(
        &self,
        scope: &Scope,
        selector: &[LabelMatcher],
    ) -> Result<impl Iterator<Item = Arc<HeadSeries>>, SeriesError> {
        let mut series = Vec::new();
        for shard in self.shards()? {
            shard.index.view().select(selector, &mut series);
        }
        let (start, end) = (scope.start, scope.end);
        let mut series = series.into_iter();
        Ok(std::iter::from_fn(move || {
            series.find(|series| series.has_samples(start, end))
        }))
    }

    fn series_in(&self, scope: &Scope, limit: usize) -> Result<(Vec<Labels>, bool), SeriesError> {
        let blocks = self.blocks()?;
        let mut first = First::new(limit);
        for selector in scope.selectors() {
            for series in self.heads_in(scope, selector)? {
                let _ = first.offer(&series.labels);
            }
            for block in blocks.within(scope.start, scope.end) {
                let matching = self.noted(block.select(selector))?;
                // They ascend.
                for piece in matching.chunks(PIECE) {
                    let mut flow = ControlFlow::Continue(());
                    self.noted(block.names(piece.iter().copied(), |_, name| {
                        flow = first.offer(&name.labels());
                    }))?;
                    if flow.is_break() {
                        break;
                    }
                }
            }
        }
        Ok(first.finish())
    }

    fn names_in(&self, scope: &Scope, limit: usize) -> Result<(Vec<String>, bool), SeriesError> {
        let blocks = self.blocks()?;
        let mut first: First<String> = First::new(limit);
        if scope.selectors.is_empty() {
            for shard in self.shards()? {
                shard.index.view().names(|name| {
                    let _ = first.offer(name);
                });
            }
        }
        for selector in &scope.selectors {
            for series in self.heads_in(scope, selector)? {
                for (name, _) in series.labels.iter() {
                    let _ = first.offer(name);
                }
            }
        }
        for selector in scope.selectors() {
            for block in blocks.within(scope.start, scope.end) {
                for name in self.noted(block.label_names(selector))? {
                    let _ = first.offer(&*name);
                }
            }
        }
        Ok(first.finish())
    }

    fn values_in(
        &self,
        name: &str,
        scope: &Scope,
        limit: usize,
    ) -> Result<(Vec<String>, bool), SeriesError> {
        let blocks = self.blocks()?;
        let mut first: First<String> = First::new(limit);
        if scope.selectors.is_empty() {
            for shard in self.shards()? {
                shard.index.view().values(name, |value, _| {
                    let _ = first.offer(value);
                });
            }
        }
        for selector in &scope.selectors {
            for series in self.heads_in(scope, selector)? {
                match series.labels.get(name) {
                    "" => {}
                    value => drop(first.offer(value)),
                }
            }
        }
        for selector in scope.selectors() {
            for block in blocks.within(scope.start, scope.end) {
                let told = block.label_values(name, selector, |value| first.offer(value));
                self.noted(told)?;
            }
        }
        Ok(first.finish())
    }
}

#[cfg(test)]
mod tests;
