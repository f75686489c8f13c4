//! Samples of one series, decoded.

use std::sync::Arc;

use super::{Histogram, TimeMs};

/// What a series has in some span of time: numbers and native histograms apart, each by ascending time, no time
/// twice within either. Made to be used again for the next series, so that it is allocated once.
#[derive(Clone, Debug, Default)]
pub struct SeriesSamples {
    /// Of the numbers.
    pub times_ms: Vec<TimeMs>,
    /// As many as there are times; staleness markers among them.
    pub values: Vec<f64>,
    /// Of the native histograms.
    pub histogram_times_ms: Vec<TimeMs>,
    /// As many as there are times.
    pub histograms: Vec<Arc<Histogram>>,
}

impl SeriesSamples {
    /// Takes everything out and keeps the memory.
    pub fn clear(&mut self) {
        self.times_ms.clear();
        self.values.clear();
        self.histogram_times_ms.clear();
        self.histograms.clear();
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.times_ms.len() + self.histogram_times_ms.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
