//! Export of raw samples, series by series.

use std::collections::HashSet;
use std::ops::ControlFlow;

use egret_metrics_model::{Labels, SeriesSamples, TimeSpan};

use super::Series;
use super::budget::Budget;
use super::label_queries::Scope;
use super::source::SelectedSeries;
use crate::engine::EngineInner;
use crate::error::SeriesError;

/// Receives the samples of an export.
pub trait SampleVisitor: Send + 'static {
    /// A series with its samples, staleness markers among them. It may wait, as for a client that
    /// reads slowly.
    fn visit(&mut self, labels: &Labels, samples: &SeriesSamples) -> ControlFlow<()>;
}

impl Series {
    /// Shows every series in scope with its samples, those of a selector in the order of their
    /// labels, until the visitor breaks off, and gives the visitor back. It runs on a thread of its
    /// own and counts as a query.
    ///
    /// # Errors
    /// [`SeriesError::Query`] for a malformed regular expression or samples that cannot be read,
    /// and [`SeriesError::Stopping`].
    pub async fn visit_samples<V: SampleVisitor>(
        &self,
        scope: Scope,
        mut visitor: V,
    ) -> Result<V, SeriesError> {
        // No time limit: a slow reader may take as long as it needs.
        self.run_as_query(None, move |inner, budget| {
            inner.visit(&scope, budget, &mut visitor)?;
            Ok(visitor)
        })
        .await
    }

    /// The labels of a series in scope that has native histograms there, if there is one. It counts
    /// as a query.
    ///
    /// # Errors
    /// As [`Series::visit_samples`].
    pub async fn first_with_histograms(&self, scope: Scope) -> Result<Option<Labels>, SeriesError> {
        let timeout = Some(self.query_timeout());
        self.run_as_query(timeout, move |inner, budget| inner.first_with_histograms(&scope, budget))
            .await
    }
}

impl EngineInner {
    fn visit(
        &self,
        scope: &Scope,
        budget: &Budget,
        visitor: &mut impl SampleVisitor,
    ) -> Result<(), SeriesError> {
        let mut samples = SeriesSamples::default();
        self.for_each_in_scope(scope, budget, |selected, index| {
            selected.samples(index, &mut samples)?;
            let labels = &selected.series[index].labels;
            if samples.is_empty() {
                Ok(ControlFlow::Continue(()))
            } else {
                Ok(visitor.visit(labels, &samples))
            }
        })
    }

    fn first_with_histograms(
        &self,
        scope: &Scope,
        budget: &Budget,
    ) -> Result<Option<Labels>, SeriesError> {
        let mut first = None;
        self.for_each_in_scope(scope, budget, |selected, index| {
            budget.check(0)?;
            if !selected.has_histograms(index)? {
                return Ok(ControlFlow::Continue(()));
            }
            first = Some(selected.series[index].labels.clone());
            Ok(ControlFlow::Break(()))
        })?;
        Ok(first)
    }

    /// Shows every series in scope once, those of a selector in the order of their labels.
    fn for_each_in_scope(
        &self,
        scope: &Scope,
        budget: &Budget,
        mut visit: impl FnMut(&SelectedSeries, usize) -> Result<ControlFlow<()>, SeriesError>,
    ) -> Result<(), SeriesError> {
        let selectors = scope.selectors();
        let span = TimeSpan { start: scope.start, end: scope.end };
        let mut seen = HashSet::new();
        for selector in selectors {
            let mut selected = self.select(selector, span, &budget.memory_counter())?;
            selected.series.sort_unstable_by(|left, right| left.labels.cmp(&right.labels));
            for index in 0..selected.series.len() {
                let labels = &selected.series[index].labels;
                if selectors.len() > 1 && !seen.insert(labels.clone()) {
                    continue;
                }
                if visit(&selected, index)?.is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}
