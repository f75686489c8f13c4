//! Memory and samples of a series of a head, found without copying samples.

use egret_metrics_model::{TimeMs, TimeSpan};

use super::{SeriesChunks, histogram_bytes, slice_between};
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
        let out_of_order = self.out_of_order();
        let chunks = self.chunks.iter().map(Chunk::first_ms);
        let late_chunks = out_of_order.late.chunks().map(|late_chunk| late_chunk.span().start);
        let late = out_of_order.late.buffer().iter().map(|(time_ms, _)| *time_ms);
        let histograms = out_of_order.histograms.iter().map(|(time_ms, _)| *time_ms);
        let mut known_times = chunks.chain(late_chunks).chain(late).chain(histograms);
        if known_times.any(is_within) {
            return true;
        }
        // None begins in the span: the one that begins before may reach into it, and those that
        // came late.
        let chunks_before = self.chunks.partition_point(|chunk| chunk.first_ms() < start);
        let last_chunk_before = chunks_before.checked_sub(1).map(|at| &self.chunks[at]);
        let reaches_into = |span: TimeSpan| span.start < start && span.end >= start;
        let late = out_of_order.late.chunks().filter(|late_chunk| reaches_into(late_chunk.span()));
        let late = late.map(|late_chunk| &late_chunk.chunk);
        let mut overlapping_chunks = last_chunk_before.into_iter().chain(late);
        overlapping_chunks.any(|chunk| chunk.samples().any(|(time_ms, _)| is_within(time_ms)))
    }

    /// What it takes from first to last time.
    pub fn figures(&self, span: TimeSpan) -> HeadFigures {
        let TimeSpan { start, end } = span;
        let out_of_order = self.out_of_order();
        let mut figures = HeadFigures {
            span: self.span(),
            chunks: (self.chunks.len() + out_of_order.late.chunks().count()) as u64,
            ..HeadFigures::default()
        };
        for (index, chunk) in self.chunks.iter().enumerate() {
            let next_chunk = self.chunks.get(index + 1);
            let ends_before = next_chunk.is_some_and(|next| next.first_ms() <= start);
            if chunk.first_ms() <= end && !ends_before {
                let flushed = if index == 0 { self.flushed_samples } else { 0 };
                figures.add(chunk.len() - flushed, chunk.size_bytes());
            }
        }
        for late_chunk in out_of_order.late.chunks() {
            let chunk_span = late_chunk.span();
            if chunk_span.start <= end && chunk_span.end >= start {
                figures.add(late_chunk.chunk.len(), late_chunk.chunk.size_bytes());
            }
        }
        for sample in slice_between(out_of_order.late.buffer(), start, end) {
            figures.add(1, size_of_val(sample));
        }
        for (_, histogram) in slice_between(&out_of_order.histograms, start, end) {
            figures.add(1, histogram_bytes(histogram));
        }
        if figures.span.is_none_or(|own| own.start > end || own.end < start) {
            (figures.samples, figures.bytes) = (0, 0);
        }
        figures
    }
}
