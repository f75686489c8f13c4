//! Subscriptions to changes of tasks.

use std::sync::Arc;

use crate::core::entry::TaskState;
use crate::error::QueueError;
use crate::worker::queues::Queues;
use crate::worker::sinks::ChangeSink;
use crate::worker::watch::Subscription;
use egret_base::{Limit, TenantShare};

impl Queues {
    /// Delivers to `sink` every change from now on of tasks in `queues` (empty: all of the
    /// tenant's) that enter one of `states` (empty: any).
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
            names.insert(self.require_queue(tenant, name)?.name.clone());
        }
        let mask = states.iter().fold(0, |mask, state| mask | 1 << *state as u8);
        let config = &self.inner.config;
        let share = TenantShare::new(
            Limit::new("queue.watchers_max", u64::from(config.watchers_max)),
            Limit::new("queue.tenant_watchers_max", u64::from(config.tenant_watchers_max)),
        );
        // A partition that is restarted later delivers only to subscriptions made from then on.
        for partition in self.inner.running_partitions()? {
            let subscription = Subscription {
                tenant: tenant.into(),
                queues: names.clone(),
                states: if mask == 0 { u8::MAX } else { mask },
                sink: sink.clone(),
            };
            let reply =
                self.inner.run_in_turn(partition, move |turn| turn.subscribe(subscription, &share));
            reply.await??;
        }
        Ok(())
    }
}
