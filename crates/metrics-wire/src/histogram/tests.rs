//! Counts of native histograms that contradict their buckets.

use super::*;

fn of_buckets(count: u64, deltas: &[i64]) -> WireHistogram {
    WireHistogram {
        count: WireCount::Integer(count),
        positive: WireBuckets {
            spans: vec![WireSpan { offset: 0, length: deltas.len() as u32 }],
            deltas: deltas.to_vec(),
            counts: Vec::new(),
        },
        ..WireHistogram::default()
    }
}

#[test]
fn counts_that_contradict_buckets_are_problems() {
    let more = Some("the buckets hold more observations than the count");
    let fewer = Some("the buckets hold fewer observations than the count");
    assert_eq!(of_buckets(10, &[5, 0]).find_problem(), None);
    assert_eq!(of_buckets(1, &[5, 0]).find_problem(), more);
    assert_eq!(of_buckets(99, &[1, -1]).find_problem(), fewer);
    let max = i64::MAX;
    assert_eq!(of_buckets(u64::MAX, &[max, 0, 0]).find_problem(), more);
    let mut both = of_buckets(7, &[2]);
    both.negative = of_buckets(0, &[1, 1]).positive;
    both.zero_count = WireCount::Integer(2);
    assert_eq!(both.find_problem(), None);
    both.zero_count = WireCount::Integer(1);
    assert_eq!(both.find_problem(), fewer);
}

#[test]
fn observations_of_nan_are_in_no_bucket() {
    let with_nan = |count| WireHistogram { sum: f64::NAN, ..of_buckets(count, &[5]) };
    assert_eq!(with_nan(6).find_problem(), None);
    assert!(with_nan(4).find_problem().is_some());
}

#[test]
fn float_counts_are_not_added_up_but_are_not_negative() {
    let of_floats = |count, zero_count| WireHistogram {
        count: WireCount::Float(count),
        zero_count: WireCount::Float(zero_count),
        ..WireHistogram::default()
    };
    assert_eq!(of_floats(0.3, 0.1).find_problem(), None);
    let stale = f64::from_bits(egret_metrics_model::STALE_NAN_BITS);
    assert_eq!(of_floats(stale, 0.0).find_problem(), None);
    let negative = Some("the count is negative");
    assert_eq!(of_floats(-1.0, 0.0).find_problem(), negative);
    let negative = Some("the zero count is negative");
    assert_eq!(of_floats(1.0, -1.0).find_problem(), negative);
}
