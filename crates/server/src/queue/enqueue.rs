//! Enqueueing what one call brings, each task answered by itself.

use std::sync::Arc;

use egret_queue::model::TaskId;
use egret_queue::{
    Enqueued, Enqueues, NewTask, ProduceSink, QueueError, QueueHandle, Queues, check_batch,
};

use super::gather::Gathered;
use super::{invalid, rights};
use crate::access::Caller;
use crate::problem::Problem;

/// What became of a new task.
pub(crate) type Produced = Result<Enqueued, QueueError>;

/// A task as a caller wants it.
pub(crate) struct Wanted<'a> {
    /// Its queue's name.
    pub queue: &'a str,
    /// Ids of tasks to wait for; `#0`, `#1` … name others of the same call.
    pub after: Vec<&'a str>,
    /// Everything else.
    pub task: NewTask<'a>,
}

/// Enqueues tasks. Those that name others of the same call go after them.
pub(crate) async fn enqueue(
    queues: &Queues,
    caller: &Caller,
    wanted: Vec<Result<Wanted<'_>, QueueError>>,
) -> Result<Vec<Produced>, Problem> {
    check_batch(wanted.len())?;
    // Nothing is enqueued of a call that names a queue of which the caller must not know.
    for task in wanted.iter().flatten() {
        rights::require(caller, task.queue, rights::PRODUCE)?;
        rights::require_after(queues, caller, task.after.iter().copied()).await?;
    }
    let tenant = caller.tenant();
    let mut outcomes: Vec<Option<Produced>> = Vec::with_capacity(wanted.len());
    let mut waiting = Vec::with_capacity(wanted.len());
    for one in wanted {
        let (outcome, task) = match one {
            Ok(task) => (None, Some(task)),
            Err(error) => (Some(Err(error)), None),
        };
        outcomes.push(outcome);
        waiting.push(task);
    }
    loop {
        let mut wave = Vec::with_capacity(waiting.len());
        for (at, place) in waiting.iter_mut().enumerate() {
            let Some(wanted) = place.take() else {
                continue;
            };
            match named(&wanted.after, at, &outcomes) {
                Ok(Some(after)) => wave.push((at, wanted, after)),
                Ok(None) => *place = Some(wanted),
                Err(error) => outcomes[at] = Some(Err(error)),
            }
        }
        if wave.is_empty() {
            break;
        }
        for (at, outcome) in enqueue_wave(queues, tenant, wave).await? {
            outcomes[at] = Some(outcome);
        }
    }
    let circular = || Err(invalid("after", "tasks of the call wait for each other"));
    let all = outcomes.into_iter();
    Ok(all
        .map(|outcome| outcome.unwrap_or_else(circular))
        .collect())
}

/// The ids that a task waits for, once those of the same call are known.
fn named(
    after: &[&str],
    at: usize,
    outcomes: &[Option<Produced>],
) -> Result<Option<Vec<TaskId>>, QueueError> {
    let mut ids = Vec::with_capacity(after.len());
    for name in after {
        let Some(place) = name.strip_prefix('#') else {
            let id = name.parse().map_err(|_| {
                invalid(
                    "after",
                    format!("`{name}` is neither an id nor `#` and a place"),
                )
            });
            ids.push(id?);
            continue;
        };
        let place: Option<usize> = place.parse().ok();
        let Some(place) = place.filter(|place| *place < outcomes.len() && *place != at) else {
            let reason = format!("`{name}` is no other task of this call");
            return Err(invalid("after", reason));
        };
        match &outcomes[place] {
            Some(Ok(enqueued)) => ids.push(enqueued.id),
            Some(Err(_)) => {
                return Err(invalid("after", format!("`{name}` was not enqueued")));
            }
            None => return Ok(None),
        }
    }
    Ok(Some(ids))
}

/// Tasks by their places in the call, with the ids that they wait for.
type Wave<'a> = Vec<(usize, Wanted<'a>, Vec<TaskId>)>;

async fn enqueue_wave(
    queues: &Queues,
    tenant: &str,
    wave: Wave<'_>,
) -> Result<Vec<(usize, Produced)>, QueueError> {
    let mut handles = Vec::with_capacity(wave.len());
    for (_, wanted, _) in &wave {
        handles.push(queues.queue(tenant, wanted.queue).await);
    }
    let places: Vec<usize> = wave.iter().map(|(at, ..)| *at).collect();
    let gathered = Gathered::<Produced>::new(wave.len());
    submit(queues, wave, handles, &gathered)?;
    Ok(places.into_iter().zip(gathered.all().await).collect())
}

fn submit(
    queues: &Queues,
    wave: Wave<'_>,
    handles: Vec<Result<Arc<QueueHandle>, QueueError>>,
    gathered: &Arc<Gathered<Produced>>,
) -> Result<(), QueueError> {
    let mut refused = Vec::new();
    let mut enqueues = Enqueues::new(queues)?;
    for (number, ((_, wanted, after), handle)) in (0..).zip(wave.into_iter().zip(handles)) {
        let added = handle.and_then(|handle| {
            let task = NewTask {
                after: &after,
                ..wanted.task
            };
            enqueues.add(number, &handle, &task)
        });
        if let Err(error) = added {
            refused.push((number, Err(error)));
        }
    }
    let sink: Arc<dyn ProduceSink> = gathered.clone();
    enqueues.submit(&sink);
    if !refused.is_empty() {
        gathered.put(&refused);
    }
    Ok(())
}
