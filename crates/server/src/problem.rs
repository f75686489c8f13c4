//! Errors as callers see them: RFC 9457 problem+json over HTTP, a status over gRPC.
//!
//! Anything [`CodedError`] becomes a [`Problem`]. A handler returns it without knowing the request;
//! the outermost layer (`observe.rs`) adds the request id and renders it for the protocol asked
//! for.

mod paths;

pub(crate) use paths::redact as redact_paths;

use axum::response::{IntoResponse, Response};
use egret_base::{CodedError, Kind, condition};
use http::{HeaderValue, StatusCode, header};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::content_encoding::ContentEncoding;
use crate::error::RequestError;

/// The media type of [`Problem`].
pub(crate) const PROBLEM_JSON: &str = "application/problem+json";

/// Seconds after which a caller may try again when the error does not say.
const RETRY_AFTER_SECONDS: u32 = 1;

/// Bytes of a detail, which may repeat what a caller has sent: over gRPC it travels in a header.
const DETAIL_BYTES_MAX: usize = 4_096;

/// An error (RFC 9457) with Egret's stable code.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "type": "/errors#token_missing", "title": "Unauthorized", "status": 401, "code": "token_missing",
    "detail": "no token: send `Authorization: Bearer egret_…`", "retryable": false,
    "request_id": "0197a3c2-7a53-7c11-9d2e-3f1c5a7b9d10"
}))]
pub struct Problem {
    /// Reference to the error's description: `/errors#` and the code.
    #[serde(rename = "type")]
    pub type_reference: String,
    /// The HTTP status in words.
    pub title: String,
    /// The HTTP status.
    #[schema(minimum = 400, maximum = 599)]
    pub status: u16,
    /// Stable identifier of the error, to be matched by programs.
    pub code: String,
    /// What failed, with which value, and what to do.
    pub detail: String,
    /// Whether the same request may succeed later without changes.
    pub retryable: bool,
    /// The request's id, which is also in the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// Seconds to wait before a retry; also in the `Retry-After` header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_seconds: Option<u32>,
    /// Additional members of this error, such as the `sqlstate` of a refused statement; documented
    /// where they occur.
    #[serde(flatten)]
    #[schema(ignore)]
    pub extensions: Map<String, Value>,
    #[serde(skip)]
    #[schema(ignore)]
    grpc_code: Option<tonic::Code>,
    /// What failed, with paths of the host: for the log, where `detail` leaves them out.
    #[serde(skip)]
    #[schema(ignore)]
    logged_detail: Option<String>,
}

/// The HTTP status of an error's kind.
pub(crate) fn http_status(kind: Kind) -> StatusCode {
    match kind {
        Kind::Invalid => StatusCode::BAD_REQUEST,
        Kind::Unauthenticated => StatusCode::UNAUTHORIZED,
        Kind::Denied => StatusCode::FORBIDDEN,
        Kind::NotFound => StatusCode::NOT_FOUND,
        Kind::Conflict => StatusCode::CONFLICT,
        Kind::Mismatch => StatusCode::PRECONDITION_FAILED,
        Kind::Gone => StatusCode::GONE,
        Kind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        Kind::LimitReached => StatusCode::TOO_MANY_REQUESTS,
        Kind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Kind::TimedOut => StatusCode::GATEWAY_TIMEOUT,
        Kind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// The gRPC status of an error's kind.
pub(crate) fn grpc_code(kind: Kind) -> tonic::Code {
    match kind {
        Kind::Invalid => tonic::Code::InvalidArgument,
        Kind::Unauthenticated => tonic::Code::Unauthenticated,
        Kind::Denied => tonic::Code::PermissionDenied,
        Kind::NotFound => tonic::Code::NotFound,
        Kind::Conflict | Kind::Mismatch => tonic::Code::FailedPrecondition,
        Kind::Gone => tonic::Code::OutOfRange,
        Kind::TooLarge | Kind::LimitReached => tonic::Code::ResourceExhausted,
        Kind::Unavailable => tonic::Code::Unavailable,
        Kind::TimedOut => tonic::Code::DeadlineExceeded,
        Kind::Internal => tonic::Code::Internal,
    }
}

/// The gRPC status of an error; its code travels in the metadata `egret-code`.
pub(crate) fn grpc_status(error: &dyn CodedError) -> tonic::Status {
    let problem = Problem::from_error(error);
    if let Some(detail) = &problem.logged_detail {
        condition::occur("requests_failing", &problem.code, detail, "call failed");
    }
    problem.to_grpc_status()
}

/// The detail of one failed item of several, in the form that a problem of its own would have.
pub(crate) fn error_detail(error: &dyn CodedError) -> String {
    truncate_detail(redact_host_paths(error, egret_base::error::chain(error)))
}

/// A message without paths of the host. The caller's own mistakes hold the caller's own words,
/// which may look like paths.
fn redact_host_paths(error: &dyn CodedError, message: String) -> String {
    if http_status(error.kind()).is_server_error() { redact_paths(&message) } else { message }
}

/// A detail without its middle where it is too long: what failed stands at its beginning, and what
/// to do at its end.
fn truncate_detail(mut detail: String) -> String {
    if detail.len() > DETAIL_BYTES_MAX {
        let from = detail.floor_char_boundary(DETAIL_BYTES_MAX / 4 * 3);
        let to = detail.ceil_char_boundary(detail.len() - DETAIL_BYTES_MAX / 4);
        detail.replace_range(from..to, "…");
    }
    detail
}

impl Problem {
    /// The problem of an error, with the messages of its sources.
    pub fn from_error(error: &dyn CodedError) -> Self {
        let status = http_status(error.kind());
        let full_detail = egret_base::error::chain(error);
        let shown_detail = redact_host_paths(error, full_detail.clone());
        let logged_detail = (shown_detail != full_detail).then_some(full_detail);
        let mut problem = Self::new(status, error.code(), shown_detail, error.retryable());
        problem.logged_detail = logged_detail;
        problem.grpc_code = Some(grpc_code(error.kind()));
        problem
    }

    /// A problem from its parts; `LimitReached` and `Unavailable` statuses get a `Retry-After`
    /// where trying again can help.
    pub fn new(status: StatusCode, code: &str, detail: String, retryable: bool) -> Self {
        let is_temporary =
            matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
        Self {
            type_reference: format!("/errors#{code}"),
            title: status.canonical_reason().unwrap_or("Error").to_owned(),
            status: status.as_u16(),
            code: code.to_owned(),
            detail: truncate_detail(detail),
            retryable,
            request_id: None,
            retry_after_seconds: (is_temporary && retryable).then_some(RETRY_AFTER_SECONDS),
            extensions: Map::new(),
            grpc_code: None,
            logged_detail: None,
        }
    }

    /// What failed, as the log has it.
    pub(crate) fn logged_detail(&self) -> &str {
        self.logged_detail.as_deref().unwrap_or(&self.detail)
    }

    /// The problem of requests that arrive while Egret stops.
    pub fn stopping() -> Self {
        let detail = "egret is stopping".to_owned();
        let mut problem = Self::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", detail, true);
        problem.grpc_code = Some(tonic::Code::Unavailable);
        problem
    }

    /// The same problem with one more member (RFC 9457, "Extension Members"); nothing is added for
    /// `None`.
    pub(crate) fn with_member(mut self, name: &str, value: Option<impl Into<Value>>) -> Self {
        if let Some(value) = value {
            self.extensions.insert(name.to_owned(), value.into());
        }
        self
    }

    /// The same problem under another HTTP status.
    pub(crate) fn with_status(mut self, status: StatusCode) -> Self {
        self.status = status.as_u16();
        self.title = status.canonical_reason().unwrap_or("Error").to_owned();
        self
    }

    /// The problem as a gRPC status with `egret-code` and `x-request-id` in its metadata.
    pub(crate) fn to_grpc_status(&self) -> tonic::Status {
        let code = self.grpc_code.unwrap_or(tonic::Code::Unknown);
        let mut status = tonic::Status::new(code, self.detail.clone());
        let metadata = [
            ("egret-code", Some(self.code.as_str())),
            ("egret-retryable", Some(if self.retryable { "true" } else { "false" })),
            ("x-request-id", self.request_id.as_deref()),
        ];
        for (name, text) in metadata {
            if let Some(value) = text.and_then(|text| text.parse().ok()) {
                status.metadata_mut().insert(name, value);
            }
        }
        status
    }

    /// Renders the problem as JSON.
    pub(crate) fn render(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&self).expect("a problem holds only text and numbers");
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        if let Some(seconds) = self.retry_after_seconds {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.code == "content_encoding_unsupported" {
            // RFC 9110 section 15.5.16: the header tells the codings that a request may have.
            let accepted = HeaderValue::from_static(ContentEncoding::ACCEPTED);
            headers.insert(header::ACCEPT_ENCODING, accepted);
        }
        if status == StatusCode::UNAUTHORIZED {
            // RFC 6750 section 3: an error is named only where there was a token.
            let challenge = if self.code == "token_missing" {
                HeaderValue::from_static("Bearer realm=\"egret\"")
            } else {
                HeaderValue::from_static("Bearer realm=\"egret\", error=\"invalid_token\"")
            };
            headers.insert(header::WWW_AUTHENTICATE, challenge);
        }
        response.extensions_mut().insert(self);
        response
    }
}

impl<E: CodedError> From<E> for Problem {
    fn from(error: E) -> Self {
        let mut problem = Problem::from_error(&error);
        let any: &dyn std::any::Any = &error;
        // The statuses that RFC 9110 and RFC 6585 have for these are finer than their kinds.
        let status = match any.downcast_ref::<RequestError>() {
            Some(RequestError::HeadTooLarge { .. }) => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Some(RequestError::BodyTooSlow) => StatusCode::REQUEST_TIMEOUT,
            Some(RequestError::MethodNotAllowed { .. }) => StatusCode::METHOD_NOT_ALLOWED,
            Some(
                RequestError::ContentType { .. }
                | RequestError::MediaType { .. }
                | RequestError::ContentEncoding { .. },
            ) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Some(RequestError::RouteNotFound { .. }) => {
                problem.grpc_code = Some(tonic::Code::Unimplemented);
                StatusCode::NOT_FOUND
            }
            _ => return problem,
        };
        problem.with_status(status)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        self.render()
    }
}

#[cfg(test)]
mod tests;
