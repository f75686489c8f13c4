//! The buffer of encoded responses of a stream: partitions append to it, and the stream sends all
//! of it in one message.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use egret_base::sync::lock;
use egret_queue::QueueError;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::Status;

/// A message is closed at this size, in bytes; one task may make it larger.
const MESSAGE_BYTES: usize = 256 << 10;

/// Unsent bytes from which on a stream receives no more tasks.
const FULL_BYTES: usize = 4 << 20;

/// Unsent bytes at which a stream that was full receives tasks again.
const DRAINED_BYTES: usize = 1 << 20;

#[derive(Default)]
pub(super) struct ResponseBuffer {
    state: Mutex<ResponseBufferState>,
    /// Whether [`FULL_BYTES`] were reached, and the buffer has not drained since.
    is_full: AtomicBool,
}

#[derive(Default)]
struct ResponseBufferState {
    complete_messages: VecDeque<Bytes>,
    complete_bytes: usize,
    open_message: Vec<u8>,
    /// The length of the last message: as much is allocated for the next one.
    last_message_bytes: usize,
    /// Numbers of reports that were accepted: one packed field of the next message.
    accepted: Vec<u64>,
    /// Requests on the stream without an outcome.
    unanswered: usize,
    end_status: Option<Status>,
    /// The stream is dropped: what is put here is discarded.
    is_closed: bool,
    waker: Option<Waker>,
}

impl ResponseBuffer {
    fn lock_state(&self) -> MutexGuard<'_, ResponseBufferState> {
        lock(&self.state)
    }

    /// Counts `count` more requests without an outcome.
    pub(crate) fn add_unanswered(&self, count: usize) {
        self.lock_state().unanswered += count;
    }

    /// Whether too many bytes are unsent.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::SeqCst)
    }

    /// Whether the buffer has drained since it was full; true once each time.
    pub(crate) fn reset_if_drained(&self) -> bool {
        self.is_full()
            && self.lock_state().bytes() <= DRAINED_BYTES
            && self.is_full.swap(false, Ordering::SeqCst)
    }

    /// Whether more may be read from the client: it reads its responses, and fewer than
    /// `unanswered_max` requests are without an outcome.
    pub(crate) fn may_receive(&self, unanswered_max: usize) -> bool {
        let state = self.lock_state();
        state.unanswered < unanswered_max && state.bytes() < DRAINED_BYTES
    }

    /// Discards the buffer and everything that is put later.
    pub(crate) fn close(&self) {
        *self.lock_state() =
            ResponseBufferState { is_closed: true, ..ResponseBufferState::default() };
    }

    /// Writes fields of the next message, which are the outcomes of `outcomes` requests (may be
    /// none).
    pub(crate) fn append(&self, outcomes: usize, write: impl FnOnce(&mut FieldWriter<'_>)) {
        let mut state = self.lock_state();
        if state.is_closed {
            return;
        }
        state.unanswered = state.unanswered.saturating_sub(outcomes);
        write(&mut FieldWriter { state: &mut state });
        if state.bytes() >= FULL_BYTES {
            self.is_full.store(true, Ordering::SeqCst);
        }
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Ends the stream with this status once the buffer is sent. The first status counts.
    pub(crate) fn end(&self, status: Status) {
        let mut state = self.lock_state();
        state.end_status.get_or_insert(status);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// The next message. `has_more_requests` says whether the client may send further requests: if
    /// not, the stream ends once all of them are answered, with `final_status` if there is one.
    pub(crate) fn poll_next(
        &self,
        context: &mut Context<'_>,
        has_more_requests: bool,
        final_status: impl FnOnce() -> Option<Status>,
    ) -> Poll<Option<Result<Bytes, Status>>> {
        let mut state = self.lock_state();
        if let Some(message) = state.take_message() {
            return Poll::Ready(Some(Ok(message)));
        }
        if let Some(status) = state.end_status.take() {
            return Poll::Ready(Some(Err(status)));
        }
        if !has_more_requests && state.unanswered == 0 {
            return Poll::Ready(final_status().map(Err));
        }
        let registered = state.waker.as_ref();
        if !registered.is_some_and(|waker| waker.will_wake(context.waker())) {
            state.waker = Some(context.waker().clone());
        }
        Poll::Pending
    }
}

impl ResponseBufferState {
    fn bytes(&self) -> usize {
        self.complete_bytes + self.open_message.len()
    }

    /// Completes the message being written.
    fn close_message(&mut self) -> Bytes {
        self.last_message_bytes = self.open_message.len();
        std::mem::take(&mut self.open_message).into()
    }

    fn take_message(&mut self) -> Option<Bytes> {
        if let Some(message) = self.complete_messages.pop_front() {
            self.complete_bytes -= message.len();
            return Some(message);
        }
        if !self.accepted.is_empty() {
            super::encode::put_accepted(&mut self.open_message, &self.accepted);
            self.accepted.clear();
        }
        (!self.open_message.is_empty()).then(|| self.close_message())
    }
}

/// The server's shutdown, for a stream to check whenever it is polled.
pub(super) struct ShutdownSignal {
    cancelled: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

impl ShutdownSignal {
    pub(crate) fn new(token: CancellationToken) -> Self {
        Self { cancelled: Some(Box::pin(token.cancelled_owned())) }
    }

    /// Whether the server is stopping; registers the task to be woken when it does.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> bool {
        if let Some(cancelled) = &mut self.cancelled {
            if cancelled.as_mut().poll(context).is_pending() {
                return false;
            }
            self.cancelled = None;
        }
        true
    }

    /// The status with which a stream ends when the server stops; `None` while it runs.
    pub(crate) fn shutdown_status(&self) -> Option<Status> {
        let stopped = self.cancelled.is_none();
        stopped.then(|| crate::problem::grpc_status(&QueueError::Stopping))
    }
}

/// Writes fields of messages.
pub(super) struct FieldWriter<'a> {
    state: &'a mut ResponseBufferState,
}

impl FieldWriter<'_> {
    /// The message being written; a new one if it has reached [`MESSAGE_BYTES`].
    pub(crate) fn message(&mut self) -> &mut Vec<u8> {
        if self.state.open_message.len() >= MESSAGE_BYTES {
            let full = self.state.close_message();
            self.state.complete_bytes += full.len();
            self.state.complete_messages.push_back(full);
        }
        if self.state.open_message.is_empty() {
            self.state.open_message.reserve(self.state.last_message_bytes);
        }
        &mut self.state.open_message
    }

    /// Adds the number of an accepted report.
    pub(crate) fn add_accepted(&mut self, number: u64) {
        self.state.accepted.push(number);
    }
}
