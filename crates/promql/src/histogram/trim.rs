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
    at: f64,
    kept: TrimSide,
}

/// The kept part of a bucket: number of observations, and the value they are taken to lie around.
type Rest = (f64, f64);

impl FloatHistogram {
    /// Keeps what lies on one side of a value. A bucket that has it inside is divided as quantiles
    /// divide it; count and sum are then estimated from the buckets, as nothing else is known of
    /// what is left.
    pub(crate) fn trim(&mut self, at: f64, kept: TrimSide) {
        let cut = Cut { at, kept };
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
        let mut take = |before: f64, (rest, middle): Rest| {
            is_changed |= before != rest;
            count += rest;
            sum += middle * rest;
            rest
        };
        let trimmed = |side: &Side, sign: f64, take: &mut dyn FnMut(f64, Rest) -> f64| -> Side {
            let rests = side.iter().map(|(index, count)| {
                let bucket = if sign > 0.0 {
                    self.positive_bucket(*index, *count)
                } else {
                    self.negative_bucket(*index, *count)
                };
                (*index, take(*count, self.rest(&bucket, cut, sign)))
            });
            rests.filter(|(_, count)| *count != 0.0).collect()
        };
        let positive = trimmed(&self.positive, 1.0, &mut take);
        let negative = trimmed(&self.negative, -1.0, &mut take);
        let zero_count = if zero.count > 0.0 {
            take(zero.count, cut.rest_of_zero(&zero))
        } else {
            zero.count
        };
        if is_changed {
            (self.positive, self.negative) = (positive, negative);
            (self.zero_count, self.count, self.sum) = (zero_count, count, sum);
        }
    }

    /// What is kept of a bucket whose observations have that sign, where bounds are exponential.
    fn rest(&self, bucket: &Bucket, cut: Cut, sign: f64) -> Rest {
        let Bucket {
            lower,
            upper,
            count,
        } = *bucket;
        let (is_whole, is_divided) = match cut.kept {
            TrimSide::Below => (upper <= cut.at, lower < cut.at),
            TrimSide::Above => (lower >= cut.at, upper > cut.at),
        };
        if is_whole {
            return (count, self.middle(lower, upper, sign));
        }
        if !is_divided {
            return (0.0, 0.0);
        }
        if lower == f64::NEG_INFINITY || upper == f64::INFINITY {
            return cut.rest_of_endless(bucket);
        }
        let below = if cut.at <= lower {
            0.0
        } else if cut.at >= upper {
            count
        } else {
            count * self.share_below(bucket, cut.at)
        };
        match cut.kept {
            TrimSide::Below => (below, self.middle(lower, cut.at, sign)),
            TrimSide::Above => (count - below, self.middle(cut.at, upper, sign)),
        }
    }

    /// Around which value observations between two others are taken to lie.
    fn middle(&self, lower: f64, upper: f64, sign: f64) -> f64 {
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
    fn rest_of_endless(self, bucket: &Bucket) -> Rest {
        let Bucket { upper, count, .. } = *bucket;
        if bucket.lower != f64::NEG_INFINITY {
            return match self.kept {
                TrimSide::Below => (0.0, 0.0),
                TrimSide::Above => (count, self.at),
            };
        }
        match self.kept {
            TrimSide::Below if upper <= 0.0 => (count, self.at),
            _ if upper == f64::INFINITY => (0.0, 0.0),
            TrimSide::Below if self.at > 0.0 => (count * self.at / upper, self.at / 2.0),
            TrimSide::Above if self.at >= 0.0 => {
                (count * (1.0 - self.at / upper), (self.at + upper) / 2.0)
            }
            _ => (0.0, 0.0),
        }
    }

    /// Of the bucket around zero, in which observations are spread evenly.
    fn rest_of_zero(self, bucket: &Bucket) -> Rest {
        let Bucket {
            lower,
            upper,
            count,
        } = *bucket;
        let (from, to) = match self.kept {
            TrimSide::Below if self.at <= lower => return (0.0, 0.0),
            TrimSide::Above if self.at >= upper && self.at > lower => return (0.0, 0.0),
            TrimSide::Below if self.at >= upper => return (count, (lower + upper) / 2.0),
            TrimSide::Above if self.at <= lower => return (count, (lower + upper) / 2.0),
            TrimSide::Below => (lower, self.at),
            TrimSide::Above => (self.at, upper),
        };
        (count * ((to - from) / (upper - lower)), (from + to) / 2.0)
    }
}
