//! `--scenario tenants`: one tenant's latencies alone, and beside another tenant that sends all it
//! can.

use anyhow::{Result, bail};

use super::cycle::{CyclePlan, END_TO_END};
use super::drive::{self, BackgroundLoad, Lengths};
use super::figures;
use super::target::QueueTarget;
use crate::record::scalar;
use crate::result::Better;
use crate::scenario::Measurement;
use crate::schedule::Spacing;
use crate::stage::Stage;

/// Tasks per second of the quiet tenant, unless told otherwise.
const RATE: f64 = 1_000.0;

/// The quiet tenant makes tasks by a schedule, first alone; then beside the other, whose callers
/// call again as soon as they are answered. The measurement is the quiet one's beside the other.
pub(super) async fn measure(
    stage: &mut Stage,
    plan: &CyclePlan,
    lengths: Lengths,
) -> Result<Measurement> {
    let target = QueueTarget::of(stage)?;
    target.put_queue("quiet", None).await?;
    let quiet = CyclePlan {
        rate: Some(plan.rate.unwrap_or((RATE, Spacing::Poisson))),
        batch: 1,
        ..plan.clone()
    };
    let alone = arm(stage, &target, &quiet, lengths).await?;

    let other = target.as_tenant("other").await?;
    other.put_queue("flood", None).await?;
    let flood = CyclePlan {
        rate: None,
        ..plan.clone()
    };
    let flood = BackgroundLoad::start(&flood, other.connect("flood"));
    let mut beside = arm(stage, &target, &quiet, lengths).await?;
    let (flooded, lasted) = flood.end().await?;

    let rate = flooded.cycles as f64 / lasted.as_secs_f64().max(1e-9);
    let rate = scalar("1/s", Better::Neither, rate, flooded.cycles);
    beside
        .metrics
        .insert("flood_cycles_per_second".to_owned(), rate);
    let before = alone.recording.metrics().remove(END_TO_END);
    let after = beside.recording.metrics().remove(END_TO_END);
    let (Some(before), Some(after)) = (before, after) else {
        bail!("the quiet tenant has completed no task");
    };
    let ratios = [
        ("p50", before.p50, after.p50),
        ("p99", before.p99, after.p99),
    ];
    for (name, before, after) in ratios {
        if let (Some(before), Some(after)) = (before, after) {
            let ratio = after / before.max(1e-9);
            let ratio = scalar("ratio", Better::Lower, ratio, 1);
            let name = format!("beside_{name}_ratio");
            beside.metrics.insert(name, ratio);
        }
    }
    beside.metrics.insert(format!("alone_{END_TO_END}"), before);
    Ok(beside)
}

async fn arm(
    stage: &mut Stage,
    target: &QueueTarget,
    plan: &CyclePlan,
    lengths: Lengths,
) -> Result<Measurement> {
    let gate = std::future::ready(Ok(()));
    let connect = target.connect("quiet");
    let driven = drive::drive(stage, plan, lengths, target.watch(), connect, gate).await?;
    Ok(figures::measurement(driven))
}
