//! A server of its own for each test, with a manual clock and a log that is checked.
//!
//! The tests run on one thread each, so that the log captured is the test's own.

use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use egret_base::lifecycle::{Readiness, Service};
use egret_base::{ManualClock, SeededEntropy, Timestamp};
use egret_server::{Build, Deps, Metrics, Server, ServerConfig, TokenRequest, Tokens};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde_json::Value;
use tracing::subscriber::DefaultGuard;
use utoipa_axum::router::OpenApiRouter;

pub use egret_server::Builder;

/// A running server and its parts.
pub struct TestServer {
    pub server: Arc<Server>,
    pub tokens: Arc<Tokens>,
    pub clock: Arc<ManualClock>,
    pub client: reqwest::Client,
    /// The text of an admin token.
    pub admin: String,
    /// What the service `postgres` of this server says of itself.
    pub readiness: Arc<Mutex<Readiness>>,
    pub base: String,
    directory: tempfile::TempDir,
    log: Log,
    _capture: DefaultGuard,
}

/// What has been logged.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    pub fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    /// Collects what this thread logs until the guard is dropped.
    pub fn capture(&self) -> DefaultGuard {
        let log = self.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::DEBUG)
            .with_ansi(false)
            .with_writer(move || log.clone())
            .finish();
        tracing::subscriber::set_default(subscriber)
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The parts a server is built on, before it is.
pub struct TestServerSetup {
    pub config: ServerConfig,
    pub tokens: Arc<Tokens>,
    pub clock: Arc<ManualClock>,
    pub metrics: Arc<Metrics>,
    pub readiness: Arc<Mutex<Readiness>>,
    pub directory: tempfile::TempDir,
    pub log: Log,
    capture: DefaultGuard,
}

impl TestServerSetup {
    pub fn new() -> Self {
        let log = Log::default();
        let capture = log.capture();
        let directory = tempfile::tempdir().unwrap();
        let clock =
            Arc::new(ManualClock::starting_at(Timestamp::from_micros(1_800_000_000_000_000)));
        let entropy = Arc::new(SeededEntropy::new(3));
        let state = directory.path().join("state.db");
        let tokens =
            Tokens::open(&state, &["branches", "queue", "views"], clock.clone(), entropy).unwrap();
        Self {
            config: ServerConfig { port: 0, ..ServerConfig::default() },
            tokens: Arc::new(tokens),
            metrics: Arc::new(Metrics::new("0.0.0-test", Timestamp::from_micros(0))),
            clock,
            readiness: Arc::new(Mutex::new(Readiness::Ready)),
            directory,
            log,
            capture,
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn builder(&self) -> Builder {
        let readiness = self.readiness.clone();
        let deps = Deps {
            build: Build { version: "0.0.0-test", commit: "0123456789ab", profile: "dev" },
            clock: self.clock.clone(),
            entropy: Arc::new(SeededEntropy::new(4)),
            tokens: self.tokens.clone(),
            metrics: self.metrics.clone(),
            readiness: Arc::new(move || vec![("postgres", readiness.lock().unwrap().clone())]),
        };
        Server::builder(self.config.clone(), deps)
    }

    /// Builds and starts the server.
    pub async fn start(self, build: impl FnOnce(Builder) -> Builder) -> TestServer {
        let admin_file = self.path("admin.token");
        let admin = self.tokens.ensure_admin(&admin_file).unwrap().unwrap().token;
        let server = Arc::new(build(self.builder()).build().unwrap());
        server.start().await.unwrap();
        let scheme = if self.config.tls_key.is_some() { "https" } else { "http" };
        let base = format!("{scheme}://{}", server.local_address().unwrap());
        TestServer {
            server,
            tokens: self.tokens,
            clock: self.clock,
            client: client(),
            admin,
            readiness: self.readiness,
            base,
            directory: self.directory,
            log: self.log,
            _capture: self.capture,
        }
    }
}

/// A client that speaks HTTP/1.1 and follows no proxy.
pub fn client() -> reqwest::Client {
    client_builder().build().unwrap()
}

pub fn client_builder() -> reqwest::ClientBuilder {
    // The first test of the process installs the provider; for later ones this fails harmlessly.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy()
}

impl TestServer {
    /// A server with the default settings and no engine.
    pub async fn start() -> Self {
        TestServerSetup::new().start(|builder| builder).await
    }

    /// A server with changed settings and one engine's routes.
    pub async fn start_with(change: impl FnOnce(&mut ServerConfig), routes: OpenApiRouter) -> Self {
        let mut site = TestServerSetup::new();
        change(&mut site.config);
        site.start(|builder| builder.route(routes)).await
    }

    /// A request without a token.
    pub fn request_without_token(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.base))
    }

    /// A request with the admin token.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.request_without_token(method, path).bearer_auth(&self.admin)
    }

    pub async fn get(&self, path: &str) -> Response {
        self.request(Method::GET, path).send().await.unwrap()
    }

    /// The text of a new token with these scopes.
    pub fn token(&self, scopes: &[&str], ttl_ms: Option<u64>) -> String {
        let request = TokenRequest {
            name: "test".to_owned(),
            scopes: scopes.iter().map(|scope| (*scope).to_owned()).collect(),
            claims: Default::default(),
            tenant: None,
            ttl_ms,
        };
        self.tokens.create(&request).unwrap().token
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// What the server has logged so far.
    pub fn log(&self) -> String {
        self.log.text()
    }

    /// Stops the server and gives back its log, in which nothing may be a warning.
    pub async fn stop(self) -> String {
        self.server.stop().await;
        let log = self.log.text();
        for line in log.lines() {
            assert!(!line.contains(" WARN ") && !line.contains(" ERROR "), "unexpected: {line}");
        }
        log
    }
}

/// Asserts that a response is a problem with this status and code, and gives it back.
pub async fn problem(response: Response, status: u16, code: &str) -> Value {
    let id = response.headers()["x-request-id"].to_str().unwrap().to_owned();
    let content_type = response.headers()["content-type"].to_str().unwrap().to_owned();
    let found = response.status();
    let problem: Value = response.json().await.unwrap();
    assert_eq!(found, StatusCode::from_u16(status).unwrap(), "{problem}");
    assert_eq!(content_type, "application/problem+json");
    assert_eq!(problem["status"], status, "{problem}");
    assert_eq!(problem["code"], code, "{problem}");
    assert_eq!(problem["type"], format!("/errors#{code}"), "{problem}");
    assert_eq!(problem["request_id"], id, "{problem}");
    problem
}
