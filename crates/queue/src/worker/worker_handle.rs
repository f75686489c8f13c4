//! The handle of a worker, which announces its credits to the partitions.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use egret_base::sync::lock;
use tokio::sync::oneshot;

use super::queues::Queues;
use super::session::{CREDITS_MAX, WorkSession};
use super::submission::{OnCommit, Submission};
use crate::error::QueueError;

/// A worker's registration with the engine. Dropped, it gets nothing more; its leases last until
/// they expire.
pub struct Worker {
    queues: Queues,
    pub(crate) session: Arc<WorkSession>,
    /// Whether partitions may have the session.
    announced: AtomicBool,
    /// Whether its queues may have tasks of several priorities.
    pub(crate) has_priorities: bool,
}

/// A reply callback and its receiver.
pub(crate) fn reply_channel() -> (OnCommit, oneshot::Receiver<Result<(), QueueError>>) {
    let (sender, receiver) = oneshot::channel();
    let on_commit = Box::new(move |committed| {
        // The caller may have gone away.
        let _ = sender.send(committed);
    });
    (on_commit, receiver)
}

impl Worker {
    pub(crate) fn new(queues: Queues, session: WorkSession) -> Self {
        Self {
            queues,
            session: Arc::new(session),
            announced: AtomicBool::new(false),
            has_priorities: false,
        }
    }

    /// Drops the worker's credits. `drained` is called when nothing will be pushed to it until it
    /// has new ones: tasks that were handed out and not pushed are released.
    pub fn drain(&self, drained: impl FnOnce() + Send + 'static) {
        self.session.drain();
        let partitions = self.queues.inner.partitions().map_or(0, <[_]>::len);
        let drained = Arc::new(OnDrop(Mutex::new(Some(Box::new(drained)))));
        for partition in 0..partitions {
            let drained = drained.clone();
            let on_drained = Box::new(move |_| drop(drained));
            let submission = Submission::Drain(self.session.clone(), on_drained);
            // A partition that has ended pushes nothing.
            let _ = self.queues.inner.submit_always(partition, submission);
        }
    }

    /// Gives the worker `count` more credits.
    ///
    /// # Errors
    /// [`QueueError::Invalid`] for more than [`CREDITS_MAX`] in all.
    pub fn add_credits(&self, count: u32) -> Result<(), QueueError> {
        if count == 0 {
            return Ok(());
        }
        if !self.session.add_credits(count) {
            return Err(QueueError::Invalid {
                what: "credits",
                reason: format!("{count} more would exceed the maximum of {CREDITS_MAX}"),
            });
        }
        self.announce();
        Ok(())
    }

    /// Announces that the worker can take tasks again after it could not: see
    /// [`WorkSink::is_full`].
    pub fn resume(&self) {
        self.announce();
        for partition in self.queues.inner.partitions().unwrap_or_default() {
            partition.inbox.wake();
        }
    }

    /// Announces the credits to every partition that does not know of them.
    fn announce(&self) {
        self.announced.store(true, Ordering::Release);
        let partitions = self.queues.inner.partitions().map_or(0, <[_]>::len);
        for partition in 0..partitions {
            if self.session.register_with(partition) {
                let submission = Submission::Credits(self.session.clone());
                if self.queues.inner.submit_always(partition, submission).is_err() {
                    self.session.unregister_from(partition);
                }
            }
        }
    }
}

impl Worker {
    /// Ends the worker's session; returns when nothing will be pushed to it any more.
    pub(crate) async fn leave(self) -> Result<(), QueueError> {
        self.session.close();
        for partition in self.queues.inner.running_partitions()? {
            let (on_commit, receiver) = reply_channel();
            let submission = Submission::Detach(self.session.clone(), Some(on_commit));
            let result = match self.queues.inner.submit_always(partition, submission) {
                Ok(()) => receiver.await.unwrap_or(Err(QueueError::Stopping)),
                Err(error) => Err(error),
            };
            // A failed partition pushes nothing any more.
            if !self.queues.inner.failed_partitions().contains(&partition) {
                result?;
            }
        }
        self.announced.store(false, Ordering::Release);
        Ok(())
    }
}

/// Runs a closure when it is dropped.
struct OnDrop(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        if let Some(call) = lock(&self.0).take() {
            call();
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.session.close();
        if !self.announced.load(Ordering::Acquire) {
            return;
        }
        let partitions = self.queues.inner.partitions().map_or(0, <[_]>::len);
        for partition in 0..partitions {
            let submission = Submission::Detach(self.session.clone(), None);
            // A partition that has ended has no session, or notices by the flag.
            let _ = self.queues.inner.submit_always(partition, submission);
        }
    }
}
