//! The table of kinds, and what a problem looks like.

use expect_test::expect;

use super::*;

const KINDS: [Kind; 12] = [
    Kind::Invalid,
    Kind::Unauthenticated,
    Kind::Denied,
    Kind::NotFound,
    Kind::Conflict,
    Kind::Mismatch,
    Kind::Gone,
    Kind::TooLarge,
    Kind::LimitReached,
    Kind::Unavailable,
    Kind::TimedOut,
    Kind::Internal,
];

#[derive(Debug, thiserror::Error)]
#[error("`x` is missing: create it")]
struct TestError(Kind);

impl CodedError for TestError {
    fn code(&self) -> &'static str {
        "x_missing"
    }

    fn kind(&self) -> Kind {
        self.0
    }
}

#[test]
fn every_kind_has_its_http_and_grpc_status() {
    let mut table = String::new();
    for kind in KINDS {
        let problem = Problem::from(TestError(kind));
        let grpc = grpc_status(&TestError(kind));
        table.push_str(&format!(
            "{kind:?} {} {:?} retryable={} wait={:?}\n",
            problem.status,
            grpc.code(),
            problem.retryable,
            problem.retry_after_seconds
        ));
    }
    expect![[r#"
        Invalid 400 InvalidArgument retryable=false wait=None
        Unauthenticated 401 Unauthenticated retryable=false wait=None
        Denied 403 PermissionDenied retryable=false wait=None
        NotFound 404 NotFound retryable=false wait=None
        Conflict 409 FailedPrecondition retryable=false wait=None
        Mismatch 412 FailedPrecondition retryable=false wait=None
        Gone 410 OutOfRange retryable=false wait=None
        TooLarge 413 ResourceExhausted retryable=false wait=None
        LimitReached 429 ResourceExhausted retryable=true wait=Some(1)
        Unavailable 503 Unavailable retryable=true wait=Some(1)
        TimedOut 504 DeadlineExceeded retryable=true wait=None
        Internal 500 Internal retryable=false wait=None
    "#]]
    .assert_eq(&table);
}

#[test]
fn renders_as_rfc_9457() {
    let mut problem = Problem::from(TestError(Kind::Unavailable));
    problem.retry_after_seconds = Some(7);
    problem.request_id = Some("r-1".to_owned());
    expect![[r#"
        {
          "type": "/errors#x_missing",
          "title": "Service Unavailable",
          "status": 503,
          "code": "x_missing",
          "detail": "`x` is missing: create it",
          "retryable": true,
          "request_id": "r-1",
          "retry_after_seconds": 7
        }"#]]
    .assert_eq(&serde_json::to_string_pretty(&problem).unwrap());
    let grpc = problem.to_grpc_status();
    assert_eq!(grpc.metadata().get("egret-code").unwrap(), "x_missing");
    assert_eq!(grpc.metadata().get("x-request-id").unwrap(), "r-1");
    let response = problem.into_response();
    assert_eq!(response.headers()["retry-after"], "7");
    assert_eq!(response.headers()["content-type"], PROBLEM_JSON);
}

#[test]
fn a_failed_item_has_the_detail_of_a_problem_of_its_own() {
    #[derive(Debug, thiserror::Error)]
    #[error("cannot open /var/lib/egret/queue/1: {0}")]
    struct Long(String);

    impl CodedError for Long {
        fn code(&self) -> &'static str {
            "long"
        }

        fn kind(&self) -> Kind {
            Kind::Internal
        }
    }

    let error = Long("x".repeat(100_000));
    let detail = error_detail(&error);
    assert_eq!(detail, Problem::from_error(&error).detail);
    assert!(detail.len() <= DETAIL_BYTES_MAX + '…'.len_utf8());
    assert!(detail.starts_with("cannot open …/1: xx"), "{detail}");
}

#[test]
fn finer_statuses_than_the_kind_has() {
    let table = [
        (
            RequestError::HeadTooLarge {
                limit: "server.headers_max",
                max: 1,
                asked: 2,
                unit: "headers",
            },
            431,
        ),
        (RequestError::ContentType { found: "text/plain".to_owned() }, 415),
        (RequestError::BodyTooLarge { max: 1 }, 413),
        (
            RequestError::MethodNotAllowed {
                method: "PUT".to_owned(),
                path: "/x".to_owned(),
                allowed: "GET".to_owned(),
            },
            405,
        ),
        (RequestError::RouteNotFound { path: "/x".to_owned(), nearest: None }, 404),
    ];
    for (error, status) in table {
        assert_eq!(Problem::from(error.clone()).status, status, "{error}");
    }
}

/// Over gRPC the detail travels in a header, which clients bound.
#[test]
fn a_long_detail_loses_its_middle() {
    let long = format!("name: `{}` is too long", "ä".repeat(100_000));
    let problem = Problem::new(StatusCode::BAD_REQUEST, "invalid_request", long, false);
    assert!(problem.detail.len() <= DETAIL_BYTES_MAX + "…".len());
    assert!(problem.detail.starts_with("name: `ää"));
    assert!(problem.detail.ends_with("ää` is too long"));
}
