//! What holds for every request: ids, headers, problems, the access log.

use axum::routing::get;
use reqwest::{Method, StatusCode};
use utoipa_axum::router::OpenApiRouter;

use crate::test_server::{TestServer, problem};

#[tokio::test]
async fn a_sane_request_id_is_echoed_and_another_replaced() {
    let test_server = TestServer::start().await;
    let with_id = |id: &'static str| {
        test_server.request_without_token(Method::GET, "/healthz").header("x-request-id", id)
    };
    let response = with_id("trace-7.a_B").send().await.unwrap();
    assert_eq!(response.headers()["x-request-id"], "trace-7.a_B");
    let long = "x".repeat(65).leak();
    for odd in ["a b", "a;b", "{}", "", long] {
        let response = with_id(odd).send().await.unwrap();
        let id = response.headers()["x-request-id"].to_str().unwrap();
        assert!(egret_base::id::parse(id).is_ok(), "{odd} became {id}");
    }
    test_server.stop().await;
}

#[tokio::test]
async fn an_unknown_path_suggests_the_nearest_one() {
    let test_server = TestServer::start().await;
    let problem_of = problem(test_server.get("/v1/token").await, 404, "route_not_found").await;
    let detail = problem_of["detail"].as_str().unwrap();
    assert!(detail.contains("did you mean /v1/tokens?"), "{detail}");
    problem(test_server.get("/zzz").await, 404, "route_not_found").await;
    test_server.stop().await;
}

#[tokio::test]
async fn a_wrong_method_names_the_right_ones() {
    let test_server = TestServer::start().await;
    let response = test_server.request(Method::PUT, "/v1/tokens").send().await.unwrap();
    assert_eq!(response.headers()["allow"], "GET, HEAD, POST");
    let detail = problem(response, 405, "method_not_allowed").await["detail"].to_string();
    assert!(detail.contains("/v1/tokens does not take PUT: it takes GET, HEAD, POST"), "{detail}");
    test_server.stop().await;
}

/// Bodies, each with its problem's code and what its detail must say.
const MALFORMED: [(&str, &str, &str); 11] = [
    ("", "json_malformed", "it is empty"),
    (r#"{"name": "a",}"#, "json_malformed", "line 1 column 14"),
    ("\u{0}\u{1}", "json_malformed", "line 1 column 1"),
    ("[]", "json_invalid", "body"),
    (r#"{"scopes": []}"#, "json_invalid", "missing field `name`"),
    (r#"{"name": 1, "scopes": []}"#, "json_invalid", "name: invalid type"),
    (r#"{"name": "a", "scopes": ["admin", 2]}"#, "json_invalid", "scopes[1]"),
    (r#"{"name": "a", "scopes": [], "owner": 1}"#, "json_invalid", "unknown field `owner`"),
    (r#"{"name": "a", "scopes": [], "ttl_ms": -1}"#, "json_invalid", "ttl_ms"),
    (r#"{"name": "", "scopes": ["admin"]}"#, "token_field_invalid", "name"),
    (r#"{"name": "a", "scopes": ["branch:read"]}"#, "scope_invalid", "branches"),
];

#[tokio::test]
async fn a_malformed_body_says_what_and_where() {
    let test_server = TestServer::start().await;
    let post = |body: String| {
        let request = test_server.request(Method::POST, "/v1/tokens");
        request.header("content-type", "application/json").body(body).send()
    };
    for (body, code, detail) in MALFORMED {
        let found = problem(post(body.to_owned()).await.unwrap(), 400, code).await;
        let found = found["detail"].as_str().unwrap();
        assert!(found.contains(detail), "{body}: {found}");
    }
    let deep = post("[".repeat(100_000)).await.unwrap();
    assert_eq!(deep.status(), StatusCode::BAD_REQUEST);
    assert_eq!(test_server.tokens.list().len(), 1, "bad input has changed something");
    test_server.stop().await;
}

#[tokio::test]
async fn a_body_of_another_type_is_not_read() {
    let test_server = TestServer::start().await;
    for found in ["text/plain", "application/x-www-form-urlencoded"] {
        let request = test_server.request(Method::POST, "/v1/tokens").header("content-type", found);
        let response = request.body("name=a").send().await.unwrap();
        let detail = problem(response, 415, "content_type_unsupported").await["detail"].to_string();
        assert!(detail.contains(&format!("`{found}`")), "{detail}");
    }
    test_server.stop().await;
}

#[tokio::test]
async fn a_malformed_parameter_says_what_is_wrong() {
    let test_server = TestServer::start().await;
    for (query, part) in [
        ("seconds=x", "seconds: must be a whole number of 0 or more"),
        ("seconds=-1", "seconds: must be a whole number of 0 or more"),
        ("seconds=99999999999999999999", "too large"),
        ("second=1", "unknown field"),
        ("format=png", "format"),
    ] {
        let response = test_server.get(&format!("/debug/profile?{query}")).await;
        let found = problem(response, 400, "parameter_invalid").await["detail"].to_string();
        assert!(found.contains(part), "{query}: {found}");
    }
    test_server.stop().await;
}

#[tokio::test]
async fn a_limit_of_a_list_that_is_none_says_what_is_wrong() {
    let test_server = TestServer::start().await;
    for (limit, part) in [
        ("-1", "limit: must be a whole number of 0 or more"),
        ("0", "is not in the range 1 to 1000"),
        ("1001", "is not in the range 1 to 1000"),
        ("99999999999999999999", "limit: the number is too large"),
        ("", "limit: must be a whole number of 0 or more"),
    ] {
        let response = test_server.get(&format!("/v1/audit?limit={limit}")).await;
        let found = problem(response, 400, "parameter_invalid").await["detail"].to_string();
        assert!(found.contains(part), "{limit}: {found}");
    }
    test_server.stop().await;
}

#[tokio::test]
async fn no_secret_is_in_the_log() {
    let test_server = TestServer::start().await;
    let body = "{\"name\": \"ci\", \"scopes\": [\"admin\"], \"tenant\": \"acme\"}";
    let made: serde_json::Value = test_server
        .request(Method::POST, "/v1/tokens?password=hunter2")
        .header("content-type", "application/json")
        .header("x-request-id", "find-me")
        .header("cookie", "session=crumb")
        .body(body)
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    let token = made["token"].as_str().unwrap().to_owned();
    let wrong = format!("{}x", &token[..token.len() - 1]);
    test_server
        .request_without_token(Method::GET, "/v1/tokens")
        .bearer_auth(&wrong)
        .send()
        .await
        .unwrap();
    test_server
        .request_without_token(Method::GET, &format!("/v1/tokens/{token}"))
        .bearer_auth(&token)
        .send()
        .await
        .unwrap();
    let admin = test_server.admin.clone();
    let log = test_server.stop().await;
    for secret in [token.as_str(), &wrong, &admin, &token[19..], "hunter2", "crumb"] {
        assert!(!log.contains(secret), "{secret} is in the log:\n{log}");
    }
    let line = log
        .lines()
        .find(|line| line.contains("egret::access") && line.contains("find-me"))
        .unwrap();
    for part in [
        "method=\"POST\"",
        "route=\"/v1/tokens\"",
        "status=201",
        "tenant=\"default\"",
        "token=",
        "bytes=",
        "ms=",
    ] {
        assert!(line.contains(part), "{part} is not in {line}");
    }
}

#[tokio::test]
async fn responses_forbid_what_browsers_would_do() {
    let test_server = TestServer::start().await;
    let response = test_server.get("/v1/tokens").await;
    assert_eq!(response.headers()["x-content-type-options"], "nosniff");
    assert_eq!(response.headers()["cache-control"], "no-store");
    assert_eq!(response.headers()["referrer-policy"], "no-referrer");
    assert!(
        response.headers()["content-security-policy"]
            .to_str()
            .unwrap()
            .contains("default-src 'none'")
    );
    test_server.stop().await;
}

#[tokio::test]
async fn a_panic_costs_one_answer_and_not_the_connection() {
    let routes = OpenApiRouter::default().route("/v1/panic", get(panics));
    let test_server = TestServer::start_with(|_| {}, routes).await;
    let found = problem(test_server.get("/v1/panic").await, 500, "handler_panicked").await;
    assert!(!found["detail"].to_string().contains("boom"));
    // More of them are no more lines, but a condition.
    for _ in 0..3 {
        problem(test_server.get("/v1/panic").await, 500, "handler_panicked").await;
    }
    assert_eq!(test_server.get("/v1/tokens").await.status(), StatusCode::OK);
    let log = test_server.log();
    assert_eq!(log.matches(" ERROR ").count(), 1, "{log}");
    let ready: serde_json::Value = test_server.get("/readyz").await.json().await.unwrap();
    let names = ready["conditions"].as_array().unwrap();
    assert!(names.contains(&"requests_failing".into()), "{ready}");
    assert_eq!(ready["ready"], true);
    assert!(log.contains("code=\"handler_panicked\""), "{log}");
}

async fn panics() -> &'static str {
    panic!("boom")
}
