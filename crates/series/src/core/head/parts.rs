//! The samples of one series of a head.

mod figures;

use std::sync::Arc;

pub use figures::HeadFigures;

use super::{Flushed, Taken};
use crate::core::chunk::{Appender, Chunk};
use crate::model::{Histogram, SeriesSamples, TimeMs};

/// Samples out of order that a series gathers before it makes a chunk of them.
const LATE_MAX: usize = 256;

/// What a series has: chunks in the order of time, and apart from them what came late.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    /// Full chunks, then the open one.
    pub chunks: Vec<Chunk>,
    /// Samples of the first chunk that are in blocks, and so of no interest here.
    flushed: usize,
    /// Chunks of samples that came late, each ascending in itself, in the order of their making.
    pub late_chunks: Vec<Chunk>,
    /// The others that came late, ascending.
    late: Vec<(TimeMs, f64)>,
    /// Native histograms, ascending.
    pub histograms: Vec<(TimeMs, Arc<Histogram>)>,
}

impl Parts {
    /// Those parts that may have samples from `start` to `end`, both included.
    pub fn within(&self, start: TimeMs, end: TimeMs) -> Self {
        let chunks = &self.chunks;
        let to = chunks.partition_point(|chunk| chunk.first_ms() <= end);
        let from = chunks[..to].partition_point(|chunk| chunk.first_ms() <= start);
        let from = from.saturating_sub(1);
        let late = {
            let from = self.late.partition_point(|(at, _)| *at < start);
            let to = self.late.partition_point(|(at, _)| *at <= end);
            self.late.get(from..to)
        };
        let histograms = {
            let from = self.histograms.partition_point(|(at, _)| *at < start);
            let to = self.histograms.partition_point(|(at, _)| *at <= end);
            self.histograms.get(from..to)
        };
        Self {
            chunks: chunks.get(from..to).unwrap_or_default().to_vec(),
            flushed: if from == 0 { self.flushed } else { 0 },
            late_chunks: self.late_chunks.clone(),
            late: late.unwrap_or_default().to_vec(),
            histograms: histograms.unwrap_or_default().to_vec(),
        }
    }

    /// Adds all samples from `start` to `end`, both included, to what is there already: those of blocks, ascending.
    /// Of several at one time the one that came last counts.
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
        let late_chunks = self.late_chunks.iter().flat_map(Chunk::samples);
        let late = late_chunks.chain(self.late.iter().copied());
        let mut late = late.filter(|(time_ms, _)| within(*time_ms)).peekable();
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
        let mut times_ms = self.histograms.iter().map(|(time_ms, _)| *time_ms);
        times_ms.any(|time_ms| (start..=end).contains(&time_ms))
    }

    fn read_histograms(&self, start: TimeMs, end: TimeMs, into: &mut SeriesSamples) {
        let from = self
            .histograms
            .partition_point(|(time_ms, _)| *time_ms < start);
        let to = self
            .histograms
            .partition_point(|(time_ms, _)| *time_ms <= end);
        let Some((first_ms, _)) = self.histograms[from..to].first() else {
            return;
        };
        let overlaps = into.histogram_times_ms.last() >= Some(first_ms);
        for (time_ms, histogram) in &self.histograms[from..to] {
            into.histogram_times_ms.push(*time_ms);
            into.histograms.push(histogram.clone());
        }
        if overlaps {
            into.sort_histograms();
        }
    }

    #[cold]
    pub(super) fn take_late(&mut self, time_ms: TimeMs, value: f64, grown: &mut usize) -> Taken {
        match self
            .late
            .binary_search_by_key(&time_ms, |(other, _)| *other)
        {
            Ok(at) if self.late[at].1.to_bits() == value.to_bits() => return Taken::Same,
            Ok(_) => return Taken::Conflict,
            Err(at) => self.late.insert(at, (time_ms, value)),
        }
        if self.late.len() >= LATE_MAX {
            *grown += self.pack_late();
        }
        Taken::Late
    }

    /// Makes chunks of what came late, and returns the memory they take.
    pub fn pack_late(&mut self) -> usize {
        let before = self.late_chunks.len();
        pack(&std::mem::take(&mut self.late), &mut self.late_chunks);
        self.late_chunks[before..]
            .iter()
            .map(Chunk::size_bytes)
            .sum()
    }

    pub(super) fn take_histogram(&mut self, time_ms: TimeMs, histogram: Arc<Histogram>) -> Taken {
        match self.histograms.last() {
            Some((last_ms, _)) if *last_ms >= time_ms => {}
            _ => {
                self.histograms.push((time_ms, histogram));
                return Taken::InOrder;
            }
        }
        match self
            .histograms
            .binary_search_by_key(&time_ms, |(other, _)| *other)
        {
            Ok(at) if self.histograms[at].1.is_same(&histogram) => Taken::Same,
            Ok(_) => Taken::Conflict,
            Err(at) => {
                self.histograms.insert(at, (time_ms, histogram));
                Taken::Late
            }
        }
    }

    /// What of this is to be written to a block: all that came late, and of the rest the samples before `end`.
    pub fn to_flush(&self, end: TimeMs) -> Flushed {
        let histograms = self
            .histograms
            .partition_point(|(time_ms, _)| *time_ms < end);
        let mut flushed = Flushed {
            late_chunks: self.late_chunks.len(),
            histograms: self.histograms[..histograms].to_vec(),
            ..Flushed::default()
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

    /// The samples of [`Parts::to_flush`], ascending.
    pub fn flushed(&self, flushed: &Flushed, into: &mut SeriesSamples) {
        into.clear();
        let skipped = |at: usize| if at == 0 { self.flushed } else { 0 };
        for (at, chunk) in self.chunks.iter().take(flushed.chunks + 1).enumerate() {
            let most = match at < flushed.chunks {
                true => usize::MAX,
                false => flushed.samples,
            };
            for (time_ms, value) in chunk.samples().take(most).skip(skipped(at)) {
                into.times_ms.push(time_ms);
                into.values.push(value);
            }
        }
        if flushed.late_chunks > 0 {
            for chunk in &self.late_chunks[..flushed.late_chunks] {
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

    /// Forgets what was flushed, of parts that have grown since; returns the memory of chunks that this frees.
    pub(super) fn release(&mut self, flushed: &Flushed) -> usize {
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
        let late = self.late_chunks.drain(..flushed.late_chunks);
        freed += late.map(|chunk| chunk.size_bytes()).sum::<usize>();
        let gone = &flushed.histograms;
        self.histograms.retain(|(time_ms, histogram)| {
            let at = gone.binary_search_by_key(time_ms, |(other, _)| *other);
            !at.is_ok_and(|at| Arc::ptr_eq(&gone[at].1, histogram))
        });
        freed
    }

    /// Takes samples out, and returns what goes on with the open chunk.
    pub(super) fn delete(&mut self, start: TimeMs, end: TimeMs) -> Option<Appender> {
        let is_kept = |time_ms: TimeMs| time_ms < start || time_ms > end;
        let in_order = self.chunks.iter().flat_map(Chunk::samples);
        let in_order: Vec<_> = in_order
            .skip(self.flushed)
            .filter(|(time_ms, _)| is_kept(*time_ms))
            .collect();
        self.chunks.clear();
        self.flushed = 0;
        let appender = pack(&in_order, &mut self.chunks);
        let late_chunks = std::mem::take(&mut self.late_chunks);
        for chunk in late_chunks {
            let kept = chunk.samples().filter(|(time_ms, _)| is_kept(*time_ms));
            pack(&kept.collect::<Vec<_>>(), &mut self.late_chunks);
        }
        self.late.retain(|(time_ms, _)| is_kept(*time_ms));
        self.histograms.retain(|(time_ms, _)| is_kept(*time_ms));
        appender
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
            && self.late_chunks.is_empty()
            && self.late.is_empty()
            && self.histograms.is_empty()
    }

    /// The time of the first sample that may be here, and of the last.
    pub fn span(&self) -> Option<(TimeMs, TimeMs)> {
        let mut span: Option<(TimeMs, TimeMs)> = None;
        let mut add = |first: TimeMs, last: TimeMs| {
            let (from, to) = span.unwrap_or((first, last));
            span = Some((from.min(first), to.max(last)));
        };
        for chunk in self.chunks.iter().take(1).chain(&self.late_chunks) {
            add(chunk.first_ms(), chunk.first_ms());
        }
        for chunk in self.chunks.iter().rev().take(1).chain(&self.late_chunks) {
            if let Some((last, _)) = chunk.samples().last() {
                add(last, last);
            }
        }
        for one in [self.late.first(), self.late.last()].into_iter().flatten() {
            add(one.0, one.0);
        }
        for one in [self.histograms.first(), self.histograms.last()]
            .into_iter()
            .flatten()
        {
            add(one.0, one.0);
        }
        span
    }

    /// Memory of its chunks, in bytes.
    pub(super) fn chunk_bytes(&self) -> usize {
        self.chunks
            .iter()
            .chain(&self.late_chunks)
            .map(Chunk::size_bytes)
            .sum()
    }
}

/// Makes chunks of ascending samples, and returns what goes on with the last one.
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
