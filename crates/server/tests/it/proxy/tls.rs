//! Encrypted connections, asked for or at once.

use std::sync::Arc;

use egret_server::proxy::ProxyConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::proxy::running_proxy::{RunningProxy, expect_failure, expect_success};

fn server_config() -> Arc<rustls::ServerConfig> {
    let names = vec!["localhost".to_owned()];
    let certified = rcgen::generate_simple_self_signed(names).unwrap();
    let key = PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], PrivateKeyDer::Pkcs8(key))
        .unwrap();
    Arc::new(config)
}

async fn open() -> RunningProxy {
    RunningProxy::with(ProxyConfig::default(), Some(server_config())).await
}

#[tokio::test]
async fn psql_encrypts_when_asked_to() {
    let proxy = open().await;
    for mode in ["require", "prefer"] {
        let conninfo = proxy.connection_string(&format!("sslmode={mode}"));
        let input = "\\conninfo\nselect length(repeat('x', 5000000));";
        let output = expect_success(proxy.psql(&conninfo, &[], input).await);
        assert!(output.contains("SSL"), "{output}");
        assert!(output.contains("5000000"), "{output}");
    }
    let output = proxy.psql(&proxy.connection_string(""), &["--command", "select 1"], "").await;
    assert_eq!(expect_success(output), "1\n", "encryption is offered, not demanded");
    proxy.close().await;
}

#[tokio::test]
async fn without_a_certificate_psql_is_told() {
    let proxy = RunningProxy::open().await;
    let output = proxy.psql(&proxy.connection_string("sslmode=require"), &[], "select 1").await;
    let complaint = expect_failure(output);
    assert!(complaint.contains("server does not support SSL"), "{complaint}");
    proxy.close().await;
}

#[tokio::test]
async fn errors_before_authentication_are_encrypted_too() {
    let proxy = open().await;
    let conninfo = proxy.connection_string("sslmode=require dbname=app@pr-43");
    let complaint = expect_failure(proxy.psql(&conninfo, &[], "select 1").await);
    assert!(complaint.contains("password authentication failed"), "{complaint}");
    proxy.close().await;
}

#[tokio::test]
async fn psycopg_encrypts_copies_and_cancels() {
    let proxy = open().await;
    let program = include_str!("scripts/psycopg.py");
    let output = proxy.python(&proxy.connection_string("sslmode=require"), program).await;
    assert!(expect_success(output).ends_with("cancel\nrefusals\nversion\n"));
    proxy.close().await;
}

#[tokio::test]
async fn encryption_may_come_unasked() {
    let proxy = open().await;
    let program = "
import os, psycopg
# Only a libpq of 17 or newer knows how.
if psycopg.pq.version() >= 170000:
    with psycopg.connect(os.environ['CONNINFO'] + ' sslmode=require sslnegotiation=direct') as s:
        assert s.pgconn.ssl_in_use
        assert s.execute('select 1').fetchone() == (1,)
";
    expect_success(proxy.python(&proxy.connection_string(""), program).await);
    proxy.close().await;
}

#[tokio::test]
async fn a_broken_handshake_is_counted_and_forgotten() {
    let proxy = open().await;
    let mut raw = crate::proxy::raw::Raw::connect(&proxy).await;
    raw.send(&[0, 0, 0, 8, 4, 0xD2, 0x16, 0x2F]).await;
    // Sent in the clear right behind the request: it must not be taken for part of the session.
    raw.startup(&[("user", "egret_branch")]).await;
    let rest = raw.read_to_end().await;
    assert_eq!(rest.first(), Some(&b'S'));
    assert!(!rest.contains(&b'R'), "no authentication outside of the encryption");
    let refused = "egret_proxy_connections_refused_total{cause=\"tls\"}";
    assert_eq!(proxy.metric(refused), 1.0);
    proxy.close().await;
}
