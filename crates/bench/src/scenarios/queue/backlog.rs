//! `--scenario backlog`: what many waiting tasks cost in memory, at a restart, and in rate.

use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::cycle::{CyclePlan, Purpose};
use super::drive::{self, Lengths, LoadResult};
use super::figures::{self, ResourceSampler};
use super::target::QueueTarget;
use super::worker::LeaseHolder;
use crate::record::{millis, scalar};
use crate::result::Better;
use crate::scenario::Measurement;
use crate::stage::Stage;

/// A restart that takes longer is a failure.
const RESTART_TIMEOUT: Duration = Duration::from_secs(600);

/// How long until it is tried again whether the server answers.
const RETRY_INTERVAL: Duration = Duration::from_millis(2);

/// An empty server; the same queue with `tasks` waiting in another one, which is the measurement;
/// and working off those, with more coming in behind.
pub(super) async fn measure(
    stage: &mut Stage,
    plan: &CyclePlan,
    lengths: Lengths,
    tasks: u64,
) -> Result<Measurement> {
    let target = QueueTarget::from_stage(stage)?;
    target.put_queue("live", None).await?;
    let empty = figures::into_measurement(run_cycles(stage, &target, plan, lengths, "live").await?);

    target.put_queue("backlog", None).await?;
    let mut before = target.resource_sampler();
    before.sample();
    stage.progress.show(format!("enqueueing {tasks} tasks"));
    let fill_time = drive::fill_queue(plan, tasks, target.connector("backlog")).await?;
    let mut full = target.resource_sampler();
    full.sample();

    stage.progress.show("killing the server and starting it again");
    let restart_time = restart_and_await_task(stage, &target).await?;
    let target = QueueTarget::from_stage(stage)?;
    let mut after_restart = target.resource_sampler();
    after_restart.sample();

    let live_result = run_cycles(stage, &target, plan, lengths, "live").await?;
    let mut measurement = figures::into_measurement(live_result);
    let drain_plan = CyclePlan { purpose: Purpose::BehindBacklog(tasks), ..plan.clone() };
    let drain_result = run_cycles(stage, &target, &drain_plan, lengths, "backlog").await?;
    let lost_count = count_lost(&target, &drain_result, tasks).await?;
    let results = BacklogResult {
        tasks,
        empty,
        fill_time,
        restart_time,
        drain_result,
        lost_count,
        samplers: [before, full, after_restart],
    };
    results.add_metrics_to(&mut measurement);
    Ok(measurement)
}

/// Results besides those of the cycles.
struct BacklogResult {
    tasks: u64,
    empty: Measurement,
    /// How long making the tasks took.
    fill_time: Duration,
    restart_time: Duration,
    /// Working the tasks off.
    drain_result: LoadResult,
    lost_count: u64,
    /// Memory and disk before the tasks, with them, and after the restart.
    samplers: [ResourceSampler; 3],
}

impl BacklogResult {
    fn add_metrics_to(self, measurement: &mut Measurement) {
        let rate = |arm: &Measurement| arm.metrics["cycles_per_second"].value;
        let ratio = rate(measurement) / rate(&self.empty).max(1e-9);
        let per_second = |count: u64, duration: Duration| {
            let rate = count as f64 / duration.as_secs_f64().max(1e-9);
            scalar("1/s", Better::Higher, rate, count)
        };
        let single_value = |unit, value: f64| scalar(unit, Better::Lower, value, 1);
        let [before, full, after_restart] = &self.samplers;
        let rss_per_task =
            full.rss().saturating_sub(before.rss()) as f64 / self.tasks.max(1) as f64;
        let (outcome, window) = (&self.drain_result.outcome, self.drain_result.window);
        let lost = scalar("count", Better::Lower, self.lost_count as f64, self.tasks);
        let figures = [
            ("backlog_ratio", scalar("ratio", Better::Higher, ratio, 1)),
            ("empty_cycles_per_second", self.empty.metrics["cycles_per_second"].clone()),
            ("fill_per_second", per_second(self.tasks, self.fill_time)),
            ("behind_completions_per_second", per_second(outcome.cycles, window)),
            ("behind_enqueues_per_second", per_second(outcome.enqueued, window)),
            ("backlog_rss_bytes", single_value("bytes", full.rss() as f64)),
            ("restarted_rss_bytes", single_value("bytes", after_restart.rss() as f64)),
            ("backlog_disk_bytes", single_value("bytes", full.disk() as f64)),
            ("rss_bytes_per_task", single_value("bytes", rss_per_task)),
            ("restart", single_value("ms", millis(self.restart_time))),
            ("backlog_lost", lost),
        ];
        let named = figures.map(|(name, metric)| (name.to_owned(), metric));
        measurement.metrics.extend(named);
    }
}

/// Acknowledged tasks that are neither there nor completed. Those that are there are counted by the
/// server, as only the first of millions were handed out.
async fn count_lost(target: &QueueTarget, drain_result: &LoadResult, tasks: u64) -> Result<u64> {
    let accepted = tasks + drain_result.outcome.ledger.accepted();
    let completed = drain_result.outcome.ledger.completed();
    let counts = target.task_counts("backlog").await?;
    let known_tasks = counts.ready + counts.leased + counts.delayed + completed;
    Ok(accepted.saturating_sub(known_tasks))
}

async fn run_cycles(
    stage: &mut Stage,
    target: &QueueTarget,
    plan: &CyclePlan,
    lengths: Lengths,
    queue: &str,
) -> Result<LoadResult> {
    let gate = std::future::ready(Ok(()));
    let connect = target.connector(queue);
    drive::run_load(stage, plan, lengths, target.resource_sampler(), connect, gate).await
}

/// From the start until a worker holds a task.
async fn restart_and_await_task(stage: &mut Stage, target: &QueueTarget) -> Result<Duration> {
    let private = stage.private_server.as_mut().context("there is no private egret")?;
    let begun = private.kill_and_restart()?;
    let restart_time = loop {
        match LeaseHolder::claim(target, "backlog", 1, super::egret::LEASE_MS).await {
            Ok(_) => break begun.elapsed(),
            Err(error) if begun.elapsed() > RESTART_TIMEOUT => {
                bail!("no task was handed out after a restart: {error:#}")
            }
            Err(_) => tokio::time::sleep(RETRY_INTERVAL).await,
        }
    };
    let private = stage.private_server.as_mut().context("there is no private egret")?;
    private.wait_until_ready().await?;
    stage.subject.processes = vec![private.pid()];
    Ok(restart_time)
}
