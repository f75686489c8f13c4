//! Applies new tasks and reports, each with its own outcome.

use egret_base::{Limit, LimitExceeded};

use super::reply::PendingReply;
use crate::core::command::{Command, Enqueue, Refusal, TaskReport};
use crate::core::state::{EnqueueOutcome, State, TaskLoad};
use crate::error::QueueError;
use crate::model::TaskId;
use crate::worker::dispatch::Dispatcher;
use crate::worker::sinks::EnqueueReceipt as Outcome;
use crate::worker::submission::{
    EnqueueBatch, Grouping, Item, ReplyGuard, ReportBatch, ReportKind,
};
use crate::worker::task_shares::TaskShares;
use crate::worker::turn::BatchTurn;

/// Applies new tasks, within the limits on tasks and on messages between dependent ones.
pub(super) fn apply_enqueues(
    turn: &mut BatchTurn<'_>,
    batch: EnqueueBatch,
    limits: &IntakeLimits,
) -> PendingReply {
    let guard = ReplyGuard(Some(batch));
    let batch = guard.get();
    let outcomes = match &batch.grouping {
        Grouping::Separate => enqueue_separately(turn, batch, Some(limits)),
        Grouping::Promised => enqueue_separately(turn, batch, None),
        Grouping::Chain(links) => enqueue_chain(turn, batch, links, limits),
    };
    PendingReply::Produced(guard.disarm().sink, outcomes)
}

type Outcomes = Vec<(u64, Result<Outcome, QueueError>)>;

fn enqueue_separately(
    turn: &mut BatchTurn<'_>,
    batch: &EnqueueBatch,
    limits: Option<&IntakeLimits>,
) -> Outcomes {
    let mut outcomes = Vec::with_capacity(batch.items.len());
    for item in &batch.items {
        let messages = u64::from(!item.after.is_empty());
        // A duplicate adds no load: a caller that retries at a limit gets the first reply again.
        let limits = limits.filter(|_| !is_duplicate(turn.state, item));
        let admitted = limits
            .map_or(Ok(()), |limits| limits.check(turn.state, item.queue, item.load(), messages));
        if let Err(exceeded) = admitted {
            outcomes.push((item.number, Err(exceeded.into())));
            continue;
        }
        let enqueued = turn.enqueue(&item.as_command(&batch.bytes));
        let outcome = enqueued.map(|enqueued| receipt_of(turn.state, enqueued));
        outcomes.push((item.number, outcome.map_err(QueueError::from)));
    }
    outcomes
}

/// Makes every task of a chain, or none with an error. All checks come before the first task is
/// made.
fn enqueue_chain(
    turn: &mut BatchTurn<'_>,
    batch: &EnqueueBatch,
    links: &[Vec<u32>],
    limits: &IntakeLimits,
) -> Outcomes {
    let items = batch.items.iter();
    if let Err(error) = check_chain(turn.state, batch, links, limits) {
        return items.map(|item| (item.number, Err(error.clone()))).collect();
    }
    let tasks = u32::try_from(batch.items.len()).expect("a batch has few tasks");
    let framed = turn.run(&Command::Chain { tasks });
    debug_assert!(framed.is_ok(), "a frame is never refused");
    let mut outcomes: Outcomes = Vec::with_capacity(batch.items.len());
    let mut ids: Vec<TaskId> = Vec::with_capacity(batch.items.len());
    for (item, links) in items.zip(links) {
        let command = item.as_command(&batch.bytes);
        let mut after = command.after.to_vec();
        after.extend(links.iter().flat_map(|link| ids[*link as usize].to_bytes()));
        let command = Enqueue { after: &after, ..command };
        let enqueued = turn.enqueue_member(&command);
        let outcome = receipt_of(turn.state, enqueued.expect("its queue was checked"));
        ids.push(outcome.id);
        outcomes.push((item.number, Ok(outcome)));
    }
    outcomes
}

fn check_chain(
    state: &State,
    batch: &EnqueueBatch,
    links: &[Vec<u32>],
    limits: &IntakeLimits,
) -> Result<(), QueueError> {
    let members = batch.items.iter().zip(links);
    // Tasks that were made before take no room.
    let new_items: Vec<(&Item, &Vec<u32>)> =
        members.filter(|(item, _)| !is_duplicate(state, item)).collect();
    let messages =
        new_items.iter().map(|(item, links)| item.after.len() / 16 + links.len()).sum::<usize>()
            as u64;
    let mut added_load: TaskLoad = new_items.iter().map(|(item, _)| item.load()).sum();
    let links = new_items.iter().map(|(_, links)| links.len()).sum::<usize>();
    added_load.bytes += (links * size_of::<TaskId>()) as u64;
    if added_load.tasks > 0 {
        limits.check(state, batch.items[0].queue, added_load, messages)?;
    }
    for item in &batch.items {
        state.check_intake(item.queue)?;
    }
    Ok(())
}

fn is_duplicate(state: &State, item: &Item) -> bool {
    state.find_made_before([item.origin, item.unique]).is_some()
}

/// Limits on new tasks.
pub(super) struct IntakeLimits {
    /// Tasks and their bytes.
    pub shares: TaskShares,
    /// Messages between tasks that wait for each other.
    pub messages: Limit,
}

impl IntakeLimits {
    fn check(
        &self,
        state: &State,
        queue: u32,
        added_load: TaskLoad,
        messages: u64,
    ) -> Result<(), LimitExceeded> {
        self.shares.check(state, queue, added_load)?;
        if messages > 0 {
            self.messages.check(state.message_count() + messages)?;
        }
        Ok(())
    }
}

fn receipt_of(state: &State, enqueued: EnqueueOutcome) -> Outcome {
    let (task, replayed) = match enqueued {
        EnqueueOutcome::Created(task) => (task, false),
        EnqueueOutcome::Duplicate(task) => (task, true),
    };
    Outcome { id: state.task_id(task), replayed }
}
pub(super) fn apply_reports(
    turn: &mut BatchTurn<'_>,
    batch: ReportBatch,
    dispatcher: &mut Dispatcher,
) -> PendingReply {
    let guard = ReplyGuard(Some(batch));
    let batch = guard.get();
    let mut outcomes = Vec::with_capacity(batch.items.len());
    for item in &batch.items {
        let held = item.as_task_report(&batch.bytes);
        let queue = turn.state.queue_of_task(held.number);
        let is_foreign = queue.is_some_and(|queue| {
            let is_within = batch.filter.as_ref().is_none_or(|filter| filter(&queue.name));
            *queue.tenant != *batch.owner || !is_within
        });
        let result = match item.kind {
            _ if is_foreign => Err(Refusal::LeaseLost),
            ReportKind::Complete if item.attached => turn.complete_attached(&held),
            ReportKind::Complete => turn.complete(&held),
            ReportKind::Heartbeat { lease_ms: 0 } => {
                let lease_ms = turn.state.lease_ms_of(held.number).unwrap_or_default();
                turn.apply_report(&Command::Heartbeat { report: held, lease_ms })
            }
            kind => turn.apply_report(&report_command(kind, held)),
        };
        if result.is_ok() && !matches!(item.kind, ReportKind::Heartbeat { .. }) {
            dispatcher.forget_holder(item.lease.token);
        }
        outcomes.push((item.number, result.map_err(QueueError::from)));
    }
    PendingReply::Reported(guard.disarm().sink, outcomes)
}

fn report_command(kind: ReportKind, report: TaskReport<'_>) -> Command<'_> {
    match kind {
        ReportKind::Complete => Command::Complete(report),
        ReportKind::Fail { permanent } => Command::Fail { report, permanent },
        ReportKind::Defer { delay_ms, mode } => Command::Defer { report, delay_ms, mode },
        ReportKind::Heartbeat { lease_ms } => Command::Heartbeat { report, lease_ms },
    }
}
