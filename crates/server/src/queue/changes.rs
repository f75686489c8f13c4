//! Changes of tasks for one subscriber. What a slow reader has not read is bounded: the oldest goes, and
//! it is told how much.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use egret_queue::model::TaskState;
use egret_queue::{ChangeSink, QueueError, Queues, TaskChange};

/// Changes told at a time.
const PORTION: usize = 1_000;

/// A subscription; it ends when this is dropped.
pub(crate) struct Changes {
    sink: Arc<Sink>,
}

struct Sink {
    changes_max: usize,
    kept: Mutex<Kept>,
    gone: AtomicBool,
}

#[derive(Default)]
struct Kept {
    changes: VecDeque<TaskChange>,
    missed: u64,
    ended: Option<QueueError>,
    waker: Option<Waker>,
}

impl Sink {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ChangeSink for Sink {
    fn changed(&self, changes: &[TaskChange]) {
        let mut kept = self.kept();
        for change in changes {
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
    /// Subscribes to changes in `names` (empty: every queue of the tenant) into `states` (empty: any).
    pub async fn begin(
        queues: &Queues,
        tenant: &str,
        names: &[String],
        states: &[TaskState],
    ) -> Result<Self, QueueError> {
        let changes = Self {
            sink: Arc::new(Sink {
                changes_max: queues.config().watch_changes_max.max(1) as usize,
                kept: Mutex::default(),
                gone: AtomicBool::new(false),
            }),
        };
        let sink = changes.sink.clone();
        queues.watch(tenant, names, states, sink).await?;
        Ok(changes)
    }

    /// The next changes, and how many were missed before them; an error when there will be no more.
    pub fn poll_next(
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
