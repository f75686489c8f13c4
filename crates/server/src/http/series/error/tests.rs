//! Which errors are which of Prometheus's.

use egret_promql::QueryError;
use egret_series::SeriesError;
use http::StatusCode;

use super::status_and_type;
use crate::error::RequestError;
use crate::problem::Problem;
use crate::tokens::TokenError;

fn check(problem: impl Into<Problem>, status: u16, error_type: &str) {
    let status = StatusCode::from_u16(status).unwrap();
    assert_eq!(status_and_type(&problem.into()), (status, error_type));
}

#[test]
fn a_limit_that_must_be_raised_has_no_retry_after() {
    let problem = Problem::from(SeriesError::TooManySeries { max: 1 });
    assert_eq!((problem.status, problem.retryable), (429, false));
    assert_eq!(problem.retry_after_seconds, None);
    assert!(problem.detail.contains("series.series_max"), "{}", problem.detail);
}

#[test]
fn every_kind_of_error_has_its_name() {
    let message = || "why".to_owned();
    check(QueryError::Parse { message: message() }, 400, "bad_data");
    check(QueryError::Execution { message: message() }, 422, "execution");
    let over =
        QueryError::OverBudget { limit: "series.query_samples_max", budget: 1, what: "samples" };
    check(over, 422, "execution");
    check(QueryError::TimedOut, 503, "timeout");
    let said = QueryError::TimedOut.to_string();
    assert!(said.contains("series.query_timeout"), "{said}");
    check(QueryError::Canceled, 499, "canceled");
    check(QueryError::Source { message: message() }, 500, "internal");
    check(TokenError::Missing, 401, "unauthorized");
    let scope = message();
    check(TokenError::ScopeMissing { scope }, 403, "forbidden");
    let (limit, max) = ("server.concurrency_max", 1);
    check(RequestError::Busy { limit, max }, 503, "unavailable");
    check(RequestError::BodyTooLarge { max }, 413, "bad_data");
    check(RequestError::TimedOut { timeout_ms: 1 }, 503, "timeout");
    let nearest = None;
    let path = message();
    check(RequestError::RouteNotFound { path, nearest }, 404, "not_found");
}
