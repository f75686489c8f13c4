//! Against a plain map of times.

use std::collections::BTreeMap;

use egret_metrics_model::{Buckets, CounterReset, Counts, SeriesSamples, Span};
use proptest::prelude::*;

use super::*;

fn pairs(samples: SeriesSamples) -> Vec<(TimeMs, f64)> {
    samples.times_ms.into_iter().zip(samples.values).collect()
}

fn read(series: &HeadSeries, start: TimeMs, end: TimeMs) -> Vec<(TimeMs, f64)> {
    let mut read = SeriesSamples::default();
    series.snapshot().read(start, end, &mut read);
    pairs(read)
}

fn add_series(head: &mut Head, number: u64) -> Arc<HeadSeries> {
    let series = Arc::new(HeadSeries::new(number, Labels::new([("__name__", "m")])));
    head.add(series.clone());
    series
}

proptest! {
    #[test]
    fn samples_are_there_in_order_however_they_came(
        times in prop::collection::vec((0_i64..3_000, 0_u8..10), 0..900),
        start in 0_i64..3_000,
        length in 0_i64..3_000,
    ) {
        let mut head = Head::default();
        let samples = add_series(&mut head, 3);
        let mut model: BTreeMap<TimeMs, f64> = BTreeMap::new();
        let mut newest = 0;
        for (step, (time_ms, how)) in times.into_iter().enumerate() {
            // Most come in order.
            let time_ms = if how < 8 { newest + 1 } else { time_ms };
            newest = newest.max(time_ms);
            if let Some(existing) = model.get(&time_ms) {
                let (value, expected) = match step % 2 {
                    0 => (*existing, AppendOutcome::Duplicate),
                    _ => (-1.0, AppendOutcome::Conflict),
                };
                let mut duplicate = SampleBatch::default();
                duplicate.push(3, time_ms, value);
                let mut outcomes = Vec::new();
                head.append(&duplicate, |_, taken| outcomes.push(taken));
                prop_assert_eq!(outcomes, [expected]);
                continue;
            }
            let mut columns = SampleBatch::default();
            columns.push(3, time_ms, step as f64);
            columns.push(9, time_ms, 0.0);
            let is_late = model.last_key_value().is_some_and(|(last, _)| *last > time_ms);
            let mut told = Vec::new();
            head.append(&columns, |at, taken| told.push((at, taken)));
            let late = is_late.then_some((0, AppendOutcome::Late));
            let nowhere = Some((1, AppendOutcome::UnknownSeries));
            prop_assert_eq!(told, nowhere.into_iter().chain(late).collect::<Vec<_>>());
            model.insert(time_ms, step as f64);
        }
        let end = start + length;
        let expected: Vec<_> = model.range(start..=end).map(|(time_ms, value)| (*time_ms, *value)).collect();
        prop_assert_eq!(read(&samples, start, end), expected);
        let all: Vec<_> = model.into_iter().collect();
        prop_assert_eq!(read(&samples, TimeMs::MIN, TimeMs::MAX), all);
    }
}

#[test]
fn a_sample_that_was_there_is_no_error_and_another_value_is() {
    let mut head = Head::default();
    let samples = add_series(&mut head, 0);
    let mut append = |time_ms: TimeMs, value: f64| {
        let mut columns = SampleBatch::default();
        columns.push(0, time_ms, value);
        let mut outcome = AppendOutcome::InOrder;
        head.append(&columns, |_, taken| outcome = taken);
        outcome
    };
    assert_eq!(append(10, 1.0), AppendOutcome::InOrder);
    assert_eq!(append(10, 1.0), AppendOutcome::Duplicate);
    assert_eq!(append(10, f64::NAN), AppendOutcome::Conflict);
    assert_eq!(append(5, 2.0), AppendOutcome::Late);
    assert_eq!(append(5, 2.0), AppendOutcome::Duplicate);
    assert_eq!(append(5, 3.0), AppendOutcome::Conflict);
    assert_eq!(read(&samples, 0, 100), [(5, 2.0), (10, 1.0)]);
}

/// One of so many buckets.
fn histogram(buckets: usize) -> Arc<Histogram> {
    let of = |counts: Vec<u64>| Buckets {
        spans: vec![Span { offset: 0, length: counts.len() as u32 }],
        counts: Counts::Integer(counts),
    };
    Arc::new(Histogram {
        schema: 0,
        zero_threshold: 0.0,
        zero_count: 0.0,
        count: buckets as f64,
        integer_counts: Some((0, buckets as u64)),
        sum: 1.0,
        positive: of(vec![1; buckets]),
        negative: of(Vec::new()),
        custom_bounds: Arc::new([]),
        counter_reset: CounterReset::Unknown,
    })
}

proptest! {
    /// Samples come, are flushed up to some time and released, and more come: what blocks and head
    /// have together is always what came.
    #[test]
    fn nothing_is_lost_or_doubled_between_head_and_blocks(
        steps in prop::collection::vec((0_u8..13, 0_i64..2_000), 0..800),
    ) {
        let mut head = Head::default();
        let series = add_series(&mut head, 0);
        let mut model: BTreeMap<TimeMs, f64> = BTreeMap::new();
        let mut blocks: BTreeMap<TimeMs, f64> = BTreeMap::new();
        let mut captured: Option<FlushedRange> = None;
        let mut newest = 0;
        for (step, (what, time_ms)) in steps.into_iter().enumerate() {
            match (what, captured.take()) {
                (0, None) => {
                    let chunks = head.capture(0).expect("it is there");
                    let range = chunks.range_to_flush(time_ms);
                    let mut samples = SeriesSamples::default();
                    chunks.read_flushed(&range, &mut samples);
                    for (time_ms, value) in pairs(samples) {
                        let doubled = blocks.insert(time_ms, value);
                        prop_assert!(doubled.is_none(), "{time_ms} is flushed twice");
                    }
                    captured = Some(range);
                }
                (1, Some(flushed)) => head.release(0, &flushed),
                (12, None) => {
                    let deleted_span = time_ms..=time_ms + 50;
                    head.delete(0, *deleted_span.start(), *deleted_span.end());
                    model.retain(|time_ms, _| !deleted_span.contains(time_ms));
                    blocks.retain(|time_ms, _| !deleted_span.contains(time_ms));
                }
                (11, kept) => {
                    captured = kept;
                    head.append_histogram(0, time_ms, histogram(step));
                }
                (_, kept) => {
                    captured = kept;
                    let time_ms = if what < 9 { newest + 1 } else { time_ms };
                    newest = newest.max(time_ms);
                    if model.contains_key(&time_ms) {
                        continue;
                    }
                    let mut batch = SampleBatch::default();
                    batch.push(0, time_ms, step as f64);
                    head.append(&batch, |_, _| {});
                    model.insert(time_ms, step as f64);
                }
            }
            let mut all = blocks.clone();
            all.extend(read(&series, TimeMs::MIN, TimeMs::MAX));
            prop_assert_eq!(&all, &model);
            prop_assert_eq!(head.sample_bytes(), series.snapshot().sample_bytes());
        }
        if let Some(flushed) = captured {
            head.release(0, &flushed);
        }
        let removed = head.remove(0).expect("it is there");
        prop_assert_eq!(head.sample_bytes(), 0);
        for (time_ms, _) in read(&removed, TimeMs::MIN, TimeMs::MAX) {
            prop_assert!(!blocks.contains_key(&time_ms), "{time_ms} was released");
        }
    }

    #[test]
    fn series_are_found_by_number_after_any_were_removed(
        removed in prop::collection::vec(0_u64..3_000, 0..60),
        every in 1_u64..40,
    ) {
        let mut head = Head::default();
        (0..3_000).for_each(|number| drop(add_series(&mut head, number)));
        let is_removed = |number: u64| !number.is_multiple_of(every) || removed.contains(&number);
        for number in (0..3_000).filter(|number| is_removed(*number)) {
            prop_assert!(head.remove(number).is_some());
        }
        head.compact_slots();
        prop_assert_eq!(head.next_number(), 3_000);
        for number in 0..3_000 {
            let found = head.series(number).map(|series| series.number);
            prop_assert_eq!(found, (!is_removed(number)).then_some(number));
        }
    }
}
