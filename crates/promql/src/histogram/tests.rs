//! Histograms are taken over without loss, and sums of them are what their parts were.

use proptest::prelude::*;

use egret_metrics_model::Span;

use super::*;

fn stored(spans: Vec<Span>, counts: Counts) -> Histogram {
    let none = Buckets { spans: Vec::new(), counts: Counts::Integer(Vec::new()) };
    Histogram {
        schema: 0,
        zero_threshold: 0.001,
        zero_count: 0.0,
        count: 0.0,
        integer_counts: Some((2, 10)),
        sum: 20.0,
        positive: Buckets { spans, counts },
        negative: none,
        custom_bounds: Arc::from([]),
        counter_reset: CounterReset::Unknown,
    }
}

#[test]
fn buckets_are_where_their_spans_say() {
    let spans = vec![Span { offset: -1, length: 2 }, Span { offset: 3, length: 1 }];
    let histogram = FloatHistogram::from(&stored(spans, Counts::Integer(vec![1, 0, 7])));
    assert_eq!(histogram.positive, [(-1, 1.0), (4, 7.0)]);
    assert_eq!((histogram.zero_count, histogram.count), (2.0, 10.0));
    let text = "{count:10, sum:20, [-0.001,0.001]:2, (0.25,0.5]:1, (8,16]:7}";
    assert_eq!(histogram.to_string(), text);
}

/// Two observations around zero and two above it. Without a bucket below zero, those around zero
/// are taken to lie above it.
#[test]
fn empty_buckets_bound_the_observations_around_zero() {
    let span = |length| vec![Span { offset: 1, length }];
    let mut histogram =
        Histogram { integer_counts: Some((2, 4)), ..stored(span(1), Counts::Integer(vec![2])) };
    let quantile = |histogram: &Histogram| FloatHistogram::from(histogram).quantile(0.25).0;
    assert_eq!(quantile(&histogram), 0.0005);
    histogram.negative = Buckets { spans: span(1), counts: Counts::Integer(vec![0]) };
    assert_eq!(quantile(&histogram), 0.0);
    let mut sum = FloatHistogram::from(&histogram);
    let same = sum.clone();
    sum.add(&same).expect("both are exponential");
    assert_eq!(sum.quantile(0.25).0, 0.0005);
}

#[test]
fn the_last_bucket_ends_with_the_largest_number() {
    let histogram =
        FloatHistogram { positive: vec![(1024, 1.0)], count: 1.0, ..FloatHistogram::default() };
    assert_eq!(histogram.buckets()[0].upper, f64::MAX);
}

#[test]
fn sums_end_whatever_the_thresholds_are() {
    let of = |zero_threshold| FloatHistogram {
        zero_threshold,
        count: 2.0,
        positive: vec![(0, 1.0), (1, 1.0)],
        ..FloatHistogram::default()
    };
    let thresholds = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 0.0, 0.75];
    for (left, right) in
        thresholds.iter().flat_map(|left| thresholds.iter().map(move |right| (*left, *right)))
    {
        let (mut sum, other) = (of(left), of(right));
        sum.add(&other).expect("both are exponential");
        assert_eq!(sum.count, 4.0, "{left} and {right}");
        let mut total = Total::from_histogram(&other);
        total.add_to_mean(&of(left)).expect("both are exponential");
        assert_eq!(total.mean().count, 2.0, "{left} and {right}");
        let _ = of(left).is_reset_since(&other);
    }
}

#[test]
fn counts_that_fall_are_a_reset() {
    let of =
        |positive: Side, count| FloatHistogram { positive, count, ..FloatHistogram::default() };
    let before = of(vec![(0, 2.0), (1, 4.0)], 6.0);
    assert!(!of(vec![(0, 3.0), (1, 4.0)], 7.0).is_reset_since(&before));
    assert!(of(vec![(0, 1.0), (1, 9.0)], 10.0).is_reset_since(&before));
    assert!(of(vec![(1, 9.0)], 9.0).is_reset_since(&before));
    let custom = |bounds: &[f64], positive: Side| FloatHistogram {
        schema: CUSTOM_SCHEMA,
        custom_bounds: bounds.into(),
        count: positive.iter().map(|(_, count)| count).sum(),
        positive,
        ..FloatHistogram::default()
    };
    // Of differing bounds, those that both have are compared.
    let before = custom(&[1.0, 2.0, 3.0], vec![(0, 1.0), (1, 1.0)]);
    assert!(!custom(&[1.0, 3.0], vec![(0, 1.0), (1, 1.0)]).is_reset_since(&before));
    assert!(custom(&[1.0, 3.0], vec![(1, 2.0)]).is_reset_since(&before));
}

#[test]
fn a_zero_bucket_swallows_what_it_would_divide() {
    let mut narrow = FloatHistogram {
        positive: vec![(-2, 1.0), (0, 2.0), (3, 4.0)],
        count: 7.0,
        ..FloatHistogram::default()
    };
    let wide = FloatHistogram {
        zero_threshold: 0.6,
        zero_count: 1.0,
        count: 1.0,
        ..FloatHistogram::default()
    };
    narrow.add(&wide).expect("both are exponential");
    assert_eq!((narrow.zero_threshold, narrow.zero_count), (1.0, 4.0));
    assert_eq!(narrow.positive, [(3, 4.0)]);
}

fn any_histogram() -> impl Strategy<Value = FloatHistogram> {
    let side = prop::collection::btree_map(-8..8_i32, 1..100_u32, 0..6);
    (0..4_i32, side.clone(), side).prop_map(|(schema, positive, negative)| {
        let side = |side: std::collections::BTreeMap<i32, u32>| -> Side {
            side.into_iter().map(|(at, count)| (at, f64::from(count))).collect()
        };
        let (positive, negative) = (side(positive), side(negative));
        let count = positive.iter().chain(&negative).map(|(_, count)| count).sum();
        FloatHistogram {
            schema,
            positive,
            negative,
            count,
            sum: count,
            ..FloatHistogram::default()
        }
    })
}

proptest! {
    #[test]
    fn what_is_added_can_be_taken_away(a in any_histogram(), b in any_histogram()) {
        let mut sum = a.clone();
        sum.add(&b).expect("both are exponential");
        prop_assert_eq!(sum.count, a.count + b.count);
        let in_buckets: f64 = sum.buckets().iter().map(|bucket| bucket.count).sum();
        prop_assert_eq!(in_buckets, sum.count);
        prop_assert!(!sum.is_reset_since(&a));
        sum.subtract(&b).expect("both are exponential");
        let coarse = a.with_schema(a.schema.min(b.schema));
        prop_assert_eq!(sum.positive, coarse.positive);
        prop_assert_eq!(sum.negative, coarse.negative);
    }

    #[test]
    fn a_fraction_below_a_quantile_is_its_share(histogram in any_histogram(), share in 0.01..0.99_f64) {
        prop_assume!(histogram.count > 0.0);
        let (value, _) = histogram.quantile(share);
        let fraction = histogram.fraction(f64::NEG_INFINITY, value);
        prop_assert!((fraction - share).abs() < 1e-6, "{} below {}", fraction, value);
    }
}

#[test]
fn bounds_are_the_numbers_that_prometheus_has() {
    let bound = |schema, index| {
        let histogram = FloatHistogram { schema, ..FloatHistogram::default() };
        histogram.upper_bound(index)
    };
    assert_eq!((bound(0, 0), bound(0, 3), bound(0, -2)), (1.0, 8.0, 0.25));
    assert_eq!((bound(-2, 1), bound(-2, -1)), (16.0, 0.0625));
    // Not the number that is nearest to the square root of 2, but the one below it.
    let below = std::f64::consts::SQRT_2.next_down();
    assert_eq!((bound(1, 1), bound(8, 128)), (below, below));
    assert_eq!((bound(0, -1074), bound(0, -1080)), (5e-324, 0.0));
    assert_eq!(bound(0, 1025), f64::INFINITY);
    assert_eq!((bound(3, 8191), bound(3, 8192)), (1.6484918731100238e308, f64::MAX));
}

#[test]
fn buckets_are_shown_with_the_bounds_they_include() {
    let kinds = |histogram: &FloatHistogram| {
        let rendered = histogram.rendered_buckets().into_iter();
        rendered.map(|(kind, lower, upper, _)| (kind, lower, upper)).collect::<Vec<_>>()
    };
    let custom = FloatHistogram {
        schema: super::CUSTOM_SCHEMA,
        positive: vec![(0, 1.0), (1, 1.0), (2, 1.0)],
        custom_bounds: [-1.0, 1.0].into(),
        ..FloatHistogram::default()
    };
    let infinity = f64::INFINITY;
    let expected = [(3, -infinity, -1.0), (0, -1.0, 1.0), (0, 1.0, infinity)];
    assert_eq!(kinds(&custom), expected);
    // The bucket around zero takes from its neighbours what it covers; a difference may have less
    // than nothing in it.
    let around_zero = |zero_count| FloatHistogram {
        zero_threshold: 0.75,
        zero_count,
        positive: vec![(0, 1.0)],
        negative: vec![(0, 1.0)],
        ..FloatHistogram::default()
    };
    let outside = [(1, -1.0, -0.75), (0, 0.75, 1.0)];
    let expected = [outside[0], (3, -0.75, 0.75), outside[1]];
    assert_eq!(kinds(&around_zero(2.0)), expected);
    assert_eq!(kinds(&around_zero(-2.0)), outside);
    let text = "{count:0, sum:0, [-1,-0.5):1, [-0.75,0.75]:-2, (0.5,1]:1}";
    assert_eq!(around_zero(-2.0).to_string(), text);
}
