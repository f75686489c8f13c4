//! What waits to be sent on a stream, encoded already: partitions add to it, and whoever sends takes
//! everything there is in one message.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use egret_queue::QueueError;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::Status;

/// A message is closed at this size, in bytes; one task may make it larger.
const MESSAGE_BYTES: usize = 256 << 10;

/// With so many bytes waiting to be sent, no more tasks are handed out on a stream…
const FULL_BYTES: usize = 4 << 20;

/// …until so many are left.
const RELIEVED_BYTES: usize = 1 << 20;

/// See the module.
#[derive(Default)]
pub(super) struct Outlet {
    waiting: Mutex<Waiting>,
    /// Too much waits to be sent.
    full: AtomicBool,
}

#[derive(Default)]
struct Waiting {
    closed: VecDeque<Bytes>,
    closed_bytes: usize,
    open: Vec<u8>,
    /// The length of the last message: as much is allocated for the next one.
    usual_bytes: usize,
    /// Numbers of reports that were accepted: one packed field of the next message.
    accepted: Vec<u64>,
    /// Things asked for on the stream that have no answer yet.
    unanswered: usize,
    ended: Option<Status>,
    /// Nobody takes anything any more.
    gone: bool,
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

    /// Whether too much waits to be sent.
    pub fn is_full(&self) -> bool {
        self.full.load(Ordering::SeqCst)
    }

    /// Whether too much has waited and does no longer, since this was last asked.
    pub fn is_relieved(&self) -> bool {
        self.is_full()
            && self.waiting().bytes() <= RELIEVED_BYTES
            && self.full.swap(false, Ordering::SeqCst)
    }

    /// Whether more may be read from a client: it takes its answers, and not too many are to come.
    pub fn may_ask(&self, unanswered_max: usize) -> bool {
        let waiting = self.waiting();
        waiting.unanswered < unanswered_max && waiting.bytes() < RELIEVED_BYTES
    }

    /// Nobody takes what is there or comes.
    pub fn close(&self) {
        *self.waiting() = Waiting {
            gone: true,
            ..Waiting::default()
        };
    }

    /// Adds `answers` answers, or none, by writing fields of the next message.
    pub fn put(&self, answers: usize, write: impl FnOnce(&mut Page<'_>)) {
        let mut waiting = self.waiting();
        if waiting.gone {
            return;
        }
        waiting.unanswered = waiting.unanswered.saturating_sub(answers);
        write(&mut Page {
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
    fn bytes(&self) -> usize {
        self.closed_bytes + self.open.len()
    }

    /// Ends the message being made.
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
    pub fn message(&mut self) -> &mut Vec<u8> {
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

    /// A report was accepted.
    pub fn accept(&mut self, number: u64) {
        self.waiting.accepted.push(number);
    }
}
