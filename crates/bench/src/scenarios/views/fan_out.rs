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
const REFRESH_ONE: &str = "fan.one";

/// Measures refreshes of all views at once.
pub(super) async fn measure(
    schema: &ScenarioSchema,
    client: &Client,
    plan: &ViewsPlan,
    salt: u32,
    findings: &mut Findings,
) -> Result<()> {
    let small_views = SmallViews::create(schema, client, plan.views, plan.rows, salt).await?;
    small_views.create_views(schema, "manual").await?;
    let changes = Changes::from_percent(plan.rows, CHANGED_PERCENT);
    for number in 0..WARMUP + plan.cycles {
        small_views.change_rows(client, changes, salt.wrapping_add(1 + number)).await?;
        let is_measured = number >= WARMUP;
        let begun = Instant::now();
        let mut refreshes = JoinSet::new();
        for view in small_views.views() {
            let (api, view) = (schema.api.clone(), view.to_owned());
            refreshes.spawn(async move {
                api.refresh(&view).await?;
                anyhow::Ok(begun.elapsed())
            });
        }
        while let Some(result) = refreshes.join_next().await {
            let duration = result.context("a refresh")??;
            if is_measured {
                findings.record(REFRESH_ONE, begun, duration);
            }
        }
        let took = begun.elapsed();
        if is_measured {
            findings.record(REFRESH, begun, took);
        }
        findings.add_cycle(
            number,
            u64::from(is_measured),
            begun,
            BTreeMap::from([(REFRESH.to_owned(), millis(took))]),
        );
        tokio::time::sleep(PAUSE).await;
    }
    small_views.compare_and_drop(schema, client, findings).await
}
