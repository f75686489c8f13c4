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
const RELIEVED_BYTES: usize = 1 << 20;

#[derive(Default)]
pub(super) struct ResponseBuffer {
    waiting: Mutex<ResponseBufferState>,
    /// Whether [`FULL_BYTES`] were reached, and the buffer has not drained since.
    full: AtomicBool,
}

#[derive(Default)]
struct ResponseBufferState {
    closed: VecDeque<Bytes>,
    closed_bytes: usize,
    open: Vec<u8>,
    /// The length of the last message: as much is allocated for the next one.
    usual_bytes: usize,
    /// Numbers of reports that were accepted: one packed field of the next message.
    accepted: Vec<u64>,
    /// Requests on the stream without an outcome.
    unanswered: usize,
    ended: Option<Status>,
    /// The stream is dropped: what is put here is discarded.
    gone: bool,
    waker: Option<Waker>,
}

impl ResponseBuffer {
    fn waiting(&self) -> MutexGuard<'_, ResponseBufferState> {
        lock(&self.waiting)
    }

    /// Counts `count` more requests without an outcome.
    pub(crate) fn expect(&self, count: usize) {
        self.waiting().unanswered += count;
    }

    /// Whether too many bytes are unsent.
    pub(crate) fn is_full(&self) -> bool {
        self.full.load(Ordering::SeqCst)
    }

    /// Whether the buffer has drained since it was full; true once each time.
    pub(crate) fn is_relieved(&self) -> bool {
        self.is_full()
            && self.waiting().bytes() <= RELIEVED_BYTES
            && self.full.swap(false, Ordering::SeqCst)
    }

    /// Whether more may be read from the client: it reads its responses, and fewer than
    /// `unanswered_max` requests are without an outcome.
    pub(crate) fn may_ask(&self, unanswered_max: usize) -> bool {
        let waiting = self.waiting();
        waiting.unanswered < unanswered_max && waiting.bytes() < RELIEVED_BYTES
    }

    /// Discards the buffer and everything that is put later.
    pub(crate) fn close(&self) {
        *self.waiting() = ResponseBufferState {
            gone: true,
            ..ResponseBufferState::default()
        };
    }

    /// Writes fields of the next message, which are the outcomes of `answers` requests (may be
    /// none).
    pub(crate) fn put(&self, answers: usize, write: impl FnOnce(&mut FieldWriter<'_>)) {
        let mut waiting = self.waiting();
        if waiting.gone {
            return;
        }
        waiting.unanswered = waiting.unanswered.saturating_sub(answers);
        write(&mut FieldWriter {
            waiting: &mut waiting,
        });
        if waiting.bytes() >= FULL_BYTES {
            self.full.store(true, Ordering::SeqCst);
        }
        let waker = waiting.waker.take();
        drop(waiting);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Ends the stream with this status once the buffer is sent. The first status counts.
    pub(crate) fn end(&self, status: Status) {
        let mut waiting = self.waiting();
        waiting.ended.get_or_insert(status);
        let waker = waiting.waker.take();
        drop(waiting);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// The next message. `asks_more` says whether the client may send further requests: if not, the
    /// stream ends once all of them are answered, with the status `farewell` if there is one.
    pub(crate) fn poll_next(
        &self,
        context: &mut Context<'_>,
        asks_more: bool,
        farewell: impl FnOnce() -> Option<Status>,
    ) -> Poll<Option<Result<Bytes, Status>>> {
        let mut waiting = self.waiting();
        if let Some(message) = waiting.take() {
            return Poll::Ready(Some(Ok(message)));
        }
        if let Some(status) = waiting.ended.take() {
            return Poll::Ready(Some(Err(status)));
        }
        if !asks_more && waiting.unanswered == 0 {
            return Poll::Ready(farewell().map(Err));
        }
        let known = waiting.waker.as_ref();
        if !known.is_some_and(|waker| waker.will_wake(context.waker())) {
            waiting.waker = Some(context.waker().clone());
        }
        Poll::Pending
    }
}

impl ResponseBufferState {
    fn bytes(&self) -> usize {
        self.closed_bytes + self.open.len()
    }

    /// Completes the message being written.
    fn close(&mut self) -> Bytes {
        self.usual_bytes = self.open.len();
        std::mem::take(&mut self.open).into()
    }

    fn take(&mut self) -> Option<Bytes> {
        if let Some(message) = self.closed.pop_front() {
            self.closed_bytes -= message.len();
            return Some(message);
        }
        if !self.accepted.is_empty() {
            super::encode::accepted(&mut self.open, &self.accepted);
            self.accepted.clear();
        }
        (!self.open.is_empty()).then(|| self.close())
    }
}

/// The server's shutdown, for a stream to check whenever it is polled.
pub(super) struct ShutdownSignal {
    waiting: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

impl ShutdownSignal {
    pub(crate) fn new(token: CancellationToken) -> Self {
        Self {
            waiting: Some(Box::pin(token.cancelled_owned())),
        }
    }

    /// Whether the server is stopping; registers the task to be woken when it does.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> bool {
        if let Some(waiting) = &mut self.waiting {
            if waiting.as_mut().poll(context).is_pending() {
                return false;
            }
            self.waiting = None;
        }
        true
    }

    /// The status with which a stream ends when the server stops; `None` while it runs.
    pub(crate) fn farewell(&self) -> Option<Status> {
        let stopped = self.waiting.is_none();
        stopped.then(|| crate::problem::grpc_status(&QueueError::Stopping))
    }
}

/// Writes fields of messages.
pub(super) struct FieldWriter<'a> {
    waiting: &'a mut ResponseBufferState,
}

impl FieldWriter<'_> {
    /// The message being written; a new one if it has reached [`MESSAGE_BYTES`].
    pub(crate) fn message(&mut self) -> &mut Vec<u8> {
        if self.waiting.open.len() >= MESSAGE_BYTES {
            let full = self.waiting.close();
            self.waiting.closed_bytes += full.len();
            self.waiting.closed.push_back(full);
        }
        if self.waiting.open.is_empty() {
            self.waiting.open.reserve(self.waiting.usual_bytes);
        }
        &mut self.waiting.open
    }

    /// Adds the number of an accepted report.
    pub(crate) fn accept(&mut self, number: u64) {
        self.waiting.accepted.push(number);
    }
}
