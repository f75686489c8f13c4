//! Intermediate results: one row per series, with one slot per step.
//!
//! A step without a sample holds the staleness marker's bits among the values. No result of a
//! computation has those bits, as selectors take markers out and arithmetic makes other NaNs.

use std::sync::Arc;

use egret_metrics_model::{Labels, METRIC_NAME, STALE_NAN_BITS, TimeMs, is_stale};

use super::histogram::{self, FloatHistogram};

/// The steps of an evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grid {
    pub start: TimeMs,
    pub step_ms: i64,
    pub count: usize,
    /// No step is after it; the last one may be before.
    pub end: TimeMs,
}

impl Grid {
    pub(crate) fn time(self, step: usize) -> TimeMs {
        self.start + self.step_ms * step as i64
    }

    pub(crate) fn last_time(self) -> TimeMs {
        self.time(self.count.saturating_sub(1))
    }

    /// Only the first step.
    pub(crate) fn first_step(self) -> Self {
        Self { count: 1, end: self.start, ..self }
    }
}

/// A sample at a step.
#[derive(Clone, Debug)]
pub(crate) enum Point {
    Float(f64),
    Histogram(Arc<FloatHistogram>),
}

/// Whether a label says what a metric is: its name, or its type or unit where those are labels.
/// Such labels are dropped when the result is a different quantity, and are ignored by vector
/// matching unless named.
pub(crate) fn is_metadata(label: &str) -> bool {
    matches!(label, METRIC_NAME | "__type__" | "__unit__")
}

pub(crate) fn absent_value() -> f64 {
    f64::from_bits(STALE_NAN_BITS)
}

/// One sample or none for each step.
#[derive(Clone, Debug, Default)]
pub(crate) struct Row {
    pub values: Vec<f64>,
    /// Empty as long as there is no histogram. Where there is one, the value is absent.
    pub histograms: Vec<Option<Arc<FloatHistogram>>>,
}

impl Row {
    pub(crate) fn absent(steps: usize) -> Self {
        Self { values: vec![absent_value(); steps], histograms: Vec::new() }
    }

    pub(crate) fn reset(&mut self, steps: usize) {
        self.values.clear();
        self.values.resize(steps, absent_value());
        self.histograms.clear();
    }

    pub(crate) fn float(&self, step: usize) -> Option<f64> {
        let value = self.values[step];
        (!is_stale(value)).then_some(value)
    }

    pub(crate) fn histogram(&self, step: usize) -> Option<&Arc<FloatHistogram>> {
        self.histograms.get(step)?.as_ref()
    }

    pub(crate) fn has_sample(&self, step: usize) -> bool {
        !is_stale(self.values[step]) || self.histogram(step).is_some()
    }

    pub(crate) fn is_empty(&self) -> bool {
        !(0..self.values.len()).any(|step| self.has_sample(step))
    }

    pub(crate) fn get(&self, step: usize) -> Option<Point> {
        match self.histogram(step) {
            Some(histogram) => Some(Point::Histogram(Arc::clone(histogram))),
            None => self.float(step).map(Point::Float),
        }
    }

    pub(crate) fn set(&mut self, step: usize, point: Option<Point>) {
        match point {
            Some(Point::Float(value)) => {
                self.values[step] = value;
                self.clear_histogram(step);
            }
            Some(Point::Histogram(histogram)) => {
                self.values[step] = absent_value();
                self.histograms.resize(self.values.len(), None);
                self.histograms[step] = Some(histogram);
            }
            None => {
                self.values[step] = absent_value();
                self.clear_histogram(step);
            }
        }
    }

    fn clear_histogram(&mut self, step: usize) {
        if let Some(histogram) = self.histograms.get_mut(step) {
            *histogram = None;
        }
    }

    /// Changes every sample; those that become none are taken out.
    pub(crate) fn map(&mut self, mut change: impl FnMut(usize, Point) -> Option<Point>) {
        for step in 0..self.values.len() {
            if let Some(point) = self.get(step) {
                let changed = change(step, point);
                self.set(step, changed);
            }
        }
    }

    /// The sample of the first step at each of so many.
    pub(crate) fn broadcast(&mut self, steps: usize) {
        self.values.resize(steps, self.values[0]);
        if let Some(first) = self.histograms.first().cloned() {
            self.histograms.resize(steps, first);
        }
    }

    /// What it takes in memory, roughly, in bytes.
    pub(crate) fn size_bytes(&self) -> u64 {
        let places = size_of_val(&*self.values) + size_of_val(&*self.histograms);
        places as u64 + histogram::size_bytes(self.histograms.iter().flatten())
    }
}

/// A row with its labels.
#[derive(Clone, Debug)]
pub(crate) struct LabeledRow {
    pub labels: Labels,
    /// Whether the metric name no longer applies. It is dropped only at the end of the query,
    /// because label functions may still read it.
    pub drop_name: bool,
    pub row: Row,
}

/// The value of an expression over the steps.
#[derive(Clone, Debug)]
pub(crate) enum ExprValue {
    Scalar(Vec<f64>),
    Text(Vec<u8>),
    Vector(Vec<LabeledRow>),
}
