//! How long a row takes from its commit until it is seen in a view that may be a second behind.
//!
//! Writers commit rows one by one by a schedule, and each notes when every commit was acknowledged.
//! The view counts the rows of each writer; it is read many times a second. A writer's n-th row is
//! seen when the count is n.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::task::JoinSet;
use tokio_postgres::Client;

use super::api::NewView;
use super::findings::Findings;
use super::schema::ScenarioSchema;
use crate::record::scalar;
use crate::result::Better;
use crate::schedule::{Spacing, arrivals};

pub(super) const WRITERS: usize = 8;

/// How often the view is read: a lag is known as exactly as that.
const LOOK: Duration = Duration::from_millis(5);

/// The lag that the view may have.
pub(super) const TARGET: &str = "1s";

/// A row that is not seen so long after the last commit counts as lost.
const SEEN_MAX: Duration = Duration::from_secs(30);

pub(super) struct WriteLoad {
    /// Commits per second of all writers.
    pub(super) rate: f64,
    pub(super) window: Duration,
    /// Seed of the schedule.
    pub(super) seed: u64,
}

/// What the view held at a time, from the begin of the commits: rows of each writer.
struct Look {
    at: Duration,
    counts: [usize; WRITERS],
}

/// Measures the lag of a view.
pub(super) async fn measure(
    site: &ScenarioSchema,
    client: &Client,
    load: &WriteLoad,
    findings: &mut Findings,
) -> Result<()> {
    let (table, view) = (site.named("commits"), site.named("commits_of_writers"));
    client
        .batch_execute(&format!(
            "CREATE TABLE {table} (id bigserial PRIMARY KEY, writer int NOT NULL)"
        ))
        .await?;
    let query = format!("SELECT writer, count(*) AS commits FROM {table} GROUP BY writer");
    let new = NewView {
        name: &view,
        query: &query,
        mode: "auto",
        schedule: TARGET,
    };
    site.api.create(&new).await?;
    let begun = Instant::now();
    let mut writers = JoinSet::new();
    for number in 0..WRITERS {
        let (client, table) = (site.client().await?, table.clone());
        let rate = load.rate / WRITERS as f64;
        let seed = load.seed.wrapping_add(number as u64);
        let due = arrivals(Spacing::Poisson, rate, load.window, seed);
        writers.spawn(async move {
            let committed = write(&client, &table, number, begun, due).await?;
            anyhow::Ok((number, committed))
        });
    }
    let (committed, looks) = watch(client, &view, begun, writers).await?;
    add(begun, load, &committed, &looks, findings);
    site.api.refresh(&view).await?;
    findings.compare(site, client, &view, &query).await?;
    site.api.drop(&view).await?;
    Ok(client.batch_execute(&format!("DROP TABLE {table}")).await?)
}

/// Commits rows when they are due, and returns when each was acknowledged.
async fn write(
    client: &Client,
    table: &str,
    number: usize,
    begun: Instant,
    due: impl Iterator<Item = Duration>,
) -> Result<Vec<Duration>> {
    let insert = format!("INSERT INTO {table} (writer) VALUES ($1)");
    let insert = client.prepare(&insert).await?;
    let mut committed = Vec::new();
    for due in due {
        tokio::time::sleep_until((begun + due).into()).await;
        client.execute(&insert, &[&(number as i32)]).await?;
        committed.push(begun.elapsed());
    }
    Ok(committed)
}

/// Reads the view until every row is seen that the writers have committed, or none is to be waited
/// for any more.
async fn watch(
    client: &Client,
    view: &str,
    begun: Instant,
    mut writers: JoinSet<Result<(usize, Vec<Duration>)>>,
) -> Result<([Vec<Duration>; WRITERS], Vec<Look>)> {
    let sql = format!("SELECT writer, commits FROM {view}");
    let sql = client.prepare(&sql).await?;
    let (mut committed, mut looks): ([Vec<Duration>; WRITERS], _) =
        (Default::default(), Vec::new());
    let mut ended = None;
    let mut ticks = tokio::time::interval(LOOK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        while let Some(done) = writers.try_join_next() {
            let (number, times) = done.context("a writer")??;
            committed[number] = times;
        }
        if writers.is_empty() {
            ended.get_or_insert_with(Instant::now);
        }
        let mut counts = [0; WRITERS];
        for row in client.query(&sql, &[]).await? {
            let (writer, rows): (i32, i64) = (row.get(0), row.get(1));
            counts[writer as usize] = rows as usize;
        }
        let at = begun.elapsed();
        looks.push(Look { at, counts });
        let are_seen = (0..WRITERS).all(|writer| counts[writer] >= committed[writer].len());
        if ended.is_some_and(|ended| are_seen || ended.elapsed() > SEEN_MAX) {
            return Ok((committed, looks));
        }
    }
}

/// When each of a writer's rows was seen first; none for those that were not.
fn seen(commits: usize, looks: &[(Duration, usize)]) -> Vec<Option<Duration>> {
    let mut looks = looks.iter().peekable();
    let first = |row: usize| {
        while looks.next_if(|(_, count)| *count <= row).is_some() {}
        looks.peek().map(|(at, _)| *at)
    };
    (0..commits).map(first).collect()
}

fn add(
    begun: Instant,
    load: &WriteLoad,
    committed: &[Vec<Duration>; WRITERS],
    looks: &[Look],
    findings: &mut Findings,
) {
    let mut lags = Vec::new();
    let (mut all, mut lost) = (0, 0);
    for (writer, committed) in committed.iter().enumerate() {
        let looks: Vec<_> = looks
            .iter()
            .map(|look| (look.at, look.counts[writer]))
            .collect();
        all += committed.len();
        for (committed, seen) in committed.iter().zip(seen(committed.len(), &looks)) {
            match seen {
                // A commit may be seen before it is acknowledged.
                Some(seen) => lags.push((seen.max(*committed), *committed)),
                None => lost += 1,
            }
        }
    }
    // As seconds of a recorder go by.
    lags.sort_unstable();
    for (seen, committed) in lags {
        findings.took("lag", begun + committed, seen - committed);
    }
    for _ in 0..lost {
        findings.failed(
            "a row was not seen in the view",
            findings.at(begun + load.window),
        );
    }
    let last = committed.iter().filter_map(|times| times.last()).max();
    let seconds = last.map_or(0.0, Duration::as_secs_f64);
    let rate = scalar(
        "1/s",
        Better::Neither,
        all as f64 / seconds.max(1e-9),
        all as u64,
    );
    findings.metric("lag_commits_per_second", rate);
}

#[cfg(test)]
mod tests;
