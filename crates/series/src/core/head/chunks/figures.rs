//! Memory and samples of a series of a head, found without copying samples.

use egret_metrics_model::{TimeMs, TimeSpan};

use super::{SeriesChunks, between, histogram_bytes};
use crate::core::chunk::Chunk;

/// What a series takes in some span of time. A chunk that may reach into the span counts as a
/// whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeadFigures {
    /// The times of the first and the last sample, whatever the span, if there are any.
    pub span: Option<TimeSpan>,
    /// Samples in the span.
    pub samples: u64,
    /// Chunks, whatever the span.
    pub chunks: u64,
    /// Memory of what counts as samples, in bytes.
    pub bytes: u64,
}

impl HeadFigures {
    fn add(&mut self, samples: usize, bytes: usize) {
        self.samples += samples as u64;
        self.bytes += bytes as u64;
    }
}

impl SeriesChunks {
    /// Whether there are samples from `start` to `end`, both included.
    pub(crate) fn has_samples(&self, start: TimeMs, end: TimeMs) -> bool {
        let is_within = |time_ms: TimeMs| (start..=end).contains(&time_ms);
        let rare = self.rare();
        let chunks = self.chunks.iter().chain(&rare.late_chunks);
        let late = rare.late.iter().map(|(time_ms, _)| *time_ms);
        let histograms = rare.histograms.iter().map(|(time_ms, _)| *time_ms);
        let mut known = chunks.map(Chunk::first_ms).chain(late).chain(histograms);
        if known.any(is_within) {
            return true;
        }
        // None begins in the span: the one that begins before may reach into it, and those that
        // came late.
        let before = self
            .chunks
            .partition_point(|chunk| chunk.first_ms() < start);
        let last_before = before.checked_sub(1).map(|at| &self.chunks[at]);
        let late = rare
            .late_chunks
            .iter()
            .filter(|chunk| chunk.first_ms() < start);
        let mut reaching = last_before.into_iter().chain(late);
        reaching.any(|chunk| chunk.samples().any(|(time_ms, _)| is_within(time_ms)))
    }

    /// What it takes from first to last time.
    pub fn figures(&self, span: TimeSpan) -> HeadFigures {
        let TimeSpan { start, end } = span;
        let rare = self.rare();
        let mut figures = HeadFigures {
            span: self.span(),
            chunks: (self.chunks.len() + rare.late_chunks.len()) as u64,
            ..HeadFigures::default()
        };
        for (at, chunk) in self.chunks.iter().enumerate() {
            let next = self.chunks.get(at + 1);
            let ends_before = next.is_some_and(|next| next.first_ms() <= start);
            if chunk.first_ms() <= end && !ends_before {
                let flushed = if at == 0 { self.flushed } else { 0 };
                figures.add(chunk.len() - flushed, chunk.size_bytes());
            }
        }
        for chunk in &rare.late_chunks {
            if chunk.first_ms() <= end {
                figures.add(chunk.len(), chunk.size_bytes());
            }
        }
        for sample in between(&rare.late, start, end) {
            figures.add(1, size_of_val(sample));
        }
        for (_, histogram) in between(&rare.histograms, start, end) {
            figures.add(1, histogram_bytes(histogram));
        }
        if figures
            .span
            .is_none_or(|own| own.start > end || own.end < start)
        {
            (figures.samples, figures.bytes) = (0, 0);
        }
        figures
    }
}
