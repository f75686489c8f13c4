//! No token and no client without one takes what others need.

use egret_base::settings::{ByteSize, ConfigDuration};
use egret_base_test::eventually;
use prometheus_client::metrics::counter::Counter;
use reqwest::{Method, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use utoipa_axum::router::OpenApiRouter;

use crate::limits::BlockingHandler;
use crate::test_server::{TestServer, TestServerSetup, problem};

async fn raw(test_server: &TestServer, request: &str) -> TcpStream {
    let address = test_server.server.local_address().unwrap();
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

#[tokio::test]
async fn a_token_is_known_before_anything_is_held_for_its_request() {
    let held = BlockingHandler::new();
    let test_server =
        TestServer::start_with(|config| config.concurrency_max = 1, held.routes()).await;
    let first = tokio::spawn(test_server.request(Method::GET, "/v1/held").send());
    held.await_entry().await;
    // All slots are taken: with a token one learns that, without one that it is missing.
    problem(test_server.get("/v1/tokens").await, 503, "server_busy").await;
    let stranger =
        test_server.request_without_token(Method::GET, "/v1/tokens").send().await.unwrap();
    problem(stranger, 401, "token_missing").await;
    let ready = test_server.request_without_token(Method::GET, "/readyz").send().await.unwrap();
    assert_eq!(ready.status(), StatusCode::SERVICE_UNAVAILABLE);
    let text = ready.text().await.unwrap();
    assert!(text.contains("server.concurrency_max is 1"), "{text}");
    for page in ["/docs", "/openapi.json", "/errors"] {
        let page = test_server.request_without_token(Method::GET, page).send().await.unwrap();
        assert_eq!(page.status(), StatusCode::OK);
    }
    let metrics = test_server.get("/metrics").await.text().await.unwrap();
    for line in [
        "egret_http_requests_admitted 1",
        "egret_http_refusals_total{limit=\"server.concurrency_max\"} 1",
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
    held.release();
    assert_eq!(first.await.unwrap().unwrap().status(), StatusCode::OK);
    let ready = test_server.request_without_token(Method::GET, "/readyz").send().await.unwrap();
    assert_eq!(ready.status(), StatusCode::OK);
    test_server.stop().await;
}

#[tokio::test]
async fn one_token_does_not_take_what_another_needs() {
    let held = BlockingHandler::new();
    let test_server =
        TestServer::start_with(|config| config.concurrency_per_token_max = 1, held.routes()).await;
    let first = tokio::spawn(test_server.request(Method::GET, "/v1/held").send());
    held.await_entry().await;
    let second = test_server.get("/v1/tokens").await;
    assert_eq!(second.headers()["retry-after"], "1");
    let refused = problem(second, 429, "quota_exceeded").await;
    assert_eq!(refused["retryable"], true);
    let detail = refused["detail"].to_string();
    assert!(detail.contains("server.concurrency_per_token_max is 1"), "{detail}");
    let other = test_server.token(&["admin"], None);
    let answer = test_server.request_without_token(Method::GET, "/v1/tokens").bearer_auth(other);
    assert_eq!(answer.send().await.unwrap().status(), StatusCode::OK);
    held.release();
    assert_eq!(first.await.unwrap().unwrap().status(), StatusCode::OK);
    test_server.stop().await;
}

#[tokio::test]
async fn bodies_in_memory_have_a_bound() {
    let test_server = TestServer::start_with(
        |config| {
            config.body_memory_per_token_max = ByteSize(300_000);
            config.transfer_timeout = ConfigDuration::secs(3_600);
        },
        OpenApiRouter::default(),
    )
    .await;
    let post = |size: usize| {
        let request = test_server
            .request(Method::POST, "/v1/tokens")
            .header("content-type", "application/json");
        request.body(vec![b' '; size]).send()
    };
    problem(post(200_000).await.unwrap(), 400, "json_malformed").await;
    let refused = post(300_000).await.unwrap();
    assert_eq!(refused.headers()["retry-after"], "1");
    let refused = problem(refused, 503, "body_memory_exhausted").await;
    let detail = refused["detail"].to_string();
    assert!(detail.contains("server.body_memory_per_token_max is 300000 bytes"), "{detail}");
    // What was held is given back.
    problem(post(200_000).await.unwrap(), 400, "json_malformed").await;
    test_server.stop().await;
}

#[tokio::test]
async fn a_body_that_does_not_come_is_not_waited_for() {
    let test_server = TestServer::start_with(
        |config| config.transfer_timeout = ConfigDuration::ms(20),
        OpenApiRouter::default(),
    )
    .await;
    let head = format!(
        "POST /v1/tokens HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\ncontent-length: 1000\r\n\r\n{{",
        test_server.admin
    );
    let mut answer = String::new();
    let mut stream = raw(&test_server, &head).await;
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(answer.contains("\"code\":\"body_too_slow\""), "{answer}");
    test_server.stop().await;
}

#[tokio::test]
async fn a_client_that_does_not_read_is_closed() {
    let large = axum::routing::get(async || vec![b'x'; 64 << 20]);
    let test_server = TestServer::start_with(
        |config| config.transfer_timeout = ConfigDuration::ms(20),
        OpenApiRouter::default().route("/v1/large", large),
    )
    .await;
    let head = format!(
        "GET /v1/large HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\r\n",
        test_server.admin
    );
    let stream = raw(&test_server, &head).await;
    let metrics = eventually("the request ends with its connection", async || {
        let metrics = test_server.get("/metrics").await.text().await.unwrap();
        let is_counted = metrics.lines().any(|line| {
            line.starts_with("egret_http_requests_total") && line.contains("/v1/large")
        });
        // The one that is left asks for the metrics.
        let is_closed = metrics.contains("egret_http_connections_open 1\n");
        (is_counted && is_closed).then_some(metrics)
    })
    .await;
    assert!(metrics.contains("route=\"/v1/large\",status=\"499\""));
    drop(stream);
    test_server.stop().await;
}

#[tokio::test]
async fn clients_with_a_token_find_a_connection_among_strangers() {
    let test_server =
        TestServer::start_with(|config| config.connections_max = 3, OpenApiRouter::default()).await;
    let mut strangers = Vec::new();
    for _ in 0..3 {
        strangers.push(raw(&test_server, "GET /v1/").await);
    }
    assert_eq!(test_server.get("/v1/tokens").await.status(), StatusCode::OK);
    // The oldest was closed, and the one with a token stays.
    let mut rest = Vec::new();
    let _ = strangers[0].read_to_end(&mut rest).await;
    for _ in 0..3 {
        strangers.push(raw(&test_server, "GET /v1/").await);
        assert_eq!(test_server.get("/v1/tokens").await.status(), StatusCode::OK);
    }
    drop(strangers);
    test_server.stop().await;
}

/// A page of metrics that no client reads is held in memory, for as many requests as may be at a
/// time.
#[tokio::test]
async fn requests_for_the_metrics_have_a_bound_of_their_own() {
    let held = BlockingHandler::new();
    let mut site = TestServerSetup::new();
    site.config.concurrency_max = 1;
    let long = "x".repeat(16 << 20);
    site.metrics.register(|registry| {
        registry.register("egret_test_long", long, Counter::<u64>::default());
    });
    let routes = held.routes();
    let test_server = site.start(|builder| builder.route(routes)).await;
    let token = test_server.token(&["metrics:read"], None);
    let head = format!("GET /metrics HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\r\n");
    let mut unread = Vec::new();
    for _ in 0..4 {
        unread.push(raw(&test_server, &head).await);
    }
    let scrape = |token: &str| {
        test_server.request_without_token(Method::GET, "/metrics").bearer_auth(token).send()
    };
    let refused = eventually("a request for the metrics is refused", async || {
        let answer = scrape(&token).await.unwrap();
        (answer.status() != StatusCode::OK).then_some(answer)
    })
    .await;
    let refused = problem(refused, 429, "quota_exceeded").await;
    let detail = refused["detail"].to_string();
    assert!(detail.contains("metrics_requests_per_token_max is 4"), "{detail}");
    // However busy the server is, others are answered.
    let busy = tokio::spawn(test_server.request(Method::GET, "/v1/held").send());
    held.await_entry().await;
    let other = test_server.token(&["metrics:read"], None);
    assert_eq!(scrape(&other).await.unwrap().status(), StatusCode::OK);
    let alive = test_server.request_without_token(Method::GET, "/healthz").bearer_auth(&token);
    assert_eq!(alive.send().await.unwrap().status(), StatusCode::OK);
    held.release();
    assert_eq!(busy.await.unwrap().unwrap().status(), StatusCode::OK);
    drop(unread);
    test_server.stop().await;
}
