//! The address of a client behind a reverse proxy, in the access log and the audit log, over HTTP
//! and gRPC; and what others than the proxy cause by naming one.

use std::net::IpAddr;

use egret_base_test::eventually;
use egret_server::AuditLog;
use reqwest::Client;

use crate::test_server::{TestServer, TestServerSetup};

/// The address of the proxy that the server trusts.
const PROXY: &str = "127.0.0.1";

/// The address of a client that is not the proxy.
const STRANGER: &str = "127.0.0.2";

async fn house() -> TestServer {
    let mut site = TestServerSetup::new();
    site.config.trusted_proxies = format!("{PROXY}, 10.0.0.0/8");
    let directory = site.path("audit");
    let audit = AuditLog::open(&site.config, directory, &site.metrics).unwrap();
    site.start(|builder| builder.audit(audit)).await
}

fn client(address: &str) -> reqwest::ClientBuilder {
    let address: IpAddr = address.parse().unwrap();
    Client::builder().no_proxy().local_address(address)
}

/// Sends a request that is refused for want of a token, and returns the address that the audit log
/// has for it.
async fn logged_address(
    test_server: &TestServer,
    client: &Client,
    headers: &[(&str, &str)],
) -> String {
    let mut request = client.get(format!("{}/v1/tokens", test_server.base));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    assert_eq!(request.send().await.unwrap().status(), 401);
    let audit: serde_json::Value = test_server.get("/v1/audit?limit=1").await.json().await.unwrap();
    audit["items"][0]["address"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_trusted_proxy_names_the_client() {
    let test_server = house().await;
    let proxy = client(PROXY).build().unwrap();
    let header = "x-forwarded-for";
    for (value, expected) in [
        ("203.0.113.7", "203.0.113.7"),
        ("127.0.0.1, 203.0.113.8, 10.1.2.3", "203.0.113.8"),
        ("[2001:db8::9]:443", "2001:db8::9"),
        ("203.0.113.7, nonsense", PROXY),
        ("unknown", PROXY),
    ] {
        let found = logged_address(&test_server, &proxy, &[(header, value)]).await;
        assert_eq!(found, expected, "{value}");
    }
    let both = [(header, "198.51.100.1"), (header, "203.0.113.10")];
    assert_eq!(logged_address(&test_server, &proxy, &both).await, "203.0.113.10");
    assert_eq!(logged_address(&test_server, &proxy, &[]).await, PROXY);
    let other = [("forwarded", "for=198.51.100.1")];
    assert_eq!(logged_address(&test_server, &proxy, &other).await, PROXY);
    let log = test_server.stop().await;
    for client in ["203.0.113.7", "203.0.113.8", "2001:db8::9", "203.0.113.10"] {
        assert!(log.contains(&format!("client={client}")), "{log}");
    }
    assert!(!log.contains("198.51.100.1"), "{log}");
}

#[tokio::test]
async fn others_than_the_proxy_cannot_name_a_client() {
    let test_server = house().await;
    let stranger = client(STRANGER).build().unwrap();
    for value in ["203.0.113.7", "127.0.0.1", "10.1.2.3", "203.0.113.7, 127.0.0.1"] {
        for header in ["x-forwarded-for", "forwarded", "x-real-ip"] {
            let found = logged_address(&test_server, &stranger, &[(header, value)]).await;
            assert_eq!(found, STRANGER, "{header}: {value}");
        }
    }
    test_server.stop().await;
}

#[tokio::test]
async fn the_client_of_a_grpc_call_is_named_alike() {
    let test_server = house().await;
    let cases = [(PROXY, "203.0.113.7"), (STRANGER, STRANGER)];
    for (number, (address, expected)) in cases.into_iter().enumerate() {
        let client = client(address).http2_prior_knowledge().build().unwrap();
        let url = format!("{}/grpc.health.v1.Health/Check", test_server.base);
        let call = client
            .post(url)
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .header("x-forwarded-for", "203.0.113.7");
        // An empty message.
        let response = call.body(vec![0; 5]).send().await.unwrap();
        assert_eq!(response.status(), 200);
        response.bytes().await.unwrap();
        let line = format!("client={expected}");
        // The line is written when the server has seen the end of the call.
        let logged = eventually("the call is logged", async || {
            let log = test_server.log();
            let mut calls = log.lines().filter(|line| line.contains("/grpc.health.v1.Health/"));
            calls.nth(number).map(str::to_owned)
        })
        .await;
        assert!(logged.contains(&line), "{logged}");
    }
    test_server.stop().await;
}
