//! Results made up for tests, and runs with the noise of a shared machine.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer, V2Serializer};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use serde_json::json;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::result::{
    Better, Cycle, Environment, Metric, Phase, Program, ResultFile, Run, SCHEMA_VERSION, Second,
    SecondOfOperation, Warmup, Watched,
};

/// A machine like the one these are written on.
pub fn environment() -> Environment {
    Environment {
        cpu_model: "Example CPU 3.0 GHz".to_owned(),
        cpus: 2,
        memory_bytes: 24_000_000_000,
        kernel: "6.1.0-13-amd64".to_owned(),
        os: "Debian GNU/Linux 12".to_owned(),
        file_system: "btrfs".to_owned(),
        mount_options: "rw,noatime".to_owned(),
        fsync_ms: Some(0.4),
        postgres_version: Some("18.1".to_owned()),
        postgres_settings: BTreeMap::from([("shared_buffers".to_owned(), "128MB".to_owned())]),
        egret_version: "0.1.0".to_owned(),
        egret_commit: "0123456789ab".to_owned(),
        binary_sha256: Some("00".repeat(32)),
        build_profile: "release".to_owned(),
        generator: Some(Program {
            version: "0.1.0".to_owned(),
            commit: "0123456789ab".to_owned(),
            binary_sha256: Some("00".repeat(32)),
            build_profile: "release".to_owned(),
        }),
        data_set: "flights, 336776 rows".to_owned(),
        seed: 1,
        other_cpu: 0.1,
        other_processes: BTreeMap::new(),
        kernel_cpu: Some(0.05),
        generator_cpu: 0.2,
    }
}

/// A latency whose distribution is a scale of `median_ms`.
pub(crate) fn latency(median_ms: f64, samples: u64) -> Metric {
    let mut histogram =
        Histogram::<u64>::new_with_bounds(1, 60_000_000, 3).expect("bounds that make sense");
    let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
    for _ in 0..samples {
        let value = median_ms * 1_000.0 * (0.25 * normal(&mut random)).exp();
        histogram.record(value as u64).expect("within the bounds");
    }
    let mut bytes = Vec::new();
    V2Serializer::new().serialize(&histogram, &mut bytes).expect("memory takes every byte");
    let at = |quantile: f64| Some(histogram.value_at_quantile(quantile) as f64 / 1_000.0);
    Metric {
        unit: "ms".to_owned(),
        better: Better::Lower,
        value: histogram.mean() / 1_000.0,
        p50: at(0.5),
        p90: at(0.9),
        p95: at(0.95),
        p99: at(0.99),
        p999: None,
        max: Some(histogram.max() as f64 / 1_000.0),
        samples,
        histogram: Some(STANDARD.encode(bytes)),
    }
}

/// A value by itself.
pub fn scalar(value: f64, unit: &str, better: Better) -> Metric {
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
        samples: 1,
        histogram: None,
    }
}

/// One run with everything that a file can hold.
pub fn file() -> ResultFile {
    let second = |second: u64| Second {
        second,
        operations: BTreeMap::from([(
            "create".to_owned(),
            SecondOfOperation {
                count: 100 - second,
                p50: Some(4.0),
                p95: Some(5.0 + second as f64),
                max: 9.0,
                histogram: None,
            },
        )]),
        errors: 0,
    };
    let cycle = |index: u64| Cycle {
        index,
        group: 0,
        at_ms: 10.0 * index as f64,
        latencies_ms: BTreeMap::from([("create".to_owned(), 4.0 + index as f64)]),
        error: None,
    };
    ResultFile {
        schema: SCHEMA_VERSION,
        scenario: "branches".to_owned(),
        command: "egret bench branches --branches 100".to_owned(),
        parameters: BTreeMap::from([("branches".to_owned(), json!(100))]),
        environment: environment(),
        started_at: "2026-01-02T03:04:05Z".parse().expect("a time"),
        metrics: BTreeMap::from([
            ("create".to_owned(), latency(4.2, 1_000)),
            ("rate".to_owned(), scalar(1_234.5, "1/s", Better::Higher)),
            ("cores".to_owned(), scalar(2.0, "count", Better::Neither)),
        ]),
        errors: BTreeMap::new(),
        timeline: (0..5).map(second).collect(),
        warmup: Some(Warmup {
            seconds: 3.0,
            steady: true,
            slope: 0.001,
            standard_error: Some(0.002),
            watched: Some(Watched::Rate),
        }),
        cycles: (0..4).map(cycle).collect(),
        phases: BTreeMap::from([(
            "clone".to_owned(),
            Phase {
                operation: "create".to_owned(),
                count: 1_000,
                total_ms: 1_500.0,
                p50: Some(1.4),
                p95: Some(2.0),
            },
        )]),
        runs: Vec::new(),
        warnings: Vec::new(),
        attachments: BTreeMap::new(),
    }
}

/// The sample with one run per value, which is the median of `create` in milliseconds.
pub(crate) fn file_with_runs(medians_ms: &[f64]) -> ResultFile {
    let mut file = file();
    file.runs = medians_ms
        .iter()
        .map(|median_ms| {
            let mut create = scalar(*median_ms, "ms", Better::Lower);
            create.p50 = Some(*median_ms);
            create.samples = 1_000;
            Run {
                started_at: file.started_at,
                metrics: BTreeMap::from([("create".to_owned(), create)]),
                errors: BTreeMap::new(),
                timeline: Vec::new(),
                warmup: None,
                cycles: Vec::new(),
            }
        })
        .collect();
    file
}

/// Runs on a machine that others use too: each is off by a few percent, and some by a third.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Noise {
    /// Standard deviation of the logarithm of a run.
    pub deviation: f64,
    /// How many runs of a hundred are outliers.
    pub outliers: f64,
    /// How much slower those are.
    pub outlier_factor: f64,
}

impl Noise {
    /// Medians of `runs` runs around `median_ms`.
    pub(crate) fn runs(
        &self,
        median_ms: f64,
        runs: usize,
        random: &mut Xoshiro256PlusPlus,
    ) -> Vec<f64> {
        (0..runs)
            .map(|_| {
                let outlier = random.random::<f64>() * 100.0 < self.outliers;
                let factor = if outlier { self.outlier_factor } else { 1.0 };
                median_ms * factor * (self.deviation * normal(random)).exp()
            })
            .collect()
    }
}

/// A standard normal value (Box and Muller).
pub(crate) fn normal(random: &mut Xoshiro256PlusPlus) -> f64 {
    let radius = (-2.0 * (1.0 - random.random::<f64>()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.random::<f64>()).cos()
}
