//! `--scenario backlog`: what many waiting tasks cost in memory, at a restart, and in rate.

use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::cycle::{Plan, Purpose};
use super::drive::{self, Driven, Lengths};
use super::figures;
use super::target::Target;
use super::worker::Holder;
use crate::record::{millis, scalar};
use crate::result::Better;
use crate::scenario::Measurement;
use crate::stage::Stage;

/// A restart that takes longer is a failure.
const RESTART_MAX: Duration = Duration::from_secs(600);

/// How long until it is tried again whether the server answers.
const RETRY: Duration = Duration::from_millis(2);

/// An empty server; the same queue with `tasks` waiting in another one, which is the measurement; and
/// working off those, with more coming in behind.
pub(super) async fn measure(
    stage: &mut Stage,
    plan: &Plan,
    lengths: Lengths,
    tasks: u64,
) -> Result<Measurement> {
    let target = Target::of(stage)?;
    target.put_queue("live", None).await?;
    let empty = figures::measurement(arm(stage, &target, plan, lengths, "live").await?);

    target.put_queue("backlog", None).await?;
    let mut before = target.watch();
    before.look();
    stage.progress.say(format!("making {tasks} tasks"));
    let filled = drive::fill(plan, tasks, target.connect("backlog")).await?;
    let mut full = target.watch();
    full.look();

    stage
        .progress
        .say("ending the server as a crash would, and starting it again");
    let restart = restart(stage, &target).await?;
    let target = Target::of(stage)?;
    let mut again = target.watch();
    again.look();

    let beside = arm(stage, &target, plan, lengths, "live").await?;
    let mut measurement = figures::measurement(beside);
    let behind = Plan {
        purpose: Purpose::Behind(tasks),
        ..plan.clone()
    };
    let behind = arm(stage, &target, &behind, lengths, "backlog").await?;
    let lost = lost(&target, &behind, tasks).await?;
    let rate = |arm: &Measurement| arm.metrics["cycles_per_second"].value;
    let ratio = rate(&measurement) / rate(&empty).max(1e-9);
    let per_second = |count: u64, took: Duration| {
        let rate = count as f64 / took.as_secs_f64().max(1e-9);
        scalar("1/s", Better::Higher, rate, count)
    };
    let bytes = |value: u64| scalar("bytes", Better::Lower, value as f64, 1);
    let each = full.rss().saturating_sub(before.rss()) / tasks.max(1);
    let (completed, enqueued) = (behind.outcome.cycles, behind.outcome.enqueued);
    let figures = [
        ("backlog_ratio", scalar("ratio", Better::Higher, ratio, 1)),
        (
            "empty_cycles_per_second",
            empty.metrics["cycles_per_second"].clone(),
        ),
        ("fill_per_second", per_second(tasks, filled)),
        (
            "behind_completions_per_second",
            per_second(completed, behind.window),
        ),
        (
            "behind_enqueues_per_second",
            per_second(enqueued, behind.window),
        ),
        ("backlog_rss_bytes", bytes(full.rss())),
        ("restarted_rss_bytes", bytes(again.rss())),
        ("backlog_disk_bytes", bytes(full.disk())),
        ("rss_bytes_per_task", bytes(each)),
        ("restart", scalar("ms", Better::Lower, millis(restart), 1)),
        (
            "backlog_lost",
            scalar("count", Better::Lower, lost as f64, tasks),
        ),
    ];
    let named = figures.map(|(name, metric)| (name.to_owned(), metric));
    measurement.metrics.extend(named);
    Ok(measurement)
}

/// Acknowledged tasks that are neither there nor completed. Those that are there are counted by the
/// server, as only the first of millions were handed out.
async fn lost(target: &Target, behind: &Driven, tasks: u64) -> Result<u64> {
    let accepted = tasks + behind.outcome.ledger.accepted();
    let completed = behind.outcome.ledger.completed();
    let counts = target.counts("backlog").await?;
    let there = counts.ready + counts.leased + counts.delayed + completed;
    Ok(accepted.saturating_sub(there))
}

async fn arm(
    stage: &mut Stage,
    target: &Target,
    plan: &Plan,
    lengths: Lengths,
    queue: &str,
) -> Result<Driven> {
    let gate = std::future::ready(Ok(()));
    let connect = target.connect(queue);
    drive::drive(stage, plan, lengths, target.watch(), connect, gate).await
}

/// From the start until a worker holds a task.
async fn restart(stage: &mut Stage, target: &Target) -> Result<Duration> {
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
