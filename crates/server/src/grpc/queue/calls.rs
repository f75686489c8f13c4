//! The single calls: what each asks of the engine, and how its answer is told.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use egret_proto::queue::v1;
use egret_queue::model::TaskId;
use egret_queue::{
    Detail, Enqueued, Enqueues, ProduceSink, QueueError, Queues, ReportSink, Reports, WorkSpec,
    check_batch,
};
use tokio::sync::Notify;

use super::convert;

/// The longest that a call waits, in milliseconds.
const WAIT_MS_MAX: u64 = 60_000;

pub(super) fn patience(wait_ms: u64) -> Result<Duration, QueueError> {
    if wait_ms > WAIT_MS_MAX {
        let reason = format!("{wait_ms} is more than {WAIT_MS_MAX}");
        return Err(convert::invalid("wait_ms", reason));
    }
    Ok(Duration::from_millis(wait_ms))
}

pub(super) fn id(text: &str) -> Result<TaskId, QueueError> {
    text.parse()
        .map_err(|reason| convert::invalid("id", reason))
}

/// Waits for as many outcomes as there are items.
struct Gathered<T> {
    outcomes: Mutex<Vec<Option<T>>>,
    left: Mutex<usize>,
    all: Notify,
}

impl<T: Clone> Gathered<T> {
    fn new(count: usize) -> Arc<Self> {
        Arc::new(Self {
            outcomes: Mutex::new(vec![None; count]),
            left: Mutex::new(count),
            all: Notify::new(),
        })
    }

    fn put(&self, outcomes: &[(u64, T)]) {
        let mut known = self
            .outcomes
            .lock()
            .expect("no holder of this lock can panic");
        for (number, outcome) in outcomes {
            known[*number as usize] = Some(outcome.clone());
        }
        let mut left = self.left.lock().expect("no holder of this lock can panic");
        *left -= outcomes.len();
        if *left == 0 {
            self.all.notify_one();
        }
    }

    async fn all(&self, count: usize) -> Vec<T> {
        if count > 0 {
            self.all.notified().await;
        }
        let mut known = self
            .outcomes
            .lock()
            .expect("no holder of this lock can panic");
        known.drain(..).flatten().collect()
    }
}

type Produced = Result<Enqueued, QueueError>;

impl ProduceSink for Gathered<Produced> {
    fn outcomes(&self, outcomes: &[(u64, Produced)]) {
        self.put(outcomes);
    }
}

impl ReportSink for Gathered<Result<(), QueueError>> {
    fn reported(&self, outcomes: &[(u64, Result<(), QueueError>)]) {
        self.put(outcomes);
    }
}

/// Enqueues tasks, each answered by itself. Those that name others of the same call go after them.
pub(crate) async fn enqueue(
    queues: &Queues,
    tenant: &str,
    queue: &str,
    tasks: &[v1::NewTask],
) -> Result<Vec<Produced>, QueueError> {
    check_batch(tasks.len())?;
    let mut outcomes: Vec<Option<Produced>> = vec![None; tasks.len()];
    loop {
        let mut wave = Vec::new();
        for (at, task) in tasks.iter().enumerate() {
            if outcomes[at].is_none() {
                match named(&task.after, at, &outcomes) {
                    Ok(Some(after)) => wave.push((at, after)),
                    Ok(None) => {}
                    Err(error) => outcomes[at] = Some(Err(error)),
                }
            }
        }
        if wave.is_empty() {
            break;
        }
        for (at, outcome) in enqueue_wave(queues, tenant, queue, tasks, &wave).await? {
            outcomes[at] = Some(outcome);
        }
    }
    let circular = || {
        Err(convert::invalid(
            "after",
            "tasks of the call wait for each other",
        ))
    };
    let all = outcomes.into_iter();
    Ok(all
        .map(|outcome| outcome.unwrap_or_else(circular))
        .collect())
}

/// The ids that a task waits for, once those of the same call are known.
fn named(
    after: &[String],
    at: usize,
    outcomes: &[Option<Produced>],
) -> Result<Option<Vec<TaskId>>, QueueError> {
    let mut ids = Vec::with_capacity(after.len());
    for name in after {
        let Some(place) = name.strip_prefix('#') else {
            ids.push(id(name).map_err(|_| {
                convert::invalid(
                    "after",
                    format!("`{name}` is neither an id nor `#` and a place"),
                )
            })?);
            continue;
        };
        let place: Option<usize> = place.parse().ok();
        let Some(place) = place.filter(|place| *place < outcomes.len() && *place != at) else {
            let reason = format!("`{name}` is no other task of this call");
            return Err(convert::invalid("after", reason));
        };
        match &outcomes[place] {
            Some(Ok(enqueued)) => ids.push(enqueued.id),
            Some(Err(_)) => {
                let reason = format!("`{name}` was not enqueued");
                return Err(convert::invalid("after", reason));
            }
            None => return Ok(None),
        }
    }
    Ok(Some(ids))
}

async fn enqueue_wave(
    queues: &Queues,
    tenant: &str,
    queue: &str,
    tasks: &[v1::NewTask],
    wave: &[(usize, Vec<TaskId>)],
) -> Result<Vec<(usize, Produced)>, QueueError> {
    let mut refused = Vec::new();
    let gathered = Gathered::<Produced>::new(wave.len());
    let mut handles = Vec::with_capacity(wave.len());
    for (at, _) in wave {
        let name = match tasks[*at].queue.as_str() {
            "" => queue,
            own => own,
        };
        handles.push(queues.queue(tenant, name).await);
    }
    {
        let mut enqueues = Enqueues::new(queues)?;
        for (number, ((at, after), handle)) in wave.iter().zip(handles).enumerate() {
            let added = handle.and_then(|handle| {
                let task = convert::new_task(&tasks[*at], after)?;
                enqueues.add(number as u64, &handle, &task)
            });
            if let Err(error) = added {
                refused.push((number as u64, Err(error)));
            }
        }
        let sink: Arc<dyn ProduceSink> = gathered.clone();
        enqueues.submit(&sink);
    }
    if !refused.is_empty() {
        gathered.put(&refused);
    }
    let outcomes = gathered.all(wave.len()).await;
    Ok(wave.iter().map(|(at, _)| *at).zip(outcomes).collect())
}

/// Reports on leased tasks, each answered by itself.
pub(crate) async fn report(
    queues: &Queues,
    tenant: &str,
    asked: &[v1::TaskReport],
) -> Result<Vec<Result<(), QueueError>>, QueueError> {
    check_batch(asked.len())?;
    let gathered = Gathered::<Result<(), QueueError>>::new(asked.len());
    let mut refused = Vec::new();
    {
        let mut reports = Reports::new(queues, tenant)?;
        for (number, one) in asked.iter().enumerate() {
            let added = convert::report(one, 0).and_then(|(said, text, format)| {
                reports.add(number as u64, &one.lease, said, text, format)
            });
            if let Err(error) = added {
                refused.push((number as u64, Err(error)));
            }
        }
        let sink: Arc<dyn ReportSink> = gathered.clone();
        reports.submit(&sink);
    }
    if !refused.is_empty() {
        gathered.put(&refused);
    }
    Ok(gathered.all(asked.len()).await)
}

/// Leases tasks without a stream.
pub(super) async fn claim(
    queues: &Queues,
    tenant: &str,
    asked: v1::ClaimRequest,
) -> Result<Vec<egret_queue::OwnedTask>, QueueError> {
    if !(1..=1_000).contains(&asked.max) {
        let reason = format!("{} is not from 1 to 1000", asked.max);
        return Err(convert::invalid("max", reason));
    }
    let patience = patience(asked.wait_ms)?;
    let spec = WorkSpec {
        queues: asked.queues,
        worker: asked.worker,
        lease_ms: (asked.lease_ms > 0).then_some(asked.lease_ms),
    };
    queues.claim(tenant, &spec, asked.max, patience).await
}

pub(super) async fn list(
    queues: &Queues,
    tenant: &str,
    asked: &v1::ListTasksRequest,
) -> Result<v1::ListTasksResponse, QueueError> {
    let limit = match asked.limit {
        0 => 100,
        limit @ 1..=1_000 => limit as usize,
        other => {
            return Err(convert::invalid(
                "limit",
                format!("{other} is more than 1000"),
            ));
        }
    };
    let state = convert::state(asked.state)?;
    let page = queues.tasks(
        tenant,
        &asked.queue,
        state,
        &asked.tag,
        limit,
        &asked.cursor,
    );
    let page = page.await?;
    Ok(v1::ListTasksResponse {
        tasks: page.tasks.iter().map(convert::task).collect(),
        next_cursor: page.next.unwrap_or_default(),
    })
}

pub(super) async fn task(
    queues: &Queues,
    tenant: &str,
    text: &str,
    detail: Detail,
) -> Result<v1::Task, QueueError> {
    let view = queues.task(tenant, id(text)?, detail).await?;
    Ok(convert::task(&view))
}
