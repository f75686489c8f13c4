//! The stream on which a client waits for any number of tasks, however many calls it makes at a
//! time.

use std::collections::HashMap;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use egret_base::lifecycle::BoxFuture;
use egret_proto::queue::v1;
use egret_queue::{QueueError, Queues, TaskView};
use futures_util::future::{AbortHandle, Abortable, Aborted};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, Stream, StreamExt};
use prost::Message;
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming};

use super::convert;
use super::response_buffer::ShutdownSignal;
use crate::access::Caller;
use crate::grpc::malformed_message;
use crate::queue::{parse_task_id, rights};

/// Waits of one stream; more are not read before one of these has ended.
const WAITS_MAX: usize = 10_000;

/// A message that has reached so many bytes takes no further task.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// Timeout of one wait at the engine; the stream then waits again.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

type Outcome = (u64, Result<Result<TaskView, QueueError>, Aborted>);

pub(super) struct WaitTasks {
    queues: Queues,
    caller: Caller,
    inbound: Option<Streaming<v1::WaitTasksRequest>>,
    waits: FuturesUnordered<BoxFuture<'static, Outcome>>,
    /// How to end a wait, by its number.
    handles: HashMap<u64, AbortHandle>,
    /// Why the client's side has ended, if not by the client.
    failure: Option<Status>,
    stopping: ShutdownSignal,
}

impl WaitTasks {
    pub(crate) fn new(
        queues: Queues,
        caller: Caller,
        inbound: Streaming<v1::WaitTasksRequest>,
        stopping: CancellationToken,
    ) -> Self {
        Self {
            queues,
            caller,
            inbound: Some(inbound),
            waits: FuturesUnordered::new(),
            handles: HashMap::new(),
            failure: None,
            stopping: ShutdownSignal::new(stopping),
        }
    }

    fn read_inbound(&mut self, context: &mut Context<'_>) {
        while self.waits.len() < WAITS_MAX
            && let Some(inbound) = &mut self.inbound
        {
            match Pin::new(inbound).poll_next(context) {
                Poll::Pending => return,
                Poll::Ready(Some(Ok(message))) => self.handle_message(message),
                Poll::Ready(Some(Err(status))) => {
                    self.inbound = None;
                    self.failure = Some(malformed_message::assign_code(status));
                }
                Poll::Ready(None) => self.inbound = None,
            }
        }
    }

    fn handle_message(&mut self, message: v1::WaitTasksRequest) {
        for number in message.cancelled {
            if let Some(handle) = self.handles.remove(&number) {
                handle.abort();
            }
        }
        for wait in message.waits {
            let number = wait.number;
            let (handle, registration) = AbortHandle::new_pair();
            let outcome = await_end(self.queues.clone(), self.caller.clone(), wait.id);
            let ended = Abortable::new(outcome, registration);
            self.waits.push(ended.map(move |ended| (number, ended)).boxed());
            if let Some(previous) = self.handles.insert(number, handle) {
                previous.abort();
            }
        }
    }
}

/// Waits until a task has ended, or cannot be waited for.
async fn await_end(queues: Queues, caller: Caller, text: String) -> Result<TaskView, QueueError> {
    let id = parse_task_id(&text)?;
    rights::require_task(&queues, &caller, id, rights::READ_RESULT).await?;
    loop {
        let view = queues.wait(caller.tenant(), id, WAIT_TIMEOUT).await?;
        if view.state.has_ended() {
            return Ok(view);
        }
    }
}

fn wait_outcome(number: u64, result: Result<TaskView, QueueError>) -> v1::WaitOutcome {
    let (task, error) = match result {
        Ok(view) => (Some(convert::task(&view)), None),
        Err(error) => (None, Some(convert::to_error(&error))),
    };
    v1::WaitOutcome { number, task, error }
}

impl Stream for WaitTasks {
    type Item = Result<v1::WaitTasksResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.stopping.poll(context) {
            return Poll::Ready(self.stopping.shutdown_status().map(Err));
        }
        self.read_inbound(context);
        let mut outcomes = Vec::new();
        let mut size_bytes = 0;
        while size_bytes < MESSAGE_BYTES_MAX {
            match self.waits.poll_next_unpin(context) {
                Poll::Ready(Some((number, Ok(result)))) => {
                    self.handles.remove(&number);
                    let outcome = wait_outcome(number, result);
                    size_bytes += outcome.encoded_len();
                    outcomes.push(outcome);
                }
                // It is not wanted any longer, and has made room.
                Poll::Ready(Some((_, Err(Aborted)))) => self.read_inbound(context),
                Poll::Ready(None) | Poll::Pending => break,
            }
        }
        if !outcomes.is_empty() {
            // The next poll comes at once, and reads what there is room for by then.
            return Poll::Ready(Some(Ok(v1::WaitTasksResponse { outcomes })));
        }
        if let Some(status) = self.failure.take() {
            return Poll::Ready(Some(Err(status)));
        }
        if self.inbound.is_none() && self.waits.is_empty() {
            return Poll::Ready(None);
        }
        Poll::Pending
    }
}
