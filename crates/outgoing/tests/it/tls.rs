//! A receiver that shows a self-signed certificate of an authority (`CA:TRUE`), as `openssl req
//! -x509` makes it.

use std::sync::Arc;

use egret_outgoing::{ClientOptions, Destinations, OutgoingClient, OutgoingError};
use rcgen::{BasicConstraints, Certificate, CertificateParams, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::{LONG, get, ok};

/// Answers every request that comes through TLS; returns the port.
async fn serve(certificate: &Certificate, key: &KeyPair) -> u16 {
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (connection, _) = listener.accept().await.unwrap();
            // A client that does not trust the certificate ends the handshake.
            let Ok(mut connection) = acceptor.accept(connection).await else {
                continue;
            };
            let mut request = vec![0; 16 << 10];
            let _ = connection.read(&mut request).await;
            let _ = connection.write_all(ok("").as_bytes()).await;
            let _ = connection.shutdown().await;
        }
    });
    port
}

fn client(certificates: Option<&str>) -> Result<OutgoingClient, OutgoingError> {
    let options = ClientOptions {
        timeout: Some(LONG),
        certificates: certificates.map(|pem| pem.as_bytes().to_vec()),
        ..ClientOptions::default()
    };
    OutgoingClient::new(Destinations::default(), &options)
}

#[tokio::test]
async fn a_certificate_that_is_named_is_trusted_as_the_servers_own() {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let certificate = params.self_signed(&key).unwrap();
    let port = serve(&certificate, &key).await;
    let url = format!("https://localhost:{port}/");
    let trusting = client(Some(&certificate.pem())).unwrap();
    assert!(get(&trusting, &url).await.unwrap().is_success());
    let refused = get(&client(None).unwrap(), &url).await.err().unwrap();
    assert!(refused.to_string().contains("certificate"), "{refused}");
    let unusable = client(Some("no certificate")).err().unwrap();
    assert_eq!(unusable.to_string(), "it holds no certificate");
}
