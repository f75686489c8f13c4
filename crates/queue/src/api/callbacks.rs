//! The callbacks of a tenant, page by page: those that are still to be sent and those that were
//! given up.

use egret_outgoing::receiver_of;

use super::tasks::Cursor;
use crate::core::entry::{Entry, TaskState};
use crate::core::state::{CALLBACKS, State};
use crate::error::QueueError;
use crate::model::TaskId;
use crate::worker::queues::Queues;
use crate::worker::submission::QueueFilter;
use crate::worker::task_view::Detail;
use crate::worker::task_view::{TaskSnapshot, TaskView};

/// States that a list shows when no state is requested: those of undelivered callbacks.
const UNDELIVERED: [TaskState; 4] = [
    TaskState::Ready,
    TaskState::Leased,
    TaskState::Delayed,
    TaskState::Dead,
];

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
        let mut at = Cursor::read(cursor, &states)?;
        let partitions = self.inner.partitions()?.len();
        let mut page = CallbackPage {
            unavailable: self.inner.failed(),
            ..CallbackPage::default()
        };
        while at.state < states.len() && at.partition < partitions {
            let (state, from) = (states[at.state], at.from);
            let room = limit - page.callbacks.len();
            let (tenant, filter) = (tenant.to_owned(), filter.clone());
            let found = self.inner.ask(at.partition, move |turn| {
                find(turn.state, &tenant, filter.as_ref(), state, from, room)
            });
            let next = match found.await {
                Err(error) if error.failed_partition().is_some() => {
                    if !page.unavailable.contains(&at.partition) {
                        page.unavailable.push(at.partition);
                    }
                    None
                }
                found => {
                    let (found, next) = found?;
                    let callbacks = self.callback_views(at.partition, found).await?;
                    page.callbacks.extend(callbacks);
                    next
                }
            };
            at = match next {
                Some(from) => Cursor { from, ..at },
                None => at.onward(partitions),
            };
            if (next.is_some() || page.callbacks.len() == limit) && at.state < states.len() {
                page.next = Some(at.write());
                return Ok(page);
            }
        }
        Ok(page)
    }

    async fn callback_views(
        &self,
        partition: usize,
        found: Vec<(TaskSnapshot, Subject)>,
    ) -> Result<Vec<CallbackView>, QueueError> {
        let mut callbacks = Vec::with_capacity(found.len());
        for (sight, subject) in found {
            let view = self.views(partition, vec![sight], Detail::Brief).await?;
            callbacks.extend(view.into_iter().map(|view| shown(view, &subject)));
        }
        Ok(callbacks)
    }
}

fn find(
    state: &State,
    tenant: &str,
    filter: Option<&QueueFilter>,
    kind: TaskState,
    from: u64,
    limit: usize,
) -> (Vec<(TaskSnapshot, Subject)>, Option<u64>) {
    let subject = |entry: &Entry| {
        let about = state.callback_about(entry.number)?;
        let queue = state.queue_with(about.queue)?;
        let is_allowed =
            *queue.tenant == *tenant && filter.is_none_or(|allows| allows(&queue.name));
        is_allowed.then(|| Subject {
            task: state.id(about.task),
            state: about.state,
            queue: queue.name.to_string(),
        })
    };
    let page = state.page(CALLBACKS, kind, from, limit, |entry| {
        subject(entry).is_some()
    });
    let found = page.places.iter().filter_map(|place| {
        let subject = subject(state.entry(*place))?;
        Some((TaskSnapshot::of(state, *place)?, subject))
    });
    (found.collect(), page.next)
}

fn shown(view: TaskView, subject: &Subject) -> CallbackView {
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
