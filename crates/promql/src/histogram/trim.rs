//! `</` and `>/`: what a histogram has below a value, or above it.

use super::{Bucket, FloatHistogram, Side};

/// Which side of the bound is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TrimSide {
    Below,
    Above,
}

/// A bound at which a histogram is cut.
#[derive(Clone, Copy)]
struct Cut {
    bound: f64,
    side: TrimSide,
}

/// The kept part of a bucket: number of observations, and the value they are taken to lie around.
type KeptPart = (f64, f64);

impl FloatHistogram {
    /// Keeps what lies on one side of a value. A bucket that has it inside is divided as quantiles
    /// divide it; count and sum are then estimated from the buckets, as nothing else is known of
    /// what is left.
    pub(crate) fn trim(&mut self, bound: f64, kept: TrimSide) {
        let cut = Cut { bound, side: kept };
        let zero = Bucket {
            lower: if !self.has_negative() && self.has_positive() {
                0.0
            } else {
                -self.zero_threshold
            },
            upper: if !self.has_positive() && self.has_negative() {
                0.0
            } else {
                self.zero_threshold
            },
            count: self.zero_count,
        };
        let (mut is_changed, mut count, mut sum) = (false, 0.0, 0.0);
        let mut add_kept = |count_before: f64, (kept_count, middle): KeptPart| {
            is_changed |= count_before != kept_count;
            count += kept_count;
            sum += middle * kept_count;
            kept_count
        };
        let trim_side =
            |side: &Side, sign: f64, take: &mut dyn FnMut(f64, KeptPart) -> f64| -> Side {
                let kept_parts = side.iter().map(|(index, count)| {
                    let bucket = if sign > 0.0 {
                        self.positive_bucket(*index, *count)
                    } else {
                        self.negative_bucket(*index, *count)
                    };
                    (*index, take(*count, self.kept_part(&bucket, cut, sign)))
                });
                kept_parts.filter(|(_, count)| *count != 0.0).collect()
            };
        let positive = trim_side(&self.positive, 1.0, &mut add_kept);
        let negative = trim_side(&self.negative, -1.0, &mut add_kept);
        let zero_count = if zero.count > 0.0 {
            add_kept(zero.count, cut.kept_of_zero(&zero))
        } else {
            zero.count
        };
        if is_changed {
            (self.positive, self.negative) = (positive, negative);
            (self.zero_count, self.count, self.sum) = (zero_count, count, sum);
        }
    }

    /// What is kept of a bucket whose observations have that sign, where bounds are exponential.
    fn kept_part(&self, bucket: &Bucket, cut: Cut, sign: f64) -> KeptPart {
        let Bucket { lower, upper, count } = *bucket;
        let (is_whole, is_divided) = match cut.side {
            TrimSide::Below => (upper <= cut.bound, lower < cut.bound),
            TrimSide::Above => (lower >= cut.bound, upper > cut.bound),
        };
        if is_whole {
            return (count, self.midpoint(lower, upper, sign));
        }
        if !is_divided {
            return (0.0, 0.0);
        }
        if lower == f64::NEG_INFINITY || upper == f64::INFINITY {
            return cut.kept_of_unbounded(bucket);
        }
        let below = if cut.bound <= lower {
            0.0
        } else if cut.bound >= upper {
            count
        } else {
            count * self.share_below(bucket, cut.bound)
        };
        match cut.side {
            TrimSide::Below => (below, self.midpoint(lower, cut.bound, sign)),
            TrimSide::Above => (count - below, self.midpoint(cut.bound, upper, sign)),
        }
    }

    /// Around which value observations between two others are taken to lie.
    fn midpoint(&self, lower: f64, upper: f64, sign: f64) -> f64 {
        match (lower.is_infinite(), upper.is_infinite()) {
            (true, true) => 0.0,
            (true, false) if upper > 0.0 => upper / 2.0,
            (true, false) => upper,
            (false, true) => lower,
            (false, false) if self.is_custom() => (lower + upper) / 2.0,
            (false, false) => sign * (lower * upper).abs().sqrt(),
        }
    }
}

impl Cut {
    /// Of a bucket without an end, inside which the cut is: how its observations are spread is not
    /// known, but that none are below zero where the bucket ends above it.
    fn kept_of_unbounded(self, bucket: &Bucket) -> KeptPart {
        let Bucket { upper, count, .. } = *bucket;
        if bucket.lower != f64::NEG_INFINITY {
            return match self.side {
                TrimSide::Below => (0.0, 0.0),
                TrimSide::Above => (count, self.bound),
            };
        }
        match self.side {
            TrimSide::Below if upper <= 0.0 => (count, self.bound),
            _ if upper == f64::INFINITY => (0.0, 0.0),
            TrimSide::Below if self.bound > 0.0 => (count * self.bound / upper, self.bound / 2.0),
            TrimSide::Above if self.bound >= 0.0 => {
                (count * (1.0 - self.bound / upper), (self.bound + upper) / 2.0)
            }
            _ => (0.0, 0.0),
        }
    }

    /// Of the bucket around zero, in which observations are spread evenly.
    fn kept_of_zero(self, bucket: &Bucket) -> KeptPart {
        let Bucket { lower, upper, count } = *bucket;
        let (from, to) = match self.side {
            TrimSide::Below if self.bound <= lower => return (0.0, 0.0),
            TrimSide::Above if self.bound >= upper && self.bound > lower => return (0.0, 0.0),
            TrimSide::Below if self.bound >= upper => return (count, (lower + upper) / 2.0),
            TrimSide::Above if self.bound <= lower => return (count, (lower + upper) / 2.0),
            TrimSide::Below => (lower, self.bound),
            TrimSide::Above => (self.bound, upper),
        };
        (count * ((to - from) / (upper - lower)), (from + to) / 2.0)
    }
}
