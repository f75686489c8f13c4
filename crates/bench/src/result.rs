//! The result file: one run of one scenario, or several runs of it with the median one on top.
//!
//! Its JSON Schema is `crates/bench/schema/result-1.schema.json`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The version of the format that this program writes and reads.
pub(crate) const SCHEMA_VERSION: u32 = 1;

/// Everything that is known about a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResultFile {
    /// Version of the schema: [`SCHEMA_VERSION`] when written.
    pub schema: u32,
    /// The scenario's name, e.g. `branches`.
    pub scenario: String,
    /// The full command line, without secrets.
    pub command: String,
    /// The scenario's parameters after defaults, by option name.
    pub parameters: BTreeMap<String, Value>,
    /// The machine and the programs.
    pub environment: Environment,
    /// When the measured window began (RFC 3339).
    pub started_at: jiff::Timestamp,
    /// By metric name; of several runs those of the median run.
    pub metrics: BTreeMap<String, Metric>,
    /// Failed operations by cause.
    pub errors: BTreeMap<String, u64>,
    /// One entry per second of the window.
    pub timeline: Vec<Second>,
    /// How the warm-up went; `None` for a scenario without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warmup: Option<Warmup>,
    /// The first operations and, where a scenario is made of cycles, every single one; apart from
    /// the steady window.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cycles: Vec<Cycle>,
    /// Time by named phase.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub phases: BTreeMap<String, Phase>,
    /// Every run of a repeated measurement, in order; empty for a single one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<Run>,
    /// What a reader must know before trusting the numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Files kept beside this one, by kind: `profile`, `flamegraph`, `explain`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attachments: BTreeMap<String, String>,
}

/// Whether a smaller or a larger value is the better one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// Lower is better, as of latencies and costs.
    Lower,
    /// Higher is better, as of rates.
    Higher,
    /// Neither is better: the value only describes.
    Neither,
}

/// One measured quantity: a latency distribution or a single value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metric {
    /// `ms`, `us`, `1/s`, `bytes`, `ratio` or `count`.
    pub unit: String,
    /// Which direction is an improvement.
    pub better: Better,
    /// A scalar's value; of a latency the mean.
    pub value: f64,
    /// Percentiles, each only with enough samples to mean something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50: Option<f64>,
    /// The 90th percentile, of a latency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p90: Option<f64>,
    /// The 95th percentile, of a latency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p95: Option<f64>,
    /// The 99th percentile, of a latency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99: Option<f64>,
    /// The 99.9th percentile, of a latency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p999: Option<f64>,
    /// The largest value, of a latency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<f64>,
    /// Number of measurements behind the value.
    pub samples: u64,
    /// The whole distribution: HdrHistogram V2, base64, values in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub histogram: Option<String>,
}

/// One second of the measured window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Second {
    /// Seconds since the window began.
    pub second: u64,
    /// What each operation did, by name.
    pub operations: BTreeMap<String, SecondOfOperation>,
    /// Number of failed operations.
    pub errors: u64,
}

/// What one operation did in one second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecondOfOperation {
    /// Number of completed operations.
    pub count: u64,
    /// Median latency in milliseconds, with enough samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50: Option<f64>,
    /// 95th percentile in milliseconds, with enough samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p95: Option<f64>,
    /// Largest latency, in milliseconds.
    pub max: f64,
    /// The whole distribution, as a metric has it; not in [`Run::timeline`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub histogram: Option<String>,
}

/// The warm-up before the window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Warmup {
    /// How long it took, in seconds.
    pub seconds: f64,
    /// Whether it was shown that the load was steady at its end; else the cap ended it.
    pub steady: bool,
    /// The relative slope per second at its end.
    pub slope: f64,
    /// How uncertain the slope is; missing where there was nothing to draw a line through.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standard_error: Option<f64>,
    /// What had to be steady; missing in the first files, where it was the rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watched: Option<Watched>,
}

/// What had to be steady at the end of a warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Watched {
    /// Of a closed loop: operations per second.
    Rate,
    /// Of an open loop: the geometric mean of the latencies.
    Latency,
}

impl Warmup {
    /// How it ended, in words.
    pub(crate) fn end_text(&self) -> String {
        let watched = match self.watched {
            Some(Watched::Latency) => "latency",
            Some(Watched::Rate) | None => "rate",
        };
        if self.steady {
            return format!("the {watched} was steady");
        }
        if self.watched.is_some() && self.standard_error.is_none() {
            return format!("the {watched} was not shown to be steady: measure longer");
        }
        let uncertainty = self
            .standard_error
            .map_or_else(String::new, |error| format!(" (standard error {:.1}%)", error * 100.0));
        format!(
            "the {watched} was not shown to be steady: it changed by {:+.1}% per second{uncertainty}",
            self.slope * 100.0
        )
    }
}

/// One operation by itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cycle {
    /// Which one: the index of the cycle, burst or operation.
    pub index: u64,
    /// The group it belongs to, e.g. the burst; 0 where there is one group.
    #[serde(default)]
    pub group: u64,
    /// Milliseconds since the window began at its intended start.
    pub at_ms: f64,
    /// Latency in milliseconds by operation.
    pub latencies_ms: BTreeMap<String, f64>,
    /// Why it failed, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Time spent in one named phase, summed over the workers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    /// The operation it is part of.
    pub operation: String,
    /// How often it was measured.
    pub count: u64,
    /// Sum of the times, in milliseconds.
    pub total_ms: f64,
    /// Median in milliseconds, with enough samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50: Option<f64>,
    /// 95th percentile in milliseconds, with enough samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p95: Option<f64>,
}

impl Phase {
    /// The mean in milliseconds.
    pub(crate) fn mean_ms(&self) -> f64 {
        self.total_ms / self.count.max(1) as f64
    }
}

/// One run of several.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// When the run began.
    pub started_at: jiff::Timestamp,
    /// Its metrics, without histograms.
    pub metrics: BTreeMap<String, Metric>,
    /// Its errors by cause.
    pub errors: BTreeMap<String, u64>,
    /// Its seconds, without histograms.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub timeline: Vec<Second>,
    /// How its warm-up went.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warmup: Option<Warmup>,
    /// Its cold operations and cycles.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cycles: Vec<Cycle>,
}

impl Run {
    /// The run on top of a result.
    pub fn from_result(result: &ResultFile) -> Self {
        let mut run = Self {
            started_at: result.started_at,
            metrics: result.metrics.clone(),
            errors: result.errors.clone(),
            timeline: result.timeline.clone(),
            warmup: result.warmup.clone(),
            cycles: result.cycles.clone(),
        };
        for metric in run.metrics.values_mut() {
            metric.histogram = None;
        }
        let seconds = run.timeline.iter_mut();
        for operation in seconds.flat_map(|second| second.operations.values_mut()) {
            operation.histogram = None;
        }
        run
    }
}

/// The machine and the programs under test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Environment {
    /// The processor's model name.
    pub cpu_model: String,
    /// Logical processors that the process may use.
    pub cpus: u64,
    /// Memory of the machine.
    pub memory_bytes: u64,
    /// Release of the kernel.
    pub kernel: String,
    /// Operating system, e.g. `Debian GNU/Linux 12`.
    pub os: String,
    /// Type of the file system that holds the data.
    pub file_system: String,
    /// Options of its mount.
    pub mount_options: String,
    /// Median time of a 4 KiB write and fdatasync there, in milliseconds; measured on the spot.
    /// `None` where it could not be, which a warning says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fsync_ms: Option<f64>,
    /// `server_version`, where a PostgreSQL is part of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub postgres_version: Option<String>,
    /// Every setting of that PostgreSQL that differs from its default; of a branch of it as
    /// `branch.NAME`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub postgres_settings: BTreeMap<String, String>,
    /// Version of the Egret that was measured; where none was, of the one that measured.
    pub egret_version: String,
    /// Git commit that it was built from; ends in `+dirty` for a changed tree.
    pub egret_commit: String,
    /// SHA-256 of its binary; `None` where that is on another machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binary_sha256: Option<String>,
    /// `dev`, `release` or the name of another build profile.
    pub build_profile: String,
    /// The program that measured; `None` in files where it was the measured one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generator: Option<Program>,
    /// What identifies the data: a hash, or its generator and size.
    pub data_set: String,
    /// The seed of schedules and values.
    pub seed: u64,
    /// Share of the machine that other processes used, in cores.
    pub other_cpu: f64,
    /// The largest of those processes by name, with its share in cores.
    pub other_processes: BTreeMap<String, f64>,
    /// Share of the machine that threads of the kernel used, in cores: the file system's and the
    /// disk's work, the measured system's for the most part. `None` in files that count it with
    /// `other_cpu`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_cpu: Option<f64>,
    /// The share of the generator and what it started, in cores.
    pub generator_cpu: f64,
}

/// One build of Egret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// Version of the program.
    pub version: String,
    /// Git commit that it was built from; ends in `+dirty` for a changed tree; or `unknown`.
    pub commit: String,
    /// SHA-256 of its binary; `None` where that is on another machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binary_sha256: Option<String>,
    /// `dev`, `release` or the name of another build profile; or `unknown`.
    pub build_profile: String,
}

impl ResultFile {
    /// Reads a result file.
    ///
    /// # Errors
    /// When it cannot be read, is cut off, is not a result file or has another version.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let value: Value = serde_json::from_slice(&text)
            .with_context(|| format!("{} is not complete JSON", path.display()))?;
        let version = &value["schema"];
        ensure!(
            *version == SCHEMA_VERSION,
            "{}: format {version} is not {SCHEMA_VERSION}, which this egret reads",
            path.display()
        );
        serde_json::from_value(value)
            .with_context(|| format!("{} is not a result file", path.display()))
    }

    /// Writes a result file, whole or not at all.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        let temporary = temporary_path(path);
        fs::write(&temporary, text)
            .with_context(|| format!("cannot write {}", temporary.display()))?;
        fs::rename(&temporary, path).with_context(|| format!("cannot write {}", path.display()))
    }
}

/// Where a file is written before it gets its name.
pub(crate) fn temporary_path(path: &Path) -> PathBuf {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    PathBuf::from(temporary)
}

#[cfg(test)]
mod tests;
