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
    buckets
        .last()
        .is_some_and(|last| last.upper == f64::INFINITY)
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
fn mend(buckets: &mut [ClassicBucket]) -> Option<MonotonicityFix> {
    let mut forced: Option<MonotonicityFix> = None;
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
            let forced = forced.get_or_insert(MonotonicityFix {
                bounds: (upper, upper),
                difference,
            });
            forced.bounds.1 = upper;
            forced.difference = forced.difference.max(difference);
        } else {
            highest = count;
        }
    }
    forced
}

/// Whether two counts differ by so little that it is rounding.
fn is_rounding(one: f64, other: f64) -> bool {
    if one.is_nan() && other.is_nan() {
        return true;
    }
    let (difference, sum) = ((one - other).abs(), one.abs() + other.abs());
    let is_tiny = one == 0.0 || other == 0.0 || sum < f64::MIN_POSITIVE;
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
    let forced = mend(buckets);
    let observations = buckets[buckets.len() - 1].count;
    if buckets.len() < 2 || observations == 0.0 {
        return (f64::NAN, forced);
    }
    let mut rank = q * observations;
    let last = buckets.len() - 1;
    let at = buckets[..last].partition_point(|bucket| bucket.count < rank || rank.is_nan());
    if at == last {
        return (buckets[last - 1].upper, forced);
    }
    if at == 0 && buckets[0].upper <= 0.0 {
        return (buckets[0].upper, forced);
    }
    let (mut start, mut count) = (0.0, buckets[at].count);
    if at > 0 {
        start = buckets[at - 1].upper;
        count -= buckets[at - 1].count;
        rank -= buckets[at - 1].count;
    }
    (start + (buckets[at].upper - start) * (rank / count), forced)
}

/// The share of the observations that lies between two values.
pub(super) fn fraction(lower: f64, upper: f64, buckets: &[ClassicBucket]) -> f64 {
    if !is_complete(buckets) {
        return f64::NAN;
    }
    let all = buckets[buckets.len() - 1].count;
    if all == 0.0 || lower.is_nan() || upper.is_nan() {
        return f64::NAN;
    }
    if lower >= upper {
        return 0.0;
    }
    let rank_of = |value: f64| {
        let mut rank = 0.0;
        // What is counted first lies above zero, unless its bound says otherwise.
        let mut from = if buckets[0].upper > 0.0 {
            0.0
        } else {
            f64::NEG_INFINITY
        };
        for bucket in buckets {
            if from >= value {
                return rank;
            }
            if bucket.upper > value {
                if from == f64::NEG_INFINITY {
                    // It may lie anywhere: all of it counts as below.
                    return bucket.count;
                }
                let share = (value - from) / (bucket.upper - from);
                return rank + (bucket.count - rank) * share;
            }
            rank = bucket.count;
            from = bucket.upper;
        }
        all
    };
    (rank_of(upper).min(all) - rank_of(lower).min(all)) / all
}
