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
const YIELD_ITEMS: usize = 128;

/// The outcome of a new task.
pub(crate) type Produced = Result<EnqueueReceipt, QueueError>;

/// A new task as its caller describes it.
pub(crate) struct TaskInput<'a> {
    pub queue: &'a str,
    /// Ids of tasks to wait for; `#0`, `#1` … name others of the same call.
    pub after: Vec<&'a str>,
    pub task: NewTask<'a>,
}

/// Which tasks of a request are enqueued atomically.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Atomicity {
    /// Dependency chains: tasks that refer to each other.
    Chains,
    Call,
}

impl Atomicity {
    /// The atomicity for a caller's `atomic`.
    pub(crate) fn from_flag(atomic: bool) -> Self {
        if atomic { Self::Call } else { Self::Chains }
    }
}

/// A task whose references to other tasks are parsed.
struct ResolvedTask<'a> {
    queue: Result<Arc<QueueHandle>, QueueError>,
    task: NewTask<'a>,
    /// Tasks that it waits for outside of the call.
    after_ids: Vec<TaskId>,
    /// Indexes, in the call, of the other tasks that it waits for.
    links: Vec<usize>,
}

/// Enqueues tasks; the answer is in their order.
pub(crate) async fn enqueue(
    queues: &Queues,
    caller: &Caller,
    inputs: Vec<Result<TaskInput<'_>, QueueError>>,
    atomicity: Atomicity,
) -> Result<Vec<Produced>, Problem> {
    check_batch(inputs.len())?;
    let tenant = caller.tenant();
    let in_flight = queues.in_flight(tenant);
    let in_flight = in_flight.acquire(InFlightKind::Tasks, inputs.len()).await;
    let in_flight = Arc::new(in_flight);
    // Check all rights first: a request that names a queue that the caller may not access enqueues
    // nothing.
    for task in inputs.iter().flatten() {
        rights::require(caller, task.queue, rights::PRODUCE)?;
        rights::require_dependencies(queues, caller, task.after.iter().copied()).await?;
    }
    let count = inputs.len();
    let mut resolved = Vec::with_capacity(count);
    for (index, input) in inputs.into_iter().enumerate() {
        resolved.push(match input {
            Ok(wanted) => resolve_task(queues, tenant, wanted, index, count).await,
            Err(error) => Err(error),
        });
        yield_after(index).await;
    }
    let task_groups = group_tasks(&resolved, atomicity);
    let mut outcomes: Vec<Option<Produced>> = vec![None; count];
    let single: Vec<usize> =
        task_groups.iter().filter(|group| group.len() == 1).map(|group| group[0]).collect();
    for (place, outcome) in enqueue_separately(queues, &resolved, &single, &in_flight).await? {
        outcomes[place] = Some(outcome);
    }
    let chains = task_groups
        .iter()
        .filter(|group| group.len() > 1)
        .map(|group| enqueue_chain(queues, &resolved, group, &in_flight));
    for (place, outcome) in join_all(chains).await.into_iter().flatten() {
        outcomes[place] = Some(outcome);
    }
    let outcomes = outcomes.into_iter();
    Ok(outcomes.map(|outcome| outcome.unwrap_or(Err(QueueError::Stopping))).collect())
}

async fn resolve_task<'a>(
    queues: &Queues,
    tenant: &str,
    input: TaskInput<'a>,
    place: usize,
    count: usize,
) -> Result<ResolvedTask<'a>, QueueError> {
    let (mut after_ids, mut links) = (Vec::new(), Vec::new());
    for name in &input.after {
        match name.strip_prefix('#') {
            None => after_ids.push(name.parse().map_err(|_| {
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
        queue: queues.get_or_create_queue(tenant, input.queue).await,
        task: input.task,
        after_ids,
        links,
    })
}

/// Indexes of the tasks, grouped by what is enqueued atomically.
fn group_tasks(
    resolved: &[Result<ResolvedTask<'_>, QueueError>],
    atomicity: Atomicity,
) -> Vec<Vec<usize>> {
    if atomicity == Atomicity::Call {
        return vec![(0..resolved.len()).collect()];
    }
    // A union-find with path halving: each entry points to another of its group, or to itself.
    let mut parents: Vec<usize> = (0..resolved.len()).collect();
    fn find_root(parents: &mut [usize], mut node: usize) -> usize {
        while parents[node] != node {
            parents[node] = parents[parents[node]];
            node = parents[node];
        }
        node
    }
    for (index, task) in resolved.iter().enumerate() {
        for link in task.iter().flat_map(|member| &member.links) {
            let (from, to) = (find_root(&mut parents, index), find_root(&mut parents, *link));
            parents[from.max(to)] = from.min(to);
        }
    }
    let mut groups = vec![Vec::new(); resolved.len()];
    for place in 0..resolved.len() {
        groups[find_root(&mut parents, place)].push(place);
    }
    groups.retain(|group| !group.is_empty());
    groups
}

async fn enqueue_separately(
    queues: &Queues,
    resolved: &[Result<ResolvedTask<'_>, QueueError>],
    indexes: &[usize],
    in_flight: &Arc<InFlightPermit>,
) -> Result<Vec<(usize, Produced)>, QueueError> {
    let collector = OutcomeCollector::<Produced>::new(indexes.len(), in_flight.clone());
    submit(queues, resolved, indexes, &collector).await?;
    let outcomes = collector.await_all().await;
    Ok(indexes.iter().copied().zip(outcomes).collect())
}

/// Yields to other calls at regular intervals.
async fn yield_after(index: usize) {
    if (index + 1).is_multiple_of(YIELD_ITEMS) {
        tokio::task::yield_now().await;
    }
}

async fn submit(
    queues: &Queues,
    resolved: &[Result<ResolvedTask<'_>, QueueError>],
    indexes: &[usize],
    collector: &Arc<OutcomeCollector<Produced>>,
) -> Result<(), QueueError> {
    let mut refusals = Vec::new();
    let mut enqueues = Enqueues::new(queues)?;
    for (number, index) in (0..).zip(indexes) {
        let result = resolved[*index].as_ref().map_err(Clone::clone).and_then(|member| {
            let queue = member.queue.as_ref().map_err(Clone::clone)?;
            let task = NewTask { after: &member.after_ids, ..member.task.clone() };
            enqueues.add(number, queue, &task)
        });
        if let Err(error) = result {
            refusals.push((number, Err(error)));
        }
        yield_after(number as usize).await;
    }
    let sink: Arc<dyn ProduceSink> = collector.clone();
    enqueues.submit(&sink);
    if !refusals.is_empty() {
        collector.record(&refusals);
    }
    Ok(())
}

async fn enqueue_chain(
    queues: &Queues,
    resolved: &[Result<ResolvedTask<'_>, QueueError>],
    group: &[usize],
    in_flight: &Arc<InFlightPermit>,
) -> Vec<(usize, Produced)> {
    let mut tasks = Vec::with_capacity(group.len());
    for index in group {
        match chain_task(&resolved[*index], group) {
            Ok(task) => tasks.push(task),
            Err(error) => {
                let refusal = egret_queue::ChainRefusal { task: Some(*index), error };
                let indexes = group.iter();
                return indexes.map(|place| (*place, Err(refusal.error_for(*place)))).collect();
            }
        }
    }
    let places = group.iter().copied();
    match queues.enqueue_chain_within(&tasks, in_flight).await {
        Ok(receipts) => places.zip(receipts.into_iter().map(Ok)).collect(),
        Err(mut refusal) => {
            refusal.task = refusal.task.map(|task| group[task]);
            places.map(|place| (place, Err(refusal.error_for(place)))).collect()
        }
    }
}

fn chain_task<'a>(
    member: &'a Result<ResolvedTask<'a>, QueueError>,
    group: &[usize],
) -> Result<ChainTask<'a>, QueueError> {
    let member = member.as_ref().map_err(Clone::clone)?;
    let links = member
        .links
        .iter()
        .map(|link| group.binary_search(link).expect("linked tasks are in the same group"));
    Ok(ChainTask {
        queue: member.queue.clone()?,
        task: NewTask { after: &member.after_ids, ..member.task.clone() },
        links: links.collect(),
        origin: None,
    })
}
