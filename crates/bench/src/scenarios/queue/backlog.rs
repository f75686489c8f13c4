//! `--scenario backlog`: what many waiting tasks cost in memory, at a restart, and in rate.

use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::cycle::{CyclePlan, Purpose};
use super::drive::{self, Lengths, LoadResult};
use super::figures::{self, ResourceSampler};
use super::target::QueueTarget;
use super::worker::Holder;
use crate::record::{millis, scalar};
use crate::result::Better;
use crate::scenario::Measurement;
use crate::stage::Stage;

/// A restart that takes longer is a failure.
const RESTART_MAX: Duration = Duration::from_secs(600);

/// How long until it is tried again whether the server answers.
const RETRY: Duration = Duration::from_millis(2);

/// An empty server; the same queue with `tasks` waiting in another one, which is the measurement;
/// and working off those, with more coming in behind.
pub(super) async fn measure(
    stage: &mut Stage,
    plan: &CyclePlan,
    lengths: Lengths,
    tasks: u64,
) -> Result<Measurement> {
    let target = QueueTarget::of(stage)?;
    target.put_queue("live", None).await?;
    let empty = figures::measurement(arm(stage, &target, plan, lengths, "live").await?);

    target.put_queue("backlog", None).await?;
    let mut before = target.watch();
    before.look();
    stage.progress.say(format!("enqueueing {tasks} tasks"));
    let filled = drive::fill(plan, tasks, target.connect("backlog")).await?;
    let mut full = target.watch();
    full.look();

    stage
        .progress
        .say("killing the server and starting it again");
    let restart = restart(stage, &target).await?;
    let target = QueueTarget::of(stage)?;
    let mut again = target.watch();
    again.look();

    let beside = arm(stage, &target, plan, lengths, "live").await?;
    let mut measurement = figures::measurement(beside);
    let behind = CyclePlan {
        purpose: Purpose::Behind(tasks),
        ..plan.clone()
    };
    let behind = arm(stage, &target, &behind, lengths, "backlog").await?;
    let lost = lost(&target, &behind, tasks).await?;
    let found = BacklogResult {
        tasks,
        empty,
        filled,
        restart,
        behind,
        lost,
        watches: [before, full, again],
    };
    found.add_to(&mut measurement);
    Ok(measurement)
}

/// Results besides those of the cycles.
struct BacklogResult {
    tasks: u64,
    empty: Measurement,
    /// How long making the tasks took.
    filled: Duration,
    restart: Duration,
    /// Working the tasks off.
    behind: LoadResult,
    lost: u64,
    /// Memory and disk before the tasks, with them, and after the restart.
    watches: [ResourceSampler; 3],
}

impl BacklogResult {
    fn add_to(self, measurement: &mut Measurement) {
        let rate = |arm: &Measurement| arm.metrics["cycles_per_second"].value;
        let ratio = rate(measurement) / rate(&self.empty).max(1e-9);
        let per_second = |count: u64, took: Duration| {
            let rate = count as f64 / took.as_secs_f64().max(1e-9);
            scalar("1/s", Better::Higher, rate, count)
        };
        let one = |unit, value: f64| scalar(unit, Better::Lower, value, 1);
        let [before, full, again] = &self.watches;
        let each = full.rss().saturating_sub(before.rss()) as f64 / self.tasks.max(1) as f64;
        let (outcome, window) = (&self.behind.outcome, self.behind.window);
        let lost = scalar("count", Better::Lower, self.lost as f64, self.tasks);
        let figures = [
            ("backlog_ratio", scalar("ratio", Better::Higher, ratio, 1)),
            (
                "empty_cycles_per_second",
                self.empty.metrics["cycles_per_second"].clone(),
            ),
            ("fill_per_second", per_second(self.tasks, self.filled)),
            (
                "behind_completions_per_second",
                per_second(outcome.cycles, window),
            ),
            (
                "behind_enqueues_per_second",
                per_second(outcome.enqueued, window),
            ),
            ("backlog_rss_bytes", one("bytes", full.rss() as f64)),
            ("restarted_rss_bytes", one("bytes", again.rss() as f64)),
            ("backlog_disk_bytes", one("bytes", full.disk() as f64)),
            ("rss_bytes_per_task", one("bytes", each)),
            ("restart", one("ms", millis(self.restart))),
            ("backlog_lost", lost),
        ];
        let named = figures.map(|(name, metric)| (name.to_owned(), metric));
        measurement.metrics.extend(named);
    }
}

/// Acknowledged tasks that are neither there nor completed. Those that are there are counted by the
/// server, as only the first of millions were handed out.
async fn lost(target: &QueueTarget, behind: &LoadResult, tasks: u64) -> Result<u64> {
    let accepted = tasks + behind.outcome.ledger.accepted();
    let completed = behind.outcome.ledger.completed();
    let counts = target.counts("backlog").await?;
    let there = counts.ready + counts.leased + counts.delayed + completed;
    Ok(accepted.saturating_sub(there))
}

async fn arm(
    stage: &mut Stage,
    target: &QueueTarget,
    plan: &CyclePlan,
    lengths: Lengths,
    queue: &str,
) -> Result<LoadResult> {
    let gate = std::future::ready(Ok(()));
    let connect = target.connect(queue);
    drive::drive(stage, plan, lengths, target.watch(), connect, gate).await
}

/// From the start until a worker holds a task.
async fn restart(stage: &mut Stage, target: &QueueTarget) -> Result<Duration> {
    let private = stage
        .private
        .as_mut()
        .context("there is no private egret")?;
    let begun = private.crash()?;
    let claimed = loop {
        match Holder::claim(target, "backlog", 1, super::egret::LEASE_MS).await {
            Ok(_) => break begun.elapsed(),
            Err(error) if begun.elapsed() > RESTART_MAX => {
                bail!("no task was handed out after a restart: {error:#}")
            }
            Err(_) => tokio::time::sleep(RETRY).await,
        }
    };
    let private = stage
        .private
        .as_mut()
        .context("there is no private egret")?;
    private.wait_until_ready().await?;
    stage.subject.processes = vec![private.pid()];
    Ok(claimed)
}
