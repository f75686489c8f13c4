//! The outermost layer: request id, access log, request metrics, and the rendering of problems.
//!
//! The log has the method, the matched route, status, time, bytes, request id, token id and
//! tenant; never the path as sent, a query, a header or a body, any of which may hold a secret.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use axum::body::Body;
use axum::extract::{MatchedPath, Request};
use axum::response::{IntoResponse, Response};
use egret_base::{Clock, Entropy, condition};
use futures_util::FutureExt;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use hyper::body::Body as HttpBody;
use tracing::Instrument;

use crate::access::Caller;
use crate::audit::{AuditEntry, AuditLog};
use crate::chunked_body::ChunkedBody;
use crate::error::RequestError;
use crate::grpc::speaks_grpc;
use crate::http::series::error::{is_prometheus_path, render_problem};
use crate::metrics::{GaugeGuard, Metrics};
use crate::observed_body::{BodyObserver, ObservedBody};
use crate::problem::Problem;
use crate::request_context::RequestContext;
use crate::unread_body_guard::UnreadBodyGuard;

/// The header that carries a request's id, both ways.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

const REQUEST_ID_LENGTH_MAX: usize = 64;

/// The route of requests that match none.
const UNMATCHED: &str = "unmatched";

/// Routes that orchestrators ask every few seconds: counted in the metrics, not logged.
const PROBES: [&str; 2] = ["/healthz", "/readyz"];

/// The status logged and counted when the client left before the response was complete; as nginx
/// has it.
const CLIENT_CLOSED_REQUEST: u16 = 499;

/// Headers that every response has unless its handler set them itself.
const DEFAULT_HEADERS: [(HeaderName, &str); 4] = [
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
];

pub(crate) struct Observer {
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    access_log: bool,
    audit: Option<Arc<AuditLog>>,
    /// Random part of all ids of this process; a counter is mixed into it.
    random: [u8; 10],
    ids_made: AtomicU64,
}

/// Watches over one request from its head to its response's last byte.
pub(crate) async fn observe<F: Future<Output = Response>>(
    observer: &Arc<Observer>,
    path: Option<MatchedPath>,
    body_bytes_max: u64,
    request: Request,
    handle: impl FnOnce(Request, Arc<RequestContext>) -> F,
) -> Response {
    let id = observer.request_id(request.headers());
    let context = Arc::new(RequestContext::new(id, &request, body_bytes_max));
    let request_info = RequestInfo::from_request(&request, context.clone(), path.clone());
    let mut record = Record {
        in_flight: Some(observer.metrics.track_request()),
        observer: observer.clone(),
        context: context.clone(),
        method: method_label(request.method()),
        route: path,
        started: Instant::now(),
        status: CLIENT_CLOSED_REQUEST,
        effective_status: CLIENT_CLOSED_REQUEST,
        bytes: 0,
    };
    let (mut request, unread_guard) = UnreadBodyGuard::observe(request);
    request.extensions_mut().insert(context.clone());
    let span = tracing::info_span!("request", id = context.id());
    // Pinned in place, because the future is large.
    let handled = pin!(handle(request, context.clone()));
    let response = catch_panic(handled).instrument(span).await;
    let mut response = request_info.render_error(response, context.id());
    if let Ok(id) = HeaderValue::from_str(context.id()) {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    for (name, value) in DEFAULT_HEADERS {
        let value = HeaderValue::from_static(value);
        response.headers_mut().entry(name).or_insert(value);
    }
    unread_guard.close_if_unread(&mut response);
    let status = response.status().as_u16();
    let effective_status = grpc_http_status(response.headers()).unwrap_or(status);
    response.map(|body| {
        // The transport does not poll these bodies to their end.
        if body.is_end_stream() || request_info.method == Method::HEAD {
            record.status = status;
            record.effective_status = effective_status;
        }
        Body::new(ObservedBody {
            body: ChunkedBody::new(body),
            observer: ObservedResponse { status, effective_status, record },
        })
    })
}

/// The HTTP status of a gRPC call that was refused without a message; `None` for any other answer.
fn grpc_http_status(headers: &HeaderMap) -> Option<u16> {
    let status = tonic::Status::from_header_map(headers)?;
    let status = match status.code() {
        tonic::Code::Ok => return None,
        tonic::Code::InvalidArgument => StatusCode::BAD_REQUEST,
        tonic::Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        tonic::Code::PermissionDenied => StatusCode::FORBIDDEN,
        tonic::Code::NotFound | tonic::Code::Unimplemented => StatusCode::NOT_FOUND,
        tonic::Code::FailedPrecondition => StatusCode::CONFLICT,
        tonic::Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        tonic::Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        tonic::Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    Some(status.as_u16())
}

/// Runs the handler and turns a panic into an error response, so that the connection survives.
async fn catch_panic(handler: impl Future<Output = Response>) -> Response {
    match AssertUnwindSafe(handler).catch_unwind().await {
        Ok(response) => response,
        // The panic's own text is on standard error; it is not the caller's to see.
        Err(_) => {
            let detail = "the server failed to process this request: please report it with the log lines around it";
            let status = StatusCode::INTERNAL_SERVER_ERROR;
            Problem::new(status, "handler_panicked", detail.to_owned(), false).into_response()
        }
    }
}

impl Observer {
    pub(crate) fn new(
        clock: Arc<dyn Clock>,
        entropy: &dyn Entropy,
        metrics: Arc<Metrics>,
        access_log: bool,
        audit: Option<Arc<AuditLog>>,
    ) -> Self {
        Self {
            clock,
            metrics,
            access_log,
            audit,
            random: entropy.ten_bytes(),
            ids_made: AtomicU64::new(0),
        }
    }

    /// Returns a new unique id; it is no secret.
    fn new_id(&self) -> String {
        let mut random = self.random;
        let (_, counter_bytes) = random.split_at_mut(2);
        let sequence = self.ids_made.fetch_add(1, Ordering::Relaxed);
        for (byte, count) in counter_bytes.iter_mut().zip(sequence.to_be_bytes()) {
            *byte ^= count;
        }
        egret_base::id::v7(self.clock.now(), random).to_string()
    }

    /// The id that the client sent if it is well-formed, otherwise a new one.
    fn request_id(&self, headers: &HeaderMap) -> String {
        let is_sane = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        headers
            .get(REQUEST_ID)
            .and_then(|value| value.to_str().ok())
            .filter(|id| !id.is_empty() && id.len() <= REQUEST_ID_LENGTH_MAX)
            .filter(|id| id.bytes().all(is_sane))
            .map_or_else(|| self.new_id(), str::to_owned)
    }
}

/// The method as a label: unknown ones are one label, so that no client makes new ones.
fn method_label(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "PUT" => "PUT",
        "PATCH" => "PATCH",
        "DELETE" => "DELETE",
        "OPTIONS" => "OPTIONS",
        _ => "other",
    }
}

/// The parts of a request that rendering its error response needs.
struct RequestInfo {
    method: Method,
    route: Option<MatchedPath>,
    context: Arc<RequestContext>,
    is_grpc: bool,
}

impl RequestInfo {
    fn from_request(
        request: &Request,
        context: Arc<RequestContext>,
        route: Option<MatchedPath>,
    ) -> Self {
        Self {
            method: request.method().clone(),
            route,
            context,
            is_grpc: speaks_grpc(request.headers()),
        }
    }

    /// Renders an error response for the protocol of the request, with the request's id.
    fn render_error(&self, response: Response, id: &str) -> Response {
        let (mut parts, body) = response.into_parts();
        let mut problem = match parts.extensions.remove::<Problem>() {
            Some(problem) => problem,
            None => match self.library_problem(parts.status, &parts.headers) {
                Some(problem) => problem,
                None => return Response::from_parts(parts, body),
            },
        };
        problem.request_id = Some(id.to_owned());
        // The only place that logs internal errors; callers' mistakes are in their responses only.
        if problem.status == StatusCode::INTERNAL_SERVER_ERROR.as_u16() {
            self.log_failure(&problem, id);
        }
        if self.is_grpc {
            return problem.to_grpc_status().into_http::<Body>();
        }
        let mut rendered = if is_prometheus_path(self.context.path()) {
            render_problem(problem)
        } else {
            problem.render()
        };
        for (name, value) in &parts.headers {
            if ![header::CONTENT_TYPE, header::CONTENT_LENGTH].contains(name) {
                rendered.headers_mut().insert(name, value.clone());
            }
        }
        rendered
    }

    /// Logs a fault of ours that a request ran into: once, while more requests of its route
    /// run into the same.
    fn log_failure(&self, problem: &Problem, id: &str) {
        let route = self.route.as_ref().map_or("other", MatchedPath::as_str);
        let (code, detail) = (&problem.code, problem.logged_detail());
        // With the code: a fault that a client causes at will hides no other one of its route.
        let subject = format!("{} {route} {code}", method_label(&self.method));
        let reason = format_args!("{code}: {detail}");
        if condition::occurs("requests_failing", &subject, reason) {
            let condition = "requests_failing";
            tracing::error!(condition, subject, request_id = id, code, detail, "request failed");
        } else {
            tracing::debug!(request_id = id, code, detail, "request failed");
        }
    }

    /// The problem of an error response that a library made without one.
    fn library_problem(&self, status: StatusCode, headers: &HeaderMap) -> Option<Problem> {
        // Libraries answer with nothing or a line of text; any other body is a handler's own.
        let content_type = headers.get(header::CONTENT_TYPE);
        let is_by_library =
            content_type.is_none_or(|value| value.as_bytes().starts_with(b"text/plain"));
        if !is_by_library || !(status.is_client_error() || status.is_server_error()) {
            return None;
        }
        if status == StatusCode::METHOD_NOT_ALLOWED {
            let allowed = headers.get(header::ALLOW).and_then(|value| value.to_str().ok());
            return Some(Problem::from(RequestError::MethodNotAllowed {
                method: self.method.to_string(),
                path: self.context.path().to_owned(),
                allowed: allowed.unwrap_or("other methods").to_owned(),
            }));
        }
        let reason = status.canonical_reason().unwrap_or("error").to_ascii_lowercase();
        Some(Problem::new(status, &reason.replace(' ', "_"), reason.clone(), false))
    }
}

/// One request's line in the log and its place in the metrics, written when it is dropped.
struct Record {
    observer: Arc<Observer>,
    context: Arc<RequestContext>,
    method: &'static str,
    route: Option<MatchedPath>,
    started: Instant,
    status: u16,
    /// The status as HTTP has it: a gRPC answer says in its own headers that a call was refused.
    effective_status: u16,
    bytes: u64,
    in_flight: Option<GaugeGuard>,
}

impl Record {
    /// Writes a change, or a refused attempt, to the audit log.
    fn audit(&self) {
        let is_refused = self.effective_status == 401 || self.effective_status == 403;
        let (Some(audit), Some(operation)) = (&self.observer.audit, self.context.operation())
        else {
            return;
        };
        if !operation.is_audited && !is_refused {
            return;
        }
        let token = self.context.caller().map(Caller::token);
        audit.record(AuditEntry {
            at: self.observer.clock.now(),
            request_id: self.context.id().to_owned(),
            token: token.map(|token| token.id.clone()),
            token_name: token.map(|token| token.name.clone()),
            tenant: token.map(|token| token.tenant.clone()),
            address: self.context.client().map(|client| client.ip.to_string()),
            operation: operation.id.clone(),
            object: self.context.object(),
            status: self.effective_status,
            suppressed: 0,
            database: None,
            role: None,
            reason: None,
            duration_ms: None,
        });
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        // Decrement the gauge before the counter is incremented: a scrape must not see a request
        // both counted and in flight.
        self.in_flight = None;
        let route = self.route.as_ref().map_or(UNMATCHED, MatchedPath::as_str);
        let elapsed = self.started.elapsed();
        self.observer.metrics.count_request(self.method, route, self.status, elapsed);
        self.audit();
        if !self.observer.access_log || PROBES.contains(&route) {
            return;
        }
        let caller = self.context.caller();
        tracing::info!(
            target: "egret::access",
            method = self.method,
            route,
            status = self.status,
            ms = (elapsed.as_secs_f64() * 1e6).round() / 1e3,
            bytes = self.bytes,
            request_id = self.context.id(),
            token = caller.map(Caller::token_id),
            tenant = caller.map(Caller::tenant),
            client = self.context.client().map(|client| tracing::field::display(client.ip)),
            "request"
        );
    }
}

/// A response's status with its request's record, which ends when the response's body does.
struct ObservedResponse {
    status: u16,
    effective_status: u16,
    record: Record,
}

impl BodyObserver for ObservedResponse {
    fn record_bytes(&mut self, bytes: u64) {
        self.record.bytes += bytes;
    }

    fn record_end(&mut self) {
        self.record.status = self.status;
        self.record.effective_status = self.effective_status;
    }
}
