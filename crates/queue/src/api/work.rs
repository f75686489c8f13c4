//! Working: sessions that tasks are pushed to, and reports on them.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};

use super::session::WorkSession;
use super::sink::{Assigned, ReportSink, WorkSink};
use super::submit::{Answer, Report, ReportBatch, Submission};
use super::{Queues, lock, tenant_number};
use crate::error::QueueError;
use crate::model::{AttemptEnd, Lease, TaskId};
use crate::store::content::{self, Content, Format, check_json};

pub use super::session::WorkSpec;
pub use super::submit::Said;
pub use crate::core::command::Defer;

/// The shortest and the longest lease, in milliseconds.
pub(crate) const LEASE_MS: std::ops::RangeInclusive<u64> = 100..=86_400_000;

/// Queues that one worker may work on.
const QUEUES_MAX: usize = 1_000;

/// A worker's place in the engine. Dropped, it gets nothing more; its leases last until they expire.
pub struct Worker {
    queues: Queues,
    session: Arc<WorkSession>,
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
        if let Some(lease_ms) = spec.lease_ms {
            check_lease(lease_ms)?;
        }
        let mut known = Vec::with_capacity(spec.queues.len());
        for name in &spec.queues {
            let queue = self.queue(tenant, name).await?;
            let lease_ms = spec.lease_ms.unwrap_or(queue.settings().lease_ms);
            if !known.iter().any(|(id, _)| *id == queue.id) {
                known.push((queue.id, lease_ms));
            }
        }
        let shortest = known.iter().map(|(_, lease_ms)| *lease_ms).min();
        let partitions = self.inner.partitions()?.len();
        let session = WorkSession::new(&spec.worker, known, sink, partitions);
        Ok((
            Worker::new(self.clone(), session),
            shortest.unwrap_or_default(),
        ))
    }
}

impl Queues {
    /// Leases up to `most` tasks that are ready now, or waits up to `patience` for the first to be. Whoever
    /// gives up waiting for the answer gets nothing: what was leased meanwhile is given back.
    ///
    /// # Errors
    /// As [`Queues::worker`].
    pub async fn claim(
        &self,
        tenant: &str,
        spec: &WorkSpec,
        most: u32,
        patience: Duration,
    ) -> Result<Vec<OwnedTask>, QueueError> {
        let basket = Arc::new(Basket {
            queues: self.clone(),
            tenant: tenant.into(),
            kept: Mutex::default(),
            filled: Notify::new(),
        });
        let claiming = Claiming(&basket);
        let (worker, _) = self.worker(tenant, spec, basket.clone()).await?;
        let partitions = self.inner.partitions()?.len();
        let start = self.inner.spread.fetch_add(1, Ordering::Relaxed) as usize;
        for step in 0..partitions {
            let room = most - basket.len();
            if room == 0 {
                break;
            }
            // A session for each: none may hand out what another still counts on.
            let once = Arc::new(worker.session.alike(partitions));
            once.add_credits(room);
            let (answer, told) = answer();
            let submission = Submission::Once(once, answer);
            self.inner
                .submit((start + step) % partitions, submission, 0)?;
            told.await.unwrap_or(Err(QueueError::Stopping))?;
        }
        if basket.len() == 0 && !patience.is_zero() {
            worker.add_credits(most);
            // In either case what has come will be seen.
            let _ = tokio::time::timeout(patience, basket.filled.notified()).await;
            worker.leave().await?;
        }
        let tasks = basket.close();
        drop(claiming);
        Ok(tasks)
    }
}

/// A claim that somebody waits for. Dropped before its end, it gives back what it has got.
struct Claiming<'a>(&'a Basket);

impl Drop for Claiming<'_> {
    fn drop(&mut self) {
        let left = self.0.close();
        self.0.give_back(left.iter().map(|task| task.lease));
    }
}

/// An answer and where it comes.
fn answer() -> (Answer, oneshot::Receiver<Result<(), QueueError>>) {
    let (tell, told) = oneshot::channel();
    let answer = Box::new(move |committed| {
        // Whoever asked may have gone away.
        let _ = tell.send(committed);
    });
    (answer, told)
}

/// What a claim has got so far.
struct Basket {
    queues: Queues,
    tenant: Box<str>,
    kept: Mutex<Kept>,
    filled: Notify,
}

#[derive(Default)]
struct Kept {
    tasks: Vec<OwnedTask>,
    closed: bool,
}

/// A task handed out, with what it carries.
#[derive(Clone, Debug)]
pub struct OwnedTask {
    /// The task's id.
    pub id: TaskId,
    /// Its queue's name.
    pub queue: String,
    /// Proof of the lease.
    pub lease: Lease,
    /// When the lease ends, in Unix milliseconds.
    pub lease_until_ms: u64,
    /// How long it lasts.
    pub lease_ms: u64,
    /// Which attempt this is, from 1.
    pub attempt: u16,
    /// Attempts before it is dead.
    pub max_attempts: u16,
    /// 0 to 9.
    pub priority: u8,
    /// Its tags, as [`Assigned::tags`].
    pub tags: Vec<u8>,
    /// Payload and so on, as [`Assigned::content`].
    pub content: Vec<u8>,
}

impl OwnedTask {
    /// The same, borrowed.
    pub fn assigned(&self) -> Assigned<'_> {
        Assigned {
            id: self.id,
            queue: &self.queue,
            lease: self.lease,
            lease_until_ms: self.lease_until_ms,
            lease_ms: self.lease_ms,
            attempt: self.attempt,
            max_attempts: self.max_attempts,
            priority: self.priority,
            tags: &self.tags,
            content: &self.content,
            private: &[],
            about: None,
        }
    }

    /// Its tags, taken apart.
    pub fn tags(&self) -> impl Iterator<Item = &str> {
        content::tags(&self.tags)
    }

    /// Payload and so on, taken apart; what is private is not there.
    ///
    /// # Errors
    /// [`QueueError::Malformed`].
    pub fn carried(&self) -> Result<Content<'_>, QueueError> {
        Ok(content::take_for_workers(&self.content)?)
    }
}

impl Basket {
    fn len(&self) -> u32 {
        lock(&self.kept).tasks.len() as u32
    }

    /// Takes everything; what comes later is given back.
    fn close(&self) -> Vec<OwnedTask> {
        let mut kept = lock(&self.kept);
        kept.closed = true;
        std::mem::take(&mut kept.tasks)
    }

    fn give_back(&self, leases: impl Iterator<Item = Lease>) {
        let Ok(mut reports) = Reports::new(&self.queues, &self.tenant) else {
            return;
        };
        let said = Said::Defer {
            delay_ms: 0,
            how: Defer::Release,
        };
        for (number, lease) in (0..).zip(leases) {
            // A lease that is not taken back ends by itself.
            let _ = reports.add(number, &lease.to_bytes(), said, &[], Format::Bytes);
        }
        let nobody: Arc<dyn ReportSink> = Arc::new(Nobody);
        reports.submit(&nobody);
    }
}

/// Who does not care what became of a report.
struct Nobody;

impl ReportSink for Nobody {
    fn reported(&self, _: &[(u64, Result<(), QueueError>)]) {}
}

impl ReportSink for Basket {
    fn reported(&self, _: &[(u64, Result<(), QueueError>)]) {}
}

impl WorkSink for Basket {
    fn assigned(&self, tasks: &mut dyn Iterator<Item = Assigned<'_>>) {
        let owned = tasks.map(|task| OwnedTask {
            id: task.id,
            queue: task.queue.to_owned(),
            lease: task.lease,
            lease_until_ms: task.lease_until_ms,
            lease_ms: task.lease_ms,
            attempt: task.attempt,
            max_attempts: task.max_attempts,
            priority: task.priority,
            tags: task.tags.to_vec(),
            content: task.content.to_vec(),
        });
        let mut kept = lock(&self.kept);
        if kept.closed {
            drop(kept);
            return self.give_back(owned.map(|task| task.lease));
        }
        kept.tasks.extend(owned);
        self.filled.notify_one();
    }

    fn lost(&self, _: TaskId, _: Lease, _: AttemptEnd) {}

    fn ended(&self, _: QueueError) {
        self.filled.notify_one();
    }
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
        }
    }

    /// The worker has no room any more, whatever it said before. `drained` is called when everything that
    /// was handed out to it before has been pushed.
    pub fn drain(&self, drained: impl FnOnce() + Send + 'static) {
        self.session.drain();
        let partitions = self.queues.inner.partitions().map_or(0, <[_]>::len);
        let drained = Arc::new(LastCall(Mutex::new(Some(Box::new(drained)))));
        for partition in 0..partitions {
            let drained = drained.clone();
            let barrier = Submission::Barrier(Box::new(move |_| drop(drained)));
            // A partition that takes nothing in pushes nothing.
            let _ = self.queues.inner.submit(partition, barrier, 0);
        }
    }

    /// The worker has room for `count` more tasks.
    pub fn add_credits(&self, count: u32) {
        if count == 0 {
            return;
        }
        self.session.add_credits(count);
        let partitions = self.queues.inner.partitions().map_or(0, <[_]>::len);
        for partition in 0..partitions {
            if self.session.become_known(partition) {
                let told = Submission::Credits(self.session.clone());
                if self.queues.inner.submit(partition, told, 0).is_err() {
                    self.session.become_unknown(partition);
                }
            }
        }
    }
}

impl Worker {
    /// Ends the worker's place; returns when nothing will be pushed to it any more.
    async fn leave(self) -> Result<(), QueueError> {
        self.session.close();
        for partition in 0..self.queues.inner.partitions()?.len() {
            let (answer, told) = answer();
            let submission = Submission::Detach(self.session.clone(), Some(answer));
            self.queues.inner.submit(partition, submission, 0)?;
            told.await.unwrap_or(Err(QueueError::Stopping))?;
        }
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
        let partitions = self.queues.inner.partitions().map_or(0, <[_]>::len);
        for partition in 0..partitions {
            let told = Submission::Detach(self.session.clone(), None);
            // A partition that takes nothing in has none to forget, or notices by the flag.
            let _ = self.queues.inner.submit(partition, told, 0);
        }
    }
}

/// Reports of one caller, sorted by partition.
pub struct Reports<'q> {
    queues: &'q Queues,
    tenant: &'q str,
    parts: Vec<Part>,
}

#[derive(Default)]
struct Part {
    items: Vec<Report>,
    bytes: Vec<u8>,
}

impl<'q> Reports<'q> {
    /// Nothing yet, of a caller of this tenant.
    ///
    /// # Errors
    /// When the engine is not running.
    pub fn new(queues: &'q Queues, tenant: &'q str) -> Result<Self, QueueError> {
        let count = queues.inner.partitions()?.len();
        Ok(Self {
            queues,
            tenant,
            parts: (0..count).map(|_| Part::default()).collect(),
        })
    }

    /// Checks a report and lays it out, under the caller's number for it. `text` is a result, an error or
    /// a reason; `format` counts for a result.
    ///
    /// # Errors
    /// What is wrong with it; the others are not concerned.
    pub fn add(
        &mut self,
        number: u64,
        lease: &[u8],
        said: Said,
        text: &[u8],
        format: Format,
    ) -> Result<(), QueueError> {
        let lease = Lease::from_bytes(lease).ok_or(QueueError::LeaseLost)?;
        let max_bytes = self.queues.config().result_bytes_max.bytes();
        if text.len() as u64 > max_bytes {
            return Err(QueueError::TooLarge {
                what: "the result",
                size_bytes: text.len() as u64,
                limit: "queue.result_bytes_max",
                max_bytes,
            });
        }
        if said == Said::Complete && format == Format::Json {
            check_json("result", text)?;
        }
        match said {
            Said::Heartbeat { lease_ms } if lease_ms > 0 => check_lease(lease_ms)?,
            Said::Defer { delay_ms, .. } if delay_ms > super::produce::LONG_MS => {
                return Err(QueueError::Invalid {
                    what: "delay_ms",
                    reason: format!("{delay_ms} ms are more than ten years"),
                });
            }
            _ => {}
        }
        let partition = self.queues.inner.partition_of(lease.shard)?;
        let part = &mut self.parts[partition];
        let start = part.bytes.len() as u32;
        if said == Said::Complete {
            part.bytes.push(format as u8);
        }
        part.bytes.extend_from_slice(text);
        part.items.push(Report {
            number,
            lease,
            said,
            content: start..part.bytes.len() as u32,
        });
        Ok(())
    }

    /// Hands everything to the partitions; `sink` is told the outcome of each report that was added.
    pub fn submit(self, sink: &Arc<dyn ReportSink>) {
        for (partition, part) in self.parts.into_iter().enumerate() {
            if part.items.is_empty() {
                continue;
            }
            let weight = part.bytes.len() + part.items.len() * size_of::<Report>();
            let numbers: Vec<u64> = part.items.iter().map(|item| item.number).collect();
            let batch = ReportBatch {
                tenant: tenant_number(self.tenant),
                owner: self.tenant.into(),
                items: part.items,
                bytes: Arc::new(part.bytes),
                sink: sink.clone(),
            };
            let submission = Submission::Report(batch);
            if let Err(error) = self.queues.inner.submit(partition, submission, weight) {
                let outcomes = numbers
                    .into_iter()
                    .map(|number| (number, Err(error.clone())));
                sink.reported(&outcomes.collect::<Vec<_>>());
            }
        }
    }
}
