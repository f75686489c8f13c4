//! Request bodies on their way in: whether the client sends, and how much of them is in memory.
//!
//! A client that keeps the server waiting is ended by its [`Pace`](crate::pace::Pace). The server
//! waits for it only while the handler asks for more; and between the messages of a gRPC stream it
//! does not wait.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};

use crate::error::RequestError;
use crate::grpc::MESSAGE_BYTES_MAX;
use crate::outgoing_body::Deadline;
use crate::pace::PaceLimit;
use crate::problem::grpc_status;
use crate::quota::Permit;

/// Bodies and messages up to this size are not counted: how many there are is bounded already.
pub(crate) const UNCOUNTED_BYTES_MAX: u64 = 64 << 10;

/// Memory of a body that is collected, in multiples of its size: its pieces and the whole exist
/// together.
const COLLECTED_COPIES: u64 = 2;

/// Bytes of the head of a gRPC message: a flag and the length.
const MESSAGE_HEAD_BYTES: usize = 5;

/// How a body is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyKind {
    /// Collected before the handler begins.
    Whole,
    /// By a handler that counts what it keeps.
    Streamed,
    Grpc,
}

/// The body of a request as it arrives.
pub(crate) struct IncomingBody {
    body: Body,
    /// None where the request has no token, and so no quota.
    permit: Option<Arc<Permit>>,
    deadline: Deadline,
    accounting: BodyAccounting,
}

enum BodyAccounting {
    Whole { received: u64, reserved: u64 },
    Streamed,
    Grpc(Messages),
}

impl IncomingBody {
    pub(crate) fn new(
        body: Body,
        kind: BodyKind,
        permit: Option<Arc<Permit>>,
        limit: PaceLimit,
    ) -> Self {
        let accounting = match kind {
            BodyKind::Whole => BodyAccounting::Whole { received: 0, reserved: 0 },
            BodyKind::Streamed => BodyAccounting::Streamed,
            BodyKind::Grpc => BodyAccounting::Grpc(Messages::default()),
        };
        Self { body, permit, deadline: Deadline::new(limit), accounting }
    }

    fn record_data(&mut self, data: &[u8]) -> Result<(), RequestError> {
        self.deadline.record_progress(data.len() as u64);
        let Some(permit) = &self.permit else {
            return Ok(());
        };
        match &mut self.accounting {
            BodyAccounting::Streamed => Ok(()),
            BodyAccounting::Grpc(messages) => messages.record_data(data, permit),
            BodyAccounting::Whole { received, reserved } => {
                *received += data.len() as u64;
                let needed = received.saturating_sub(UNCOUNTED_BYTES_MAX) * COLLECTED_COPIES;
                permit.reserve_body(needed - *reserved)?;
                *reserved = needed;
                Ok(())
            }
        }
    }

    /// Whether the client owes bytes. Between two messages a stream may rest as long as its client
    /// wants.
    fn is_data_expected(&self) -> bool {
        let is_stream = self.permit.as_ref().is_some_and(|permit| permit.is_stream());
        match &self.accounting {
            BodyAccounting::Grpc(messages) => !is_stream || messages.is_within_message(),
            BodyAccounting::Whole { .. } | BodyAccounting::Streamed => true,
        }
    }

    fn body_error(&self, error: RequestError) -> axum::Error {
        if matches!(self.accounting, BodyAccounting::Grpc(_)) {
            axum::Error::new(grpc_status(&error))
        } else {
            axum::Error::new(error)
        }
    }
}

/// Tracks the messages of a gRPC body by their lengths.
#[derive(Debug, Default)]
struct Messages {
    head: [u8; MESSAGE_HEAD_BYTES],
    head_bytes: usize,
    /// Bytes of the message that are still to come.
    remaining: u64,
    reserved: u64,
}

impl Messages {
    fn is_within_message(&self) -> bool {
        self.head_bytes > 0
    }

    fn record_data(&mut self, mut data: &[u8], permit: &Permit) -> Result<(), RequestError> {
        while !data.is_empty() {
            if self.head_bytes < MESSAGE_HEAD_BYTES {
                let taken = data.len().min(MESSAGE_HEAD_BYTES - self.head_bytes);
                self.head[self.head_bytes..][..taken].copy_from_slice(&data[..taken]);
                self.head_bytes += taken;
                data = &data[taken..];
                if self.head_bytes < MESSAGE_HEAD_BYTES {
                    return Ok(());
                }
                let [_, length @ ..] = self.head;
                self.begin_message(u64::from(u32::from_be_bytes(length)), permit)?;
            }
            let taken = self.remaining.min(data.len() as u64);
            self.remaining -= taken;
            data = &data[usize::try_from(taken).expect("the sum is at most a slice's length")..];
            if self.remaining == 0 {
                self.end_message(permit);
            }
        }
        Ok(())
    }

    fn begin_message(&mut self, length: u64, permit: &Permit) -> Result<(), RequestError> {
        self.remaining = length;
        // A longer one is refused by its length, before memory is allocated.
        if length > UNCOUNTED_BYTES_MAX && length <= MESSAGE_BYTES_MAX as u64 {
            permit.reserve_body(length)?;
            self.reserved = length;
        }
        Ok(())
    }

    /// A stream's message is passed on at once. Any other call keeps its message until it is
    /// answered, and its permit keeps the reservation.
    fn end_message(&mut self, permit: &Permit) {
        self.head_bytes = 0;
        if permit.is_stream() && self.reserved > 0 {
            permit.release_body(self.reserved);
        }
        self.reserved = 0;
    }
}

impl HttpBody for IncomingBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        match Pin::new(&mut self.body).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => {
                let recorded = frame.data_ref().map_or(Ok(()), |data| self.record_data(data));
                Poll::Ready(Some(match recorded {
                    Ok(()) => Ok(frame),
                    Err(error) => Err(self.body_error(error)),
                }))
            }
            Poll::Ready(end) => Poll::Ready(end),
            Poll::Pending if self.is_data_expected() => match self.deadline.poll_wait(context) {
                Poll::Ready(()) => {
                    Poll::Ready(Some(Err(self.body_error(RequestError::BodyTooSlow))))
                }
                Poll::Pending => Poll::Pending,
            },
            Poll::Pending => {
                self.deadline.record_progress(0);
                Poll::Pending
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests;
