//! Runs a scenario: surroundings, repetition, the choice of the median run, the result file.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use egret_bench_cli::RunArgs;
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};

use crate::attach::Attachments;
use crate::environment::{Machine, command_line, redact_setting};
use crate::progress::Progress;
use crate::result::{Metric, Program, ResultFile, Run, SCHEMA_VERSION};
use crate::scenario::{Measurement, Plans, Scenario};
use crate::server::Server;
use crate::stage::{Stage, Subject};
use crate::{Global, refusal, terminal};

/// A run that a clock jump has voided is made again this often.
const VOIDED_RUNS_MAX: u32 = 2;

/// How long removing what a scenario made may take.
const CLEAN_TIMEOUT: Duration = Duration::from_secs(30);

/// One run, with where its profile is not yet written.
struct CompletedRun {
    /// As if it were the only one, without attachments.
    result: ResultFile,
    profile: Option<Result<String, String>>,
}

/// State that outlives an interruption of the measurement.
#[derive(Default)]
struct PartialRun {
    stage: Option<Stage>,
    runs: Vec<CompletedRun>,
}

/// Measures, writes the result file, removes what was made, prints the table.
///
/// A private Egret is ended however this goes.
///
/// # Errors
/// What failed; [`Refusal`](crate::Refusal) where that has an exit code of its own.
pub async fn run<S: Scenario>(mut scenario: S, args: &RunArgs, global: &Global) -> Result<()> {
    check_options::<S>(args, global)?;
    let progress = if global.json { Progress::hidden() } else { Progress::new() };
    let mut partial = PartialRun::default();
    let outcome = tokio::select! {
        measured = measure_all(&mut scenario, args, global, progress.clone(), &mut partial) => measured,
        name = await_signal() => name.and_then(|name| bail!("interrupted by {name}: nothing was written")),
    };
    let result = match outcome {
        // Before anything is removed: that can take a while, and fail.
        Ok(()) => write_result(&mut scenario, args, &mut partial).await,
        Err(error) => Err(error),
    };
    progress.show("cleaning up");
    if let Some(stage) = &mut partial.stage
        && let Err(error) = clean(&mut scenario, stage).await
    {
        // The measurement stands; what is left behind must be known.
        let _ =
            writeln!(std::io::stderr(), "warning: cannot clean up after the scenario: {error:#}");
    }
    drop(partial);
    progress.finish();
    let result = result?;
    print(&if global.json {
        serde_json::to_string_pretty(&result)? + "\n"
    } else {
        terminal::format_result(&result)
    })
}

/// Refuses options that cannot be met, before anything is prepared.
fn check_options<S: Scenario>(args: &RunArgs, global: &Global) -> Result<()> {
    if args.explain && !S::CAN_EXPLAIN {
        return Err(refusal::usage(format!(
            "--explain: the scenario `{}` records no plans: omit the option",
            S::NAME
        )));
    }
    if args.profile && !args.private && global.endpoint.is_none() {
        return Err(refusal::usage(
            "--profile: there is no egret to profile: give --private or --server URL",
        ));
    }
    args.out.as_deref().map_or(Ok(()), check_writable)
}

async fn measure_all<S: Scenario>(
    scenario: &mut S,
    args: &RunArgs,
    global: &Global,
    progress: Progress,
    partial: &mut PartialRun,
) -> Result<()> {
    let stage = partial.stage.insert(build_stage(scenario, args, global, progress).await?);
    stage.progress.show("preparing");
    scenario.prepare(stage).await?;
    let machine = Machine::examine(&stage.subject, args.seed)?;
    let mut voided = Vec::new();
    while partial.runs.len() < args.repeat as usize {
        let measurement = scenario.measure(stage).await?;
        if let Some(jump) = measurement.observation.clock_jump {
            voided.push(format!("a run was discarded: the wall clock jumped by {jump:+.3} s"));
            if voided.len() > VOIDED_RUNS_MAX as usize {
                bail!(
                    "the wall clock jumped in {} runs: stop the service that sets it, then \
                     measure again",
                    voided.len()
                );
            }
            continue;
        }
        let mut done = complete_run(scenario, stage, &machine, measurement);
        if args.private && !global.settings.is_empty() {
            let settings = global.settings.iter().cloned().collect();
            let parameters = &mut done.result.parameters;
            parameters.insert("set".to_owned(), Value::Object(redacted_settings(settings)));
        }
        done.result.warnings.append(&mut voided);
        partial.runs.push(done);
    }
    Ok(())
}

/// The result of all runs, written where it is wanted. Plans that cannot be had are missing in it.
async fn write_result<S: Scenario>(
    scenario: &mut S,
    args: &RunArgs,
    partial: &mut PartialRun,
) -> Result<ResultFile> {
    let plans = match &mut partial.stage {
        Some(stage) if args.explain => Some(explain(scenario, stage).await),
        _ => None,
    };
    let runs = std::mem::take(&mut partial.runs);
    let mut result = pick_median_run(runs, scenario.ranking_metric(), args)?;
    if let (Some(out), Some(plans)) = (&args.out, plans) {
        if !plans.plans.is_empty() {
            let mut attachments = Attachments::for_result(out);
            if let Err(error) = attachments.write_plans(&plans.plans) {
                result.warnings.push(format!("cannot keep the plans: {error:#}"));
            }
            result.attachments.extend(attachments.into_file_names());
        }
        result.warnings.extend(plans.missing);
    }
    if let Some(out) = &args.out {
        result.write(out)?;
    }
    Ok(result)
}

/// The plans, and what is missing among them.
async fn explain<S: Scenario>(scenario: &mut S, stage: &mut Stage) -> Plans {
    stage.progress.show("explaining the statements");
    let outcome = tokio::select! {
        explained = scenario.explain(stage) => explained,
        name = await_signal() => name.and_then(|name| bail!("interrupted by {name}")),
    };
    outcome.unwrap_or_else(|error| Plans {
        plans: Vec::new(),
        missing: vec![format!("there are no plans: {error:#}")],
    })
}

/// Removes what the scenario made. Fails after [`CLEAN_TIMEOUT`], or on a signal.
async fn clean<S: Scenario>(scenario: &mut S, stage: &mut Stage) -> Result<()> {
    tokio::select! {
        outcome = scenario.clean(stage) => outcome,
        () = tokio::time::sleep(CLEAN_TIMEOUT) => bail!("cleaning up took longer than {} s", CLEAN_TIMEOUT.as_secs()),
        name = await_signal() => name.and_then(|name| bail!("cleaning up was interrupted by {name}")),
    }
}

/// Finds or starts the Egret to measure.
async fn build_stage<S: Scenario>(
    scenario: &S,
    args: &RunArgs,
    global: &Global,
    progress: Progress,
) -> Result<Stage> {
    let mut stage = Stage {
        server: None,
        private_server: None,
        seed: args.seed,
        progress,
        subject: Subject::default(),
        generator_cores: 1,
        operations_begun: 0,
        profile: args.profile,
        program: global.program.clone(),
        settings: global.settings.clone(),
    };
    if args.private {
        stage.start_private_server(scenario.private_settings()).await?;
    } else if let Some(endpoint) = &global.endpoint {
        let server = Server::new(endpoint.clone())?;
        server.check_ready().await?;
        stage.subject.processes.extend(server.pid());
        stage.subject.data_dir.clone_from(&server.endpoint().data_dir);
        stage.server = Some(server);
    }
    if let Some(server) = &stage.server {
        stage.subject.egret = Some(Program::of_server(server).await?);
    }
    Ok(stage)
}

fn redacted_settings(
    settings: std::collections::BTreeMap<String, String>,
) -> serde_json::Map<String, Value> {
    settings
        .into_iter()
        .map(|(key, value)| {
            let value = redact_setting(&key, &value);
            (key, Value::String(value))
        })
        .collect()
}

/// One run as a result.
fn complete_run<S: Scenario>(
    scenario: &S,
    stage: &Stage,
    machine: &Machine,
    measurement: Measurement,
) -> CompletedRun {
    let Measurement {
        observation: observed,
        recording,
        metrics: extra_metrics,
        warmup,
        cycles,
        mut warnings,
        workers,
    } = measurement;
    let (environment, run_warnings) = machine.with_observation(&observed, stage.generator_cores);
    warnings.extend(run_warnings);
    if let Some(warmup) = warmup.as_ref().filter(|warmup| !warmup.steady) {
        warnings.push(format!(
            "the warm-up was cut off after {:.1} s: {}",
            warmup.seconds,
            warmup.end_text()
        ));
    }
    if workers > 0 {
        let wall = observed.wall.max(recording.last_end);
        warnings.extend(recording.check_phases(workers, wall));
    }
    let mut metrics = recording.metrics();
    metrics.extend(extra_metrics);
    CompletedRun {
        profile: observed.profile,
        result: ResultFile {
            schema: SCHEMA_VERSION,
            scenario: S::NAME.to_owned(),
            command: command_line(),
            parameters: scenario.parameters(),
            environment,
            started_at: observed.started_at,
            metrics,
            timeline: recording.timeline(),
            phases: recording.phases(),
            errors: recording.errors,
            warmup,
            cycles,
            runs: Vec::new(),
            warnings,
            attachments: Default::default(),
        },
    }
}

/// The median run with all runs in it; its profile is written.
fn pick_median_run(
    mut runs: Vec<CompletedRun>,
    headline: &str,
    args: &RunArgs,
) -> Result<ResultFile> {
    let all_runs: Vec<Run> = runs.iter().map(|done| Run::from_result(&done.result)).collect();
    let index = median_index(&all_runs, headline).context("there was no run")?;
    let median_run = runs.swap_remove(index);
    let mut result = median_run.result;
    if all_runs.len() > 1 {
        for done in &runs {
            for warning in &done.result.warnings {
                if !result.warnings.contains(warning) {
                    result.warnings.push(warning.clone());
                }
            }
        }
        result.runs = all_runs;
    }
    if let (Some(out), Some(profile)) = (&args.out, median_run.profile) {
        let mut attachments = Attachments::for_result(out);
        let written = profile.and_then(|profile| {
            let kept = attachments.write_profile(&profile);
            kept.map_err(|error| format!("{error:#}"))
        });
        if let Err(reason) = written {
            result.warnings.push(format!("the profile is incomplete: {reason}"));
        }
        result.attachments.extend(attachments.into_file_names());
    }
    Ok(result)
}

/// The index of the run whose headline is the median; of an even number, the lower of the two in
/// the middle, so that it is a run and not an average of runs.
fn median_index(runs: &[Run], headline: &str) -> Option<usize> {
    let value = |run: &Run| run.metrics.get(headline).map_or(0.0, ranking_value);
    let mut order: Vec<usize> = (0..runs.len()).collect();
    order.sort_by(|a, b| value(&runs[*a]).total_cmp(&value(&runs[*b])));
    order.get(runs.len().saturating_sub(1) / 2).copied()
}

/// What stands for a metric: the median of a latency, the value of a scalar.
fn ranking_value(metric: &Metric) -> f64 {
    metric.p50.unwrap_or(metric.value)
}

/// Writes to standard output.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(error).context("write to standard output")
        }
        // A reader that has had enough is no failure.
        _ => Ok(()),
    }
}

/// Checks before the measurement that the result can be written.
fn check_writable(out: &Path) -> Result<()> {
    let usage_error = |reason: &dyn std::fmt::Display| {
        let out = out.display();
        refusal::usage(format!("--out {out}: cannot write a file there: {reason}"))
    };
    if out.is_dir() {
        return Err(usage_error(&"it is a directory"));
    }
    // Where it is written first.
    let temporary = crate::result::temporary_path(out);
    std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(&temporary)
        .and_then(|_| std::fs::remove_file(&temporary))
        .map_err(|error| usage_error(&error))
}

/// Waits for a signal that asks for an end.
pub(crate) async fn await_signal() -> Result<&'static str> {
    let mut interrupt = signal(SignalKind::interrupt()).context("listen for SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    let mut hangup = signal(SignalKind::hangup()).context("listen for SIGHUP")?;
    Ok(tokio::select! {
        _ = interrupt.recv() => "SIGINT",
        _ = terminate.recv() => "SIGTERM",
        _ = hangup.recv() => "SIGHUP",
    })
}

#[cfg(test)]
mod tests;
