//! The estimate against its definition, and the interval against simulated runs.

use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;

use super::*;
use crate::sample::{Noise, normal};

/// Where only the estimate is looked at.
const FEW: Resampling = Resampling { seed: 1, resamples: 100 };

#[test]
fn without_outliers_the_estimate_is_close_to_the_mean() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
    let values: Vec<f64> = (0..500).map(|_| normal(&mut random)).collect();
    let mean = values.iter().sum::<f64>() / 500.0;
    let estimate = Estimate::paired(&values, FEW).log_ratio;
    assert!((estimate - mean).abs() < 0.05, "{estimate} {mean}");
}

#[test]
fn outliers_do_not_move_the_estimate_and_are_counted() {
    let calm = [0.01, 0.02, 0.03, 0.0, -0.01, 0.02, 0.01, 0.015];
    let mut rough = calm.to_vec();
    rough.extend([0.3, 0.31, -0.4]);
    let (calm, rough) = (Estimate::paired(&calm, FEW), Estimate::paired(&rough, FEW));
    assert!((calm.log_ratio - rough.log_ratio).abs() < 0.003);
    assert_eq!(calm.outliers, Outliers::default());
    assert_eq!(rough.outliers, Outliers { below: 1, above: 2 });
}

#[test]
fn an_outlier_of_a_makes_the_ratio_smaller() {
    let calm = [1.0, 1.01, 0.99, 1.0, 1.02];
    let rough = [1.0, 1.01, 0.99, 1.0, 1.3];
    let outliers = |a: &[f64], b: &[f64]| Estimate::unpaired(a, b, FEW).outliers;
    assert_eq!(outliers(&calm, &rough), Outliers { below: 0, above: 1 });
    assert_eq!(outliers(&rough, &calm), Outliers { below: 1, above: 0 });
}

#[test]
fn where_most_runs_agree_their_neighbours_are_no_outliers() {
    let microseconds = [18.0, 18.0, 18.0, 18.0, 18.0, 18.0, 19.0, 19.0, 17.0_f64];
    let estimate = Estimate::paired(&microseconds.map(f64::ln), FEW);
    assert_eq!(estimate.outliers, Outliers::default());
    assert!((estimate.log_ratio.exp() - 18.1).abs() < 0.1);
    assert_eq!(Estimate::paired(&[1.0; 6], FEW).log_ratio, 1.0);
}

#[test]
fn a_median_with_counts_is_that_of_the_repeated_values() {
    let group = ResamplingGroup::new(&[1.0, 2.0, 3.0, 4.0]);
    for (counts, repeated) in [
        ([1, 1, 1, 1], vec![1.0, 2.0, 3.0, 4.0]),
        ([2, 0, 0, 2], vec![1.0, 1.0, 4.0, 4.0]),
        ([0, 0, 3, 1], vec![3.0, 3.0, 3.0, 4.0]),
        ([1, 0, 0, 0], vec![1.0]),
        ([1, 2, 0, 0], vec![1.0, 2.0, 2.0]),
    ] {
        let expected = crate::compare::median(&repeated);
        assert_eq!(group.weighted_median(&counts), expected, "{counts:?}");
    }
}

#[test]
fn few_runs_leave_out_less_than_the_nominal_tail() {
    assert!(expanded_tail(0.025, 6) < 0.005);
    assert!((expanded_tail(0.025, 1_000) - 0.025).abs() < 0.001);
}

#[test]
fn more_confidence_takes_more_runs() {
    let jointly = |figures: f64| sample_size_min(1.0 - 0.05 / figures);
    assert_eq!([1.0, 2.0, 4.0, 12.0].map(jointly), [4, 6, 8, 13]);
    // One run less, and the interval is from the lowest to the highest resample.
    let interval = |runs: usize| {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
        let values: Vec<f64> = (0..runs).map(|_| normal(&mut random)).collect();
        let estimate = Estimate::paired(&values, Resampling::with_seed(1));
        let extremes = (estimate.draws[0], estimate.draws[estimate.draws.len() - 1]);
        (estimate.interval(1.0 - 0.05 / 12.0), extremes)
    };
    let ((few, extremes_of_few), (enough, extremes)) = (interval(12), interval(13));
    assert_eq!(few, extremes_of_few);
    assert!(enough.0 > extremes.0 && enough.1 < extremes.1);
}

#[test]
fn equal_runs_have_an_interval_of_one_point() {
    assert_eq!(Estimate::paired(&[0.0; 8], Resampling::with_seed(1)).interval(0.95), (0.0, 0.0));
}

#[test]
fn the_same_seed_gives_the_same_interval() {
    let values = [0.01, -0.02, 0.03, 0.0, 0.05, -0.01, 0.02];
    let interval = |seed| Estimate::paired(&values, Resampling::with_seed(seed)).interval(0.95);
    assert_eq!(interval(5), interval(5));
}

/// How many of a hundred intervals hold the true ratio of 1.07.
fn coverage(noise: Noise, runs: usize, paired: bool) -> f64 {
    const TRIALS: usize = 400;
    // Enough for a test that would otherwise take minutes unoptimised.
    const RESAMPLES: usize = 1_000;
    let truth = 1.07_f64.ln();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(11);
    let held = (0..TRIALS)
        .filter(|trial| {
            let logs = |values: Vec<f64>| values.iter().map(|v| v.ln()).collect::<Vec<_>>();
            let a = logs(noise.runs(4.0, runs, &mut random));
            let b = logs(noise.runs(4.0 * 1.07, runs, &mut random));
            let resampling = Resampling { seed: *trial as u64, resamples: RESAMPLES };
            let estimate = if paired {
                let differences: Vec<f64> = a.iter().zip(&b).map(|(a, b)| b - a).collect();
                Estimate::paired(&differences, resampling)
            } else {
                Estimate::unpaired(&a, &b, resampling)
            };
            let (low, high) = estimate.interval(0.95);
            low <= truth && truth <= high
        })
        .count();
    held as f64 * 100.0 / TRIALS as f64
}

#[test]
fn intervals_hold_the_truth_as_often_as_they_say() {
    let calm = Noise { deviation: 0.03, outliers: 0.0, outlier_factor: 1.0 };
    let rough = Noise { deviation: 0.03, outliers: 5.0, outlier_factor: 1.3 };
    for noise in [calm, rough] {
        for (runs, paired) in [(6, true), (10, true), (20, true), (5, false), (10, false)] {
            let held = coverage(noise, runs, paired);
            println!("{noise:?} {runs} runs, paired {paired}: {held}%");
            assert!(held >= 92.5, "{noise:?} {runs} {paired}: {held}%");
        }
    }
}
