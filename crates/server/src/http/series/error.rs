//! Errors as Prometheus answers them: `{"status":"error","errorType":"bad_data","error":"…"}`.

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde_json::json;

use crate::problem::Problem;

/// The status "client closed request" of nginx, which Prometheus uses for cancelled queries.
const CANCELED_STATUS: u16 = 499;

/// All values of `errorType`.
pub(crate) const ERROR_TYPES: [&str; 10] = [
    "unauthorized",
    "forbidden",
    "not_found",
    "not_acceptable",
    "execution",
    "canceled",
    "timeout",
    "unavailable",
    "internal",
    "bad_data",
];

/// Whether errors of this path are to be Prometheus's.
pub(crate) fn is_prometheus_path(path: &str) -> bool {
    path.starts_with("/prometheus/")
}

/// Renders a problem as Prometheus would.
pub(crate) fn render_problem(problem: Problem) -> Response {
    let (status, error_type) = status_and_type(&problem);
    let body = json!({"status": "error", "errorType": error_type, "error": problem.detail});
    let mut response = (status, body.to_string()).into_response();
    let headers = response.headers_mut();
    let json = HeaderValue::from_static("application/json");
    headers.insert(header::CONTENT_TYPE, json);
    if let Some(seconds) = problem.retry_after_seconds {
        headers.insert(header::RETRY_AFTER, seconds.into());
    }
    if status == StatusCode::UNAUTHORIZED {
        let challenge = HeaderValue::from_static("Bearer realm=\"egret\"");
        headers.insert(header::WWW_AUTHENTICATE, challenge);
    }
    response
}

/// Status and `errorType`. A query that has no answer has a status of its own at Prometheus.
fn status_and_type(problem: &Problem) -> (StatusCode, &'static str) {
    let number = match problem.code.as_str() {
        "query_failed" | "query_over_budget" => 422,
        "query_timed_out" | "request_timed_out" => 503,
        "query_canceled" => CANCELED_STATUS,
        _ => problem.status,
    };
    let error_type = match number {
        401 => "unauthorized",
        403 => "forbidden",
        404 => "not_found",
        406 => "not_acceptable",
        422 => "execution",
        CANCELED_STATUS => "canceled",
        503 if problem.status == 504 => "timeout",
        429 | 503 => "unavailable",
        500.. => "internal",
        _ => "bad_data",
    };
    let status = StatusCode::from_u16(number).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, error_type)
}

#[cfg(test)]
mod tests;
