//! The samples of a shard that are not in a block yet.
//!
//! Only the shard's thread writes to a head, in log order, so that replay yields the same state.
//! Readers copy references to a series' chunks and hold no lock while they decode them.

mod chunks;
mod late;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use egret_base::sync::lock;
use egret_metrics_model::{Histogram, Labels, SeriesSamples, TimeMs, TimeSpan};

pub use chunks::{HeadFigures, SeriesChunks};

use self::late::IndexedSample;
use super::chunk::Appender;
use super::record::SampleBatch;

/// A series with its samples, for readers.
#[derive(Debug)]
pub struct HeadSeries {
    /// Number of the series in its shard.
    pub number: u64,
    /// Labels of the series.
    pub labels: Labels,
    chunks: Mutex<SeriesChunks>,
}

impl HeadSeries {
    /// A series without samples.
    pub fn new(number: u64, labels: Labels) -> Self {
        Self { number, labels, chunks: Mutex::default() }
    }

    fn lock_chunks(&self) -> MutexGuard<'_, SeriesChunks> {
        lock(&self.chunks)
    }

    /// Whether there are samples from `start` to `end`, both included.
    pub(crate) fn has_samples(&self, start: TimeMs, end: TimeMs) -> bool {
        let chunks = self.lock_chunks().within(start, end);
        chunks.has_samples(start, end)
    }

    /// What it takes from first to last time.
    pub fn figures(&self, span: TimeSpan) -> HeadFigures {
        self.snapshot().figures(span)
    }

    /// Adds the samples there are now, as [`SeriesChunks::read`] does. Appends are not blocked
    /// meanwhile.
    pub fn read(&self, start: TimeMs, end: TimeMs, into: &mut SeriesSamples) {
        let chunks = self.lock_chunks().within(start, end);
        chunks.read(start, end, into);
    }

    /// The samples there are now.
    pub fn snapshot(&self) -> SeriesChunks {
        self.lock_chunks().clone()
    }
}

/// Outcome of adding a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendOutcome {
    /// It is the latest of its series.
    InOrder,
    /// It is older than the latest of its series, and was added.
    Late,
    /// Its series has the same value at that time already.
    Duplicate,
    /// Its series has another value at that time, which stays.
    Conflict,
    /// There is no such series.
    UnknownSeries,
}

/// The samples of a shard that are not in a block yet, by series number.
#[derive(Debug, Default)]
pub struct Head {
    /// By number, from `first` on. Few series live much longer than those that came with them, so
    /// that numbers below `first` can be let go when a head is tidied.
    recent_slots: Vec<Option<Box<Slot>>>,
    first_recent: u64,
    /// Series with numbers below those of the list above.
    old_slots: HashMap<u64, Box<Slot>>,
    /// Memory of all samples, in bytes.
    sample_bytes: usize,
}

#[derive(Debug)]
struct Slot {
    series: Arc<HeadSeries>,
    appender: Option<Appender>,
}

impl Head {
    /// The number that the next new series gets: one that no series of this shard has had.
    pub fn next_number(&self) -> u64 {
        self.first_recent + self.recent_slots.len() as u64
    }

    /// Marks all numbers below this one as used.
    pub(crate) fn skip_numbers(&mut self, next: u64) {
        while self.next_number() < next {
            if self.recent_slots.is_empty() {
                self.first_recent = next
            } else {
                self.recent_slots.push(None)
            }
        }
    }

    /// Adds a series, which has no samples yet.
    ///
    /// # Panics
    /// When there is a series with its number or a higher one.
    pub fn add(&mut self, series: Arc<HeadSeries>) {
        assert!(series.number >= self.next_number(), "numbers of series ascend");
        self.skip_numbers(series.number);
        self.recent_slots.push(Some(Box::new(Slot { series, appender: None })));
    }

    #[inline]
    fn slot(&mut self, number: u64) -> Option<&mut Slot> {
        match number.checked_sub(self.first_recent) {
            Some(index) => self.recent_slots.get_mut(index as usize)?.as_deref_mut(),
            None => self.old_slots.get_mut(&number).map(|slot| &mut **slot),
        }
    }

    /// The series with a number.
    pub fn series(&self, number: u64) -> Option<&Arc<HeadSeries>> {
        let slot = match number.checked_sub(self.first_recent) {
            Some(index) => self.recent_slots.get(index as usize)?.as_deref(),
            None => self.old_slots.get(&number).map(|slot| &**slot),
        };
        slot.map(|slot| &slot.series)
    }

    /// Every series, by ascending numbers from `first` of the recent ones on; the old ones before,
    /// in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<HeadSeries>> {
        let recent = self.recent_slots.iter().flatten();
        self.old_slots.values().chain(recent).map(|slot| &slot.series)
    }

    /// Memory of all samples, in bytes: of chunks, and roughly of what is in none.
    pub(crate) fn sample_bytes(&self) -> usize {
        self.sample_bytes
    }

    /// Keeps `sample_bytes` exact. A drift would only shift the time of flushes.
    #[inline]
    fn adjust_sample_bytes(&mut self, difference: isize) {
        self.sample_bytes = self.sample_bytes.saturating_add_signed(difference);
    }

    /// Appends samples, and calls a closure with the index and outcome of each that was not
    /// [`AppendOutcome::InOrder`]: those that are older than the latest of their series come after
    /// all others, and are added together.
    pub fn append(&mut self, samples: &SampleBatch, mut report: impl FnMut(usize, AppendOutcome)) {
        let mut late_indices = Vec::new();
        for (index, (series, time_ms, value)) in samples.iter().enumerate() {
            match self.append_sample(series, time_ms, value) {
                AppendOutcome::InOrder => {}
                AppendOutcome::Late => late_indices.push(index),
                outcome => report(index, outcome),
            }
        }
        if !late_indices.is_empty() {
            self.append_late(samples, late_indices, report);
        }
    }

    #[cold]
    fn append_late(
        &mut self,
        samples: &SampleBatch,
        mut indices: Vec<usize>,
        mut report: impl FnMut(usize, AppendOutcome),
    ) {
        indices.sort_by_key(|index| (samples.series[*index], samples.times_ms[*index]));
        let mut late_samples = Vec::new();
        for series_indices in
            indices.chunk_by(|left, right| samples.series[*left] == samples.series[*right])
        {
            let Some(slot) = self.slot(samples.series[series_indices[0]]) else { continue };
            late_samples.clear();
            late_samples.extend(series_indices.iter().map(|index| IndexedSample {
                index: *index,
                time_ms: samples.times_ms[*index],
                value: f64::from_bits(samples.values[*index]),
            }));
            let mut grown_bytes = 0;
            slot.series.lock_chunks().add_late(&late_samples, &mut grown_bytes, &mut report);
            self.adjust_sample_bytes(grown_bytes);
        }
    }

    /// Appends a sample, unless it is older than the latest of its series.
    #[inline]
    fn append_sample(&mut self, series: u64, time_ms: TimeMs, value: f64) -> AppendOutcome {
        let mut grown_bytes = 0;
        let Some(slot) = self.slot(series) else {
            return AppendOutcome::UnknownSeries;
        };
        let outcome = slot.append(time_ms, value, &mut grown_bytes);
        self.adjust_sample_bytes(grown_bytes);
        outcome
    }

    /// Appends a native histogram.
    pub(crate) fn append_histogram(
        &mut self,
        series: u64,
        time_ms: TimeMs,
        histogram: Arc<Histogram>,
    ) -> AppendOutcome {
        let mut grown_bytes = 0;
        let Some(slot) = self.slot(series) else {
            return AppendOutcome::UnknownSeries;
        };
        let mut chunks = slot.series.lock_chunks();
        let outcome = chunks.add_histogram(time_ms, histogram, &mut grown_bytes);
        drop(chunks);
        self.adjust_sample_bytes(grown_bytes);
        outcome
    }

    /// Takes out the samples of a series that are in a block now.
    pub fn release(&mut self, number: u64, flushed: &FlushedRange) {
        let Some(slot) = self.slot(number) else {
            return;
        };
        let mut chunks = slot.series.lock_chunks();
        let freed = chunks.release(flushed);
        let is_closed = chunks.chunks.is_empty();
        drop(chunks);
        if is_closed {
            slot.appender = None;
        }
        self.adjust_sample_bytes(-(freed as isize));
    }

    /// The samples of a series as they are, those that came late in chunks, so that they can be
    /// written to a block and released.
    pub fn capture(&mut self, number: u64) -> Option<SeriesChunks> {
        let slot = self.slot(number)?;
        let mut chunks = slot.series.lock_chunks();
        let grown_bytes = chunks.capture_late();
        let captured = chunks.clone();
        drop(chunks);
        self.adjust_sample_bytes(grown_bytes);
        Some(captured)
    }

    /// Takes the samples of a series from first to last time out for good. Nothing of it may be
    /// captured.
    pub fn delete(&mut self, number: u64, start: TimeMs, end: TimeMs) {
        let Some(slot) = self.slot(number) else {
            return;
        };
        let mut chunks = slot.series.lock_chunks();
        let bytes_before = chunks.sample_bytes();
        let appender = chunks.delete(start, end);
        let bytes_after = chunks.sample_bytes();
        drop(chunks);
        slot.appender = appender;
        self.adjust_sample_bytes(bytes_after as isize - bytes_before as isize);
    }

    /// Takes out a series.
    pub fn remove(&mut self, number: u64) -> Option<Arc<HeadSeries>> {
        let slot = match number.checked_sub(self.first_recent) {
            Some(index) => self.recent_slots.get_mut(index as usize)?.take(),
            None => self.old_slots.remove(&number),
        }?;
        let freed = slot.series.lock_chunks().sample_bytes();
        self.adjust_sample_bytes(-(freed as isize));
        Some(slot.series)
    }

    /// Frees the memory of sparse number ranges after many series were removed.
    pub(crate) fn compact_slots(&mut self) {
        let mut sparse_len = 0;
        for (page_index, page) in self.recent_slots.chunks(COMPACT_PAGE).enumerate() {
            let alive = page.iter().flatten().count();
            if page.len() < COMPACT_PAGE || alive > COMPACT_PAGE / 4 {
                break;
            }
            sparse_len = (page_index + 1) * COMPACT_PAGE;
        }
        for slot in self.recent_slots.drain(..sparse_len).flatten() {
            self.old_slots.insert(slot.series.number, slot);
        }
        self.first_recent += sparse_len as u64;
        self.recent_slots.shrink_to(self.recent_slots.len() * 2);
    }
}

/// Numbers that are looked at together when a head is tidied.
const COMPACT_PAGE: usize = 1_024;

/// What of a series' samples was written to blocks: so many chunks and so many samples of the one
/// after them, and so many runs of chunks that came late.
#[derive(Clone, Debug, Default)]
pub struct FlushedRange {
    /// Whole chunks, from the first on.
    pub chunks: usize,
    /// Samples of the next one.
    pub samples: usize,
    /// Runs of chunks that came late, from the first on.
    pub late_runs: usize,
    /// Native histograms that were written, with their times.
    pub histograms: Vec<(TimeMs, Arc<Histogram>)>,
}

impl FlushedRange {
    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.chunks == 0 && self.samples == 0 && self.late_runs == 0 && self.histograms.is_empty()
    }
}

impl Slot {
    /// Appends a sample, unless it is older than the latest.
    #[inline]
    fn append(&mut self, time_ms: TimeMs, value: f64, grown_bytes: &mut isize) -> AppendOutcome {
        let Some(appender) = &mut self.appender else {
            let appender = Appender::new(time_ms, value);
            *grown_bytes += appender.chunk().size_bytes() as isize;
            self.series.lock_chunks().push(appender.chunk().clone());
            self.appender = Some(appender);
            return AppendOutcome::InOrder;
        };
        if time_ms > appender.last_ms() {
            if appender.push(time_ms, value).is_err() {
                appender.begin_next(time_ms, value);
                *grown_bytes += appender.chunk().size_bytes() as isize;
                self.series.lock_chunks().push(appender.chunk().clone());
            }
            return AppendOutcome::InOrder;
        }
        if time_ms == appender.last_ms() {
            return if value.to_bits() == appender.last_value().to_bits() {
                AppendOutcome::Duplicate
            } else {
                AppendOutcome::Conflict
            };
        }
        AppendOutcome::Late
    }
}

#[cfg(test)]
mod tests;
