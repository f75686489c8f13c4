//! Who is told of tasks' changes: those who wait for one to end, and those who watch queues.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use egret_base::{LimitExceeded, TenantShare};
use tokio::sync::oneshot;

use crate::api::watch::{ChangeSink, TaskChange};
use crate::core::entry::TaskState;
use crate::core::state::{Change, State};
use crate::error::QueueError;

/// Whose changes somebody wants.
pub(crate) struct Subscription {
    /// Whose queues.
    pub tenant: Box<str>,
    /// Names of queues, for one may be made again; empty: all of the tenant's.
    pub queues: BTreeSet<Box<str>>,
    /// A bit for each state.
    pub states: u8,
    pub sink: Arc<dyn ChangeSink>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Watchers {
    waiting: BTreeMap<u64, Vec<oneshot::Sender<()>>>,
    subscribed: Vec<Subscription>,
}

impl Watchers {
    /// Whether anybody wants to know of changes.
    pub fn are_there(&self) -> bool {
        !self.waiting.is_empty() || !self.subscribed.is_empty()
    }

    /// Tells when the task with this number has ended or is gone.
    pub fn wait(&mut self, number: u64, tell: oneshot::Sender<()>) {
        let waiting = self.waiting.entry(number).or_default();
        waiting.retain(|other| !other.is_closed());
        waiting.push(tell);
    }

    /// Takes a subscriber in, unless there are `most` already.
    pub fn subscribe(
        &mut self,
        subscription: Subscription,
        share: &TenantShare,
    ) -> Result<(), LimitExceeded> {
        self.subscribed.retain(|one| !one.sink.is_gone());
        let own = self.subscribed.iter();
        let own = own.filter(|one| one.tenant == subscription.tenant).count();
        share.check(self.subscribed.len() as u64, own as u64, 1)?;
        self.subscribed.push(subscription);
        Ok(())
    }

    /// There will be no more for anybody. Whoever waits for a task looks for it again, and is refused.
    pub fn end(&mut self, error: &QueueError) {
        self.waiting.clear();
        for one in self.subscribed.drain(..) {
            one.sink.ended(error.clone());
        }
    }

    /// Tells everybody who wants to know.
    pub fn tell(&mut self, state: &State, changes: &[Change]) {
        for change in changes {
            if change.state.is_none_or(TaskState::has_ended)
                && let Some(waiting) = self.waiting.remove(&change.task.number)
            {
                for tell in waiting {
                    // Whoever waited may have gone away.
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
        // Whoever waits with a time limit goes away without a word.
        if self.waiting.len() > 1_000 {
            self.waiting.retain(|_, waiting| {
                waiting.retain(|tell| !tell.is_closed());
                !waiting.is_empty()
            });
        }
    }
}

impl Subscription {
    fn pick(&self, state: &State, change: &Change) -> Option<TaskChange> {
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
