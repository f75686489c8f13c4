//! Each limit is met once and answers by its name.

use std::sync::Arc;

use axum::extract::State;
use axum::routing::get;
use egret_base::settings::{ByteSize, ConfigDuration};
use egret_base::{Entropy, SeededEntropy};
use reqwest::{Method, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use utoipa_axum::router::OpenApiRouter;

use crate::test_server::{TestServer, problem};

/// A handler that signals when it was entered, and waits until it is released.
#[derive(Clone)]
pub struct BlockingHandler {
    pub entered: Arc<Semaphore>,
    pub released: Arc<Semaphore>,
}

impl BlockingHandler {
    pub fn new() -> Self {
        Self { entered: Arc::new(Semaphore::new(0)), released: Arc::new(Semaphore::new(0)) }
    }

    /// Its route, `/v1/held`; undocumented, so it takes an admin.
    pub fn routes(&self) -> OpenApiRouter {
        OpenApiRouter::default().route("/v1/held", get(block)).with_state(self.clone())
    }

    pub async fn await_entry(&self) {
        self.entered.acquire().await.unwrap().forget();
    }

    pub fn release(&self) {
        self.released.add_permits(1);
    }
}

async fn block(State(held): State<BlockingHandler>) -> &'static str {
    held.entered.add_permits(1);
    held.released.acquire().await.unwrap().forget();
    "done"
}

#[tokio::test]
async fn a_body_too_large_is_refused_announced_or_not() {
    let test_server = TestServer::start_with(
        |config| config.body_bytes_max = ByteSize(1024),
        OpenApiRouter::default(),
    )
    .await;
    let post = || {
        test_server.request(Method::POST, "/v1/tokens").header("content-type", "application/json")
    };
    let announced = post().body(vec![b' '; 1025]).send().await.unwrap();
    let detail = problem(announced, 413, "body_too_large").await["detail"].to_string();
    assert!(detail.contains("server.body_bytes_max, which is 1024 bytes"), "{detail}");
    let chunks = (0..5).map(|_| Ok::<_, std::io::Error>(vec![b' '; 256]));
    let streamed = reqwest::Body::wrap_stream(futures_util::stream::iter(chunks));
    problem(post().body(streamed).send().await.unwrap(), 413, "body_too_large").await;
    // The rest of it is not read: a client must not send its next request behind it.
    let large = post().body(vec![b' '; 1 << 20]).send().await.unwrap();
    assert_eq!(large.headers()["connection"], "close");
    problem(large, 413, "body_too_large").await;
    let read = post().body(vec![b' '; 1024]).send().await.unwrap();
    assert!(!read.headers().contains_key("connection"), "{read:?}");
    problem(read, 400, "json_malformed").await;
    test_server.stop().await;
}

#[tokio::test]
async fn a_body_has_its_bound_whatever_the_request_says_it_is() {
    let length = axum::routing::post(async |body: bytes::Bytes| body.len().to_string());
    let test_server = TestServer::start_with(
        |config| config.body_bytes_max = ByteSize(1024),
        OpenApiRouter::default().route("/v1/length", length),
    )
    .await;
    let send = |bytes: usize| {
        let chunks = (0..bytes / 256).map(|_| Ok::<_, std::io::Error>(vec![b' '; 256]));
        let request = test_server
            .request(Method::POST, "/v1/length")
            .header("content-type", "application/grpc");
        let body = reqwest::Body::wrap_stream(futures_util::stream::iter(chunks));
        request.body(body).send()
    };
    let fits = send(1024).await.unwrap();
    assert_eq!(fits.text().await.unwrap(), "1024");
    let refused = send(1280).await.unwrap();
    assert!(refused.headers().contains_key("grpc-status"), "{refused:?}");
    test_server.stop().await;
}

#[tokio::test]
async fn a_head_too_large_is_refused_by_count_and_by_size() {
    let test_server = TestServer::start_with(
        |config| {
            config.headers_max = 10;
            config.header_bytes_max = ByteSize(2048);
        },
        OpenApiRouter::default(),
    )
    .await;
    let mut many = test_server.request_without_token(Method::GET, "/healthz");
    for index in 0..11 {
        many = many.header(format!("x-{index}"), "1");
    }
    let detail =
        problem(many.send().await.unwrap(), 431, "head_too_large").await["detail"].to_string();
    assert!(detail.contains("server.headers_max is 10"), "{detail}");
    let large = test_server
        .request_without_token(Method::GET, "/healthz")
        .header("x-large", "y".repeat(2048));
    let detail =
        problem(large.send().await.unwrap(), 431, "head_too_large").await["detail"].to_string();
    assert!(detail.contains("server.header_bytes_max is 2048"), "{detail}");
    test_server.stop().await;
}

#[tokio::test]
async fn one_request_too_many_is_told_to_come_again() {
    let held = BlockingHandler::new();
    let test_server =
        TestServer::start_with(|config| config.concurrency_max = 1, held.routes()).await;
    let first = tokio::spawn(test_server.request(Method::GET, "/v1/held").send());
    held.await_entry().await;
    let second = test_server.get("/v1/tokens").await;
    assert_eq!(second.headers()["retry-after"], "1");
    let found = problem(second, 503, "server_busy").await;
    assert_eq!(found["retryable"], true);
    assert!(found["detail"].to_string().contains("server.concurrency_max is 1"), "{found}");
    assert_eq!(test_server.get("/healthz").await.status(), StatusCode::OK);
    held.release();
    assert_eq!(first.await.unwrap().unwrap().text().await.unwrap(), "done");
    assert_eq!(test_server.get("/v1/tokens").await.status(), StatusCode::OK);
    test_server.stop().await;
}

#[tokio::test]
async fn one_connection_too_many_is_answered_and_closed() {
    let test_server =
        TestServer::start_with(|config| config.connections_max = 1, OpenApiRouter::default()).await;
    // A connection without a token would make room for the next.
    assert_eq!(test_server.get("/v1/tokens").await.status(), StatusCode::OK);
    let mut second = TcpStream::connect(test_server.server.local_address().unwrap()).await.unwrap();
    second.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    second.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(answer.contains("server.connections_max is 1"), "{answer}");
    assert!(answer.to_ascii_lowercase().contains("retry-after: 1"), "{answer}");
    test_server.stop().await;
}

#[tokio::test]
async fn a_handler_that_takes_too_long_is_cut_off() {
    let held = BlockingHandler::new();
    let test_server = TestServer::start_with(
        |config| config.request_timeout = ConfigDuration::ms(1),
        held.routes(),
    )
    .await;
    let found = problem(test_server.get("/v1/held").await, 504, "request_timed_out").await;
    assert!(
        found["detail"].to_string().contains("server.request_timeout, which is 1 ms"),
        "{found}"
    );
    test_server.stop().await;
}

#[tokio::test]
async fn a_client_that_never_finishes_its_request_is_cut_off() {
    let test_server = TestServer::start_with(
        |config| config.header_timeout = ConfigDuration::ms(1),
        OpenApiRouter::default(),
    )
    .await;
    let beginnings = ["", "P", "PRI * HTTP/2.0\r\n", "GET", "GET /healthz HTTP/1.1\r\nhost"];
    for beginning in beginnings {
        let address = test_server.server.local_address().unwrap();
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(beginning.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // Ends only because the server closes; with an answer or without is the protocol's choice.
        let _ = client.read_to_end(&mut answer).await;
    }
    test_server.stop().await;
}

#[tokio::test]
async fn garbage_on_the_wire_affects_no_other_connection() {
    let test_server = TestServer::start().await;
    let entropy = SeededEntropy::new(99);
    for length in 1..200_usize {
        let address = test_server.server.local_address().unwrap();
        let mut client = TcpStream::connect(address).await.unwrap();
        let mut bytes = vec![0; length];
        entropy.fill(&mut bytes);
        // Some begin like a request, so as to get further.
        let beginning = ["", "GET ", "GET / HTTP/1.1\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"];
        let beginning = beginning[length % beginning.len()];
        client.write_all(beginning.as_bytes()).await.unwrap();
        let _ = client.write_all(&bytes).await;
        drop(client);
    }
    assert_eq!(test_server.get("/v1/tokens").await.status(), StatusCode::OK);
    test_server.stop().await;
}
