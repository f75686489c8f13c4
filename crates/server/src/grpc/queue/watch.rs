//! The stream that tells of tasks' changes. What a slow reader has not read is bounded: the oldest goes,
//! and it is told how much.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use egret_proto::queue::v1;
use egret_queue::model::TaskState;
use egret_queue::{ChangeSink, QueueError, Queues, TaskChange};
use futures_util::Stream;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::convert;
use super::outlet::Stopping;

/// Changes in one message.
const MESSAGE_CHANGES: usize = 1_000;

struct Sink {
    changes_max: usize,
    kept: Mutex<Kept>,
    gone: AtomicBool,
}

#[derive(Default)]
struct Kept {
    changes: VecDeque<v1::TaskChange>,
    missed: u64,
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
            kept.changes.push_back(v1::TaskChange {
                id: change.id.to_string(),
                queue: change.queue.to_string(),
                state: convert::state_number(change.state),
                at_ms: change.at_ms as i64,
                attempt: u32::from(change.attempt),
            });
        }
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

/// A subscription.
pub(super) struct Watch {
    sink: Arc<Sink>,
    stopping: Stopping,
}

impl Watch {
    pub async fn begin(
        queues: &Queues,
        tenant: &str,
        names: &[String],
        states: &[TaskState],
        stopping: CancellationToken,
    ) -> Result<Self, QueueError> {
        let watch = Self {
            sink: Arc::new(Sink {
                changes_max: queues.config().watch_changes_max.max(1) as usize,
                kept: Mutex::default(),
                gone: AtomicBool::new(false),
            }),
            stopping: Stopping::new(stopping),
        };
        queues
            .watch(tenant, names, states, watch.sink.clone())
            .await?;
        Ok(watch)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.sink.gone.store(true, Ordering::Release);
    }
}

impl Stream for Watch {
    type Item = Result<v1::WatchResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.stopping.poll(context) {
            return Poll::Ready(self.stopping.farewell().map(Err));
        }
        let mut kept = self.sink.kept();
        if kept.changes.is_empty() {
            kept.waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        let count = kept.changes.len().min(MESSAGE_CHANGES);
        let message = v1::WatchResponse {
            changes: kept.changes.drain(..count).collect(),
            missed: std::mem::take(&mut kept.missed),
        };
        Poll::Ready(Some(Ok(message)))
    }
}
