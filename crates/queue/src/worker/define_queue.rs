//! Queues by name: looking them up, making them, and changing their settings.
//!
//! A queue is created in partition 0 first and deleted there last. What a crash left undone in the
//! other partitions is completed at the next start.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use egret_base::sync::{read_lock, write_lock};
use egret_base::{Limit, TenantShare, condition};

use super::engine_state::run_to_completion;
use super::limits::is_limited;
use super::name::check_name;
use super::queue_handle::QueueHandle;
use super::queues::Queues;
use super::settings_change::SettingsChange;
use super::submission::Submission;
use crate::core::command::Command;
use crate::error::QueueError;
use crate::model::{QueueSettings, TaskState};

impl Queues {
    /// The queue of this name, created if it does not exist and the settings allow it.
    ///
    /// # Errors
    /// [`QueueError::QueueNotFound`], and those of [`Queues::put_queue`].
    pub async fn get_or_create_queue(
        &self,
        tenant: &str,
        name: &str,
    ) -> Result<Arc<QueueHandle>, QueueError> {
        if let Some(known) = self.find_queue(tenant, name) {
            return Ok(known);
        }
        if !self.inner.config.create_on_demand {
            self.inner.running_partitions()?;
            return Err(QueueError::QueueNotFound { name: name.to_owned() });
        }
        self.put_queue(tenant, name, &SettingsChange::default()).await
    }

    /// The queue of this name, which must exist.
    ///
    /// # Errors
    /// [`QueueError::QueueNotFound`].
    pub(crate) fn require_queue(
        &self,
        tenant: &str,
        name: &str,
    ) -> Result<Arc<QueueHandle>, QueueError> {
        if let Some(known) = self.find_queue(tenant, name) {
            return Ok(known);
        }
        self.inner.running_partitions()?;
        Err(QueueError::QueueNotFound { name: name.to_owned() })
    }

    /// The queue of this name, if there is one.
    pub fn find_queue(&self, tenant: &str, name: &str) -> Option<Arc<QueueHandle>> {
        let queues = read_lock(&self.inner.queues);
        queues.get(tenant)?.get(name).cloned()
    }

    /// Creates a queue, or changes the settings of one that exists.
    ///
    /// # Errors
    /// [`QueueError::Invalid`] for a name or a setting; [`QueueError::Limit`] for one queue too
    /// many.
    pub async fn put_queue(
        &self,
        tenant: &str,
        name: &str,
        change: &SettingsChange,
    ) -> Result<Arc<QueueHandle>, QueueError> {
        check_name(name)?;
        let definition_guard = self.inner.definition_lock.clone().lock_owned().await;
        self.inner.require_all_running()?;
        let known = self.find_queue(tenant, name);
        let mut settings =
            known.as_ref().map_or_else(QueueSettings::default, |queue| (*queue.settings()).clone());
        change.apply(&mut settings)?;
        if known.is_none() {
            let config = &self.inner.config;
            let share = TenantShare::new(
                Limit::new("queue.queues_max", u64::from(config.queues_max)),
                Limit::new("queue.tenant_queues_max", u64::from(config.tenant_queues_max)),
            );
            let (all, tenant_count) = self.count_queues(tenant);
            share.check(all, tenant_count, 1)?;
        }
        let (queues, tenant, name) = (self.clone(), tenant.to_owned(), name.to_owned());
        run_to_completion(async move {
            let _definition_guard = definition_guard;
            queues.define_in_all_partitions(known, &tenant, &name, settings).await
        })
        .await
    }

    /// Defines a queue in every partition.
    async fn define_in_all_partitions(
        &self,
        known: Option<Arc<QueueHandle>>,
        tenant: &str,
        name: &str,
        settings: QueueSettings,
    ) -> Result<Arc<QueueHandle>, QueueError> {
        let id = match &known {
            Some(queue) => queue.id,
            // The id is never given to another queue, even if this fails.
            None => self.inner.next_queue.fetch_add(1, Ordering::AcqRel) as u32,
        };
        if known.is_some() && is_limited(&settings) {
            self.publish_leased_counts(id).await?;
        }
        for partition in 0..self.inner.partitions()?.len() {
            let defined = self.define_in_partition(partition, id, tenant, name, &settings).await;
            if let Err(error) = defined {
                if known.is_none() {
                    self.undefine(id, partition + 1).await;
                }
                return Err(error);
            }
        }
        self.inner.limits.clear_refused(id);
        for partition in 0..self.inner.partitions()?.len() {
            self.inner.submit_always(partition, Submission::ReconsiderQueue(id))?;
        }
        if let Some(queue) = known {
            queue.set_settings(settings);
            return Ok(queue);
        }
        let queue = Arc::new(QueueHandle::new(id, tenant, name, settings));
        self.register_handle(queue.clone());
        Ok(queue)
    }

    /// Publishes how many tasks of a queue are leased in each partition, before a new limit takes
    /// effect in one of them.
    async fn publish_leased_counts(&self, id: u32) -> Result<(), QueueError> {
        for partition in 0..self.inner.partitions()?.len() {
            let limits = self.inner.limits.clone();
            let reply = self.inner.run_in_turn(partition, move |turn| {
                let row = turn.state.queue_by_id(id);
                let leased = row.map_or(0, |row| row.lists[TaskState::Leased as usize].len);
                limits.set_leased(id, partition, leased);
            });
            reply.await?;
        }
        Ok(())
    }

    /// Deletes a queue from the first partitions after a failed creation.
    async fn undefine(&self, id: u32, partitions: usize) {
        for partition in (0..partitions).rev() {
            let reply = self
                .inner
                .run_in_turn(partition, move |turn| turn.run(&Command::DeleteQueue { queue: id }));
            if let Err(error) = reply.await {
                let reason = format_args!("queue {id} in partition {partition}: {error}");
                let message = "cannot undo the failed creation of a queue";
                condition::occur("queue_changes_incomplete", "queues", reason, message);
            }
        }
    }

    /// Numbers of queues of all tenants, and of one.
    fn count_queues(&self, tenant: &str) -> (u64, u64) {
        let queues = read_lock(&self.inner.queues);
        let all = queues.values().map(HashMap::len).sum::<usize>();
        let tenant_count = queues.get(tenant).map_or(0, HashMap::len);
        (all as u64, tenant_count as u64)
    }

    /// Defines a queue in a partition. Each keeps its share of the tasks that have ended.
    pub(crate) async fn define_in_partition(
        &self,
        partition: usize,
        id: u32,
        tenant: &str,
        name: &str,
        settings: &QueueSettings,
    ) -> Result<(), QueueError> {
        let (tenant, name) = (tenant.to_owned(), name.to_owned());
        let settings = settings.clone();
        let reply = self.inner.run_in_turn(partition, move |turn| {
            turn.run(&Command::PutQueue {
                queue: id,
                tenant: &tenant,
                name: &name,
                settings: Box::new(settings),
            })
        });
        Ok(reply.await??)
    }

    /// Registers the handle of a queue under its name.
    pub(crate) fn register_handle(&self, queue: Arc<QueueHandle>) {
        let mut queues = write_lock(&self.inner.queues);
        let tenant_queues = queues.entry(queue.tenant.clone()).or_default();
        tenant_queues.insert(queue.name.clone(), queue);
    }
}
