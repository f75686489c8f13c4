//! What waits to be sent on a stream, encoded already: partitions add to it, and whoever sends takes
//! everything there is in one message.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use egret_queue::QueueError;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::Status;

/// A message is closed at this size, in bytes; one task may make it larger.
const MESSAGE_BYTES: usize = 256 << 10;

/// See the module.
#[derive(Default)]
pub(super) struct Outlet {
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    closed: VecDeque<Bytes>,
    open: BytesMut,
    /// Numbers of reports that were accepted: one packed field of the next message.
    accepted: Vec<u64>,
    /// Things asked for on the stream that have no answer yet.
    unanswered: usize,
    ended: Option<Status>,
    waker: Option<Waker>,
}

impl Outlet {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `count` more things are asked for.
    pub fn expect(&self, count: usize) {
        self.waiting().unanswered += count;
    }

    /// Adds `answers` answers, or none, by writing fields of the next message.
    pub fn put(&self, answers: usize, write: impl FnOnce(&mut Page<'_>)) {
        let mut waiting = self.waiting();
        waiting.unanswered = waiting.unanswered.saturating_sub(answers);
        write(&mut Page {
            waiting: &mut waiting,
        });
        let waker = waiting.waker.take();
        drop(waiting);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Nothing comes after this.
    pub fn end(&self, status: Status) {
        let mut waiting = self.waiting();
        waiting.ended.get_or_insert(status);
        let waker = waiting.waker.take();
        drop(waiting);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Things asked for that have no answer yet.
    pub fn unanswered(&self) -> usize {
        self.waiting().unanswered
    }

    /// The next message. `asks_more` says whether more may be asked for on the stream: once it may not
    /// and everything is answered and sent, the end comes, with `farewell` where there is one.
    pub fn poll_next(
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

impl Waiting {
    fn take(&mut self) -> Option<Bytes> {
        if let Some(message) = self.closed.pop_front() {
            return Some(message);
        }
        if !self.accepted.is_empty() {
            super::encode::accepted(&mut self.open, &self.accepted);
            self.accepted.clear();
        }
        (!self.open.is_empty()).then(|| self.open.split().freeze())
    }
}

/// Whether the server stops, for a stream to look at whenever it is polled.
pub(super) struct Stopping {
    waiting: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

impl Stopping {
    pub fn new(token: CancellationToken) -> Self {
        Self {
            waiting: Some(Box::pin(token.cancelled_owned())),
        }
    }

    /// Whether it does by now.
    pub fn poll(&mut self, context: &mut Context<'_>) -> bool {
        if let Some(waiting) = &mut self.waiting {
            if waiting.as_mut().poll(context).is_pending() {
                return false;
            }
            self.waiting = None;
        }
        true
    }

    /// What a stream ends with when the server stops.
    pub fn farewell(&self) -> Option<Status> {
        let stopped = self.waiting.is_none();
        stopped.then(|| crate::problem::grpc_status(&QueueError::Stopping))
    }
}

/// Where fields of messages are written.
pub(super) struct Page<'a> {
    waiting: &'a mut Waiting,
}

impl Page<'_> {
    /// The message being made; a new one where it has grown long.
    pub fn message(&mut self) -> &mut BytesMut {
        if self.waiting.open.len() >= MESSAGE_BYTES {
            let full = self.waiting.open.split().freeze();
            self.waiting.closed.push_back(full);
        }
        &mut self.waiting.open
    }

    /// A report was accepted.
    pub fn accept(&mut self, number: u64) {
        self.waiting.accepted.push(number);
    }
}
