//! `--scenario lease-expiry`: very many leases that end in the same second, beside other traffic.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, ensure};
use egret_proto::queue::v1;

use super::cycle::CyclePlan;
use super::drive::{self, Lengths};
use super::figures;
use super::target::QueueTarget;
use super::worker::{Holder, LeaseEnds};
use crate::record::scalar;
use crate::result::Better;
use crate::scenario::Measurement;
use crate::schedule::Spacing;
use crate::stage::Stage;

/// Tasks that one stream takes: the fewer, the closer together their leases end, as a lease counts
/// from when it is given and each stream asks for what is left until the common end.
const STREAM_TASKS: u32 = 25_000;

/// Tasks per second of the other traffic, unless told otherwise.
const RATE: f64 = 5_000.0;

/// So many leases are surely given in a second.
const CLAIMS_PER_SECOND: u64 = 25_000;

/// The window begins so long before the leases end…
const BEFORE: Duration = Duration::from_secs(1);

/// …and ends so long after.
const AFTER: Duration = Duration::from_secs(5);

/// How often the server is asked how many leases are left.
const LOOK: Duration = Duration::from_millis(10);

/// Leases that are not back by then are not waited for.
const BACK_MAX: Duration = Duration::from_secs(60);

/// Lets `leases` leases end at once and measures how long until no task is leased, and the
/// latencies of another queue meanwhile.
pub(super) async fn measure(
    stage: &mut Stage,
    plan: &CyclePlan,
    lengths: Lengths,
    leases: u64,
) -> Result<Measurement> {
    let target = QueueTarget::of(stage)?;
    target.put_queue("traffic", None).await?;
    target.put_queue("leases", Some(at_once())).await?;
    stage.progress.say(format!("enqueueing {leases} tasks"));
    drive::fill(plan, leases, target.connect("leases")).await?;
    let traffic = CyclePlan {
        rate: Some(plan.rate.unwrap_or((RATE, Spacing::Poisson))),
        ..plan.clone()
    };
    let mut ends = LeaseEnds::default();
    let lengths = Lengths {
        window: BEFORE + AFTER,
        ..lengths
    };
    let (tell, told) = tokio::sync::oneshot::channel();
    let gate = async {
        ends = claim(&target, leases).await?;
        // Its receiver waits beside it.
        let _ = tell.send(ends);
        wait_until(ends.first_ms.saturating_sub(BEFORE.as_millis() as u64)).await;
        Ok(())
    };
    let watching = target.clone();
    let back = tokio::spawn(async move { all_back(&watching, told.await?).await });
    let watch = target.watch();
    let connect = target.connect("traffic");
    let driven = drive::drive(stage, &traffic, lengths, watch, connect, gate).await?;
    let back_ms = back.await??;
    let counts = target.counts("leases").await?;
    let there = counts.ready + counts.delayed + counts.leased;
    let mut measurement = figures::measurement(driven);
    let spread_ms = ends.last_ms.saturating_sub(ends.first_ms);
    let figures = [
        (
            "all_back",
            scalar("ms", Better::Lower, back_ms as f64, leases),
        ),
        (
            "lease_spread",
            scalar("ms", Better::Neither, spread_ms as f64, leases),
        ),
        (
            "leases_lost",
            scalar(
                "count",
                Better::Lower,
                leases.saturating_sub(there) as f64,
                leases,
            ),
        ),
    ];
    let named = figures.map(|(name, metric)| (name.to_owned(), metric));
    measurement.metrics.extend(named);
    if spread_ms > 1_000 {
        measurement.warnings.push(format!(
            "the leases ended within {spread_ms} ms, not within a second"
        ));
    }
    Ok(measurement)
}

/// A task whose lease has ended is ready at once.
fn at_once() -> v1::QueueSettings {
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

async fn wait_until(at_ms: u64) {
    tokio::time::sleep(Duration::from_millis(at_ms.saturating_sub(now_ms()))).await;
}

/// Takes every task, so that all leases end at about the same moment.
async fn claim(target: &QueueTarget, leases: u64) -> Result<LeaseEnds> {
    let end_ms = now_ms() + 5_000 + leases * 1_000 / CLAIMS_PER_SECOND;
    let mut ends = LeaseEnds {
        first_ms: u64::MAX,
        last_ms: 0,
    };
    let mut left = leases;
    while left > 0 {
        let count = left.min(u64::from(STREAM_TASKS));
        let lease_ms = end_ms.saturating_sub(now_ms());
        ensure!(
            lease_ms > 1_000,
            "the first leases expire before all are taken: measure fewer of them"
        );
        let holder = Holder::claim(target, "leases", count as u32, lease_ms).await?;
        ends.first_ms = ends.first_ms.min(holder.ends.first_ms);
        ends.last_ms = ends.last_ms.max(holder.ends.last_ms);
        tokio::spawn(holder.listen());
        left -= count;
    }
    Ok(ends)
}

/// How many milliseconds after the first lease has ended no task is leased.
async fn all_back(target: &QueueTarget, ends: LeaseEnds) -> Result<u64> {
    wait_until(ends.first_ms).await;
    loop {
        let leased = target.counts("leases").await?.leased;
        let since_ms = now_ms().saturating_sub(ends.first_ms);
        if leased == 0 {
            return Ok(since_ms);
        }
        ensure!(
            since_ms < BACK_MAX.as_millis() as u64,
            "{leased} tasks are still leased {} s after their leases ended",
            BACK_MAX.as_secs()
        );
        tokio::time::sleep(LOOK).await;
    }
}
