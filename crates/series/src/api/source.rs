//! What a query reads: the heads of all shards.

use std::sync::Arc;
use std::time::Instant;

use super::Inner;
use crate::core::head::HeadSeries;
use crate::core::promql::{Columns, QueryError, Selection, SeriesSet, Source};
use crate::metrics::Component;
use crate::model::{Labels, SeriesSamples, TimeMs};

/// Samples at one moment.
pub(crate) struct Samples<'a> {
    pub inner: &'a Inner,
}

struct Selected {
    series: Vec<Arc<HeadSeries>>,
    start: TimeMs,
    end: TimeMs,
}

impl Source for Samples<'_> {
    fn select(&self, selection: &Selection) -> Result<Box<dyn SeriesSet + '_>, QueryError> {
        let began = Instant::now();
        let mut series = Vec::new();
        let shards = self.inner.shards().map_err(|error| QueryError::Source {
            message: error.to_string(),
        })?;
        for shard in shards {
            shard.index.view().select(&selection.matchers, &mut series);
        }
        self.inner.metrics.took(Component::Search, began.elapsed());
        Ok(Box::new(Selected {
            series,
            start: selection.start,
            end: selection.end,
        }))
    }
}

impl SeriesSet for Selected {
    fn len(&self) -> usize {
        self.series.len()
    }

    fn labels(&self, index: usize) -> &Labels {
        &self.series[index].labels
    }

    fn read(&self, index: usize, into: &mut Columns) -> Result<(), QueryError> {
        into.clear();
        let mut samples = SeriesSamples {
            times_ms: std::mem::take(&mut into.times),
            values: std::mem::take(&mut into.values),
            ..SeriesSamples::default()
        };
        let series = &self.series[index];
        series.now().read(self.start, self.end, &mut samples);
        (into.times, into.values) = (samples.times_ms, samples.values);
        for (time_ms, histogram) in samples.histogram_times_ms.iter().zip(&samples.histograms) {
            into.push_histogram(*time_ms, Arc::new(histogram.as_ref().into()));
        }
        Ok(())
    }
}
