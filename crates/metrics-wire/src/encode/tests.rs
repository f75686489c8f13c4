//! What is written is read as the same, whatever it is.

use proptest::prelude::*;

use super::*;
use crate::labels::parse;
use crate::remote_write_v1::{RequestEntry, WriteRequest};
use crate::remote_write_v2::{KeyMemory, SymbolMemory, WriteRequestV2};
use crate::{LabelLimits, SampleFields, WireSpan};

type Pairs = Vec<(String, String)>;

fn sample() -> impl Strategy<Value = WireSample> {
    let time = prop_oneof![any::<i64>(), 0..2_000_000_000_000i64, Just(0)];
    let bits = prop_oneof![any::<u64>(), Just(0), Just(egret_metrics_model::STALE_NAN_BITS)];
    (time, bits).prop_map(|(time_ms, bits)| WireSample { time_ms, value: f64::from_bits(bits) })
}

fn buckets(is_float: bool) -> impl Strategy<Value = WireBuckets> {
    let span = (0..100i32, proptest::collection::vec(0..1_000i64, 0..5));
    proptest::collection::vec(span, 0..4).prop_map(move |spans| {
        let mut out = WireBuckets::default();
        let mut last = 0;
        for (offset, counts) in spans {
            let length = counts.len() as u32;
            out.spans.push(WireSpan { offset, length });
            for count in counts {
                if is_float {
                    out.counts.push(count as f64 / 2.0)
                } else {
                    out.deltas.push(count - last)
                }
                last = count;
            }
        }
        out
    })
}

fn histogram() -> impl Strategy<Value = WireHistogram> {
    let rest = (-4..9i32, any::<i64>(), any::<u32>(), 0..4u8, 0..1_000u32);
    any::<bool>().prop_flat_map(move |is_float| {
        let rest = rest.clone();
        (buckets(is_float), buckets(is_float), rest).prop_map(
            move |(positive, negative, (schema, time_ms, zeros, reset_hint, sum))| {
                let number = |count: u64| {
                    if is_float {
                        WireCount::Float(count as f64 / 4.0)
                    } else {
                        WireCount::Integer(count)
                    }
                };
                let observed = [&positive, &negative].map(|buckets| {
                    let mut last = 0;
                    let counts = buckets.deltas.iter().map(|delta| {
                        last += delta;
                        last as u64
                    });
                    counts.sum::<u64>()
                });
                WireHistogram {
                    time_ms,
                    count: number(u64::from(zeros) + observed[0] + observed[1]),
                    zero_count: number(zeros.into()),
                    sum: f64::from(sum) - 500.0,
                    schema,
                    zero_threshold: 1e-128,
                    negative,
                    positive,
                    reset_hint,
                    custom_values: Vec::new(),
                }
            },
        )
    })
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![6 => "[a-z_]{1,40}", 1 => "\\PC{0,20}", 1 => "[a-zä]{120,140}"]
}

type Parts = (Pairs, Vec<WireSample>, Vec<WireHistogram>, i64);

fn series() -> impl Strategy<Value = Parts> {
    let labels = proptest::collection::btree_map(
        text().prop_filter("a name", |name| !name.is_empty()),
        text(),
        0..6,
    );
    let labels = labels.prop_map(|map| {
        let mut pairs: Pairs = map.into_iter().collect();
        pairs.push(("__name__".into(), "metric".into()));
        pairs.sort();
        pairs.dedup_by(|one, other| one.0 == other.0);
        pairs
    });
    let samples = proptest::collection::vec(sample(), 0..5);
    (labels, samples, proptest::collection::vec(histogram(), 0..2), 0..5i64)
}

fn to_write(parts: &Parts) -> SeriesToWrite<'_> {
    let labels = parts.0.iter().map(|(name, value)| (&**name, &**value));
    SeriesToWrite {
        labels: labels.collect(),
        samples: parts.1.clone(),
        histograms: parts.2.clone(),
        created_ms: parts.3,
    }
}

fn check(
    series: &SeriesToWrite<'_>,
    raw: &[u8],
    samples: SampleFields<'_>,
    mut histograms: crate::histogram::HistogramFields<'_>,
) {
    let mut labels = Vec::new();
    parse(raw, &LabelLimits::default(), &mut labels).expect("the labels were written");
    let mut expected = series.labels.clone();
    expected.retain(|(_, value)| !value.is_empty());
    assert_eq!(labels, expected);
    let samples: Result<Vec<WireSample>, _> = samples.collect();
    assert_eq!(samples.as_ref(), Ok(&series.samples));
    let mut histogram = WireHistogram::default();
    for expected in &series.histograms {
        assert_eq!(histograms.read(&mut histogram), Ok(true));
        assert_eq!(&histogram, expected);
    }
    assert_eq!(histograms.read(&mut histogram), Ok(false));
}

proptest! {
    #[test]
    fn version_1(all in proptest::collection::vec(series(), 0..5)) {
        let mut body = Vec::new();
        for parts in &all {
            append_series_v1(&to_write(parts), &mut body);
        }
        append_metadata_v1("metric", MetricKind::Counter, "help", "", &mut body);
        let mut request = WriteRequest::new(&body);
        for parts in &all {
            let expected = to_write(parts);
            let mut known = Vec::new();
            for (name, value) in &expected.labels {
                append_label_field(name, value, &mut known);
            }
            let ahead = request.clone().next_if_labels(&known).expect("well formed").expect("it comes next");
            let Ok(Some(RequestEntry::Series(series))) = request.next() else {
                panic!("a series is missing");
            };
            prop_assert_eq!(&ahead.labels, &series.labels);
            prop_assert_eq!(&*series.labels, &*known);
            prop_assert_eq!(series.has_histograms(), !expected.histograms.is_empty());
            check(&expected, &series.labels, series.samples(), series.histograms());
            check(&expected, &ahead.labels, ahead.samples(), ahead.histograms());
        }
        prop_assert!(matches!(request.next(), Ok(Some(RequestEntry::Metadata(_)))));
        prop_assert!(matches!(request.next(), Ok(None)));
    }

    #[test]
    fn version_2(all in proptest::collection::vec(series(), 0..5)) {
        let mut request = RequestV2::default();
        for parts in &all {
            request.push(&to_write(parts), Some((MetricKind::Gauge, "help", "seconds")));
        }
        let body = request.into_body();
        let (mut symbols, mut memory) = (SymbolMemory::default(), KeyMemory::default());
        let mut request = WriteRequestV2::new(&body, &mut symbols).expect("well formed");
        for parts in &all {
            let expected = to_write(parts);
            let mut known = Vec::new();
            for (name, value) in &expected.labels {
                append_label_field(name, value, &mut known);
            }
            let series = request.next().expect("well formed").expect("it comes next");
            let key = series.build_key(&mut memory).expect("well formed");
            prop_assert_eq!(key, &*known);
            prop_assert_eq!(series.created_ms, expected.created_ms);
            check(&expected, key, series.samples(), series.histograms());
            let metadata = series.metadata().expect("well formed").expect("there is some");
            prop_assert_eq!((metadata.kind, metadata.help, metadata.unit), (MetricKind::Gauge, "help", "seconds"));
        }
        prop_assert!(matches!(request.next(), Ok(None)));
    }
}
