//! Bodies of which somebody is told what passes, and when they end.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};

/// Who is told.
pub(crate) trait Watch: Unpin {
    /// So many bytes have passed.
    fn passed(&mut self, _bytes: u64) {}

    /// All of the body has passed. It may be told twice.
    fn ended(&mut self);
}

/// See the module.
pub(crate) struct Watched<W> {
    pub(crate) body: Body,
    pub(crate) watch: W,
}

impl<W: Watch> HttpBody for Watched<W> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        match &frame {
            Some(Ok(frame)) => {
                let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
                self.watch.passed(bytes);
                // Nobody need ask again once a body says that it has ended.
                if self.body.is_end_stream() {
                    self.watch.ended();
                }
            }
            None => self.watch.ended(),
            Some(Err(_)) => {}
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
