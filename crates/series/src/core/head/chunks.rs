//! The samples of one series of a head.

mod figures;

use std::sync::Arc;

use egret_metrics_model::{Histogram, SeriesSamples, TimeMs, TimeSpan};

pub use figures::HeadFigures;

use super::late::{ChunkCursor, IndexedSample, LateLookup, LateSamples};
use super::{AppendOutcome, FlushedRange};
use crate::core::chunk::{Appender, Chunk};

/// Samples of a series: chunks in the order of time, and separately those out of order.
#[derive(Clone, Debug, Default)]
pub struct SeriesChunks {
    /// Full chunks, then the open one.
    pub chunks: Vec<Chunk>,
    /// Samples of the first chunk that are already flushed to blocks, and are skipped.
    flushed_samples: usize,
    /// Boxed, as most series have none.
    out_of_order: Option<Box<OutOfOrderChunks>>,
}

/// Late samples and native histograms, which few series have.
#[derive(Clone, Debug, Default)]
pub(crate) struct OutOfOrderChunks {
    /// Samples that came late.
    pub late: LateSamples,
    /// Native histograms with their times, ascending.
    pub histograms: Vec<(TimeMs, Arc<Histogram>)>,
}

static NO_OUT_OF_ORDER: OutOfOrderChunks =
    OutOfOrderChunks { late: LateSamples::EMPTY, histograms: Vec::new() };

impl OutOfOrderChunks {
    fn is_empty(&self) -> bool {
        self.late.is_empty() && self.histograms.is_empty()
    }

    fn add_histogram(&mut self, time_ms: TimeMs, histogram: Arc<Histogram>) -> AppendOutcome {
        match self.histograms.last() {
            Some((last_ms, _)) if *last_ms >= time_ms => {}
            _ => {
                self.histograms.push((time_ms, histogram));
                return AppendOutcome::InOrder;
            }
        }
        match self.histograms.binary_search_by_key(&time_ms, |(other, _)| *other) {
            Ok(index) if self.histograms[index].1.is_same(&histogram) => AppendOutcome::Duplicate,
            Ok(_) => AppendOutcome::Conflict,
            Err(at) => {
                self.histograms.insert(at, (time_ms, histogram));
                AppendOutcome::Late
            }
        }
    }

    /// The parts that may have samples from `start` to `end`, both included.
    fn within(&self, start: TimeMs, end: TimeMs) -> Self {
        Self {
            late: self.late.within(TimeSpan { start, end }),
            histograms: slice_between(&self.histograms, start, end).to_vec(),
        }
    }
}

/// What a native histogram takes in memory where it is kept, roughly, in bytes.
fn histogram_bytes(histogram: &Histogram) -> usize {
    size_of::<(TimeMs, Arc<Histogram>)>() + histogram.size_bytes()
}

/// Those from `start` to `end`, both included, of what ascends.
pub(super) fn slice_between<T>(
    entries: &[(TimeMs, T)],
    start: TimeMs,
    end: TimeMs,
) -> &[(TimeMs, T)] {
    let first = entries.partition_point(|(time_ms, _)| *time_ms < start);
    let end_index = entries.partition_point(|(time_ms, _)| *time_ms <= end);
    entries.get(first..end_index).unwrap_or_default()
}

impl SeriesChunks {
    /// Those parts that may have samples from `start` to `end`, both included.
    pub fn within(&self, start: TimeMs, end: TimeMs) -> Self {
        let chunks = &self.chunks;
        let to = chunks.partition_point(|chunk| chunk.first_ms() <= end);
        let from = chunks[..to].partition_point(|chunk| chunk.first_ms() <= start);
        let from = from.saturating_sub(1);
        Self {
            chunks: chunks.get(from..to).unwrap_or_default().to_vec(),
            flushed_samples: if from == 0 { self.flushed_samples } else { 0 },
            out_of_order: self
                .out_of_order
                .as_ref()
                .map(|out_of_order| Box::new(out_of_order.within(start, end))),
        }
    }

    /// Late samples and native histograms, which few series have.
    pub(crate) fn out_of_order(&self) -> &OutOfOrderChunks {
        self.out_of_order.as_deref().unwrap_or(&NO_OUT_OF_ORDER)
    }

    fn out_of_order_mut(&mut self) -> &mut OutOfOrderChunks {
        self.out_of_order.get_or_insert_default()
    }

    fn drop_empty_out_of_order(&mut self) {
        self.out_of_order.take_if(|rare| rare.is_empty());
    }

    /// Adds all samples from `start` to `end`, both included, to what is there already: those of
    /// blocks, ascending. Of several at one time the one that came last counts.
    pub fn read(&self, start: TimeMs, end: TimeMs, into: &mut SeriesSamples) {
        let is_within = |time_ms: TimeMs| (start..=end).contains(&time_ms);
        let samples_before = into.times_ms.len();
        for (index, chunk) in self.chunks.iter().enumerate() {
            let next_chunk = self.chunks.get(index + 1);
            if chunk.first_ms() > end || next_chunk.is_some_and(|next| next.first_ms() <= start) {
                continue;
            }
            let skipped = if index == 0 { self.flushed_samples } else { 0 };
            let mut samples = chunk.samples();
            for _ in 0..skipped {
                samples.next();
            }
            for (time_ms, value) in samples {
                if time_ms > end {
                    break;
                }
                if time_ms >= start {
                    into.times_ms.push(time_ms);
                    into.values.push(value);
                }
            }
        }
        let out_of_order = self.out_of_order();
        let mut late =
            out_of_order.late.samples().filter(|(time_ms, _)| is_within(*time_ms)).peekable();
        let overlaps = samples_before > 0
            && into.times_ms.get(samples_before) <= Some(&into.times_ms[samples_before - 1]);
        if late.peek().is_some() || overlaps {
            let (times, values): (Vec<_>, Vec<_>) = late.unzip();
            into.times_ms.extend(times);
            into.values.extend(values);
            into.sort_numbers();
        }
        self.read_histograms(start, end, into);
    }

    /// Whether there are native histograms from `start` to `end`, both included.
    pub fn has_histograms(&self, start: TimeMs, end: TimeMs) -> bool {
        !slice_between(&self.out_of_order().histograms, start, end).is_empty()
    }

    fn read_histograms(&self, start: TimeMs, end: TimeMs, into: &mut SeriesSamples) {
        let histograms = slice_between(&self.out_of_order().histograms, start, end);
        let Some((first_ms, _)) = histograms.first() else {
            return;
        };
        let overlaps = into.histogram_times_ms.last() >= Some(first_ms);
        for (time_ms, histogram) in histograms {
            into.histogram_times_ms.push(*time_ms);
            into.histograms.push(histogram.clone());
        }
        if overlaps {
            into.sort_histograms();
        }
    }

    /// Adds samples that are older than the latest: ascending, those of one time in the order in
    /// which they came, of which the first stays. Calls a closure with the index and outcome of
    /// each.
    #[cold]
    pub(super) fn add_late(
        &mut self,
        samples: &[IndexedSample],
        grown_bytes: &mut isize,
        mut report: impl FnMut(usize, AppendOutcome),
    ) {
        let mut added = Vec::new();
        let mut in_order_cursor = ChunkCursor::default();
        let mut late_lookup = LateLookup::new(&self.out_of_order().late);
        // The value that stands at the time of the sample before.
        let mut previous: Option<(TimeMs, f64)> = None;
        for IndexedSample { index, time_ms, value } in samples.iter().copied() {
            let standing = match previous {
                Some((previous_ms, standing)) if previous_ms == time_ms => Some(standing),
                _ => self
                    .find_in_order(&mut in_order_cursor, time_ms)
                    .or_else(|| late_lookup.find_value(time_ms)),
            };
            previous = Some((time_ms, standing.unwrap_or(value)));
            let outcome = match standing {
                Some(standing) if standing.to_bits() == value.to_bits() => AppendOutcome::Duplicate,
                Some(_) => AppendOutcome::Conflict,
                None => {
                    added.push((time_ms, value));
                    AppendOutcome::Late
                }
            };
            report(index, outcome);
        }
        if !added.is_empty() {
            let late = &mut self.out_of_order_mut().late;
            let bytes_before = late.size_bytes();
            late.add(&added);
            *grown_bytes += late.size_bytes() as isize - bytes_before as isize;
        }
    }

    /// The value at a time, of a sample that came in order and is not in a block.
    fn find_in_order<'chunks>(
        &'chunks self,
        cursor: &mut ChunkCursor<'chunks>,
        time_ms: TimeMs,
    ) -> Option<f64> {
        let next_index = self.chunks.partition_point(|chunk| chunk.first_ms() <= time_ms);
        let index = next_index.checked_sub(1)?;
        let flushed = if index == 0 { self.flushed_samples } else { 0 };
        cursor.find_value(index, &self.chunks[index], flushed, time_ms)
    }

    /// Adds the chunk that comes after all others.
    pub(super) fn push(&mut self, chunk: Chunk) {
        if self.chunks.is_empty() {
            // Many series never get a second one.
            self.chunks.reserve_exact(1);
        }
        self.chunks.push(chunk);
    }

    /// Makes chunks of what came late, which stay until they are released. Returns by how many
    /// bytes that takes more memory, or less.
    pub(crate) fn capture_late(&mut self) -> isize {
        let Some(out_of_order) = &mut self.out_of_order else { return 0 };
        let bytes_before = out_of_order.late.size_bytes();
        out_of_order.late.capture();
        out_of_order.late.size_bytes() as isize - bytes_before as isize
    }

    pub(super) fn add_histogram(
        &mut self,
        time_ms: TimeMs,
        histogram: Arc<Histogram>,
        grown_bytes: &mut isize,
    ) -> AppendOutcome {
        let bytes = histogram_bytes(&histogram);
        let outcome = self.out_of_order_mut().add_histogram(time_ms, histogram);
        if matches!(outcome, AppendOutcome::InOrder | AppendOutcome::Late) {
            *grown_bytes += bytes as isize;
        }
        outcome
    }

    /// What of this is to be written to a block: all that came late, and of the rest the samples
    /// before `end`.
    pub(crate) fn range_to_flush(&self, end: TimeMs) -> FlushedRange {
        let out_of_order = self.out_of_order();
        let histogram_count =
            out_of_order.histograms.partition_point(|(time_ms, _)| *time_ms < end);
        let mut range = FlushedRange {
            late_runs: out_of_order.late.run_count(),
            histograms: out_of_order.histograms[..histogram_count].to_vec(),
            ..FlushedRange::default()
        };
        for (index, chunk) in self.chunks.iter().enumerate() {
            let next_chunk = self.chunks.get(index + 1);
            if next_chunk.is_some_and(|next| next.first_ms() <= end) {
                range.chunks += 1;
                continue;
            }
            range.samples = chunk.samples().take_while(|(time_ms, _)| *time_ms < end).count();
            break;
        }
        range
    }

    /// The samples of [`SeriesChunks::range_to_flush`], ascending.
    pub(crate) fn read_flushed(&self, flushed: &FlushedRange, into: &mut SeriesSamples) {
        into.clear();
        let flushed_samples_in = |at: usize| if at == 0 { self.flushed_samples } else { 0 };
        for (index, chunk) in self.chunks.iter().take(flushed.chunks + 1).enumerate() {
            let count_max = if index < flushed.chunks { usize::MAX } else { flushed.samples };
            for (time_ms, value) in chunk.samples().take(count_max).skip(flushed_samples_in(index))
            {
                into.times_ms.push(time_ms);
                into.values.push(value);
            }
        }
        if flushed.late_runs > 0 {
            let late_samples = self.out_of_order().late.run_samples(flushed.late_runs);
            let (times, values): (Vec<_>, Vec<_>) = late_samples.unzip();
            into.times_ms.extend(times);
            into.values.extend(values);
            into.sort_numbers();
        }
        for (time_ms, histogram) in &flushed.histograms {
            into.histogram_times_ms.push(*time_ms);
            into.histograms.push(histogram.clone());
        }
    }

    /// Releases what was flushed; the chunks may have grown since. Returns the bytes that this
    /// frees.
    pub(super) fn release(&mut self, range: &FlushedRange) -> usize {
        let whole_chunks = range.chunks;
        let mut freed: usize = self.chunks[..whole_chunks].iter().map(Chunk::size_bytes).sum();
        self.chunks.drain(..whole_chunks);
        let flushed_before = if whole_chunks == 0 { self.flushed_samples } else { 0 };
        self.flushed_samples = flushed_before.max(range.samples);
        if self.chunks.len() == 1 && self.chunks[0].len() == self.flushed_samples {
            freed += self.chunks[0].size_bytes();
            self.chunks.clear();
            self.flushed_samples = 0;
        }
        if let Some(out_of_order) = &mut self.out_of_order {
            freed += out_of_order.late.release(range.late_runs);
            let flushed_histograms = &range.histograms;
            out_of_order.histograms.retain(|(time_ms, histogram)| {
                let at = flushed_histograms.binary_search_by_key(time_ms, |(other, _)| *other);
                let is_flushed =
                    at.is_ok_and(|at| Arc::ptr_eq(&flushed_histograms[at].1, histogram));
                freed += if is_flushed { histogram_bytes(histogram) } else { 0 };
                !is_flushed
            });
            self.drop_empty_out_of_order();
        }
        freed
    }

    /// Deletes samples, and returns the appender of the last chunk that is left.
    pub(super) fn delete(&mut self, start: TimeMs, end: TimeMs) -> Option<Appender> {
        let is_kept = |time_ms: TimeMs| time_ms < start || time_ms > end;
        let in_order: Vec<_> = self
            .chunks
            .iter()
            .flat_map(Chunk::samples)
            .skip(self.flushed_samples)
            .filter(|(time_ms, _)| is_kept(*time_ms))
            .collect();
        self.chunks.clear();
        self.flushed_samples = 0;
        let appender = pack_chunks(&in_order, &mut self.chunks);
        if let Some(out_of_order) = &mut self.out_of_order {
            out_of_order.late.delete(TimeSpan { start, end });
            out_of_order.histograms.retain(|(time_ms, _)| is_kept(*time_ms));
            self.drop_empty_out_of_order();
        }
        appender
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty() && self.out_of_order().is_empty()
    }

    /// The time of the first sample that may be here, and of the last.
    pub fn span(&self) -> Option<TimeSpan> {
        let out_of_order = self.out_of_order();
        let last_ms = |chunk: &Chunk| chunk.samples().last().map(|(time_ms, _)| time_ms);
        let in_order = self.chunks.first().zip(self.chunks.last().and_then(last_ms));
        let in_order = in_order.map(|(first, end)| TimeSpan { start: first.first_ms(), end });
        let histograms = &out_of_order.histograms;
        let histograms = histograms.first().zip(histograms.last());
        let histograms = histograms.map(|(first, last)| TimeSpan { start: first.0, end: last.0 });
        [in_order, out_of_order.late.span(), histograms]
            .into_iter()
            .flatten()
            .reduce(TimeSpan::union)
    }

    /// Memory of its samples, in bytes: of chunks, and of what is in none.
    pub(super) fn sample_bytes(&self) -> usize {
        let out_of_order = self.out_of_order();
        let histograms = out_of_order.histograms.iter();
        self.chunks.iter().map(Chunk::size_bytes).sum::<usize>()
            + out_of_order.late.size_bytes()
            + histograms.map(|(_, histogram)| histogram_bytes(histogram)).sum::<usize>()
    }
}

/// Encodes ascending samples as chunks, and returns the appender of the last one.
pub(super) fn pack_chunks(samples: &[(TimeMs, f64)], chunks: &mut Vec<Chunk>) -> Option<Appender> {
    let ((time_ms, value), rest) = samples.split_first()?;
    let mut appender = Appender::new(*time_ms, *value);
    for (time_ms, value) in rest {
        if appender.push(*time_ms, *value).is_err() {
            chunks.push(appender.begin_next(*time_ms, *value));
        }
    }
    chunks.push(appender.chunk().clone());
    Some(appender)
}
