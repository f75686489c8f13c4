//! How large a difference is and how sure one can be of it: the biweight location of log ratios,
//! with a bootstrap interval.
//!
//! Runs on a shared machine are not normal: a few of them are a third slower for reasons of their
//! own. A mean follows those; a median throws away half of what the others say. Tukey's biweight
//! (Beaton and Tukey 1974) is nearly a mean of what agrees, and what lies beyond
//! [`CUTOFF`] deviations has no weight at all. In the simulations of `compare/tests.rs` it decides
//! with 20 pairs what the Hodges–Lehmann estimate does not with 30. Ratios are taken as logarithms,
//! so that A/B and B/A say the same.
//!
//! The interval is the expanded percentile interval of Hesterberg ("What Teachers Should Know About
//! the Bootstrap", 2015): percentiles further out than the nominal ones by what Student's t and the
//! bias of a resampled spread ask for. The plain percentile interval is too narrow below some
//! 30 runs, and BCa's acceleration is not stable for estimates that drop outliers.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

/// Resamples of one estimate.
const RESAMPLES: usize = 10_000;
/// Deviations from the centre at which a run counts no more: 85% as sharp as a mean where runs are
/// normal, and much sharper where a few are not.
const CUTOFF: f64 = 3.44;
/// Makes the median absolute deviation of normal values their standard deviation.
const MAD_TO_SIGMA: f64 = 1.4826;
/// Makes the mean absolute deviation of normal values their standard deviation.
const MEAN_DEVIATION_TO_SIGMA: f64 = 1.2533;
const ITERATIONS_MAX: usize = 50;
/// Where the search for enough runs ends: more are never made.
const SIZE_MAX: usize = 1_000;
const STEP_MIN: f64 = 1e-7;

/// Where resamples come from and how many there are.
#[derive(Clone, Copy, Debug)]
pub struct Resampling {
    /// The same seed draws the same resamples.
    pub seed: u64,
    /// How many resamples are drawn.
    pub resamples: usize,
}

impl Resampling {
    /// The usual number of resamples.
    pub(crate) fn with_seed(seed: u64) -> Self {
        Self { seed, resamples: RESAMPLES }
    }
}

/// How many runs or pairs lie so far out that they do not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outliers {
    /// Those that would make B/A smaller.
    pub below: usize,
    /// Those that would make it larger.
    pub above: usize,
}

/// The estimated logarithm of a ratio, with what resampling made of it.
#[derive(Clone, Debug)]
pub(crate) struct Estimate {
    /// The estimate: 0 when both sides are equal, positive when B is larger.
    pub log_ratio: f64,
    /// Runs or pairs that do not count.
    pub outliers: Outliers,
    /// The estimates of all resamples, ascending.
    draws: Vec<f64>,
    /// Pairs, or runs of the side with fewer of them.
    size: usize,
}

/// Observations that are resampled among themselves.
struct ResamplingGroup {
    values: Vec<f64>,
    /// Their deviation; that of the whole group, so that resamples do not call each other outliers.
    scale: f64,
}

impl Estimate {
    /// The estimate for paired runs, from the logarithms of their ratios.
    ///
    /// # Panics
    /// With fewer than two pairs.
    pub(crate) fn paired(log_ratios: &[f64], resampling: Resampling) -> Self {
        let group = ResamplingGroup::new(log_ratios);
        let outliers = group.outliers();
        Self::resample(&[group], |centres| centres[0], outliers, resampling)
    }

    /// The estimate for two independent groups of runs, from the logarithms of their values.
    ///
    /// # Panics
    /// When either side has fewer than two runs.
    pub(crate) fn unpaired(a: &[f64], b: &[f64], resampling: Resampling) -> Self {
        let groups = [ResamplingGroup::new(a), ResamplingGroup::new(b)];
        let [outliers_a, outliers_b] = [groups[0].outliers(), groups[1].outliers()];
        let outliers = Outliers {
            below: outliers_b.below + outliers_a.above,
            above: outliers_b.above + outliers_a.below,
        };
        Self::resample(&groups, |centres| centres[1] - centres[0], outliers, resampling)
    }

    fn resample(
        groups: &[ResamplingGroup],
        combine: impl Fn(&[f64]) -> f64,
        outliers: Outliers,
        resampling: Resampling,
    ) -> Self {
        let observed_centres: Vec<f64> =
            groups.iter().map(|group| group.centre(&vec![1; group.values.len()])).collect();
        let mut random = Xoshiro256PlusPlus::seed_from_u64(resampling.seed);
        let mut counts = Vec::new();
        let mut centres = vec![0.0; groups.len()];
        let mut draws = Vec::with_capacity(resampling.resamples);
        for _ in 0..resampling.resamples {
            for (centre, group) in centres.iter_mut().zip(groups) {
                let size = group.values.len();
                counts.clear();
                counts.resize(size, 0_u32);
                for _ in 0..size {
                    counts[random.random_range(0..size)] += 1;
                }
                *centre = group.centre(&counts);
            }
            draws.push(combine(&centres));
        }
        draws.sort_by(f64::total_cmp);
        let sizes = groups.iter().map(|group| group.values.len());
        Self {
            log_ratio: combine(&observed_centres),
            outliers,
            draws,
            size: sizes.min().unwrap_or_default(),
        }
    }

    /// The interval that holds the true log ratio with `confidence`, e.g. 0.95.
    pub(crate) fn interval(&self, confidence: f64) -> (f64, f64) {
        let tail = expanded_tail((1.0 - confidence) / 2.0, self.size);
        let last = self.draws.len() - 1;
        let below = ((tail * self.draws.len() as f64).floor() as usize).min(last / 2);
        (self.draws[below], self.draws[last - below])
    }
}

impl ResamplingGroup {
    fn new(values: &[f64]) -> Self {
        assert!(values.len() >= 2, "one run has no spread");
        let mut values = values.to_vec();
        values.sort_by(f64::total_cmp);
        let middle = super::median(&values);
        let deviations: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
        let mean = deviations.iter().sum::<f64>() / deviations.len() as f64;
        let scale = match super::median(&deviations) {
            // More than half of the runs agree to the last digit, as whole microseconds do.
            0.0 => MEAN_DEVIATION_TO_SIGMA * mean,
            median => MAD_TO_SIGMA * median,
        };
        Self { values, scale }
    }

    /// The biweight location of the values, each taken `counts` times: an average that is weighted
    /// by nearness to itself, found step by step from the median.
    fn centre(&self, counts: &[u32]) -> f64 {
        let mut centre = self.weighted_median(counts);
        if self.scale == 0.0 {
            // All runs agree.
            return centre;
        }
        for _ in 0..ITERATIONS_MAX {
            let (mut sum, mut weights) = (0.0, 0.0);
            for (value, count) in self.values.iter().zip(counts) {
                let distance = (value - centre) / (CUTOFF * self.scale);
                if *count > 0 && distance.abs() < 1.0 {
                    let weight = f64::from(*count) * (1.0 - distance * distance).powi(2);
                    sum += weight * value;
                    weights += weight;
                }
            }
            if weights == 0.0 {
                break;
            }
            let next = sum / weights;
            let step = (next - centre).abs();
            centre = next;
            if step < STEP_MIN {
                break;
            }
        }
        centre
    }

    /// The median of the values, each taken `counts` times.
    fn weighted_median(&self, counts: &[u32]) -> f64 {
        let total: u32 = counts.iter().sum();
        let value_at_rank = |rank: u32| {
            let mut cumulative_count = 0;
            let found = self.values.iter().zip(counts).find(|(_, count)| {
                cumulative_count += **count;
                cumulative_count > rank
            });
            found.map_or(0.0, |(value, _)| *value)
        };
        f64::midpoint(value_at_rank(total.saturating_sub(1) / 2), value_at_rank(total / 2))
    }

    fn outliers(&self) -> Outliers {
        let centre = self.centre(&vec![1; self.values.len()]);
        let cutoff_distance = CUTOFF * self.scale;
        let count = |is_far: &dyn Fn(&f64) -> bool| {
            self.values.iter().filter(|value| is_far(value)).count()
        };
        Outliers {
            below: count(&|value| *value < centre - cutoff_distance),
            above: count(&|value| *value > centre + cutoff_distance),
        }
    }
}

/// With how many runs an interval can have this confidence, e.g. 0.95: enough that the percentiles
/// it is read from are not the extremes of the usual number of resamples. Those do not move any
/// more, however sure one wants to be, since no resample lies beyond the observations themselves.
pub(crate) fn sample_size_min(confidence: f64) -> usize {
    let tail = (1.0 - confidence) / 2.0;
    let mut sizes = 2..SIZE_MAX;
    let enough = sizes.find(|size| expanded_tail(tail, *size) * RESAMPLES as f64 >= 1.0);
    enough.unwrap_or(SIZE_MAX)
}

/// The share of resamples to leave out at each end for `tail` of the true distribution.
fn expanded_tail(tail: f64, size: usize) -> f64 {
    let freedom = (size - 1) as f64;
    let student = StudentsT::new(0.0, 1.0, freedom).expect("at least two observations");
    let normal = Normal::standard();
    let critical_value = student.inverse_cdf(1.0 - tail) * (size as f64 / freedom).sqrt();
    normal.cdf(-critical_value)
}

#[cfg(test)]
mod tests;
