//! One user of branches: an HTTP connection of its own, and what it does in a burst.
//!
//! The client is as thin as it can be, since it shares the processors with what it measures.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Method, Request, header};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::server::Server;

/// A kept-alive connection to Egret's HTTP door.
pub(crate) struct HttpConnection {
    sender: SendRequest<Full<Bytes>>,
    host: String,
    authorization: String,
}

/// What the server says of its own time with a query.
#[derive(Deserialize)]
pub(crate) struct QueryTiming {
    /// In the server, in milliseconds.
    pub elapsed_ms: f64,
}

/// A problem of the server.
#[derive(Deserialize, Default)]
struct Problem {
    #[serde(default)]
    code: String,
    #[serde(default)]
    detail: String,
    sqlstate: Option<String>,
}

impl HttpConnection {
    /// Connects, and asks once, so that what follows finds the connection warm.
    ///
    /// # Errors
    /// When Egret cannot be reached by plain HTTP.
    pub(crate) async fn open(server: &Server) -> Result<Self> {
        let door = server.endpoint();
        let Some(host) = door.url.trim_end_matches('/').strip_prefix("http://") else {
            bail!("{}: bursts are sent by plain HTTP only", door.url);
        };
        let stream =
            TcpStream::connect(host).await.with_context(|| format!("connect to {host}"))?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        tokio::task::spawn_local(async move {
            // The sender of a request gets the error.
            let _ = connection.await;
        });
        let mut client = Self {
            sender,
            host: host.to_owned(),
            authorization: format!("Bearer {}", door.token.as_deref().unwrap_or_default()),
        };
        client.send(Method::GET, "/healthz", None).await?;
        Ok(client)
    }

    /// Sends a request and returns the body of its answer, or the cause of its failure.
    pub(crate) async fn send(
        &mut self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
    ) -> Result<Bytes> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, &self.host)
            .header(header::AUTHORIZATION, &self.authorization)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(body.map_or_else(Bytes::new, Bytes::from)))?;
        let response = self.sender.send_request(request).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        if status.is_success() {
            return Ok(body);
        }
        let problem: Problem = serde_json::from_slice(&body).unwrap_or_default();
        match problem.sqlstate {
            Some(sqlstate) => bail!("SQLSTATE {sqlstate}: {}", problem.detail),
            None => bail!("{} ({}): {}", status.as_u16(), problem.code, problem.detail),
        }
    }

    /// Makes a branch, and returns the answer's body.
    pub(crate) async fn create(&mut self, name: &str, options: &Value) -> Result<Bytes> {
        let mut body = json!({"name": name});
        if let (Some(body), Some(wishes)) = (body.as_object_mut(), options.as_object()) {
            body.extend(wishes.clone());
        }
        self.send(Method::POST, "/v1/branches", Some(serde_json::to_vec(&body)?)).await
    }

    /// Runs a statement on a branch.
    pub(crate) async fn query(
        &mut self,
        name: &str,
        database: &str,
        sql: &str,
        params: &[&str],
    ) -> Result<QueryTiming> {
        let body = json!({"sql": sql, "database": database, "params": params});
        let path = format!("/v1/branches/{name}/query");
        let answer = self.send(Method::POST, &path, Some(serde_json::to_vec(&body)?)).await?;
        serde_json::from_slice(&answer).context("the response to a query is not as documented")
    }

    /// Destroys a branch by name.
    pub(crate) async fn destroy(&mut self, name: &str) -> Result<()> {
        let path = format!("/v1/branches/{name}");
        self.send(Method::DELETE, &path, None).await.map(drop)
    }

    /// The connection string of a branch through the proxy.
    pub(crate) async fn connection_url(&mut self, name: &str, database: &str) -> Result<String> {
        let path = format!("/v1/branches/{name}/connection?database={database}");
        let answer = self.send(Method::GET, &path, None).await?;
        let answer: Value = serde_json::from_slice(&answer)?;
        let url = answer["url"].as_str().context("the connection has no url")?;
        Ok(url.to_owned())
    }
}

/// Times a step; its latency counts from when it began.
pub async fn timed<T>(work: impl Future<Output = Result<T>>) -> (Result<T>, Duration) {
    let begun = Instant::now();
    let result = work.await;
    (result, begun.elapsed())
}
