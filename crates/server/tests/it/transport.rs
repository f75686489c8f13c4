//! The one port: HTTP/1.1, HTTP/2, TLS, gRPC, and how it is taken and left.

use std::sync::Arc;

use egret_base::lifecycle::{Readiness, Service};
use egret_base::settings::ConfigDuration;
use egret_base_test::eventually;
use reqwest::{Method, StatusCode, Version};
use tonic::transport::{Channel, Endpoint};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use utoipa_axum::router::OpenApiRouter;

use crate::limits::BlockingHandler;
use crate::test_server::{TestServer, TestServerSetup, client_builder};

async fn health_client(test_server: &TestServer) -> HealthClient<Channel> {
    let endpoint = Endpoint::from_shared(test_server.base.clone()).unwrap();
    HealthClient::new(endpoint.connect().await.unwrap())
}

#[tokio::test]
async fn both_http_versions_and_grpc_share_the_port() {
    let test_server = TestServer::start().await;
    let one = test_server.request_without_token(Method::GET, "/healthz").send().await.unwrap();
    assert_eq!(one.version(), Version::HTTP_11);
    let client = client_builder().http2_prior_knowledge().build().unwrap();
    let two = client.get(format!("{}/healthz", test_server.base)).send().await.unwrap();
    assert_eq!((two.version(), two.status()), (Version::HTTP_2, StatusCode::OK));
    let mut health = health_client(&test_server).await;
    let mut check = async |service: &str| {
        let request = HealthCheckRequest { service: service.to_owned() };
        health.check(request).await.map(|answer| answer.into_inner().status())
    };
    assert_eq!(check("").await.unwrap(), ServingStatus::Serving);
    assert_eq!(check("postgres").await.unwrap(), ServingStatus::Serving);
    assert_eq!(check("nobody").await.unwrap_err().code(), tonic::Code::NotFound);
    *test_server.readiness.lock().unwrap() = Readiness::NotReady("starting".to_owned());
    assert_eq!(check("").await.unwrap(), ServingStatus::NotServing);
    assert_eq!(check("server").await.unwrap(), ServingStatus::Serving);
    drop(client);
    test_server.stop().await;
}

#[tokio::test]
async fn a_watched_status_follows_readiness_and_ends_with_the_server() {
    let test_server = TestServer::start().await;
    let mut health = health_client(&test_server).await;
    let mut watch = health.watch(HealthCheckRequest::default()).await.unwrap().into_inner();
    let first = watch.message().await.unwrap().unwrap();
    assert_eq!(first.status(), ServingStatus::Serving);
    *test_server.readiness.lock().unwrap() = Readiness::NotReady("restarting".to_owned());
    let second = watch.message().await.unwrap().unwrap();
    assert_eq!(second.status(), ServingStatus::NotServing);
    let (end, _) = tokio::join!(watch.message(), test_server.stop());
    assert!(matches!(end, Ok(None)), "{end:?}");
}

#[tokio::test]
async fn watches_are_bounded_and_take_no_slot_from_requests() {
    let test_server =
        TestServer::start_with(|config| config.concurrency_max = 1, OpenApiRouter::default()).await;
    let mut health = health_client(&test_server).await;
    let mut watches = Vec::new();
    for _ in 0..16 {
        let watch = health.watch(HealthCheckRequest::default()).await;
        watches.push(watch.unwrap());
    }
    let refused = health.watch(HealthCheckRequest::default()).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::Unavailable);
    assert!(health.check(HealthCheckRequest::default()).await.is_ok());
    assert_eq!(test_server.get("/v1/tokens").await.status(), StatusCode::OK);
    test_server.stop().await;
}

#[tokio::test]
async fn an_unknown_grpc_method_is_a_grpc_status() {
    let test_server = TestServer::start().await;
    let client = client_builder().http2_prior_knowledge().build().unwrap();
    let request = client.post(format!("{}/egret.v9.Nothing/Do", test_server.base));
    let response = request.header("content-type", "application/grpc").send().await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()["grpc-status"], "12");
    assert_eq!(response.headers()["egret-code"], "route_not_found");
    drop(client);
    test_server.stop().await;
}

#[tokio::test]
async fn tls_from_files_with_http2_by_alpn() {
    let mut site = TestServerSetup::new();
    let signed = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let (certificate, key) = (site.path("server.crt"), site.path("server.key"));
    std::fs::write(&certificate, signed.cert.pem()).unwrap();
    std::fs::write(&key, signed.signing_key.serialize_pem()).unwrap();
    site.config.tls_certificate = Some(certificate);
    site.config.tls_key = Some(key);
    let test_server = site.start(|builder| builder).await;
    let root = reqwest::Certificate::from_pem(signed.cert.pem().as_bytes()).unwrap();
    let client = client_builder().tls_certs_only([root]).build().unwrap();
    let response = client.get(format!("{}/healthz", test_server.base)).send().await.unwrap();
    assert_eq!((response.version(), response.status()), (Version::HTTP_2, StatusCode::OK));
    let plain = test_server.base.replace("https", "http");
    assert!(client.get(format!("{plain}/healthz")).send().await.is_err());
    drop(client);
    test_server.stop().await;
}

#[tokio::test]
async fn a_stop_lets_requests_in_flight_finish() {
    let held = BlockingHandler::new();
    let test_server = TestServer::start_with(|_| {}, held.routes()).await;
    let slow = tokio::spawn(test_server.request(Method::GET, "/v1/held").send());
    held.await_entry().await;
    let (server, address) =
        (test_server.server.clone(), test_server.server.local_address().unwrap());
    let stop = tokio::spawn(async move { server.stop().await });
    // The port is closed before the request is released.
    eventually("the port is closed", async || {
        tokio::net::TcpStream::connect(address).await.is_err()
    })
    .await;
    assert_ne!(test_server.server.ready(), Readiness::Ready);
    assert!(!stop.is_finished());
    held.release();
    let answer = slow.await.unwrap().unwrap();
    assert_eq!(answer.text().await.unwrap(), "done");
    stop.await.unwrap();
    test_server.stop().await;
}

#[tokio::test]
async fn a_stop_does_not_wait_for_ever() {
    let held = BlockingHandler::new();
    let test_server = TestServer::start_with(
        |config| config.shutdown_timeout = ConfigDuration::ms(1),
        held.routes(),
    )
    .await;
    let slow = tokio::spawn(test_server.request(Method::GET, "/v1/held").send());
    held.await_entry().await;
    test_server.server.stop().await;
    assert!(slow.await.unwrap().is_err());
    let log = test_server.log();
    assert!(log.contains("server.shutdown_timeout has passed"), "{log}");
    assert!(log.contains("status=499"), "{log}");
}

#[tokio::test]
async fn a_taken_port_is_told_with_the_setting() {
    let test_server = TestServer::start().await;
    let mut site = TestServerSetup::new();
    site.config.port = test_server.server.local_address().unwrap().port();
    let second = Arc::new(site.builder().build().unwrap());
    let error = second.start().await.unwrap_err().to_string();
    assert!(error.contains("is in use by another program"), "{error}");
    assert!(error.contains("server.port (EGRET_SERVER_PORT)"), "{error}");
    second.stop().await;
    test_server.stop().await;
}

#[tokio::test]
async fn a_route_with_an_unknown_scope_is_refused_at_the_start() {
    /// Feed
    #[utoipa::path(get, path = "/v1/feed", operation_id = "feed", security(("token" = ["herons:read"])),
        responses((status = 200, description = "Fed.")))]
    async fn feed() {}

    let site = TestServerSetup::new();
    let routes = OpenApiRouter::default().routes(utoipa_axum::routes!(feed));
    let error = site.builder().route(routes).build().err().unwrap().to_string();
    assert_eq!(
        error,
        "GET /v1/feed needs the scope `herons:read`, which the token store does not know"
    );
}

#[tokio::test]
async fn an_open_address_without_tls_is_warned_about() {
    let mut site = TestServerSetup::new();
    site.config.address = "0.0.0.0".to_owned();
    site.builder().build().unwrap();
    let log = site.log.text();
    assert!(log.contains(" WARN ") && log.contains("tokens will cross the network"), "{log}");
}
