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
use super::lag::{LAG_TARGET, WRITERS};
use super::schema::ScenarioSchema;
use crate::compare::median;
use crate::record::scalar;
use crate::result::Better;

/// How often each table is written, after once that does not count.
const ROUNDS: usize = 4;

/// Measures it, each round for a part of the window.
pub(super) async fn measure(
    schema: &ScenarioSchema,
    client: &Client,
    window: Duration,
    findings: &mut Findings,
) -> Result<()> {
    let tables = ["plain", "viewed"].map(|kind| schema.qualified_name(&format!("commits_{kind}")));
    for table in &tables {
        client
            .batch_execute(&format!(
                "CREATE TABLE {table} (id bigserial PRIMARY KEY, writer int NOT NULL)"
            ))
            .await?;
    }
    let [plain, viewed] = &tables;
    let (view, query) = (
        schema.qualified_name("commits_beside"),
        format!("SELECT writer, count(*) AS commits FROM {viewed} GROUP BY writer"),
    );
    let new = NewView { name: &view, query: &query, mode: "auto", schedule: LAG_TARGET };
    schema.api.create(&new).await?;
    let window = window / ROUNDS as u32;
    let mut rates = [Vec::new(), Vec::new()];
    for round in 0..=ROUNDS {
        for turn in 0..2 {
            let table_index = (round + turn) % 2;
            let rate = commit_rows(schema, [plain, viewed][table_index], window).await?;
            // What was recorded in this turn is not to be refreshed in the next one.
            schema.api.refresh(&view).await?;
            if round > 0 {
                rates[table_index].push(rate);
            }
        }
    }
    let [rate_without_view, rate_with_view] = rates.map(|rates| median(&rates));
    let rate_metric = |rate| scalar("1/s", Better::Higher, rate, ROUNDS as u64);
    findings.add_metric("lag.throughput_without", rate_metric(rate_without_view));
    findings.add_metric("lag.throughput", rate_metric(rate_with_view));
    let share = scalar(
        "ratio",
        Better::Higher,
        rate_with_view / rate_without_view.max(1e-9),
        ROUNDS as u64,
    );
    findings.add_metric("lag.throughput_share", share);
    findings.compare_view(schema, client, &view, &query).await?;
    schema.api.drop(&view).await?;
    Ok(client.batch_execute(&format!("DROP TABLE {plain}, {viewed}")).await?)
}

/// Commits rows by all writers for some time, and says how many in a second.
async fn commit_rows(schema: &ScenarioSchema, table: &str, window: Duration) -> Result<f64> {
    let mut clients = Vec::new();
    for _ in 0..WRITERS {
        clients.push(schema.connect().await?);
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
    while let Some(result) = writers.join_next().await {
        commits += result.context("a writer")??;
    }
    Ok(commits as f64 / begun.elapsed().as_secs_f64())
}
