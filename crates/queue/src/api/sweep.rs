//! Operations on many tasks of a queue, in several turns so that other requests get theirs in
//! between.

use super::tasks::requeue_task;
use crate::error::QueueError;
use crate::model::TaskState;
use crate::worker::queues::Queues;

/// Tasks that one turn deletes or requeues.
const TASKS_PER_TURN: u32 = 1_000;

impl Queues {
    /// Deletes the tasks of a queue in some states (empty: all but leased ones). Returns how many.
    ///
    /// # Errors
    /// [`QueueError::QueueNotFound`].
    pub async fn purge(
        &self,
        tenant: &str,
        name: &str,
        states: &[TaskState],
    ) -> Result<u64, QueueError> {
        let queue = self.require_queue(tenant, name)?.id;
        let mask = states.iter().fold(0, |mask, state| mask | 1 << *state as u8);
        let states = if mask == 0 { u8::MAX } else { mask };
        let mut deleted = 0;
        for partition in 0..self.inner.partitions()?.len() {
            loop {
                let reply = self
                    .inner
                    .run_in_turn(partition, move |turn| turn.purge(queue, states, TASKS_PER_TURN));
                let purged = reply.await??;
                deleted += u64::from(purged.tasks);
                if !purged.has_more {
                    break;
                }
            }
        }
        Ok(deleted)
    }

    /// Requeues dead tasks of a queue, the oldest first, at most `limit`; zero: all. Returns how
    /// many.
    ///
    /// # Errors
    /// [`QueueError::QueueNotFound`]. [`QueueError::Limit`] when there is no room for the callback
    /// of a task; those before it are requeued.
    pub async fn requeue_dead(
        &self,
        tenant: &str,
        name: &str,
        limit: u64,
    ) -> Result<u64, QueueError> {
        let queue = self.require_queue(tenant, name)?.id;
        let mut remaining = if limit == 0 { u64::MAX } else { limit };
        let shares = *self.inner.task_shares(self.inner.partitions()?.len());
        let mut requeued = 0;
        for partition in 0..self.inner.partitions()?.len() {
            let mut from = Some(0);
            while let Some(position) = from.filter(|_| remaining > 0) {
                let page_max = remaining.min(u64::from(TASKS_PER_TURN)) as usize;
                let reply = self.inner.run_in_turn(partition, move |turn| {
                    let page =
                        turn.state.list_page(queue, TaskState::Dead, position, page_max, |_| true);
                    let entries = page.slots.iter().map(|place| *turn.state.entry(*place));
                    (entries.collect::<Vec<_>>(), page.next)
                });
                let (entries, next) = reply.await?;
                let keys = self.ordering_keys(partition, entries).await?;
                let asked = self.inner.run_in_turn(partition, move |turn| {
                    let mut count = 0;
                    for (number, key) in keys {
                        match requeue_task(turn, &shares, number, key) {
                            Ok(()) => count += 1,
                            Err(error @ QueueError::Limit(_)) => return Err(error),
                            // It was deleted or requeued meanwhile.
                            Err(_) => {}
                        }
                    }
                    Ok(count)
                });
                let count: Result<u64, QueueError> = asked.await?;
                let count = count?;
                requeued += count;
                remaining = remaining.saturating_sub(count);
                from = next;
            }
        }
        Ok(requeued)
    }
}
