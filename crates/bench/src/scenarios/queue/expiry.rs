//! `--scenario lease-expiry`: very many leases that end in the same second, beside other traffic.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, ensure};
use egret_proto::queue::v1;

use super::cycle::CyclePlan;
use super::drive::{self, Lengths};
use super::figures;
use super::target::QueueTarget;
use super::worker::{LeaseEnds, LeaseHolder};
use crate::record::scalar;
use crate::result::Better;
use crate::scenario::Measurement;
use crate::schedule::Spacing;
use crate::stage::Stage;

/// Tasks that one stream takes: the fewer, the closer together their leases end, as a lease counts
/// from when it is given and each stream asks for what is left until the common end.
const STREAM_TASKS: u32 = 25_000;

/// Tasks per second of the other traffic, unless told otherwise.
const TRAFFIC_RATE_DEFAULT: f64 = 5_000.0;

/// So many leases are surely given in a second.
const CLAIMS_PER_SECOND: u64 = 25_000;

/// The window begins so long before the leases end…
const WINDOW_LEAD: Duration = Duration::from_secs(1);

/// …and ends so long after.
const WINDOW_TAIL: Duration = Duration::from_secs(5);

/// How often the server is asked how many leases are left.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Leases that are not back by then are not waited for.
const EXPIRY_TIMEOUT: Duration = Duration::from_secs(60);

/// Lets `leases` leases end at once and measures how long until no task is leased, and the
/// latencies of another queue meanwhile.
pub(super) async fn measure(
    stage: &mut Stage,
    plan: &CyclePlan,
    lengths: Lengths,
    leases: u64,
) -> Result<Measurement> {
    let target = QueueTarget::from_stage(stage)?;
    target.put_queue("traffic", None).await?;
    target.put_queue("leases", Some(immediate_retry_settings())).await?;
    stage.progress.show(format!("enqueueing {leases} tasks"));
    drive::fill_queue(plan, leases, target.connector("leases")).await?;
    let traffic = CyclePlan {
        rate: Some(plan.rate.unwrap_or((TRAFFIC_RATE_DEFAULT, Spacing::Poisson))),
        ..plan.clone()
    };
    let mut ends = LeaseEnds::default();
    let lengths = Lengths { window: WINDOW_LEAD + WINDOW_TAIL, ..lengths };
    let (ends_sender, ends_receiver) = tokio::sync::oneshot::channel();
    let gate = async {
        ends = claim_all(&target, leases).await?;
        // Its receiver waits beside it.
        let _ = ends_sender.send(ends);
        sleep_until_ms(ends.first_ms.saturating_sub(WINDOW_LEAD.as_millis() as u64)).await;
        Ok(())
    };
    let poll_target = target.clone();
    let expiry_task =
        tokio::spawn(async move { await_all_expired(&poll_target, ends_receiver.await?).await });
    let sampler = target.resource_sampler();
    let connect = target.connector("traffic");
    let result = drive::run_load(stage, &traffic, lengths, sampler, connect, gate).await?;
    let expiry_ms = expiry_task.await??;
    let counts = target.task_counts("leases").await?;
    let known_tasks = counts.ready + counts.delayed + counts.leased;
    let mut measurement = figures::into_measurement(result);
    let spread_ms = ends.last_ms.saturating_sub(ends.first_ms);
    let figures = [
        ("all_back", scalar("ms", Better::Lower, expiry_ms as f64, leases)),
        ("lease_spread", scalar("ms", Better::Neither, spread_ms as f64, leases)),
        (
            "leases_lost",
            scalar("count", Better::Lower, leases.saturating_sub(known_tasks) as f64, leases),
        ),
    ];
    let named = figures.map(|(name, metric)| (name.to_owned(), metric));
    measurement.metrics.extend(named);
    if spread_ms > 1_000 {
        measurement
            .warnings
            .push(format!("the leases ended within {spread_ms} ms, not within a second"));
    }
    Ok(measurement)
}

/// A task whose lease has ended is ready at once.
fn immediate_retry_settings() -> v1::QueueSettings {
    v1::QueueSettings {
        max_attempts: Some(10),
        retry: Some(v1::RetryPolicy {
            backoff: v1::retry_policy::Backoff::Fixed.into(),
            base_ms: 1,
            max_ms: 1,
            jitter: v1::retry_policy::Jitter::None.into(),
        }),
        ..Default::default()
    }
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_millis() as u64)
}

async fn sleep_until_ms(at_ms: u64) {
    tokio::time::sleep(Duration::from_millis(at_ms.saturating_sub(now_ms()))).await;
}

/// Takes every task, so that all leases end at about the same moment.
async fn claim_all(target: &QueueTarget, leases: u64) -> Result<LeaseEnds> {
    let end_ms = now_ms() + 5_000 + leases * 1_000 / CLAIMS_PER_SECOND;
    let mut ends = LeaseEnds { first_ms: u64::MAX, last_ms: 0 };
    let mut remaining = leases;
    while remaining > 0 {
        let count = remaining.min(u64::from(STREAM_TASKS));
        let lease_ms = end_ms.saturating_sub(now_ms());
        ensure!(
            lease_ms > 1_000,
            "the first leases expire before all are taken: measure fewer of them"
        );
        let holder = LeaseHolder::claim(target, "leases", count as u32, lease_ms).await?;
        ends.first_ms = ends.first_ms.min(holder.ends.first_ms);
        ends.last_ms = ends.last_ms.max(holder.ends.last_ms);
        tokio::spawn(holder.drain_stream());
        remaining -= count;
    }
    Ok(ends)
}

/// How many milliseconds after the first lease has ended no task is leased.
async fn await_all_expired(target: &QueueTarget, ends: LeaseEnds) -> Result<u64> {
    sleep_until_ms(ends.first_ms).await;
    loop {
        let leased = target.task_counts("leases").await?.leased;
        let since_ms = now_ms().saturating_sub(ends.first_ms);
        if leased == 0 {
            return Ok(since_ms);
        }
        ensure!(
            since_ms < EXPIRY_TIMEOUT.as_millis() as u64,
            "{leased} tasks are still leased {} s after their leases ended",
            EXPIRY_TIMEOUT.as_secs()
        );
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
