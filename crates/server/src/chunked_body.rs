//! Response bodies in pieces.
//!
//! A connection takes a whole frame for a single byte of room. In pieces, a body that its client
//! does not read is not in the connection's buffers as a whole, and the request's record sees that
//! it has not been taken.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};

/// The largest piece of a body that is given to a connection at once. The connection keeps it in
/// memory until the peer has read it.
const PIECE_BYTES_MAX: usize = 64 << 10;

/// A body whose frames of data have at most [`PIECE_BYTES_MAX`].
pub(crate) struct ChunkedBody {
    body: Body,
    rest: Bytes,
}

impl ChunkedBody {
    pub(crate) fn new(body: Body) -> Self {
        Self { body, rest: Bytes::new() }
    }

    /// Takes the next piece of what the body has given.
    fn next_piece(&mut self) -> Bytes {
        if self.rest.len() > PIECE_BYTES_MAX {
            let piece = self.rest.split_to(PIECE_BYTES_MAX);
            if self.rest.len() <= PIECE_BYTES_MAX {
                // The last piece may wait in HTTP/2's buffer: it must not keep the whole body in
                // memory.
                self.rest = Bytes::copy_from_slice(&self.rest);
            }
            piece
        } else {
            std::mem::take(&mut self.rest)
        }
    }
}

impl HttpBody for ChunkedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(other) => return Poll::Ready(Some(Ok(other))),
                },
                end => return Poll::Ready(end),
            }
        }
        Poll::Ready(Some(Ok(Frame::data(self.next_piece()))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.rest.len() as u64;
        let hint = self.body.size_hint();
        let mut whole = SizeHint::new();
        whole.set_lower(hint.lower() + rest);
        if let Some(upper) = hint.upper() {
            whole.set_upper(upper + rest);
        }
        whole
    }
}

#[cfg(test)]
mod tests;
