//! What many views cost of which nothing changes: processor time of Egret with all that it has
//! started, its PostgreSQL among it.
//!
//! It is taken twice for as long: beside the tables alone, and with a view of each that may be a
//! second behind. Egret does more than views, and PostgreSQL more than Egret asks of it.

use std::time::{Duration, Instant};

use anyhow::Result;
use tokio_postgres::Client;

use super::findings::Findings;
use super::many_views::SmallViews;
use super::plan::ViewsPlan;
use super::schema::ScenarioSchema;
use crate::process::Snapshot;
use crate::record::scalar;
use crate::refusal;
use crate::result::Better;

/// As a share of a core, with the views.
pub(super) const CPU: &str = "idle.cpu";

/// The lag that views may have.
const LAG_TARGET: &str = "1s";

/// What making tables and views leaves to be done is over after so long, and not waited for longer
/// than is measured.
const SETTLE_DURATION: Duration = Duration::from_secs(3);

/// Measures it. The processes are Egret's first ones on this machine.
///
/// # Errors
/// Egret's or the server's; and when Egret is on another machine.
pub(super) async fn measure(
    schema: &ScenarioSchema,
    client: &Client,
    plan: &ViewsPlan,
    processes: &[u32],
    findings: &mut Findings,
) -> Result<()> {
    if processes.is_empty() {
        return Err(refusal::usage(
            "--scenario idle reads the processes of Egret: run it on Egret's machine, or give \
             --private",
        ));
    }
    if schema.is_external() {
        findings.add_warning(
            "the processor time of the server that --url names counts only if Egret has started it"
                .to_owned(),
        );
    }
    let small_views = SmallViews::create(schema, client, plan.views, plan.rows, 0).await?;
    let cpu_without_views = cpu_share(processes, plan.seconds).await?;
    small_views.create_views(schema, LAG_TARGET).await?;
    // What autovacuum would do of its own accord in a while, so that it is not done while measured.
    client.batch_execute("VACUUM (ANALYZE)").await?;
    let cpu_with_views = cpu_share(processes, plan.seconds).await?;
    let mut add_share = |name: &str, share: f64| {
        let samples = plan.views.into();
        findings.add_metric(name, scalar("ratio", Better::Lower, share, samples));
    };
    add_share("idle.cpu_without", cpu_without_views);
    add_share(CPU, cpu_with_views);
    add_share("idle.cpu_of_views", (cpu_with_views - cpu_without_views).max(0.0));
    small_views.compare_and_drop(schema, client, findings).await
}

/// How much of a core is used in a time.
async fn cpu_share(processes: &[u32], window: Duration) -> Result<f64> {
    tokio::time::sleep(window.min(SETTLE_DURATION)).await;
    let (begun, before) = (Instant::now(), Snapshot::take()?);
    tokio::time::sleep(window).await;
    let cpu_time = Snapshot::take()?.usage_since(&before, processes).system;
    Ok(cpu_time.as_secs_f64() / begun.elapsed().as_secs_f64())
}
