//! Many views that do not know each other, all of which have changed: how long it takes until all
//! are fresh, when all are asked for at once. How many Egret works on at a time is its setting
//! `views.refresh_parallel_max`.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Context, Result};
use tokio::task::JoinSet;
use tokio_postgres::Client;

use super::findings::Findings;
use super::many_views::SmallViews;
use super::plan::ViewsPlan;
use super::schema::ScenarioSchema;
use super::tables::Changes;
use super::timed_refresh::{CHANGED_PERCENT, PAUSE, WARMUP};
use crate::record::millis;

/// Until all are fresh.
pub(super) const REFRESH: &str = "fan.refresh";

/// Each by itself, from the moment at which all are asked for.
const ONE: &str = "fan.one";

/// Measures refreshes of all views at once.
pub(super) async fn measure(
    site: &ScenarioSchema,
    client: &Client,
    plan: &ViewsPlan,
    salt: u32,
    findings: &mut Findings,
) -> Result<()> {
    let many = SmallViews::make(site, client, plan.views, plan.rows, salt).await?;
    many.view(site, "manual").await?;
    let changes = Changes::of(plan.rows, CHANGED_PERCENT);
    for number in 0..WARMUP + plan.cycles {
        many.change(client, changes, salt.wrapping_add(1 + number))
            .await?;
        let counts = number >= WARMUP;
        let begun = Instant::now();
        let mut asked = JoinSet::new();
        for view in many.views() {
            let (api, view) = (site.api.clone(), view.to_owned());
            asked.spawn(async move {
                api.refresh(&view).await?;
                anyhow::Ok(begun.elapsed())
            });
        }
        while let Some(refreshed) = asked.join_next().await {
            let took = refreshed.context("a refresh")??;
            if counts {
                findings.took(ONE, begun, took);
            }
        }
        let took = begun.elapsed();
        if counts {
            findings.took(REFRESH, begun, took);
        }
        findings.cycle(
            number,
            u64::from(counts),
            begun,
            BTreeMap::from([(REFRESH.to_owned(), millis(took))]),
        );
        tokio::time::sleep(PAUSE).await;
    }
    many.finish(site, client, findings).await
}
