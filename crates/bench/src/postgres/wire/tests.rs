//! What is asked of a server that may not speak TLS.

use std::sync::Arc;

use tokio::net::TcpListener;

use super::*;

/// Opens a stream to a server that answers the question for TLS with this byte.
async fn check(mode: SslMode, answer: u8) -> Result<(), String> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = [0; 8];
        stream.read_exact(&mut request).await.unwrap();
        stream.write_all(&[answer]).await.unwrap();
        request
    });
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let tls = MakeRustlsConnect::new(config);
    let host = Host::Tcp("127.0.0.1".to_owned());
    let opened = open_stream(&host, port, Some(&tls), mode).await;
    assert_eq!(server.await.unwrap()[..4], 8_i32.to_be_bytes());
    opened.map(drop).map_err(|fault| fault.message)
}

#[tokio::test]
async fn tls_that_is_preferred_may_be_missing_and_tls_that_is_required_may_not() {
    check(SslMode::Prefer, b'N').await.unwrap();
    let refused = check(SslMode::Require, b'N').await.unwrap_err();
    assert_eq!(refused, "the server does not speak TLS");
    // An error message in place of an answer, e.g. of a server that is full.
    assert!(check(SslMode::Prefer, b'E').await.is_err());
}
