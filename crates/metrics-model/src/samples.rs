//! Samples of one series, decoded.

use std::sync::Arc;

use super::{Histogram, TimeMs};

/// What a series has in some span of time: numbers and native histograms apart, each by ascending
/// time, no time twice within either. Made to be used again for the next series, so that it is
/// allocated once.
#[derive(Clone, Debug, Default)]
pub struct SeriesSamples {
    /// Times of the numbers, in milliseconds.
    pub times_ms: Vec<TimeMs>,
    /// As many as there are times; staleness markers among them.
    pub values: Vec<f64>,
    /// Times of the native histograms, in milliseconds.
    pub histogram_times_ms: Vec<TimeMs>,
    /// Histograms, one for each of their times.
    pub histograms: Vec<Arc<Histogram>>,
}

impl SeriesSamples {
    /// Removes all samples and keeps the memory.
    pub fn clear(&mut self) {
        self.times_ms.clear();
        self.values.clear();
        self.histogram_times_ms.clear();
        self.histograms.clear();
    }

    /// Number of samples, histograms included.
    pub fn len(&self) -> usize {
        self.times_ms.len() + self.histogram_times_ms.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds samples that come after those that are there.
    pub fn append(&mut self, mut later: Self) {
        self.times_ms.append(&mut later.times_ms);
        self.values.append(&mut later.values);
        self.histogram_times_ms.append(&mut later.histogram_times_ms);
        self.histograms.append(&mut later.histograms);
    }

    /// Brings the numbers into order. Of several at one time the one that stood last counts.
    pub fn sort_numbers(&mut self) {
        sort_by_time(&mut self.times_ms, &mut self.values);
    }

    /// Brings the native histograms into order. Of several at one time the one that stood last
    /// counts.
    pub fn sort_histograms(&mut self) {
        sort_by_time(&mut self.histogram_times_ms, &mut self.histograms);
    }
}

fn sort_by_time<V: Clone>(times_ms: &mut Vec<TimeMs>, values: &mut Vec<V>) {
    let mut order: Vec<usize> = (0..times_ms.len()).collect();
    // Stable: what stood later at the same time stays behind, and is kept.
    order.sort_by_key(|at| times_ms[*at]);
    let is_last = |index: usize| {
        let next = order.get(index + 1);
        next.is_none_or(|next| times_ms[*next] != times_ms[order[index]])
    };
    let kept_indexes: Vec<usize> =
        (0..order.len()).filter(|at| is_last(*at)).map(|at| order[at]).collect();
    *values = kept_indexes.iter().map(|at| values[*at].clone()).collect();
    *times_ms = kept_indexes.iter().map(|at| times_ms[*at]).collect();
}
