//! Samples as they are, series by series: for whoever wants to have them elsewhere.

use std::collections::HashSet;
use std::ops::ControlFlow;

use super::look::Scope;
use super::source::Samples;
use super::{Inner, Series};
use crate::core::promql::{Columns, Hints, QueryError, Selection, Source};
use crate::error::SeriesError;
use crate::model::Labels;

/// Whoever is shown samples.
pub trait SampleVisitor: Send + 'static {
    /// A series with its samples, staleness markers among them. It may wait, as for a client that reads slowly.
    fn visit(&mut self, labels: &Labels, columns: &Columns) -> ControlFlow<()>;
}

impl Series {
    /// Shows every series in scope with its samples, until the visitor breaks off, and gives the visitor back. It runs
    /// on a thread of its own and counts as a query.
    ///
    /// # Errors
    /// [`SeriesError::Query`] for a malformed regular expression or samples that cannot be read, and
    /// [`SeriesError::Stopping`].
    pub async fn visit_samples<V: SampleVisitor>(
        &self,
        scope: Scope,
        mut visitor: V,
    ) -> Result<V, SeriesError> {
        let inner = self.inner.clone();
        let permit = inner.queries.clone().acquire_owned().await;
        let permit = permit.map_err(|_| SeriesError::Stopping)?;
        let visited = tokio::task::spawn_blocking(move || {
            let visited = inner.visit(&scope, &mut visitor);
            drop(permit);
            visited.map(|()| visitor)
        });
        match visited.await {
            Ok(visited) => Ok(visited?),
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => Err(SeriesError::Stopping),
        }
    }
}

impl Inner {
    fn visit(&self, scope: &Scope, visitor: &mut impl SampleVisitor) -> Result<(), QueryError> {
        let all = [Vec::new()];
        let selectors = match scope.selectors.is_empty() {
            true => &all[..],
            false => &scope.selectors,
        };
        let source = Samples { inner: self };
        let mut seen = HashSet::new();
        let mut columns = Columns::default();
        for selector in selectors {
            let found = source.select(&Selection {
                matchers: selector.clone(),
                start: scope.start,
                end: scope.end,
                hints: Hints::default(),
            })?;
            for at in 0..found.len() {
                let labels = found.labels(at);
                if selectors.len() > 1 && !seen.insert(labels.clone()) {
                    continue;
                }
                found.read(at, &mut columns)?;
                within(&mut columns, scope);
                if !columns.is_empty() && visitor.visit(labels, &columns).is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

/// Takes out what a source gave beyond what was asked for.
fn within(columns: &mut Columns, scope: &Scope) {
    let from = columns.times.partition_point(|time| *time < scope.start);
    let to = columns.times.partition_point(|time| *time <= scope.end);
    columns.times.truncate(to);
    columns.times.drain(..from.min(to));
    columns.values.truncate(to);
    columns.values.drain(..from.min(to));
    let from = columns
        .histogram_times
        .partition_point(|time| *time < scope.start);
    let to = columns
        .histogram_times
        .partition_point(|time| *time <= scope.end);
    columns.histogram_times.truncate(to);
    columns.histogram_times.drain(..from.min(to));
    columns.histograms.truncate(to);
    columns.histograms.drain(..from.min(to));
}
