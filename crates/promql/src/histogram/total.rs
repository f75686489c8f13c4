//! Sums and means of many histograms, with what rounding takes from them: of values that differ
//! much in size, and of which the large ones cancel out, the small ones are left.

use super::super::kahan::KahanSum;
use super::{EmptyBuckets, FloatHistogram, HistogramConflicts, Incompatible, Side};

/// Running sum or mean of several histograms.
#[derive(Clone, Debug)]
pub(crate) struct Total {
    /// Their sum, or their mean.
    value: FloatHistogram,
    /// What rounding has taken from it, with the same bounds. Where the value is infinite there is
    /// none.
    compensation: FloatHistogram,
    /// How many there were.
    count: f64,
    /// The sum would have been infinite, so that the value is a mean.
    is_mean: bool,
}

/// One more value: the sum, and what rounding took from this addition.
fn add_with_error(sum: f64, value: f64) -> (f64, f64) {
    let next = KahanSum { sum, compensation: 0.0 }.plus(value);
    if next.sum.is_finite() { (next.sum, next.compensation) } else { (next.sum, 0.0) }
}

/// Adds to a side, and what rounding took to its rest.
fn add_side(side: &mut Side, compensation: &mut Side, other: &Side) {
    let mut sums = Vec::with_capacity(side.len().max(other.len()));
    let mut errors = Side::new();
    let mut others = other.iter().copied().peekable();
    for (index, count) in side.iter().copied() {
        while let Some(skipped) = others.next_if(|(at, _)| *at < index) {
            sums.push(skipped);
        }
        let Some((_, value)) = others.next_if(|(at, _)| *at == index) else {
            sums.push((index, count));
            continue;
        };
        let (sum, error) = add_with_error(count, value);
        if sum != 0.0 {
            sums.push((index, sum));
        }
        if error != 0.0 {
            errors.push((index, error));
        }
    }
    sums.extend(others);
    *side = sums;
    // Counts that are whole numbers lose nothing.
    if !errors.is_empty() {
        *compensation = super::arithmetic::merge_sides(compensation, &errors, 1.0);
    }
}

impl Total {
    pub(crate) fn from_histogram(histogram: &FloatHistogram) -> Self {
        let compensation = FloatHistogram {
            schema: histogram.schema,
            zero_threshold: histogram.zero_threshold,
            custom_bounds: histogram.custom_bounds.clone(),
            ..FloatHistogram::default()
        };
        Self {
            value: FloatHistogram { empty_buckets: EmptyBuckets::default(), ..histogram.clone() },
            compensation,
            count: 1.0,
            is_mean: false,
        }
    }

    /// What it takes in memory, roughly, in bytes.
    pub(crate) fn size_bytes(&self) -> usize {
        self.value.own_bytes() + self.compensation.own_bytes()
    }

    /// One more histogram, of which the sum is wanted.
    pub(crate) fn add(
        &mut self,
        other: &FloatHistogram,
    ) -> Result<HistogramConflicts, Incompatible> {
        self.count += 1.0;
        self.add_value(other)
    }

    /// One more histogram, of which the mean is wanted: it may be finite where the sum is not.
    pub(crate) fn add_to_mean(
        &mut self,
        other: &FloatHistogram,
    ) -> Result<HistogramConflicts, Incompatible> {
        self.count += 1.0;
        if !self.is_mean && !self.value.may_overflow(other) {
            return self.add_value(other);
        }
        if !self.is_mean {
            let mut sum = self.clone();
            let conflicts = sum.add_value(other)?;
            if !sum.value.has_infinities() {
                *self = sum;
                return Ok(conflicts);
            }
            self.value.divide(self.count - 1.0);
            self.compensation.divide(self.count - 1.0);
            self.is_mean = true;
        }
        self.scale((self.count - 1.0) / self.count);
        let mut share = other.clone();
        share.divide(self.count);
        self.add_value(&share)
    }

    /// Adds the total of another part of the series.
    pub(crate) fn merge(
        &mut self,
        other: Self,
        wants_mean: bool,
    ) -> Result<HistogramConflicts, Incompatible> {
        let total_count = self.count + other.count;
        let mut totals = [self.clone(), other];
        let is_mean = totals.iter().any(|total| total.is_mean)
            || wants_mean && totals[0].value.may_overflow(&totals[1].value);
        if is_mean {
            for one in &mut totals {
                let divisor = if one.is_mean { 1.0 } else { one.count };
                one.scale(one.count / total_count / divisor);
            }
        }
        let [mut merged, other] = totals;
        let conflicts = merged.add_value(&other.value)?;
        let counter_reset = merged.value.counter_reset;
        merged.add_value(&other.compensation)?;
        merged.value.counter_reset = counter_reset;
        (merged.count, merged.is_mean) = (total_count, is_mean);
        *self = merged;
        Ok(conflicts)
    }

    pub(crate) fn sum(mut self) -> FloatHistogram {
        let counter_reset = self.value.counter_reset;
        let result = self.value.add_scaled(&self.compensation, 1.0);
        result.expect("a value and its rest have the same bounds");
        self.value.counter_reset = counter_reset;
        self.value
    }

    pub(crate) fn mean(mut self) -> FloatHistogram {
        if !self.is_mean {
            self.value.divide(self.count);
            self.compensation.divide(self.count);
        }
        self.sum()
    }

    fn scale(&mut self, factor: f64) {
        self.value.multiply(factor);
        self.compensation.multiply(factor);
    }

    fn add_value(&mut self, other: &FloatHistogram) -> Result<HistogramConflicts, Incompatible> {
        let mut reconciled_copy = None;
        let mut bounds = false;
        if !self.value.has_same_bounds(other) {
            let mut copy = other.clone();
            bounds = self.value.reconcile_bounds(&mut copy)?;
            self.compensation = self.compensation.with_layout_of(&self.value);
            reconciled_copy = Some(copy);
        }
        let reset_collision = self.value.merge_reset(other.counter_reset);
        let other = reconciled_copy.as_ref().unwrap_or(other);
        let Self { value, compensation: rest, .. } = self;
        for (sum, rest, added_value) in [
            (&mut value.zero_count, &mut rest.zero_count, other.zero_count),
            (&mut value.count, &mut rest.count, other.count),
            (&mut value.sum, &mut rest.sum, other.sum),
        ] {
            let (next, error) = add_with_error(*sum, added_value);
            *sum = next;
            *rest = if next.is_finite() { *rest + error } else { 0.0 };
        }
        add_side(&mut value.positive, &mut rest.positive, &other.positive);
        add_side(&mut value.negative, &mut rest.negative, &other.negative);
        Ok(HistogramConflicts { bounds, reset_collision })
    }
}

impl FloatHistogram {
    /// All its numbers, without bounds.
    fn values(&self) -> impl Iterator<Item = f64> {
        let buckets = self.positive.iter().chain(&self.negative);
        let totals = [self.zero_count, self.count, self.sum];
        totals.into_iter().chain(buckets.map(|(_, count)| *count))
    }

    fn has_infinities(&self) -> bool {
        self.values().any(f64::is_infinite)
    }

    /// Whether a sum of the two may be infinite.
    fn may_overflow(&self, other: &Self) -> bool {
        let is_large = |number: f64| number.abs() > f64::MAX / 4.0;
        self.values().chain(other.values()).any(is_large)
    }
}
