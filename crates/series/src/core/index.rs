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
pub(crate) const FRESH_MAX: usize = 1_024;

/// Number of segments of like size that are merged into one.
const FAN: usize = 4;

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
    fresh: Vec<Arc<HeadSeries>>,
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
    fn state(&self) -> MutexGuard<'_, View> {
        lock(&self.state)
    }

    /// Adds new series to the list of those without a segment.
    pub fn add(&self, series: impl Iterator<Item = Arc<HeadSeries>>) {
        self.state().fresh.extend(series);
    }

    /// A snapshot of the list and the segments.
    pub fn view(&self) -> View {
        self.state().clone()
    }

    /// New series that are in no segment.
    pub fn fresh(&self) -> usize {
        self.state().fresh.len()
    }

    /// The next job of index maintenance, if any. New series are built into a segment when there
    /// are at least `fresh_min`.
    pub fn work(&self, fresh_min: usize) -> Option<IndexJob> {
        let state = self.state();
        if !state.fresh.is_empty() && state.fresh.len() >= fresh_min {
            return Some(IndexJob::Build(state.fresh.clone()));
        }
        let at = mergeable(&state.segments)?;
        Some(IndexJob::Merge(state.segments[at..].to_vec()))
    }

    /// Runs a job and replaces its inputs by the result. Only one thread may do so at a time.
    pub fn carry_out(&self, work: IndexJob) {
        match work {
            IndexJob::Build(fresh) => {
                let count = fresh.len();
                let segment = Arc::new(Segment::new(fresh));
                let mut state = self.state();
                state.fresh.drain(..count);
                let segments = state.segments.iter().cloned();
                state.segments = segments.chain([segment]).collect();
            }
            IndexJob::Merge(segments) => {
                let merged = Arc::new(Segment::merge(&segments, |_| true));
                self.replace_last(segments.len(), merged);
            }
        }
    }

    /// Removes the other series. Must not run at the same time as [`Index::carry_out`].
    pub fn retain(&self, wanted: impl Fn(&HeadSeries) -> bool) {
        let view = self.view();
        let kept = |segment: &Arc<Segment>| {
            if segment.series().iter().all(|series| wanted(series)) {
                segment.clone()
            } else {
                Arc::new(Segment::merge(std::slice::from_ref(segment), &wanted))
            }
        };
        let segments: Arc<[_]> = view
            .segments
            .iter()
            .map(kept)
            .collect::<Vec<_>>()
            .into_iter()
            .filter(|segment| !segment.series().is_empty())
            .collect();
        let mut state = self.state();
        state.segments = segments;
        state.fresh.retain(|series| wanted(series));
    }

    fn replace_last(&self, count: usize, by: Arc<Segment>) {
        let mut state = self.state();
        let kept = state.segments.len() - count;
        let kept = state.segments[..kept].iter().cloned();
        state.segments = kept.chain([by]).collect();
    }
}

/// Where the last segments begin that are to be merged: each is at most [`FAN`] times as large as
/// those after it together, and there are at least [`FAN`] of them.
fn mergeable(segments: &[Arc<Segment>]) -> Option<usize> {
    let mut from = segments.len();
    let mut after = 0;
    while from > 0 {
        let size = segments[from - 1].series().len();
        if after > 0 && size > after * FAN {
            break;
        }
        after += size;
        from -= 1;
    }
    (segments.len() - from >= FAN).then_some(from)
}

impl View {
    /// Adds the series that match.
    pub fn select(&self, matchers: &[LabelMatcher], into: &mut Vec<Arc<HeadSeries>>) {
        for segment in &*self.segments {
            let numbers = segment.select(matchers);
            into.extend(
                numbers
                    .iter()
                    .map(|at| segment.series()[at as usize].clone()),
            );
        }
        let fresh = self.fresh.iter().filter(|series| {
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
        segments.sum::<usize>() + self.fresh.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Every series of the view.
    pub fn all(&self) -> impl Iterator<Item = &Arc<HeadSeries>> {
        let segments = self.segments.iter().flat_map(|segment| segment.series());
        segments.chain(&self.fresh)
    }

    /// Calls a closure for every label name; some occur more than once.
    pub fn names(&self, mut tell: impl FnMut(&str)) {
        for segment in &*self.segments {
            segment.names().for_each(&mut tell);
        }
        for series in &self.fresh {
            series.labels.iter().for_each(|(name, _)| tell(name));
        }
    }

    /// Calls a closure for every value of a label with its number of series; some values occur
    /// more than once.
    pub fn values(&self, name: &str, mut tell: impl FnMut(&str, usize)) {
        for segment in &*self.segments {
            for (value, count) in segment.values(name) {
                tell(value, count);
            }
        }
        for series in &self.fresh {
            match series.labels.get(name) {
                "" => {}
                value => tell(value, 1),
            }
        }
    }
}

#[cfg(test)]
mod tests;
