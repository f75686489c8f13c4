//! Summation that keeps what rounding takes away, in Neumaier's variant, as Prometheus adds.

/// Adds to a sum and to what rounding has taken from it.
pub(crate) fn add(increment: f64, sum: &mut f64, compensation: &mut f64) {
    let total = *sum + increment;
    if total.is_infinite() {
        *compensation = 0.0;
    } else if sum.abs() >= increment.abs() {
        *compensation += (*sum - total) + increment;
    } else {
        *compensation += (increment - total) + *sum;
    }
    *sum = total;
}

/// The sum of numbers.
pub(crate) fn sum(values: impl Iterator<Item = f64>) -> f64 {
    let (mut sum, mut compensation) = (0.0, 0.0);
    for value in values {
        add(value, &mut sum, &mut compensation);
    }
    if f64::is_infinite(sum) {
        sum
    } else {
        sum + compensation
    }
}

/// The mean of numbers; one by one where their sum would be too large.
pub(crate) fn mean(values: &[f64]) -> f64 {
    let (mut sum, mut compensation) = (values[0], 0.0);
    for (at, value) in values.iter().enumerate().skip(1) {
        let (mut next, mut next_compensation) = (sum, compensation);
        add(*value, &mut next, &mut next_compensation);
        if next.is_infinite() {
            let mut mean = Mean::after(sum, compensation, at as f64);
            values[at..].iter().for_each(|value| mean.add(*value));
            return mean.value();
        }
        (sum, compensation) = (next, next_compensation);
    }
    (sum + compensation) / values.len() as f64
}

/// A mean that is kept up value by value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mean {
    pub mean: f64,
    pub compensation: f64,
    pub count: f64,
}

impl Mean {
    /// Goes on from a sum of so many values.
    pub(crate) fn after(sum: f64, compensation: f64, count: f64) -> Self {
        Self {
            mean: sum / count,
            compensation: compensation / count,
            count,
        }
    }

    pub(crate) fn add(&mut self, value: f64) {
        self.count += 1.0;
        if self.mean.is_infinite() {
            // An infinite mean stays what it is unless the other infinity or NaN comes.
            let same = value.is_infinite() && (self.mean > 0.0) == (value > 0.0);
            if same || value.is_finite() {
                return;
            }
        }
        let share = (self.count - 1.0) / self.count;
        let (mut mean, mut compensation) = (self.mean * share, self.compensation * share);
        add(value / self.count, &mut mean, &mut compensation);
        self.mean = mean;
        self.compensation = compensation;
    }

    pub(crate) fn value(&self) -> f64 {
        if self.mean.is_infinite() {
            self.mean
        } else {
            self.mean + self.compensation
        }
    }
}
