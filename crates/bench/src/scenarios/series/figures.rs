//! Metrics of a load besides latencies, and the figures of several systems in one result.

use std::time::Duration;

use super::answer_checks::CheckCounts;
use super::drive::LoadResult;
use super::system::Vendor;
use crate::record::{Recording, scalar};
use crate::result::{Better, Metric};
use crate::scenario::Measurement;

/// A load that has run, as a measurement. `disk_bytes` is what all its samples take.
pub(super) fn into_measurement(result: LoadResult, disk_bytes: Option<u64>) -> Measurement {
    let LoadResult {
        observation,
        recorders,
        samples,
        total_samples,
        window,
        preload,
        rss_bytes,
        check_counts: verdict,
        components,
    } = result;
    let usage = &observation.usage;
    let micros_per_sample = |time: Duration, better| {
        scalar("us", better, time.as_secs_f64() * 1e6 / samples.max(1) as f64, samples)
    };
    let rate = |samples: u64, duration: Duration| {
        let rate = samples as f64 / duration.as_secs_f64().max(1e-9);
        scalar("1/s", Better::Higher, rate, samples)
    };
    let mut metrics = vec![
        ("samples_per_second", rate(samples, window)),
        ("preload_samples_per_second", rate(preload.samples, preload.duration)),
        ("generator_cpu_us_per_sample", micros_per_sample(usage.own, Better::Neither)),
    ];
    if let Some(bytes) = rss_bytes {
        // Its process is here, and so is its processor time.
        metrics.push(("cpu_us_per_sample", micros_per_sample(usage.system, Better::Lower)));
        metrics.push(("rss_bytes", scalar("bytes", Better::Lower, bytes as f64, 1)));
    }
    let mut measurement = Measurement::new(observation, Recording::merge(recorders));
    measurement.metrics =
        metrics.into_iter().map(|(name, metric)| (name.to_owned(), metric)).collect();
    measurement.metrics.extend(disk_bytes.map(|bytes| bytes_per_sample(bytes, total_samples)));
    if let Some(check_counts) = verdict {
        let answer_rate = rate(check_counts.answers, window);
        measurement.metrics.insert("queries_per_second".to_owned(), answer_rate);
        add_check_counts(&mut measurement, check_counts);
    }
    for (name, ms) in components {
        let metric = scalar("ms", Better::Neither, ms, samples);
        measurement.metrics.insert(format!("component_{name}"), metric);
    }
    measurement
}

/// How right the answers were, with some that were not.
pub(super) fn add_check_counts(measurement: &mut Measurement, check_counts: CheckCounts) {
    let count = |value: u64, total: u64| scalar("count", Better::Lower, value as f64, total);
    let checked =
        scalar("count", Better::Neither, check_counts.checked as f64, check_counts.answers);
    let metrics = [
        ("wrong_answers", count(check_counts.wrong, check_counts.answers)),
        ("empty_answers", count(check_counts.empty, check_counts.answers)),
        ("checked_answers", checked),
    ];
    let named = metrics.into_iter();
    measurement.metrics.extend(named.map(|(name, metric)| (name.to_owned(), metric)));
    measurement.warnings.extend(check_counts.examples);
}

/// What each of so many samples takes on disk.
pub(super) fn bytes_per_sample(disk_bytes: u64, samples: u64) -> (String, Metric) {
    let per_sample = disk_bytes as f64 / samples.max(1) as f64;
    let metric = scalar("bytes", Better::Lower, per_sample, samples);
    ("bytes_per_sample".to_owned(), metric)
}

/// Metrics whose ratio to a peer's is told.
const COMPARED_METRICS: [&str; 3] = ["samples_per_second", "cpu_us_per_sample", "bytes_per_sample"];

/// Adds what was measured of a system to what was measured of those before it.
pub(super) fn join_system(
    joined: &mut Option<Measurement>,
    mut system_measurement: Measurement,
    vendor: Vendor,
) {
    if vendor == Vendor::Egret {
        *joined = Some(system_measurement);
        return;
    }
    let prefix = vendor.prefix();
    let mut metrics = std::mem::take(&mut system_measurement.recording).metrics();
    metrics.append(&mut system_measurement.metrics);
    let name = prefix.trim_end_matches('_').replace('_', "-");
    let warnings: Vec<String> =
        system_measurement.warnings.drain(..).map(|warning| format!("{name}: {warning}")).collect();
    let whole = joined.get_or_insert(system_measurement);
    for name in COMPARED_METRICS {
        if let (Some(ours), Some(theirs)) =
            (positive_value(whole.metrics.get(name)), positive_value(metrics.get(name)))
        {
            let better = metrics[name].better;
            let ratio = scalar("ratio", better, ours / theirs, 1);
            whole.metrics.insert(format!("{prefix}{name}_ratio"), ratio);
        }
    }
    let named = metrics.into_iter();
    whole.metrics.extend(named.map(|(name, metric)| (format!("{prefix}{name}"), metric)));
    whole.warnings.extend(warnings);
}

/// A number that something can be divided by.
fn positive_value(metric: Option<&Metric>) -> Option<f64> {
    metric.map(|metric| metric.value).filter(|value| *value > 0.0)
}
