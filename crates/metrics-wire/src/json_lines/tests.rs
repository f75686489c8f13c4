//! What is written is read again, bit by bit.

use std::sync::Arc;

use egret_metrics_model::{
    Buckets, CounterReset, Counts, Histogram, Labels, NORMAL_NAN_BITS, STALE_NAN_BITS,
    SeriesSamples, Span,
};

use super::{JsonLine, append_line};

#[test]
fn what_is_written_is_read_again() {
    let labels = Labels::new([("__name__", "a"), ("b", "quo\"ted\n"), ("c", "née")]);
    let values = [
        0.1,
        -1e300,
        1e-7,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::from_bits(NORMAL_NAN_BITS),
        f64::from_bits(STALE_NAN_BITS),
    ];
    let times: Vec<i64> = (0..values.len() as i64).map(|n| n * 1_000 - 2_000).collect();
    let mut text = String::new();
    let samples = SeriesSamples {
        times_ms: times.clone(),
        values: values.to_vec(),
        ..SeriesSamples::default()
    };
    append_line(&labels, &samples, &mut text);
    let line = JsonLine::parse(&text).unwrap();
    let pairs = line.labels.0.iter().map(|(name, value)| (&**name, &**value));
    assert_eq!(Labels::new(pairs), labels);
    let read: Vec<_> = line.samples().map(|(time, value)| (time, value.to_bits())).collect();
    let written: Vec<_> =
        times.iter().zip(values).map(|(time, value)| (*time, value.to_bits())).collect();
    assert_eq!(read, written, "{text}");
}

#[test]
fn what_is_wrong_is_told() {
    let error = |text| JsonLine::parse(text).unwrap_err();
    let uneven = r#"{"metric":{"__name__":"a"},"values":[1],"timestamps":[]}"#;
    assert_eq!(error(uneven), "there are 1 values and 0 timestamps");
    let word = r#"{"metric":{},"values":["x"],"timestamps":[1]}"#;
    assert!(error(word).starts_with("\"x\" is not a value"), "{}", error(word));
    assert!(error("{}").contains("missing field"), "{}", error("{}"));
}

fn buckets(spans: &[(i32, u32)], counts: Counts) -> Buckets {
    let span = |(offset, length): &(i32, u32)| Span { offset: *offset, length: *length };
    Buckets { spans: spans.iter().map(span).collect(), counts }
}

/// One of integers, one of floats with an infinite sum, and one with bounds of its own.
fn histograms() -> [Histogram; 3] {
    let integer = Histogram {
        schema: 3,
        zero_threshold: 1e-128,
        zero_count: 0.0,
        count: 0.0,
        integer_counts: Some((u64::MAX - (1 << 61), u64::MAX - (1 << 61) + (1 << 60) + 8)),
        sum: -0.1,
        positive: buckets(&[(-5, 2), (3, 1)], Counts::Integer(vec![1, 1 << 60, 0])),
        negative: buckets(&[(0, 1)], Counts::Integer(vec![7])),
        custom_bounds: Arc::from([]),
        counter_reset: CounterReset::NotReset,
    };
    let float = Histogram {
        zero_count: 0.5,
        count: 3.0,
        integer_counts: None,
        sum: f64::INFINITY,
        positive: buckets(&[(0, 2)], Counts::Float(vec![1.5, 1.0])),
        negative: buckets(&[], Counts::Float(vec![])),
        counter_reset: CounterReset::Gauge,
        ..integer.clone()
    };
    let custom = Histogram {
        schema: -53,
        zero_threshold: 0.0,
        integer_counts: Some((0, 3)),
        sum: f64::from_bits(STALE_NAN_BITS),
        positive: buckets(&[(0, 3)], Counts::Integer(vec![1, 0, 2])),
        negative: buckets(&[], Counts::Integer(vec![])),
        custom_bounds: Arc::from([0.5, 1e9]),
        counter_reset: CounterReset::Unknown,
        ..integer.clone()
    };
    [integer, float, custom]
}

#[test]
fn histograms_are_read_as_they_were_written() {
    let labels = Labels::new([("__name__", "a")]);
    let samples = SeriesSamples {
        histogram_times_ms: vec![1, 2, 3],
        histograms: histograms().map(Arc::new).to_vec(),
        ..SeriesSamples::default()
    };
    let mut text = String::new();
    append_line(&labels, &samples, &mut text);
    let line = JsonLine::parse(&text).unwrap();
    let read: Vec<_> = line.histograms().map(Result::unwrap).collect();
    assert_eq!(read.len(), 3);
    for (at, wire) in read.iter().enumerate() {
        assert_eq!(wire.time_ms, at as i64 + 1);
        // As NaN is not like itself.
        let (read, written) = (wire.to_histogram(), &*samples.histograms[at]);
        assert_eq!(read.sum.to_bits(), written.sum.to_bits());
        assert_eq!(format!("{read:?}").replace("NaN", ""), {
            let mut written = written.clone();
            // What an integer histogram has exactly, it has as a float as well.
            if let Some((zero, count)) = written.integer_counts {
                (written.zero_count, written.count) = (zero as f64, count as f64);
            }
            format!("{written:?}").replace("NaN", "")
        });
    }
    for threshold in [f64::NAN, f64::INFINITY, -1.0] {
        let mut wrong = read[0].clone();
        wrong.zero_threshold = threshold;
        assert!(wrong.find_problem().is_some(), "{threshold}");
    }
    let wrong = text.replace("\"count\":3,", "\"count\":3.5,");
    let line = JsonLine::parse(&wrong).unwrap();
    let problem = line.histograms().find_map(Result::err).unwrap();
    assert_eq!(
        problem,
        "the count 3.5 of a histogram is not an integer, and \"float\" is not true"
    );
}
