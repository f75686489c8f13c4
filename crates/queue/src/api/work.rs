//! Working: sessions that tasks are pushed to.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;

use super::session::WorkSession;
use super::sink::WorkSink;
use super::submit::{Answer, Submission};
use super::{Queues, lock, produce::check_text};
use crate::error::QueueError;

pub use super::reports::Reports;
pub use super::session::WorkSpec;
pub use super::submit::Said;
pub use crate::core::command::Defer;

/// The shortest and the longest lease, in milliseconds.
pub const LEASE_MS: std::ops::RangeInclusive<u64> = 100..=86_400_000;

/// Tasks that a worker may say it has room for, all in all.
pub const CREDITS_MAX: u32 = 100_000;

/// Queues that one worker may work on.
const QUEUES_MAX: usize = 1_000;

/// A worker's place in the engine. Dropped, it gets nothing more; its leases last until they expire.
pub struct Worker {
    queues: Queues,
    pub(super) session: Arc<WorkSession>,
    /// Whether partitions may know of it.
    announced: AtomicBool,
    /// Whether its queues may have tasks of several priorities.
    pub(super) has_priorities: bool,
}

impl Queues {
    /// Takes a worker in, that has no room for tasks yet. Returns the shortest of its lease times too, in
    /// milliseconds.
    ///
    /// # Errors
    /// [`QueueError`] when a queue does not exist or the lease time is out of range.
    pub async fn worker(
        &self,
        tenant: &str,
        spec: &WorkSpec,
        sink: Arc<dyn WorkSink>,
    ) -> Result<(Worker, u64), QueueError> {
        if spec.queues.is_empty() || spec.queues.len() > QUEUES_MAX {
            return Err(QueueError::Invalid {
                what: "queues",
                reason: format!("{} are given, not 1 to {QUEUES_MAX}", spec.queues.len()),
            });
        }
        check_text("worker", &spec.worker)?;
        if let Some(lease_ms) = spec.lease_ms {
            check_lease(lease_ms)?;
        }
        let mut known = Vec::with_capacity(spec.queues.len());
        let mut handles = Vec::with_capacity(spec.queues.len());
        for name in &spec.queues {
            let queue = self.queue(tenant, name).await?;
            let lease_ms = spec.lease_ms.unwrap_or(queue.settings().lease_ms);
            if !known.iter().any(|(id, _)| *id == queue.id) {
                known.push((queue.id, lease_ms));
                handles.push(queue);
            }
        }
        let shortest = known.iter().map(|(_, lease_ms)| *lease_ms).min();
        let partitions = self.inner.partitions()?.len();
        let session = WorkSession::new(&spec.worker, known, sink, partitions);
        let mut worker = Worker::new(self.clone(), session);
        worker.has_priorities = handles.iter().any(|queue| queue.has_priorities());
        for queue in &handles {
            queue.note_worker(&worker.session);
        }
        // One that was deleted meanwhile has told those whom it knew.
        if let Some(queue) = handles.iter().find(|queue| queue.is_deleted()) {
            return Err(QueueError::QueueNotFound {
                name: queue.name.to_string(),
            });
        }
        Ok((worker, shortest.unwrap_or_default()))
    }
}

/// An answer and where it comes.
pub(super) fn answer() -> (Answer, oneshot::Receiver<Result<(), QueueError>>) {
    let (tell, told) = oneshot::channel();
    let answer = Box::new(move |committed| {
        // Whoever asked may have gone away.
        let _ = tell.send(committed);
    });
    (answer, told)
}

/// Refuses a lease time that is out of range.
pub(crate) fn check_lease(lease_ms: u64) -> Result<(), QueueError> {
    if LEASE_MS.contains(&lease_ms) {
        return Ok(());
    }
    let (least, most) = LEASE_MS.into_inner();
    Err(QueueError::Invalid {
        what: "lease_ms",
        reason: format!("{lease_ms} is not from {least} to {most}"),
    })
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

    /// The worker has no room any more, whatever it said before. `drained` is called when nothing will be
    /// pushed to it until it says otherwise: what was handed out to it and not pushed is taken back.
    pub fn drain(&self, drained: impl FnOnce() + Send + 'static) {
        self.session.drain();
        let partitions = self.queues.inner.partitions().map_or(0, <[_]>::len);
        let drained = Arc::new(LastCall(Mutex::new(Some(Box::new(drained)))));
        for partition in 0..partitions {
            let drained = drained.clone();
            let answer = Box::new(move |_| drop(drained));
            let submission = Submission::Drain(self.session.clone(), answer);
            // A partition that takes nothing in pushes nothing.
            let _ = self.queues.inner.tell(partition, submission);
        }
    }

    /// The worker has room for `count` more tasks.
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
                reason: format!("with {count} more there would be over {CREDITS_MAX}"),
            });
        }
        self.announce();
        Ok(())
    }

    /// The worker can take tasks again, after it could not: see [`WorkSink::is_full`].
    pub fn resume(&self) {
        self.announce();
        for partition in self.queues.inner.partitions().unwrap_or_default() {
            partition.inbox.wake();
        }
    }

    /// Has every partition count on it that does not.
    fn announce(&self) {
        self.announced.store(true, Ordering::Release);
        let partitions = self.queues.inner.partitions().map_or(0, <[_]>::len);
        for partition in 0..partitions {
            if self.session.become_known(partition) {
                let told = Submission::Credits(self.session.clone());
                if self.queues.inner.tell(partition, told).is_err() {
                    self.session.become_unknown(partition);
                }
            }
        }
    }
}

impl Worker {
    /// Ends the worker's place; returns when nothing will be pushed to it any more.
    pub(super) async fn leave(self) -> Result<(), QueueError> {
        self.session.close();
        for partition in self.queues.inner.running()? {
            let (answer, told) = answer();
            let submission = Submission::Detach(self.session.clone(), Some(answer));
            let left = match self.queues.inner.tell(partition, submission) {
                Ok(()) => told.await.unwrap_or(Err(QueueError::Stopping)),
                Err(error) => Err(error),
            };
            // One that has failed pushes nothing any more.
            if !self.queues.inner.failed().contains(&partition) {
                left?;
            }
        }
        self.announced.store(false, Ordering::Release);
        Ok(())
    }
}

/// Calls when nobody holds it any longer.
struct LastCall(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl Drop for LastCall {
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
            // A partition that takes nothing in has none to forget, or notices by the flag.
            let _ = self.queues.inner.tell(partition, told);
        }
    }
}
