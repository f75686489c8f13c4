//! Adding, subtracting, scaling, and finding out whether counts began anew.

use std::cmp::Ordering;
use std::sync::Arc;

use egret_metrics_model::CounterReset;

use super::{CUSTOM_SCHEMA, EmptyBuckets, FloatHistogram, Side};

/// One histogram has exponential bounds, the other lists its own: there is no sum of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incompatible;

/// What had to be done so that two histograms could be put together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HistogramConflicts {
    /// Their lists of bounds differed; those that both have were kept.
    pub bounds: bool,
    /// One has the hint of a counter reset, the other that of none.
    pub reset_collision: bool,
}

/// Which of the two contradicting reset hints the histograms of a sum had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResetConflict {
    reset: bool,
    not_reset: bool,
}

impl ResetConflict {
    pub(crate) fn add(&mut self, reset: CounterReset) {
        self.reset |= reset == CounterReset::Reset;
        self.not_reset |= reset == CounterReset::NotReset;
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.reset |= other.reset;
        self.not_reset |= other.not_reset;
    }

    pub(crate) fn is_contradictory(self) -> bool {
        self.reset && self.not_reset
    }
}

/// The sum of two sides, the second one times `factor`.
pub(super) fn merge_sides(left: &Side, right: &Side, factor: f64) -> Side {
    let mut merged = Vec::with_capacity(left.len().max(right.len()));
    let (mut a, mut b) = (left.iter().peekable(), right.iter().peekable());
    loop {
        let next = match (a.peek(), b.peek()) {
            (Some((i, _)), Some((j, _))) if i == j => {
                let (left, right) = (a.next(), b.next());
                left.zip(right).map(|(l, r)| (l.0, l.1 + factor * r.1))
            }
            (Some((i, _)), Some((j, _))) if i > j => b.next().map(|r| (r.0, factor * r.1)),
            (Some(_), _) => a.next().copied(),
            (None, Some(_)) => b.next().map(|r| (r.0, factor * r.1)),
            (None, None) => return merged,
        };
        merged.extend(next.filter(|(_, count)| *count != 0.0));
    }
}

/// Buckets whose indices become others; those that become the same are added.
fn reindex(side: &Side, new_index: impl Fn(i32) -> i32) -> Side {
    let mut result: Side = Vec::with_capacity(side.len());
    for (old, count) in side {
        let new = new_index(*old);
        match result.last_mut() {
            Some((last, sum)) if *last == new => *sum += count,
            _ => result.push((new, *count)),
        }
    }
    result
}

/// Whether a bucket holds less than before.
fn has_decrease(current: &Side, previous: &Side) -> bool {
    merge_sides(current, previous, -1.0).iter().any(|(_, left)| *left < 0.0)
}

/// What a sum says of resets, and whether its parts contradict each other.
pub(crate) fn combine_resets(left: CounterReset, right: CounterReset) -> (CounterReset, bool) {
    use CounterReset::{Gauge, NotReset, Reset, Unknown};
    match (left, right) {
        (left, right) if left == right => (left, false),
        (Gauge, _) | (_, Gauge) => (Gauge, false),
        (Reset, NotReset) | (NotReset, Reset) => (Unknown, true),
        _ => (Unknown, false),
    }
}

/// The bounds that both lists have.
fn common_bounds(left: &[f64], right: &[f64]) -> Arc<[f64]> {
    let both = left.iter().filter(|bound| right.contains(bound));
    both.copied().collect()
}

impl FloatHistogram {
    /// The same with fewer, wider buckets.
    pub(crate) fn with_schema(&self, schema: i32) -> Self {
        let mut coarser = self.clone();
        if schema < self.schema && schema != CUSTOM_SCHEMA {
            let shift = (self.schema - schema) as u32;
            let coarser_index = |old: i32| ((old - 1) >> shift) + 1;
            coarser.positive = reindex(&self.positive, coarser_index);
            coarser.negative = reindex(&self.negative, coarser_index);
            coarser.schema = schema;
        }
        coarser
    }

    /// The same with only those bounds, each of which it has.
    fn with_bounds(&self, bounds: &Arc<[f64]>) -> Self {
        let new_index = |old: i32| match self.custom_bounds.get(old as usize) {
            Some(upper) => bounds.partition_point(|bound| bound < upper) as i32,
            None => bounds.len() as i32,
        };
        Self {
            positive: reindex(&self.positive, new_index),
            custom_bounds: Arc::clone(bounds),
            ..self.clone()
        }
    }

    /// Widens the bucket around zero to at least this threshold, and further where that would
    /// divide a bucket that is not empty. A threshold that is no number stays, and widens nothing.
    fn widen_zero(&mut self, threshold: f64) {
        let is_wider = threshold > self.zero_threshold;
        if !is_wider {
            return;
        }
        let mut bound = threshold;
        let sides = [&self.positive, &self.negative];
        let extend_past_buckets = |reach: f64, side: &Side| {
            let touched = side.iter().rev();
            let mut touched =
                touched.map(|(index, _)| (self.upper_bound(*index - 1), self.upper_bound(*index)));
            touched.find(|(lower, _)| *lower < reach).map_or(reach, |(_, upper)| upper.max(reach))
        };
        loop {
            let widened = sides.iter().fold(bound, |reach, side| extend_past_buckets(reach, side));
            if widened <= bound {
                break;
            }
            bound = widened;
        }
        let is_outside = |index: i32| self.upper_bound(index) > bound;
        let (mut zero_count, mut outside) = (0.0, [Side::new(), Side::new()]);
        for (side, kept) in sides.into_iter().zip(&mut outside) {
            for (index, count) in side {
                if is_outside(*index) { kept.push((*index, *count)) } else { zero_count += count }
            }
        }
        [self.positive, self.negative] = outside;
        self.zero_count += zero_count;
        self.zero_threshold = bound;
    }

    /// Gives both the same bounds: the coarser schema, the wider zero, the bounds that both have.
    pub(super) fn reconcile_bounds(&mut self, other: &mut Self) -> Result<bool, Incompatible> {
        if self.is_custom() != other.is_custom() {
            return Err(Incompatible);
        }
        if self.is_custom() {
            if self.custom_bounds == other.custom_bounds {
                return Ok(false);
            }
            let bounds = common_bounds(&self.custom_bounds, &other.custom_bounds);
            *self = self.with_bounds(&bounds);
            *other = other.with_bounds(&bounds);
            return Ok(true);
        }
        // Thresholds that are no numbers, as older versions took them in, are left as they are:
        // they never become equal.
        let have_different_thresholds = |left: &Self, right: &Self| {
            let compared = left.zero_threshold.partial_cmp(&right.zero_threshold);
            compared.is_some_and(Ordering::is_ne)
        };
        while have_different_thresholds(self, other) {
            self.widen_zero(other.zero_threshold);
            other.widen_zero(self.zero_threshold);
        }
        let schema = self.schema.min(other.schema);
        if self.schema != schema {
            *self = self.with_schema(schema);
        }
        if other.schema != schema {
            *other = other.with_schema(schema);
        }
        Ok(false)
    }

    pub(super) fn has_same_bounds(&self, other: &Self) -> bool {
        self.schema == other.schema
            && self.zero_threshold == other.zero_threshold
            && self.custom_bounds == other.custom_bounds
    }

    /// The same with the bounds of another, which are coarser.
    pub(super) fn with_layout_of(&self, other: &Self) -> Self {
        if self.is_custom() {
            return self.with_bounds(&other.custom_bounds);
        }
        let mut converted = self.with_schema(other.schema);
        converted.zero_threshold = other.zero_threshold;
        for side in [&mut converted.positive, &mut converted.negative] {
            let is_in_zero_bucket =
                |(index, _): &(i32, f64)| other.upper_bound(*index) <= other.zero_threshold;
            let inside = side.drain(..side.partition_point(is_in_zero_bucket));
            converted.zero_count += inside.map(|(_, count)| count).sum::<f64>();
        }
        converted
    }

    /// Adds `factor` times another. What the result says of resets is decided by the caller.
    pub(super) fn add_scaled(&mut self, other: &Self, factor: f64) -> Result<bool, Incompatible> {
        let mut reconciled_copy = None;
        let mut bounds = false;
        if !self.has_same_bounds(other) {
            let mut copy = other.clone();
            bounds = self.reconcile_bounds(&mut copy)?;
            reconciled_copy = Some(copy);
        }
        let other = reconciled_copy.as_ref().unwrap_or(other);
        self.zero_count += factor * other.zero_count;
        self.count += factor * other.count;
        self.sum += factor * other.sum;
        self.positive = merge_sides(&self.positive, &other.positive, factor);
        self.negative = merge_sides(&self.negative, &other.negative, factor);
        self.empty_buckets = EmptyBuckets::default();
        Ok(bounds)
    }

    /// Adds another.
    ///
    /// # Errors
    /// [`Incompatible`] where one lists its bounds and the other does not.
    pub fn add(&mut self, other: &Self) -> Result<HistogramConflicts, Incompatible> {
        let bounds = self.add_scaled(other, 1.0)?;
        let reset_collision = self.merge_reset(other.counter_reset);
        Ok(HistogramConflicts { bounds, reset_collision })
    }

    /// Subtracts another; the difference is a gauge.
    ///
    /// # Errors
    /// [`Incompatible`] where one lists its bounds and the other does not.
    pub fn subtract(&mut self, other: &Self) -> Result<HistogramConflicts, Incompatible> {
        let bounds = self.add_scaled(other, -1.0)?;
        let reset_collision = self.merge_reset(other.counter_reset);
        self.counter_reset = CounterReset::Gauge;
        Ok(HistogramConflicts { bounds, reset_collision })
    }

    /// Says of resets what a sum with another does; true when the two contradict each other.
    pub(crate) fn merge_reset(&mut self, other: CounterReset) -> bool {
        let (joined, collision) = combine_resets(self.counter_reset, other);
        self.counter_reset = joined;
        collision
    }

    /// Multiplies everything. A negative factor makes a gauge of it.
    pub(crate) fn multiply(&mut self, factor: f64) {
        self.map_values(|count| count * factor);
        if factor < 0.0 {
            self.counter_reset = CounterReset::Gauge;
        }
    }

    /// Divides everything. By zero, there are no buckets left.
    pub fn divide(&mut self, divisor: f64) {
        self.map_values(|count| count / divisor);
        if divisor == 0.0 {
            self.positive.clear();
            self.negative.clear();
        }
        if divisor < 0.0 {
            self.counter_reset = CounterReset::Gauge;
        }
    }

    fn map_values(&mut self, change: impl Fn(f64) -> f64) {
        self.zero_count = change(self.zero_count);
        self.count = change(self.count);
        self.sum = change(self.sum);
        let buckets = self.positive.iter_mut().chain(&mut self.negative);
        for (_, count) in buckets {
            *count = change(*count);
        }
        self.positive.retain(|(_, count)| *count != 0.0);
        self.negative.retain(|(_, count)| *count != 0.0);
    }

    /// Whether the counters were reset since `previous`.
    pub(crate) fn is_reset_since(&self, previous: &Self) -> bool {
        match self.counter_reset {
            CounterReset::Reset => return true,
            CounterReset::NotReset => return false,
            CounterReset::Unknown | CounterReset::Gauge => {}
        }
        if self.count < previous.count || self.is_custom() != previous.is_custom() {
            return true;
        }
        if self.is_custom() && self.custom_bounds != previous.custom_bounds {
            let bounds = common_bounds(&self.custom_bounds, &previous.custom_bounds);
            let (now, before) = (self.with_bounds(&bounds), previous.with_bounds(&bounds));
            return has_decrease(&now.positive, &before.positive);
        }
        if self.schema > previous.schema || self.zero_threshold < previous.zero_threshold {
            return true;
        }
        let mut widened = previous.clone();
        widened.widen_zero(self.zero_threshold);
        if widened.zero_threshold != self.zero_threshold || self.zero_count < widened.zero_count {
            return true;
        }
        let coarsened = widened.with_schema(self.schema);
        has_decrease(&self.positive, &coarsened.positive)
            || has_decrease(&self.negative, &coarsened.negative)
    }
}
