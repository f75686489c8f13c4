//! Estimates from buckets: quantiles, fractions, variance.

use super::super::kahan::KahanSum;
use super::{Bucket, FloatHistogram};

/// How observations that are NaN affect a quantile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NanEffect {
    None,
    /// So many that the quantile is among them.
    IsResult,
    /// Some, which the quantile takes for higher than any number.
    SkewsResult,
}

impl FloatHistogram {
    /// The bucket around zero reaches only to where there are buckets; the first custom bucket
    /// begins at zero.
    fn narrow_bucket(&self, mut bucket: Bucket) -> Bucket {
        if self.is_custom() {
            if bucket.lower == f64::NEG_INFINITY && bucket.upper > 0.0 {
                bucket.lower = 0.0;
            }
        } else if bucket.lower < 0.0 && bucket.upper > 0.0 {
            if !self.has_negative() && self.has_positive() {
                bucket.lower = 0.0;
            } else if !self.has_positive() && self.has_negative() {
                bucket.upper = 0.0;
            }
        }
        bucket
    }

    fn is_linear(&self, bucket: &Bucket) -> bool {
        self.is_custom() || (bucket.lower <= 0.0 && bucket.upper >= 0.0)
    }

    /// The value below which a share `q` of the observations lies, interpolated within its bucket:
    /// linearly where bounds are listed and around zero, else on a logarithmic scale.
    pub(crate) fn quantile(&self, q: f64) -> (f64, NanEffect) {
        if q < 0.0 {
            return (f64::NEG_INFINITY, NanEffect::None);
        }
        if q > 1.0 {
            return (f64::INFINITY, NanEffect::None);
        }
        if self.count == 0.0 || q.is_nan() {
            return (f64::NAN, NanEffect::None);
        }
        // Observed NaNs are in the count and in no bucket, so that only counting from below finds
        // the place.
        let has_nans = self.sum.is_nan();
        let is_forward = has_nans || q < 0.5;
        let mut rank = if is_forward { q } else { 1.0 - q } * self.count;
        let buckets = self.buckets();
        let mut ordered: Box<dyn Iterator<Item = &Bucket>> =
            if is_forward { Box::new(buckets.iter()) } else { Box::new(buckets.iter().rev()) };
        let mut count = 0.0;
        let mut containing_bucket = Bucket { lower: 0.0, upper: 0.0, count: 0.0 };
        ordered.by_ref().any(|bucket| {
            containing_bucket = *bucket;
            count += bucket.count;
            count >= rank
        });
        if self.is_custom()
            && containing_bucket.upper <= 0.0
            && containing_bucket.lower == f64::NEG_INFINITY
        {
            return (containing_bucket.upper, NanEffect::None);
        }
        if self.is_custom() && containing_bucket.upper == f64::INFINITY {
            return (containing_bucket.lower, NanEffect::None);
        }
        let bucket = self.narrow_bucket(containing_bucket);
        count = count.min(self.count);
        if count < rank {
            return if has_nans {
                (f64::NAN, NanEffect::IsResult)
            } else {
                (bucket.upper, NanEffect::None)
            };
        }
        let remaining: f64 = ordered.map(|bucket| bucket.count).sum();
        let nan_effect = if has_nans && count + remaining < self.count {
            NanEffect::SkewsResult
        } else {
            NanEffect::None
        };
        rank = if is_forward { rank - (count - bucket.count) } else { count - rank };
        (self.interpolate(&bucket, rank / bucket.count), nan_effect)
    }

    /// The value that a share of a bucket lies below.
    fn interpolate(&self, bucket: &Bucket, share: f64) -> f64 {
        if self.is_linear(bucket) {
            return bucket.lower + (bucket.upper - bucket.lower) * share;
        }
        let (lower, upper) = (bucket.lower.abs().log2(), bucket.upper.abs().log2());
        if bucket.lower > 0.0 {
            (lower + (upper - lower) * share).exp2()
        } else {
            -(upper + (lower - upper) * (1.0 - share)).exp2()
        }
    }

    /// The share of a bucket that lies below a value within it.
    pub(super) fn share_below(&self, bucket: &Bucket, value: f64) -> f64 {
        if self.is_linear(bucket) {
            return if bucket.lower == f64::NEG_INFINITY {
                1.0
            } else {
                (value - bucket.lower) / (bucket.upper - bucket.lower)
            };
        }
        let (lower, upper) = (bucket.lower.abs().log2(), bucket.upper.abs().log2());
        let position = value.abs().log2();
        if bucket.lower > 0.0 {
            (position - lower) / (upper - lower)
        } else {
            1.0 - (position - upper) / (lower - upper)
        }
    }

    /// The share of the observations that lies between two values.
    pub(crate) fn fraction(&self, lower: f64, upper: f64) -> f64 {
        if self.count == 0.0 || lower.is_nan() || upper.is_nan() {
            return f64::NAN;
        }
        if lower >= upper {
            return 0.0;
        }
        let count =
            if self.sum.is_nan() { self.bucket_count_sum().min(self.count) } else { self.count };
        let (lower_rank, upper_rank) =
            (self.count_below(lower, count), self.count_below(upper, count));
        (upper_rank.min(count) - lower_rank.min(count)) / self.count
    }

    fn bucket_count_sum(&self) -> f64 {
        self.buckets().iter().map(|bucket| bucket.count).sum()
    }

    /// Whether something was observed that is no number, and is in no bucket therefore. A sum that
    /// is none can also come of two infinities.
    pub(crate) fn has_nans(&self) -> bool {
        self.sum.is_nan() && self.bucket_count_sum() < self.count
    }

    /// How many observations lie below a value; all of them when it is in no bucket nor below one.
    fn count_below(&self, value: f64, total: f64) -> f64 {
        let mut rank = 0.0;
        for bucket in self.buckets() {
            let bucket = self.narrow_bucket(bucket);
            if bucket.lower >= value {
                return rank;
            }
            if bucket.upper > value {
                // What lies above the last bound may lie anywhere: none of it counts as below.
                let is_open = bucket.upper == f64::INFINITY && self.is_custom();
                let share = if is_open { 0.0 } else { self.share_below(&bucket, value) };
                return rank + bucket.count * share;
            }
            rank += bucket.count;
        }
        total
    }

    /// The variance of the observations, each taken to lie in the middle of its bucket; infinite
    /// where one has no end.
    pub(crate) fn variance(&self) -> f64 {
        let mean = self.sum / self.count;
        let mut variance = KahanSum::EMPTY;
        for bucket in self.buckets() {
            let midpoint = if bucket.lower <= 0.0 && bucket.upper >= 0.0 && !self.is_custom() {
                0.0
            } else if self.is_custom() {
                (bucket.lower + bucket.upper) / 2.0
            } else {
                let middle = (bucket.lower * bucket.upper).sqrt();
                if bucket.upper < 0.0 { -middle } else { middle }
            };
            let delta = midpoint - mean;
            variance = variance.plus(bucket.count * delta * delta);
        }
        variance.value() / self.count
    }
}
