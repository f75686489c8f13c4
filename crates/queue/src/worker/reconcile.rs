//! Reconciles the queues of the partitions at a start: a crash may have left a change in some of
//! them only.
//!
//! A queue is created and changed in partition 0 first, and deleted there last. So the state of
//! partition 0 is applied to the others, unless one of them has had the queue and has it no more:
//! then its deletion is continued.

use std::collections::{BTreeMap, BTreeSet};

use crate::core::command::Command;
use crate::core::state::{CALLBACKS, Queue, State};
use crate::error::QueueError;
use crate::model::QueueSettings;
use crate::worker::queues::Queues;

/// A queue and the steps that repair it.
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
    /// Whether tasks or schedules of it have another than the default priority.
    pub has_priorities: bool,
    /// Steps to be done, each with its partition, in this order.
    left: Vec<(usize, RepairStep)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RepairStep {
    Put,
    SetFlow,
    Delete,
}

/// Every queue of any partition, and the steps that repair it. A partition that could not be opened
/// is left out: its steps are done at a later start.
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
    // Every partition creates the callbacks' queue by itself.
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
    /// Does the repair steps of a queue.
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
