//! Queues: looking at them, pausing and deleting them.
//!
//! A queue is created in partition 0 first and deleted there last. What a crash left undone in the
//! other partitions is completed at the next start.

use egret_base::sync::{read_lock, write_lock};

use crate::core::command::{Command, Refusal};
use crate::core::state::StateCounts;
use crate::error::QueueError;
use crate::model::{QueueSettings, TaskState};
use crate::worker::engine_state::run_to_completion;
use crate::worker::queues::Queues;
use crate::worker::submission::Submission;

/// A queue as operators see it.
#[derive(Clone, Debug)]
pub struct QueueView {
    /// Name of the queue, unique in its tenant.
    pub name: String,
    /// Current settings of the queue.
    pub settings: QueueSettings,
    /// Whether no task is handed out.
    pub paused: bool,
    /// Whether no new task is accepted.
    pub draining: bool,
    /// Time of creation, in Unix milliseconds.
    pub created_ms: u64,
    /// Its tasks by state, in the order of [`TaskState::ALL`].
    pub counts: StateCounts,
    /// Age of the task that has been ready for longest, in milliseconds.
    pub oldest_ready_ms: u64,
    /// Partitions that have failed: their tasks are not counted.
    pub unavailable: Vec<usize>,
}

impl QueueView {
    /// Tasks in a state.
    pub fn count(&self, state: TaskState) -> u64 {
        self.counts[state as usize]
    }
}

impl Queues {
    /// Every queue of a tenant, in order of names.
    ///
    /// # Errors
    /// When no partition is running.
    pub async fn list_queues(&self, tenant: &str) -> Result<Vec<QueueView>, QueueError> {
        self.inner.running_partitions()?;
        let mut names: Vec<String> = {
            let queues = read_lock(&self.inner.queues);
            let tenant_queues = queues.get(tenant).into_iter().flat_map(|known| known.keys());
            tenant_queues.map(ToString::to_string).collect()
        };
        names.sort_unstable();
        let mut views = Vec::with_capacity(names.len());
        for name in names {
            match self.view_queue(tenant, &name).await {
                Ok(view) => views.push(view),
                // It was deleted meanwhile.
                Err(QueueError::QueueNotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(views)
    }

    /// Pauses or resumes a queue, and starts or ends its draining; `None` leaves a flag unchanged.
    ///
    /// # Errors
    /// [`QueueError::QueueNotFound`].
    pub async fn set_queue_flags(
        &self,
        tenant: &str,
        name: &str,
        paused: Option<bool>,
        draining: Option<bool>,
    ) -> Result<(), QueueError> {
        let _definition_guard = self.inner.definition_lock.lock().await;
        let queue = self.require_queue(tenant, name)?.id;
        self.inner.require_all_running()?;
        for partition in 0..self.inner.partitions()?.len() {
            let reply = self.inner.run_in_turn(partition, move |turn| {
                let row = turn.state.queue_by_id(queue).ok_or(Refusal::QueueUnknown)?;
                let (paused, draining) =
                    (paused.unwrap_or(row.paused), draining.unwrap_or(row.draining));
                turn.run(&Command::SetFlow { queue, paused, draining })
            });
            reply.await??;
            self.inner.submit_always(partition, Submission::ReconsiderQueue(queue))?;
        }
        Ok(())
    }

    /// Deletes a queue; with tasks in it, or schedules that make tasks for it, only when `force`
    /// says so, and then with all of them.
    ///
    /// # Errors
    /// [`QueueError::QueueNotFound`] and [`QueueError::QueueInUse`].
    pub async fn delete_queue(
        &self,
        tenant: &str,
        name: &str,
        force: bool,
    ) -> Result<(), QueueError> {
        let definition_guard = self.inner.definition_lock.clone().lock_owned().await;
        let queue = self.require_queue(tenant, name)?;
        self.inner.require_all_running()?;
        let tasks: u64 = self.view_queue(tenant, name).await?.counts.iter().sum();
        let schedules = self.count_schedules_of_queue(queue.id).await?;
        if tasks + schedules > 0 && !force {
            return Err(QueueError::QueueInUse {
                name: name.to_owned(),
                what: format!("{tasks} tasks and {schedules} schedules"),
            });
        }
        let queues = self.clone();
        run_to_completion(async move {
            let _definition_guard = definition_guard;
            queues.delete_schedules_of_queue(queue.id).await?;
            // Lookups by name fail from here on; partition 0 deletes the queue last.
            queues.remove_handle(&queue.tenant, &queue.name);
            queue.set_deleted();
            let id = queue.id;
            for partition in (0..queues.inner.partitions()?.len()).rev() {
                let reply = queues.inner.run_in_turn(partition, move |turn| {
                    turn.run(&Command::DeleteQueue { queue: id })
                });
                reply.await??;
            }
            Ok(())
        })
        .await
    }

    fn remove_handle(&self, tenant: &str, name: &str) {
        let mut queues = write_lock(&self.inner.queues);
        if let Some(tenant_queues) = queues.get_mut(tenant) {
            tenant_queues.remove(name);
        }
    }

    /// A queue with its counts.
    ///
    /// # Errors
    /// [`QueueError::QueueNotFound`].
    pub async fn view_queue(&self, tenant: &str, name: &str) -> Result<QueueView, QueueError> {
        let not_found = || QueueError::QueueNotFound { name: name.to_owned() };
        self.inner.running_partitions()?;
        let id = self.find_queue(tenant, name).ok_or_else(not_found)?.id;
        let mut total: Option<QueueView> = None;
        let mut unavailable = Vec::new();
        for partition in 0..self.inner.partitions()?.len() {
            let reply = self.inner.run_in_turn(partition, move |turn| {
                let state = &*turn.state;
                let now_ms = turn.now.as_millis_unsigned();
                let row = state.queue_by_id(id)?;
                let oldest = row.oldest_ready_ms(state);
                Some(QueueView {
                    name: row.name.to_string(),
                    settings: row.settings.clone(),
                    paused: row.paused,
                    draining: row.draining,
                    created_ms: row.created_ms,
                    counts: row.counts(),
                    oldest_ready_ms: oldest.map_or(0, |since| now_ms.saturating_sub(since)),
                    unavailable: Vec::new(),
                })
            });
            let part = match reply.await {
                Err(error) if error.failed_partition().is_some() => {
                    unavailable.push(partition);
                    continue;
                }
                part => part?.ok_or_else(not_found)?,
            };
            match &mut total {
                None => total = Some(part),
                Some(whole) => {
                    for (sum, count) in whole.counts.iter_mut().zip(part.counts) {
                        *sum += count;
                    }
                    whole.oldest_ready_ms = whole.oldest_ready_ms.max(part.oldest_ready_ms);
                }
            }
        }
        let mut whole = total.ok_or_else(not_found)?;
        whole.unavailable = unavailable;
        Ok(whole)
    }
}
