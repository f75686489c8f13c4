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
use crate::worker::task_view::{Detail, TaskSnapshot, TaskView, task_of};
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
        let sight = self
            .with_task(tenant, id, |turn, place| {
                TaskSnapshot::of(turn.state, place)
            })
            .await?
            .ok_or_else(|| not_found(id))?;
        self.views(self.inner.partition_of(id.shard())?, vec![sight], detail)
            .await?
            .pop()
            .ok_or_else(|| not_found(id))
    }

    /// Runs an action on a task of this tenant, in its partition's turn.
    async fn with_task<R: Send + 'static>(
        &self,
        tenant: &str,
        id: TaskId,
        ask: impl FnOnce(&mut BatchTurn<'_>, SlotIndex) -> R + Send + 'static,
    ) -> Result<R, QueueError> {
        let tenant = tenant.to_owned();
        let partition = self.inner.partition_of(id.shard())?;
        let asked = self.inner.ask(partition, move |turn| {
            let place = turn.state.find(id)?;
            let queue = turn.state.queue_with(turn.state.entry(place).queue)?;
            if *queue.tenant != *tenant {
                return None;
            }
            Some(ask(turn, place))
        });
        asked.await?.ok_or_else(|| not_found(id))
    }

    /// Waits until a task has ended or the timeout is over, and returns its state then.
    ///
    /// # Errors
    /// [`QueueError::TaskNotFound`].
    pub async fn wait(
        &self,
        tenant: &str,
        id: TaskId,
        patience: Duration,
    ) -> Result<TaskView, QueueError> {
        let (tell, told) = tokio::sync::oneshot::channel();
        let ended = self.with_task(tenant, id, move |turn, place| {
            let entry = turn.state.entry(place);
            if entry.state.has_ended() {
                return true;
            }
            turn.wait(id.number(), tell);
            false
        });
        if !ended.await? {
            // After a timeout too, the current state is returned.
            let _ = tokio::time::timeout(patience, told).await;
        }
        self.task(tenant, id, Detail::Whole).await
    }

    /// Cancels a task that has not ended.
    ///
    /// # Errors
    /// [`QueueError::TaskNotFound`] and [`QueueError::WrongState`].
    pub async fn cancel(&self, tenant: &str, id: TaskId) -> Result<(), QueueError> {
        let number = id.number();
        let cancelled = self.with_task(tenant, id, move |turn, _| {
            turn.run(&Command::Cancel { number })
        });
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
        let deleted = self.inner.ask(partition, move |turn| {
            operators_of(turn.state, &tenant, id)?;
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
        let asked = self.inner.ask(partition, move |turn| {
            operators_of(turn.state, &tenant, id).map(str::to_owned)
        });
        asked.await?.ok_or_else(|| not_found(id))
    }

    /// Requeues a dead or cancelled task, with its attempts at zero.
    ///
    /// # Errors
    /// [`QueueError::TaskNotFound`], [`QueueError::WrongState`], and [`QueueError::Limit`] when
    /// there is no room for its callback.
    pub async fn requeue(&self, tenant: &str, id: TaskId) -> Result<(), QueueError> {
        let entry = self
            .with_task(tenant, id, |turn, place| *turn.state.entry(place))
            .await?;
        let partition = self.inner.partition_of(id.shard())?;
        let keys = self.keys(partition, vec![entry]).await?;
        let Some((number, key)) = keys.first().copied() else {
            return Err(not_found(id));
        };
        let shares = *self.inner.task_shares(self.inner.partitions()?.len());
        let requeued = self.with_task(tenant, id, move |turn, _| {
            put_back(turn, &shares, number, key)
        });
        requeued.await?
    }

    /// Hashes of ordering keys by task number, read from the log: the index does not keep those of
    /// ended tasks.
    pub(crate) async fn keys(
        &self,
        partition: usize,
        entries: Vec<Entry>,
    ) -> Result<Vec<(u64, u128)>, QueueError> {
        let shared = self.inner.partitions()?[partition].clone();
        let reading = tokio::task::spawn_blocking(move || {
            let mut keys = Vec::with_capacity(entries.len());
            for entry in entries {
                let record = match (shared.read)(Seq(entry.record)) {
                    Ok(record) => record,
                    // It was deleted meanwhile.
                    Err(LogError::Truncated { .. } | LogError::Compacted { .. }) => continue,
                    Err(error) => return Err(QueueError::Log(error)),
                };
                let key = task_of(&record)?.map_or(0, |task| task.key);
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
        let id = self.existing_queue(tenant, queue)?.id;
        let states = match state {
            Some(state) => vec![state],
            None => TaskState::ALL.to_vec(),
        };
        let mut at = Cursor::read(cursor, &states)?;
        let partitions = self.inner.partitions()?.len();
        let mut bytes = 0;
        let mut page = TaskPage {
            unavailable: self.inner.failed(),
            ..TaskPage::default()
        };
        while at.state < states.len() && at.partition < partitions {
            let (state, from, tag) = (states[at.state], at.from, tag.to_owned());
            let room = (limit - page.tasks.len()).min(SLICE_MAX);
            let asked = self.inner.ask(at.partition, move |turn| {
                let known = &*turn.state;
                let keeps = |entry: &Entry| {
                    let tags = known.tags(entry.tags);
                    tag.is_empty() || content::tags(tags).any(|one| one == tag)
                };
                let found = known.page(id, state, from, room, keeps);
                let sights = found
                    .places
                    .iter()
                    .filter_map(|place| TaskSnapshot::of(known, *place));
                let is_filled = found.places.len() == room;
                (sights.collect::<Vec<_>>(), is_filled, found.next)
            });
            let asked = match asked.await {
                Err(error) if error.failed_partition().is_some() => {
                    let partition = at.partition;
                    if !page.unavailable.contains(&partition) {
                        page.unavailable.push(partition);
                    }
                    at = at.onward(partitions);
                    continue;
                }
                asked => asked?,
            };
            let (sights, is_filled, next) = asked;
            let views = self.views(at.partition, sights, Detail::Brief).await?;
            bytes += views.iter().map(TaskView::carried_bytes).sum::<usize>();
            page.tasks.extend(views);
            // A slice that is not filled means that the partition has scanned as many tasks as it
            // does at once.
            let is_full = page.tasks.len() >= limit
                || bytes >= PAGE_BYTES_MAX
                || (next.is_some() && !is_filled);
            match next {
                Some(from) => at.from = from,
                None => at = at.onward(partitions),
            }
            if is_full && at.state < states.len() {
                page.next = Some(at.write());
                return Ok(page);
            }
        }
        Ok(page)
    }
}

/// Requeues an ended task. If it has a callback, its next end causes another one, which needs room.
pub(crate) fn put_back(
    turn: &mut BatchTurn<'_>,
    shares: &TaskShares,
    number: u64,
    key: u128,
) -> Result<(), QueueError> {
    let entry = turn.state.place_of(number);
    let entry = entry.map(|place| turn.state.entry(place));
    if let Some(entry) = entry.filter(|entry| entry.has(flag::CALLBACK) && entry.state.has_ended())
    {
        let callback = TaskLoad { tasks: 1, bytes: 0 };
        shares.check(turn.state, entry.queue, callback)?;
    }
    Ok(turn.run(&Command::Requeue { number, key })?)
}

fn operators_of<'s>(state: &'s State, tenant: &str, id: TaskId) -> Option<&'s str> {
    let entry = state.entry(state.find(id)?);
    let Some(about) = state.callback_about(entry.number) else {
        let queue = state.queue_with(entry.queue)?;
        return (*queue.tenant == *tenant).then_some(&*queue.name);
    };
    let is_own = state.tenant_of_shared(entry.record) == Some(tenant);
    let queue = state.queue_with(about.queue);
    is_own.then(|| queue.map_or("", |queue| &*queue.name))
}
