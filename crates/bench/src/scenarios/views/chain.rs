//! Ten views, each of which reads the one before, and the first a table of which rows have changed.
//! A refresh of the last one brings all of them up to date, in one transaction.
//!
//! A change stays one on its way: rows are filtered, joined and computed with, and from the fifth
//! view on summed up by ever larger groups.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::Result;
use tokio_postgres::Client;

use super::api::NewView;
use super::findings::Findings;
use super::plan::ViewsPlan;
use super::schema::ScenarioSchema;
use super::tables::{Changes, Tables};
use super::timed_refresh::{self, CHANGED_PERCENT, WARMUP};
use crate::record::millis;

/// A refresh of the last one.
pub(super) const REFRESH: &str = "chain.refresh";

/// What each view computes of `{}`, which is the one before, and of the dimension, which is `{d}`.
const QUERIES: [&str; 10] = [
    "SELECT id, region, category, amount, score FROM {} WHERE amount > 500",
    "SELECT v.id, v.region, d.region_name, v.category, v.amount, v.score FROM {} AS v JOIN {d} AS d ON d.region = v.region",
    "SELECT id, region, region_name, category, score, amount * 2 AS doubled FROM {}",
    "SELECT id, region, region_name, category, score, doubled FROM {} WHERE score < 90",
    "SELECT region, region_name, category, score, sum(doubled) AS total, count(*) AS rows FROM {} \
     GROUP BY region, region_name, category, score",
    "SELECT region, category, score, total, rows, total / rows AS mean FROM {}",
    "SELECT region, category, score, total, rows FROM {} WHERE rows > 1 AND mean > 1000",
    "SELECT v.category, v.score, v.total, v.rows, d.region_name FROM {} AS v JOIN {d} AS d ON d.region = v.region",
    "SELECT region_name, category, sum(total) AS total, sum(rows) AS rows FROM {} GROUP BY region_name, category",
    "SELECT region_name, sum(total) AS total, sum(rows) AS rows FROM {} GROUP BY region_name",
];

/// A view of the chain.
struct ChainView {
    view: String,
    query: String,
}

/// Measures refreshes of the whole chain.
pub(super) async fn measure(
    schema: &ScenarioSchema,
    client: &Client,
    plan: &ViewsPlan,
    salt: u32,
    findings: &mut Findings,
) -> Result<()> {
    let tables = Tables::create(schema, client, "chain", plan.rows, salt).await?;
    schema.vacuum_and_checkpoint(client, &[&tables.source, &tables.dimension]).await?;
    let chain_views = list_chain_views(schema, &tables);
    for ChainView { view, query } in &chain_views {
        let new = NewView { name: view, query, mode: "auto", schedule: "manual" };
        schema.api.create(&new).await?;
    }
    let changes = Changes::from_percent(plan.rows, CHANGED_PERCENT);
    let last_view = &chain_views[chain_views.len() - 1].view;
    for number in 0..WARMUP + plan.cycles {
        tables.change(client, changes, salt.wrapping_add(1 + number)).await?;
        let (is_measured, begun) = (number >= WARMUP, Instant::now());
        let refresh =
            timed_refresh::refresh(schema, last_view, REFRESH, is_measured, findings).await?;
        findings.add_cycle(
            number,
            u64::from(is_measured),
            begun,
            BTreeMap::from([(REFRESH.to_owned(), millis(refresh.duration))]),
        );
    }
    // Each is what its query gives of the one before, so that all are what they are to be.
    for ChainView { view, query } in &chain_views {
        findings.compare_view(schema, client, view, query).await?;
    }
    for ChainView { view, .. } in chain_views.iter().rev() {
        schema.api.drop(view).await?;
    }
    tables.drop(client).await
}

fn list_chain_views(schema: &ScenarioSchema, tables: &Tables) -> Vec<ChainView> {
    let mut previous = tables.source.clone();
    let mut chain_views = Vec::new();
    for (number, query) in (1..).zip(QUERIES) {
        let view = schema.qualified_name(&format!("link_{number}"));
        let query = query.replace("{}", &previous).replace("{d}", &tables.dimension);
        previous.clone_from(&view);
        chain_views.push(ChainView { view, query });
    }
    chain_views
}
