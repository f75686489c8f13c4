//! Bodies with an observer, which is notified of the bytes that pass and of the end of the body.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};

pub(crate) trait BodyObserver: Unpin {
    /// `bytes` more bytes have passed.
    fn record_bytes(&mut self, _bytes: u64) {}

    /// The whole body has passed. May be called twice.
    fn record_end(&mut self);
}

/// A body with its observer.
pub(crate) struct ObservedBody<B, W> {
    pub(crate) body: B,
    pub(crate) observer: W,
}

impl<B, W> HttpBody for ObservedBody<B, W>
where
    B: HttpBody<Data = Bytes, Error = axum::Error> + Unpin,
    W: BodyObserver,
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
                self.observer.record_bytes(bytes);
                // The transport need not poll again once a body reports its end.
                if self.body.is_end_stream() {
                    self.observer.record_end();
                }
            }
            None => self.observer.record_end(),
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
