//! Late samples against a plain map, and the work that they cost.

use std::collections::BTreeMap;
use std::sync::Arc;

use egret_log::simulated::SplitMix64;
use egret_metrics_model::{Labels, SeriesSamples};
use proptest::prelude::*;

use super::*;
use crate::core::chunk::work::{DECODED_SAMPLES, ENCODED_SAMPLES};
use crate::core::head::{AppendOutcome, FlushedRange, Head, HeadSeries};
use crate::core::record::SampleBatch;

const NEWEST_MS: TimeMs = 10_000_000;

/// A head with one series, which has one sample that is newer than all that come.
fn head_with_newest() -> (Head, Arc<HeadSeries>) {
    let mut head = Head::default();
    let series = Arc::new(HeadSeries::new(0, Labels::new([("__name__", "m")])));
    head.add(series.clone());
    append(&mut head, &[(NEWEST_MS, 0.0)]);
    (head, series)
}

fn append(head: &mut Head, samples: &[(TimeMs, f64)]) -> Vec<AppendOutcome> {
    let mut batch = SampleBatch::default();
    samples.iter().for_each(|(time_ms, value)| batch.push(0, *time_ms, *value));
    let mut outcomes = vec![AppendOutcome::InOrder; samples.len()];
    head.append(&batch, |index, outcome| outcomes[index] = outcome);
    outcomes
}

fn read(series: &HeadSeries, span: TimeSpan) -> Vec<(TimeMs, f64)> {
    let mut samples = SeriesSamples::default();
    series.read(span.start, span.end, &mut samples);
    samples.times_ms.into_iter().zip(samples.values).collect()
}

fn late(head: &Head) -> LateSamples {
    head.series(0).expect("it is there").snapshot().out_of_order().late.clone()
}

/// Checks what the look-ups rely on.
fn check_runs(late: &LateSamples) {
    for run in &late.runs {
        assert!(!run.chunks.is_empty());
        for late_chunk in &run.chunks {
            assert_eq!(
                late_chunk.chunk.samples().last().map(|last| last.0),
                Some(late_chunk.end_ms)
            );
        }
        for pair in run.chunks.windows(2) {
            assert!(pair[0].end_ms < pair[1].chunk.first_ms(), "chunks of a run overlap");
        }
        let sample_count: usize = run.chunks.iter().map(|late_chunk| late_chunk.chunk.len()).sum();
        assert_eq!(run.sample_count, sample_count);
    }
    let bytes: usize = late.runs.iter().map(LateRun::size_bytes).sum();
    assert_eq!(late.run_bytes, bytes);
    assert!(late.buffer.len() < BUFFERED_SAMPLES_MAX);
}

/// A request of so many samples, in a span of so many milliseconds, in any order and with
/// duplicates.
fn random_request(random: &mut SplitMix64, start: TimeMs, span_ms: u64) -> Vec<(TimeMs, f64)> {
    let count_max = if random.percent(30) { 1_500 } else { 20 };
    let mut sample = |_: u64| {
        let time_ms = start + random.next_below(span_ms) as TimeMs;
        (time_ms, random.next_below(3) as f64)
    };
    (0..count_max).map(&mut sample).collect()
}

fn run_model(seed: u64) {
    let mut random = SplitMix64::new(seed);
    let (mut head, series) = head_with_newest();
    let mut expected = BTreeMap::from([(NEWEST_MS, 0.0)]);
    let mut in_blocks = BTreeMap::new();
    let mut captured: Option<FlushedRange> = None;
    for _ in 0..40 {
        match random.next_below(10) {
            0 if captured.is_none() => {
                let chunks = head.capture(0).expect("it is there");
                let range = chunks.range_to_flush(TimeMs::MIN);
                let mut samples = SeriesSamples::default();
                chunks.read_flushed(&range, &mut samples);
                in_blocks.extend(samples.times_ms.into_iter().zip(samples.values));
                captured = Some(range);
            }
            // A flush that failed is begun anew.
            1 if random.percent(30) => captured = None,
            1 => {
                if let Some(range) = captured.take() {
                    head.release(0, &range);
                    for time_ms in in_blocks.keys() {
                        expected.remove(time_ms);
                    }
                }
                in_blocks.clear();
            }
            2 if captured.is_none() => {
                let start = random.next_below(60_000) as TimeMs;
                let span = start..=start + random.next_below(5_000) as TimeMs;
                head.delete(0, *span.start(), *span.end());
                expected.retain(|time_ms, _| !span.contains(time_ms));
            }
            _ => {
                let start = random.next_below(50_000) as TimeMs;
                let span_ms = [100, 2_000, 50_000][random.next_below(3) as usize];
                let request = random_request(&mut random, start, span_ms);
                let outcomes = append(&mut head, &request);
                for ((time_ms, value), outcome) in request.into_iter().zip(outcomes) {
                    let expected_outcome = match expected.get(&time_ms) {
                        Some(standing) if *standing == value => AppendOutcome::Duplicate,
                        Some(_) => AppendOutcome::Conflict,
                        None => AppendOutcome::Late,
                    };
                    assert_eq!(outcome, expected_outcome, "{value} at {time_ms}");
                    expected.entry(time_ms).or_insert(value);
                }
            }
        }
        if captured.is_none() {
            in_blocks.clear();
        }
        check_runs(&late(&head));
        let all: Vec<_> = expected.iter().map(|(time_ms, value)| (*time_ms, *value)).collect();
        assert_eq!(read(&series, TimeSpan::ALL), all);
        let start = random.next_below(100_000) as TimeMs;
        let span = TimeSpan { start, end: start + 1_000 };
        let within: Vec<_> = expected.range(start..=span.end).map(|(t, v)| (*t, *v)).collect();
        assert_eq!(read(&series, span), within);
        assert_eq!(series.has_samples(span.start, span.end), !within.is_empty());
        assert_eq!(head.sample_bytes(), series.snapshot().sample_bytes());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn late_samples_are_those_of_a_map_in_whatever_order_they_come(seed in any::<u64>()) {
        run_model(seed);
    }
}

/// Samples that were decoded and encoded for each sample of some requests, each of which has
/// samples of a series that has newer ones.
fn work_per_sample(requests: &[Vec<(TimeMs, f64)>]) -> (usize, usize) {
    let (mut head, _) = head_with_newest();
    DECODED_SAMPLES.set(0);
    ENCODED_SAMPLES.set(0);
    for request in requests {
        let outcomes = append(&mut head, request);
        assert!(outcomes.iter().all(|outcome| *outcome == AppendOutcome::Late));
    }
    let (decoded, encoded) = (DECODED_SAMPLES.get(), ENCODED_SAMPLES.get());
    check_runs(&late(&head));
    let sample_count: usize = requests.iter().map(Vec::len).sum();
    (decoded.div_ceil(sample_count), encoded.div_ceil(sample_count))
}

fn shuffle<T>(items: &mut [T]) {
    let mut random = SplitMix64::new(7);
    for index in (1..items.len()).rev() {
        items.swap(index, random.next_below(index as u64 + 1) as usize);
    }
}

fn requests_of(samples: &[(TimeMs, f64)], samples_per_request: usize) -> Vec<Vec<(TimeMs, f64)>> {
    samples.chunks(samples_per_request).map(<[_]>::to_vec).collect()
}

fn ascending_samples(count: usize) -> Vec<(TimeMs, f64)> {
    (0..count).map(|index| (index as TimeMs * 15, (index * 7_919 % 100_003) as f64)).collect()
}

#[test]
fn ascending_late_samples_are_encoded_once_and_decode_nothing() {
    let samples = ascending_samples(30_000);
    for samples_per_request in [1, 100, 10_000, 30_000] {
        let requests = requests_of(&samples, samples_per_request);
        let (decoded, encoded) = work_per_sample(&requests);
        assert_eq!((decoded, encoded), (0, 1), "{samples_per_request} a request");
    }
}

#[test]
fn pieces_of_time_in_any_order_are_encoded_a_few_times() {
    let samples = ascending_samples(60_000);
    for samples_per_request in [100, 1_000, 3_000] {
        let mut requests = requests_of(&samples, samples_per_request);
        requests.reverse();
        let (decoded, encoded) = work_per_sample(&requests);
        assert!(decoded <= 8 && encoded <= 8, "descending: {decoded} decoded, {encoded} encoded");
        shuffle(&mut requests);
        let (decoded, encoded) = work_per_sample(&requests);
        assert!(decoded <= 40 && encoded <= 10, "shuffled: {decoded} decoded, {encoded} encoded");
    }
}

#[test]
fn shuffled_samples_cost_no_more_when_there_are_many_more() {
    let work = |count: usize| {
        let mut samples = ascending_samples(count);
        shuffle(&mut samples);
        work_per_sample(&requests_of(&samples, 2_000))
    };
    let (few_decoded, few_encoded) = work(10_000);
    let (many_decoded, many_encoded) = work(160_000);
    // Sixteen times as many samples are two levels of merges more.
    assert!(many_encoded <= few_encoded + 4, "{few_encoded} and {many_encoded} encoded");
    let decoded_max = 4 * few_decoded + 200;
    assert!(many_decoded <= decoded_max, "{few_decoded} and {many_decoded} decoded");
}

#[test]
fn samples_that_are_there_already_decode_each_chunk_once_a_request() {
    let (mut head, _) = head_with_newest();
    let mut samples = ascending_samples(50_000);
    append(&mut head, &samples);
    shuffle(&mut samples);
    DECODED_SAMPLES.set(0);
    ENCODED_SAMPLES.set(0);
    let outcomes = append(&mut head, &samples);
    assert!(outcomes.iter().all(|outcome| *outcome == AppendOutcome::Duplicate));
    assert_eq!((DECODED_SAMPLES.get(), ENCODED_SAMPLES.get()), (50_000, 0));
}
