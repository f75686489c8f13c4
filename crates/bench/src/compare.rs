//! `egret bench compare`: is B worse than A, and how sure is that?
//!
//! A run is the unit. What happens inside one run (thousands of operations) shares its machine, its
//! cache and its neighbours, so it says nothing about how much another run would differ.

pub mod environment;
mod pairs;
mod row;
pub mod select;
pub mod statistics;
pub mod verdict;

use std::fmt;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use serde_json::json;

use egret_bench_cli::CompareArgs;
use environment::Difference;
pub use pairs::Interruption;
pub use row::Row;
use select::{Figure, Runs};
use statistics::Resampling;
pub use verdict::Verdict;

use crate::result::{Metric, ResultFile, Run};

/// Exit code of a comparison that cannot be made.
pub(crate) const EXIT_CANNOT_COMPARE: u8 = 3;
/// The confidence of every interval.
pub(crate) const CONFIDENCE: f64 = 0.95;
/// What histograms resolve, in the unit of latencies.
const MICROSECOND_MS: f64 = 0.001;
/// Name of the metric for the share of operations that succeeded.
const SUCCESS_METRIC: &str = "success";
/// Largest growth of the share of failed operations at which latencies are comparable.
const FAILED_SHARE_MAX: f64 = 0.01;

/// One side of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Side {
    /// The file's name or the command.
    pub label: String,
    /// Commit of the measured Egret.
    pub commit: String,
    /// Number of runs in it.
    pub runs: usize,
    /// Failed operations of all runs.
    pub errors: u64,
}

/// A comparison that could be made.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The verdict on all figures together.
    pub verdict: Verdict,
    /// The scenario of A.
    pub scenario: String,
    /// The baseline of the comparison.
    pub a: Side,
    /// What is compared with A.
    pub b: Side,
    /// Whether each run of A has its run of B.
    pub paired: bool,
    /// The margin as a share, 0.05.
    pub margin: f64,
    /// The confidence of the intervals.
    pub confidence: f64,
    /// Rows of the compared figures.
    pub rows: Vec<Row>,
    /// Differences of the conditions that were allowed.
    pub allowed: Vec<Difference>,
    /// Remarks for the reader.
    pub notes: Vec<String>,
}

/// Options of a comparison.
#[derive(Clone, Debug)]
pub struct Options {
    /// Named figures; empty for all.
    pub figures: Vec<String>,
    /// The margin as a share.
    pub margin: f64,
    /// Whether run i of A belongs to run i of B.
    pub paired: bool,
    /// Names of the differences that are allowed.
    pub allow_different: Vec<String>,
    /// How intervals are resampled.
    pub resampling: Resampling,
}

/// Why two results are not compared: what differs.
#[derive(Clone, Debug)]
pub struct Mismatch {
    /// All differences that are not allowed.
    pub differences: Vec<Difference>,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "A and B were measured under different conditions:")?;
        for Difference { name, a, b } in &self.differences {
            write!(f, "\n  {name}: {a} in A, {b} in B")?;
        }
        write!(f, "\nuse --allow-different NAME for differences that are intended")
    }
}

impl std::error::Error for Mismatch {}

/// What `egret bench compare` prints and exits with.
#[derive(Clone, Debug)]
pub struct CompareOutput {
    /// Text for standard output.
    pub text: String,
    /// For standard error, after `error: `; `None` when the comparison could be made.
    pub error: Option<String>,
    /// Exit code of the process.
    pub code: u8,
}

/// Compares two result files, or two commands that run in turn, as `args` say. `progress` is called
/// after each pair; `interruption` stops the runs.
pub fn run(
    args: &CompareArgs,
    json: bool,
    progress: &mut dyn FnMut(&str),
    interruption: &Interruption,
) -> CompareOutput {
    match try_run(args, progress, interruption) {
        Ok(comparison) => CompareOutput {
            text: if json {
                to_pretty_json(&comparison)
            } else {
                crate::terminal::format_comparison(&comparison)
            },
            error: None,
            code: comparison.verdict.exit_code(),
        },
        Err(error) => {
            let reason = format!("cannot compare: {error:#}");
            let differences = error
                .downcast_ref::<Mismatch>()
                .map(|mismatch| mismatch.differences.clone())
                .unwrap_or_default();
            let report = json!({
                "verdict": "cannot_compare",
                "reason": reason,
                "differences": differences,
            });
            CompareOutput {
                text: if json { to_pretty_json(&report) } else { String::new() },
                error: Some(reason),
                code: EXIT_CANNOT_COMPARE,
            }
        }
    }
}

fn to_pretty_json(value: &impl Serialize) -> String {
    serde_json::to_string_pretty(value).expect("text for keys and finite numbers") + "\n"
}

fn try_run(
    args: &CompareArgs,
    progress: &mut dyn FnMut(&str),
    interruption: &Interruption,
) -> Result<Comparison> {
    let unknown = args.allow_different.iter().find(|name| !environment::is_known(name));
    if let Some(name) = unknown {
        anyhow::bail!(
            "--allow-different {name}: this is not compared; known are {}, parameters.NAME and \
             postgres_settings.NAME",
            environment::CONDITION_NAMES.join(", ")
        );
    }
    let mut options = Options {
        figures: args.metric.clone(),
        margin: args.margin,
        paired: args.paired,
        allow_different: args.allow_different.clone(),
        resampling: Resampling::with_seed(args.seed),
    };
    if let [a, b] = args.files.as_slice() {
        let labels = [a, b].map(|path| file_name(path));
        return compare(&ResultFile::read(a)?, &ResultFile::read(b)?, labels, &options);
    }
    let [a, b] = pairs::measure(args, progress, interruption)?;
    let run_metrics =
        |files: &[ResultFile]| files.iter().map(|file| file.metrics.clone()).collect();
    let (metrics_a, metrics_b): (Vec<_>, Vec<_>) = (run_metrics(&a), run_metrics(&b));
    let figures = select::figures(
        &options.figures,
        &metrics_a.iter().collect(),
        &metrics_b.iter().collect(),
    )?;
    let (a, b) = (merge_runs(a, &figures[0])?, merge_runs(b, &figures[0])?);
    if let Some(keep_dir) = &args.keep {
        a.write(&keep_dir.join("a.json"))?;
        b.write(&keep_dir.join("b.json"))?;
    }
    options.paired = true;
    let redacted_command =
        |command: &str| anyhow::Ok(pairs::PairCommand::parse(command)?.redacted());
    let labels = [redacted_command(&args.run[0])?, redacted_command(&args.run[1])?];
    compare(&a, &b, labels, &options)
}

fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str());
    name.to_string_lossy().into_owned()
}

/// The runs of one side as one result: the median run by `figure`, with all of them in it.
///
/// # Errors
/// When there is none.
fn merge_runs(files: Vec<ResultFile>, figure: &Figure) -> Result<ResultFile> {
    let mut ranked: Vec<&ResultFile> = files.iter().collect();
    ranked.sort_by(|one, other| {
        let value = |file: &ResultFile| figure.value_in(&file.metrics).unwrap_or_default();
        value(one).total_cmp(&value(other))
    });
    let median = ranked.get((ranked.len().max(1) - 1) / 2);
    let mut merged = (*median.context("no run was completed")?).clone();
    merged.runs = files.iter().map(Run::from_result).collect();
    Ok(merged)
}

/// Compares two results; `labels` say what A and B are.
///
/// # Errors
/// A [`Mismatch`] when they were measured under different conditions; or when a named figure cannot
/// be compared or the runs cannot be paired.
pub fn compare(
    a: &ResultFile,
    b: &ResultFile,
    labels: [String; 2],
    options: &Options,
) -> Result<Comparison> {
    let (allowed, differences): (Vec<_>, Vec<_>) =
        environment::differences(a, b).into_iter().partition(|difference| {
            environment::is_allowed(&difference.name, &options.allow_different)
        });
    if !differences.is_empty() {
        return Err(Mismatch { differences }.into());
    }
    let (runs_a, runs_b) = (select::runs(a), select::runs(b));
    ensure!(
        !options.paired || runs_a.len() == runs_b.len(),
        "{} runs of A and {} of B cannot be paired",
        runs_a.len(),
        runs_b.len()
    );
    let figures = select::figures(&options.figures, &runs_a, &runs_b)?;
    let rows = rows(&figures, &runs_a, &runs_b, options);
    let mut notes = environment::notes(&a.environment, &b.environment);
    notes.extend(rows.iter().filter_map(|row| coarse_resolution_note(row, options.margin)));
    let overall = Verdict::overall(rows.iter().map(|row| row.verdict));
    let mut verdict = overall.context("nothing was compared")?;
    if let Some(note) = failure_rate_note(a, b) {
        verdict = verdict.max(Verdict::Inconclusive);
        notes.push(note);
    }
    let [label_a, label_b] = labels;
    let side = |label, file: &ResultFile, runs: &Runs<'_>| Side {
        label,
        commit: file.environment.egret_commit.clone(),
        runs: runs.len(),
        errors: failures(file).0,
    };
    Ok(Comparison {
        verdict,
        scenario: a.scenario.clone(),
        a: side(label_a, a, &runs_a),
        b: side(label_b, b, &runs_b),
        paired: options.paired,
        margin: options.margin,
        confidence: CONFIDENCE,
        rows,
        allowed,
        notes,
    })
}

/// Each figure judged at its own confidence and at that of all together.
fn rows(figures: &[Figure], a: &Runs<'_>, b: &Runs<'_>, options: &Options) -> Vec<Row> {
    let joint_confidence = 1.0 - (1.0 - CONFIDENCE) / figures.len() as f64;
    figures
        .iter()
        .map(|figure| {
            let metric = &a[0][&figure.metric];
            let values = |runs: &Runs<'_>| -> Vec<f64> {
                let value = |metrics| {
                    figure.value_in(metrics).expect("the metric was chosen from this list")
                };
                runs.iter().map(|metrics| value(metrics)).collect()
            };
            let row = Row::new(figure, metric, [&values(a), &values(b)]);
            row.with_verdict([&values(a), &values(b)], joint_confidence, options)
        })
        .collect()
}

/// Percentiles are whole microseconds: of short latencies one of them is a large share.
fn coarse_resolution_note(row: &Row, margin: f64) -> Option<String> {
    let (metric, statistic) = row.figure.split_once('.')?;
    let share = MICROSECOND_MS / row.a.min(row.b);
    let is_coarse = row.unit == "ms" && share.is_finite() && share > margin / 2.0;
    is_coarse.then(|| {
        format!(
            "{metric}.{statistic} is measured in whole microseconds, one of which is {:.1}% of \
             it: --metric {metric}.mean has a finer resolution",
            share * 100.0
        )
    })
}

/// Failed operations and all operations, over all runs.
fn failures(file: &ResultFile) -> (u64, u64) {
    let failures_of = |metrics: &std::collections::BTreeMap<String, Metric>,
                       errors: &std::collections::BTreeMap<String, u64>| {
        let failed: u64 = errors.values().sum();
        if let Some(success) = metrics.get(SUCCESS_METRIC) {
            // Of all that were attempted, those that failed included.
            return (failed, success.samples);
        }
        let operations = metrics.values().map(|metric| metric.samples).max();
        (failed, failed + operations.unwrap_or_default())
    };
    if file.runs.is_empty() {
        return failures_of(&file.metrics, &file.errors);
    }
    let failures_of_runs = file.runs.iter().map(|run| failures_of(&run.metrics, &run.errors));
    failures_of_runs.fold((0, 0), |sum, run| (sum.0 + run.0, sum.1 + run.1))
}

/// Latencies are those of successes: a side that fails where the other succeeds looks fast.
fn failure_rate_note(a: &ResultFile, b: &ResultFile) -> Option<String> {
    let (failures_a, failures_b) = (failures(a), failures(b));
    let share = |(failed, all): (u64, u64)| failed as f64 / all.max(1) as f64;
    (share(failures_b) > share(failures_a) + FAILED_SHARE_MAX).then(|| {
        format!(
            "B failed {} of {} operations and A {} of {}: the figures of the successful ones are \
             not comparable",
            failures_b.0, failures_b.1, failures_a.0, failures_a.1
        )
    })
}

/// The median; 0 without values.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match (sorted.len(), sorted.len() / 2) {
        (0, _) => 0.0,
        (count, middle) if count % 2 == 1 => sorted[middle],
        (_, middle) => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

#[cfg(test)]
mod tests;
