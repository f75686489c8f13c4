//! Changes of tasks for one subscriber. The buffer of unread changes is bounded: the oldest are
//! dropped, and the subscriber receives their number.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use egret_base::sync::lock;
use egret_queue::model::TaskState;
use egret_queue::{ChangeSink, QueueError, QueueFilter, Queues, TaskChange};

use super::rights;
use crate::access::Caller;
use crate::problem::Problem;

/// Most changes that one poll returns.
const POLL_CHANGES_MAX: usize = 1_000;

/// A subscription; it ends when this is dropped.
pub(crate) struct Changes {
    sink: Arc<SubscriberSink>,
}

struct SubscriberSink {
    /// The queues whose changes the subscriber may see; `None`: all that it asked for.
    filter: Option<QueueFilter>,
    changes_max: usize,
    buffer: Mutex<ChangeBuffer>,
    is_closed: AtomicBool,
}

#[derive(Default)]
struct ChangeBuffer {
    changes: VecDeque<TaskChange>,
    missed: u64,
    end_error: Option<QueueError>,
    waker: Option<Waker>,
}

impl SubscriberSink {
    fn lock_buffer(&self) -> MutexGuard<'_, ChangeBuffer> {
        lock(&self.buffer)
    }
}

impl ChangeSink for SubscriberSink {
    fn deliver_changes(&self, changes: &[TaskChange]) {
        let mut buffer = self.lock_buffer();
        let is_watched = |change: &&TaskChange| {
            let filter = self.filter.as_ref();
            filter.is_none_or(|filter| filter(&change.queue))
        };
        for change in changes.iter().filter(is_watched) {
            if buffer.changes.len() == self.changes_max {
                buffer.changes.pop_front();
                buffer.missed += 1;
            }
            buffer.changes.push_back(change.clone());
        }
        let waker = buffer.waker.take();
        drop(buffer);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn notify_end(&self, error: QueueError) {
        let mut buffer = self.lock_buffer();
        buffer.end_error = Some(error);
        let waker = buffer.waker.take();
        drop(buffer);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }
}

impl Changes {
    /// Subscribes to changes in `names` (empty: every queue of the tenant) into `states` (empty:
    /// any).
    pub(crate) async fn subscribe(
        queues: &Queues,
        caller: &Caller,
        names: &[String],
        states: &[TaskState],
    ) -> Result<Self, Problem> {
        for name in names {
            rights::require(caller, name, rights::READ)?;
        }
        let changes = Self {
            sink: Arc::new(SubscriberSink {
                filter: rights::watch_filter(caller),
                changes_max: queues.config().watch_changes_max.max(1) as usize,
                buffer: Mutex::default(),
                is_closed: AtomicBool::new(false),
            }),
        };
        let sink = changes.sink.clone();
        queues.watch(caller.tenant(), names, states, sink).await?;
        Ok(changes)
    }

    /// The next changes, and how many were missed before them; an error when there will be no more.
    pub(crate) fn poll_next(
        &self,
        context: &mut Context<'_>,
    ) -> Poll<Result<(Vec<TaskChange>, u64), QueueError>> {
        let mut buffer = self.sink.lock_buffer();
        if buffer.changes.is_empty() {
            if let Some(error) = &buffer.end_error {
                return Poll::Ready(Err(error.clone()));
            }
            buffer.waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        let count = buffer.changes.len().min(POLL_CHANGES_MAX);
        let missed = std::mem::take(&mut buffer.missed);
        Poll::Ready(Ok((buffer.changes.drain(..count).collect(), missed)))
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        self.sink.is_closed.store(true, Ordering::Release);
    }
}
