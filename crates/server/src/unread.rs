//! Request bodies that are refused before they have been read: the transport closes the connection behind such an answer.
//!
//! A client that is not told keeps the connection for its next request, which then gets no answer. So it is told, with
//! `Connection: close`.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderValue, Version, header};
use hyper::body::{Body as HttpBody, Frame, SizeHint};

/// Whether the body of a request has been read to its end; none for a request without one, and where connections are not of one request
/// at a time.
pub(crate) struct Unread(Option<Arc<AtomicBool>>);

impl Unread {
    /// Watches over the body of a request.
    pub(crate) fn watch(request: Request) -> (Request, Self) {
        if request.body().is_end_stream() || request.version() > Version::HTTP_11 {
            return (request, Self(None));
        }
        let is_read = Arc::new(AtomicBool::new(false));
        let watched = request.map(|body| {
            Body::new(Watched {
                body,
                is_read: is_read.clone(),
            })
        });
        (watched, Self(Some(is_read)))
    }

    /// Tells the client where the connection ends behind a refusal.
    pub(crate) fn tell(&self, response: &mut Response) {
        let is_refused = response.status().is_client_error() || response.status().is_server_error();
        let is_unread = |is_read: &Arc<AtomicBool>| !is_read.load(Ordering::Acquire);
        if is_refused && self.0.as_ref().is_some_and(is_unread) {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
        }
    }
}

struct Watched {
    body: Body,
    is_read: Arc<AtomicBool>,
}

impl HttpBody for Watched {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if frame.is_none() || self.body.is_end_stream() {
            self.is_read.store(true, Ordering::Release);
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
