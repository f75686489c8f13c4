//! Queues: making, changing, looking at and deleting them.
//!
//! Partition 0 knows every queue first and loses it last; the others follow, and what a crash left
//! undone between them is done at the next start.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use egret_base::{TenantShare, condition};

use super::name::check_name;
use super::produce::{check_attempts, check_retry};
use super::submit::Submission;
use super::work::check_lease;
use super::{QueueHandle, Queues, unbroken};
use crate::core::command::{Command, Refusal};
use crate::core::state::Counts;
use crate::error::QueueError;
use crate::model::{QueueSettings, Retention, RetryPolicy, TaskState};
use crate::worker::limits::is_limited;

/// Tasks of a queue that may be handed out in a second, where that is bounded.
pub const RATE_PER_SECOND: std::ops::RangeInclusive<f64> = 0.001..=1e9;

/// What is to change of a queue's settings; what is absent stays.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SettingsChange {
    /// See [`QueueSettings`].
    pub max_attempts: Option<u32>,
    /// See [`QueueSettings`].
    pub retry: Option<RetryPolicy>,
    /// See [`QueueSettings`].
    pub lease_ms: Option<u64>,
    /// See [`QueueSettings`].
    pub timeout_ms: Option<u64>,
    /// See [`QueueSettings`].
    pub concurrency: Option<u32>,
    /// See [`QueueSettings`].
    pub key_concurrency: Option<u32>,
    /// See [`QueueSettings`].
    pub rate_per_second: Option<f64>,
    /// See [`QueueSettings`].
    pub rate_burst: Option<u32>,
    /// See [`QueueSettings`].
    pub completed: Option<Retention>,
    /// See [`QueueSettings`].
    pub dead: Option<Retention>,
    /// See [`QueueSettings`].
    pub cancelled: Option<Retention>,
    /// See [`QueueSettings`].
    pub unique_window_ms: Option<u64>,
    /// See [`QueueSettings`].
    pub aging_ms: Option<u64>,
}

impl SettingsChange {
    fn apply(&self, settings: &mut QueueSettings) -> Result<(), QueueError> {
        if let Some(attempts) = self.max_attempts {
            settings.max_attempts = check_attempts(attempts)?;
        }
        if let Some(retry) = self.retry {
            check_retry(&retry)?;
            settings.retry = retry;
        }
        if let Some(lease_ms) = self.lease_ms {
            check_lease(lease_ms)?;
            settings.lease_ms = lease_ms;
        }
        if let Some(rate) = self.rate_per_second {
            if !(rate == 0.0 || RATE_PER_SECOND.contains(&rate)) {
                return Err(QueueError::Invalid {
                    what: "rate_per_second",
                    reason: format!("{rate} is neither 0 nor from 0.001 to 1000000000"),
                });
            }
            settings.rate_per_second = rate;
        }
        fn set<T: Copy>(setting: &mut T, asked: Option<T>) {
            if let Some(asked) = asked {
                *setting = asked;
            }
        }
        set(&mut settings.timeout_ms, self.timeout_ms);
        set(&mut settings.concurrency, self.concurrency);
        set(&mut settings.key_concurrency, self.key_concurrency);
        set(&mut settings.rate_burst, self.rate_burst);
        set(&mut settings.completed, self.completed);
        set(&mut settings.dead, self.dead);
        set(&mut settings.cancelled, self.cancelled);
        set(&mut settings.unique_window_ms, self.unique_window_ms);
        set(&mut settings.aging_ms, self.aging_ms);
        Ok(())
    }
}

/// A queue as people see it.
#[derive(Clone, Debug)]
pub struct QueueView {
    /// Its name.
    pub name: String,
    /// What it does.
    pub settings: QueueSettings,
    /// Nothing is handed out.
    pub paused: bool,
    /// Nothing is taken in.
    pub draining: bool,
    /// Unix milliseconds.
    pub created_ms: u64,
    /// Its tasks by state, in the order of [`TaskState::ALL`].
    pub counts: Counts,
    /// For how long the task has been ready that has been so longest, in milliseconds.
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
    /// The queue of this name; one that does not exist is made where the settings say so.
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

    /// The queue of this name, which must be there.
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
        let queues = self
            .inner
            .queues
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        queues.get(tenant)?.get(name).cloned()
    }

    /// Makes a queue, or changes the settings of one that exists.
    ///
    /// # Errors
    /// [`QueueError::Invalid`] for a name or a setting; [`QueueError::Limit`] for one queue too many.
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
                ("queue.queues_max", u64::from(config.queues_max)),
                (
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

    /// Tells every partition of a queue, `known` or new.
    async fn define_all(
        &self,
        known: Option<Arc<QueueHandle>>,
        tenant: &str,
        name: &str,
        settings: QueueSettings,
    ) -> Result<Arc<QueueHandle>, QueueError> {
        let id = match &known {
            Some(queue) => queue.id,
            // Whatever becomes of it, no other queue gets the same.
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

    /// Tells the limits of a queue how many of its tasks are leased in each partition, before a new limit
    /// is in force in one of them.
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

    /// Has the first partitions forget a queue that others have not heard of.
    async fn undefine(&self, id: u32, partitions: usize) {
        for partition in (0..partitions).rev() {
            let asked = self.inner.ask(partition, move |turn| {
                turn.run(&Command::DeleteQueue { queue: id })
            });
            if let Err(error) = asked.await {
                let reason = format_args!("queue {id} in partition {partition}: {error}");
                let message = "a queue that was not made is still known";
                condition::occur("queue_changes_incomplete", "queues", reason, message);
            }
        }
    }

    /// The queues of all tenants, and of one.
    fn count_queues(&self, tenant: &str) -> (u64, u64) {
        let queues = self
            .inner
            .queues
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        let all = queues.values().map(HashMap::len).sum::<usize>();
        let own = queues.get(tenant).map_or(0, HashMap::len);
        (all as u64, own as u64)
    }

    /// Tells a partition of a queue. Each keeps its share of the tasks that have ended.
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

    /// Every queue of a tenant, in order of names.
    ///
    /// # Errors
    /// When no partition is running.
    pub async fn list_queues(&self, tenant: &str) -> Result<Vec<QueueView>, QueueError> {
        self.inner.running()?;
        let mut names: Vec<String> = {
            let queues = self
                .inner
                .queues
                .read()
                .unwrap_or_else(PoisonError::into_inner);
            let of_tenant = queues
                .get(tenant)
                .into_iter()
                .flat_map(|known| known.keys());
            of_tenant.map(ToString::to_string).collect()
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

    /// Sets whether a queue hands out, whether it takes in; `None` leaves it as it is.
    ///
    /// # Errors
    /// [`QueueError::QueueNotFound`].
    pub async fn set_flow(
        &self,
        tenant: &str,
        name: &str,
        paused: Option<bool>,
        draining: Option<bool>,
    ) -> Result<(), QueueError> {
        let _one_at_a_time = self.inner.making.lock().await;
        let queue = self.existing_queue(tenant, name)?.id;
        self.inner.require_all()?;
        for partition in 0..self.inner.partitions()?.len() {
            let asked = self.inner.ask(partition, move |turn| {
                let row = turn.state.queue_with(queue);
                let row = row.ok_or(Refusal::QueueUnknown)?;
                let (paused, draining) = (
                    paused.unwrap_or(row.paused),
                    draining.unwrap_or(row.draining),
                );
                turn.run(&Command::SetFlow {
                    queue,
                    paused,
                    draining,
                })
            });
            asked.await??;
            self.inner.tell(partition, Submission::Consider(queue))?;
        }
        Ok(())
    }

    /// Deletes a queue; with tasks in it, or schedules that make tasks for it, only when `force` says so,
    /// and then with all of them.
    ///
    /// # Errors
    /// [`QueueError::QueueNotFound`] and [`QueueError::QueueInUse`].
    pub async fn delete_queue(
        &self,
        tenant: &str,
        name: &str,
        force: bool,
    ) -> Result<(), QueueError> {
        let one_at_a_time = self.inner.making.clone().lock_owned().await;
        let queue = self.existing_queue(tenant, name)?;
        self.inner.require_all()?;
        let tasks: u64 = self.view_queue(tenant, name).await?.counts.iter().sum();
        let schedules = self.count_schedules_of(queue.id).await?;
        if tasks + schedules > 0 && !force {
            return Err(QueueError::QueueInUse {
                name: name.to_owned(),
                what: format!("{tasks} tasks and {schedules} schedules"),
            });
        }
        let queues = self.clone();
        unbroken(async move {
            let _one_at_a_time = one_at_a_time;
            queues.delete_schedules_of(queue.id).await?;
            // Nobody finds it from here on; partition 0 forgets it last.
            queues.forget_handle(&queue.tenant, &queue.name);
            queue.set_deleted();
            let id = queue.id;
            for partition in (0..queues.inner.partitions()?.len()).rev() {
                let asked = queues.inner.ask(partition, move |turn| {
                    turn.run(&Command::DeleteQueue { queue: id })
                });
                asked.await??;
            }
            Ok(())
        })
        .await
    }

    /// From here on the queue is found by its name.
    pub(crate) fn note_handle(&self, queue: Arc<QueueHandle>) {
        let mut queues = self
            .inner
            .queues
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let of_tenant = queues.entry(queue.tenant.clone()).or_default();
        of_tenant.insert(queue.name.clone(), queue);
    }

    fn forget_handle(&self, tenant: &str, name: &str) {
        let mut queues = self
            .inner
            .queues
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(of_tenant) = queues.get_mut(tenant) {
            of_tenant.remove(name);
        }
    }

    /// A queue with its counts.
    ///
    /// # Errors
    /// [`QueueError::QueueNotFound`].
    pub async fn view_queue(&self, tenant: &str, name: &str) -> Result<QueueView, QueueError> {
        let not_found = || QueueError::QueueNotFound {
            name: name.to_owned(),
        };
        self.inner.running()?;
        let id = self.known_queue(tenant, name).ok_or_else(not_found)?.id;
        let mut whole: Option<QueueView> = None;
        let mut unavailable = Vec::new();
        for partition in 0..self.inner.partitions()?.len() {
            let asked = self.inner.ask(partition, move |turn| {
                let state = &*turn.state;
                let now_ms = turn.now.as_millis_unsigned();
                let row = state.queue_with(id)?;
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
            let part = match asked.await {
                Err(error) if error.failed_partition().is_some() => {
                    unavailable.push(partition);
                    continue;
                }
                part => part?.ok_or_else(not_found)?,
            };
            match &mut whole {
                None => whole = Some(part),
                Some(whole) => {
                    for (sum, count) in whole.counts.iter_mut().zip(part.counts) {
                        *sum += count;
                    }
                    whole.oldest_ready_ms = whole.oldest_ready_ms.max(part.oldest_ready_ms);
                }
            }
        }
        let mut whole = whole.ok_or_else(not_found)?;
        whole.unavailable = unavailable;
        Ok(whole)
    }
}
