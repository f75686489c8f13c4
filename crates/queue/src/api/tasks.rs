//! Queries of tasks one by one and page by page, waiting for tasks, and operations on them.

mod cursor;

use std::time::Duration;

use egret_log::{LogError, Seq};

use crate::core::command::Command;
use crate::core::entry::{Entry, TaskState, flag};
use crate::core::slab::SlotIndex;
use crate::core::state::{State, TaskLoad};
use crate::error::QueueError;
use crate::model::TaskId;
use crate::store::content;
use crate::worker::queues::Queues;
use crate::worker::read_task::not_found;
use crate::worker::task_shares::TaskShares;
use crate::worker::task_view::{Detail, TaskSnapshot, TaskView, task_in_record};
use crate::worker::turn::BatchTurn;
pub(crate) use cursor::Cursor;

/// Bytes that the tasks of a page carry after which it ends, beside those of one slice.
const PAGE_BYTES_MAX: usize = 4 << 20;

/// Tasks of a page that are read together.
const SLICE_MAX: usize = 50;

/// A page of a list.
#[derive(Clone, Debug, Default)]
pub struct TaskPage {
    /// Without payloads and results.
    pub tasks: Vec<TaskView>,
    /// For the next page; `None` at the end.
    pub next: Option<String>,
    /// Partitions that have failed: what is in them is not shown.
    pub unavailable: Vec<usize>,
}

impl Queues {
    /// A task.
    ///
    /// # Errors
    /// [`QueueError::TaskNotFound`].
    pub async fn task(
        &self,
        tenant: &str,
        id: TaskId,
        detail: Detail,
    ) -> Result<TaskView, QueueError> {
        let snapshot = self
            .run_with_task(tenant, id, |turn, slot| TaskSnapshot::from_state(turn.state, slot))
            .await?
            .ok_or_else(|| not_found(id))?;
        self.build_views(self.inner.partition_of(id.shard())?, vec![snapshot], detail)
            .await?
            .pop()
            .ok_or_else(|| not_found(id))
    }

    /// Runs an action on a task of this tenant, in its partition's turn.
    async fn run_with_task<R: Send + 'static>(
        &self,
        tenant: &str,
        id: TaskId,
        action: impl FnOnce(&mut BatchTurn<'_>, SlotIndex) -> R + Send + 'static,
    ) -> Result<R, QueueError> {
        let tenant = tenant.to_owned();
        let partition = self.inner.partition_of(id.shard())?;
        let reply = self.inner.run_in_turn(partition, move |turn| {
            let slot = turn.state.find_task(id)?;
            let queue = turn.state.queue_by_id(turn.state.entry(slot).queue)?;
            if *queue.tenant != *tenant {
                return None;
            }
            Some(action(turn, slot))
        });
        reply.await?.ok_or_else(|| not_found(id))
    }

    /// Waits until a task has ended or the timeout is over, and returns its state then.
    ///
    /// # Errors
    /// [`QueueError::TaskNotFound`].
    pub async fn wait(
        &self,
        tenant: &str,
        id: TaskId,
        timeout: Duration,
    ) -> Result<TaskView, QueueError> {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let ended = self.run_with_task(tenant, id, move |turn, slot| {
            let entry = turn.state.entry(slot);
            if entry.state.has_ended() {
                return true;
            }
            turn.notify_when_ended(id.number(), sender);
            false
        });
        if !ended.await? {
            // After a timeout too, the current state is returned.
            let _ = tokio::time::timeout(timeout, receiver).await;
        }
        self.task(tenant, id, Detail::Whole).await
    }

    /// Cancels a task that has not ended.
    ///
    /// # Errors
    /// [`QueueError::TaskNotFound`] and [`QueueError::WrongState`].
    pub async fn cancel(&self, tenant: &str, id: TaskId) -> Result<(), QueueError> {
        let number = id.number();
        let cancelled =
            self.run_with_task(tenant, id, move |turn, _| turn.run(&Command::Cancel { number }));
        Ok(cancelled.await??)
    }

    /// Deletes a task that no worker holds.
    ///
    /// # Errors
    /// [`QueueError::TaskNotFound`] and [`QueueError::WrongState`].
    pub async fn delete_task(&self, tenant: &str, id: TaskId) -> Result<(), QueueError> {
        let number = id.number();
        let tenant = tenant.to_owned();
        let partition = self.inner.partition_of(id.shard())?;
        let deleted = self.inner.run_in_turn(partition, move |turn| {
            operator_queue(turn.state, &tenant, id)?;
            Some(turn.run(&Command::Delete { number }))
        });
        Ok(deleted.await?.ok_or_else(|| not_found(id))??)
    }

    /// Name of the queue whose operators may delete a task: its own, or for a callback the queue of
    /// the task that it reports. Empty if that queue is deleted.
    ///
    /// # Errors
    /// [`QueueError::TaskNotFound`].
    pub async fn queue_to_delete_in(&self, tenant: &str, id: TaskId) -> Result<String, QueueError> {
        let tenant = tenant.to_owned();
        let partition = self.inner.partition_of(id.shard())?;
        let reply = self.inner.run_in_turn(partition, move |turn| {
            operator_queue(turn.state, &tenant, id).map(str::to_owned)
        });
        reply.await?.ok_or_else(|| not_found(id))
    }

    /// Requeues a dead or cancelled task, with its attempts at zero.
    ///
    /// # Errors
    /// [`QueueError::TaskNotFound`], [`QueueError::WrongState`], and [`QueueError::Limit`] when
    /// there is no room for its callback.
    pub async fn requeue(&self, tenant: &str, id: TaskId) -> Result<(), QueueError> {
        let entry = self.run_with_task(tenant, id, |turn, slot| *turn.state.entry(slot)).await?;
        let partition = self.inner.partition_of(id.shard())?;
        let keys = self.ordering_keys(partition, vec![entry]).await?;
        let Some((number, key)) = keys.first().copied() else {
            return Err(not_found(id));
        };
        let shares = *self.inner.task_shares(self.inner.partitions()?.len());
        let requeued =
            self.run_with_task(tenant, id, move |turn, _| requeue_task(turn, &shares, number, key));
        requeued.await?
    }

    /// Hashes of ordering keys by task number, read from the log: the index does not keep those of
    /// ended tasks.
    pub(crate) async fn ordering_keys(
        &self,
        partition: usize,
        entries: Vec<Entry>,
    ) -> Result<Vec<(u64, u128)>, QueueError> {
        let shared = self.inner.partitions()?[partition].clone();
        let reading = tokio::task::spawn_blocking(move || {
            let mut keys = Vec::with_capacity(entries.len());
            for entry in entries {
                let record = match (shared.read_record)(Seq(entry.record)) {
                    Ok(record) => record,
                    // It was deleted meanwhile.
                    Err(LogError::Truncated { .. } | LogError::Compacted { .. }) => continue,
                    Err(error) => return Err(QueueError::Log(error)),
                };
                let key = task_in_record(&record)?.map_or(0, |task| task.key);
                keys.push((entry.number, key));
            }
            Ok(keys)
        });
        reading.await.map_err(|_| QueueError::Stopping)?
    }

    /// Tasks of a queue in a state, those with a tag where one is given, a page at a time:
    /// partition by partition, in each in the order in which they entered the state. A page ends
    /// early when its tasks have much content.
    ///
    /// # Errors
    /// [`QueueError::QueueNotFound`], and [`QueueError::Invalid`] for a cursor of another list.
    pub async fn tasks(
        &self,
        tenant: &str,
        queue: &str,
        state: Option<TaskState>,
        tag: &str,
        limit: usize,
        cursor: &str,
    ) -> Result<TaskPage, QueueError> {
        let id = self.require_queue(tenant, queue)?.id;
        let states = match state {
            Some(state) => vec![state],
            None => TaskState::ALL.to_vec(),
        };
        let mut position = Cursor::parse(cursor, &states)?;
        let partitions = self.inner.partitions()?.len();
        let mut bytes = 0;
        let mut page =
            TaskPage { unavailable: self.inner.failed_partitions(), ..TaskPage::default() };
        while position.state < states.len() && position.partition < partitions {
            let (state, from, tag) = (states[position.state], position.from, tag.to_owned());
            let slice_max = (limit - page.tasks.len()).min(SLICE_MAX);
            let reply = self.inner.run_in_turn(position.partition, move |turn| {
                let partition_state = &*turn.state;
                let has_tag = |entry: &Entry| {
                    let tags = partition_state.tags(entry.tags);
                    tag.is_empty() || content::tags(tags).any(|own_tag| own_tag == tag)
                };
                let rows = partition_state.list_page(id, state, from, slice_max, has_tag);
                let snapshots = rows
                    .slots
                    .iter()
                    .filter_map(|slot| TaskSnapshot::from_state(partition_state, *slot));
                let is_filled = rows.slots.len() == slice_max;
                (snapshots.collect::<Vec<_>>(), is_filled, rows.next)
            });
            let slice = match reply.await {
                Err(error) if error.failed_partition().is_some() => {
                    let partition = position.partition;
                    if !page.unavailable.contains(&partition) {
                        page.unavailable.push(partition);
                    }
                    position = position.next_partition(partitions);
                    continue;
                }
                result => result?,
            };
            let (sights, is_filled, next) = slice;
            let views = self.build_views(position.partition, sights, Detail::Brief).await?;
            bytes += views.iter().map(TaskView::text_bytes).sum::<usize>();
            page.tasks.extend(views);
            // A slice that is not filled means that the partition has scanned as many tasks as it
            // does at once.
            let is_full = page.tasks.len() >= limit
                || bytes >= PAGE_BYTES_MAX
                || (next.is_some() && !is_filled);
            match next {
                Some(from) => position.from = from,
                None => position = position.next_partition(partitions),
            }
            if is_full && position.state < states.len() {
                page.next = Some(position.to_text());
                return Ok(page);
            }
        }
        Ok(page)
    }
}

/// Requeues an ended task. If it has a callback, its next end causes another one, which needs room.
pub(crate) fn requeue_task(
    turn: &mut BatchTurn<'_>,
    shares: &TaskShares,
    number: u64,
    key: u128,
) -> Result<(), QueueError> {
    let entry = turn.state.slot_of(number);
    let entry = entry.map(|slot| turn.state.entry(slot));
    if let Some(entry) =
        entry.filter(|entry| entry.has_flag(flag::CALLBACK) && entry.state.has_ended())
    {
        let callback = TaskLoad { tasks: 1, bytes: 0 };
        shares.check(turn.state, entry.queue, callback)?;
    }
    Ok(turn.run(&Command::Requeue { number, key })?)
}

fn operator_queue<'s>(state: &'s State, tenant: &str, id: TaskId) -> Option<&'s str> {
    let entry = state.entry(state.find_task(id)?);
    let Some(ended_task) = state.callback_subject(entry.number) else {
        let queue = state.queue_by_id(entry.queue)?;
        return (*queue.tenant == *tenant).then_some(&*queue.name);
    };
    let is_own = state.tenant_of_shared_record(entry.record) == Some(tenant);
    let queue = state.queue_by_id(ended_task.queue);
    is_own.then(|| queue.map_or("", |queue| &*queue.name))
}
