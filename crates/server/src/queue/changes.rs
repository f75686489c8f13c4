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
const PORTION: usize = 1_000;

/// A subscription; it ends when this is dropped.
pub(crate) struct Changes {
    sink: Arc<SubscriberSink>,
}

struct SubscriberSink {
    /// The queues whose changes the subscriber may see; `None`: all that it asked for.
    filter: Option<QueueFilter>,
    changes_max: usize,
    kept: Mutex<ChangeBuffer>,
    gone: AtomicBool,
}

#[derive(Default)]
struct ChangeBuffer {
    changes: VecDeque<TaskChange>,
    missed: u64,
    ended: Option<QueueError>,
    waker: Option<Waker>,
}

impl SubscriberSink {
    fn kept(&self) -> MutexGuard<'_, ChangeBuffer> {
        lock(&self.kept)
    }
}

impl ChangeSink for SubscriberSink {
    fn changed(&self, changes: &[TaskChange]) {
        let mut kept = self.kept();
        let is_within = |change: &&TaskChange| {
            let filter = self.filter.as_ref();
            filter.is_none_or(|filter| filter(&change.queue))
        };
        for change in changes.iter().filter(is_within) {
            if kept.changes.len() == self.changes_max {
                kept.changes.pop_front();
                kept.missed += 1;
            }
            kept.changes.push_back(change.clone());
        }
        let waker = kept.waker.take();
        drop(kept);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn ended(&self, error: QueueError) {
        let mut kept = self.kept();
        kept.ended = Some(error);
        let waker = kept.waker.take();
        drop(kept);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }
}

impl Changes {
    /// Subscribes to changes in `names` (empty: every queue of the tenant) into `states` (empty:
    /// any).
    pub(crate) async fn begin(
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
                kept: Mutex::default(),
                gone: AtomicBool::new(false),
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
        let mut kept = self.sink.kept();
        if kept.changes.is_empty() {
            if let Some(error) = &kept.ended {
                return Poll::Ready(Err(error.clone()));
            }
            kept.waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        let count = kept.changes.len().min(PORTION);
        let missed = std::mem::take(&mut kept.missed);
        Poll::Ready(Ok((kept.changes.drain(..count).collect(), missed)))
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        self.sink.gone.store(true, Ordering::Release);
    }
}
