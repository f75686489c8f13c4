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
use crate::schedule::{Spacing, arrival_schedule};

pub(super) const WRITERS: usize = 8;

/// How often the view is read: a lag is known as exactly as that.
const READ_INTERVAL: Duration = Duration::from_millis(5);

/// The lag that the view may have.
pub(super) const LAG_TARGET: &str = "1s";

/// A row that is not seen so long after the last commit counts as lost.
const VISIBILITY_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) struct WriteLoad {
    /// Commits per second of all writers.
    pub(super) rate: f64,
    pub(super) window: Duration,
    /// Seed of the schedule.
    pub(super) seed: u64,
}

/// What the view held at a time, from the begin of the commits: rows of each writer.
struct ViewReading {
    at: Duration,
    counts: [usize; WRITERS],
}

/// Measures the lag of a view.
pub(super) async fn measure(
    schema: &ScenarioSchema,
    client: &Client,
    load: &WriteLoad,
    findings: &mut Findings,
) -> Result<()> {
    let (table, view) =
        (schema.qualified_name("commits"), schema.qualified_name("commits_of_writers"));
    client
        .batch_execute(&format!(
            "CREATE TABLE {table} (id bigserial PRIMARY KEY, writer int NOT NULL)"
        ))
        .await?;
    let query = format!("SELECT writer, count(*) AS commits FROM {table} GROUP BY writer");
    let new = NewView { name: &view, query: &query, mode: "auto", schedule: LAG_TARGET };
    schema.api.create(&new).await?;
    let begun = Instant::now();
    let mut writers = JoinSet::new();
    for number in 0..WRITERS {
        let (client, table) = (schema.connect().await?, table.clone());
        let rate = load.rate / WRITERS as f64;
        let seed = load.seed.wrapping_add(number as u64);
        let due = arrival_schedule(Spacing::Poisson, rate, load.window, seed);
        writers.spawn(async move {
            let commit_times = write_rows(&client, &table, number, begun, due).await?;
            anyhow::Ok((number, commit_times))
        });
    }
    let (commits_by_writer, readings) = watch_view(client, &view, begun, writers).await?;
    add_lags(begun, load, &commits_by_writer, &readings, findings);
    schema.api.refresh(&view).await?;
    findings.compare_view(schema, client, &view, &query).await?;
    schema.api.drop(&view).await?;
    Ok(client.batch_execute(&format!("DROP TABLE {table}")).await?)
}

/// Commits rows when they are due, and returns when each was acknowledged.
async fn write_rows(
    client: &Client,
    table: &str,
    number: usize,
    begun: Instant,
    due_times: impl Iterator<Item = Duration>,
) -> Result<Vec<Duration>> {
    let insert = format!("INSERT INTO {table} (writer) VALUES ($1)");
    let insert = client.prepare(&insert).await?;
    let mut commit_times = Vec::new();
    for due in due_times {
        tokio::time::sleep_until((begun + due).into()).await;
        client.execute(&insert, &[&(number as i32)]).await?;
        commit_times.push(begun.elapsed());
    }
    Ok(commit_times)
}

/// Reads the view until every row is seen that the writers have committed, or none is to be waited
/// for any more.
async fn watch_view(
    client: &Client,
    view: &str,
    begun: Instant,
    mut writers: JoinSet<Result<(usize, Vec<Duration>)>>,
) -> Result<([Vec<Duration>; WRITERS], Vec<ViewReading>)> {
    let sql = format!("SELECT writer, commits FROM {view}");
    let sql = client.prepare(&sql).await?;
    let (mut commits_by_writer, mut readings): ([Vec<Duration>; WRITERS], _) =
        (Default::default(), Vec::new());
    let mut writers_ended = None;
    let mut ticks = tokio::time::interval(READ_INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        while let Some(result) = writers.try_join_next() {
            let (number, times) = result.context("a writer")??;
            commits_by_writer[number] = times;
        }
        if writers.is_empty() {
            writers_ended.get_or_insert_with(Instant::now);
        }
        let mut counts = [0; WRITERS];
        for row in client.query(&sql, &[]).await? {
            let (writer, rows): (i32, i64) = (row.get(0), row.get(1));
            counts[writer as usize] = rows as usize;
        }
        let at = begun.elapsed();
        readings.push(ViewReading { at, counts });
        let all_visible =
            (0..WRITERS).all(|writer| counts[writer] >= commits_by_writer[writer].len());
        if writers_ended.is_some_and(|ended| all_visible || ended.elapsed() > VISIBILITY_TIMEOUT) {
            return Ok((commits_by_writer, readings));
        }
    }
}

/// When each of a writer's rows was seen first; none for those that were not.
fn first_seen_times(commits: usize, readings: &[(Duration, usize)]) -> Vec<Option<Duration>> {
    let mut looks = readings.iter().peekable();
    let first_seen = |row: usize| {
        while looks.next_if(|(_, count)| *count <= row).is_some() {}
        looks.peek().map(|(at, _)| *at)
    };
    (0..commits).map(first_seen).collect()
}

fn add_lags(
    begun: Instant,
    load: &WriteLoad,
    commits_by_writer: &[Vec<Duration>; WRITERS],
    readings: &[ViewReading],
    findings: &mut Findings,
) {
    let mut lags = Vec::new();
    let (mut committed_count, mut lost_count) = (0, 0);
    for (writer, commit_times) in commits_by_writer.iter().enumerate() {
        let writer_readings: Vec<_> =
            readings.iter().map(|look| (look.at, look.counts[writer])).collect();
        committed_count += commit_times.len();
        for (committed_at, seen_at) in
            commit_times.iter().zip(first_seen_times(commit_times.len(), &writer_readings))
        {
            match seen_at {
                // A commit may be seen before it is acknowledged.
                Some(seen) => lags.push((seen.max(*committed_at), *committed_at)),
                None => lost_count += 1,
            }
        }
    }
    // As seconds of a recorder go by.
    lags.sort_unstable();
    for (seen, committed) in lags {
        findings.record("lag", begun + committed, seen - committed);
    }
    for _ in 0..lost_count {
        findings
            .record_failure("a row was not seen in the view", findings.offset(begun + load.window));
    }
    let last = commits_by_writer.iter().filter_map(|times| times.last()).max();
    let seconds = last.map_or(0.0, Duration::as_secs_f64);
    let rate = scalar(
        "1/s",
        Better::Neither,
        committed_count as f64 / seconds.max(1e-9),
        committed_count as u64,
    );
    findings.add_metric("lag_commits_per_second", rate);
}

#[cfg(test)]
mod tests;
