//! Validates a chain: its size, and that its tasks do not wait for each other in a cycle.

use crate::error::QueueError;
use crate::model::TaskId;
use crate::worker::chain::ChainTask;

/// Refuses a chain that is too large: its tasks are kept in memory and written together.
pub(super) fn check_size(tasks: &[ChainTask<'_>], max_bytes: u64) -> Result<(), QueueError> {
    let member_bytes = |member: &ChainTask<'_>| {
        let task = &member.task;
        let tags = task.tags.iter().map(String::len);
        let metadata = task.metadata.iter();
        let metadata = metadata.map(|(name, value)| name.len() + value.len());
        let waits = task.after.len() + member.links.len();
        task.payload.len()
            + task.ordering_key.len()
            + task.unique_key.len()
            + task.callback_url.len()
            + task.traceparent.len()
            + task.tracestate.len()
            + tags.sum::<usize>()
            + metadata.sum::<usize>()
            + waits * size_of::<TaskId>()
    };
    let size_bytes = tasks.iter().map(member_bytes).sum::<usize>() as u64;
    if size_bytes > max_bytes {
        return Err(QueueError::TooLarge {
            what: "the chain",
            size_bytes,
            limit: "queue.chain_bytes_max",
            max_bytes,
        });
    }
    Ok(())
}

/// Indices of the tasks in an order in which each comes after those it waits for.
pub(super) fn sort_by_links(tasks: &[ChainTask<'_>]) -> Result<Vec<usize>, QueueError> {
    let mut missing: Vec<usize> = tasks.iter().map(|task| task.links.len()).collect();
    let mut followers = vec![Vec::new(); tasks.len()];
    for (index, task) in tasks.iter().enumerate() {
        for link in &task.links {
            followers[*link].push(index);
        }
    }
    let mut order: Vec<usize> = (0..tasks.len()).filter(|at| missing[*at] == 0).collect();
    let mut visited = 0;
    while let Some(place) = order.get(visited).copied() {
        visited += 1;
        for follower in &followers[place] {
            missing[*follower] -= 1;
            if missing[*follower] == 0 {
                order.push(*follower);
            }
        }
    }
    if order.len() < tasks.len() {
        return Err(QueueError::Invalid {
            what: "after",
            reason: "tasks of the request depend on each other in a cycle".to_owned(),
        });
    }
    Ok(order)
}
