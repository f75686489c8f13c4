//! Watching tasks change.

use std::sync::Arc;

use super::Queues;
use crate::core::entry::TaskState;
use crate::error::QueueError;
use crate::model::TaskId;
use crate::worker::watch::Subscription;
use egret_base::TenantShare;

/// A task came into a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskChange {
    /// Which task.
    pub id: TaskId,
    /// Its queue's name.
    pub queue: Box<str>,
    /// The state.
    pub state: TaskState,
    /// When, in Unix milliseconds.
    pub at_ms: u64,
    /// Attempts begun.
    pub attempt: u16,
}

/// Somebody who watches. Called on a partition's thread: must not block, and must bound what it keeps.
pub trait ChangeSink: Send + Sync {
    /// Changes of one partition, in the order in which they happened.
    fn changed(&self, changes: &[TaskChange]);

    /// There will be no more of one partition: it has ended.
    fn ended(&self, error: QueueError);

    /// Whether nobody watches any longer.
    fn is_gone(&self) -> bool;
}

impl Queues {
    /// Tells `sink` every change from now on of tasks in `queues` (empty: all of the tenant's) that come
    /// into one of `states` (empty: any).
    ///
    /// # Errors
    /// [`QueueError::QueueNotFound`]; [`QueueError::Limit`] for one subscriber too many.
    pub async fn watch(
        &self,
        tenant: &str,
        queues: &[String],
        states: &[TaskState],
        sink: Arc<dyn ChangeSink>,
    ) -> Result<(), QueueError> {
        let mut names = std::collections::BTreeSet::new();
        for name in queues {
            names.insert(self.existing_queue(tenant, name)?.name.clone());
        }
        let mask = states
            .iter()
            .fold(0, |mask, state| mask | 1 << *state as u8);
        let config = &self.inner.config;
        let share = TenantShare::new(
            ("queue.watchers_max", u64::from(config.watchers_max)),
            (
                "queue.tenant_watchers_max",
                u64::from(config.tenant_watchers_max),
            ),
        );
        // One that starts again later tells those who subscribe then.
        for partition in self.inner.running()? {
            let subscription = Subscription {
                tenant: tenant.into(),
                queues: names.clone(),
                states: if mask == 0 { u8::MAX } else { mask },
                sink: sink.clone(),
            };
            let asked = self
                .inner
                .ask(partition, move |turn| turn.subscribe(subscription, &share));
            asked.await??;
        }
        Ok(())
    }
}
