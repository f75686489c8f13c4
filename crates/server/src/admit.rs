//! The limits of requests: a request that is too large, or one too many, is refused by the name of
//! the limit, before any handler sees it.
//!
//! A request is admitted after its token is known. With a token it counts against the quotas of the
//! token and its tenant; without one, for public pages, against bounds of its connection and
//! address alone.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::{MatchedPath, Request};
use axum::response::{IntoResponse, Response};
use http_body_util::{BodyExt, Limited};

use crate::access::Transfer;
use crate::config::ServerConfig;
use crate::error::RequestError;
use crate::grpc::speaks_grpc;
use crate::incoming_body::{BodyKind, IncomingBody};
use crate::metrics::Metrics;
use crate::pace::PaceLimit;
use crate::peer::Peer;
use crate::problem::Problem;
use crate::quota::{Holder, Permit, Quotas, Resource};
use crate::request_context::{AdmissionPermit, RequestContext};
use crate::token_end::run_until_token_end;

/// Not counted among the requests in progress; a quota of its own bounds it, as the page is long.
const METRICS: &str = "/metrics";

/// Answered under any load, so that monitoring does not mistake a busy server for a dead one.
const ALWAYS_ADMITTED: [&str; 6] = [
    "/healthz",
    "/readyz",
    METRICS,
    "/prometheus/-/healthy",
    "/prometheus/-/ready",
    "/grpc.health.v1.Health/Check",
];

/// The largest body of a request without a token: of these routes only gRPC's health service reads
/// one.
const PUBLIC_BODY_BYTES_MAX: usize = 4 << 10;

/// Why a request is not admitted.
struct AdmissionRefusal {
    error: RequestError,
    /// The body of a request that is too large; it is drained before the response.
    unread_body: Option<Box<IncomingBody>>,
}

impl From<RequestError> for AdmissionRefusal {
    fn from(error: RequestError) -> Self {
        Self { error, unread_body: None }
    }
}

/// Admits requests within the limits.
pub(crate) struct Admission {
    header_bytes_max: u64,
    headers_max: u64,
    body_bytes_max: u64,
    timeout: Duration,
    drain_timeout: Duration,
    pace_limit: PaceLimit,
    quotas: Arc<Quotas>,
    metrics: Arc<Metrics>,
}

impl Admission {
    pub(crate) fn new(config: &ServerConfig, quotas: Arc<Quotas>, metrics: Arc<Metrics>) -> Self {
        Self {
            header_bytes_max: config.header_bytes_max.bytes(),
            headers_max: u64::from(config.headers_max),
            body_bytes_max: config.body_bytes_max.bytes(),
            timeout: config.request_timeout.duration(),
            drain_timeout: config.header_timeout.duration(),
            pace_limit: config.pace_limit(),
            quotas,
            metrics,
        }
    }

    /// The size that a body may have, in bytes.
    pub(crate) fn body_bytes_max(&self) -> u64 {
        self.body_bytes_max
    }

    /// Checks the size of a request's head.
    ///
    /// # Errors
    /// [`RequestError::HeadTooLarge`] with the limit's name.
    pub(crate) fn check_head(&self, request: &Request) -> Result<(), RequestError> {
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
        let path = request.uri().path_and_query().map_or(0, |path| path.as_str().len());
        let bytes: usize =
            headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
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

    /// Passes a request on when it keeps every limit, with a body that cannot grow beyond its own.
    pub(crate) async fn admit<F: Future<Output = Response>>(
        &self,
        request: Request,
        context: &RequestContext,
        handle: impl FnOnce(Request) -> F,
    ) -> Response {
        let request = match self.acquire_permit(request, context) {
            Ok(request) => request,
            // Rare: boxed, so that the future of every other request stays small.
            Err(refusal) => return Box::pin(self.refuse(refusal)).await,
        };
        let caller = context.caller().cloned();
        match run_until_token_end(caller, self.timeout, handle(request)).await {
            Ok(response) => response,
            Err(error) => Problem::from(error).into_response(),
        }
    }

    async fn refuse(&self, refusal: AdmissionRefusal) -> Response {
        if let Some(body) = refusal.unread_body {
            self.drain(*body).await;
        }
        if let RequestError::Busy { limit, .. } | RequestError::QuotaExceeded { limit, .. } =
            refusal.error
        {
            self.metrics.count_refusal(limit);
        }
        Problem::from(refusal.error).into_response()
    }

    fn acquire_permit(
        &self,
        request: Request,
        context: &RequestContext,
    ) -> Result<Request, AdmissionRefusal> {
        let Some(caller) = context.caller() else {
            return Ok(self.acquire_public_permit(request, context)?);
        };
        let peer = request.extensions().get::<Arc<Peer>>();
        if let Some(peer) = peer {
            peer.mark_identified();
        }
        let path = request.uri().path();
        if path != METRICS && ALWAYS_ADMITTED.contains(&path) {
            return Ok(request);
        }
        let resource = if path == METRICS {
            Resource::Scrape
        } else if context.transfer().is_long_lived {
            Resource::Stream
        } else {
            Resource::Request
        };
        let holder = Holder { token_id: caller.token_id(), tenant: caller.tenant() };
        let permit = Arc::new(self.quotas.acquire(holder, resource)?);
        context.set_permit(AdmissionPermit::Token(permit.clone()));
        self.limit_body(request, permit, context.transfer())
    }

    /// Admits a request that takes no token.
    fn acquire_public_permit(
        &self,
        request: Request,
        context: &RequestContext,
    ) -> Result<Request, RequestError> {
        let request = if request.body().is_end_stream() {
            request
        } else {
            request.map(|body| {
                let body = IncomingBody::new(body, BodyKind::Grpc, None, self.pace_limit);
                Body::new(Limited::new(body, PUBLIC_BODY_BYTES_MAX))
            })
        };
        let is_unmatched = request.extensions().get::<MatchedPath>().is_none();
        if is_unmatched || ALWAYS_ADMITTED.contains(&request.uri().path()) {
            return Ok(request);
        }
        if let Some(peer) = request.extensions().get::<Arc<Peer>>() {
            let client = context.client().filter(|client| client.is_forwarded);
            let permit = peer.acquire_public_permit(client.map(|client| client.ip))?;
            context.set_permit(AdmissionPermit::Public(permit));
        }
        Ok(request)
    }

    fn limit_body(
        &self,
        request: Request,
        permit: Arc<Permit>,
        transfer: Transfer,
    ) -> Result<Request, AdmissionRefusal> {
        if request.body().is_end_stream() {
            return Ok(request);
        }
        // Decided by the route, not by the request's headers.
        let has_streamed_body = transfer.has_streamed_body;
        let size_hint = request.body().size_hint();
        if !has_streamed_body && size_hint.lower() > self.body_bytes_max {
            let body = request.into_body();
            let kind = BodyKind::Streamed;
            let body = IncomingBody::new(body, kind, Some(permit), self.pace_limit);
            return Err(AdmissionRefusal {
                error: RequestError::BodyTooLarge { max: self.body_bytes_max },
                unread_body: Some(Box::new(body)),
            });
        }
        let kind = if !has_streamed_body {
            BodyKind::Whole
        } else if speaks_grpc(request.headers()) {
            BodyKind::Grpc
        } else {
            BodyKind::Streamed
        };
        // A body of a stated length cannot be longer: the transport sees to it.
        let is_limited = !has_streamed_body && size_hint.exact().is_none();
        let body_bytes_max = usize::try_from(self.body_bytes_max).unwrap_or(usize::MAX);
        Ok(request.map(|body| {
            let body = IncomingBody::new(body, kind, Some(permit), self.pace_limit);
            if is_limited { Body::new(Limited::new(body, body_bytes_max)) } else { Body::new(body) }
        }))
    }

    /// Reads away a body that is refused, up to the size a legal one may have: a connection closed
    /// on unread bytes is reset, and the answer lost with it.
    async fn drain(&self, body: IncomingBody) {
        let mut body =
            Limited::new(body, usize::try_from(self.body_bytes_max).unwrap_or(usize::MAX));
        let reading = async { while let Some(Ok(_)) = body.frame().await {} };
        // Ignore failures and the timeout: the response is the same.
        let _ = tokio::time::timeout(self.drain_timeout, reading).await;
    }
}
