//! Records operations while they run, and merges the records into results.
//!
//! Every thread has a [`Recorder`] of its own, so none waits for another while load runs; they are
//! merged into one [`Recording`] at the end. Time is an argument: offsets into the window.
//!
//! A latency counts from the *intended* start of its operation. When a server stalls, the
//! operations that should have begun meanwhile have waited too, and say so ("coordinated omission"
//! is the name of the mistake of counting from when they were at last sent).

mod encoder;

use std::collections::BTreeMap;
use std::io::Cursor;
use std::time::Duration;

use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;

use encoder::Encoder;

use crate::memory::prefaulted_vec;
use crate::result::{Better, Metric, Phase, Second, SecondOfOperation};

/// The largest latency that is told from larger ones.
pub(crate) const LATENCY_MAX: Duration = Duration::from_secs(60);

/// Longest timeline, in seconds, that keeps the histogram of each second.
const HISTOGRAM_SECONDS_MAX: u64 = 600;

/// Seconds that a recorder holds without a further allocation.
const SECONDS_PREALLOCATED: usize = 300;

/// Significant decimal digits of a histogram.
const SIGNIFICANT_DIGITS: u8 = 3;

/// An operation is late when it began this long after its intended start.
pub(crate) const LATE_THRESHOLD: Duration = Duration::from_millis(1);

/// What the workers of one thread have done.
#[derive(Debug, Default)]
pub struct Recorder {
    operations: Vec<Operation>,
    phases: Vec<(String, String, Latencies)>,
    errors: BTreeMap<String, u64>,
    errors_by_second: BTreeMap<u64, u64>,
    late_count: u64,
    past_seconds: Vec<PastSecond>,
    current_second: u64,
    last_end: Duration,
    encoder: Encoder,
}

/// An operation: its latencies, and those of the current second.
#[derive(Debug)]
struct Operation {
    name: String,
    latencies: Latencies,
    current: Histogram<u64>,
}

/// A histogram in microseconds, with what it rounds away.
#[derive(Clone, Debug)]
struct Latencies {
    histogram: Histogram<u64>,
    total: Duration,
    largest: Duration,
}

/// The latencies of one operation in one second. Encoded, a histogram of a second is about a
/// kilobyte instead of 140, which matters in an hour.
#[derive(Clone, Debug, Default)]
struct PastSecond {
    second: u64,
    operation: usize,
    encoded: Box<[u8]>,
}

/// Merged recordings of all threads.
#[derive(Debug, Default)]
pub struct Recording {
    operations: BTreeMap<String, Latencies>,
    phases: BTreeMap<(String, String), Latencies>,
    /// Failed operations by cause.
    pub errors: BTreeMap<String, u64>,
    errors_by_second: BTreeMap<u64, u64>,
    /// Operations that began more than [`LATE_THRESHOLD`] after their intended start.
    pub late_count: u64,
    /// Operations that were due and never ended.
    pub dropped: u64,
    seconds: BTreeMap<u64, BTreeMap<String, SecondOfOperation>>,
    /// When the last operation ended.
    pub last_end: Duration,
}

impl Recorder {
    /// An operation that was to begin at `intended` began at `started` and succeeded at `ended`.
    pub fn record_success(
        &mut self,
        operation: &str,
        intended: Duration,
        started: Duration,
        ended: Duration,
    ) {
        let index = self.operation_index(operation);
        self.record_success_at(index, intended, started, ended);
    }

    /// Gets ready for operations before load begins: all memory that noting them takes is asked for
    /// and touched now, rather than by all threads in the load's first moments.
    pub(crate) fn preallocate(&mut self, operations: &[&str]) {
        for operation in operations {
            let index = self.operation_index(operation);
            let operation = &mut self.operations[index];
            operation.latencies.histogram.reset();
            operation.current.saturating_record(micros(LATENCY_MAX));
            self.encoder.encode(&operation.current);
            operation.current.reset();
        }
        self.past_seconds = prefaulted_vec(SECONDS_PREALLOCATED * operations.len());
    }

    /// The place of an operation, for [`Recorder::record_success_at`].
    pub(crate) fn operation_index(&mut self, operation: &str) -> usize {
        let existing =
            self.operations.iter().position(|known_operation| known_operation.name == operation);
        existing.unwrap_or_else(|| {
            self.operations.push(Operation {
                name: operation.to_owned(),
                latencies: Latencies::new(),
                current: histogram(),
            });
            self.operations.len() - 1
        })
    }

    /// [`Recorder::record_success`] of an operation whose place is known, without a search by name.
    pub(crate) fn record_success_at(
        &mut self,
        index: usize,
        intended: Duration,
        started: Duration,
        ended: Duration,
    ) {
        self.advance_to(ended);
        self.count_if_late(intended, started);
        let latency = ended.saturating_sub(intended);
        let operation = &mut self.operations[index];
        operation.latencies.record(latency);
        operation.current.saturating_record(micros(latency));
    }

    /// An operation failed; its time counts in no latency.
    pub fn record_failure(
        &mut self,
        cause: &str,
        intended: Duration,
        started: Duration,
        ended: Duration,
    ) {
        self.advance_to(ended);
        self.count_if_late(intended, started);
        match self.errors.get_mut(cause) {
            Some(count) => *count += 1,
            None => {
                self.errors.insert(cause.to_owned(), 1);
            }
        }
        *self.errors_by_second.entry(ended.as_secs()).or_default() += 1;
    }

    /// A part of an operation took some time.
    pub(crate) fn record_phase(&mut self, operation: &str, phase: &str, duration: Duration) {
        let existing = self
            .phases
            .iter_mut()
            .find(|(phase_operation, name, _)| phase_operation == operation && name == phase);
        if let Some((_, _, latencies)) = existing {
            latencies.record(duration);
            return;
        }
        let mut latencies = Latencies::new();
        latencies.record(duration);
        self.phases.push((operation.to_owned(), phase.to_owned(), latencies));
    }

    /// Operations that ended, well or not.
    pub fn count(&self) -> u64 {
        let succeeded: u64 =
            self.operations.iter().map(|operation| operation.latencies.histogram.len()).sum();
        succeeded + self.errors.values().sum::<u64>()
    }

    fn count_if_late(&mut self, intended: Duration, started: Duration) {
        if started.saturating_sub(intended) > LATE_THRESHOLD {
            self.late_count += 1;
        }
    }

    /// Puts the current second away when time has gone on.
    fn advance_to(&mut self, now: Duration) {
        self.last_end = self.last_end.max(now);
        if now.as_secs() == self.current_second {
            return;
        }
        for (index, operation) in self.operations.iter_mut().enumerate() {
            if operation.current.is_empty() {
                continue;
            }
            self.past_seconds.push(PastSecond {
                second: self.current_second,
                operation: index,
                encoded: self.encoder.encode(&operation.current).into(),
            });
            operation.current.reset();
        }
        self.current_second = now.as_secs();
    }
}

impl Recording {
    /// Adds up what the threads have done.
    pub fn merge(recorders: impl IntoIterator<Item = Recorder>) -> Self {
        let mut merged = Self::default();
        let mut seconds: Vec<(u64, String, Box<[u8]>)> = Vec::new();
        for mut recorder in recorders {
            // Any other second puts the current one away.
            let last_end = recorder.last_end;
            recorder.advance_to(Duration::from_secs(recorder.current_second + 1));
            for past in recorder.past_seconds.drain(..) {
                let name = recorder.operations[past.operation].name.clone();
                seconds.push((past.second, name, past.encoded));
            }
            for operation in recorder.operations {
                if operation.latencies.histogram.is_empty() {
                    continue;
                }
                merge_into(&mut merged.operations, operation.name, operation.latencies);
            }
            for (operation, phase, latencies) in recorder.phases {
                merge_into(&mut merged.phases, (operation, phase), latencies);
            }
            for (cause, count) in recorder.errors {
                *merged.errors.entry(cause).or_default() += count;
            }
            for (second, count) in recorder.errors_by_second {
                *merged.errors_by_second.entry(second).or_default() += count;
            }
            merged.late_count += recorder.late_count;
            merged.last_end = merged.last_end.max(last_end);
        }
        seconds.sort_unstable_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        for group in seconds.chunk_by(|a, b| (a.0, &a.1) == (b.0, &b.1)) {
            let summary = summarize(group.iter().map(|(_, _, encoded)| &**encoded));
            let (second, name, _) = &group[0];
            merged.seconds.entry(*second).or_default().insert(name.clone(), summary);
        }
        merged
    }

    /// Number of successes of an operation.
    pub(crate) fn successes(&self, operation: &str) -> u64 {
        self.operations.get(operation).map_or(0, |latencies| latencies.histogram.len())
    }

    /// Number of operations that succeeded.
    pub(crate) fn total_successes(&self) -> u64 {
        self.operations.values().map(|latencies| latencies.histogram.len()).sum()
    }

    /// Number of operations that failed.
    pub fn failures(&self) -> u64 {
        self.errors.values().sum()
    }

    /// The latency metric of each operation, by its name.
    pub fn metrics(&self) -> BTreeMap<String, Metric> {
        self.operations
            .iter()
            .map(|(name, latencies)| (name.clone(), latencies.to_metric()))
            .collect()
    }

    /// The latency metric of all operations as if they were one.
    pub(crate) fn combined_metric(&self) -> Option<Metric> {
        let mut remaining = self.operations.values();
        let mut sum = remaining.next()?.clone();
        remaining.for_each(|latencies| sum.merge(latencies));
        Some(sum.to_metric())
    }

    /// One entry per second from the first to the last one, those without any operation too. Above
    /// [`HISTOGRAM_SECONDS_MAX`] there are no histograms: they would be most of the file.
    pub fn timeline(&self) -> Vec<Second> {
        let last = self.seconds.keys().chain(self.errors_by_second.keys()).max();
        let Some(last) = last else {
            return Vec::new();
        };
        let has_histograms = *last < HISTOGRAM_SECONDS_MAX;
        let operations = |second| {
            let mut second_operations = self.seconds.get(&second).cloned().unwrap_or_default();
            let operations_without_histogram =
                second_operations.values_mut().filter(|_| !has_histograms);
            operations_without_histogram.for_each(|operation| operation.histogram = None);
            second_operations
        };
        (0..=*last)
            .map(|second| Second {
                second,
                operations: operations(second),
                errors: self.errors_by_second.get(&second).copied().unwrap_or(0),
            })
            .collect()
    }

    /// The phases, named `operation/phase` where several operations have phases of one name.
    pub fn phases(&self) -> BTreeMap<String, Phase> {
        let is_shared =
            |phase: &str| self.phases.keys().filter(|(_, other)| other == phase).count() > 1;
        self.phases
            .iter()
            .map(|((operation, phase), latencies)| {
                let name =
                    if is_shared(phase) { format!("{operation}/{phase}") } else { phase.clone() };
                (name, latencies.to_phase(operation))
            })
            .collect()
    }

    /// Time in phases cannot exceed what the workers had; says so when it does.
    pub(crate) fn check_phases(&self, workers: u64, wall: Duration) -> Option<String> {
        let spent: Duration = self
            .phases
            .iter()
            // Waiting in the queue happens outside the workers.
            .filter(|((_, phase), _)| phase != QUEUE_PHASE)
            .map(|(_, latencies)| latencies.total)
            .sum();
        let available = wall * u32::try_from(workers).unwrap_or(u32::MAX);
        // One part in a thousand and a millisecond for what the clock is read apart.
        let allowed = available + available / 1_000 + Duration::from_millis(1);
        (spent > allowed).then(|| {
            format!(
                "the phases add up to {:.3} s, more than {workers} workers had in {:.3} s: they are unreliable",
                spent.as_secs_f64(),
                wall.as_secs_f64()
            )
        })
    }
}

/// The phase in which an operation is due and no worker has taken it.
pub(crate) const QUEUE_PHASE: &str = "queue";

impl Latencies {
    fn new() -> Self {
        Self { histogram: histogram(), total: Duration::ZERO, largest: Duration::ZERO }
    }

    fn record(&mut self, latency: Duration) {
        self.histogram.saturating_record(micros(latency));
        self.total += latency;
        self.largest = self.largest.max(latency);
    }

    fn merge(&mut self, other: &Self) {
        self.histogram.add(&other.histogram).expect("all histograms have the same bounds");
        self.total += other.total;
        self.largest = self.largest.max(other.largest);
    }

    fn to_metric(&self) -> Metric {
        let samples = self.histogram.len();
        let quantile_ms = |quantile| percentile(&self.histogram, quantile);
        Metric {
            unit: "ms".to_owned(),
            better: Better::Lower,
            value: millis(self.total) / samples.max(1) as f64,
            p50: quantile_ms(0.5),
            p90: quantile_ms(0.9),
            p95: quantile_ms(0.95),
            p99: quantile_ms(0.99),
            p999: quantile_ms(0.999),
            max: Some(millis(self.largest)),
            samples,
            histogram: Some(encode(&self.histogram)),
        }
    }

    fn to_phase(&self, operation: &str) -> Phase {
        let quantile_ms = |quantile| percentile(&self.histogram, quantile);
        Phase {
            operation: operation.to_owned(),
            count: self.histogram.len(),
            total_ms: millis(self.total),
            p50: quantile_ms(0.5),
            p95: quantile_ms(0.95),
        }
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, micros(LATENCY_MAX), SIGNIFICANT_DIGITS)
        .expect("the bounds are constants that are valid")
}

fn merge_into<K: Ord>(sums: &mut BTreeMap<K, Latencies>, key: K, latencies: Latencies) {
    match sums.get_mut(&key) {
        Some(sum) => sum.merge(&latencies),
        None => {
            sums.insert(key, latencies);
        }
    }
}

/// A percentile in milliseconds, where at least one sample is expected beyond it: p50 of 2 samples,
/// p90 of 10, p95 of 20, p99 of 100, p99.9 of 1,000. With fewer it would be the largest by another
/// name.
fn percentile(histogram: &Histogram<u64>, quantile: f64) -> Option<f64> {
    let samples_beyond = histogram.len() as f64 * (1.0 - quantile);
    // Rounded: 1,000 × (1 − 0.999) is a little less than one in binary.
    (samples_beyond > 0.999_999).then(|| histogram.value_at_quantile(quantile) as f64 / 1_000.0)
}

fn summarize<'a>(encoded: impl Iterator<Item = &'a [u8]>) -> SecondOfOperation {
    let mut deserializer = Deserializer::new();
    let mut sum = histogram();
    for encoded in encoded {
        let second_histogram: Histogram<u64> = deserializer
            .deserialize(&mut Cursor::new(encoded))
            .expect("it was written by this process");
        sum.add(second_histogram).expect("all histograms have the same bounds");
    }
    SecondOfOperation {
        count: sum.len(),
        p50: percentile(&sum, 0.5),
        p95: percentile(&sum, 0.95),
        max: sum.max() as f64 / 1_000.0,
        histogram: Some(encode(&sum)),
    }
}

fn encode(histogram: &Histogram<u64>) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(Encoder::default().encode(histogram))
}

/// Rounded, not cut off: cutting would make every latency half a microsecond too short.
fn micros(duration: Duration) -> u64 {
    u64::try_from((duration.as_nanos() + 500) / 1_000).unwrap_or(u64::MAX).max(1)
}

/// A duration in milliseconds, as in results.
pub fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}

/// A metric that is one number.
pub fn scalar(unit: &str, better: Better, value: f64, samples: u64) -> Metric {
    Metric {
        unit: unit.to_owned(),
        better,
        value,
        p50: None,
        p90: None,
        p95: None,
        p99: None,
        p999: None,
        max: None,
        samples,
        histogram: None,
    }
}

#[cfg(test)]
mod tests;
