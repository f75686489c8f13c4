//! What the partitions know of queues, brought together at a start: a crash may have left a change
//! in some of them only.
//!
//! A queue is made, and changed, in partition 0 first; it is deleted in partition 0 last. So what
//! partition 0 says is to be done in the others, unless one of them has known a queue and has it no
//! more: then it was being deleted, and that goes on.

use std::collections::{BTreeMap, BTreeSet};

use crate::core::command::Command;
use crate::core::state::{CALLBACKS, Queue, State};
use crate::error::QueueError;
use crate::model::QueueSettings;
use crate::worker::queues::Queues;

/// A queue that a partition has.
#[derive(Debug)]
pub(super) struct QueueEntry {
    pub id: u32,
    pub tenant: String,
    pub name: String,
    pub settings: QueueSettings,
    paused: bool,
    draining: bool,
    /// Whether it was being deleted.
    pub goes: bool,
    /// Whether tasks or schedules of it have another priority than the usual one.
    pub has_priorities: bool,
    /// What is to be done in which partition, in this order.
    left: Vec<(usize, RepairStep)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RepairStep {
    Put,
    SetFlow,
    Delete,
}

/// Every queue that any partition has, and what is left to be done for it. A partition that could
/// not be opened is left out: what is to be done there is done at a later start.
pub(super) fn queues<'a>(partitions: impl Iterator<Item = (usize, &'a State)>) -> Vec<QueueEntry> {
    let partitions: Vec<(usize, &State)> = partitions.collect();
    let mut found: BTreeMap<u32, &Queue> = BTreeMap::new();
    for (_, state) in &partitions {
        for (id, queue) in state.queues() {
            found.entry(id).or_insert(queue);
        }
    }
    let has_priorities: BTreeSet<u32> = (partitions.iter())
        .flat_map(|(_, state)| state.queues_with_priorities())
        .collect();
    // Every partition makes the callbacks' queue for itself.
    found.remove(&CALLBACKS);
    let known = found.into_iter().map(|(id, queue)| {
        let lost = |(_, state): &(usize, &State)| {
            state.queue_with(id).is_none() && id < state.next_queue_id()
        };
        let goes = partitions.iter().any(lost);
        QueueEntry {
            id,
            tenant: queue.tenant.to_string(),
            name: queue.name.to_string(),
            settings: queue.settings.clone(),
            paused: queue.paused,
            draining: queue.draining,
            goes,
            has_priorities: has_priorities.contains(&id),
            left: left(&partitions, id, queue, goes),
        }
    });
    known.collect()
}

fn left(
    partitions: &[(usize, &State)],
    id: u32,
    queue: &Queue,
    goes: bool,
) -> Vec<(usize, RepairStep)> {
    let mut left = Vec::new();
    for (partition, state) in partitions {
        let (partition, here) = (*partition, state.queue_with(id));
        if goes {
            left.extend(here.map(|_| (partition, RepairStep::Delete)));
            continue;
        }
        if here.is_none_or(|here| here.settings != queue.settings) {
            left.push((partition, RepairStep::Put));
        }
        let flow = here.map_or((false, false), |here| (here.paused, here.draining));
        if flow != (queue.paused, queue.draining) {
            left.push((partition, RepairStep::SetFlow));
        }
    }
    if goes {
        left.reverse();
    }
    left
}

impl Queues {
    /// Does what is left to be done for a queue.
    pub(super) async fn settle(&self, known: &QueueEntry) -> Result<(), QueueError> {
        let queue = known.id;
        for (partition, step) in &known.left {
            match step {
                RepairStep::Put => {
                    let (tenant, name) = (&known.tenant, &known.name);
                    self.define(*partition, queue, tenant, name, &known.settings)
                        .await?;
                }
                RepairStep::SetFlow => {
                    let flow = Command::SetFlow {
                        queue,
                        paused: known.paused,
                        draining: known.draining,
                    };
                    let asked = self.inner.ask(*partition, move |turn| turn.run(&flow));
                    asked.await??;
                }
                RepairStep::Delete => {
                    let delete = Command::DeleteQueue { queue };
                    let asked = self.inner.ask(*partition, move |turn| turn.run(&delete));
                    asked.await??;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
