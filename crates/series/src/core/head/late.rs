//! Samples of one series that came late: a small sorted buffer, and runs of chunks.
//!
//! The samples of a request that are late are looked up and added together, sorted once. A full
//! buffer becomes a run, whose chunks ascend and do not overlap, and runs of about the same size
//! are merged by fours. So a sample is encoded again a logarithmic number of times at most,
//! whatever the order, and a look-up decodes one chunk a run at most. Where chunks do not overlap,
//! a merge moves them and decodes nothing.

use std::iter::Peekable;

use egret_metrics_model::{TimeMs, TimeSpan};

use super::chunks::{pack_chunks, slice_between};
use crate::core::chunk::{Chunk, ChunkSamples};

/// Late samples that a series gathers before it makes a run of them.
const BUFFERED_SAMPLES_MAX: usize = 256;

/// Runs of about the same size that are merged into one.
const MERGED_RUNS: usize = 4;

/// A run of so many samples is not merged any more: bounds how long one merge takes.
const MERGED_SAMPLES_MAX: usize = 1 << 16;

/// A late sample, with its index in the batch that brought it.
#[derive(Clone, Copy, Debug)]
pub(super) struct IndexedSample {
    pub index: usize,
    pub time_ms: TimeMs,
    pub value: f64,
}

/// A chunk that does not grow any more, with the time of its last sample.
#[derive(Clone, Debug)]
pub(super) struct LateChunk {
    pub chunk: Chunk,
    pub end_ms: TimeMs,
}

impl LateChunk {
    pub(super) fn span(&self) -> TimeSpan {
        TimeSpan { start: self.chunk.first_ms(), end: self.end_ms }
    }
}

/// Chunks that ascend and do not overlap.
#[derive(Clone, Debug, Default)]
struct LateRun {
    chunks: Vec<LateChunk>,
    sample_count: usize,
}

impl LateRun {
    fn push(&mut self, late_chunk: LateChunk) {
        self.sample_count += late_chunk.chunk.len();
        self.chunks.push(late_chunk);
    }

    /// Encodes ascending samples, which come after all that are here.
    fn push_samples(&mut self, samples: &[(TimeMs, f64)]) {
        let mut chunks = Vec::new();
        pack_chunks(samples, &mut chunks);
        let mut packed_samples = 0;
        for chunk in chunks {
            packed_samples += chunk.len();
            self.push(LateChunk { end_ms: samples[packed_samples - 1].0, chunk });
        }
    }

    /// Merges runs, of which no two have a sample of the same time.
    fn merge(runs: impl Iterator<Item = LateRun>) -> Self {
        let mut chunks: Vec<LateChunk> = runs.flat_map(|run| run.chunks).collect();
        chunks.sort_by_key(|late_chunk| late_chunk.chunk.first_ms());
        let mut merged = Self::default();
        let mut rest = &chunks[..];
        while let Some(first) = rest.first() {
            let mut end_ms = first.end_ms;
            let mut group_len = 1;
            while let Some(next) = rest.get(group_len)
                && next.chunk.first_ms() <= end_ms
            {
                end_ms = end_ms.max(next.end_ms);
                group_len += 1;
            }
            let (group, next) = rest.split_at(group_len);
            if let [alone] = group {
                merged.push(alone.clone());
            } else {
                let samples = group.iter().flat_map(|late_chunk| late_chunk.chunk.samples());
                let mut samples: Vec<_> = samples.collect();
                samples.sort_unstable_by_key(|(time_ms, _)| *time_ms);
                merged.push_samples(&samples);
            }
            rest = next;
        }
        merged
    }

    /// Runs of one tier differ in size by a factor of [`MERGED_RUNS`] at most.
    fn tier(&self) -> u32 {
        (self.sample_count / BUFFERED_SAMPLES_MAX).max(1).ilog(MERGED_RUNS)
    }

    fn ends_before(&self, next: &LateRun) -> bool {
        let (last, first) = (self.chunks.last(), next.chunks.first());
        last.zip(first).is_some_and(|(last, first)| last.end_ms < first.chunk.first_ms())
    }

    fn within(&self, span: TimeSpan) -> &[LateChunk] {
        let first = self.chunks.partition_point(|late_chunk| late_chunk.end_ms < span.start);
        let chunks = &self.chunks[first..];
        let count = chunks.partition_point(|late_chunk| late_chunk.chunk.first_ms() <= span.end);
        &chunks[..count]
    }

    fn size_bytes(&self) -> usize {
        self.chunks.iter().map(|late_chunk| late_chunk.chunk.size_bytes()).sum()
    }
}

/// Samples of a series that came late.
#[derive(Clone, Debug, Default)]
pub(crate) struct LateSamples {
    /// In the order of their making, which is that of their release.
    runs: Vec<LateRun>,
    /// Runs, from the first on, that are being written to a block: they are not merged.
    captured_runs: usize,
    /// Memory of the chunks of all runs, in bytes.
    run_bytes: usize,
    /// Samples that are in no run yet, ascending by time.
    buffer: Vec<(TimeMs, f64)>,
}

impl LateSamples {
    pub(super) const EMPTY: Self =
        Self { runs: Vec::new(), captured_runs: 0, run_bytes: 0, buffer: Vec::new() };

    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.buffer.is_empty()
    }

    /// Memory of the samples, in bytes.
    pub(super) fn size_bytes(&self) -> usize {
        self.run_bytes + size_of_val(&*self.buffer)
    }

    pub(super) fn run_count(&self) -> usize {
        self.runs.len()
    }

    pub(super) fn chunks(&self) -> impl Iterator<Item = &LateChunk> {
        self.runs.iter().flat_map(|run| &run.chunks)
    }

    /// Samples that are in no chunk, ascending.
    pub(super) fn buffer(&self) -> &[(TimeMs, f64)] {
        &self.buffer
    }

    /// The samples of the first runs, in no order.
    pub(super) fn run_samples(&self, run_count: usize) -> impl Iterator<Item = (TimeMs, f64)> {
        let chunks = self.runs[..run_count].iter().flat_map(|run| &run.chunks);
        chunks.flat_map(|late_chunk| late_chunk.chunk.samples())
    }

    /// All samples, in no order.
    pub(super) fn samples(&self) -> impl Iterator<Item = (TimeMs, f64)> {
        self.run_samples(self.runs.len()).chain(self.buffer.iter().copied())
    }

    /// The times of the first and of the last sample.
    pub(super) fn span(&self) -> Option<TimeSpan> {
        let run_spans = self.runs.iter().filter_map(|run| {
            let (first, last) = (run.chunks.first()?, run.chunks.last()?);
            Some(first.span().union(last.span()))
        });
        let buffer_span = self.buffer.first().zip(self.buffer.last());
        let buffer_span = buffer_span.map(|(first, last)| TimeSpan { start: first.0, end: last.0 });
        run_spans.chain(buffer_span).reduce(TimeSpan::union)
    }

    /// The parts that may have samples of a span.
    pub(super) fn within(&self, span: TimeSpan) -> Self {
        let mut runs = Vec::new();
        for run in &self.runs {
            let chunks = run.within(span);
            if !chunks.is_empty() {
                let sample_count = chunks.iter().map(|late_chunk| late_chunk.chunk.len()).sum();
                runs.push(LateRun { chunks: chunks.to_vec(), sample_count });
            }
        }
        Self {
            run_bytes: runs.iter().map(LateRun::size_bytes).sum(),
            runs,
            captured_runs: 0,
            buffer: slice_between(&self.buffer, span.start, span.end).to_vec(),
        }
    }

    /// Adds ascending samples of times that are not here.
    pub(super) fn add(&mut self, samples: &[(TimeMs, f64)]) {
        if let [sample] = samples {
            let at = self.buffer.partition_point(|(time_ms, _)| *time_ms < sample.0);
            self.buffer.insert(at, *sample);
        } else {
            self.buffer.extend_from_slice(samples);
            // A stable sort finds the two ascending parts, and merges them.
            self.buffer.sort_by_key(|(time_ms, _)| *time_ms);
        }
        if self.buffer.len() >= BUFFERED_SAMPLES_MAX {
            self.pack_buffer();
        }
    }

    /// Brings all samples into runs, which stay as they are until [`LateSamples::release`]. Runs
    /// that were captured before may be merged: they were released, or are captured anew.
    pub(super) fn capture(&mut self) {
        self.captured_runs = 0;
        self.pack_buffer();
        self.captured_runs = self.runs.len();
    }

    /// Takes out the first runs, which were captured, and returns the bytes that this frees.
    pub(super) fn release(&mut self, run_count: usize) -> usize {
        let freed = self.runs.drain(..run_count).map(|run| run.size_bytes()).sum::<usize>();
        self.run_bytes -= freed;
        self.captured_runs = self.captured_runs.saturating_sub(run_count);
        freed
    }

    /// Deletes the samples of a span. Only chunks that reach into it are encoded again.
    pub(super) fn delete(&mut self, span: TimeSpan) {
        let is_kept = |time_ms: TimeMs| time_ms < span.start || time_ms > span.end;
        self.captured_runs = 0;
        for run in &mut self.runs {
            if run.within(span).is_empty() {
                continue;
            }
            let mut rest = LateRun::default();
            for late_chunk in std::mem::take(&mut run.chunks) {
                if late_chunk.end_ms < span.start || late_chunk.chunk.first_ms() > span.end {
                    rest.push(late_chunk);
                    continue;
                }
                let samples = late_chunk.chunk.samples().filter(|(time_ms, _)| is_kept(*time_ms));
                rest.push_samples(&samples.collect::<Vec<_>>());
            }
            *run = rest;
        }
        self.runs.retain(|run| !run.chunks.is_empty());
        self.run_bytes = self.runs.iter().map(LateRun::size_bytes).sum();
        self.buffer.retain(|(time_ms, _)| is_kept(*time_ms));
    }

    fn pack_buffer(&mut self) {
        if self.buffer.is_empty() {
            return;
        }
        let mut run = LateRun::default();
        run.push_samples(&std::mem::take(&mut self.buffer));
        self.run_bytes += run.size_bytes();
        match self.runs[self.captured_runs..].last_mut() {
            Some(last) if last.ends_before(&run) => {
                run.chunks.into_iter().for_each(|late_chunk| last.push(late_chunk));
            }
            _ => self.runs.push(run),
        }
        self.merge_runs();
    }

    /// Merges the last runs while there are enough of them that are no larger than the last one.
    fn merge_runs(&mut self) {
        loop {
            let open_runs = &self.runs[self.captured_runs..];
            let Some(tier) = open_runs.last().map(LateRun::tier) else { return };
            let is_merged =
                |run: &&LateRun| run.tier() <= tier && run.sample_count < MERGED_SAMPLES_MAX;
            let run_count = open_runs.iter().rev().take_while(is_merged).count();
            if run_count < MERGED_RUNS {
                return;
            }
            let runs = self.runs.drain(self.runs.len() - run_count..).collect::<Vec<_>>();
            self.run_bytes -= runs.iter().map(LateRun::size_bytes).sum::<usize>();
            let merged = LateRun::merge(runs.into_iter());
            self.run_bytes += merged.size_bytes();
            self.runs.push(merged);
        }
    }
}

/// Looks up ascending times in chunks, and decodes each of them once at most.
#[derive(Debug, Default)]
pub(super) struct ChunkCursor<'chunk> {
    /// The chunk of the last look-up by its index, and the samples of it that are not passed.
    open_chunk: Option<(usize, Peekable<ChunkSamples<'chunk>>)>,
}

impl<'chunk> ChunkCursor<'chunk> {
    /// The value at a time in a chunk, of which so many samples are left out.
    pub(super) fn find_value(
        &mut self,
        index: usize,
        chunk: &'chunk Chunk,
        skipped: usize,
        time_ms: TimeMs,
    ) -> Option<f64> {
        if self.open_chunk.as_ref().is_none_or(|(open, _)| *open != index) {
            let mut samples = chunk.samples();
            for _ in 0..skipped {
                samples.next();
            }
            self.open_chunk = Some((index, samples.peekable()));
        }
        let (_, samples) = self.open_chunk.as_mut()?;
        while samples.next_if(|(other, _)| *other < time_ms).is_some() {}
        samples.peek().filter(|(other, _)| *other == time_ms).map(|(_, value)| *value)
    }
}

/// Looks up the values at ascending times.
#[derive(Debug)]
pub(super) struct LateLookup<'late> {
    late: &'late LateSamples,
    cursors: Vec<ChunkCursor<'late>>,
}

impl<'late> LateLookup<'late> {
    pub(super) fn new(late: &'late LateSamples) -> Self {
        let cursors = late.runs.iter().map(|_| ChunkCursor::default()).collect();
        Self { late, cursors }
    }

    pub(super) fn find_value(&mut self, time_ms: TimeMs) -> Option<f64> {
        let buffer = &self.late.buffer;
        if let Ok(index) = buffer.binary_search_by_key(&time_ms, |(other, _)| *other) {
            return Some(buffer[index].1);
        }
        self.late.runs.iter().zip(&mut self.cursors).find_map(|(run, cursor)| {
            let index = run.chunks.partition_point(|late_chunk| late_chunk.end_ms < time_ms);
            let late_chunk = run.chunks.get(index)?;
            let may_have = late_chunk.chunk.first_ms() <= time_ms;
            may_have.then(|| cursor.find_value(index, &late_chunk.chunk, 0, time_ms)).flatten()
        })
    }
}

#[cfg(test)]
mod tests;
