//! Windows that advance hold what windows looked up one by one would.

use egret_log::simulated::SplitMix64;
use egret_metrics_model::{Labels, TimeSpan};
use proptest::prelude::*;

use super::super::{EvalOptions, MemorySource, Query, QueryResult};
use super::compute_quantile;

#[test]
fn quantiles_are_interpolated_and_nan_is_below_all() {
    let of = |q, values: &[f64]| compute_quantile(q, &mut values.to_vec());
    assert_eq!(of(0.5, &[3.0, 1.0, 2.0]), 2.0);
    assert_eq!(of(0.25, &[0.0, 2.0]), 0.5);
    assert_eq!(of(1.0, &[f64::NAN, 5.0]), 5.0);
    assert!(of(0.0, &[5.0, f64::NAN]).is_nan());
    assert_eq!((of(-1.0, &[1.0]), of(2.0, &[1.0])), (f64::NEG_INFINITY, f64::INFINITY));
    assert!(of(0.5, &[]).is_nan());
}

#[test]
fn blocks_of_a_long_window_come_to_what_its_samples_do() {
    let mut source = MemorySource::default();
    let labels = Labels::new([("__name__", "x")]);
    let mut chance = SplitMix64::new(7);
    for sample in 0..2000 {
        let value = match chance.next_below(200) {
            0 => f64::NAN,
            1 => -1e17,
            2 => 1e17,
            _ => chance.next_below(1_000_000) as f64 / 1e3,
        };
        source.add(&labels, sample * 1000 + chance.next_below(900) as i64, value);
    }
    for function in ["sum_over_time", "avg_over_time", "min_over_time", "max_over_time"] {
        let query = Query::parse(&format!("{function}((x == x)[10m:1s])")).expect("PromQL");
        let span = TimeSpan { start: 0, end: 2_000_000 };
        let options = EvalOptions::default();
        let answer = query.range(&source, span, 60_000, &options);
        let QueryResult::Matrix(series) = answer.expect("an answer").result else {
            panic!("a range query yields a matrix");
        };
        for (at, value) in &series[0].floats {
            let answer = query.instant(&source, *at, &options).expect("an answer");
            let QueryResult::Vector(samples) = answer.result else {
                panic!("an instant query yields a vector");
            };
            let super::super::SampleValue::Float(wanted) = samples[0].value else {
                panic!("the samples are numbers");
            };
            assert!(
                (value - wanted).abs() <= 1e-12 * wanted.abs(),
                "{function} at {at}: {value}, {wanted}"
            );
        }
    }
}

proptest! {
    #[test]
    fn windows_hold_what_they_should(
        times in prop::collection::btree_set(0..500_i64, 0..60),
        range in 1..120_i64,
        step in 1..50_i64,
        offset in (1..60_i64, any::<bool>()).prop_map(|(offset, back)| if back { offset } else { -offset }),
    ) {
        let mut source = MemorySource::default();
        let labels = Labels::new([("__name__", "x")]);
        for time in &times {
            // Falls now and then, so that increases have resets to find.
            source.add(&labels, *time * 1000, (time * 7 % 40) as f64);
        }
        let text = format!("sum_over_time(x[{range}s] offset {offset}s) + 1000000 * count_over_time(x[{range}s] offset {offset}s) + 0 * resets(x[{range}s] offset {offset}s)");
        let query = Query::parse(&text).expect("PromQL");
        let span = TimeSpan { start: 0, end: 500_000 };
        let answer = query.range(&source, span, step * 1000, &EvalOptions::default());
        let QueryResult::Matrix(series) = answer.expect("an answer").result else {
            panic!("a range query yields a matrix");
        };
        let got = series.first().map(|one| one.floats.clone()).unwrap_or_default();
        let mut wanted = Vec::new();
        for at in (0..=500).step_by(step as usize) {
            let end = at - offset;
            let window: Vec<i64> = times.iter().copied().filter(|time| *time > end - range && *time <= end).collect();
            if !window.is_empty() {
                let sum: i64 = window.iter().map(|time| time * 7 % 40).sum();
                wanted.push((at * 1000, (sum + 1_000_000 * window.len() as i64) as f64));
            }
        }
        prop_assert_eq!(got, wanted);
        let query = Query::parse(&format!("resets(x[{range}s] offset {offset}s)")).expect("PromQL");
        for at in (0..=500).step_by(step as usize) {
            let window: Vec<i64> = times.iter().copied().filter(|time| *time > at - offset - range && *time <= at - offset).collect();
            let resets = window.windows(2).filter(|pair| pair[1] * 7 % 40 < pair[0] * 7 % 40).count();
            let answer = query.instant(&source, at * 1000, &EvalOptions::default()).expect("an answer");
            let QueryResult::Vector(samples) = answer.result else {
                panic!("an instant query yields a vector");
            };
            let wanted = (!window.is_empty()).then_some(super::super::SampleValue::Float(resets as f64));
            prop_assert_eq!(samples.into_iter().next().map(|sample| sample.value), wanted);
        }
    }
}
