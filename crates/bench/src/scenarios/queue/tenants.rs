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
const QUIET_RATE_DEFAULT: f64 = 1_000.0;

/// The quiet tenant makes tasks by a schedule, first alone; then beside the other, whose callers
/// call again as soon as they are answered. The measurement is the quiet one's beside the other.
pub(super) async fn measure(
    stage: &mut Stage,
    plan: &CyclePlan,
    lengths: Lengths,
) -> Result<Measurement> {
    let target = QueueTarget::from_stage(stage)?;
    target.put_queue("quiet", None).await?;
    let quiet = CyclePlan {
        rate: Some(plan.rate.unwrap_or((QUIET_RATE_DEFAULT, Spacing::Poisson))),
        batch: 1,
        ..plan.clone()
    };
    let alone_measurement = measure_quiet(stage, &target, &quiet, lengths).await?;

    let other = target.as_tenant("other").await?;
    other.put_queue("flood", None).await?;
    let flood = CyclePlan { rate: None, ..plan.clone() };
    let flood = BackgroundLoad::start(&flood, other.connector("flood"));
    let mut beside_measurement = measure_quiet(stage, &target, &quiet, lengths).await?;
    let (flood_outcome, flood_duration) = flood.finish().await?;

    let rate = flood_outcome.cycles as f64 / flood_duration.as_secs_f64().max(1e-9);
    let rate = scalar("1/s", Better::Neither, rate, flood_outcome.cycles);
    beside_measurement.metrics.insert("flood_cycles_per_second".to_owned(), rate);
    let alone_latency = alone_measurement.recording.metrics().remove(END_TO_END);
    let beside_latency = beside_measurement.recording.metrics().remove(END_TO_END);
    let (Some(before), Some(after)) = (alone_latency, beside_latency) else {
        bail!("the quiet tenant has completed no task");
    };
    let ratios = [("p50", before.p50, after.p50), ("p99", before.p99, after.p99)];
    for (name, before, after) in ratios {
        if let (Some(before), Some(after)) = (before, after) {
            let ratio = after / before.max(1e-9);
            let ratio = scalar("ratio", Better::Lower, ratio, 1);
            let name = format!("beside_{name}_ratio");
            beside_measurement.metrics.insert(name, ratio);
        }
    }
    beside_measurement.metrics.insert(format!("alone_{END_TO_END}"), before);
    Ok(beside_measurement)
}

async fn measure_quiet(
    stage: &mut Stage,
    target: &QueueTarget,
    plan: &CyclePlan,
    lengths: Lengths,
) -> Result<Measurement> {
    let gate = std::future::ready(Ok(()));
    let connect = target.connector("quiet");
    let result =
        drive::run_load(stage, plan, lengths, target.resource_sampler(), connect, gate).await?;
    Ok(figures::into_measurement(result))
}
