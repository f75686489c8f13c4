//! Moves samples from the head to blocks, beside the shard's thread: that is asked for little at a
//! time, and never waits for a disk that blocks are written to.
//!
//! 1. The samples before some time are read from the head, series by series in the order of their
//!    labels, and written to blocks, one for each window of time.
//! 2. The blocks are published. Readers see samples in both places from here on.
//! 3. When no reader is left that does not see the blocks, the samples are released from the head.
//! 4. Series that had no samples are removed; those that are written to all the time keep their
//!    numbers.
//! 5. A checkpoint says which series there are and what blocks have; then the front of the log is
//!    cut off.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use egret_base::sync::write_lock;
use egret_blocks::block::{BlockWriter, WriterOptions};
use egret_blocks::catalog::Catalog;
use egret_blocks::core::merge::merge;
use egret_blocks::core::{Effort, window};
use egret_log::Disk;
use egret_metrics_model::{Labels, SeriesSamples, TimeMs};

use super::shard::{Ask, Core, ShardShared};
use crate::core::head::{FlushedRange, HeadSeries};
use crate::core::series_keys::SeriesRef;
use crate::error::SeriesError;
use crate::store::checkpoint::{Checkpoint, FlushWatermark};

/// Series that a shard's thread is asked for at a time.
const AT_ONCE: usize = 128;

/// How often readers of earlier snapshots are polled.
const READERS_PAUSE: Duration = Duration::from_millis(5);

/// Runs a closure on the thread of a shard.
pub(crate) type Perform<'a> = &'a dyn Fn(Ask) -> Result<(), SeriesError>;

/// Runs a closure on the thread of a shard, and returns its result.
///
/// # Errors
/// [`SeriesError::Stopping`], and why the shard has ended.
pub(crate) fn ask<R: Send + 'static>(
    perform: Perform<'_>,
    question: impl FnOnce(&mut Core) -> R + Send + 'static,
) -> Result<R, SeriesError> {
    let (tell, told) = mpsc::sync_channel(1);
    perform(Box::new(move |core: &mut Core| {
        // The caller waits below.
        let _ = tell.send(question(core));
    }))?;
    told.recv().map_err(|_| SeriesError::Stopping)
}

/// A flush of one shard.
pub(crate) struct Flush<'a, D: Disk> {
    pub shared: &'a ShardShared,
    pub perform: Perform<'a>,
    pub catalog: &'a Catalog<D>,
    /// Where the shard's checkpoint is.
    pub disk: &'a D,
    pub now_ms: TimeMs,
    /// What blocks have of this shard before.
    pub before: FlushWatermark,
    /// Called between pieces: may take its time, so that others get theirs.
    pub pause: &'a dyn Fn(Duration),
    /// Called with the name of the next step; a test can stop there by an error.
    pub step: &'a dyn Fn(&'static str) -> Result<(), SeriesError>,
}

/// Series by number with what of them was written.
type Captured = Vec<(u64, FlushedRange)>;

/// The blocks that become of a head, by the beginning of their windows.
struct Writers<'a, D: Disk> {
    catalog: &'a Catalog<D>,
    now_ms: TimeMs,
    by_window: BTreeMap<TimeMs, BlockWriter<D>>,
}

impl<D: Disk> Writers<'_, D> {
    /// Adds the samples of a series, where there is one.
    fn push(
        &mut self,
        labels: Option<&Labels>,
        samples: &SeriesSamples,
    ) -> Result<(), SeriesError> {
        let Some(labels) = labels else { return Ok(()) };
        for (from, piece) in window::split(samples, self.now_ms) {
            let writer = match self.by_window.entry(from) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => {
                    let options = WriterOptions {
                        effort: Effort::Quick,
                        ..WriterOptions::default()
                    };
                    entry.insert(self.catalog.writer(options)?)
                }
            };
            writer.push(labels, &piece)?;
        }
        Ok(())
    }
}

impl<D: Disk> Flush<'_, D> {
    fn ask<R: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Core) -> R + Send + 'static,
    ) -> Result<R, SeriesError> {
        ask(self.perform, question)
    }

    /// Flushes all samples before `end`, and returns what blocks have of the log now.
    ///
    /// # Errors
    /// [`SeriesError`]: whatever was done by then stays, and is no harm.
    pub(crate) fn run(&self, end: TimeMs) -> Result<FlushWatermark, SeriesError> {
        let end = end.max(self.before.end);
        let seq = self.ask(|core| core.next)?;
        let mut series: Vec<Arc<HeadSeries>> = self.shared.index.view().all().cloned().collect();
        series.sort_unstable_by(|one, other| {
            let by_labels = one.labels.cmp(&other.labels);
            by_labels.then(one.number.cmp(&other.number))
        });
        let captured = self.write(&series, end)?;
        let released = captured.iter().any(|(_, flushed)| !flushed.is_empty());
        if released {
            (self.step)("release")?;
        }
        let idle = idle(&series, &captured);
        self.release(captured)?;
        (self.step)("let go")?;
        self.let_go(idle)?;
        let in_blocks = FlushWatermark { seq, end };
        (self.step)("checkpoint")?;
        self.checkpoint(in_blocks)?;
        self.ask(move |core| core.cut(seq, end))?;
        Ok(in_blocks)
    }

    fn write(&self, series: &[Arc<HeadSeries>], end: TimeMs) -> Result<Captured, SeriesError> {
        let mut writers = Writers {
            catalog: self.catalog,
            now_ms: self.now_ms,
            by_window: BTreeMap::new(),
        };
        let mut all: Captured = Vec::with_capacity(series.len());
        // What is to be pushed under the labels of the last series, and what there is of the next
        // one.
        let (mut samples, mut next) = (SeriesSamples::default(), SeriesSamples::default());
        let mut last: Option<&Labels> = None;
        for piece in series.chunks(AT_ONCE) {
            let numbers: Vec<u64> = piece.iter().map(|series| series.number).collect();
            let capture = |core: &mut Core| -> Vec<_> {
                let each = numbers.into_iter();
                each.map(|number| core.head.capture(number)).collect()
            };
            let captured = self.ask(capture)?;
            let began = Instant::now();
            for (series, parts) in piece.iter().zip(captured) {
                let Some(parts) = parts else { continue };
                let flushed = parts.to_flush(end);
                parts.flushed(&flushed, &mut next);
                all.push((series.number, flushed));
                match last {
                    // The series was removed, and created again before a restart.
                    Some(labels) if *labels == series.labels => merge(&mut samples, &next),
                    _ => {
                        writers.push(last, &samples)?;
                        std::mem::swap(&mut samples, &mut next);
                        last = Some(&series.labels);
                    }
                }
            }
            (self.pause)(began.elapsed());
        }
        writers.push(last, &samples)?;
        let mut written = Vec::new();
        for writer in writers.by_window.into_values() {
            let began = Instant::now();
            written.push(writer.finish()?);
            (self.pause)(began.elapsed());
        }
        if written.is_empty() {
            return Ok(all);
        }
        for written in written {
            (self.step)("publish")?;
            self.catalog.publish(written)?;
        }
        // A reader of any earlier snapshot looks for these samples in the head.
        for snapshot in self.catalog.replaced() {
            while snapshot.strong_count() > 0 {
                (self.step)("wait for readers")?;
                (self.pause)(READERS_PAUSE);
            }
        }
        Ok(all)
    }

    fn release(&self, captured: Captured) -> Result<(), SeriesError> {
        let mut captured = captured.into_iter().peekable();
        while captured.peek().is_some() {
            let piece: Captured = captured.by_ref().take(AT_ONCE).collect();
            self.ask(move |core| {
                for (number, flushed) in &piece {
                    core.head.release(*number, flushed);
                }
            })?;
        }
        Ok(())
    }

    /// Removes series without samples. First their keys go, so that no request finds them; then the
    /// series themselves, except those that got samples from a request that had found them before.
    fn let_go(&self, idle: HashMap<Labels, u64>) -> Result<(), SeriesError> {
        if idle.is_empty() {
            return Ok(());
        }
        let empty: HashSet<u64> = idle.values().copied().collect();
        let known = self.ask(|core| {
            core.leaving = idle;
            core.known.clone()
        })?;
        let shard = self.shared.number;
        let is_gone = |place: SeriesRef| place.shard == shard && empty.contains(&place.number);
        let mut from = 0;
        loop {
            let mut known = write_lock(&known);
            if from >= known.capacity() {
                break;
            }
            from = known.remove_some(from, is_gone);
        }
        let mut gone: HashSet<u64> = HashSet::new();
        let numbers: Vec<u64> = empty.iter().copied().collect();
        for piece in numbers.chunks(AT_ONCE) {
            let piece = piece.to_vec();
            gone.extend(self.ask(move |core| core.remove_empty(&piece))?);
        }
        self.shared
            .index
            .retain(|series| !gone.contains(&series.number));
        self.ask(|core| core.head.tidy())
    }

    fn checkpoint(&self, in_blocks: FlushWatermark) -> Result<(), SeriesError> {
        let (at, next_number) = self.ask(|core| (core.next, core.head.next_number()))?;
        // Those that came since then are in the log as well.
        let view = self.shared.index.view();
        let mut series: Vec<_> = view
            .all()
            .filter(|series| series.number < next_number)
            .map(|series| (series.number, series.labels.clone()))
            .collect();
        series.sort_unstable_by_key(|(number, _)| *number);
        let checkpoint = Checkpoint {
            at,
            in_blocks,
            next_number,
            series,
        };
        checkpoint.write(self.disk)
    }
}

/// The series that had nothing when they were captured, and have nothing now. Those of which
/// something is in blocks since may be in the middle of their life: they are looked at again by the
/// next flush.
fn idle(series: &[Arc<HeadSeries>], captured: &Captured) -> HashMap<Labels, u64> {
    let written: HashSet<u64> = captured
        .iter()
        .filter(|(_, flushed)| !flushed.is_empty())
        .map(|(number, _)| *number)
        .collect();
    series
        .iter()
        .filter(|series| !written.contains(&series.number) && series.now().is_empty())
        .map(|series| (series.labels.clone(), series.number))
        .collect()
}
