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
pub(crate) fn answer() -> (OnCommit, oneshot::Receiver<Result<(), QueueError>>) {
    let (tell, told) = oneshot::channel();
    let answer = Box::new(move |committed| {
        // The caller may have gone away.
        let _ = tell.send(committed);
    });
    (answer, told)
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
            let answer = Box::new(move |_| drop(drained));
            let submission = Submission::Drain(self.session.clone(), answer);
            // A partition that has ended pushes nothing.
            let _ = self.queues.inner.tell(partition, submission);
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
                let told = Submission::Credits(self.session.clone());
                if self.queues.inner.tell(partition, told).is_err() {
                    self.session.become_unknown(partition);
                }
            }
        }
    }
}

impl Worker {
    /// Ends the worker's session; returns when nothing will be pushed to it any more.
    pub(crate) async fn leave(self) -> Result<(), QueueError> {
        self.session.close();
        for partition in self.queues.inner.running()? {
            let (answer, told) = answer();
            let submission = Submission::Detach(self.session.clone(), Some(answer));
            let left = match self.queues.inner.tell(partition, submission) {
                Ok(()) => told.await.unwrap_or(Err(QueueError::Stopping)),
                Err(error) => Err(error),
            };
            // A failed partition pushes nothing any more.
            if !self.queues.inner.failed().contains(&partition) {
                left?;
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
            let told = Submission::Detach(self.session.clone(), None);
            // A partition that has ended has no session, or notices by the flag.
            let _ = self.queues.inner.tell(partition, told);
        }
    }
}
