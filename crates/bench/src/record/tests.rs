//! The recorder on injected time: no test sleeps, and every stall is charged.

use super::*;
use crate::schedule::{Spacing, arrival_schedule};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Runs a schedule through one worker whose server takes `service` each, and stands still while
/// `stalled`.
fn serve(
    schedule: &[Duration],
    service: Duration,
    stalled: std::ops::Range<Duration>,
) -> Recording {
    let mut recorder = Recorder::default();
    let mut free = Duration::ZERO;
    for intended in schedule {
        let started = free.max(*intended);
        let served = if stalled.contains(&started) { stalled.end } else { started };
        free = served + service;
        recorder.record_success("read", *intended, started, free);
    }
    Recording::merge([recorder])
}

#[test]
fn a_stall_is_charged_to_everyone_who_waited() {
    let schedule = arrival_schedule(Spacing::Constant, 1_000.0, ms(60_000), 1).collect::<Vec<_>>();
    let stalled = ms(10_000)..ms(11_000);
    let recording = serve(&schedule, Duration::from_micros(100), stalled);
    let read = &recording.metrics()["read"];
    assert!(read.p999.unwrap() >= 900.0, "{:?}", read.p999);
    assert!(read.p50.unwrap() < 1.0);
    assert!((999.0..1_002.0).contains(&read.max.unwrap()), "{:?}", read.max);
    // Those of the stalled second, and those that caught up after it.
    assert!((1_000..1_200).contains(&recording.late_count), "{}", recording.late_count);
    let timeline = recording.timeline();
    assert_eq!(timeline[9].operations["read"].count, 1_000);
    assert!(timeline[10].operations.is_empty(), "{:?}", timeline[10]);
    assert!(timeline[11].operations["read"].count > 1_900);
}

#[test]
fn without_a_stall_nothing_is_late() {
    let schedule = arrival_schedule(Spacing::Constant, 1_000.0, ms(10_000), 1).collect::<Vec<_>>();
    let recording = serve(&schedule, Duration::from_micros(100), ms(0)..ms(0));
    assert_eq!(recording.late_count, 0);
    assert_eq!(recording.metrics()["read"].max, Some(0.1));
}

#[test]
fn percentiles_need_samples_beyond_them() {
    let shown = |samples: u64| {
        let mut recorder = Recorder::default();
        for index in 0..samples {
            recorder.record_success("x", ms(0), ms(0), ms(index + 1));
        }
        let metric = Recording::merge([recorder]).metrics()["x"].clone();
        let all = [metric.p50, metric.p90, metric.p95, metric.p99, metric.p999];
        assert!(metric.max.is_some());
        all.iter().filter(|one| one.is_some()).count()
    };
    let found: Vec<_> = [1, 2, 10, 20, 99, 100, 999, 1_000].map(shown).to_vec();
    assert_eq!(found, [0, 1, 2, 3, 3, 4, 4, 5]);
}

/// Of a second and of a phase as of everything else.
#[test]
fn percentiles_of_seconds_and_phases_need_samples_too() {
    let mut recorder = Recorder::default();
    recorder.record_success("x", ms(0), ms(0), ms(1));
    recorder.record_phase("x", "execute", ms(1));
    for index in 0..20 {
        recorder.record_success("x", ms(1_000), ms(1_000), ms(1_001 + index));
        recorder.record_phase("x", "commit", ms(1));
    }
    let recording = Recording::merge([recorder]);
    let timeline = recording.timeline();
    let (first, second) = (&timeline[0].operations["x"], &timeline[1].operations["x"]);
    assert_eq!((first.p50, first.p95, first.max), (None, None, 1.0));
    assert!(second.p50.is_some() && second.p95.is_some());
    let phases = recording.phases();
    assert_eq!((phases["execute"].p50, phases["execute"].p95), (None, None));
    assert_eq!(phases["execute"].mean_ms(), 1.0);
    assert_eq!(phases["commit"].p50, Some(1.0));
    // Each second has its whole distribution.
    let read = decode_histogram(second.histogram.as_deref().unwrap());
    assert_eq!((read.len(), read.min()), (20, 1_000));
}

fn decode_histogram(histogram: &str) -> Histogram<u64> {
    use base64::Engine;
    let bytes = base64::engine::general_purpose::STANDARD.decode(histogram).unwrap();
    Deserializer::new().deserialize(&mut Cursor::new(bytes)).unwrap()
}

#[test]
fn failures_are_counted_by_cause_and_in_no_latency() {
    let mut recorder = Recorder::default();
    recorder.record_success("x", ms(0), ms(0), ms(5));
    recorder.record_failure("40001 serialization_failure", ms(5), ms(5), ms(900));
    recorder.record_failure("40001 serialization_failure", ms(5), ms(5), ms(1_900));
    let recording = Recording::merge([recorder, Recorder::default()]);
    assert_eq!(recording.errors["40001 serialization_failure"], 2);
    assert_eq!(recording.metrics()["x"].max, Some(5.0));
    let errors: Vec<u64> = recording.timeline().iter().map(|second| second.errors).collect();
    assert_eq!(errors, [1, 1]);
}

#[test]
fn workers_add_up() {
    let worker = |shift: u64| {
        let mut recorder = Recorder::default();
        for index in 0..3_000 {
            let at = ms(index + shift);
            recorder.record_success("x", at, at, at + ms(2));
            recorder.record_phase("x", "execute", ms(2));
        }
        recorder
    };
    let recording = Recording::merge([worker(0), worker(500)]);
    let metric = &recording.metrics()["x"];
    assert_eq!((metric.samples, metric.value), (6_000, 2.0));
    let counts: Vec<u64> =
        recording.timeline().iter().map(|second| second.operations["x"].count).collect();
    assert_eq!(counts.iter().sum::<u64>(), 6_000);
    assert_eq!(counts[1], 2_000);
    assert_eq!(recording.phases()["execute"].total_ms, 12_000.0);
    assert_eq!(recording.check_phases(4, Duration::from_secs(3)), None);
    let complaint = recording.check_phases(3, Duration::from_secs(3)).unwrap();
    assert!(complaint.contains("add up to 12.000 s"), "{complaint}");
}

#[test]
fn the_histogram_in_a_result_holds_every_sample() {
    let mut recorder = Recorder::default();
    for latency in [Duration::from_micros(3), ms(7), Duration::from_secs(59)] {
        recorder.record_success("x", ms(0), ms(0), latency);
    }
    // Beyond the range: counted at its end, and exact as the maximum.
    recorder.record_success("x", ms(0), ms(0), Duration::from_secs(90));
    let metric = Recording::merge([recorder]).metrics()["x"].clone();
    let read = decode_histogram(&metric.histogram.unwrap());
    assert_eq!(read.len(), 4);
    assert_eq!(read.min(), 3);
    assert!(read.max() >= 60_000_000, "{}", read.max());
    assert_eq!(metric.max, Some(90_000.0));
}

#[test]
fn what_was_prepared_counts_nothing() {
    let at = Duration::from_millis(300);
    let mut recorder = Recorder::default();
    recorder.preallocate(&["read", "write"]);
    assert_eq!(recorder.count(), 0);
    recorder.record_success("read", Duration::ZERO, Duration::ZERO, at);
    let recording = Recording::merge([recorder]);
    assert_eq!(recording.total_successes(), 1);
    let [second] = &recording.timeline()[..] else { panic!("one second") };
    assert_eq!(second.operations["read"].count, 1);
}
