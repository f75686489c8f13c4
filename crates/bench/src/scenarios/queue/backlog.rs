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

/// An empty queue, the same with `tasks` waiting in front, and what that took.
pub(super) async fn measure(
    stage: &mut Stage,
    plan: &Plan,
    lengths: Lengths,
    tasks: u64,
) -> Result<Measurement> {
    let target = Target::of(stage)?;
    target.put_queue("empty", None).await?;
    let empty = arm(stage, &target, plan, lengths, "empty").await?;
    let empty_rate = rate(&empty);

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

    let behind = Plan {
        purpose: Purpose::Behind(tasks),
        ..plan.clone()
    };
    let loaded = arm(stage, &target, &behind, lengths, "backlog").await?;
    let ratio = rate(&loaded) / empty_rate.max(1e-9);
    let accepted = tasks + loaded.outcome.ledger.accepted();
    let completed = loaded.outcome.ledger.completed();
    let counts = target.counts("backlog").await?;
    let there = counts.ready + counts.leased + counts.delayed + completed;
    let rss = full.rss();
    let mut measurement = figures::measurement(loaded);
    let bytes = |value: u64| scalar("bytes", Better::Lower, value as f64, 1);
    let lost = accepted.saturating_sub(there);
    let figures = [
        ("backlog_ratio", scalar("ratio", Better::Higher, ratio, 1)),
        (
            "empty_cycles_per_second",
            scalar("1/s", Better::Higher, empty_rate, 1),
        ),
        (
            "fill_per_second",
            scalar(
                "1/s",
                Better::Higher,
                tasks as f64 / filled.as_secs_f64(),
                tasks,
            ),
        ),
        ("backlog_rss_bytes", bytes(rss)),
        ("restarted_rss_bytes", bytes(again.rss())),
        ("backlog_disk_bytes", bytes(full.disk())),
        (
            "rss_bytes_per_task",
            bytes(rss.saturating_sub(before.rss()) / tasks.max(1)),
        ),
        ("restart", scalar("ms", Better::Lower, millis(restart), 1)),
        (
            "lost",
            scalar("count", Better::Lower, lost as f64, accepted),
        ),
    ];
    let named = figures.map(|(name, metric)| (name.to_owned(), metric));
    measurement.metrics.extend(named);
    // Of tasks that wait behind millions there is no end to speak of.
    measurement.metrics.remove("unfinished");
    measurement
        .warnings
        .retain(|warning| !warning.contains("acknowledged tasks"));
    Ok(measurement)
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

/// Tasks are made at one rate and completed at another, as there are always some to complete: a cycle
/// needs both.
fn rate(driven: &Driven) -> f64 {
    let cycles = driven.outcome.cycles.min(driven.outcome.enqueued);
    cycles as f64 / driven.window.as_secs_f64().max(1e-9)
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
