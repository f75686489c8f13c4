//! One refresh of a view, timed.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::findings::Findings;
use super::site::Site;

/// What a refresh leaves to be done behind it is over after so long: it is not to disturb who comes next.
pub(super) const PAUSE: Duration = Duration::from_millis(30);

/// Cycles before those that count.
pub(super) const WARMUP: u32 = 2;

/// How many rows change before each refresh where no other rate is said.
pub(super) const CHANGED_PERCENT: f64 = 1.0;

/// How views are brought up to date.
pub(super) const MODES: [&str; 3] = [INCREMENTAL, FULL, AUTO];
pub(super) const INCREMENTAL: &str = "incremental";
pub(super) const FULL: &str = "full";
pub(super) const AUTO: &str = "auto";

/// What a refresh did.
pub(super) struct Turn {
    pub(super) took: Duration,
    /// Nothing had changed.
    pub(super) was_idle: bool,
}

/// Refreshes a view, and waits until that disturbs nobody. It is among the findings if it counts, under the name of an
/// operation, with what Egret says it took and did.
///
/// # Errors
/// When Egret refuses, or the refresh fails.
pub(super) async fn refresh(
    site: &Site,
    view: &str,
    operation: &str,
    counts: bool,
    findings: &mut Findings,
) -> Result<Turn> {
    let begun = Instant::now();
    let refreshed = site.api.refresh(view).await?;
    let took = begun.elapsed();
    tokio::time::sleep(PAUSE).await;
    if counts {
        findings.took(operation, begun, took);
        findings.took(&format!("{operation}_server"), begun, refreshed.took);
        findings.outcome(operation, &refreshed.outcome);
    }
    Ok(Turn {
        took,
        was_idle: refreshed.outcome == "nothing",
    })
}
