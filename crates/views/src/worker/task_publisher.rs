//! Makes a task of every change set of views that have a queue.
//!
//! The position is stored after the queue has accepted the tasks. After a crash in between they are
//! enqueued again with the same keys, by which the queue detects the duplicates.

use std::sync::Arc;

use egret_base::condition::ConditionSet;
use egret_base::{Condition, TaskReceipt, TaskRejection, TaskRequest};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::watch;

use super::change_notifier::POLL_INTERVAL;
use super::context::TaskPublisher;
use super::refresh_worker::ViewRefreshWorker;
use super::session::Session;
use crate::error::ViewsError;
use crate::metrics::OutcomeLabels;
use crate::model::ChangePage;
use crate::store::follow::{self, FollowPosition, NextChanges, TaskFeed};

/// Change sets of a view in one batch.
const BATCH_SETS_MAX: usize = 100;

/// Bytes of payloads after which a batch ends, whatever `views.change_task_size_max` is.
const BATCH_BYTES_MAX: usize = 4 << 20;

/// Publishes the change sets of a database until the engine stops.
pub async fn run(worker: Arc<ViewRefreshWorker>, mut stopping: watch::Receiver<bool>) {
    let Some(tasks) = worker.context.task_publisher.clone() else {
        return;
    };
    let mut changes = worker.notifier.subscribe();
    let database = worker.database.as_str();
    let publish_condition = Condition::new("views_change_tasks_failing", database);
    let refusal_conditions = ConditionSet::new("views_change_tasks_refused");
    while !*stopping.borrow() {
        changes.borrow_and_update();
        match publish_all(&worker, &tasks, &refusal_conditions).await {
            Ok(()) => publish_condition.recover("changes of views are enqueued as tasks again"),
            Err(error) => {
                publish_condition
                    .fail(&error, "cannot enqueue changes of views as tasks; retrying");
            }
        }
        tokio::select! {
            _ = stopping.changed() => {}
            _ = changes.changed() => {}
            () = tokio::time::sleep(POLL_INTERVAL) => {}
        }
    }
}

async fn publish_all(
    worker: &ViewRefreshWorker,
    tasks: &TaskPublisher,
    refusal_conditions: &ConditionSet,
) -> Result<(), ViewsError> {
    let mut session = worker.session().await?;
    let Session { client, statements } = &mut session;
    let feeds = follow::list_task_feeds(client, statements).await?;
    let exists = |name: &str| feeds.iter().any(|feed| condition_subject(worker, feed) == name);
    refusal_conditions.retain(exists);
    for feed in feeds {
        // A view whose tasks are refused does not hold up the others.
        while publish_batch(worker, tasks, refusal_conditions, &mut session, &feed).await? {}
    }
    worker.return_session(session);
    Ok(())
}

/// Publishes a batch of change sets of a view. Returns whether there may be more.
async fn publish_batch(
    worker: &ViewRefreshWorker,
    tasks: &TaskPublisher,
    refusal_conditions: &ConditionSet,
    session: &mut Session,
    feed: &TaskFeed,
) -> Result<bool, ViewsError> {
    let Session { client, statements } = session;
    let current = follow::list_task_feeds(client, statements).await?;
    let Some(feed) = current.into_iter().find(|other| other.view == feed.view) else {
        return Ok(false);
    };
    let batch = next_batch(worker, &feed).await?;
    let payloads = &batch.payloads;
    let prefix = format!("views/{}/{}", worker.database, feed.view);
    let keys: Vec<String> =
        payloads.iter().map(|(sequence, _)| format!("{prefix}/{sequence}")).collect();
    let requests: Vec<TaskRequest<'_>> = payloads
        .iter()
        .zip(&keys)
        .map(|((_, payload), key)| TaskRequest {
            tenant: &tasks.tenant,
            queue: &feed.queue,
            payload: payload.as_bytes(),
            key,
            // Tasks of a view are worked on in the order of its changes.
            ordering_key: &prefix,
            unique_key: "",
        })
        .collect();
    let outcomes = tasks.sink.enqueue(&requests).await;
    let accepted_count = count_accepted(&outcomes);
    let are_all_accepted = accepted_count == payloads.len();
    if let Some((sequence, _)) = accepted_count.checked_sub(1).and_then(|last| payloads.get(last)) {
        follow::store_position(client, statements, feed.view, *sequence).await?;
    }
    count_outcomes(&worker.context.metrics.change_tasks, &outcomes);
    update_conditions(&condition_subject(worker, &feed), &outcomes, refusal_conditions);
    Ok(are_all_accepted && batch.may_have_more)
}

/// Name of a view and its queue in conditions.
fn condition_subject(worker: &ViewRefreshWorker, feed: &TaskFeed) -> String {
    format!("{}: {}, queue {}", worker.database, feed.name, feed.queue)
}

fn update_conditions(
    subject: &str,
    outcomes: &[Result<TaskReceipt, TaskRejection>],
    refusal_conditions: &ConditionSet,
) {
    match outcomes.iter().find_map(|outcome| outcome.as_ref().err()) {
        Some(error) => {
            refusal_conditions.fail(
                subject,
                error,
                "cannot enqueue a change of a view as a task; retrying",
            );
        }
        None if outcomes.is_empty() => {}
        None => {
            refusal_conditions.recover(subject, "changes of a view are enqueued as tasks again")
        }
    }
}

/// Tasks before the first that was refused. Those behind it are enqueued again with it, though the
/// queue may have accepted them: the position only passes what is accepted without a gap.
fn count_accepted(outcomes: &[Result<TaskReceipt, TaskRejection>]) -> usize {
    outcomes.iter().take_while(|outcome| outcome.is_ok()).count()
}

fn count_outcomes(
    tasks: &Family<OutcomeLabels, Counter>,
    outcomes: &[Result<TaskReceipt, TaskRejection>],
) {
    let outcome = "taken";
    let accepted_count = count_accepted(outcomes) as u64;
    tasks.get_or_create(&OutcomeLabels { outcome }).inc_by(accepted_count);
    if outcomes.iter().any(Result::is_err) {
        let outcome = "refused";
        tasks.get_or_create(&OutcomeLabels { outcome }).inc();
    }
}

/// Change sets that are published together.
struct Batch {
    /// Numbers of the change sets, with the payloads of their tasks.
    payloads: Vec<(i64, String)>,
    /// Whether the batch ended because it was full.
    may_have_more: bool,
}

/// The next change sets of a view, as payloads.
async fn next_batch(worker: &ViewRefreshWorker, feed: &TaskFeed) -> Result<Batch, ViewsError> {
    let bytes_max = worker.context.config.change_task_size_max.bytes();
    let bytes_max = i64::try_from(bytes_max.max(1)).unwrap_or(i64::MAX);
    let mut position = FollowPosition { sequence: feed.enqueued_sequence, rows: 0 };
    let (mut payloads, mut bytes) = (Vec::new(), 0);
    let is_full = |sets: usize, bytes: usize| sets >= BATCH_SETS_MAX || bytes >= BATCH_BYTES_MAX;
    while !is_full(payloads.len(), bytes) {
        let next = worker.read_changes_bounded(feed.view, &feed.name, position, bytes_max);
        let page = match next.await? {
            NextChanges::Nothing | NextChanges::Gone(None) => break,
            NextChanges::Page(page) => page,
            // The queue accepted nothing for so long that change sets were removed.
            NextChanges::Gone(Some(first)) => reset_page(first, position),
        };
        position.sequence = page.sequence;
        let sequence = page.sequence;
        let payload = payload_json(worker, feed, page, bytes_max);
        bytes += payload.len();
        payloads.push((sequence, payload));
    }
    Ok(Batch { may_have_more: is_full(payloads.len(), bytes), payloads })
}

/// Stands for the removed change sets before `first`, the first that is retained.
fn reset_page(first: i64, position: FollowPosition) -> ChangePage {
    ChangePage {
        // Always after the position.
        sequence: (first - 1).max(position.sequence + 1),
        at_ms: 0,
        snapshot: String::new(),
        reset: Some("forgotten".to_owned()),
        changes: 0,
        rows: Vec::new(),
        has_more: false,
    }
}

/// Payload of a task, as JSON.
#[derive(Serialize)]
struct Payload<'a> {
    database: &'a str,
    view: &'a str,
    sequence: i64,
    /// Absent where change sets were forgotten.
    #[serde(skip_serializing_if = "Option::is_none")]
    at_ms: Option<i64>,
    /// Why the consumer must read the whole view again.
    #[serde(skip_serializing_if = "Option::is_none")]
    reset: Option<&'a str>,
    /// Number of rows of the change set.
    changes: i64,
    /// The changed rows; absent if they exceed the size limit of a payload.
    #[serde(skip_serializing_if = "Option::is_none")]
    rows: Option<Vec<PayloadRow>>,
    /// Address under which the rows are read then.
    #[serde(skip_serializing_if = "Option::is_none")]
    read: Option<String>,
}

#[derive(Serialize)]
struct PayloadRow {
    weight: i64,
    row: Box<RawValue>,
}

fn payload_json(
    worker: &ViewRefreshWorker,
    feed: &TaskFeed,
    page: ChangePage,
    bytes_max: i64,
) -> String {
    let bytes: usize = page.rows.iter().map(|row| row.content.len()).sum();
    let is_whole = !page.has_more && bytes as i64 <= bytes_max;
    let rows = page
        .rows
        .into_iter()
        .map(|row| {
            let content = RawValue::from_string(row.content).ok()?;
            Some(PayloadRow { weight: row.weight, row: content })
        })
        .collect::<Option<Vec<PayloadRow>>>()
        .filter(|_| is_whole && page.reset.is_none());
    let are_rows_omitted = rows.is_none() && page.reset.is_none();
    let read = are_rows_omitted.then(|| {
        let (name, database) = (&feed.name, &worker.database);
        let after = page.sequence - 1;
        format!("/v1/views/{name}/changes?database={database}&after={after}")
    });
    let payload = Payload {
        database: &worker.database,
        view: &feed.name,
        sequence: page.sequence,
        at_ms: (page.at_ms > 0).then_some(page.at_ms),
        reset: page.reset.as_deref(),
        changes: page.changes,
        rows,
        read,
    };
    serde_json::to_string(&payload).expect("text and numbers can be written as JSON")
}

#[cfg(test)]
mod tests;
