//! Summation that keeps what rounding takes away, in Neumaier's variant, as Prometheus adds.

/// A sum and what rounding has taken from it. Once a sum has overflowed the rest means nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KahanSum {
    pub sum: f64,
    pub compensation: f64,
}

impl KahanSum {
    /// Of nothing. Negative zero: adding to it changes nothing, not even the sign of a zero.
    pub(crate) const EMPTY: Self = Self { sum: -0.0, compensation: 0.0 };

    pub(crate) fn from_values(values: &[f64]) -> Self {
        let [sum] = Self::from_items(values, |value| [value]);
        sum
    }

    /// Sums of what each item comes to. Of more than a few items several sums are kept and joined
    /// in the end: an addition need not wait for the one before it.
    pub(crate) fn from_items<T: Copy, const N: usize>(
        items: &[T],
        to_values: impl Fn(T) -> [f64; N],
    ) -> [Self; N] {
        const LANES: usize = 4;
        const ITEMS_MIN: usize = 16;
        let add = |sums: &mut [Self; N], item: T| {
            for (sum, value) in sums.iter_mut().zip(to_values(item)) {
                *sum = sum.plus(value);
            }
        };
        let mut sums = [Self::EMPTY; N];
        if items.len() < ITEMS_MIN {
            items.iter().for_each(|item| add(&mut sums, *item));
            return sums;
        }
        let mut lanes = [sums; LANES];
        let chunks = items.chunks_exact(LANES);
        let rest = chunks.remainder();
        for chunk in chunks {
            for (lane, item) in lanes.iter_mut().zip(chunk) {
                add(lane, *item);
            }
        }
        for lane in lanes {
            for (sum, other) in sums.iter_mut().zip(lane) {
                *sum = sum.merge(other);
            }
        }
        rest.iter().for_each(|item| add(&mut sums, *item));
        sums
    }

    /// One more value. The rest is the exact error of the addition, found without asking which of
    /// the two is larger, so that several sums can be kept at once.
    #[inline]
    pub(crate) fn plus(self, value: f64) -> Self {
        let sum = self.sum + value;
        let added = sum - self.sum;
        let error = (self.sum - (sum - added)) + (value - added);
        Self { sum, compensation: self.compensation + error }
    }

    pub(crate) fn merge(self, other: Self) -> Self {
        let mut merged = self.plus(other.sum);
        merged.compensation += other.compensation;
        merged
    }

    pub(crate) fn value(self) -> f64 {
        if self.sum.is_finite() { self.sum + self.compensation } else { self.sum }
    }

    /// As [`KahanSum::plus`]; what rounding took from an infinite sum is nothing.
    fn plus_finite(self, value: f64) -> Self {
        let next = self.plus(value);
        if next.sum.is_infinite() { Self { compensation: 0.0, ..next } } else { next }
    }

    fn total(self) -> f64 {
        self.sum + self.compensation
    }

    /// The sum divided by a count. Sum and rest are divided before they are added, as
    /// Prometheus does.
    pub(crate) fn mean(self, count: f64) -> f64 {
        if self.sum.is_finite() {
            self.sum / count + self.compensation / count
        } else {
            self.sum / count
        }
    }
}

/// The mean of numbers; one by one where their sum would be too large.
pub(crate) fn mean(values: &[f64]) -> f64 {
    let sum = KahanSum::from_values(values);
    if sum.sum.is_finite() {
        return sum.mean(values.len() as f64);
    }
    let mut sum = KahanSum::EMPTY;
    for (index, value) in values.iter().enumerate() {
        let next = sum.plus(*value);
        if next.sum.is_infinite() && index > 0 {
            let mut mean = Mean::from_sum(sum, index as f64);
            values[index..].iter().for_each(|value| mean.add(*value));
            return mean.value();
        }
        sum = next;
    }
    sum.mean(values.len() as f64)
}

/// The variance from a mean that is kept up value by value, which stays finite where a sum of
/// values does not.
pub(crate) fn running_variance(values: &[f64]) -> f64 {
    let empty = KahanSum { sum: 0.0, compensation: 0.0 };
    let (mut mean, mut squares, mut count) = (empty, empty, 0.0);
    for value in values {
        count += 1.0;
        let delta = value - mean.total();
        mean = mean.plus_finite(delta / count);
        squares = squares.plus_finite(delta * (value - mean.total()));
    }
    squares.total() / count
}

/// A mean that is kept up value by value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mean {
    pub mean: KahanSum,
    pub count: f64,
}

impl Mean {
    /// Goes on from a sum of so many values.
    pub(crate) fn from_sum(sum: KahanSum, count: f64) -> Self {
        let compensation = if sum.sum.is_finite() { sum.compensation } else { 0.0 };
        let mean = KahanSum { sum: sum.sum / count, compensation: compensation / count };
        Self { mean, count }
    }

    pub(crate) fn add(&mut self, value: f64) {
        self.count += 1.0;
        if self.mean.sum.is_infinite() {
            // An infinite mean stays what it is unless the other infinity or NaN comes.
            let is_same_infinity = value.is_infinite() && (self.mean.sum > 0.0) == (value > 0.0);
            if is_same_infinity || value.is_finite() {
                return;
            }
        }
        let share = (self.count - 1.0) / self.count;
        let scaled =
            KahanSum { sum: self.mean.sum * share, compensation: self.mean.compensation * share };
        self.mean = scaled.plus(value / self.count);
    }

    pub(crate) fn value(&self) -> f64 {
        self.mean.value()
    }
}
