//! `egret queue create`, `list`, `show`, `pause`, `resume`, `drain`, `purge`, `delete`.

use std::collections::{BTreeMap, BTreeSet};

use egret_base::Timestamp;
use egret_queue::model::{QueueSettings, Retention as Kept, TaskState};
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};

use super::payload::retry_object;
use super::tasks::remark_unavailable;
use crate::api::Api;
use crate::cli;
use crate::commands::plural::{is_or_are, number_of};
use crate::failure::Failure;
use crate::output::{self, Output, format_duration, format_fields, listing};
use crate::responses::Items;

#[derive(Debug, Deserialize)]
struct QueueDetails {
    name: String,
    paused: bool,
    draining: bool,
    created_at: Timestamp,
    counts: BTreeMap<String, u64>,
    oldest_ready_ms: u64,
    settings: Settings,
    #[serde(default)]
    unavailable_partitions: BTreeSet<u32>,
}

#[derive(Debug, Deserialize)]
struct Settings {
    max_attempts: u32,
    retry: RetrySettings,
    lease_ms: u64,
    timeout_ms: u64,
    concurrency: u64,
    key_concurrency: u64,
    rate_per_second: f64,
    rate_burst: u64,
    completed: Retention,
    dead: Retention,
    cancelled: Retention,
    unique_window_ms: u64,
    aging_ms: u64,
}

#[derive(Debug, Deserialize)]
struct RetrySettings {
    backoff: String,
    base_ms: u64,
    max_ms: u64,
    jitter: String,
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct Retention {
    age_ms: u64,
    count: u64,
}

pub(super) async fn create(
    create: cli::CreateQueue,
    api: &Api,
    output: Output,
) -> Result<(), Failure> {
    let path = ["queues", create.queue.as_str()];
    let existing = match api.get(&path, &[]).await {
        Ok(queue) => Some(queue),
        Err(failure) if failure.code == "queue_not_found" => None,
        Err(failure) => return Err(failure),
    };
    let body = changed_settings(&create, existing.as_ref());
    let answer = api.put(&path, body).await?;
    let outcome = if existing.is_some() { "changed" } else { "created" };
    output.print_answer(&answer, |queue: QueueDetails| {
        format!("queue {} is {outcome}\n\n{}", queue.name, describe(&queue))
    })
}

/// What the options change. Settings of several parts are sent whole: what is not given of them is
/// as before.
fn changed_settings(create: &cli::CreateQueue, existing: Option<&Json>) -> Json {
    let mut body = Map::new();
    let mut set = |name: &str, value: Option<Json>| {
        if let Some(value) = value {
            body.insert(name.to_owned(), value);
        }
    };
    let ms = |span: Option<egret_base::settings::ConfigDuration>| span.map(|span| json!(span.0));
    set("max_attempts", create.max_attempts.map(|it| json!(it)));
    set("lease_ms", ms(create.lease));
    set("timeout_ms", ms(create.timeout));
    set("concurrency", create.concurrency.map(|it| json!(it)));
    set("key_concurrency", create.key_concurrency.map(|it| json!(it)));
    set("rate_per_second", create.rate.map(|it| json!(it)));
    set("rate_burst", create.rate_burst.map(|it| json!(it)));
    set("unique_window_ms", ms(create.unique_window));
    set("aging_ms", ms(create.aging));
    let existing_setting = |name: &str| existing.map(|queue| &queue["settings"][name]);
    set("retry", retry_object(&create.retry, existing_setting("retry")));
    let defaults = QueueSettings::default();
    let retentions = [
        ("completed", create.keep_completed, create.keep_completed_count, defaults.completed),
        ("dead", create.keep_dead, create.keep_dead_count, defaults.dead),
        ("cancelled", create.keep_cancelled, create.keep_cancelled_count, defaults.cancelled),
    ];
    for (name, age, count, default) in retentions {
        if age.is_none() && count.is_none() {
            continue;
        }
        let previous =
            existing_setting(name).and_then(|retention| Retention::deserialize(retention).ok());
        let Kept { age_ms, count: previous_count } =
            previous.map_or(default, |kept| Kept { age_ms: kept.age_ms, count: kept.count });
        let age_ms = age.map_or(age_ms, |span| span.0);
        let kept = json!({"age_ms": age_ms, "count": count.unwrap_or(previous_count)});
        set(name, Some(kept));
    }
    Json::Object(body)
}

pub(super) async fn list(api: &Api, output: Output) -> Result<(), Failure> {
    let answer = api.get(&["queues"], &[]).await?;
    output.print_answer(&answer, |list: Items<QueueDetails>| {
        let unavailable = list.items.iter().flat_map(|queue| &queue.unavailable_partitions);
        remark_unavailable(&unavailable.copied().collect(), output);
        let rows = list.items.iter().map(|queue| {
            let count = |state: TaskState| number(queue.counts.get(state.as_str()));
            vec![
                queue.name.clone(),
                flow_of(queue).to_owned(),
                count(TaskState::Waiting),
                count(TaskState::Delayed),
                count(TaskState::Ready),
                count(TaskState::Leased),
                count(TaskState::Completed),
                count(TaskState::Dead),
                count(TaskState::Cancelled),
                match queue.oldest_ready_ms {
                    0 => String::new(),
                    ms => format_duration(ms),
                },
            ]
        });
        let head = [
            "queue",
            "flow",
            "waiting",
            "delayed",
            "ready",
            "leased",
            "completed",
            "dead",
            "cancelled",
            "oldest",
        ];
        listing(&head, rows)
    })
}

pub(super) async fn show(name: &str, api: &Api, output: Output) -> Result<(), Failure> {
    let answer = api.get(&["queues", name], &[]).await?;
    output.print_answer(&answer, |queue: QueueDetails| {
        remark_unavailable(&queue.unavailable_partitions, output);
        describe(&queue)
    })
}

pub(super) async fn set_flow(
    name: &str,
    action: &str,
    api: &Api,
    output: Output,
) -> Result<(), Failure> {
    let answer = api.post(&["queues", name, action], json!({})).await?;
    output.print_answer(&answer, |queue: QueueDetails| {
        format!("queue {} is {}", queue.name, flow_of(&queue))
    })
}

#[derive(Debug, Deserialize)]
struct CallbackKey {
    key: String,
}

pub(super) async fn callback_key(api: &Api, output: Output) -> Result<(), Failure> {
    let answer = api.get(&["callback-key"], &[]).await?;
    output.print_answer(&answer, |answer: CallbackKey| answer.key)
}

pub(super) async fn purge(
    name: &str,
    states: &[String],
    yes: bool,
    api: &Api,
    output: Output,
) -> Result<(), Failure> {
    if !yes {
        return preview_purge(name, states, api, output).await;
    }
    let answer = api.post(&["queues", name, "purge"], json!({"states": states})).await?;
    output.print_answer(&answer, |result: DeleteResult| {
        let tasks = number_of(result.deleted, "task");
        format!("{tasks} of {name} {} deleted", is_or_are(result.deleted))
    })
}

#[derive(Debug, Deserialize)]
struct DeleteResult {
    deleted: u64,
}

/// Says what a purge would delete.
pub(super) async fn preview_purge(
    name: &str,
    states: &[String],
    api: &Api,
    output: Output,
) -> Result<(), Failure> {
    let answer = api.get(&["queues", name], &[]).await?;
    let queue: QueueDetails = output::decode(&answer)?;
    let is_selected = |state: &String| match states {
        [] => state != TaskState::Leased.as_str(),
        states => states.contains(state),
    };
    let counts = queue.counts.into_iter();
    let deletable: BTreeMap<String, u64> =
        counts.filter(|(state, count)| is_selected(state) && *count > 0).collect();
    let answer = json!({"deleted": 0, "would_delete": deletable});
    output.print_answer(&answer, |_: Json| {
        if deletable.is_empty() {
            return format!("there is nothing to delete in {name}");
        }
        let counts = deletable
            .iter()
            .map(|(state, count)| format!("{count} {state}"))
            .collect::<Vec<String>>()
            .join(", ");
        format!("nothing is deleted: --yes would delete {counts} of {name}")
    })
}

pub(super) async fn delete(
    name: &str,
    force: bool,
    api: &Api,
    output: Output,
) -> Result<(), Failure> {
    let query: &[(&str, &str)] = if force { &[("force", "true")] } else { &[] };
    let deleted = api.delete(&["queues", name], query).await;
    deleted.map_err(|failure| match failure.code.as_str() {
        "queue_in_use" => failure.with_hint("--force deletes its tasks with it"),
        _ => failure,
    })?;
    let answer = json!({"queue": name, "deleted": true});
    output.print_answer(&answer, |_: Json| format!("queue {name} is deleted"))
}

fn number(count: Option<&u64>) -> String {
    count.copied().unwrap_or_default().to_string()
}

fn flow_of(queue: &QueueDetails) -> &'static str {
    match (queue.paused, queue.draining) {
        (false, false) => "open",
        (true, false) => "paused",
        (false, true) => "draining",
        (true, true) => "paused, draining",
    }
}

fn describe(queue: &QueueDetails) -> String {
    let settings = &queue.settings;
    let counts = format_fields(&[
        ("queue", queue.name.clone()),
        ("flow", flow_of(queue).to_owned()),
        ("created", queue.created_at.to_string()),
        ("tasks", describe_counts(&queue.counts)),
        (
            "oldest ready",
            match queue.oldest_ready_ms {
                0 => String::new(),
                ms => format_duration(ms),
            },
        ),
    ]);
    let retry = &settings.retry;
    let or_unlimited = |number: u64| match number {
        0 => "any number".to_owned(),
        number => number.to_string(),
    };
    let rate = match (settings.rate_per_second, settings.rate_burst) {
        (0.0, _) => "any".to_owned(),
        (rate, 0) => format!("{rate} a second"),
        (rate, burst) => format!("{rate} a second, {burst} at once after a pause"),
    };
    let settings = format_fields(&[
        ("max attempts", settings.max_attempts.to_string()),
        (
            "retry",
            format!(
                "{} from {} up to {}, jitter {}",
                retry.backoff,
                format_duration(retry.base_ms),
                format_duration(retry.max_ms),
                retry.jitter
            ),
        ),
        ("lease", format_duration(settings.lease_ms)),
        (
            "timeout",
            match settings.timeout_ms {
                0 => "none".to_owned(),
                ms => format_duration(ms),
            },
        ),
        ("concurrency", or_unlimited(settings.concurrency)),
        ("per key", or_unlimited(settings.key_concurrency)),
        ("rate", rate),
        ("keep completed", describe_retention(settings.completed)),
        ("keep dead", describe_retention(settings.dead)),
        ("keep cancelled", describe_retention(settings.cancelled)),
        ("unique window", format_duration(settings.unique_window_ms)),
        (
            "aging",
            match settings.aging_ms {
                0 => "never".to_owned(),
                ms => format!("one priority higher every {}", format_duration(ms)),
            },
        ),
    ]);
    format!("{counts}\n{settings}")
}

fn describe_counts(counts: &BTreeMap<String, u64>) -> String {
    let states = TaskState::ALL.iter().map(|state| state.as_str());
    let parts: Vec<String> = states
        .filter_map(|state| {
            let count = counts.get(state).filter(|count| **count > 0)?;
            Some(format!("{count} {state}"))
        })
        .collect();
    match parts.as_slice() {
        [] => "none".to_owned(),
        met => met.join(", "),
    }
}

fn describe_retention(retention: Retention) -> String {
    match (retention.age_ms, retention.count) {
        (0, 0) => "for ever".to_owned(),
        (0, count) => format!("the last {count}"),
        (age, 0) => format_duration(age),
        (age, count) => format!("{}, the last {count}", format_duration(age)),
    }
}
