//! Clients that send what no client should: each gets a clear error, the proxy goes on.

use bytes::BytesMut;
use egret_base::settings::{ByteSize, ConfigDuration};
use egret_base::{Entropy, SeededEntropy};
use egret_server::proxy::ProxyConfig;
use postgres_protocol::message::frontend;
use tokio::io::AsyncWriteExt;

use crate::proxy::raw::Raw;
use crate::proxy::running_proxy::{PASSWORD, ROLE, RunningProxy};

/// What the proxy answers to some bytes.
async fn response_to(proxy: &RunningProxy, bytes: &[u8]) -> String {
    let mut raw = Raw::connect(proxy).await;
    raw.send(bytes).await;
    raw.error().await
}

#[tokio::test]
async fn packets_that_are_none_get_a_clear_error() {
    let door = RunningProxy::open().await;
    for (bytes, expected) in [
        (
            &b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..],
            "08P01 startup packet of 1195725856 bytes: limit proxy.startup_bytes_max is 10000 bytes",
        ),
        (b"\0\0\0\0", "08P01 invalid length of startup packet"),
        (b"\0\0\0\x06\0\0", "08P01 invalid length of startup packet"),
        (b"\0\0\0\x09\0\x02\0\0\0", "0A000 unsupported frontend protocol 2.0"),
        (b"\0\0\0\x09\0\x04\0\0\0", "0A000 unsupported frontend protocol 4.0"),
        (b"\0\0\0\x0d\0\x03\0\0user\0", "08P01 invalid startup packet layout"),
        (b"\0\0\0\x09\0\x03\0\0\0", "28000 no PostgreSQL user name"),
        (b"\0\0\0\x0a\x04\xd2\x16\x2e\0\0", "08P01 invalid length of cancel request packet"),
    ] {
        let answer = response_to(&door, bytes).await;
        assert!(answer.starts_with(expected), "{answer}");
    }
    door.connect().await;
    door.close().await;
}

#[tokio::test]
async fn encryption_is_asked_for_only_once() {
    let proxy = RunningProxy::open().await;
    let ssl = [0, 0, 0, 8, 4, 0xD2, 0x16, 0x2F];
    let mut raw = Raw::connect(&proxy).await;
    raw.send(&ssl).await;
    assert_eq!(read_byte(&mut raw).await, b'N');
    raw.send(&ssl).await;
    assert_eq!(raw.error().await, "08P01 encryption was asked for twice");
    let gss = [0, 0, 0, 8, 4, 0xD2, 0x16, 0x30];
    let mut raw = Raw::connect(&proxy).await;
    for packet in [gss, ssl] {
        raw.send(&packet).await;
        assert_eq!(read_byte(&mut raw).await, b'N');
    }
    raw.authenticate(&proxy).await;
    raw.await_ready().await;
    drop(raw);
    proxy.await_guards(0).await;
    proxy.close().await;
}

async fn read_byte(raw: &mut Raw) -> u8 {
    tokio::io::AsyncReadExt::read_u8(&mut raw.stream).await.unwrap()
}

#[tokio::test]
async fn a_startup_packet_has_a_named_limit() {
    let config = ProxyConfig { startup_bytes_max: ByteSize(300), ..ProxyConfig::default() };
    let door = RunningProxy::with(config, None).await;
    let mut raw = Raw::connect(&door).await;
    let (database, long) = (door.database(), "x".repeat(1_000_000));
    raw.startup(&[("user", ROLE), ("database", &database), ("options", &long)]).await;
    let error = raw.error().await;
    assert!(error.contains("limit proxy.startup_bytes_max is 300 bytes"), "{error}");
    let refused = "egret_proxy_connections_refused_total{cause=\"startup_too_large\"}";
    assert_eq!(door.metric(refused), 1.0);
    door.connect().await;
    door.close().await;
}

#[tokio::test]
async fn answers_to_the_challenge_that_are_none_get_a_clear_error() {
    let proxy = RunningProxy::open().await;
    let sasl = |mechanism: &str, data: &[u8]| {
        let mut message = BytesMut::new();
        frontend::sasl_initial_response(mechanism, data, &mut message).unwrap();
        message.to_vec()
    };
    let mut password = BytesMut::new();
    frontend::password_message(PASSWORD.as_bytes(), &mut password).unwrap();
    for (bytes, expected) in [
        (password.to_vec(), "08P01 "),
        (b"Q\0\0\0\x0dselect 1\0".to_vec(), "08P01 expected SASL response, got message type 81"),
        (b"p\0\0\0\0".to_vec(), "08P01 invalid length of SASL response"),
        (b"p\x7f\xff\xff\xff".to_vec(), "08P01 invalid length of SASL response"),
        (sasl("SCRAM-SHA-1", b"n,,n=,r=x"), "08P01 client selected an invalid SASL"),
        (
            sasl("SCRAM-SHA-256", b"p=tls-unique,,n=,r=x"),
            "08P01 client requires SCRAM channel binding",
        ),
        (sasl("SCRAM-SHA-256", b"\xff"), "08P01 malformed SCRAM message"),
    ] {
        let mut raw = Raw::connect(&proxy).await;
        let database = proxy.database();
        raw.startup(&[("user", ROLE), ("database", &database)]).await;
        raw.send(&bytes).await;
        let error = raw.error().await;
        assert!(error.starts_with(expected), "{error}");
    }
    assert_eq!(*proxy.branches.attaching.borrow(), 0);
    proxy.close().await;
}

#[tokio::test]
async fn clients_that_do_not_authenticate_in_time_are_disconnected() {
    let config =
        ProxyConfig { authentication_timeout: ConfigDuration::ms(50), ..ProxyConfig::default() };
    let proxy = RunningProxy::with(config, None).await;
    let mut silent = Raw::connect(&proxy).await;
    let mut hesitant = Raw::connect(&proxy).await;
    let database = proxy.database();
    hesitant.startup(&[("user", ROLE), ("database", &database)]).await;
    let expected = "57014 canceling authentication due to timeout";
    assert_eq!(hesitant.error().await, expected);
    assert_eq!(silent.read_to_end().await, b"");
    let refused = "egret_proxy_connections_refused_total{cause=\"authentication_timeout\"}";
    assert_eq!(proxy.metric(refused), 2.0);
    proxy.close().await;
}

#[tokio::test]
async fn random_bytes_leave_nothing_behind() {
    let proxy = RunningProxy::open().await;
    let entropy = SeededEntropy::new(42);
    for round in 0..200_usize {
        let mut bytes = vec![0; round * 7 % 300 + 1];
        entropy.fill(&mut bytes);
        // Half of them with a plausible length and version, to get further.
        if round % 2 == 0 && bytes.len() >= 8 {
            let length = u32::try_from(bytes.len()).unwrap().to_be_bytes();
            bytes[..4].copy_from_slice(&length);
            bytes[4..8].copy_from_slice(&[0, 3, 0, 0]);
        }
        let mut raw = Raw::connect(&proxy).await;
        raw.send(&bytes).await;
        let _ = raw.stream.shutdown().await;
        raw.read_to_end().await;
    }
    assert_eq!(proxy.metric("egret_proxy_sessions_total"), 0.0);
    proxy.connect().await;
    proxy.close().await;
}
