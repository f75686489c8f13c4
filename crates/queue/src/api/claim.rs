//! Claims: a worker session for the duration of one call.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use egret_base::sync::lock;
use tokio::sync::Notify;

use crate::core::command::Defer;
use crate::error::QueueError;
use crate::model::{AttemptEnd, Lease, TaskId};
use crate::store::content::{self, Content, Format};
use crate::worker::queues::Queues;
use crate::worker::reports::Reports;
use crate::worker::session::WorkSpec;
use crate::worker::sinks::{ReportSink, TaskAssignment, WorkSink};
use crate::worker::submission::{ReportKind, Submission};
use crate::worker::worker_handle::{Worker, answer};

/// Bytes of tasks in one claim after which it takes no more. With what is read at once before that
/// is noticed, an answer keeps within the 4 MiB that a gRPC client takes unless told otherwise.
const CLAIM_BYTES_MAX: usize = 3 << 19;

/// How often one claim asks the partitions of a queue with several priorities.
const ROUNDS_MAX: usize = 16;

impl Queues {
    /// Leases up to `tasks_max` tasks that are ready now, or waits for the first one until the
    /// timeout. A caller that drops the future gets nothing: tasks leased meanwhile are released.
    ///
    /// # Errors
    /// [`QueueError`] when a queue does not exist or the lease time is out of range.
    pub async fn claim(
        &self,
        tenant: &str,
        spec: &WorkSpec,
        most: u32,
        patience: Duration,
    ) -> Result<Vec<OwnedTask>, QueueError> {
        let basket = Arc::new(ClaimSink {
            queues: self.clone(),
            tenant: tenant.into(),
            kept: Mutex::default(),
            filled: Notify::new(),
        });
        let claiming = ClaimGuard(&basket);
        let (worker, _) = self.worker(tenant, spec, basket.clone()).await?;
        for _ in 0..ROUNDS_MAX {
            let before = basket.len();
            self.claim_from_all(&worker, &basket, most).await?;
            // With several priorities a partition hands out only tasks that rank no lower than
            // those of other partitions.
            if !worker.has_priorities || basket.len() == before {
                break;
            }
        }
        if basket.len() == 0 && !patience.is_zero() {
            worker.add_credits(most)?;
            // After a timeout too, what has arrived is taken below.
            let _ = tokio::time::timeout(patience, basket.filled.notified()).await;
            worker.leave().await?;
        }
        let tasks = basket.close();
        drop(claiming);
        Ok(tasks)
    }
}

impl Queues {
    /// Asks one partition after the other for ready tasks.
    async fn claim_from_all(
        &self,
        worker: &Worker,
        basket: &ClaimSink,
        most: u32,
    ) -> Result<(), QueueError> {
        let partitions = self.inner.partitions()?.len();
        for partition in self.partitions_to_claim(worker).await? {
            let room = most - basket.len();
            if room == 0 || basket.is_full() {
                break;
            }
            // Each partition gets a session of its own: none may hand out for credits that another
            // one uses.
            let once = Arc::new(worker.session.alike(partitions));
            once.add_credits(room);
            let (answer, told) = answer();
            let submission = Submission::Once(once, answer);
            self.inner.submit(partition, submission)?;
            match told.await.unwrap_or(Err(QueueError::Stopping)) {
                // A partition that fails meanwhile does not hide the tasks of the others.
                Err(_) if self.inner.failed().contains(&partition) => {}
                outcome => outcome?,
            }
        }
        Ok(())
    }

    /// The running partitions in the order in which a claim asks them, since each costs a turn, for
    /// which it may have to wait. With several priorities they are sorted by the rank of their next
    /// task, otherwise those with ready tasks come first. The first partition rotates from claim to
    /// claim.
    async fn partitions_to_claim(&self, worker: &Worker) -> Result<Vec<usize>, QueueError> {
        let mut partitions = self.inner.running()?;
        let start = self.inner.next_partition.fetch_add(1, Ordering::Relaxed) as usize;
        let first = start % partitions.len();
        partitions.rotate_left(first);
        if partitions.len() == 1 {
            return Ok(partitions);
        }
        if !worker.has_priorities {
            let shared = self.inner.partitions()?;
            let queues = || worker.session.queues.iter().map(|(queue, _)| *queue);
            // The sort is stable: it keeps the rotation.
            partitions.sort_by_cached_key(|partition| !shared[*partition].ready.has_any(queues()));
            return Ok(partitions);
        }
        let queues: Arc<[u32]> = worker.session.queues.iter().map(|(id, _)| *id).collect();
        let mut ranked = Vec::with_capacity(partitions.len());
        for partition in partitions {
            let queues = queues.clone();
            let asked = self.inner.ask(partition, move |turn| {
                let ranks = queues.iter();
                ranks.filter_map(|queue| turn.state.next_rank(*queue)).max()
            });
            // One that fails meanwhile comes last.
            ranked.push((partition, asked.await.unwrap_or_default()));
        }
        ranked.sort_by_key(|(_, rank)| std::cmp::Reverse(*rank));
        Ok(ranked.into_iter().map(|(partition, _)| partition).collect())
    }
}

/// Guard of a claim in progress. Dropped before its end, it releases the tasks that it has leased.
struct ClaimGuard<'a>(&'a ClaimSink);

impl Drop for ClaimGuard<'_> {
    fn drop(&mut self) {
        let left = self.0.close();
        // Each task is returned to the front: the last one first, which keeps their order.
        self.0.give_back(left.iter().rev().map(|task| task.lease));
    }
}

/// Tasks that a claim has received so far.
struct ClaimSink {
    queues: Queues,
    tenant: Box<str>,
    kept: Mutex<ClaimBuffer>,
    filled: Notify,
}

#[derive(Default)]
struct ClaimBuffer {
    tasks: Vec<OwnedTask>,
    bytes: usize,
    closed: bool,
}

/// A task handed out, with what it carries.
#[derive(Clone, Debug)]
pub struct OwnedTask {
    /// Id of the leased task.
    pub id: TaskId,
    /// Name of the task's queue.
    pub queue: String,
    /// Proof of the lease.
    pub lease: Lease,
    /// When the lease ends, in Unix milliseconds.
    pub lease_until_ms: u64,
    /// How long it lasts.
    pub lease_ms: u64,
    /// Longest duration of the attempt, in milliseconds, as [`TaskAssignment::timeout_ms`].
    pub timeout_ms: u64,
    /// Which attempt this is, from 1.
    pub attempt: u16,
    /// Attempts before it is dead.
    pub max_attempts: u16,
    /// Priority from 0 to 9.
    pub priority: u8,
    /// Its tags, as [`TaskAssignment::tags`].
    pub tags: Vec<u8>,
    /// Payload and so on, as [`TaskAssignment::content`].
    pub content: Vec<u8>,
}

impl OwnedTask {
    /// Borrows the task as [`TaskAssignment`].
    pub fn assigned(&self) -> TaskAssignment<'_> {
        TaskAssignment {
            id: self.id,
            queue: &self.queue,
            lease: self.lease,
            lease_until_ms: self.lease_until_ms,
            lease_ms: self.lease_ms,
            timeout_ms: self.timeout_ms,
            attempt: self.attempt,
            max_attempts: self.max_attempts,
            priority: self.priority,
            tags: &self.tags,
            content: &self.content,
            private: &[],
            about: None,
        }
    }

    /// The decoded tags of the task.
    pub fn tags(&self) -> impl Iterator<Item = &str> {
        content::tags(&self.tags)
    }

    /// Its payload and other content, decoded; the private part is absent.
    ///
    /// # Errors
    /// [`QueueError::Malformed`].
    pub fn carried(&self) -> Result<Content<'_>, QueueError> {
        Ok(content::take_for_workers(&self.content)?)
    }
}

impl ClaimSink {
    fn len(&self) -> u32 {
        lock(&self.kept).tasks.len() as u32
    }

    /// Takes all tasks; leases that arrive later are released.
    fn close(&self) -> Vec<OwnedTask> {
        let mut kept = lock(&self.kept);
        kept.closed = true;
        std::mem::take(&mut kept.tasks)
    }

    fn give_back(&self, leases: impl Iterator<Item = Lease>) {
        let Ok(mut reports) = Reports::new(&self.queues, &self.tenant) else {
            return;
        };
        let said = ReportKind::Defer {
            delay_ms: 0,
            how: Defer::Release,
        };
        for (number, lease) in (0..).zip(leases) {
            // A lease that is not released expires.
            let _ = reports.add(number, &lease.to_bytes(), said, &[], Format::Bytes);
        }
        let nobody: Arc<dyn ReportSink> = Arc::new(DiscardingReportSink);
        reports.submit(&nobody);
    }
}

/// Ignores the outcomes of reports.
struct DiscardingReportSink;

impl ReportSink for DiscardingReportSink {
    fn reported(&self, _: &[(u64, Result<(), QueueError>)]) {}
}

impl ReportSink for ClaimSink {
    fn reported(&self, _: &[(u64, Result<(), QueueError>)]) {}
}

impl WorkSink for ClaimSink {
    fn assigned(&self, tasks: &mut dyn Iterator<Item = TaskAssignment<'_>>) {
        let owned = tasks.map(|task| OwnedTask {
            id: task.id,
            queue: task.queue.to_owned(),
            lease: task.lease,
            lease_until_ms: task.lease_until_ms,
            lease_ms: task.lease_ms,
            timeout_ms: task.timeout_ms,
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
        let mut too_much = Vec::new();
        for task in owned {
            // Several partitions hand out at the same time: each may have seen free capacity.
            if kept.bytes >= CLAIM_BYTES_MAX {
                too_much.push(task.lease);
                continue;
            }
            kept.bytes += task.content.len() + task.tags.len();
            kept.tasks.push(task);
        }
        drop(kept);
        self.filled.notify_one();
        if !too_much.is_empty() {
            self.give_back(too_much.into_iter().rev());
        }
    }

    fn is_full(&self) -> bool {
        lock(&self.kept).bytes >= CLAIM_BYTES_MAX
    }

    fn not_taken(&self, leases: &mut dyn Iterator<Item = Lease>) {
        self.give_back(leases);
    }

    fn lost(&self, _: TaskId, _: Lease, _: AttemptEnd) {}

    fn ended(&self, _: QueueError) {
        self.filled.notify_one();
    }
}
