//! How many rows can be committed beside a view, as a share of how many can be without.
//!
//! Connections commit row after row as fast as they can, into a table that a view reads which may
//! be a second behind, and into one that none reads, in turn. At a given rate both would take as
//! many, until they do not; at the limit the share is what recording and refreshing take away.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::task::JoinSet;
use tokio_postgres::Client;

use super::api::NewView;
use super::findings::Findings;
use super::lag::{TARGET, WRITERS};
use super::schema::ScenarioSchema;
use crate::compare::median;
use crate::record::scalar;
use crate::result::Better;

/// How often each table is written, after once that does not count.
const ROUNDS: usize = 4;

/// Measures it, each round for a part of the window.
pub(super) async fn measure(
    site: &ScenarioSchema,
    client: &Client,
    window: Duration,
    findings: &mut Findings,
) -> Result<()> {
    let tables = ["plain", "viewed"].map(|kind| site.named(&format!("commits_{kind}")));
    for table in &tables {
        client
            .batch_execute(&format!(
                "CREATE TABLE {table} (id bigserial PRIMARY KEY, writer int NOT NULL)"
            ))
            .await?;
    }
    let [plain, viewed] = &tables;
    let (view, query) = (
        site.named("commits_beside"),
        format!("SELECT writer, count(*) AS commits FROM {viewed} GROUP BY writer"),
    );
    let new = NewView {
        name: &view,
        query: &query,
        mode: "auto",
        schedule: TARGET,
    };
    site.api.create(&new).await?;
    let window = window / ROUNDS as u32;
    let mut rates = [Vec::new(), Vec::new()];
    for round in 0..=ROUNDS {
        for turn in 0..2 {
            let which = (round + turn) % 2;
            let rate = commit(site, [plain, viewed][which], window).await?;
            // What was recorded in this turn is not to be refreshed in the next one.
            site.api.refresh(&view).await?;
            if round > 0 {
                rates[which].push(rate);
            }
        }
    }
    let [without, with] = rates.map(|rates| median(&rates));
    let rate = |rate| scalar("1/s", Better::Higher, rate, ROUNDS as u64);
    findings.metric("lag.throughput_without", rate(without));
    findings.metric("lag.throughput", rate(with));
    let share = scalar(
        "ratio",
        Better::Higher,
        with / without.max(1e-9),
        ROUNDS as u64,
    );
    findings.metric("lag.throughput_share", share);
    findings.compare(site, client, &view, &query).await?;
    site.api.drop(&view).await?;
    Ok(client
        .batch_execute(&format!("DROP TABLE {plain}, {viewed}"))
        .await?)
}

/// Commits rows by all writers for some time, and says how many in a second.
async fn commit(site: &ScenarioSchema, table: &str, window: Duration) -> Result<f64> {
    let mut clients = Vec::new();
    for _ in 0..WRITERS {
        clients.push(site.client().await?);
    }
    let begun = Instant::now();
    let mut writers = JoinSet::new();
    for (number, client) in (0_i32..).zip(clients) {
        let insert = format!("INSERT INTO {table} (writer) VALUES ($1)");
        writers.spawn(async move {
            let insert = client.prepare(&insert).await?;
            let mut commits = 0_u64;
            while begun.elapsed() < window {
                client.execute(&insert, &[&number]).await?;
                commits += 1;
            }
            anyhow::Ok(commits)
        });
    }
    let mut commits = 0;
    while let Some(done) = writers.join_next().await {
        commits += done.context("a writer")??;
    }
    Ok(commits as f64 / begun.elapsed().as_secs_f64())
}
