//! Bodies of which somebody is told what passes, and when they end.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};

/// Who is told.
pub(crate) trait Watch: Unpin {
    /// So many bytes have passed.
    fn passed(&mut self, _bytes: u64) {}

    /// All of the body has passed. It may be told twice.
    fn ended(&mut self);
}

/// A body with its watch.
pub(crate) struct Watched<B, W> {
    pub(crate) body: B,
    pub(crate) watch: W,
}

impl<B, W> HttpBody for Watched<B, W>
where
    B: HttpBody<Data = Bytes, Error = axum::Error> + Unpin,
    W: Watch,
{
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
