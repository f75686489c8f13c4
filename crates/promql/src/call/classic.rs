//! Classic histograms: series of one bucket each, told apart by the label `le`.

/// A bucket: what was at most its bound.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClassicBucket {
    pub upper: f64,
    pub count: f64,
}

/// What is below is rounding, not a count that fell.
const PRECISION: f64 = 1e-12;

/// Whether the last bucket has all observations.
fn is_complete(buckets: &[ClassicBucket]) -> bool {
    buckets.last().is_some_and(|last| last.upper == f64::INFINITY)
}

/// Changes that were made so that counts ascend.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct MonotonicityFix {
    /// The lowest and the highest bound of a bucket whose count was raised.
    pub bounds: (f64, f64),
    /// The largest change of a count.
    pub difference: f64,
}

/// Makes counts ascend; says what was changed if it was more than rounding.
fn fix_monotonicity(buckets: &mut [ClassicBucket]) -> Option<MonotonicityFix> {
    let mut fix: Option<MonotonicityFix> = None;
    let mut highest = buckets[0].count;
    for bucket in &mut buckets[1..] {
        let count = bucket.count;
        if count == highest {
            continue;
        }
        if is_rounding(highest, count) {
            bucket.count = highest;
        } else if count < highest {
            bucket.count = highest;
            let (upper, difference) = (bucket.upper, highest - count);
            let forced = fix.get_or_insert(MonotonicityFix { bounds: (upper, upper), difference });
            forced.bounds.1 = upper;
            forced.difference = forced.difference.max(difference);
        } else {
            highest = count;
        }
    }
    fix
}

/// Whether two counts differ by so little that it is rounding.
fn is_rounding(left: f64, right: f64) -> bool {
    if left.is_nan() && right.is_nan() {
        return true;
    }
    let (difference, sum) = ((left - right).abs(), left.abs() + right.abs());
    let is_tiny = left == 0.0 || right == 0.0 || sum < f64::MIN_POSITIVE;
    if is_tiny {
        difference < PRECISION * f64::MIN_POSITIVE
    } else {
        difference / sum.min(f64::MAX) < PRECISION
    }
}

/// The value below which a share of the observations lies, and what was changed so that counts
/// ascend. Buckets are sorted, each bound is there once.
pub(super) fn quantile(q: f64, buckets: &mut [ClassicBucket]) -> (f64, Option<MonotonicityFix>) {
    if q.is_nan() {
        return (f64::NAN, None);
    }
    if q < 0.0 {
        return (f64::NEG_INFINITY, None);
    }
    if q > 1.0 {
        return (f64::INFINITY, None);
    }
    if !is_complete(buckets) {
        return (f64::NAN, None);
    }
    let fix = fix_monotonicity(buckets);
    let observations = buckets[buckets.len() - 1].count;
    if buckets.len() < 2 || observations == 0.0 {
        return (f64::NAN, fix);
    }
    let mut rank = q * observations;
    let last = buckets.len() - 1;
    let index = buckets[..last].partition_point(|bucket| bucket.count < rank || rank.is_nan());
    if index == last {
        return (buckets[last - 1].upper, fix);
    }
    if index == 0 && buckets[0].upper <= 0.0 {
        return (buckets[0].upper, fix);
    }
    let (mut start, mut count) = (0.0, buckets[index].count);
    if index > 0 {
        start = buckets[index - 1].upper;
        count -= buckets[index - 1].count;
        rank -= buckets[index - 1].count;
    }
    (start + (buckets[index].upper - start) * (rank / count), fix)
}

/// The share of the observations that lies between two values.
pub(super) fn fraction(lower: f64, upper: f64, buckets: &[ClassicBucket]) -> f64 {
    if !is_complete(buckets) {
        return f64::NAN;
    }
    let total = buckets[buckets.len() - 1].count;
    if total == 0.0 || lower.is_nan() || upper.is_nan() {
        return f64::NAN;
    }
    if lower >= upper {
        return 0.0;
    }
    let count_below = |value: f64| {
        let mut rank = 0.0;
        // What is counted first lies above zero, unless its bound says otherwise.
        let mut lower_bound = if buckets[0].upper > 0.0 { 0.0 } else { f64::NEG_INFINITY };
        for bucket in buckets {
            if lower_bound >= value {
                return rank;
            }
            if bucket.upper > value {
                if lower_bound == f64::NEG_INFINITY {
                    // It may lie anywhere: all of it counts as below.
                    return bucket.count;
                }
                let share = (value - lower_bound) / (bucket.upper - lower_bound);
                return rank + (bucket.count - rank) * share;
            }
            rank = bucket.count;
            lower_bound = bucket.upper;
        }
        total
    };
    (count_below(upper).min(total) - count_below(lower).min(total)) / total
}
