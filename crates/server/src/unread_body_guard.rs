//! Request bodies that are refused before they have been read: the transport closes the connection
//! after such a response.
//!
//! Without notice a client would keep the connection for its next request, which would get no
//! response. So these responses carry `Connection: close`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use http::{HeaderValue, Version, header};
use hyper::body::Body as HttpBody;

use crate::observed_body::{BodyObserver, ObservedBody};

/// Whether the body of a request has been read to its end; `None` for a request without a body, and
/// for HTTP/2, whose connections carry many requests at a time.
pub(crate) struct UnreadBodyGuard(Option<Arc<AtomicBool>>);

impl UnreadBodyGuard {
    /// Wraps the body of a request to observe its end.
    pub(crate) fn observe(request: Request) -> (Request, Self) {
        if request.body().is_end_stream() || request.version() > Version::HTTP_11 {
            return (request, Self(None));
        }
        let is_read = Arc::new(AtomicBool::new(false));
        let observed = request
            .map(|body| Body::new(ObservedBody { body, observer: EndObserver(is_read.clone()) }));
        (observed, Self(Some(is_read)))
    }

    /// Adds `Connection: close` to a refusal whose request body was not read to its end.
    pub(crate) fn close_if_unread(&self, response: &mut Response) {
        let is_refused = response.status().is_client_error() || response.status().is_server_error();
        let is_unread = |is_read: &Arc<AtomicBool>| !is_read.load(Ordering::Acquire);
        if is_refused && self.0.as_ref().is_some_and(is_unread) {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
        }
    }
}

struct EndObserver(Arc<AtomicBool>);

impl BodyObserver for EndObserver {
    fn record_end(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}
