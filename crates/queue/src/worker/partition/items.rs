//! New tasks and reports, one after the other, each with its own outcome.

use egret_base::Limit;

use super::Told;
use crate::api::sink::Enqueued as Outcome;
use crate::api::submit::{EnqueueBatch, ReportBatch, Said, Unanswered};
use crate::core::command::{Command, Held, Refusal};
use crate::core::state::Enqueued;
use crate::error::QueueError;
use crate::worker::dispatch::Dispatcher;
use crate::worker::turn::Turn;

/// Makes tasks, within the limits on tasks and on messages between those that wait for others.
pub(super) fn enqueue(
    turn: &mut Turn<'_>,
    batch: EnqueueBatch,
    [tasks_max, messages_max]: &[Limit; 2],
) -> Told {
    let unanswered = Unanswered(Some(batch));
    let batch = unanswered.get();
    let mut outcomes = Vec::with_capacity(batch.items.len());
    for item in &batch.items {
        let mut room = tasks_max.check(turn.state.len() as u64 + 1);
        if room.is_ok() && !item.after.is_empty() {
            room = messages_max.check(turn.state.message_count() + 1);
        }
        if let Err(exceeded) = room {
            outcomes.push((item.number, Err(exceeded.into())));
            continue;
        }
        let outcome = match turn.enqueue(&item.command(&batch.bytes)) {
            Ok(Enqueued::Made(task)) => Ok(Outcome {
                id: turn.state.id(task),
                replayed: false,
            }),
            Ok(Enqueued::Replayed(task)) => Ok(Outcome {
                id: turn.state.id(task),
                replayed: true,
            }),
            Err(refusal) => Err(refusal.into()),
        };
        outcomes.push((item.number, outcome));
    }
    Told::Produced(unanswered.answered().sink, outcomes)
}

pub(super) fn report(turn: &mut Turn<'_>, batch: ReportBatch, dispatcher: &mut Dispatcher) -> Told {
    let unanswered = Unanswered(Some(batch));
    let batch = unanswered.get();
    let mut outcomes = Vec::with_capacity(batch.items.len());
    for item in &batch.items {
        let held = item.held(&batch.bytes);
        let queue = turn.state.queue_of(held.number);
        let is_foreign = queue.is_some_and(|queue| {
            let is_within = batch
                .filter
                .as_ref()
                .is_none_or(|filter| filter(&queue.name));
            *queue.tenant != *batch.owner || !is_within
        });
        let reported = match item.said {
            _ if is_foreign => Err(Refusal::LeaseLost),
            Said::Complete if item.attached => turn.complete_attached(&held),
            Said::Complete => turn.complete(&held),
            Said::Heartbeat { lease_ms: 0 } => {
                let lease_ms = turn.state.lease_ms_of(held.number).unwrap_or_default();
                turn.report(&Command::Heartbeat { held, lease_ms })
            }
            said => turn.report(&command_of(said, held)),
        };
        if reported.is_ok() && !matches!(item.said, Said::Heartbeat { .. }) {
            dispatcher.forget(item.lease.token);
        }
        outcomes.push((item.number, reported.map_err(QueueError::from)));
    }
    Told::Reported(unanswered.answered().sink, outcomes)
}

fn command_of(said: Said, held: Held<'_>) -> Command<'_> {
    match said {
        Said::Complete => Command::Complete(held),
        Said::Fail { permanent } => Command::Fail { held, permanent },
        Said::Defer { delay_ms, how } => Command::Defer {
            held,
            delay_ms,
            how,
        },
        Said::Heartbeat { lease_ms } => Command::Heartbeat { held, lease_ms },
    }
}
