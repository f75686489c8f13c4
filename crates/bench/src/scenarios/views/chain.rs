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
    site: &ScenarioSchema,
    client: &Client,
    plan: &ViewsPlan,
    salt: u32,
    findings: &mut Findings,
) -> Result<()> {
    let tables = Tables::make(site, client, "chain", plan.rows, salt).await?;
    site.settle(client, &[&tables.source, &tables.dimension])
        .await?;
    let links = links(site, &tables);
    for ChainView { view, query } in &links {
        let new = NewView {
            name: view,
            query,
            mode: "auto",
            schedule: "manual",
        };
        site.api.create(&new).await?;
    }
    let changes = Changes::of(plan.rows, CHANGED_PERCENT);
    let last = &links[links.len() - 1].view;
    for number in 0..WARMUP + plan.cycles {
        tables
            .change(client, changes, salt.wrapping_add(1 + number))
            .await?;
        let (counts, begun) = (number >= WARMUP, Instant::now());
        let turn = timed_refresh::refresh(site, last, REFRESH, counts, findings).await?;
        findings.cycle(
            number,
            u64::from(counts),
            begun,
            BTreeMap::from([(REFRESH.to_owned(), millis(turn.took))]),
        );
    }
    // Each is what its query gives of the one before, so that all are what they are to be.
    for ChainView { view, query } in &links {
        findings.compare(site, client, view, query).await?;
    }
    for ChainView { view, .. } in links.iter().rev() {
        site.api.drop(view).await?;
    }
    tables.drop(client).await
}

fn links(site: &ScenarioSchema, tables: &Tables) -> Vec<ChainView> {
    let mut before = tables.source.clone();
    let mut links = Vec::new();
    for (number, query) in (1..).zip(QUERIES) {
        let view = site.named(&format!("link_{number}"));
        let query = query
            .replace("{}", &before)
            .replace("{d}", &tables.dimension);
        before.clone_from(&view);
        links.push(ChainView { view, query });
    }
    links
}
