//! `egret queue tasks`, `get`, `wait`, `cancel`: tasks looked at.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use egret_base::Timestamp;
use egret_base::settings::ConfigDuration;
use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::payload::{Content, RawFields, unexpected};
use super::work::ReconnectBackoff;
use crate::api::Api;
use crate::cli;
use crate::failure::Failure;
use crate::output::{self, Output, format_fields, listing, printable};

/// The longest that one request waits.
const LONG_POLL_MAX: Duration = Duration::from_secs(20);

/// The most that a page of a list holds.
const PAGE_MAX: u64 = 1_000;

#[derive(Debug, Deserialize)]
struct Task {
    id: String,
    queue: String,
    state: String,
    priority: u8,
    ordering_key: Option<String>,
    created_at: Timestamp,
    run_at: Option<Timestamp>,
    lease_until: Option<Timestamp>,
    ended_at: Option<Timestamp>,
    attempts: u32,
    max_attempts: u32,
    history: Vec<Attempt>,
    error: Option<String>,
    tags: Vec<String>,
    metadata: BTreeMap<String, String>,
    callback_url: Option<String>,
    after: Vec<String>,
    unique_key: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Attempt {
    number: u32,
    worker: Option<String>,
    started_at: Timestamp,
    ended_at: Option<Timestamp>,
    outcome: Option<String>,
    error: Option<String>,
}

#[derive(Debug, Deserialize)]
struct TaskPage {
    items: Vec<Json>,
    next_cursor: Option<String>,
    #[serde(default)]
    unavailable_partitions: BTreeSet<u32>,
}

pub(super) async fn list(
    arguments: &cli::Listing,
    api: &Api,
    output: Output,
) -> Result<(), Failure> {
    let path = ["queues", &arguments.queue, "tasks"];
    let filters = [("state", arguments.state.as_deref()), ("tag", arguments.tag.as_deref())];
    let (limit, cursor) = (arguments.limit, arguments.cursor.clone());
    let answer = read_pages(&path, &filters, limit, cursor, api, output).await?;
    output.print_answer(&answer, |page: TaskPage| table(&page.items))
}

/// Says that what partitions hold is missing from an answer because they do not work.
pub(super) fn remark_unavailable(partitions: &BTreeSet<u32>, output: Output) {
    if partitions.is_empty() || output.is_json() {
        return;
    }
    let partitions: Vec<String> = partitions.iter().map(u32::to_string).collect();
    output.print_remark(&format!(
        "tasks of failed partitions are missing here: {} (`egret status` shows why they failed)",
        partitions.join(", ")
    ));
}

/// Reads pages of a list until there are `limit` items, from a cursor on. Says how to go on where
/// there are more, and which partitions do not answer.
pub(super) async fn read_pages(
    path: &[&str],
    filters: &[(&str, Option<&str>)],
    limit: u64,
    mut cursor: Option<String>,
    api: &Api,
    output: Output,
) -> Result<Json, Failure> {
    let mut items = Vec::new();
    let mut unavailable = BTreeSet::new();
    let mut remaining = limit;
    // Pages may be smaller than what the user wants to see at once.
    while remaining > 0 {
        let limit = remaining.min(PAGE_MAX).to_string();
        let mut query = vec![("limit", limit.as_str())];
        for (name, value) in filters.iter().copied().chain([("cursor", cursor.as_deref())]) {
            query.extend(value.map(|value| (name, value)));
        }
        let page: TaskPage = output::decode(&api.get(path, &query).await?)?;
        remaining = remaining.saturating_sub(page.items.len() as u64);
        items.extend(page.items);
        unavailable.extend(page.unavailable_partitions);
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    if !output.is_json()
        && let Some(cursor) = &cursor
    {
        output.print_remark(&format!("more: --cursor {cursor}"));
    }
    remark_unavailable(&unavailable, output);
    let mut answer = json!({"items": items, "next_cursor": cursor});
    if !unavailable.is_empty() {
        answer["unavailable_partitions"] = json!(unavailable);
    }
    Ok(answer)
}

fn table(items: &[Json]) -> String {
    let tasks = items.iter().filter_map(|item| Task::deserialize(item).ok());
    let rows = tasks.map(|task| {
        vec![
            task.id,
            task.state,
            format!("{}/{}", task.attempts, task.max_attempts),
            task.priority.to_string(),
            task.created_at.to_string(),
            task.ordering_key.unwrap_or_default(),
            task.tags.join(", "),
            task.error.as_deref().map(first_line).unwrap_or_default(),
        ]
    });
    let head = ["id", "state", "attempts", "priority", "created", "key", "tags", "error"];
    listing(&head, rows)
}

/// Enough of a text to recognise it.
pub(super) fn first_line(text: &str) -> String {
    const CHARS_MAX: usize = 60;
    let line = text.lines().next().unwrap_or_default();
    match line.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

pub(super) async fn get(id: &str, api: &Api, output: Output) -> Result<(), Failure> {
    let bytes = api.get_text(&["tasks", id], &[]).await?;
    let answer: Json = serde_json::from_slice(&bytes).map_err(|error| unexpected(&error))?;
    let payload = RawFields::parse(&bytes)?.payload()?;
    let result = RawFields::parse(&bytes)?.result()?;
    output.print_answer(&answer, |task: Task| describe(task, &payload, &result))
}

fn describe(task: Task, payload: &Content, result: &Content) -> String {
    let time = |time: Option<Timestamp>| time.map(|time| time.to_string()).unwrap_or_default();
    let pairs: Vec<String> =
        task.metadata.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let summary = format_fields(&[
        ("task", task.id),
        ("queue", task.queue),
        ("state", task.state),
        ("attempts", format!("{} of {}", task.attempts, task.max_attempts)),
        ("priority", task.priority.to_string()),
        ("ordering key", task.ordering_key.unwrap_or_default()),
        ("unique key", task.unique_key.unwrap_or_default()),
        ("created", task.created_at.to_string()),
        ("runs at", time(task.run_at)),
        ("lease until", time(task.lease_until)),
        ("ended", time(task.ended_at)),
        ("waits for", task.after.join(", ")),
        ("tags", task.tags.join(", ")),
        ("metadata", pairs.join(", ")),
        ("callback", task.callback_url.unwrap_or_default()),
        ("payload", printable_content(payload)),
        ("result", printable_content(result)),
        ("error", task.error.unwrap_or_default()),
    ]);
    if task.history.is_empty() {
        return summary;
    }
    let rows = task.history.into_iter().map(|attempt| {
        let outcome = attempt.outcome.unwrap_or_else(|| "running".to_owned());
        let elapsed = attempt.ended_at.map(|ended| {
            let elapsed_ms = ended.since(attempt.started_at).as_millis();
            output::format_duration(u64::try_from(elapsed_ms).unwrap_or(u64::MAX))
        });
        vec![
            attempt.number.to_string(),
            attempt.worker.unwrap_or_default(),
            attempt.started_at.to_string(),
            elapsed.unwrap_or_default(),
            outcome,
            attempt.error.as_deref().map(first_line).unwrap_or_default(),
        ]
    });
    let head = ["attempt", "worker", "started", "took", "outcome", "error"];
    format!("{summary}\n{}", listing(&head, rows))
}

/// A payload or result for people: text where it is that.
fn printable_content(content: &Content) -> String {
    let bytes = content.bytes();
    match std::str::from_utf8(bytes) {
        Ok(text) => printable(text.trim_end()),
        Err(_) => format!("{} bytes", bytes.len()),
    }
}

/// What of a task says how it ended.
#[derive(Debug, Deserialize)]
struct End {
    state: String,
    attempts: u32,
    error: Option<String>,
}

pub(super) async fn wait(
    id: &str,
    timeout: Option<ConfigDuration>,
    api: &Api,
    output: Output,
) -> Result<(), Failure> {
    let deadline = timeout.map(|span| Instant::now() + span.duration());
    let remaining = || {
        deadline.map_or(LONG_POLL_MAX, |until| {
            LONG_POLL_MAX.min(until.saturating_duration_since(Instant::now()))
        })
    };
    let mut backoff = ReconnectBackoff::default();
    // The first request tells at once whether there is such a task on a server that answers.
    let mut wait_ms = "0".to_owned();
    let mut has_responded = false;
    loop {
        let (path, query) = (["tasks", id, "wait"], [("wait_ms", wait_ms.as_str())]);
        let request = api.get_text(&path, &query);
        let bytes = match output.wait_with_spinner("waiting", request).await {
            Ok(bytes) => bytes,
            Err(failure) if failure.retryable && has_responded && !remaining().is_zero() => {
                output.print_remark(&format!("{failure}: retrying"));
                backoff.wait().await;
                continue;
            }
            Err(failure) => return Err(failure),
        };
        (has_responded, backoff) = (true, ReconnectBackoff::default());
        wait_ms = remaining().as_millis().to_string();
        let end: End = serde_json::from_slice(&bytes).map_err(|error| unexpected(&error))?;
        match end.state.as_str() {
            "completed" => return print_result(&bytes, output),
            "dead" | "cancelled" => {
                if output.is_json() {
                    print_result(&bytes, output)?;
                }
                return Err(end_failure(id, &end));
            }
            state if deadline.is_some_and(|until| Instant::now() >= until) => {
                let message = format!("task {id} did not end in time: it is {state}");
                return Err(Failure::failed("wait_timeout", message));
            }
            _ => {}
        }
    }
}

fn end_failure(id: &str, end: &End) -> Failure {
    let error = end.error.as_deref().unwrap_or("no reason given");
    match end.state.as_str() {
        "dead" => Failure::failed(
            "task_dead",
            format!("task {id} is dead after {} attempts: {error}", end.attempts),
        )
        .with_hint(format!("`egret queue get {id}` shows its attempts")),
        _ => Failure::failed("task_cancelled", format!("task {id} was cancelled")),
    }
}

/// A task's result as it is; with `--json` the task.
fn print_result(task: &[u8], output: Output) -> Result<(), Failure> {
    if output.is_json() {
        let task: Json = serde_json::from_slice(task).map_err(|error| unexpected(&error))?;
        return output.print_json(&task);
    }
    match RawFields::parse(task)?.result()? {
        Content::Empty => Ok(()),
        content => output.print_bytes(content.bytes()),
    }
}

/// An operation on single tasks.
#[derive(Clone, Copy, Debug)]
pub(super) enum TaskAction {
    Cancel,
    Requeue,
    Delete,
}

impl TaskAction {
    fn past_participle(self) -> &'static str {
        match self {
            TaskAction::Cancel => "cancelled",
            TaskAction::Requeue => "requeued",
            TaskAction::Delete => "deleted",
        }
    }
}

/// Applies the operation to several tasks; one that is refused does not stop the others.
pub(super) async fn apply_to_each(
    action: TaskAction,
    ids: &[String],
    api: &Api,
    output: Output,
) -> Result<(), Failure> {
    let done = action.past_participle();
    let (mut items, mut last_refusal) = (Vec::new(), None);
    for id in ids {
        let answer = match action {
            TaskAction::Cancel => api.post(&["tasks", id, "cancel"], json!({})).await,
            TaskAction::Requeue => api.post(&["tasks", id, "requeue"], json!({})).await,
            TaskAction::Delete => api.delete(&["tasks", id], &[]).await,
        };
        match answer {
            Ok(_) => {
                items.push(json!({"id": id, done: true}));
                if !output.is_json() {
                    output.print_text(&format!("task {id} is {done}"))?;
                }
            }
            Err(failure) if ids.len() == 1 || failure.retryable => return Err(failure),
            Err(failure) => {
                items.push(json!({"id": id, done: false, "error": failure.to_json()["error"]}));
                output.print_remark(&format!("task {id}: {failure}"));
                last_refusal = Some(failure);
            }
        }
    }
    if output.is_json() {
        output.print_json(&json!({"items": items}))?;
    }
    match last_refusal {
        None => Ok(()),
        Some(last) => Err(Failure::failed(
            &last.code,
            format!("not all tasks are {done}; the last refusal: {last}"),
        )),
    }
}
