//! Certificates of clients: which ones get a TLS session, and that a token is needed all the same.

use std::path::Path;

use egret_server::{Certificates, ServerConfig};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use reqwest::{Certificate, Identity, StatusCode};

use crate::test_server::{TestServer, TestServerSetup, client_builder, problem};

/// An authority that signs certificates.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        Self(CertifiedIssuer::self_signed(params, key).unwrap())
    }

    /// A certificate for a name, and its key.
    fn sign(&self, name: &str) -> (String, String) {
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    fn identity(&self) -> Identity {
        let (certificate, key) = self.sign("client");
        Identity::from_pem(format!("{certificate}\n{key}").as_bytes()).unwrap()
    }
}

/// A server that asks its clients for certificates of an authority.
struct TlsTestServer {
    test_server: TestServer,
    config: ServerConfig,
    authority: Authority,
    certificates: Certificates,
}

impl TlsTestServer {
    async fn open(client_auth: &str) -> Self {
        let authority = Authority::new();
        let mut site = TestServerSetup::new();
        let (certificate, key) = authority.sign("127.0.0.1");
        let write = |name: &str, text: &str| {
            let path = site.path(name);
            std::fs::write(&path, text).unwrap();
            Some(path)
        };
        let config = ServerConfig {
            tls_certificate: write("cert.pem", &certificate),
            tls_key: write("key.pem", &key),
            tls_client_ca: write("clients.pem", &authority.0.pem()),
            tls_client_auth: client_auth.to_owned(),
            ..site.config.clone()
        };
        site.config = config.clone();
        let certificates = Certificates::open(&config).unwrap().unwrap();
        let shown = Some(certificates.clone());
        let test_server = site.start(|builder| builder.certificates(shown)).await;
        Self { test_server, config, authority, certificates }
    }

    fn client(&self, identity: Option<Identity>) -> reqwest::Client {
        let trusted = Certificate::from_pem(self.authority.0.pem().as_bytes()).unwrap();
        let builder = client_builder().tls_certs_merge([trusted]);
        let builder = identity.into_iter().fold(builder, reqwest::ClientBuilder::identity);
        builder.build().unwrap()
    }

    /// The status that a new connection is answered with, if any.
    async fn status(&self, identity: Option<Identity>) -> Option<StatusCode> {
        let request = self.client(identity).get(format!("{}/v1/tokens", self.test_server.base));
        let answer = request.bearer_auth(&self.test_server.admin).send().await;
        answer.ok().map(|response| response.status())
    }

    fn client_ca(&self) -> &Path {
        self.config.tls_client_ca.as_deref().unwrap()
    }
}

#[tokio::test]
async fn only_certificates_of_the_authority_open_a_session() {
    let walled = TlsTestServer::open("required").await;
    let stranger = Authority::new().identity();
    assert_eq!(walled.status(None).await, None);
    assert_eq!(walled.status(Some(stranger)).await, None);
    let known = walled.authority.identity();
    assert_eq!(walled.status(Some(known.clone())).await, Some(StatusCode::OK));
    // Public pages are behind the wall as well.
    let page = format!("{}/healthz", walled.test_server.base);
    assert!(walled.client(None).get(&page).send().await.is_err());
    // The certificate is no token.
    let url = format!("{}/v1/tokens", walled.test_server.base);
    let bare = walled.client(Some(known)).get(url).send().await.unwrap();
    problem(bare, 401, "token_missing").await;
    walled.test_server.stop().await;
}

#[tokio::test]
async fn an_optional_certificate_must_be_valid_where_it_is_shown() {
    let walled = TlsTestServer::open("optional").await;
    assert_eq!(walled.status(None).await, Some(StatusCode::OK));
    let known = walled.authority.identity();
    assert_eq!(walled.status(Some(known)).await, Some(StatusCode::OK));
    let stranger = Authority::new().identity();
    assert_eq!(walled.status(Some(stranger)).await, None);
    walled.test_server.stop().await;
}

/// A session that is resumed shows no certificate again, so a change of authorities forgets
/// sessions.
#[tokio::test]
async fn another_authority_holds_for_new_connections_at_once() {
    let walled = TlsTestServer::open("required").await;
    let next = Authority::new();
    let (known, later) = (walled.authority.identity(), next.identity());
    let url = format!("{}/v1/tokens", walled.test_server.base);
    // Without connections in reserve each request is a connection, which resumes a session where it
    // can.
    let trusted = Certificate::from_pem(walled.authority.0.pem().as_bytes()).unwrap();
    let builder = client_builder().pool_max_idle_per_host(0).identity(known);
    let client = builder.tls_certs_merge([trusted]).build().unwrap();
    let ask = || client.get(&url).bearer_auth(&walled.test_server.admin).send();
    for _ in 0..2 {
        assert_eq!(ask().await.unwrap().status(), StatusCode::OK);
    }
    let unchanged = walled.certificates.reload(&walled.config).unwrap();
    assert!(!unchanged.has_new_certificate && !unchanged.has_new_client_trust);
    std::fs::write(walled.client_ca(), next.0.pem()).unwrap();
    let changes = walled.certificates.reload(&walled.config).unwrap();
    assert!(changes.has_new_client_trust);
    assert!(ask().await.is_err());
    assert_eq!(walled.status(Some(later.clone())).await, Some(StatusCode::OK));
    // A file that cannot be used changes nothing.
    std::fs::write(walled.client_ca(), "no certificate").unwrap();
    let error = walled.certificates.reload(&walled.config).unwrap_err();
    assert!(error.to_string().starts_with("server.tls_client_ca "), "{error}");
    assert_eq!(walled.status(Some(later)).await, Some(StatusCode::OK));
    walled.test_server.stop().await;
}
