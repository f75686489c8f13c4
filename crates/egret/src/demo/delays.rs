//! The demo's queue: a task for each flight that came very late on one day, all enqueued by one
//! statement inside PostgreSQL, and a worker that finds out about each and works as any program
//! would, through the HTTP door.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use egret_postgres::pool;
use egret_postgres::tokio_postgres::{Client, Row};
use serde::Deserialize;
use serde_json::{Value as Json, json};

use crate::api::Api;
use crate::failure::Failure;

pub(super) const QUEUE: &str = "delays";

/// The day with most of them in 2013.
pub(super) const ENQUEUE: &str = include_str!("sql/enqueue.sql");

/// What is known of a flight: its plane's age and the weather it left in.
const FLIGHT: &str = include_str!("sql/flight.sql");

/// Tasks claimed at a time.
const CLAIM_MAX: u32 = 100;

/// How long the worker waits for a task that must come.
const TASK_TIMEOUT: Duration = Duration::from_secs(30);

/// Results of the demo's tasks.
pub(super) struct DelaysResult {
    /// How long the statement took that enqueued them, in milliseconds; `None` when an earlier
    /// start of the demo did.
    pub enqueue_ms: Option<f64>,
    /// Tasks that this start worked on.
    pub tasks: usize,
    /// How long that took, in milliseconds.
    pub work_ms: f64,
    /// One of the tasks with its result.
    pub sample: TaskSample,
}

#[derive(Deserialize)]
pub(super) struct TaskSample {
    pub id: String,
    /// Its result, as JSON.
    #[serde(default)]
    pub result: Json,
}

#[derive(Deserialize)]
struct ItemList<T> {
    items: Vec<T>,
}

#[derive(Deserialize)]
struct QueueSummary {
    counts: TaskCounts,
}

#[derive(Deserialize)]
struct TaskCounts {
    ready: usize,
    leased: usize,
    completed: usize,
}

#[derive(Deserialize)]
struct DemoLease {
    lease: String,
    payload: Payload,
}

#[derive(Deserialize)]
struct Payload {
    flight_id: i64,
}

#[derive(Deserialize)]
struct ReportOutcome {
    error: Option<Json>,
}

/// Has the tasks made, unless an earlier start has, and works on what there is to do.
pub(super) async fn process_delays(
    api: &Api,
    source: &egret_postgres::tokio_postgres::Config,
    database: &str,
) -> anyhow::Result<DelaysResult> {
    let client = pool::connect(source).await?;
    check_response(api.put(&["queues", QUEUE], json!({})).await)?;
    check_response(api.post(&["outboxes"], json!({"database": database})).await)?;
    let summary: QueueSummary = decode_response(api.get(&["queues", QUEUE], &[]).await)?;
    let counts = summary.counts;
    let started = Instant::now();
    let (expected, enqueue_ms) = match counts.ready + counts.leased + counts.completed {
        0 => {
            let tasks: i64 = client.query_one(ENQUEUE, &[]).await?.get(0);
            (usize::try_from(tasks)?, Some(milliseconds(started)))
        }
        _ => (counts.ready, None),
    };
    let started = Instant::now();
    let mut tasks = 0;
    while tasks < expected {
        if started.elapsed() > TASK_TIMEOUT {
            bail!(
                "only {tasks} of {expected} tasks of queue `{QUEUE}` arrived: `egret queue \
                 outbox status` may say why"
            );
        }
        tasks += complete_batch(api, &client).await?;
    }
    let list = [("state", "completed"), ("limit", "1")];
    let list: ItemList<TaskSample> =
        decode_response(api.get(&["queues", QUEUE, "tasks"], &list).await)?;
    let first = list.items.first().context("no task was completed")?;
    Ok(DelaysResult {
        enqueue_ms,
        tasks,
        work_ms: milliseconds(started),
        sample: decode_response(api.get(&["tasks", &first.id], &[]).await)?,
    })
}

/// Claims some tasks, does them, and says so. Returns how many.
async fn complete_batch(api: &Api, client: &Client) -> anyhow::Result<usize> {
    let request = json!({"max": CLAIM_MAX, "worker": "demo", "wait_ms": 1_000});
    let claimed = api.post(&["queues", QUEUE, "claim"], request).await;
    let claimed: ItemList<DemoLease> = decode_response(claimed)?;
    if claimed.items.is_empty() {
        return Ok(0);
    }
    let mut reports = Vec::with_capacity(claimed.items.len());
    for task in &claimed.items {
        let flight = client.query_one(FLIGHT, &[&task.payload.flight_id]).await?;
        reports.push(json!({"complete": {"lease": task.lease, "result": flight_report(&flight)}}));
    }
    let outcomes: ItemList<ReportOutcome> =
        decode_response(api.post(&["reports"], reports.into()).await)?;
    if let Some(error) = outcomes.items.iter().find_map(|outcome| outcome.error.as_ref()) {
        bail!("cannot complete a task: {error}");
    }
    Ok(claimed.items.len())
}

/// What the worker makes of a flight.
fn flight_report(flight: &Row) -> Json {
    let minutes: i16 = flight.get("arr_delay");
    let miles: i16 = flight.get("distance");
    let per_100_miles = f64::from(minutes) * 100.0 / f64::from(miles);
    let built: Option<i16> = flight.get("built");
    json!({
        "flight": flight.get::<_, String>("flight"),
        "route": flight.get::<_, String>("route"),
        "minutes_late": minutes,
        "minutes_late_per_100_miles": (per_100_miles * 10.0).round() / 10.0,
        "plane_age_years": built.map(|year| 2013 - year),
        "wind_miles_per_hour": flight.get::<_, Option<f32>>("wind_speed").map(tenths),
        "visibility_miles": flight.get::<_, Option<f32>>("visib").map(tenths),
        "rain_inches": flight.get::<_, Option<f32>>("precip").map(|inches| f64::from((inches * 100.0).round()) / 100.0),
    })
}

fn tenths(value: f32) -> f64 {
    f64::from((value * 10.0).round()) / 10.0
}

fn check_response(answer: Result<Json, Failure>) -> anyhow::Result<Json> {
    answer.map_err(|failure| anyhow::anyhow!("the demo's own server refused: {}", failure.message))
}

pub(super) fn decode_response<T: for<'de> Deserialize<'de>>(
    answer: Result<Json, Failure>,
) -> anyhow::Result<T> {
    Ok(serde_json::from_value(check_response(answer)?)?)
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}
