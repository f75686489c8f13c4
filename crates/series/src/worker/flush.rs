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
use egret_blocks::core::merge::merge_newer;
use egret_blocks::core::{Effort, window};
use egret_log::Disk;
use egret_metrics_model::{Labels, SeriesSamples, TimeMs};

use super::shard::{Core, CoreFn, ShardShared};
use crate::core::head::{FlushedRange, HeadSeries};
use crate::core::series_keys::SeriesRef;
use crate::error::SeriesError;
use crate::store::checkpoint::{Checkpoint, FlushWatermark};

/// Series that a shard's thread is asked for at a time.
const SERIES_PER_CALL: usize = 128;

/// How often readers of earlier snapshots are polled.
const READERS_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Runs a closure on the thread of a shard.
pub(crate) type CoreRunner<'a> = &'a dyn Fn(CoreFn) -> Result<(), SeriesError>;

/// Runs a closure on the thread of a shard, and returns its result.
///
/// # Errors
/// [`SeriesError::Stopping`], and why the shard has ended.
pub(crate) fn run_on_core<R: Send + 'static>(
    core_runner: CoreRunner<'_>,
    action: impl FnOnce(&mut Core) -> R + Send + 'static,
) -> Result<R, SeriesError> {
    let (sender, receiver) = mpsc::sync_channel(1);
    core_runner(Box::new(move |core: &mut Core| {
        // The caller waits below.
        let _ = sender.send(action(core));
    }))?;
    receiver.recv().map_err(|_| SeriesError::Stopping)
}

/// A flush of one shard.
pub(crate) struct Flush<'a, D: Disk> {
    pub shared: &'a ShardShared,
    pub core_runner: CoreRunner<'a>,
    pub catalog: &'a Catalog<D>,
    /// Where the shard's checkpoint is.
    pub disk: &'a D,
    pub now_ms: TimeMs,
    /// What blocks have of this shard before.
    pub previous_watermark: FlushWatermark,
    /// Called between pieces: may take its time, so that others get theirs.
    pub pause: &'a dyn Fn(Duration),
    /// Called with the name of the next step; a test can stop there by an error.
    pub announce_step: &'a dyn Fn(&'static str) -> Result<(), SeriesError>,
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
        for (window_start, piece) in window::split_by_window(samples, self.now_ms) {
            let writer = match self.by_window.entry(window_start) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => {
                    let options =
                        WriterOptions { effort: Effort::Quick, ..WriterOptions::default() };
                    entry.insert(self.catalog.writer(options)?)
                }
            };
            writer.push(labels, &piece)?;
        }
        Ok(())
    }
}

impl<D: Disk> Flush<'_, D> {
    fn run_on_core<R: Send + 'static>(
        &self,
        action: impl FnOnce(&mut Core) -> R + Send + 'static,
    ) -> Result<R, SeriesError> {
        run_on_core(self.core_runner, action)
    }

    /// Flushes all samples before `end`, and returns what blocks have of the log now.
    ///
    /// # Errors
    /// [`SeriesError`]: whatever was done by then stays, and is no harm.
    pub(crate) fn run(&self, end: TimeMs) -> Result<FlushWatermark, SeriesError> {
        let end = end.max(self.previous_watermark.end);
        let seq = self.run_on_core(|core| core.next_seq)?;
        let mut series: Vec<Arc<HeadSeries>> = self.shared.index.view().iter().cloned().collect();
        series.sort_unstable_by(|left, right| {
            let by_labels = left.labels.cmp(&right.labels);
            by_labels.then(left.number.cmp(&right.number))
        });
        let captured = self.write(&series, end)?;
        let has_flushed = captured.iter().any(|(_, flushed)| !flushed.is_empty());
        if has_flushed {
            (self.announce_step)("release")?;
        }
        let idle = find_idle(&series, &captured);
        self.release_flushed(captured)?;
        (self.announce_step)("let go")?;
        self.remove_idle(idle)?;
        let flush_watermark = FlushWatermark { seq, end };
        (self.announce_step)("checkpoint")?;
        self.write_checkpoint(flush_watermark)?;
        self.run_on_core(move |core| core.release_log(seq, end))?;
        Ok(flush_watermark)
    }

    fn write(&self, series: &[Arc<HeadSeries>], end: TimeMs) -> Result<Captured, SeriesError> {
        let mut writers =
            Writers { catalog: self.catalog, now_ms: self.now_ms, by_window: BTreeMap::new() };
        let mut all_captured: Captured = Vec::with_capacity(series.len());
        // What is to be pushed under the labels of the last series, and what there is of the next
        // one.
        let (mut samples, mut next_samples) = (SeriesSamples::default(), SeriesSamples::default());
        let mut last_labels: Option<&Labels> = None;
        for piece in series.chunks(SERIES_PER_CALL) {
            let numbers: Vec<u64> = piece.iter().map(|series| series.number).collect();
            let capture = |core: &mut Core| -> Vec<_> {
                let each = numbers.into_iter();
                each.map(|number| core.head.capture(number)).collect()
            };
            let captured = self.run_on_core(capture)?;
            let began = Instant::now();
            for (series, chunks) in piece.iter().zip(captured) {
                let Some(parts) = chunks else { continue };
                let flushed = parts.range_to_flush(end);
                parts.read_flushed(&flushed, &mut next_samples);
                all_captured.push((series.number, flushed));
                match last_labels {
                    // The series was removed, and created again before a restart.
                    Some(labels) if *labels == series.labels => {
                        merge_newer(&mut samples, &next_samples)
                    }
                    _ => {
                        writers.push(last_labels, &samples)?;
                        std::mem::swap(&mut samples, &mut next_samples);
                        last_labels = Some(&series.labels);
                    }
                }
            }
            (self.pause)(began.elapsed());
        }
        writers.push(last_labels, &samples)?;
        let mut written = Vec::new();
        for writer in writers.by_window.into_values() {
            let began = Instant::now();
            written.push(writer.finish()?);
            (self.pause)(began.elapsed());
        }
        if written.is_empty() {
            return Ok(all_captured);
        }
        for written in written {
            (self.announce_step)("publish")?;
            self.catalog.publish(written)?;
        }
        // A reader of any earlier snapshot looks for these samples in the head.
        for snapshot in self.catalog.replaced_snapshots() {
            while snapshot.strong_count() > 0 {
                (self.announce_step)("wait for readers")?;
                (self.pause)(READERS_POLL_INTERVAL);
            }
        }
        Ok(all_captured)
    }

    fn release_flushed(&self, captured: Captured) -> Result<(), SeriesError> {
        let mut captured = captured.into_iter().peekable();
        while captured.peek().is_some() {
            let piece: Captured = captured.by_ref().take(SERIES_PER_CALL).collect();
            self.run_on_core(move |core| {
                for (number, flushed) in &piece {
                    core.head.release(*number, flushed);
                }
            })?;
        }
        Ok(())
    }

    /// Removes series without samples. First their keys go, so that no request finds them; then the
    /// series themselves, except those that got samples from a request that had found them before.
    fn remove_idle(&self, idle: HashMap<Labels, u64>) -> Result<(), SeriesError> {
        if idle.is_empty() {
            return Ok(());
        }
        let empty: HashSet<u64> = idle.values().copied().collect();
        let series_keys = self.run_on_core(|core| {
            core.series_in_removal = idle;
            core.series_keys.clone()
        })?;
        let shard = self.shared.number;
        let is_removed =
            |series_ref: SeriesRef| series_ref.shard == shard && empty.contains(&series_ref.number);
        let mut next_slot = 0;
        loop {
            let mut keys = write_lock(&series_keys);
            if next_slot >= keys.capacity() {
                break;
            }
            next_slot = keys.remove_from_page(next_slot, is_removed);
        }
        let mut removed: HashSet<u64> = HashSet::new();
        let numbers: Vec<u64> = empty.iter().copied().collect();
        for piece in numbers.chunks(SERIES_PER_CALL) {
            let piece = piece.to_vec();
            removed.extend(self.run_on_core(move |core| core.remove_empty(&piece))?);
        }
        self.shared.index.retain(|series| !removed.contains(&series.number));
        self.run_on_core(|core| core.head.compact_slots())
    }

    fn write_checkpoint(&self, flush_watermark: FlushWatermark) -> Result<(), SeriesError> {
        let (next_seq, next_number) =
            self.run_on_core(|core| (core.next_seq, core.head.next_number()))?;
        // Those that came since then are in the log as well.
        let view = self.shared.index.view();
        let mut series: Vec<_> = view
            .iter()
            .filter(|series| series.number < next_number)
            .map(|series| (series.number, series.labels.clone()))
            .collect();
        series.sort_unstable_by_key(|(number, _)| *number);
        let checkpoint = Checkpoint { next_seq, flush_watermark, next_number, series };
        checkpoint.write(self.disk)
    }
}

/// The series that had nothing when they were captured, and have nothing now. Those of which
/// something is in blocks since may be in the middle of their life: they are looked at again by the
/// next flush.
fn find_idle(series: &[Arc<HeadSeries>], captured: &Captured) -> HashMap<Labels, u64> {
    let written: HashSet<u64> = captured
        .iter()
        .filter(|(_, flushed)| !flushed.is_empty())
        .map(|(number, _)| *number)
        .collect();
    series
        .iter()
        .filter(|series| !written.contains(&series.number) && series.snapshot().is_empty())
        .map(|series| (series.labels.clone(), series.number))
        .collect()
}
