//! The stream of changes of tasks.

use std::pin::Pin;
use std::task::{Context, Poll};

use egret_proto::queue::v1;
use egret_queue::TaskChange;
use futures_util::Stream;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::convert;
use super::response_buffer::ShutdownSignal;
use crate::problem::grpc_status;
use crate::queue::Changes;

pub(super) struct TaskChangeStream {
    changes: Changes,
    stopping: ShutdownSignal,
}

impl TaskChangeStream {
    pub(crate) fn new(changes: Changes, stopping: CancellationToken) -> Self {
        Self { changes, stopping: ShutdownSignal::new(stopping) }
    }
}

fn task_change(change: TaskChange) -> v1::TaskChange {
    v1::TaskChange {
        id: change.id.to_string(),
        queue: change.queue.into_string(),
        state: convert::state_number(change.state),
        at_ms: change.at_ms as i64,
        attempt: u32::from(change.attempt),
    }
}

impl Stream for TaskChangeStream {
    type Item = Result<v1::WatchResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.stopping.poll(context) {
            return Poll::Ready(self.stopping.shutdown_status().map(Err));
        }
        let next = self.changes.poll_next(context);
        next.map(|next| {
            let response = next.map(|(changes, missed)| v1::WatchResponse {
                changes: changes.into_iter().map(task_change).collect(),
                missed,
            });
            Some(response.map_err(|error| grpc_status(&error)))
        })
    }
}
