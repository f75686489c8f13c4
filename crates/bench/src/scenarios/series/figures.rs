//! Metrics of a load besides latencies, and the figures of several systems in one result.

use std::time::Duration;

use super::drive::LoadResult;
use super::system::Vendor;
use super::verdict::CheckCounts;
use crate::record::{Recording, scalar};
use crate::result::{Better, Metric};
use crate::scenario::Measurement;

/// A load that has run, as a measurement. `disk_bytes` is what all its samples take.
pub(super) fn measurement(driven: LoadResult, disk_bytes: Option<u64>) -> Measurement {
    let LoadResult {
        observed,
        recorders,
        samples,
        samples_of_all,
        window,
        preload,
        rss_bytes,
        verdict,
        components,
    } = driven;
    let usage = &observed.usage;
    let each = |time: Duration, better| {
        scalar(
            "us",
            better,
            time.as_secs_f64() * 1e6 / samples.max(1) as f64,
            samples,
        )
    };
    let rate = |samples: u64, took: Duration| {
        let rate = samples as f64 / took.as_secs_f64().max(1e-9);
        scalar("1/s", Better::Higher, rate, samples)
    };
    let mut metrics = vec![
        ("samples_per_second", rate(samples, window)),
        (
            "preload_samples_per_second",
            rate(preload.samples, preload.took),
        ),
        (
            "generator_cpu_us_per_sample",
            each(usage.own, Better::Neither),
        ),
    ];
    if let Some(bytes) = rss_bytes {
        // Its process is here, and so is its processor time.
        metrics.push(("cpu_us_per_sample", each(usage.system, Better::Lower)));
        metrics.push(("rss_bytes", scalar("bytes", Better::Lower, bytes as f64, 1)));
    }
    let mut measurement = Measurement::new(observed, Recording::merge(recorders));
    measurement.metrics = metrics
        .into_iter()
        .map(|(name, metric)| (name.to_owned(), metric))
        .collect();
    measurement
        .metrics
        .extend(disk_bytes.map(|bytes| bytes_per_sample(bytes, samples_of_all)));
    if let Some(verdict) = verdict {
        let answers = rate(verdict.answers, window);
        measurement
            .metrics
            .insert("queries_per_second".to_owned(), answers);
        add_verdict(&mut measurement, verdict);
    }
    for (name, ms) in components {
        let metric = scalar("ms", Better::Neither, ms, samples);
        measurement
            .metrics
            .insert(format!("component_{name}"), metric);
    }
    measurement
}

/// How right the answers were, with some that were not.
pub(super) fn add_verdict(measurement: &mut Measurement, verdict: CheckCounts) {
    let count = |value: u64, of: u64| scalar("count", Better::Lower, value as f64, of);
    let checked = scalar(
        "count",
        Better::Neither,
        verdict.checked as f64,
        verdict.answers,
    );
    let metrics = [
        ("wrong_answers", count(verdict.wrong, verdict.answers)),
        ("empty_answers", count(verdict.empty, verdict.answers)),
        ("checked_answers", checked),
    ];
    let named = metrics.into_iter();
    measurement
        .metrics
        .extend(named.map(|(name, metric)| (name.to_owned(), metric)));
    measurement.warnings.extend(verdict.told);
}

/// What each of so many samples takes on disk.
pub(super) fn bytes_per_sample(disk_bytes: u64, samples: u64) -> (String, Metric) {
    let each = disk_bytes as f64 / samples.max(1) as f64;
    let metric = scalar("bytes", Better::Lower, each, samples);
    ("bytes_per_sample".to_owned(), metric)
}

/// Metrics whose ratio to a peer's is told.
const COMPARED: [&str; 3] = [
    "samples_per_second",
    "cpu_us_per_sample",
    "bytes_per_sample",
];

/// Adds what was measured of a system to what was measured of those before it.
pub(super) fn join(whole: &mut Option<Measurement>, mut arm: Measurement, make: Vendor) {
    if make == Vendor::Egret {
        *whole = Some(arm);
        return;
    }
    let prefix = make.prefix();
    let mut metrics = std::mem::take(&mut arm.recording).metrics();
    metrics.append(&mut arm.metrics);
    let name = prefix.trim_end_matches('_').replace('_', "-");
    let warnings: Vec<String> = arm
        .warnings
        .drain(..)
        .map(|warning| format!("{name}: {warning}"))
        .collect();
    let whole = whole.get_or_insert(arm);
    for name in COMPARED {
        if let (Some(ours), Some(theirs)) =
            (figure(whole.metrics.get(name)), figure(metrics.get(name)))
        {
            let better = metrics[name].better;
            let ratio = scalar("ratio", better, ours / theirs, 1);
            whole.metrics.insert(format!("{prefix}{name}_ratio"), ratio);
        }
    }
    let named = metrics.into_iter();
    whole
        .metrics
        .extend(named.map(|(name, metric)| (format!("{prefix}{name}"), metric)));
    whole.warnings.extend(warnings);
}

/// A number that something can be divided by.
fn figure(metric: Option<&Metric>) -> Option<f64> {
    metric
        .map(|metric| metric.value)
        .filter(|value| *value > 0.0)
}
