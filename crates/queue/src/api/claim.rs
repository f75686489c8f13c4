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
use crate::worker::worker_handle::{Worker, reply_channel};

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
        tasks_max: u32,
        timeout: Duration,
    ) -> Result<Vec<OwnedTask>, QueueError> {
        let sink = Arc::new(ClaimSink {
            queues: self.clone(),
            tenant: tenant.into(),
            buffer: Mutex::default(),
            filled: Notify::new(),
        });
        let guard = ClaimGuard(&sink);
        let (worker, _) = self.register_worker(tenant, spec, sink.clone()).await?;
        for _ in 0..ROUNDS_MAX {
            let count_before = sink.len();
            self.claim_from_partitions(&worker, &sink, tasks_max).await?;
            // With several priorities a partition hands out only tasks that rank no lower than
            // those of other partitions.
            if !worker.has_priorities || sink.len() == count_before {
                break;
            }
        }
        if sink.len() == 0 && !timeout.is_zero() {
            worker.add_credits(tasks_max)?;
            // After a timeout too, what has arrived is taken below.
            let _ = tokio::time::timeout(timeout, sink.filled.notified()).await;
            worker.leave().await?;
        }
        let tasks = sink.close();
        drop(guard);
        Ok(tasks)
    }
}

impl Queues {
    /// Asks one partition after the other for ready tasks.
    async fn claim_from_partitions(
        &self,
        worker: &Worker,
        sink: &ClaimSink,
        tasks_max: u32,
    ) -> Result<(), QueueError> {
        let partitions = self.inner.partitions()?.len();
        for partition in self.partitions_to_claim(worker).await? {
            let remaining = tasks_max - sink.len();
            if remaining == 0 || sink.is_full() {
                break;
            }
            // Each partition gets a session of its own: none may hand out for credits that another
            // one uses.
            let session = Arc::new(worker.session.clone_for_claim(partitions));
            session.add_credits(remaining);
            let (on_commit, reply) = reply_channel();
            let submission = Submission::Claim(session, on_commit);
            self.inner.submit(partition, submission)?;
            match reply.await.unwrap_or(Err(QueueError::Stopping)) {
                // A partition that fails meanwhile does not hide the tasks of the others.
                Err(_) if self.inner.failed_partitions().contains(&partition) => {}
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
        let mut partitions = self.inner.running_partitions()?;
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
            partitions
                .sort_by_cached_key(|partition| !shared[*partition].ready_queues.has_any(queues()));
            return Ok(partitions);
        }
        let queues: Arc<[u32]> = worker.session.queues.iter().map(|(id, _)| *id).collect();
        let mut ranked = Vec::with_capacity(partitions.len());
        for partition in partitions {
            let queues = queues.clone();
            let reply = self.inner.run_in_turn(partition, move |turn| {
                let queue_ids = queues.iter();
                queue_ids.filter_map(|queue| turn.state.next_rank(*queue)).max()
            });
            // One that fails meanwhile comes last.
            ranked.push((partition, reply.await.unwrap_or_default()));
        }
        ranked.sort_by_key(|(_, rank)| std::cmp::Reverse(*rank));
        Ok(ranked.into_iter().map(|(partition, _)| partition).collect())
    }
}

/// Guard of a claim in progress. Dropped before its end, it releases the tasks that it has leased.
struct ClaimGuard<'a>(&'a ClaimSink);

impl Drop for ClaimGuard<'_> {
    fn drop(&mut self) {
        let leftover = self.0.close();
        // Each task is returned to the front: the last one first, which keeps their order.
        self.0.release_leases(leftover.iter().rev().map(|task| task.lease));
    }
}

/// Tasks that a claim has received so far.
struct ClaimSink {
    queues: Queues,
    tenant: Box<str>,
    buffer: Mutex<ClaimBuffer>,
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
    pub fn as_assignment(&self) -> TaskAssignment<'_> {
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
            subject: None,
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
    pub fn parse_content(&self) -> Result<Content<'_>, QueueError> {
        Ok(content::decode_for_workers(&self.content)?)
    }
}

impl ClaimSink {
    fn len(&self) -> u32 {
        lock(&self.buffer).tasks.len() as u32
    }

    /// Takes all tasks; leases that arrive later are released.
    fn close(&self) -> Vec<OwnedTask> {
        let mut buffer = lock(&self.buffer);
        buffer.closed = true;
        std::mem::take(&mut buffer.tasks)
    }

    fn release_leases(&self, leases: impl Iterator<Item = Lease>) {
        let Ok(mut reports) = Reports::new(&self.queues, &self.tenant) else {
            return;
        };
        let kind = ReportKind::Defer { delay_ms: 0, mode: Defer::Release };
        for (number, lease) in (0..).zip(leases) {
            // A lease that is not released expires.
            let _ = reports.add(number, &lease.to_bytes(), kind, &[], Format::Bytes);
        }
        let discard_sink: Arc<dyn ReportSink> = Arc::new(DiscardingReportSink);
        reports.submit(&discard_sink);
    }
}

/// Ignores the outcomes of reports.
struct DiscardingReportSink;

impl ReportSink for DiscardingReportSink {
    fn deliver_outcomes(&self, _: &[(u64, Result<(), QueueError>)]) {}
}

impl ReportSink for ClaimSink {
    fn deliver_outcomes(&self, _: &[(u64, Result<(), QueueError>)]) {}
}

impl WorkSink for ClaimSink {
    fn deliver_tasks(&self, tasks: &mut dyn Iterator<Item = TaskAssignment<'_>>) {
        let owned_tasks = tasks.map(|task| OwnedTask {
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
        let mut buffer = lock(&self.buffer);
        if buffer.closed {
            drop(buffer);
            return self.release_leases(owned_tasks.map(|task| task.lease));
        }
        let mut excess_leases = Vec::new();
        for task in owned_tasks {
            // Several partitions hand out at the same time: each may have seen free capacity.
            if buffer.bytes >= CLAIM_BYTES_MAX {
                excess_leases.push(task.lease);
                continue;
            }
            buffer.bytes += task.content.len() + task.tags.len();
            buffer.tasks.push(task);
        }
        drop(buffer);
        self.filled.notify_one();
        if !excess_leases.is_empty() {
            self.release_leases(excess_leases.into_iter().rev());
        }
    }

    fn is_full(&self) -> bool {
        lock(&self.buffer).bytes >= CLAIM_BYTES_MAX
    }

    fn return_leases(&self, leases: &mut dyn Iterator<Item = Lease>) {
        self.release_leases(leases);
    }

    fn notify_lost_lease(&self, _: TaskId, _: Lease, _: AttemptEnd) {}

    fn notify_end(&self, _: QueueError) {
        self.filled.notify_one();
    }
}
