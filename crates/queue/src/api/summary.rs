//! State of the engine, summed over all tenants.

use crate::core::entry::TaskState;
use crate::core::state::{CALLBACK_QUEUE, StateCounts};
use crate::error::QueueError;
use crate::worker::queues::Queues;

/// State of the engine, as far as its partitions answer.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Queues of all tenants.
    pub queues: u64,
    /// Tasks by state, in the order of [`TaskState::ALL`].
    pub counts: StateCounts,
    /// Age of the task that has been ready for longest, in milliseconds.
    pub oldest_ready_ms: u64,
    /// Number of partitions of the queue.
    pub partitions: u64,
    /// Number of partitions that do not run.
    pub partitions_stopped: u64,
}

impl Summary {
    /// Tasks in a state.
    pub fn count(&self, state: TaskState) -> u64 {
        self.counts[state as usize]
    }
}

impl Queues {
    /// State of the engine. A failed partition does not hide what the others have.
    ///
    /// # Errors
    /// When the engine is not running, or a partition that runs does not answer: its inbox is full,
    /// say.
    pub async fn summary(&self) -> Result<Summary, QueueError> {
        let partitions = self.inner.partitions()?.len();
        let mut sum = Summary { partitions: partitions as u64, ..Summary::default() };
        for partition in 0..partitions {
            let reply = self.inner.run_in_turn(partition, |turn| {
                let now_ms = turn.now.as_millis_unsigned();
                let mut part = Summary::default();
                for (_, queue) in turn.state.queues().filter(|(id, _)| *id != CALLBACK_QUEUE) {
                    part.queues += 1;
                    part.add(&queue.counts());
                    let oldest = queue.oldest_ready_ms(turn.state);
                    let age_ms = oldest.map_or(0, |since| now_ms.saturating_sub(since));
                    part.oldest_ready_ms = part.oldest_ready_ms.max(age_ms);
                }
                part
            });
            sum.add_partition(reply.await)?;
        }
        Ok(sum)
    }
}

impl Summary {
    /// Adds the state of a partition, or that it has failed.
    fn add_partition(&mut self, part: Result<Self, QueueError>) -> Result<(), QueueError> {
        match part {
            Ok(part) => {
                // Every partition knows every queue.
                self.queues = self.queues.max(part.queues);
                self.add(&part.counts);
                self.oldest_ready_ms = self.oldest_ready_ms.max(part.oldest_ready_ms);
            }
            Err(error) if error.failed_partition().is_some() => self.partitions_stopped += 1,
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn add(&mut self, counts: &StateCounts) {
        for (sum, count) in self.counts.iter_mut().zip(counts) {
            *sum += count;
        }
    }
}

#[cfg(test)]
mod tests;
