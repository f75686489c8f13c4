//! Queues by name: looking them up, making them, and changing their settings.
//!
//! A queue is created in partition 0 first and deleted there last. What a crash left undone in the
//! other partitions is completed at the next start.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use egret_base::sync::{read_lock, write_lock};
use egret_base::{Limit, TenantShare, condition};

use super::engine_state::unbroken;
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
    pub async fn queue(&self, tenant: &str, name: &str) -> Result<Arc<QueueHandle>, QueueError> {
        if let Some(known) = self.known_queue(tenant, name) {
            return Ok(known);
        }
        if !self.inner.config.create_on_demand {
            self.inner.running()?;
            return Err(QueueError::QueueNotFound {
                name: name.to_owned(),
            });
        }
        self.put_queue(tenant, name, &SettingsChange::default())
            .await
    }

    /// The queue of this name, which must exist.
    ///
    /// # Errors
    /// [`QueueError::QueueNotFound`].
    pub(crate) fn existing_queue(
        &self,
        tenant: &str,
        name: &str,
    ) -> Result<Arc<QueueHandle>, QueueError> {
        if let Some(known) = self.known_queue(tenant, name) {
            return Ok(known);
        }
        self.inner.running()?;
        Err(QueueError::QueueNotFound {
            name: name.to_owned(),
        })
    }

    /// The queue of this name, if there is one.
    pub fn known_queue(&self, tenant: &str, name: &str) -> Option<Arc<QueueHandle>> {
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
        let one_at_a_time = self.inner.making.clone().lock_owned().await;
        self.inner.require_all()?;
        let known = self.known_queue(tenant, name);
        let mut settings = known
            .as_ref()
            .map_or_else(QueueSettings::default, |queue| (*queue.settings()).clone());
        change.apply(&mut settings)?;
        if known.is_none() {
            let config = &self.inner.config;
            let share = TenantShare::new(
                Limit::new("queue.queues_max", u64::from(config.queues_max)),
                Limit::new(
                    "queue.tenant_queues_max",
                    u64::from(config.tenant_queues_max),
                ),
            );
            let (all, own) = self.count_queues(tenant);
            share.check(all, own, 1)?;
        }
        let (queues, tenant, name) = (self.clone(), tenant.to_owned(), name.to_owned());
        unbroken(async move {
            let _one_at_a_time = one_at_a_time;
            queues.define_all(known, &tenant, &name, settings).await
        })
        .await
    }

    /// Defines a queue in every partition.
    async fn define_all(
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
            self.note_leased(id).await?;
        }
        for partition in 0..self.inner.partitions()?.len() {
            let defined = self.define(partition, id, tenant, name, &settings).await;
            if let Err(error) = defined {
                if known.is_none() {
                    self.undefine(id, partition + 1).await;
                }
                return Err(error);
            }
        }
        self.inner.limits.reconsider(id);
        for partition in 0..self.inner.partitions()?.len() {
            self.inner.tell(partition, Submission::Consider(id))?;
        }
        if let Some(queue) = known {
            queue.set_settings(settings);
            return Ok(queue);
        }
        let queue = Arc::new(QueueHandle::new(id, tenant, name, settings));
        self.note_handle(queue.clone());
        Ok(queue)
    }

    /// Publishes how many tasks of a queue are leased in each partition, before a new limit takes
    /// effect in one of them.
    async fn note_leased(&self, id: u32) -> Result<(), QueueError> {
        for partition in 0..self.inner.partitions()?.len() {
            let limits = self.inner.limits.clone();
            let asked = self.inner.ask(partition, move |turn| {
                let row = turn.state.queue_with(id);
                let leased = row.map_or(0, |row| row.lists[TaskState::Leased as usize].len);
                limits.note(id, partition, leased);
            });
            asked.await?;
        }
        Ok(())
    }

    /// Deletes a queue from the first partitions after a failed creation.
    async fn undefine(&self, id: u32, partitions: usize) {
        for partition in (0..partitions).rev() {
            let asked = self.inner.ask(partition, move |turn| {
                turn.run(&Command::DeleteQueue { queue: id })
            });
            if let Err(error) = asked.await {
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
        let own = queues.get(tenant).map_or(0, HashMap::len);
        (all as u64, own as u64)
    }

    /// Defines a queue in a partition. Each keeps its share of the tasks that have ended.
    pub(crate) async fn define(
        &self,
        partition: usize,
        id: u32,
        tenant: &str,
        name: &str,
        settings: &QueueSettings,
    ) -> Result<(), QueueError> {
        let (tenant, name) = (tenant.to_owned(), name.to_owned());
        let settings = settings.clone();
        let put = self.inner.ask(partition, move |turn| {
            turn.run(&Command::PutQueue {
                queue: id,
                tenant: &tenant,
                name: &name,
                settings: Box::new(settings),
            })
        });
        Ok(put.await??)
    }

    /// Registers the handle of a queue under its name.
    pub(crate) fn note_handle(&self, queue: Arc<QueueHandle>) {
        let mut queues = write_lock(&self.inner.queues);
        let of_tenant = queues.entry(queue.tenant.clone()).or_default();
        of_tenant.insert(queue.name.clone(), queue);
    }
}
