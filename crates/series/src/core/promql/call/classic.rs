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

/// Makes counts ascend; true when more than rounding had to be mended.
fn mend(buckets: &mut [ClassicBucket]) -> bool {
    let mut previous = buckets[0].count;
    for bucket in &mut buckets[1..] {
        let difference = (bucket.count - previous).abs();
        if difference != 0.0 && difference / bucket.count <= PRECISION {
            bucket.count = previous;
        } else {
            previous = bucket.count;
        }
    }
    let (mut highest, mut forced) = (buckets[0].count, false);
    for bucket in &mut buckets[1..] {
        if bucket.count < highest {
            bucket.count = highest;
            forced = true;
        }
        highest = highest.max(bucket.count);
    }
    forced
}

/// The value below which a share of the observations lies, and whether counts had to be made to ascend. Buckets are
/// sorted, each bound is there once.
pub(super) fn quantile(q: f64, buckets: &mut [ClassicBucket]) -> (f64, bool) {
    if q.is_nan() {
        return (f64::NAN, false);
    }
    if q < 0.0 {
        return (f64::NEG_INFINITY, false);
    }
    if q > 1.0 {
        return (f64::INFINITY, false);
    }
    if !is_complete(buckets) {
        return (f64::NAN, false);
    }
    let forced = mend(buckets);
    let observations = buckets[buckets.len() - 1].count;
    if buckets.len() < 2 || observations == 0.0 || observations.is_nan() {
        return (f64::NAN, false);
    }
    let mut rank = q * observations;
    let last = buckets.len() - 1;
    let at = buckets[..last].partition_point(|bucket| bucket.count < rank);
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
        let mut from = match buckets[0].upper > 0.0 {
            true => 0.0,
            false => f64::NEG_INFINITY,
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
