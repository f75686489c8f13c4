//! Enqueues the tasks of one call: each has its own outcome, and tasks that refer to each other are
//! enqueued together or not at all.

use std::sync::Arc;

use egret_queue::model::TaskId;
use egret_queue::{
    ChainTask, EnqueueReceipt, Enqueues, InFlightKind, InFlightPermit, NewTask, ProduceSink,
    QueueError, QueueHandle, Queues, check_batch,
};

use futures_util::future::join_all;

use super::outcome_collector::OutcomeCollector;
use super::parameters::invalid;
use super::rights;
use crate::access::Caller;
use crate::problem::Problem;

/// Items of a call that are processed before the task yields: a call of the largest size takes
/// about a millisecond, during which the thread would run nothing else.
const STRETCH_ITEMS: usize = 128;

/// The outcome of a new task.
pub(crate) type Produced = Result<EnqueueReceipt, QueueError>;

/// A new task as its caller describes it.
pub(crate) struct TaskInput<'a> {
    pub queue: &'a str,
    /// Ids of tasks to wait for; `#0`, `#1` … name others of the same call.
    pub after: Vec<&'a str>,
    pub task: NewTask<'a>,
}

/// Which tasks of a call are made together or not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Atomicity {
    /// Those that refer to each other.
    Chains,
    Call,
}

impl Atomicity {
    /// The atomicity for a caller's `atomic`.
    pub(crate) fn of(atomic: bool) -> Self {
        if atomic { Self::Call } else { Self::Chains }
    }
}

/// A task whose references to other tasks are parsed.
struct ResolvedTask<'a> {
    queue: Result<Arc<QueueHandle>, QueueError>,
    task: NewTask<'a>,
    /// Tasks that it waits for outside of the call.
    ids: Vec<TaskId>,
    /// Indexes, in the call, of the other tasks that it waits for.
    links: Vec<usize>,
}

/// Enqueues tasks; the answer is in their order.
pub(crate) async fn enqueue(
    queues: &Queues,
    caller: &Caller,
    wanted: Vec<Result<TaskInput<'_>, QueueError>>,
    atomicity: Atomicity,
) -> Result<Vec<Produced>, Problem> {
    check_batch(wanted.len())?;
    let tenant = caller.tenant();
    let in_flight = queues.in_flight(tenant);
    let in_flight = in_flight.enter(InFlightKind::Tasks, wanted.len()).await;
    let in_flight = Arc::new(in_flight);
    // Nothing is enqueued of a call that names a queue of which the caller must not know.
    for task in wanted.iter().flatten() {
        rights::require(caller, task.queue, rights::PRODUCE)?;
        rights::require_after(queues, caller, task.after.iter().copied()).await?;
    }
    let count = wanted.len();
    let mut members = Vec::with_capacity(count);
    for (place, one) in wanted.into_iter().enumerate() {
        members.push(match one {
            Ok(wanted) => read(queues, tenant, wanted, place, count).await,
            Err(error) => Err(error),
        });
        pause_after(place).await;
    }
    let groups = groups(&members, atomicity);
    let mut outcomes: Vec<Option<Produced>> = vec![None; count];
    let alone: Vec<usize> = groups
        .iter()
        .filter(|group| group.len() == 1)
        .map(|group| group[0])
        .collect();
    for (place, outcome) in enqueue_separately(queues, &members, &alone, &in_flight).await? {
        outcomes[place] = Some(outcome);
    }
    let together = groups
        .iter()
        .filter(|group| group.len() > 1)
        .map(|group| enqueue_together(queues, &members, group, &in_flight));
    for (place, outcome) in join_all(together).await.into_iter().flatten() {
        outcomes[place] = Some(outcome);
    }
    let outcomes = outcomes.into_iter();
    Ok(outcomes
        .map(|outcome| outcome.unwrap_or(Err(QueueError::Stopping)))
        .collect())
}

async fn read<'a>(
    queues: &Queues,
    tenant: &str,
    wanted: TaskInput<'a>,
    place: usize,
    count: usize,
) -> Result<ResolvedTask<'a>, QueueError> {
    let (mut ids, mut links) = (Vec::new(), Vec::new());
    for name in &wanted.after {
        match name.strip_prefix('#') {
            None => ids.push(name.parse().map_err(|_| {
                let reason = format!("`{name}` is neither an id nor `#` and an index");
                invalid("after", reason)
            })?),
            Some(number) => {
                let link = number.parse().ok();
                let link = link.filter(|link| *link < count && *link != place);
                let reason = || format!("`{name}` is not another task of this request");
                links.push(link.ok_or_else(|| invalid("after", reason()))?);
            }
        }
    }
    links.sort_unstable();
    links.dedup();
    Ok(ResolvedTask {
        queue: queues.queue(tenant, wanted.queue).await,
        task: wanted.task,
        ids,
        links,
    })
}

/// Indexes of the tasks, grouped by what is enqueued atomically.
fn groups(
    members: &[Result<ResolvedTask<'_>, QueueError>],
    atomicity: Atomicity,
) -> Vec<Vec<usize>> {
    if atomicity == Atomicity::Call {
        return vec![(0..members.len()).collect()];
    }
    // A union-find with path halving: each entry points to another of its group, or to itself.
    let mut leads: Vec<usize> = (0..members.len()).collect();
    fn root(leads: &mut [usize], mut at: usize) -> usize {
        while leads[at] != at {
            leads[at] = leads[leads[at]];
            at = leads[at];
        }
        at
    }
    for (place, member) in members.iter().enumerate() {
        for link in member.iter().flat_map(|member| &member.links) {
            let (from, to) = (root(&mut leads, place), root(&mut leads, *link));
            leads[from.max(to)] = from.min(to);
        }
    }
    let mut groups = vec![Vec::new(); members.len()];
    for place in 0..members.len() {
        groups[root(&mut leads, place)].push(place);
    }
    groups.retain(|group| !group.is_empty());
    groups
}

async fn enqueue_separately(
    queues: &Queues,
    members: &[Result<ResolvedTask<'_>, QueueError>],
    places: &[usize],
    in_flight: &Arc<InFlightPermit>,
) -> Result<Vec<(usize, Produced)>, QueueError> {
    let gathered = OutcomeCollector::<Produced>::new(places.len(), in_flight.clone());
    submit(queues, members, places, &gathered).await?;
    let outcomes = gathered.all().await;
    Ok(places.iter().copied().zip(outcomes).collect())
}

/// Yields to other calls at regular intervals.
async fn pause_after(place: usize) {
    if (place + 1).is_multiple_of(STRETCH_ITEMS) {
        tokio::task::yield_now().await;
    }
}

async fn submit(
    queues: &Queues,
    members: &[Result<ResolvedTask<'_>, QueueError>],
    places: &[usize],
    gathered: &Arc<OutcomeCollector<Produced>>,
) -> Result<(), QueueError> {
    let mut refused = Vec::new();
    let mut enqueues = Enqueues::new(queues)?;
    for (number, place) in (0..).zip(places) {
        let added = members[*place]
            .as_ref()
            .map_err(Clone::clone)
            .and_then(|member| {
                let queue = member.queue.as_ref().map_err(Clone::clone)?;
                let task = NewTask {
                    after: &member.ids,
                    ..member.task.clone()
                };
                enqueues.add(number, queue, &task)
            });
        if let Err(error) = added {
            refused.push((number, Err(error)));
        }
        pause_after(number as usize).await;
    }
    let sink: Arc<dyn ProduceSink> = gathered.clone();
    enqueues.submit(&sink);
    if !refused.is_empty() {
        gathered.put(&refused);
    }
    Ok(())
}

async fn enqueue_together(
    queues: &Queues,
    members: &[Result<ResolvedTask<'_>, QueueError>],
    group: &[usize],
    in_flight: &Arc<InFlightPermit>,
) -> Vec<(usize, Produced)> {
    let mut tasks = Vec::with_capacity(group.len());
    for place in group {
        match chain_task(&members[*place], group) {
            Ok(task) => tasks.push(task),
            Err(error) => {
                let refusal = egret_queue::ChainRefusal {
                    task: Some(*place),
                    error,
                };
                let places = group.iter();
                return places
                    .map(|place| (*place, Err(refusal.of(*place))))
                    .collect();
            }
        }
    }
    let places = group.iter().copied();
    match queues.enqueue_chain_within(&tasks, in_flight).await {
        Ok(made) => places.zip(made.into_iter().map(Ok)).collect(),
        Err(mut refusal) => {
            refusal.task = refusal.task.map(|task| group[task]);
            places
                .map(|place| (place, Err(refusal.of(place))))
                .collect()
        }
    }
}

fn chain_task<'a>(
    member: &'a Result<ResolvedTask<'a>, QueueError>,
    group: &[usize],
) -> Result<ChainTask<'a>, QueueError> {
    let member = member.as_ref().map_err(Clone::clone)?;
    let links = member.links.iter().map(|link| {
        group
            .binary_search(link)
            .expect("linked tasks are in the same group")
    });
    Ok(ChainTask {
        queue: member.queue.clone()?,
        task: NewTask {
            after: &member.ids,
            ..member.task.clone()
        },
        links: links.collect(),
        origin: None,
    })
}
