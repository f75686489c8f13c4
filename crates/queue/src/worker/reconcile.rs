//! Reconciles the queues of the partitions at a start: a crash may have left a change in some of
//! them only.
//!
//! A queue is created and changed in partition 0 first, and deleted there last. So the state of
//! partition 0 is applied to the others, unless one of them has had the queue and has it no more:
//! then its deletion is continued.

use std::collections::{BTreeMap, BTreeSet};

use crate::core::command::Command;
use crate::core::state::{CALLBACK_QUEUE, Queue, State};
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
    pub is_deleted: bool,
    /// Whether tasks or schedules of it have another than the default priority.
    pub has_priorities: bool,
    /// Steps to be done, each with its partition, in this order.
    repairs: Vec<(usize, RepairStep)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RepairStep {
    Put,
    SetFlags,
    Delete,
}

/// Every queue of any partition, and the steps that repair it. A partition that could not be opened
/// is left out: its steps are done at a later start.
pub(super) fn collect_queues<'a>(
    partitions: impl Iterator<Item = (usize, &'a State)>,
) -> Vec<QueueEntry> {
    let partitions: Vec<(usize, &State)> = partitions.collect();
    let mut queues_by_id: BTreeMap<u32, &Queue> = BTreeMap::new();
    for (_, state) in &partitions {
        for (id, queue) in state.queues() {
            queues_by_id.entry(id).or_insert(queue);
        }
    }
    let has_priorities: BTreeSet<u32> =
        (partitions.iter()).flat_map(|(_, state)| state.queues_with_priorities()).collect();
    // Every partition creates the callbacks' queue by itself.
    queues_by_id.remove(&CALLBACK_QUEUE);
    let entries = queues_by_id.into_iter().map(|(id, queue)| {
        let has_lost = |(_, state): &(usize, &State)| {
            state.queue_by_id(id).is_none() && id < state.next_queue_id()
        };
        let is_deleted = partitions.iter().any(has_lost);
        QueueEntry {
            id,
            tenant: queue.tenant.to_string(),
            name: queue.name.to_string(),
            settings: queue.settings.clone(),
            paused: queue.paused,
            draining: queue.draining,
            is_deleted,
            has_priorities: has_priorities.contains(&id),
            repairs: plan_repairs(&partitions, id, queue, is_deleted),
        }
    });
    entries.collect()
}

fn plan_repairs(
    partitions: &[(usize, &State)],
    id: u32,
    queue: &Queue,
    is_deleted: bool,
) -> Vec<(usize, RepairStep)> {
    let mut repairs = Vec::new();
    for (partition, state) in partitions {
        let (partition, local_queue) = (*partition, state.queue_by_id(id));
        if is_deleted {
            repairs.extend(local_queue.map(|_| (partition, RepairStep::Delete)));
            continue;
        }
        if local_queue.is_none_or(|here| here.settings != queue.settings) {
            repairs.push((partition, RepairStep::Put));
        }
        let flags = local_queue.map_or((false, false), |here| (here.paused, here.draining));
        if flags != (queue.paused, queue.draining) {
            repairs.push((partition, RepairStep::SetFlags));
        }
    }
    if is_deleted {
        repairs.reverse();
    }
    repairs
}

impl Queues {
    /// Does the repair steps of a queue.
    pub(super) async fn repair_queue(&self, entry: &QueueEntry) -> Result<(), QueueError> {
        let queue = entry.id;
        for (partition, step) in &entry.repairs {
            match step {
                RepairStep::Put => {
                    let (tenant, name) = (&entry.tenant, &entry.name);
                    self.define_in_partition(*partition, queue, tenant, name, &entry.settings)
                        .await?;
                }
                RepairStep::SetFlags => {
                    let command =
                        Command::SetFlow { queue, paused: entry.paused, draining: entry.draining };
                    let reply = self.inner.run_in_turn(*partition, move |turn| turn.run(&command));
                    reply.await??;
                }
                RepairStep::Delete => {
                    let delete = Command::DeleteQueue { queue };
                    let asked = self.inner.run_in_turn(*partition, move |turn| turn.run(&delete));
                    asked.await??;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
