//! Subscribers to changes of tasks: callers that wait for one to end, and watchers of queues.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use egret_base::{LimitExceeded, TenantShare};
use tokio::sync::oneshot;

use crate::core::entry::TaskState;
use crate::core::state::{State, StateChange};
use crate::error::QueueError;
use crate::worker::sinks::{ChangeSink, TaskChange};

/// A subscription to changes of a tenant's tasks.
pub(crate) struct Subscription {
    /// Tenant that owns the queues.
    pub tenant: Box<str>,
    /// Names of queues, as one may be created again; empty: all of the tenant's.
    pub queues: BTreeSet<Box<str>>,
    /// A bit for each state.
    pub states: u8,
    pub sink: Arc<dyn ChangeSink>,
}

#[derive(Default)]
pub(crate) struct Watchers {
    waiting: BTreeMap<u64, Vec<oneshot::Sender<()>>>,
    subscribed: Vec<Subscription>,
}

impl Watchers {
    /// Whether there is a waiting caller or a subscription.
    pub(crate) fn are_there(&self) -> bool {
        !self.waiting.is_empty() || !self.subscribed.is_empty()
    }

    /// Notifies a caller when the task with this number has ended or is deleted.
    pub(crate) fn wait(&mut self, number: u64, tell: oneshot::Sender<()>) {
        let waiting = self.waiting.entry(number).or_default();
        waiting.retain(|other| !other.is_closed());
        waiting.push(tell);
    }

    /// Adds a subscription, within the limits on their number.
    pub(crate) fn subscribe(
        &mut self,
        subscription: Subscription,
        share: &TenantShare,
    ) -> Result<(), LimitExceeded> {
        self.subscribed.retain(|one| !one.sink.is_gone());
        let own = self
            .subscribed
            .iter()
            .filter(|one| one.tenant == subscription.tenant)
            .count();
        share.check(self.subscribed.len() as u64, own as u64, 1)?;
        self.subscribed.push(subscription);
        Ok(())
    }

    /// Ends all subscriptions. A caller that waits for a task queries it again, and is refused.
    pub(crate) fn end(&mut self, error: &QueueError) {
        self.waiting.clear();
        for one in self.subscribed.drain(..) {
            one.sink.ended(error.clone());
        }
    }

    /// Notifies waiting callers and subscriptions of changes.
    pub(crate) fn tell(&mut self, state: &State, changes: &[StateChange]) {
        for change in changes {
            if change.state.is_none_or(TaskState::has_ended)
                && let Some(waiting) = self.waiting.remove(&change.task.number)
            {
                for tell in waiting {
                    // The caller may have gone away.
                    let _ = tell.send(());
                }
            }
        }
        self.subscribed.retain(|one| !one.sink.is_gone());
        for one in &self.subscribed {
            let told: Vec<TaskChange> = changes
                .iter()
                .filter_map(|change| one.pick(state, change))
                .collect();
            if !told.is_empty() {
                one.sink.changed(&told);
            }
        }
        // A caller that waits with a time limit leaves without notice.
        if self.waiting.len() > 1_000 {
            self.waiting.retain(|_, waiting| {
                waiting.retain(|tell| !tell.is_closed());
                !waiting.is_empty()
            });
        }
    }
}

impl Subscription {
    fn pick(&self, state: &State, change: &StateChange) -> Option<TaskChange> {
        let new = change.state?;
        let wanted = self.states >> new as u8 & 1 == 1;
        let queue = wanted.then(|| state.queue_with(change.queue))??;
        let watched = queue.tenant == self.tenant
            && (self.queues.is_empty() || self.queues.contains(&queue.name));
        watched.then(|| TaskChange {
            id: state.id(change.task),
            queue: queue.name.clone(),
            state: new,
            at_ms: state.now_ms(),
            attempt: change.attempts,
        })
    }
}
