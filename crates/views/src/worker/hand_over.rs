//! Makes a task of every change set of views that have a queue.
//!
//! What was handed over is remembered after the queue has taken it. After a crash in between it is handed over again, under the key of the
//! first time, and is that task.

use std::sync::Arc;

use egret_base::condition::ConditionSet;
use egret_base::{Condition, TaskReceipt, TaskRefused, TaskRequest};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::watch;

use super::feed::{LOOK_AGAIN, TasksTo};
use super::keeper::Keeper;
use super::session::Session;
use crate::error::ViewsError;
use crate::metrics::Outcome;
use crate::model::ChangePage;
use crate::store::follow::{self, Feeding, Next, Place};

/// Change sets of a view that are handed over at a time.
const BATCH: usize = 100;

/// Bytes of them after which a batch ends, whatever `views.change_task_size_max` is.
const BATCH_BYTES_MAX: usize = 4 << 20;

/// Hands over what there is in a database, until everything stops.
pub async fn serve(keeper: Arc<Keeper>, mut stopping: watch::Receiver<bool>) {
    let Some(tasks) = keeper.shared.tasks.clone() else {
        return;
    };
    let mut news = keeper.feed.news();
    let database = keeper.database.as_str();
    let failing = Condition::new("views_change_tasks_failing", database);
    let refused = ConditionSet::new("views_change_tasks_refused");
    while !*stopping.borrow() {
        news.borrow_and_update();
        match hand_over_all(&keeper, &tasks, &refused).await {
            Ok(()) => failing.recover("changes of views are made tasks again"),
            Err(error) => {
                failing.fail(&error, "changes of views could not be made tasks; retrying");
            }
        }
        tokio::select! {
            _ = stopping.changed() => {}
            _ = news.changed() => {}
            () = tokio::time::sleep(LOOK_AGAIN) => {}
        }
    }
}

async fn hand_over_all(
    keeper: &Keeper,
    tasks: &TasksTo,
    refused: &ConditionSet,
) -> Result<(), ViewsError> {
    let mut session = keeper.session().await?;
    let Session { client, statements } = &mut session;
    let all = follow::feeding(client, statements).await?;
    let is_there = |name: &str| all.iter().any(|one| subject(keeper, one) == name);
    refused.retain(is_there);
    for feeding in all {
        // One that cannot go on keeps no other.
        while hand_over(keeper, (tasks, refused), &mut session, &feeding).await? {}
    }
    keeper.give_back(session);
    Ok(())
}

/// Hands over some change sets of a view; says whether there may be more.
async fn hand_over(
    keeper: &Keeper,
    (tasks, refused): (&TasksTo, &ConditionSet),
    session: &mut Session,
    feeding: &Feeding,
) -> Result<bool, ViewsError> {
    let Session { client, statements } = session;
    let now = follow::feeding(client, statements).await?;
    let Some(feeding) = now.into_iter().find(|one| one.view == feeding.view) else {
        return Ok(false);
    };
    let batch = next_batch(keeper, &feeding).await?;
    let payloads = &batch.payloads;
    let prefix = format!("views/{}/{}", keeper.database, feeding.view);
    let keys: Vec<String> = payloads
        .iter()
        .map(|(sequence, _)| format!("{prefix}/{sequence}"))
        .collect();
    let requests: Vec<TaskRequest<'_>> = payloads
        .iter()
        .zip(&keys)
        .map(|((_, payload), key)| TaskRequest {
            tenant: &tasks.tenant,
            queue: &feeding.queue,
            payload: payload.as_bytes(),
            key,
            // They are worked on in the order of the changes.
            ordering_key: &prefix,
            unique_key: "",
        })
        .collect();
    let outcomes = tasks.sink.enqueue(&requests).await;
    let taken = outcomes
        .iter()
        .take_while(|outcome| outcome.is_ok())
        .count();
    let is_all = taken == payloads.len();
    if let Some((sequence, _)) = taken.checked_sub(1).and_then(|last| payloads.get(last)) {
        follow::handed_over(client, statements, feeding.view, *sequence).await?;
    }
    count(keeper, &outcomes);
    note(&subject(keeper, &feeding), &outcomes, refused);
    Ok(is_all && batch.may_have_more)
}

/// What a view is called where its queue refuses its changes.
fn subject(keeper: &Keeper, feeding: &Feeding) -> String {
    format!(
        "{}: {}, queue {}",
        keeper.database, feeding.name, feeding.queue
    )
}

fn note(subject: &str, outcomes: &[Result<TaskReceipt, TaskRefused>], refused: &ConditionSet) {
    match outcomes.iter().find_map(|outcome| outcome.as_ref().err()) {
        Some(error) => {
            refused.fail(
                subject,
                error,
                "a change of a view became no task; retrying",
            );
        }
        None if outcomes.is_empty() => {}
        None => refused.recover(subject, "changes of a view become tasks again"),
    }
}

fn count(keeper: &Keeper, outcomes: &[Result<TaskReceipt, TaskRefused>]) {
    let made = &keeper.shared.metrics.change_tasks;
    let taken = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    let outcome = "taken";
    made.get_or_create(&Outcome { outcome })
        .inc_by(taken as u64);
    if outcomes.iter().any(Result::is_err) {
        let outcome = "refused";
        made.get_or_create(&Outcome { outcome }).inc();
    }
}

/// Change sets that are handed over at a time.
struct Batch {
    /// Their sequences, with the payloads of their tasks.
    payloads: Vec<(i64, String)>,
    /// Whether the batch ended because it was full.
    may_have_more: bool,
}

/// The next change sets of a view, as payloads.
async fn next_batch(keeper: &Keeper, feeding: &Feeding) -> Result<Batch, ViewsError> {
    let bytes_max = keeper.shared.config.change_task_size_max.bytes();
    let bytes_max = i64::try_from(bytes_max.max(1)).unwrap_or(i64::MAX);
    let mut place = Place {
        sequence: feeding.handed_over,
        rows: 0,
    };
    let (mut all, mut bytes) = (Vec::new(), 0);
    let is_full = |sets: usize, bytes: usize| sets >= BATCH || bytes >= BATCH_BYTES_MAX;
    while !is_full(all.len(), bytes) {
        let view = (feeding.view, feeding.name.as_str());
        let page = match keeper.next_change_of(view, place, bytes_max).await? {
            Next::Nothing | Next::Gone(None) => break,
            Next::Page(page) => page,
            // The queue took nothing for so long that some are forgotten.
            Next::Gone(Some(first)) => lost(first, place),
        };
        place.sequence = page.sequence;
        let sequence = page.sequence;
        let payload = payload(keeper, feeding, page, bytes_max);
        bytes += payload.len();
        all.push((sequence, payload));
    }
    Ok(Batch {
        may_have_more: is_full(all.len(), bytes),
        payloads: all,
    })
}

/// What stands for change sets that are not kept any more, up to the one before the first that is.
fn lost(first: i64, place: Place) -> ChangePage {
    ChangePage {
        // Never the one that was handed over.
        sequence: (first - 1).max(place.sequence + 1),
        at_ms: 0,
        snapshot: String::new(),
        reset: Some("forgotten".to_owned()),
        changes: 0,
        rows: Vec::new(),
        has_more: false,
    }
}

/// What a task is about.
#[derive(Serialize)]
struct Payload<'a> {
    database: &'a str,
    view: &'a str,
    sequence: i64,
    /// Absent where change sets were forgotten.
    #[serde(skip_serializing_if = "Option::is_none")]
    at_ms: Option<i64>,
    /// Why the view is to be read anew.
    #[serde(skip_serializing_if = "Option::is_none")]
    reset: Option<&'a str>,
    /// How many rows went or came.
    changes: i64,
    /// They; absent where they are more than a task has.
    #[serde(skip_serializing_if = "Option::is_none")]
    rows: Option<Vec<Changed>>,
    /// Where they are read then.
    #[serde(skip_serializing_if = "Option::is_none")]
    read: Option<String>,
}

#[derive(Serialize)]
struct Changed {
    weight: i64,
    row: Box<RawValue>,
}

fn payload(keeper: &Keeper, feeding: &Feeding, page: ChangePage, bytes_max: i64) -> String {
    let bytes: usize = page.rows.iter().map(|row| row.content.len()).sum();
    let is_whole = !page.has_more && bytes as i64 <= bytes_max;
    let rows = page.rows.into_iter().map(|row| {
        let row_of = RawValue::from_string(row.content).ok()?;
        Some(Changed {
            weight: row.weight,
            row: row_of,
        })
    });
    let rows: Option<Vec<Changed>> = rows.collect();
    let rows = rows.filter(|_| is_whole && page.reset.is_none());
    let is_left_out = rows.is_none() && page.reset.is_none();
    let read = is_left_out.then(|| {
        let (name, database) = (&feeding.name, &keeper.database);
        let after = page.sequence - 1;
        format!("/v1/views/{name}/changes?database={database}&after={after}")
    });
    let payload = Payload {
        database: &keeper.database,
        view: &feeding.name,
        sequence: page.sequence,
        at_ms: (page.at_ms > 0).then_some(page.at_ms),
        reset: page.reset.as_deref(),
        changes: page.changes,
        rows,
        read,
    };
    serde_json::to_string(&payload).expect("it is text and numbers")
}
