//! One refresh of a view, timed.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::findings::Findings;
use super::schema::ScenarioSchema;

/// Pause after a refresh, in which its background work ends: it must not disturb what is measured
/// next.
pub(super) const PAUSE: Duration = Duration::from_millis(30);

/// Cycles before those that count.
pub(super) const WARMUP: u32 = 2;

/// How many rows change before each refresh where no other rate is said.
pub(super) const CHANGED_PERCENT: f64 = 1.0;

/// The modes of a refresh.
pub(super) const MODES: [&str; 3] = [INCREMENTAL, FULL, AUTO];
pub(super) const INCREMENTAL: &str = "incremental";
pub(super) const FULL: &str = "full";
pub(super) const AUTO: &str = "auto";

/// Duration and kind of a refresh.
pub(super) struct TimedRefresh {
    pub(super) duration: Duration,
    pub(super) was_idle: bool,
}

/// Refreshes a view, and then pauses until its background work has ended. It is among the findings
/// if it counts, under the name of an operation, with what Egret says it took and did.
///
/// # Errors
/// When Egret refuses, or the refresh fails.
pub(super) async fn refresh(
    schema: &ScenarioSchema,
    view: &str,
    operation: &str,
    is_measured: bool,
    findings: &mut Findings,
) -> Result<TimedRefresh> {
    let begun = Instant::now();
    let result = schema.api.refresh(view).await?;
    let duration = begun.elapsed();
    tokio::time::sleep(PAUSE).await;
    if is_measured {
        findings.record(operation, begun, duration);
        findings.record(&format!("{operation}_server"), begun, result.duration);
        findings.record_outcome(operation, &result.outcome);
    }
    Ok(TimedRefresh { duration, was_idle: result.outcome == "nothing" })
}
