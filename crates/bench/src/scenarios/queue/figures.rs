//! Metrics of a load besides latencies: memory and disk of the server, seen from outside.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::drive::LoadResult;
use super::signals::Signals;
use crate::footprint::{disk_bytes, rss_bytes};
use crate::record::{Recording, scalar};
use crate::result::{Better, Metric};
use crate::scenario::Measurement;

/// How often memory and disk are looked at.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);

/// Memory and disk of a task queue on this machine, looked at while a load runs.
#[derive(Clone, Debug, Default)]
pub(super) struct ResourceSampler {
    process: Option<u32>,
    directory: Option<PathBuf>,
    rss_bytes: u64,
    disk_bytes: u64,
    sample_count: u64,
}

impl ResourceSampler {
    /// Of this process and this directory, where they are on this machine.
    pub(super) fn new(process: Option<u32>, directory: Option<PathBuf>) -> Self {
        Self { process, directory, ..Self::default() }
    }

    /// Looks until the window has ended.
    pub(super) async fn sample_until_end(&mut self, signals: &Signals, end: Option<Instant>) {
        let end = end.map(tokio::time::Instant::from_std);
        let mut ticks = tokio::time::interval(SAMPLE_INTERVAL);
        loop {
            let ended = async {
                match end {
                    Some(end) => tokio::time::sleep_until(end).await,
                    None => signals.window_ended.notified().await,
                }
            };
            tokio::select! {
                () = ended => break,
                _ = ticks.tick() => self.sample(),
            }
        }
    }

    /// Notes the largest values.
    pub(super) fn sample(&mut self) {
        let rss = self.process.and_then(rss_bytes).unwrap_or_default();
        self.rss_bytes = self.rss_bytes.max(rss);
        let disk = self.directory.as_deref().map_or(0, disk_bytes);
        self.disk_bytes = self.disk_bytes.max(disk);
        self.sample_count += 1;
    }

    /// The most memory seen, in bytes.
    pub(super) fn rss(&self) -> u64 {
        self.rss_bytes
    }

    /// The most disk seen, in bytes.
    pub(super) fn disk(&self) -> u64 {
        self.disk_bytes
    }

    /// As results have them.
    pub(super) fn metrics(&self) -> Vec<(&'static str, Metric)> {
        let bytes = |value: u64| scalar("bytes", Better::Lower, value as f64, self.sample_count);
        let mut metrics = Vec::new();
        if self.process.is_some() {
            metrics.push(("rss_bytes", bytes(self.rss_bytes)));
        }
        if self.directory.is_some() {
            metrics.push(("disk_bytes", bytes(self.disk_bytes)));
        }
        metrics
    }
}

/// Divides by a number of cycles.
pub(super) struct PerCycle(u64);

impl PerCycle {
    pub(super) fn new(cycles: u64) -> Self {
        Self(cycles)
    }

    /// Time per cycle, in microseconds.
    pub(super) fn micros(&self, time: Duration, better: Better) -> Metric {
        let micros = time.as_secs_f64() * 1e6 / self.0.max(1) as f64;
        scalar("us", better, micros, self.0)
    }
}

/// A load that has run, as a measurement.
pub(super) fn into_measurement(result: LoadResult) -> Measurement {
    let LoadResult { outcome, observation: observed, warmup, window, sampler } = result;
    let cycles = outcome.cycles;
    let rate = |count: u64| {
        let rate = count as f64 / window.as_secs_f64().max(1e-9);
        scalar("1/s", Better::Higher, rate, count)
    };
    let per_cycle = PerCycle::new(cycles);
    let count =
        |value: u64| scalar("count", Better::Lower, value as f64, outcome.ledger.accepted());
    let mut metrics = vec![
        ("cycles_per_second", rate(cycles)),
        ("enqueues_per_second", rate(outcome.enqueued)),
        ("lost", count(outcome.ledger.lost())),
        ("duplicated", count(outcome.ledger.duplicated)),
        ("unfinished", count(outcome.unfinished)),
        ("server_cpu_us_per_cycle", per_cycle.micros(observed.usage.system, Better::Lower)),
        ("generator_cpu_us_per_cycle", per_cycle.micros(observed.usage.own, Better::Neither)),
    ];
    metrics.extend(sampler.metrics());
    let mut recording = Recording::merge([outcome.recorder]);
    recording.late_count = outcome.late;
    let names = metrics.into_iter().map(|(name, metric)| (name.to_owned(), metric));
    let metrics = names.collect();
    let mut measurement = Measurement::new(observed, recording);
    measurement.metrics = metrics;
    measurement.warmup = Some(warmup);
    if outcome.ledger.lost() > 0 || outcome.ledger.duplicated > 0 {
        measurement.warnings.push(format!(
            "{} acknowledged tasks were never completed, {} were delivered or completed twice",
            outcome.ledger.lost(),
            outcome.ledger.duplicated
        ));
    }
    measurement
}
