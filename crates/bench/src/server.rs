//! The Egret that is measured, through its HTTP door.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use reqwest::{Client, Method, RequestBuilder};
use rustls::ClientConfig;
use serde_json::Value;

use crate::refusal;

/// Long enough for a server far away, short enough to notice one that is not there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A running Egret and how it was found.
#[derive(Clone, Debug)]
pub struct ServerEndpoint {
    /// Its address, e.g. `http://127.0.0.1:7070`.
    pub url: String,
    /// Token for its API.
    pub token: Option<String>,
    /// TLS with it; `None`: as reqwest has it.
    pub tls: Option<ClientConfig>,
    /// Its data directory, where it is known to be on this machine.
    pub data_dir: Option<PathBuf>,
}

/// A client of one Egret. Clones share connections.
#[derive(Clone, Debug)]
pub struct Server {
    http: Client,
    endpoint: Arc<ServerEndpoint>,
    /// Its process, where that is on this machine.
    pid: Option<u32>,
}

impl Server {
    /// A client for the Egret behind `endpoint`, which need not answer yet.
    ///
    /// # Errors
    /// When the client cannot be set up.
    pub fn new(endpoint: ServerEndpoint) -> Result<Self> {
        // Fails only when a provider is installed already, which serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = Client::builder()
            .user_agent(concat!("egret-bench/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT);
        if endpoint.data_dir.is_some() {
            builder = builder.no_proxy();
        }
        if let Some(tls) = &endpoint.tls {
            builder = builder.tls_backend_preconfigured(tls.clone());
        }
        // The lock file holds the pid of the Egret that runs on that directory.
        let pid = endpoint.data_dir.as_ref().and_then(|data_dir| {
            let text = std::fs::read_to_string(data_dir.join("egret.lock")).ok()?;
            text.trim().parse().ok()
        });
        Ok(Self {
            http: builder.build().context("cannot set up the HTTP client")?,
            endpoint: Arc::new(endpoint),
            pid,
        })
    }

    /// Its process, where that is on this machine.
    pub fn pid(&self) -> Option<u32> {
        self.pid
    }

    /// Address and credentials of the server.
    pub fn endpoint(&self) -> &ServerEndpoint {
        &self.endpoint
    }

    /// A request with the token, for what the methods below do not do; `path` has no leading slash.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let url = format!("{}/{path}", self.endpoint.url.trim_end_matches('/'));
        let request = self.http.request(method, url);
        match &self.endpoint.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    /// GET of a JSON document.
    ///
    /// # Errors
    /// [`Refusal::Unreachable`](crate::Refusal), or what the server refused with.
    pub async fn get(&self, path: &str) -> Result<Value> {
        let text = self.send(self.request(Method::GET, path)).await?;
        serde_json::from_str(&text).with_context(|| format!("{path}: the response is not JSON"))
    }

    /// GET of a text.
    ///
    /// # Errors
    /// As [`Server::get`].
    pub async fn get_text(&self, path: &str) -> Result<String> {
        self.send(self.request(Method::GET, path)).await
    }

    /// POST of a JSON document; `Null` where the answer is empty.
    ///
    /// # Errors
    /// As [`Server::get`].
    pub async fn post(&self, path: &str, body: &Value) -> Result<Value> {
        let text = self.send(self.request(Method::POST, path).json(body)).await?;
        json_or_null(path, &text)
    }

    /// DELETE; `Null` where the answer is empty.
    ///
    /// # Errors
    /// As [`Server::get`].
    pub async fn delete(&self, path: &str) -> Result<Value> {
        let text = self.send(self.request(Method::DELETE, path)).await?;
        json_or_null(path, &text)
    }

    /// Sends a request and returns the body of its answer.
    ///
    /// # Errors
    /// As [`Server::get`].
    pub async fn send(&self, request: RequestBuilder) -> Result<String> {
        let response = request.send().await.map_err(|error| self.unreachable_error(&error))?;
        let status = response.status();
        let text = response.text().await.map_err(|error| self.unreachable_error(&error))?;
        if status.is_success() {
            return Ok(text);
        }
        let problem: Value = serde_json::from_str(&text).unwrap_or_default();
        let detail = problem["detail"].as_str().or(problem["title"].as_str());
        let code = problem["code"].as_str().unwrap_or("no code");
        bail!(
            "the server responded {} ({code}): {}",
            status.as_u16(),
            detail.unwrap_or("no reason given")
        )
    }

    /// The connection string of the superuser of its embedded server, without a database.
    ///
    /// # Errors
    /// When its data directory is not on this machine, its password cannot be read, or it has no
    /// embedded server.
    pub(crate) async fn superuser_url(&self) -> Result<String> {
        let Some(data_dir) = &self.endpoint.data_dir else {
            bail!(
                "preparing and checking this needs the superuser: run it on Egret's machine, as \
                 Egret's user, with its data directory"
            );
        };
        let path = data_dir.join("superuser.password");
        let password = std::fs::read_to_string(&path)
            .with_context(|| format!("read the superuser's password in {}", path.display()))?;
        let status = self.get("v1/status").await?;
        let port = status["postgres"]["port"]
            .as_u64()
            .context("the status of Egret contains no port of an embedded server")?;
        let password = password.trim();
        Ok(format!("postgres://egret:{password}@127.0.0.1:{port}"))
    }

    /// Fails if the server cannot be reached.
    ///
    /// # Errors
    /// [`Refusal::Unreachable`](crate::Refusal).
    pub(crate) async fn check_ready(&self) -> Result<()> {
        self.get_text("readyz").await.map(drop)
    }

    fn unreachable_error(&self, error: &reqwest::Error) -> anyhow::Error {
        let reason =
            std::iter::successors(Some(error as &dyn std::error::Error), |error| error.source())
                .last()
                .map_or_else(String::new, ToString::to_string);
        refusal::unreachable(format!(
            "no egret answers at {}: {reason}: start it with `egret serve`, or give --private",
            self.endpoint.url
        ))
    }
}

fn json_or_null(path: &str, text: &str) -> Result<Value> {
    if text.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_str(text).with_context(|| format!("{path}: the response is not JSON"))
}
