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
    waiting_callers: BTreeMap<u64, Vec<oneshot::Sender<()>>>,
    subscriptions: Vec<Subscription>,
}

impl Watchers {
    /// Whether there is a waiting caller or a subscription.
    pub(crate) fn has_any(&self) -> bool {
        !self.waiting_callers.is_empty() || !self.subscriptions.is_empty()
    }

    /// Notifies a caller when the task with this number has ended or is deleted.
    pub(crate) fn add_waiter(&mut self, number: u64, sender: oneshot::Sender<()>) {
        let waiting = self.waiting_callers.entry(number).or_default();
        waiting.retain(|other| !other.is_closed());
        waiting.push(sender);
    }

    /// Adds a subscription, within the limits on their number.
    pub(crate) fn subscribe(
        &mut self,
        subscription: Subscription,
        share: &TenantShare,
    ) -> Result<(), LimitExceeded> {
        self.subscriptions.retain(|other| !other.sink.is_closed());
        let tenant_count =
            self.subscriptions.iter().filter(|one| one.tenant == subscription.tenant).count();
        share.check(self.subscriptions.len() as u64, tenant_count as u64, 1)?;
        self.subscriptions.push(subscription);
        Ok(())
    }

    /// Ends all subscriptions. A caller that waits for a task queries it again, and is refused.
    pub(crate) fn end_subscriptions(&mut self, error: &QueueError) {
        self.waiting_callers.clear();
        for subscription in self.subscriptions.drain(..) {
            subscription.sink.notify_end(error.clone());
        }
    }

    /// Notifies waiting callers and subscriptions of changes.
    pub(crate) fn notify(&mut self, state: &State, changes: &[StateChange]) {
        for change in changes {
            if change.state.is_none_or(TaskState::has_ended)
                && let Some(waiting) = self.waiting_callers.remove(&change.task.number)
            {
                for sender in waiting {
                    // The caller may have gone away.
                    let _ = sender.send(());
                }
            }
        }
        self.subscriptions.retain(|subscription| !subscription.sink.is_closed());
        for one in &self.subscriptions {
            let selected: Vec<TaskChange> =
                changes.iter().filter_map(|change| one.select_change(state, change)).collect();
            if !selected.is_empty() {
                one.sink.deliver_changes(&selected);
            }
        }
        // A caller that waits with a time limit leaves without notice.
        if self.waiting_callers.len() > 1_000 {
            self.waiting_callers.retain(|_, waiting| {
                waiting.retain(|tell| !tell.is_closed());
                !waiting.is_empty()
            });
        }
    }
}

impl Subscription {
    fn select_change(&self, state: &State, change: &StateChange) -> Option<TaskChange> {
        let new_state = change.state?;
        let wanted = self.states >> new_state as u8 & 1 == 1;
        let queue = wanted.then(|| state.queue_by_id(change.queue))??;
        let watched = queue.tenant == self.tenant
            && (self.queues.is_empty() || self.queues.contains(&queue.name));
        watched.then(|| TaskChange {
            id: state.task_id(change.task),
            queue: queue.name.clone(),
            state: new_state,
            at_ms: state.now_ms(),
            attempt: change.attempts,
        })
    }
}
