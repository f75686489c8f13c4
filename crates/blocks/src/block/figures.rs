//! Samples and bytes of series of a block, from its index alone: no samples are read.

use egret_metrics_model::{TimeMs, TimeSpan};

use super::{Body, SeriesName};

/// Size of a series in a span of time. Samples are in chunks: one that overlaps the span
/// counts entirely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeriesFigures {
    /// The time of its first sample in the block, whatever the span.
    pub first_ms: TimeMs,
    /// Samples in the span, deleted ones among them.
    pub samples: u64,
    /// Bytes of their values. Their times are left out, as many series share them.
    pub bytes: u64,
}

impl SeriesName<'_> {
    /// Its size in a span of time.
    pub fn figures(&self, span: TimeSpan) -> SeriesFigures {
        let mut figures = SeriesFigures { first_ms: TimeMs::MAX, samples: 0, bytes: 0 };
        for (chunk, column) in self.page.chunks(self.index) {
            figures.first_ms = figures.first_ms.min(column.first_ms);
            if column.last_ms >= span.start && column.first_ms <= span.end {
                figures.samples += u64::from(column.count);
                figures.bytes += match &chunk.body {
                    Body::Inline(bytes) => bytes.len() as u64,
                    Body::At(extent) => extent.length.into(),
                };
            }
        }
        figures
    }
}
