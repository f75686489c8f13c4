//! The callbacks of a tenant, page by page: those that are still to be sent and those that were
//! given up.

use egret_outgoing::receiver_of;

use super::tasks::Cursor;
use crate::core::entry::{Entry, TaskState};
use crate::core::state::{CALLBACK_QUEUE, State};
use crate::error::QueueError;
use crate::model::TaskId;
use crate::worker::queues::Queues;
use crate::worker::submission::QueueFilter;
use crate::worker::task_view::Detail;
use crate::worker::task_view::{TaskSnapshot, TaskView};

/// States that a list shows when no state is requested: those of undelivered callbacks.
const UNDELIVERED: [TaskState; 4] =
    [TaskState::Ready, TaskState::Leased, TaskState::Delayed, TaskState::Dead];

/// A callback. Times are Unix milliseconds, zero where they do not apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallbackView {
    /// Its own id, by which [`Queues::delete_task`] deletes it.
    pub id: TaskId,
    /// The task whose end it reports.
    pub task: TaskId,
    /// How that task ended.
    pub task_state: TaskState,
    /// The queue of that task.
    pub queue: String,
    /// Host and port that it goes to. The rest of the URL may hold secrets.
    pub receiver: String,
    /// Where it is: `dead` when it was given up.
    pub state: TaskState,
    /// Attempts that have begun so far.
    pub attempts: u16,
    /// Attempts before it is given up.
    pub max_attempts: u16,
    /// The next attempt, of one that waits for it.
    pub next_ms: u64,
    /// When it was delivered or given up.
    pub ended_ms: u64,
    /// Why the last attempt failed.
    pub error: String,
}

/// A page of a list of callbacks.
#[derive(Clone, Debug, Default)]
pub struct CallbackPage {
    /// The callbacks of this page.
    pub callbacks: Vec<CallbackView>,
    /// For the next page; `None` at the end.
    pub next: Option<String>,
    /// Partitions that have failed: their callbacks are missing.
    pub unavailable: Vec<usize>,
}

/// The task whose end a callback reports, read in its partition's turn.
struct Subject {
    task: TaskId,
    state: TaskState,
    queue: String,
}

impl Queues {
    /// Callbacks of a tenant's tasks, of those queues that `filter` allows, in a state or in all in
    /// which they have not arrived: state by state, in each partition by partition. A page may hold
    /// fewer than `limit` where many callbacks belong to other tenants.
    ///
    /// # Errors
    /// [`QueueError::Invalid`] for a cursor of another list.
    pub async fn callbacks(
        &self,
        tenant: &str,
        filter: Option<QueueFilter>,
        state: Option<TaskState>,
        limit: usize,
        cursor: &str,
    ) -> Result<CallbackPage, QueueError> {
        let states = state.map_or_else(|| UNDELIVERED.to_vec(), |state| vec![state]);
        let mut position = Cursor::parse(cursor, &states)?;
        let partitions = self.inner.partitions()?.len();
        let mut page =
            CallbackPage { unavailable: self.inner.failed_partitions(), ..CallbackPage::default() };
        while position.state < states.len() && position.partition < partitions {
            let (state, from) = (states[position.state], position.from);
            let remaining = limit - page.callbacks.len();
            let (tenant, filter) = (tenant.to_owned(), filter.clone());
            let reply = self.inner.run_in_turn(position.partition, move |turn| {
                find_callbacks(turn.state, &tenant, filter.as_ref(), state, from, remaining)
            });
            let next = match reply.await {
                Err(error) if error.failed_partition().is_some() => {
                    if !page.unavailable.contains(&position.partition) {
                        page.unavailable.push(position.partition);
                    }
                    None
                }
                result => {
                    let (rows, next) = result?;
                    let callbacks = self.callback_views(position.partition, rows).await?;
                    page.callbacks.extend(callbacks);
                    next
                }
            };
            position = match next {
                Some(from) => Cursor { from, ..position },
                None => position.next_partition(partitions),
            };
            if (next.is_some() || page.callbacks.len() == limit) && position.state < states.len() {
                page.next = Some(position.to_text());
                return Ok(page);
            }
        }
        Ok(page)
    }

    async fn callback_views(
        &self,
        partition: usize,
        rows: Vec<(TaskSnapshot, Subject)>,
    ) -> Result<Vec<CallbackView>, QueueError> {
        let mut callbacks = Vec::with_capacity(rows.len());
        for (snapshot, subject) in rows {
            let view = self.build_views(partition, vec![snapshot], Detail::Brief).await?;
            callbacks.extend(view.into_iter().map(|view| callback_view(view, &subject)));
        }
        Ok(callbacks)
    }
}

fn find_callbacks(
    state: &State,
    tenant: &str,
    filter: Option<&QueueFilter>,
    kind: TaskState,
    from: u64,
    limit: usize,
) -> (Vec<(TaskSnapshot, Subject)>, Option<u64>) {
    let subject = |entry: &Entry| {
        let ended_task = state.callback_subject(entry.number)?;
        let queue = state.queue_by_id(ended_task.queue)?;
        let is_allowed =
            *queue.tenant == *tenant && filter.is_none_or(|allows| allows(&queue.name));
        is_allowed.then(|| Subject {
            task: state.task_id(ended_task.task),
            state: ended_task.state,
            queue: queue.name.to_string(),
        })
    };
    let page = state.list_page(CALLBACK_QUEUE, kind, from, limit, |entry| subject(entry).is_some());
    let rows = page.slots.iter().filter_map(|slot| {
        let subject = subject(state.entry(*slot))?;
        Some((TaskSnapshot::from_state(state, *slot)?, subject))
    });
    (rows.collect(), page.next)
}

fn callback_view(view: TaskView, subject: &Subject) -> CallbackView {
    CallbackView {
        id: view.id,
        task: subject.task,
        task_state: subject.state,
        queue: subject.queue.clone(),
        receiver: receiver_of(&view.callback_url),
        state: view.state,
        attempts: view.attempts,
        max_attempts: view.max_attempts,
        next_ms: view.run_at_ms,
        ended_ms: view.ended_ms,
        error: view.error,
    }
}
