//! The limits: a request that is too large, or one too many, is turned away by the name
//! of the limit it met, before any handler sees it.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::{MatchedPath, Request};
use axum::response::{IntoResponse, Response};
use http_body_util::{BodyExt, Limited};
use tokio::sync::Semaphore;

use crate::config::ServerConfig;
use crate::error::RequestError;
use crate::observe::RequestContext;
use crate::problem::Problem;

/// Answered however busy the server is: whoever watches over it must not take load for death.
const ALWAYS_ADMITTED: [&str; 7] = [
    "/healthz",
    "/readyz",
    "/metrics",
    "/prometheus/-/healthy",
    "/prometheus/-/ready",
    "/grpc.health.v1.Health/Check",
    "/grpc.health.v1.Health/Watch",
];

/// What decides.
pub(crate) struct Admission {
    header_bytes_max: u64,
    headers_max: u64,
    body_bytes_max: u64,
    concurrency_max: u64,
    timeout: Duration,
    drain_timeout: Duration,
    slots: Arc<Semaphore>,
    streams_max: u64,
    streams: Arc<Semaphore>,
    /// Routes of what lasts as long as its client wants.
    lasting: Vec<String>,
    /// Routes whose bodies have limits of their own: what comes over a gRPC stream is bounded message by
    /// message, an attachment as it is written.
    piecemeal: HashSet<String>,
}

impl Admission {
    pub(crate) fn new(
        config: &ServerConfig,
        lasting: Vec<String>,
        piecemeal: HashSet<String>,
    ) -> Self {
        Self {
            piecemeal,
            streams_max: u64::from(config.streams_max),
            streams: Arc::new(Semaphore::new(config.streams_max as usize)),
            lasting,
            header_bytes_max: config.header_bytes_max.bytes(),
            headers_max: u64::from(config.headers_max),
            body_bytes_max: config.body_bytes_max.bytes(),
            concurrency_max: u64::from(config.concurrency_max),
            timeout: config.request_timeout.duration(),
            drain_timeout: config.header_timeout.duration(),
            slots: Arc::new(Semaphore::new(config.concurrency_max as usize)),
        }
    }

    fn check_head(&self, request: &Request) -> Result<(), RequestError> {
        let headers = request.headers();
        let count = headers.len() as u64;
        if count > self.headers_max {
            return Err(RequestError::HeadTooLarge {
                limit: "server.headers_max",
                max: self.headers_max,
                asked: count,
                unit: "headers",
            });
        }
        let path = request
            .uri()
            .path_and_query()
            .map_or(0, |path| path.as_str().len());
        let bytes: usize = headers
            .iter()
            .map(|(name, value)| name.as_str().len() + value.len())
            .sum();
        let bytes = (path + bytes) as u64;
        if bytes > self.header_bytes_max {
            return Err(RequestError::HeadTooLarge {
                limit: "server.header_bytes_max",
                max: self.header_bytes_max,
                asked: bytes,
                unit: "bytes",
            });
        }
        Ok(())
    }

    fn enter(&self, request: &Request, context: &RequestContext) -> Result<(), RequestError> {
        let path = request.uri().path();
        if ALWAYS_ADMITTED.contains(&path) {
            return Ok(());
        }
        let route = route_of(request);
        let (slots, limit, max) = match self.lasting.iter().any(|lasting| lasting == route) {
            true => (&self.streams, "server.streams_max", self.streams_max),
            false => (&self.slots, "server.concurrency_max", self.concurrency_max),
        };
        let permit = slots.clone().try_acquire_owned();
        let permit = permit.map_err(|_| RequestError::Busy { limit, max })?;
        context.hold(permit);
        Ok(())
    }

    /// Reads away a body that is refused, up to the size a legal one may have: a connection closed
    /// on unread bytes is reset, and the answer lost with it.
    async fn drain(&self, body: Body) {
        let mut body = Limited::new(
            body,
            usize::try_from(self.body_bytes_max).unwrap_or(usize::MAX),
        );
        let reading = async { while let Some(Ok(_)) = body.frame().await {} };
        // However it ends, the answer is the same.
        let _ = tokio::time::timeout(self.drain_timeout, reading).await;
    }
}

/// The pattern of the route, else the path.
fn route_of(request: &Request) -> &str {
    let matched = request.extensions().get::<MatchedPath>();
    matched.map_or(request.uri().path(), MatchedPath::as_str)
}

impl Admission {
    /// The size that a body may have, in bytes.
    pub(crate) fn body_bytes_max(&self) -> u64 {
        self.body_bytes_max
    }

    /// Passes a request on when it keeps every limit, with a body that cannot grow beyond its own.
    pub(crate) async fn admit<F: Future<Output = Response>>(
        &self,
        request: Request,
        context: &RequestContext,
        pass: impl FnOnce(Request) -> F,
    ) -> Response {
        if let Err(error) = self.check_head(&request) {
            return Problem::from(error).into_response();
        }
        // By the route, not by what a request says of itself.
        let is_bounded = !self.piecemeal.contains(route_of(&request));
        let max = self.body_bytes_max;
        let size = request.body().size_hint();
        if is_bounded && size.lower() > max {
            // Outside the slots, so that a slow sender of too much keeps nobody else out.
            self.drain(request.into_body()).await;
            return Problem::from(RequestError::BodyTooLarge { max }).into_response();
        }
        if let Err(error) = self.enter(&request, context) {
            return Problem::from(error).into_response();
        }
        // A body of a stated length cannot be longer: the transport sees to it.
        let request = match is_bounded && size.exact().is_none() {
            true => {
                let limit = usize::try_from(max).unwrap_or(usize::MAX);
                request.map(|body| Body::new(Limited::new(body, limit)))
            }
            false => request,
        };
        match tokio::time::timeout(self.timeout, pass(request)).await {
            Ok(response) => response,
            Err(_) => Problem::from(RequestError::TimedOut {
                timeout_ms: self.timeout.as_millis().try_into().unwrap_or(u64::MAX),
            })
            .into_response(),
        }
    }
}
