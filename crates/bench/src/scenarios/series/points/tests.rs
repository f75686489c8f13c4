//! Against values worked out by hand, or taken from the definitions.

use super::*;

/// A sample each 10 s from second 5 on.
fn points(values: &[f64]) -> Vec<Point> {
    let at = |place: usize| 5_000 + 10_000 * place as i64;
    values.iter().enumerate().map(|(place, value)| (at(place), *value)).collect()
}

/// The minute in which they are.
const MINUTE: Span = Span { from_ms: 0, to_ms: 60_000 };

#[track_caller]
fn check(over: WindowFunction, values: &[f64], expected: f64) {
    let got = over.evaluate(None, MINUTE, &points(values)).unwrap();
    assert!((got - expected).abs() < 1e-9, "{over:?}: {got} instead of {expected}");
}

#[test]
fn rates_go_on_to_the_ends_of_the_window() {
    // 50 in 50 s, 5 s before and after: 60 in a minute.
    check(WindowFunction::Increase, &[100.0, 110.0, 120.0, 130.0, 140.0, 150.0], 60.0);
    check(WindowFunction::Rate, &[100.0, 110.0, 120.0, 130.0, 140.0, 150.0], 1.0);
    check(WindowFunction::Delta, &[150.0, 140.0, 130.0, 120.0, 110.0, 100.0], -60.0);
    // It was zero 2 s before the first sample, so only these 2 s count before it.
    check(WindowFunction::Increase, &[2.0, 12.0, 22.0, 32.0, 42.0, 52.0], 57.0);
    // From 25 s on nothing: half an interval more, not 35 s.
    check(WindowFunction::Increase, &[100.0, 110.0, 120.0], 20.0 / 20.0 * (20.0 + 5.0 + 5.0));
}

#[test]
fn a_counter_that_begins_anew_has_not_lost_anything() {
    // 10, then 5 from zero on, then 10: 25 in 30 s, and 5 and 5 more.
    let gained = 25.0;
    let span = Span { from_ms: 0, to_ms: 40_000 };
    let got =
        WindowFunction::Increase.evaluate(None, span, &points(&[100.0, 110.0, 5.0, 15.0])).unwrap();
    assert!((got - gained * 40.0 / 30.0).abs() < 1e-9, "{got}");
    check(WindowFunction::Resets, &[3.0, 1.0, 2.0, 0.0, 0.0], 2.0);
    check(WindowFunction::Changes, &[3.0, 1.0, 2.0, 0.0, 0.0], 3.0);
    check(WindowFunction::Irate, &[3.0, 1.0, 51.0], 5.0);
    check(WindowFunction::Irate, &[3.0, 50.0, 20.0], 2.0);
    check(WindowFunction::Idelta, &[3.0, 50.0, 20.0], -30.0);
}

#[test]
fn what_is_said_of_all_samples() {
    let values = [4.0, 1.0, 7.0, 2.0];
    check(WindowFunction::Avg, &values, 3.5);
    check(WindowFunction::Min, &values, 1.0);
    check(WindowFunction::Max, &values, 7.0);
    check(WindowFunction::Sum, &values, 14.0);
    check(WindowFunction::Count, &values, 4.0);
    check(WindowFunction::Last, &values, 2.0);
    check(WindowFunction::Stddev, &[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0], 2.0);
    check(WindowFunction::Deriv, &[1.0, 3.0, 5.0, 7.0], 0.2);
    check(WindowFunction::Quantile, &values, 3.0);
    assert_eq!(quantile(0.9, vec![1.0, 2.0]), 1.9);
    assert_eq!(quantile(1.0, vec![5.0]), 5.0);
}

#[test]
fn one_sample_is_enough_for_some() {
    assert_eq!(WindowFunction::Avg.evaluate(None, MINUTE, &points(&[2.0])), Some(2.0));
    assert_eq!(WindowFunction::Changes.evaluate(None, MINUTE, &points(&[2.0])), Some(0.0));
    for over in [
        WindowFunction::Rate,
        WindowFunction::Increase,
        WindowFunction::Delta,
        WindowFunction::Irate,
        WindowFunction::Deriv,
    ] {
        assert_eq!(over.evaluate(None, MINUTE, &points(&[2.0])), None, "{over:?}");
    }
    assert_eq!(WindowFunction::Count.evaluate(None, MINUTE, &[]), None);
}

#[test]
fn quantiles_of_buckets_lie_between_bounds() {
    let buckets = |counts: [f64; 4]| -> Vec<(f64, f64)> {
        [0.1, 0.5, 1.0, f64::INFINITY].into_iter().zip(counts).collect()
    };
    assert_eq!(quantile_of_buckets(0.5, buckets([10.0, 20.0, 20.0, 20.0])), 0.1);
    assert_eq!(quantile_of_buckets(0.25, buckets([10.0, 20.0, 20.0, 20.0])), 0.05);
    assert_eq!(quantile_of_buckets(1.0, buckets([10.0, 20.0, 20.0, 20.0])), 0.5);
    // How far values lie above the last bound is unknown.
    assert_eq!(quantile_of_buckets(0.99, buckets([1.0, 2.0, 3.0, 20.0])), 1.0);
    // A bucket that is less than the one below it counts as that.
    assert_eq!(quantile_of_buckets(0.75, buckets([10.0, 9.0, 20.0, 20.0])), 0.75);
    assert!(quantile_of_buckets(0.5, buckets([0.0; 4])).is_nan());
    assert!(quantile_of_buckets(0.5, vec![(f64::INFINITY, 3.0)]).is_nan());
}
