//! State of a shard that only its thread changes: the head, and what it needs to know of the log.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, RwLock};

use egret_base::sync::{read_lock, write_lock};
use egret_log::Seq;
use egret_metrics_model::{LabelMatcher, Labels, TimeMs};

use super::ShardShared;
use crate::core::head::{AppendOutcome, Head, HeadSeries};
use crate::core::record::{Deletion, HistogramBatch, SampleBatch};
use crate::core::series_keys::{SeriesKeyTable, SeriesRef};
use crate::worker::write_ack::Outcome;

/// Records of a log up to some number, and the time of the latest sample in them.
#[derive(Clone, Copy, Debug)]
struct Mark {
    end: Seq,
    newest_ms: TimeMs,
    /// What they take in the log.
    bytes: u64,
}

/// Number of records per mark.
const MARK_RECORDS: u64 = 64;

impl Mark {
    /// Whether the mark of a record is this one.
    fn covers(&self, record: Seq) -> bool {
        self.end.previous().0 / MARK_RECORDS == record.0 / MARK_RECORDS
    }
}

/// State of a shard that only its thread changes.
pub(crate) struct Core {
    pub shared: Arc<ShardShared>,
    pub head: Head,
    pub series_keys: Arc<RwLock<SeriesKeyTable>>,
    /// Series that are being removed, with their numbers: their keys are gone, but they are still
    /// in the head.
    pub series_in_removal: HashMap<Labels, u64>,
    /// The number that the log's next record gets.
    pub next_seq: Seq,
    /// The time of the latest sample.
    pub newest_ms: TimeMs,
    marks: VecDeque<Mark>,
    /// Bytes of records in the log that have samples.
    log_bytes: u64,
    /// Deletions in the part of the log that is needed, each with its record.
    deletions: HashMap<u64, Seq>,
    /// Where the log may be cut, because blocks have what is before.
    pub(super) truncate_below: Option<Seq>,
}

impl Core {
    pub(crate) fn new(shared: Arc<ShardShared>, series_keys: Arc<RwLock<SeriesKeyTable>>) -> Self {
        Self {
            shared,
            head: Head::default(),
            series_keys,
            series_in_removal: HashMap::new(),
            next_seq: Seq::FIRST,
            newest_ms: TimeMs::MIN,
            marks: VecDeque::new(),
            log_bytes: 0,
            deletions: HashMap::new(),
            truncate_below: None,
        }
    }

    /// Adds a series under its number; the index is told by the caller.
    pub(crate) fn add_series(&mut self, number: u64, labels: Labels) -> Arc<HeadSeries> {
        let (series, series_ref) = self.add_to_head(number, labels.clone());
        let mut keys = write_lock(&self.series_keys);
        keys.add_series(labels, series_ref);
        series
    }

    /// Adds a series under a new number that has an older one as well.
    pub(crate) fn add_renumbered_series(&mut self, number: u64, labels: Labels) -> Arc<HeadSeries> {
        let (series, series_ref) = self.add_to_head(number, labels.clone());
        let mut keys = write_lock(&self.series_keys);
        keys.renumber(&labels, series_ref);
        self.shared.has_duplicate_series.store(true, Ordering::Relaxed);
        series
    }

    fn add_to_head(&mut self, number: u64, labels: Labels) -> (Arc<HeadSeries>, SeriesRef) {
        let shard = self.shared.number;
        let series = Arc::new(HeadSeries::new(number, labels));
        self.head.add(series.clone());
        (series, SeriesRef { shard, number })
    }

    /// Whether a deletion is in the log. It is asked of one that is under way, during which nothing
    /// is cut off.
    pub(crate) fn has_deletion(&self, id: u64) -> bool {
        self.deletions.contains_key(&id)
    }

    /// Takes samples out, as a record says. Nothing is being written to blocks meanwhile.
    pub(crate) fn apply_deletion(&mut self, record: Seq, deletion: &Deletion) {
        self.deletions.insert(deletion.id, record);
        let matchers = deletion.matchers.iter().cloned().map(LabelMatcher::new);
        let Ok(matchers) = matchers.collect::<Result<Vec<_>, _>>() else {
            // Such a deletion is refused when it is asked for.
            return;
        };
        let mut series = Vec::new();
        self.shared.index.view().select(&matchers, &mut series);
        for series in series {
            self.head.delete(series.number, deletion.start, deletion.end);
        }
    }

    /// The number of a series that is being removed: it stays, and is known again.
    ///
    /// The flush that removes it goes through all keys meanwhile and may take its key out once
    /// more. So it stays among those that are leaving until [`Core::remove_empty`] sees to it.
    pub(crate) fn revive(&mut self, labels: &Labels) -> Option<u64> {
        let (labels, number) = self.series_in_removal.get_key_value(labels)?;
        let (shard, number) = (self.shared.number, *number);
        let mut keys = write_lock(&self.series_keys);
        keys.add_series(labels.clone(), SeriesRef { shard, number });
        Some(number)
    }

    /// Takes out those of some series that are being let go which have no samples and have not come
    /// back, and returns their numbers. The others are known. No key is taken out any more.
    pub(crate) fn remove_empty(&mut self, numbers: &[u64]) -> Vec<u64> {
        let mut removed = Vec::new();
        for number in numbers {
            let Some(series) = self.head.series(*number) else {
                continue;
            };
            let labels = series.labels.clone();
            let is_empty = series.snapshot().is_empty();
            let keys = read_lock(&self.series_keys);
            let series_ref = keys.find_series(&labels);
            drop(keys);
            match series_ref {
                Some(place) if place.number == *number => {}
                None if !is_empty => _ = self.revive(&labels),
                _ if is_empty => {
                    self.head.remove(*number);
                    removed.push(*number);
                }
                _ => {}
            }
            self.series_in_removal.remove(&labels);
        }
        removed
    }

    /// Notes which samples are in a record.
    pub(crate) fn note_samples(&mut self, record: Seq, times_ms: &[TimeMs]) {
        let newest_ms = times_ms.iter().copied().max().unwrap_or(TimeMs::MIN);
        self.newest_ms = self.newest_ms.max(newest_ms);
        let end = record.plus(1);
        match self.marks.back_mut() {
            Some(mark) if mark.covers(record) => {
                mark.newest_ms = mark.newest_ms.max(newest_ms);
                mark.end = end;
            }
            _ => self.marks.push_back(Mark { end, newest_ms, bytes: 0 }),
        }
    }

    /// Notes how much the records take in the log of which samples were noted last.
    pub(crate) fn note_bytes(&mut self, bytes: usize) {
        if let Some(mark) = self.marks.back_mut() {
            mark.bytes += bytes as u64;
            self.log_bytes += bytes as u64;
        }
    }

    /// Publishes the sizes of head and log to other threads.
    pub(crate) fn publish_sizes(&self) {
        let shared = &self.shared;
        let head_bytes = self.head.sample_bytes() as u64;
        shared.head_bytes.store(head_bytes, Ordering::Relaxed);
        shared.log_bytes.store(self.log_bytes, Ordering::Relaxed);
    }

    /// Cuts off the front of the log that is no longer needed: blocks have all samples of records
    /// below `flushed` that are before `end`.
    pub(crate) fn release_log(&mut self, flushed: Seq, end: TimeMs) {
        while let Some(mark) = self.marks.front()
            && mark.end <= flushed
            && mark.newest_ms < end
        {
            self.truncate_below = Some(mark.end);
            self.log_bytes -= mark.bytes;
            self.marks.pop_front();
        }
        if let Some(truncate_below) = self.truncate_below {
            self.deletions.retain(|_, record| *record >= truncate_below);
        }
    }

    /// Adds samples to the head.
    pub(crate) fn append_samples(&mut self, samples: &SampleBatch) -> Outcome {
        let mut outcome = Outcome::default();
        let mut first_conflict: Option<usize> = None;
        self.head.append(samples, |index, append_outcome| match append_outcome {
            AppendOutcome::InOrder => {}
            AppendOutcome::Late => outcome.late += 1,
            AppendOutcome::Duplicate => outcome.duplicates += 1,
            AppendOutcome::UnknownSeries => outcome.unknown_series += 1,
            AppendOutcome::Conflict => {
                outcome.conflicts += 1;
                first_conflict = Some(first_conflict.map_or(index, |first| first.min(index)));
            }
        });
        outcome.first_conflict = first_conflict.and_then(|at| {
            let series = self.head.series(samples.series[at])?;
            Some((series.labels.clone(), samples.times_ms[at]))
        });
        outcome
    }

    /// Adds native histograms to the head.
    pub(crate) fn append_histograms(&mut self, batch: &HistogramBatch) -> Outcome {
        let mut outcome = Outcome::default();
        for (number, time_ms, histogram) in batch.iter() {
            match self.head.append_histogram(number, time_ms, histogram.clone()) {
                AppendOutcome::InOrder => {}
                AppendOutcome::Late => outcome.late += 1,
                AppendOutcome::Duplicate => outcome.duplicates += 1,
                AppendOutcome::UnknownSeries => outcome.unknown_series += 1,
                AppendOutcome::Conflict => {
                    outcome.conflicts += 1;
                    outcome.histogram_conflicts += 1;
                    let series = self.head.series(number);
                    let conflict = series.map(|series| (series.labels.clone(), time_ms));
                    outcome.first_conflict = outcome.first_conflict.or(conflict);
                }
            }
        }
        outcome
    }
}

#[cfg(test)]
mod tests;
