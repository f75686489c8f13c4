//! The samples of a shard that are not in a block yet.
//!
//! One thread changes a head: it does what the log says, in the log's order, so that a replay comes
//! to the same. Any number read: they take the chunks of a series, each of which can be read while
//! it grows, and hold nothing while they do.

mod chunks;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use egret_base::sync::lock;
use egret_metrics_model::{Histogram, Labels, SeriesSamples, TimeMs, TimeSpan};

pub use chunks::{HeadFigures, SeriesChunks};

use super::chunk::Appender;
use super::record::SampleBatch;

/// A series with its samples, for readers.
#[derive(Debug)]
pub struct HeadSeries {
    /// Number of the series in its shard.
    pub number: u64,
    /// Labels of the series.
    pub labels: Labels,
    parts: Mutex<SeriesChunks>,
}

impl HeadSeries {
    /// A series without samples.
    pub fn new(number: u64, labels: Labels) -> Self {
        Self {
            number,
            labels,
            parts: Mutex::default(),
        }
    }

    fn parts(&self) -> MutexGuard<'_, SeriesChunks> {
        lock(&self.parts)
    }

    /// Whether there are samples from `start` to `end`, both included.
    pub(crate) fn has_samples(&self, start: TimeMs, end: TimeMs) -> bool {
        let parts = self.parts().within(start, end);
        parts.has_samples(start, end)
    }

    /// What it takes from first to last time.
    pub fn figures(&self, span: TimeSpan) -> HeadFigures {
        self.now().figures(span)
    }

    /// Adds the samples there are now, as [`SeriesChunks::read`] does. Appends are not blocked
    /// meanwhile.
    pub fn read(&self, start: TimeMs, end: TimeMs, into: &mut SeriesSamples) {
        let parts = self.parts().within(start, end);
        parts.read(start, end, into);
    }

    /// The samples there are now.
    pub fn now(&self) -> SeriesChunks {
        self.parts().clone()
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
    Same,
    /// Its series has another value at that time, which stays.
    Conflict,
    /// There is no such series.
    Nowhere,
}

/// The samples of a shard that are not in a block yet, by series number.
#[derive(Debug, Default)]
pub struct Head {
    /// By number, from `first` on. Few series live much longer than those that came with them, so
    /// that numbers below `first` can be let go when a head is tidied.
    series: Vec<Option<Box<Slot>>>,
    first: u64,
    /// Series with numbers below those of the list above.
    old: HashMap<u64, Box<Slot>>,
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
        self.first + self.series.len() as u64
    }

    /// Marks all numbers below this one as used.
    pub(crate) fn skip_numbers(&mut self, next: u64) {
        while self.next_number() < next {
            if self.series.is_empty() {
                self.first = next
            } else {
                self.series.push(None)
            }
        }
    }

    /// Adds a series, which has no samples yet.
    ///
    /// # Panics
    /// When there is a series with its number or a higher one.
    pub fn add(&mut self, series: Arc<HeadSeries>) {
        assert!(
            series.number >= self.next_number(),
            "numbers of series ascend"
        );
        self.skip_numbers(series.number);
        self.series.push(Some(Box::new(Slot {
            series,
            appender: None,
        })));
    }

    #[inline]
    fn slot(&mut self, number: u64) -> Option<&mut Slot> {
        match number.checked_sub(self.first) {
            Some(at) => self.series.get_mut(at as usize)?.as_deref_mut(),
            None => self.old.get_mut(&number).map(|slot| &mut **slot),
        }
    }

    /// The series with a number.
    pub fn series(&self, number: u64) -> Option<&Arc<HeadSeries>> {
        let slot = match number.checked_sub(self.first) {
            Some(at) => self.series.get(at as usize)?.as_deref(),
            None => self.old.get(&number).map(|slot| &**slot),
        };
        slot.map(|slot| &slot.series)
    }

    /// Every series, by ascending numbers from `first` of the recent ones on; the old ones before,
    /// in no order.
    pub fn all(&self) -> impl Iterator<Item = &Arc<HeadSeries>> {
        let recent = self.series.iter().flatten();
        self.old.values().chain(recent).map(|slot| &slot.series)
    }

    /// Memory of all samples, in bytes: of chunks, and roughly of what is in none.
    pub(crate) fn sample_bytes(&self) -> usize {
        self.sample_bytes
    }

    /// Keeps `sample_bytes` exact. A drift would only shift the time of flushes.
    #[inline]
    fn grow(&mut self, grown: isize) {
        self.sample_bytes = self.sample_bytes.saturating_add_signed(grown);
    }

    /// Appends samples, and calls a closure with the index and outcome of each that was not
    /// [`AppendOutcome::InOrder`].
    pub fn take(&mut self, samples: &SampleBatch, mut tell: impl FnMut(usize, AppendOutcome)) {
        for (at, (series, time_ms, value)) in samples.iter().enumerate() {
            let taken = self.take_one(series, time_ms, value);
            if taken != AppendOutcome::InOrder {
                tell(at, taken);
            }
        }
    }

    #[inline]
    fn take_one(&mut self, series: u64, time_ms: TimeMs, value: f64) -> AppendOutcome {
        let mut grown = 0;
        let Some(slot) = self.slot(series) else {
            return AppendOutcome::Nowhere;
        };
        let taken = slot.take(time_ms, value, &mut grown);
        self.grow(grown);
        taken
    }

    /// Appends a native histogram.
    pub(crate) fn take_histogram(
        &mut self,
        series: u64,
        time_ms: TimeMs,
        histogram: Arc<Histogram>,
    ) -> AppendOutcome {
        let mut grown = 0;
        let Some(slot) = self.slot(series) else {
            return AppendOutcome::Nowhere;
        };
        let mut parts = slot.series.parts();
        let taken = parts.take_histogram(time_ms, histogram, &mut grown);
        drop(parts);
        self.grow(grown);
        taken
    }

    /// Takes out the samples of a series that are in a block now.
    pub fn release(&mut self, number: u64, flushed: &FlushedRange) {
        let Some(slot) = self.slot(number) else {
            return;
        };
        let mut parts = slot.series.parts();
        let freed = parts.release(flushed);
        let is_closed = parts.chunks.is_empty();
        drop(parts);
        if is_closed {
            slot.appender = None;
        }
        self.grow(-(freed as isize));
    }

    /// The samples of a series as they are, those that came late in chunks, so that they can be
    /// written to a block and released.
    pub fn capture(&mut self, number: u64) -> Option<SeriesChunks> {
        let slot = self.slot(number)?;
        let mut parts = slot.series.parts();
        let grown = parts.pack_late();
        let captured = parts.clone();
        drop(parts);
        self.grow(grown);
        Some(captured)
    }

    /// Takes the samples of a series from first to last time out for good. Nothing of it may be
    /// captured.
    pub fn delete(&mut self, number: u64, start: TimeMs, end: TimeMs) {
        let Some(slot) = self.slot(number) else {
            return;
        };
        let mut parts = slot.series.parts();
        let before = parts.sample_bytes();
        let appender = parts.delete(start, end);
        let after = parts.sample_bytes();
        drop(parts);
        slot.appender = appender;
        self.grow(after as isize - before as isize);
    }

    /// Takes out a series.
    pub fn remove(&mut self, number: u64) -> Option<Arc<HeadSeries>> {
        let slot = match number.checked_sub(self.first) {
            Some(at) => self.series.get_mut(at as usize)?.take(),
            None => self.old.remove(&number),
        }?;
        let freed = slot.series.parts().sample_bytes();
        self.grow(-(freed as isize));
        Some(slot.series)
    }

    /// Frees the memory of sparse number ranges after many series were removed.
    pub(crate) fn tidy(&mut self) {
        let mut sparse = 0;
        for (at, page) in self.series.chunks(TIDY_PAGE).enumerate() {
            let alive = page.iter().flatten().count();
            if page.len() < TIDY_PAGE || alive > TIDY_PAGE / 4 {
                break;
            }
            sparse = (at + 1) * TIDY_PAGE;
        }
        for slot in self.series.drain(..sparse).flatten() {
            self.old.insert(slot.series.number, slot);
        }
        self.first += sparse as u64;
        self.series.shrink_to(self.series.len() * 2);
    }
}

/// Numbers that are looked at together when a head is tidied.
const TIDY_PAGE: usize = 1_024;

/// What of a series' samples was written to blocks: so many chunks and so many samples of the one
/// after them, and so many of the chunks that came late.
#[derive(Clone, Debug, Default)]
pub struct FlushedRange {
    /// Whole chunks, from the first on.
    pub chunks: usize,
    /// Samples of the next one.
    pub samples: usize,
    /// Chunks that came late, from the first on.
    pub late_chunks: usize,
    /// Native histograms that were written, with their times.
    pub histograms: Vec<(TimeMs, Arc<Histogram>)>,
}

impl FlushedRange {
    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.chunks == 0 && self.samples == 0 && self.late_chunks == 0 && self.histograms.is_empty()
    }
}

impl Slot {
    #[inline]
    fn take(&mut self, time_ms: TimeMs, value: f64, grown: &mut isize) -> AppendOutcome {
        let Some(appender) = &mut self.appender else {
            let appender = Appender::new(time_ms, value);
            *grown += appender.chunk().size_bytes() as isize;
            self.series.parts().push(appender.chunk().clone());
            self.appender = Some(appender);
            return AppendOutcome::InOrder;
        };
        if time_ms > appender.last_ms() {
            if appender.push(time_ms, value).is_err() {
                appender.begin_next(time_ms, value);
                *grown += appender.chunk().size_bytes() as isize;
                self.series.parts().push(appender.chunk().clone());
            }
            return AppendOutcome::InOrder;
        }
        if time_ms == appender.last_ms() {
            return if value.to_bits() == appender.last().to_bits() {
                AppendOutcome::Same
            } else {
                AppendOutcome::Conflict
            };
        }
        self.series.parts().take_late(time_ms, value, grown)
    }
}

#[cfg(test)]
mod tests;
