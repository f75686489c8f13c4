//! Index of a shard's series by label.
//!
//! New series are put in a list, which is searched linearly. When it is long, its series become a
//! *segment*: their numbers by label and value, immutable. Segments of like size are merged, so
//! that there are few. Readers take the list and the segments as they are at one moment and hold no
//! lock while they search. Building and merging run beside the shard's thread in three steps, take,
//! build and put, of which only the first and the last hold the lock.

mod segment;

use std::sync::{Arc, Mutex, MutexGuard};

use egret_base::sync::lock;
use egret_metrics_model::LabelMatcher;

pub use segment::Segment;

use super::head::HeadSeries;

/// New series that are gathered before they are worth a segment.
pub(crate) const FRESH_SERIES_MAX: usize = 1_024;

/// Number of segments of like size that are merged into one.
const MERGE_FAN_IN: usize = 4;

/// The index of a shard.
#[derive(Debug, Default)]
pub struct Index {
    state: Mutex<View>,
}

/// An index at one moment.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// The larger and older ones first.
    segments: Arc<[Arc<Segment>]>,
    fresh_series: Vec<Arc<HeadSeries>>,
}

/// Work on the index, done without its lock.
#[derive(Debug)]
pub enum IndexJob {
    /// The first of the new series are to be a segment.
    Build(Vec<Arc<HeadSeries>>),
    /// These segments, which follow one another, are to be one.
    Merge(Vec<Arc<Segment>>),
}

impl Index {
    fn lock_state(&self) -> MutexGuard<'_, View> {
        lock(&self.state)
    }

    /// Adds new series to the list of those without a segment.
    pub fn add(&self, series: impl Iterator<Item = Arc<HeadSeries>>) {
        self.lock_state().fresh_series.extend(series);
    }

    /// A snapshot of the list and the segments.
    pub fn view(&self) -> View {
        self.lock_state().clone()
    }

    /// The next job of index maintenance, if any. New series are built into a segment when there
    /// are at least `fresh_min`.
    pub(crate) fn next_job(&self, fresh_min: usize) -> Option<IndexJob> {
        let state = self.lock_state();
        if !state.fresh_series.is_empty() && state.fresh_series.len() >= fresh_min {
            return Some(IndexJob::Build(state.fresh_series.clone()));
        }
        let first = first_mergeable(&state.segments)?;
        Some(IndexJob::Merge(state.segments[first..].to_vec()))
    }

    /// Runs a job and replaces its inputs by the result. Only one thread may do so at a time.
    pub fn run_job(&self, job: IndexJob) {
        match job {
            IndexJob::Build(fresh) => {
                let count = fresh.len();
                let segment = Arc::new(Segment::new(fresh));
                let mut state = self.lock_state();
                state.fresh_series.drain(..count);
                let segments = state.segments.iter().cloned();
                state.segments = segments.chain([segment]).collect();
            }
            IndexJob::Merge(segments) => {
                let merged_segment = Arc::new(Segment::merge(&segments, |_| true));
                self.replace_last(segments.len(), merged_segment);
            }
        }
    }

    /// Keeps the series that satisfy `is_kept`. Must not run concurrently with [`Index::run_job`].
    pub fn retain(&self, is_kept: impl Fn(&HeadSeries) -> bool) {
        let view = self.view();
        let retain_in_segment = |segment: &Arc<Segment>| {
            if segment.series().iter().all(|series| is_kept(series)) {
                segment.clone()
            } else {
                Arc::new(Segment::merge(std::slice::from_ref(segment), &is_kept))
            }
        };
        let segments: Arc<[_]> = view
            .segments
            .iter()
            .map(retain_in_segment)
            .collect::<Vec<_>>()
            .into_iter()
            .filter(|segment| !segment.series().is_empty())
            .collect();
        let mut state = self.lock_state();
        state.segments = segments;
        state.fresh_series.retain(|series| is_kept(series));
    }

    fn replace_last(&self, count: usize, replacement: Arc<Segment>) {
        let mut state = self.lock_state();
        let kept_len = state.segments.len() - count;
        let kept_segments = state.segments[..kept_len].iter().cloned();
        state.segments = kept_segments.chain([replacement]).collect();
    }
}

/// Where the last segments begin that are to be merged: each is at most [`MERGE_FAN_IN`] times as
/// large as those after it together, and there are at least [`MERGE_FAN_IN`] of them.
fn first_mergeable(segments: &[Arc<Segment>]) -> Option<usize> {
    let mut first = segments.len();
    let mut later_len = 0;
    while first > 0 {
        let size = segments[first - 1].series().len();
        if later_len > 0 && size > later_len * MERGE_FAN_IN {
            break;
        }
        later_len += size;
        first -= 1;
    }
    (segments.len() - first >= MERGE_FAN_IN).then_some(first)
}

impl View {
    /// Adds the series that match.
    pub fn select(&self, matchers: &[LabelMatcher], into: &mut Vec<Arc<HeadSeries>>) {
        for segment in &*self.segments {
            let numbers = segment.select(matchers);
            into.extend(numbers.iter().map(|number| segment.series()[number as usize].clone()));
        }
        let fresh = self.fresh_series.iter().filter(|series| {
            let matches = |matcher: &LabelMatcher| {
                matcher.matches(series.labels.get(&matcher.matcher().name))
            };
            matchers.iter().all(matches)
        });
        into.extend(fresh.cloned());
    }

    /// Number of series in the view.
    pub fn len(&self) -> usize {
        let segments = self.segments.iter().map(|segment| segment.series().len());
        segments.sum::<usize>() + self.fresh_series.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Every series of the view.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<HeadSeries>> {
        let segments = self.segments.iter().flat_map(|segment| segment.series());
        segments.chain(&self.fresh_series)
    }

    /// Calls a closure for every label name; some occur more than once.
    pub(crate) fn visit_names(&self, mut visit: impl FnMut(&str)) {
        for segment in &*self.segments {
            segment.names().for_each(&mut visit);
        }
        for series in &self.fresh_series {
            series.labels.iter().for_each(|(name, _)| visit(name));
        }
    }

    /// Calls a closure for every value of a label with its number of series; some values occur
    /// more than once.
    pub fn visit_values(&self, name: &str, mut visit: impl FnMut(&str, usize)) {
        for segment in &*self.segments {
            for (value, count) in segment.values(name) {
                visit(value, count);
            }
        }
        for series in &self.fresh_series {
            match series.labels.get(name) {
                "" => {}
                value => visit(value, 1),
            }
        }
    }
}

#[cfg(test)]
mod tests;
