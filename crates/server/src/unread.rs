//! Request bodies that are refused before they have been read: the transport closes the connection behind such an answer.
//!
//! A client that is not told keeps the connection for its next request, which then gets no answer. So it is told, with
//! `Connection: close`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use http::{HeaderValue, Version, header};
use hyper::body::Body as HttpBody;

use crate::watched::{Watch, Watched};

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
                watch: Reading(is_read.clone()),
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

struct Reading(Arc<AtomicBool>);

impl Watch for Reading {
    fn ended(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}
