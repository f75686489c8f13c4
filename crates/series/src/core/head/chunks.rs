//! The samples of one series of a head.

mod figures;

use std::sync::Arc;

use egret_metrics_model::{Histogram, SeriesSamples, TimeMs, TimeSpan};

pub use figures::HeadFigures;

use super::{AppendOutcome, FlushedRange};
use crate::core::chunk::{Appender, Chunk};

/// Samples out of order that a series gathers before it makes a chunk of them.
const LATE_MAX: usize = 256;

/// Samples of a series: chunks in the order of time, and separately those out of order.
#[derive(Clone, Debug, Default)]
pub struct SeriesChunks {
    /// Full chunks, then the open one.
    pub chunks: Vec<Chunk>,
    /// Samples of the first chunk that are in blocks, and so of no interest here.
    flushed: usize,
    /// Boxed, as most series have none.
    rare: Option<Box<OutOfOrderChunks>>,
}

/// Late samples and native histograms, which few series have.
#[derive(Clone, Debug, Default)]
pub struct OutOfOrderChunks {
    /// Chunks of samples that came late, each ascending in itself, in the order of their making.
    pub late_chunks: Vec<Chunk>,
    /// The others that came late, ascending.
    late: Vec<(TimeMs, f64)>,
    /// Native histograms with their times, ascending.
    pub histograms: Vec<(TimeMs, Arc<Histogram>)>,
}

static NOTHING_RARE: OutOfOrderChunks = OutOfOrderChunks {
    late_chunks: Vec::new(),
    late: Vec::new(),
    histograms: Vec::new(),
};

impl OutOfOrderChunks {
    fn is_empty(&self) -> bool {
        self.late_chunks.is_empty() && self.late.is_empty() && self.histograms.is_empty()
    }

    fn take_late(&mut self, time_ms: TimeMs, value: f64, grown: &mut isize) -> AppendOutcome {
        match self
            .late
            .binary_search_by_key(&time_ms, |(other, _)| *other)
        {
            Ok(at) if self.late[at].1.to_bits() == value.to_bits() => return AppendOutcome::Same,
            Ok(_) => return AppendOutcome::Conflict,
            Err(at) => self.late.insert(at, (time_ms, value)),
        }
        *grown += size_of_val(&self.late[0]) as isize;
        if self.late.len() >= LATE_MAX {
            *grown += self.pack_late();
        }
        AppendOutcome::Late
    }

    fn pack_late(&mut self) -> isize {
        let before = self.late_chunks.len();
        let late = std::mem::take(&mut self.late);
        pack(&late, &mut self.late_chunks);
        let chunks = self.late_chunks[before..].iter().map(Chunk::size_bytes);
        chunks.sum::<usize>() as isize - size_of_val(&*late) as isize
    }

    fn take_histogram(&mut self, time_ms: TimeMs, histogram: Arc<Histogram>) -> AppendOutcome {
        match self.histograms.last() {
            Some((last_ms, _)) if *last_ms >= time_ms => {}
            _ => {
                self.histograms.push((time_ms, histogram));
                return AppendOutcome::InOrder;
            }
        }
        match self
            .histograms
            .binary_search_by_key(&time_ms, |(other, _)| *other)
        {
            Ok(at) if self.histograms[at].1.is_same(&histogram) => AppendOutcome::Same,
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
            late_chunks: self.late_chunks.clone(),
            late: between(&self.late, start, end).to_vec(),
            histograms: between(&self.histograms, start, end).to_vec(),
        }
    }
}

/// What a native histogram takes in memory where it is kept, roughly, in bytes.
fn histogram_bytes(histogram: &Histogram) -> usize {
    size_of::<(TimeMs, Arc<Histogram>)>() + histogram.size_bytes()
}

/// Those from `start` to `end`, both included, of what ascends.
fn between<T>(all: &[(TimeMs, T)], start: TimeMs, end: TimeMs) -> &[(TimeMs, T)] {
    let from = all.partition_point(|(time_ms, _)| *time_ms < start);
    let to = all.partition_point(|(time_ms, _)| *time_ms <= end);
    all.get(from..to).unwrap_or_default()
}

/// The value at a time in a chunk, of which so many samples are left out.
fn value_in(chunk: &Chunk, skipped: usize, time_ms: TimeMs) -> Option<f64> {
    if chunk.first_ms() > time_ms {
        return None;
    }
    let mut samples = chunk.samples().skip(skipped);
    let (_, value) = samples
        .find(|(other, _)| *other >= time_ms)
        .filter(|(other, _)| *other == time_ms)?;
    Some(value)
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
            flushed: if from == 0 { self.flushed } else { 0 },
            rare: self
                .rare
                .as_ref()
                .map(|rare| Box::new(rare.within(start, end))),
        }
    }

    /// Late samples and native histograms, which few series have.
    pub fn rare(&self) -> &OutOfOrderChunks {
        self.rare.as_deref().unwrap_or(&NOTHING_RARE)
    }

    fn rare_mut(&mut self) -> &mut OutOfOrderChunks {
        self.rare.get_or_insert_default()
    }

    fn forget_rare(&mut self) {
        self.rare.take_if(|rare| rare.is_empty());
    }

    /// Adds all samples from `start` to `end`, both included, to what is there already: those of
    /// blocks, ascending. Of several at one time the one that came last counts.
    pub fn read(&self, start: TimeMs, end: TimeMs, into: &mut SeriesSamples) {
        let within = |time_ms: TimeMs| (start..=end).contains(&time_ms);
        let before = into.times_ms.len();
        for (at, chunk) in self.chunks.iter().enumerate() {
            let next = self.chunks.get(at + 1);
            if chunk.first_ms() > end || next.is_some_and(|next| next.first_ms() <= start) {
                continue;
            }
            let skipped = if at == 0 { self.flushed } else { 0 };
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
        let rare = self.rare();
        let late_chunks = rare.late_chunks.iter().flat_map(Chunk::samples);
        let mut late = late_chunks
            .chain(rare.late.iter().copied())
            .filter(|(time_ms, _)| within(*time_ms))
            .peekable();
        let overlaps = before > 0 && into.times_ms.get(before) <= Some(&into.times_ms[before - 1]);
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
        !between(&self.rare().histograms, start, end).is_empty()
    }

    fn read_histograms(&self, start: TimeMs, end: TimeMs, into: &mut SeriesSamples) {
        let histograms = between(&self.rare().histograms, start, end);
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

    #[cold]
    pub(super) fn take_late(
        &mut self,
        time_ms: TimeMs,
        value: f64,
        grown: &mut isize,
    ) -> AppendOutcome {
        match self.value_at(time_ms) {
            Some(there) if there.to_bits() == value.to_bits() => AppendOutcome::Same,
            Some(_) => AppendOutcome::Conflict,
            None => self.rare_mut().take_late(time_ms, value, grown),
        }
    }

    /// The value at a time, of a sample in a chunk that is not in a block.
    fn value_at(&self, time_ms: TimeMs) -> Option<f64> {
        let after = self
            .chunks
            .partition_point(|chunk| chunk.first_ms() <= time_ms);
        let in_order = after.checked_sub(1).and_then(|at| {
            let flushed = if at == 0 { self.flushed } else { 0 };
            value_in(&self.chunks[at], flushed, time_ms)
        });
        let late = || {
            let mut chunks = self.rare().late_chunks.iter().rev();
            chunks.find_map(|chunk| value_in(chunk, 0, time_ms))
        };
        in_order.or_else(late)
    }

    /// Adds the chunk that comes after all others.
    pub(super) fn push(&mut self, chunk: Chunk) {
        if self.chunks.is_empty() {
            // Many series never get a second one.
            self.chunks.reserve_exact(1);
        }
        self.chunks.push(chunk);
    }

    /// Makes chunks of what came late, and returns by how many bytes that takes more memory, or
    /// less.
    pub(crate) fn pack_late(&mut self) -> isize {
        self.rare.as_mut().map_or(0, |rare| rare.pack_late())
    }

    pub(super) fn take_histogram(
        &mut self,
        time_ms: TimeMs,
        histogram: Arc<Histogram>,
        grown: &mut isize,
    ) -> AppendOutcome {
        let bytes = histogram_bytes(&histogram);
        let taken = self.rare_mut().take_histogram(time_ms, histogram);
        if matches!(taken, AppendOutcome::InOrder | AppendOutcome::Late) {
            *grown += bytes as isize;
        }
        taken
    }

    /// What of this is to be written to a block: all that came late, and of the rest the samples
    /// before `end`.
    pub(crate) fn to_flush(&self, end: TimeMs) -> FlushedRange {
        let rare = self.rare();
        let histograms = rare
            .histograms
            .partition_point(|(time_ms, _)| *time_ms < end);
        let mut flushed = FlushedRange {
            late_chunks: rare.late_chunks.len(),
            histograms: rare.histograms[..histograms].to_vec(),
            ..FlushedRange::default()
        };
        for (at, chunk) in self.chunks.iter().enumerate() {
            let next = self.chunks.get(at + 1);
            if next.is_some_and(|next| next.first_ms() <= end) {
                flushed.chunks += 1;
                continue;
            }
            flushed.samples = chunk
                .samples()
                .take_while(|(time_ms, _)| *time_ms < end)
                .count();
            break;
        }
        flushed
    }

    /// The samples of [`SeriesChunks::to_flush`], ascending.
    pub fn flushed(&self, flushed: &FlushedRange, into: &mut SeriesSamples) {
        into.clear();
        let skipped = |at: usize| if at == 0 { self.flushed } else { 0 };
        for (at, chunk) in self.chunks.iter().take(flushed.chunks + 1).enumerate() {
            let most = if at < flushed.chunks {
                usize::MAX
            } else {
                flushed.samples
            };
            for (time_ms, value) in chunk.samples().take(most).skip(skipped(at)) {
                into.times_ms.push(time_ms);
                into.values.push(value);
            }
        }
        if flushed.late_chunks > 0 {
            for chunk in &self.rare().late_chunks[..flushed.late_chunks] {
                let (times, values): (Vec<_>, Vec<_>) = chunk.samples().unzip();
                into.times_ms.extend(times);
                into.values.extend(values);
            }
            into.sort_numbers();
        }
        for (time_ms, histogram) in &flushed.histograms {
            into.histogram_times_ms.push(*time_ms);
            into.histograms.push(histogram.clone());
        }
    }

    /// Releases what was flushed; the chunks may have grown since. Returns the bytes that this
    /// frees.
    pub(super) fn release(&mut self, flushed: &FlushedRange) -> usize {
        let whole = flushed.chunks;
        let mut freed: usize = self.chunks[..whole].iter().map(Chunk::size_bytes).sum();
        self.chunks.drain(..whole);
        let before = if whole == 0 { self.flushed } else { 0 };
        self.flushed = before.max(flushed.samples);
        if self.chunks.len() == 1 && self.chunks[0].len() == self.flushed {
            freed += self.chunks[0].size_bytes();
            self.chunks.clear();
            self.flushed = 0;
        }
        if let Some(rare) = &mut self.rare {
            let late = rare.late_chunks.drain(..flushed.late_chunks);
            freed += late.map(|chunk| chunk.size_bytes()).sum::<usize>();
            let gone = &flushed.histograms;
            rare.histograms.retain(|(time_ms, histogram)| {
                let at = gone.binary_search_by_key(time_ms, |(other, _)| *other);
                let is_gone = at.is_ok_and(|at| Arc::ptr_eq(&gone[at].1, histogram));
                freed += if is_gone {
                    histogram_bytes(histogram)
                } else {
                    0
                };
                !is_gone
            });
            self.forget_rare();
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
            .skip(self.flushed)
            .filter(|(time_ms, _)| is_kept(*time_ms))
            .collect();
        self.chunks.clear();
        self.flushed = 0;
        let appender = pack(&in_order, &mut self.chunks);
        if let Some(rare) = &mut self.rare {
            let late_chunks = std::mem::take(&mut rare.late_chunks);
            for chunk in late_chunks {
                let kept = chunk.samples().filter(|(time_ms, _)| is_kept(*time_ms));
                pack(&kept.collect::<Vec<_>>(), &mut rare.late_chunks);
            }
            rare.late.retain(|(time_ms, _)| is_kept(*time_ms));
            rare.histograms.retain(|(time_ms, _)| is_kept(*time_ms));
            self.forget_rare();
        }
        appender
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty() && self.rare().is_empty()
    }

    /// The time of the first sample that may be here, and of the last.
    pub fn span(&self) -> Option<TimeSpan> {
        let mut span: Option<TimeSpan> = None;
        let mut add = |start: TimeMs, end: TimeMs| {
            let other = TimeSpan { start, end };
            span = Some(span.map_or(other, |so_far| so_far.union(other)));
        };
        let rare = self.rare();
        for chunk in self.chunks.iter().take(1).chain(&rare.late_chunks) {
            add(chunk.first_ms(), chunk.first_ms());
        }
        for chunk in self.chunks.iter().rev().take(1).chain(&rare.late_chunks) {
            if let Some((last, _)) = chunk.samples().last() {
                add(last, last);
            }
        }
        for one in [rare.late.first(), rare.late.last()].into_iter().flatten() {
            add(one.0, one.0);
        }
        for one in [rare.histograms.first(), rare.histograms.last()]
            .into_iter()
            .flatten()
        {
            add(one.0, one.0);
        }
        span
    }

    /// Memory of its samples, in bytes: of chunks, and of what is in none.
    pub(super) fn sample_bytes(&self) -> usize {
        let rare = self.rare();
        let chunks = self.chunks.iter().chain(&rare.late_chunks);
        let histograms = rare.histograms.iter();
        chunks.map(Chunk::size_bytes).sum::<usize>()
            + size_of_val(&*rare.late)
            + histograms
                .map(|(_, histogram)| histogram_bytes(histogram))
                .sum::<usize>()
    }
}

/// Encodes ascending samples as chunks, and returns the appender of the last one.
fn pack(samples: &[(TimeMs, f64)], chunks: &mut Vec<Chunk>) -> Option<Appender> {
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
