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
    rest: FloatHistogram,
    /// How many there were.
    count: f64,
    /// The sum would have been infinite, so that the value is a mean.
    is_mean: bool,
}

/// One more value: the sum, and what rounding took from this addition.
fn added(sum: f64, value: f64) -> (f64, f64) {
    let next = KahanSum { sum, rest: 0.0 }.plus(value);
    if next.sum.is_finite() {
        (next.sum, next.rest)
    } else {
        (next.sum, 0.0)
    }
}

/// Adds to a side, and what rounding took to its rest.
fn add_side(side: &mut Side, rest: &mut Side, other: &Side) {
    let mut sums = Vec::with_capacity(side.len().max(other.len()));
    let mut errors = Side::new();
    let mut others = other.iter().copied().peekable();
    for (index, count) in side.iter().copied() {
        while let Some(before) = others.next_if(|(at, _)| *at < index) {
            sums.push(before);
        }
        let Some((_, value)) = others.next_if(|(at, _)| *at == index) else {
            sums.push((index, count));
            continue;
        };
        let (sum, error) = added(count, value);
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
        *rest = super::arithmetic::merge(rest, &errors, 1.0);
    }
}

impl Total {
    pub(crate) fn of(histogram: &FloatHistogram) -> Self {
        let rest = FloatHistogram {
            schema: histogram.schema,
            zero_threshold: histogram.zero_threshold,
            custom_bounds: histogram.custom_bounds.clone(),
            ..FloatHistogram::default()
        };
        Self {
            value: FloatHistogram {
                empty_buckets: EmptyBuckets::default(),
                ..histogram.clone()
            },
            rest,
            count: 1.0,
            is_mean: false,
        }
    }

    /// What it takes in memory, roughly, in bytes.
    pub(crate) fn size_bytes(&self) -> usize {
        self.value.own_bytes() + self.rest.own_bytes()
    }

    /// One more histogram, of which the sum is wanted.
    pub(crate) fn add(
        &mut self,
        other: &FloatHistogram,
    ) -> Result<HistogramConflicts, Incompatible> {
        self.count += 1.0;
        self.plus(other)
    }

    /// One more histogram, of which the mean is wanted: it may be finite where the sum is not.
    pub(crate) fn average(
        &mut self,
        other: &FloatHistogram,
    ) -> Result<HistogramConflicts, Incompatible> {
        self.count += 1.0;
        if !self.is_mean && !self.value.may_overflow(other) {
            return self.plus(other);
        }
        if !self.is_mean {
            let mut sum = self.clone();
            let reconciled = sum.plus(other)?;
            if !sum.value.has_infinities() {
                *self = sum;
                return Ok(reconciled);
            }
            self.value.divide(self.count - 1.0);
            self.rest.divide(self.count - 1.0);
            self.is_mean = true;
        }
        self.scale((self.count - 1.0) / self.count);
        let mut share = other.clone();
        share.divide(self.count);
        self.plus(&share)
    }

    /// Adds the total of another part of the series.
    pub(crate) fn join(
        &mut self,
        other: Self,
        wants_mean: bool,
    ) -> Result<HistogramConflicts, Incompatible> {
        let all = self.count + other.count;
        let mut both = [self.clone(), other];
        let is_mean = both.iter().any(|one| one.is_mean)
            || wants_mean && both[0].value.may_overflow(&both[1].value);
        if is_mean {
            for one in &mut both {
                let divisor = if one.is_mean { 1.0 } else { one.count };
                one.scale(one.count / all / divisor);
            }
        }
        let [mut joined, other] = both;
        let reconciled = joined.plus(&other.value)?;
        let said = joined.value.counter_reset;
        joined.plus(&other.rest)?;
        joined.value.counter_reset = said;
        (joined.count, joined.is_mean) = (all, is_mean);
        *self = joined;
        Ok(reconciled)
    }

    pub(crate) fn sum(mut self) -> FloatHistogram {
        let said = self.value.counter_reset;
        let added = self.value.combine(&self.rest, 1.0);
        added.expect("a value and its rest have the same bounds");
        self.value.counter_reset = said;
        self.value
    }

    pub(crate) fn mean(mut self) -> FloatHistogram {
        if !self.is_mean {
            self.value.divide(self.count);
            self.rest.divide(self.count);
        }
        self.sum()
    }

    fn scale(&mut self, factor: f64) {
        self.value.multiply(factor);
        self.rest.multiply(factor);
    }

    fn plus(&mut self, other: &FloatHistogram) -> Result<HistogramConflicts, Incompatible> {
        let mut changed = None;
        let mut bounds = false;
        if !self.value.has_bounds_of(other) {
            let mut copy = other.clone();
            bounds = self.value.reconcile(&mut copy)?;
            self.rest = self.rest.laid_out_as(&self.value);
            changed = Some(copy);
        }
        let reset_collision = self.value.join_reset(other.counter_reset);
        let other = changed.as_ref().unwrap_or(other);
        let Self { value, rest, .. } = self;
        for (sum, rest, added_value) in [
            (
                &mut value.zero_count,
                &mut rest.zero_count,
                other.zero_count,
            ),
            (&mut value.count, &mut rest.count, other.count),
            (&mut value.sum, &mut rest.sum, other.sum),
        ] {
            let (next, error) = added(*sum, added_value);
            *sum = next;
            *rest = if next.is_finite() { *rest + error } else { 0.0 };
        }
        add_side(&mut value.positive, &mut rest.positive, &other.positive);
        add_side(&mut value.negative, &mut rest.negative, &other.negative);
        Ok(HistogramConflicts {
            bounds,
            reset_collision,
        })
    }
}

impl FloatHistogram {
    /// All its numbers, without bounds.
    fn numbers(&self) -> impl Iterator<Item = f64> {
        let buckets = self.positive.iter().chain(&self.negative);
        let whole = [self.zero_count, self.count, self.sum];
        whole.into_iter().chain(buckets.map(|(_, count)| *count))
    }

    fn has_infinities(&self) -> bool {
        self.numbers().any(f64::is_infinite)
    }

    /// Whether a sum of the two may be infinite.
    fn may_overflow(&self, other: &Self) -> bool {
        let is_large = |number: f64| number.abs() > f64::MAX / 4.0;
        self.numbers().chain(other.numbers()).any(is_large)
    }
}
