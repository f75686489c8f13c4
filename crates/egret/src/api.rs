//! The HTTP client: one call each, the server's problem+json turned into a [`Failure`] with advice.

mod address;
mod listener;
mod problem;
mod refused_certificate;
mod wrong_scheme;

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use futures_util::{Stream, TryStreamExt};
use reqwest::{Method, RequestBuilder, Response, Url, header};
use serde_json::Value as Json;

use self::address::token_not_sent;
pub(crate) use self::address::without_credentials;
pub use self::address::{Address, Credentials};
use self::listener::{ListenerError, ListenerGuard};
use self::problem::Problem;
use crate::failure::{Exit, Failure};

/// Long enough for a server far away, short enough to notice one that is not there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The server as this program reaches it.
#[derive(Clone, Debug)]
pub struct Api {
    http: reqwest::Client,
    base: Url,
    token: Option<String>,
}

/// First segment of paths of Egret's own API.
const EGRET_PREFIX: &[&str] = &["v1"];

/// First segments of paths of Prometheus's API.
const PROMETHEUS_PREFIX: &[&str] = &["prometheus", "api", "v1"];

/// A call with headers and a body of its own.
#[derive(Debug)]
pub(crate) struct RawRequest {
    /// HTTP method, such as GET or POST.
    pub method: Method,
    /// Segments of the path.
    pub path: Vec<String>,
    /// Names and values of the query's parameters.
    pub query: Vec<(String, String)>,
    /// Names and values of the request's headers.
    pub headers: Vec<(header::HeaderName, String)>,
    /// Media type and bytes of the body, if there is one.
    pub body: Option<(&'static str, Vec<u8>)>,
}

impl RawRequest {
    /// A call with nothing but its path.
    pub(crate) fn new(method: Method, path: Vec<String>) -> Self {
        Self { method, path, query: Vec::new(), headers: Vec::new(), body: None }
    }
}

/// A response of the server, as it came.
#[derive(Debug)]
pub(crate) struct ApiResponse {
    /// Status code of the response.
    pub status: u16,
    /// The `ETag` of the response, if it has one.
    pub etag: Option<String>,
    /// Bytes of the body.
    pub body: Bytes,
}

impl ApiResponse {
    /// Its body as JSON.
    ///
    /// # Errors
    /// [`Failure`]: it is none.
    pub(crate) fn json(&self) -> Result<Json, Failure> {
        let json = serde_json::from_slice(&self.body).map_err(|error| {
            Failure::failed("not_egret", format!("the response is not JSON: {error}"))
        });
        check_problem(json?)
    }
}

impl Api {
    /// A client for the server at `address`.
    ///
    /// # Errors
    /// When the certificate cannot be read.
    pub fn new(address: Address, credentials: Credentials) -> anyhow::Result<Self> {
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("egret/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT)
            .tls_backend_preconfigured(address.tls()?);
        if address.is_loopback() {
            builder = builder.no_proxy();
        }
        if let Some(owner) = credentials.owner {
            builder = builder.connector_layer(ListenerGuard::new(&address.url, owner));
        }
        Ok(Self {
            http: builder.build().context("cannot set up the HTTP client")?,
            base: address.url,
            token: credentials.token,
        })
    }

    /// The server's address, without user and password.
    pub fn base(&self) -> Url {
        without_credentials(&self.base)
    }

    /// GET with query parameters.
    pub async fn get(&self, path: &[&str], query: &[(&str, &str)]) -> Result<Json, Failure> {
        self.call(Method::GET, path, query, None).await
    }

    /// POST with a JSON body.
    pub async fn post(&self, path: &[&str], body: Json) -> Result<Json, Failure> {
        self.call(Method::POST, path, &[], Some(body)).await
    }

    /// PUT with a JSON body.
    pub async fn put(&self, path: &[&str], body: Json) -> Result<Json, Failure> {
        self.call(Method::PUT, path, &[], Some(body)).await
    }

    /// PATCH with a JSON body.
    pub async fn patch(&self, path: &[&str], body: Json) -> Result<Json, Failure> {
        self.call(Method::PATCH, path, &[], Some(body)).await
    }

    /// DELETE with query parameters.
    pub async fn delete(&self, path: &[&str], query: &[(&str, &str)]) -> Result<Json, Failure> {
        self.call(Method::DELETE, path, query, None).await
    }

    /// POST with a body that is JSON already. The answer comes as it is: what passes through a
    /// [`Json`] loses digits of long numbers.
    pub(crate) async fn post_text(&self, path: &[&str], body: String) -> Result<Bytes, Failure> {
        let response = self.send(Method::POST, path, &[], Some(body.into()));
        self.read_body(response.await?).await
    }

    /// PUT with a body that is JSON already.
    pub async fn put_text(&self, path: &[&str], body: String) -> Result<Json, Failure> {
        let response = self.send(Method::PUT, path, &[], Some(body.into()));
        self.parse_json(&self.read_body(response.await?).await?)
    }

    /// GET with query parameters; the answer as it came.
    pub(crate) async fn get_text(
        &self,
        path: &[&str],
        query: &[(&str, &str)],
    ) -> Result<Bytes, Failure> {
        let response = self.send(Method::GET, path, query, None);
        self.read_body(response.await?).await
    }

    /// GET of an answer that comes bit by bit.
    pub async fn stream(
        &self,
        path: &[&str],
        query: &[(&str, &str)],
    ) -> Result<impl Stream<Item = Result<Bytes, Failure>> + '_, Failure> {
        let response = self.send(Method::GET, path, query, None).await?;
        let bytes = response.bytes_stream();
        Ok(bytes.map_err(|error| self.connection_failure(&error)))
    }

    /// GET from Prometheus's API, with query parameters.
    pub(crate) async fn get_prometheus(
        &self,
        path: &[&str],
        query: &[(&str, &str)],
    ) -> Result<Json, Failure> {
        let url = self.build_url(PROMETHEUS_PREFIX, path, query)?;
        let response = self.execute(self.http.get(url)).await?;
        self.parse_json(&self.read_body(response).await?)
    }

    /// Has Prometheus's API read its files again.
    ///
    /// # Errors
    /// [`Failure`] when the server cannot be reached, or something is wrong with a file.
    pub(crate) async fn reload_prometheus(&self) -> Result<(), Failure> {
        let url = self.build_url(&["prometheus", "-"], &["reload"], &[])?;
        let response = self.execute(self.http.post(url)).await?;
        self.read_body(response).await.map(drop)
    }

    /// Asks Prometheus's API with parameters that may be long: they go as a form.
    pub(crate) async fn post_prometheus_form(
        &self,
        path: &[&str],
        form: &[(&str, &str)],
    ) -> Result<Json, Failure> {
        let url = self.build_url(PROMETHEUS_PREFIX, path, &[])?;
        // A form is encoded as a query is.
        let encoded = self.build_url(PROMETHEUS_PREFIX, path, form)?;
        let body = encoded.query().unwrap_or_default().to_owned();
        let kind = "application/x-www-form-urlencoded";
        let request = self.http.post(url).header(header::CONTENT_TYPE, kind);
        let response = self.execute(request.body(body)).await?;
        self.parse_json(&self.read_body(response).await?)
    }

    /// POST with a body that is sent bit by bit, in gzip perhaps.
    pub async fn upload(
        &self,
        path: &[&str],
        query: &[(&str, &str)],
        is_gzip: bool,
        body: impl Stream<Item = std::io::Result<Bytes>> + Send + 'static,
    ) -> Result<Json, Failure> {
        let mut request = self.http.post(self.build_url(EGRET_PREFIX, path, query)?);
        if is_gzip {
            request = request.header(header::CONTENT_ENCODING, "gzip");
        }
        let request = request.body(reqwest::Body::wrap_stream(body));
        let response = self.execute(request).await?;
        self.parse_json(&self.read_body(response).await?)
    }

    /// A call with query parameters and perhaps a JSON body.
    pub async fn call(
        &self,
        method: Method,
        path: &[&str],
        query: &[(&str, &str)],
        body: Option<Json>,
    ) -> Result<Json, Failure> {
        let body = body.map(|body| body.to_string().into());
        let response = self.send(method, path, query, body).await?;
        self.parse_json(&self.read_body(response).await?)
    }

    /// A call with headers and a body of its own.
    pub(crate) async fn send_raw(&self, raw: RawRequest) -> Result<ApiResponse, Failure> {
        let path: Vec<&str> = raw.path.iter().map(String::as_str).collect();
        let query = raw.query.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let url = self.build_url(EGRET_PREFIX, &path, &query.collect::<Vec<_>>())?;
        let mut request = self.http.request(raw.method, url);
        for (name, value) in raw.headers {
            request = request.header(name, value);
        }
        if let Some((media_type, body)) = raw.body {
            request = request.header(header::CONTENT_TYPE, media_type).body(body);
        }
        let response = self.execute(request).await?;
        let etag = response.headers().get(header::ETAG);
        Ok(ApiResponse {
            status: response.status().as_u16(),
            etag: etag.and_then(|etag| etag.to_str().ok()).map(str::to_owned),
            body: self.read_body(response).await?,
        })
    }

    async fn send(
        &self,
        method: Method,
        path: &[&str],
        query: &[(&str, &str)],
        body: Option<Bytes>,
    ) -> Result<Response, Failure> {
        let url = self.build_url(EGRET_PREFIX, path, query)?;
        let mut request = self.http.request(method, url);
        if let Some(body) = body {
            request = request.header(header::CONTENT_TYPE, "application/json").body(body);
        }
        self.execute(request).await
    }

    async fn execute(&self, mut request: RequestBuilder) -> Result<Response, Failure> {
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        let response = request.send().await.map_err(|error| self.connection_failure(&error))?;
        if response.status().is_success() {
            Ok(response)
        } else {
            Err(self.failure_from_response(response).await)
        }
    }

    async fn read_body(&self, response: Response) -> Result<Bytes, Failure> {
        let bytes = response.bytes().await;
        bytes.map_err(|error| self.connection_failure(&error))
    }

    fn parse_json(&self, bytes: &[u8]) -> Result<Json, Failure> {
        match bytes {
            [] => Ok(Json::Null),
            bytes => {
                check_problem(serde_json::from_slice(bytes).map_err(|_| self.not_egret_failure())?)
            }
        }
    }

    /// Each segment is escaped: a name with a slash stays one segment.
    fn build_url(
        &self,
        api: &[&str],
        path: &[&str],
        query: &[(&str, &str)],
    ) -> Result<Url, Failure> {
        let mut url = self.base.clone();
        url.path_segments_mut()
            .map_err(|()| Failure::usage(format!("`{}` is not an http address", self.base())))?
            .pop_if_empty()
            .extend(api)
            .extend(path);
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        Ok(url)
    }

    fn connection_failure(&self, error: &reqwest::Error) -> Failure {
        let chain =
            || std::iter::successors(Some(error as &dyn std::error::Error), |error| error.source());
        if let Some(error) = chain().find_map(|error| error.downcast_ref::<ListenerError>()) {
            return token_not_sent(&self.base, error);
        }
        let reason = chain().last().map_or_else(String::new, ToString::to_string);
        let diagnosis = refused_certificate::describe(error)
            .map(|message| ("server_certificate_refused", message))
            .or_else(|| {
                let message = wrong_scheme::describe(error, &self.base)?;
                Some(("server_scheme_wrong", message))
            });
        let (code, message) = match diagnosis {
            Some(refused) => refused,
            None if error.is_connect() => {
                ("server_unreachable", "server not running: start it with `egret serve`")
            }
            None => ("server_unreachable", "the server's response was truncated"),
        };
        Failure {
            exit: Exit::Unreachable,
            retryable: diagnosis.is_none(),
            ..Failure::failed(code, message)
        }
        .with_hint(format!("tried {}: {reason}", self.base()))
    }

    fn not_egret_failure(&self) -> Failure {
        Failure::failed("not_egret", format!("the server at {} is not Egret", self.base()))
            .with_hint("check --url, EGRET_URL and server.port")
    }

    async fn failure_from_response(&self, response: Response) -> Failure {
        let status = response.status();
        let retry_after = response
            .headers()
            .get(header::RETRY_AFTER)
            .and_then(|value| value.to_str().ok())
            .map(str::to_owned);
        let body = match self.read_body(response).await {
            Ok(body) => body,
            Err(failure) => return failure,
        };
        let Ok(problem) = serde_json::from_slice::<Problem>(&body) else {
            return self.not_egret_failure();
        };
        let details = problem.detail_lines();
        let lacks_scope = problem.lacks_scope();
        let code = problem.code.or(problem.error_type);
        let message = problem
            .detail
            .or(problem.error)
            .or(problem.title)
            .unwrap_or_else(|| format!("the server responded with status {status}"));
        let hint = match status.as_u16() {
            401 if self.token.is_none() => Some(
                "no token was found: set EGRET_TOKEN or give --token-file; the first start of \
                 the server writes one to admin.token in the data directory"
                    .to_owned(),
            ),
            401 => Some(
                "the token is unknown, revoked or expired: `egret token list` lists the valid ones"
                    .to_owned(),
            ),
            403 if lacks_scope => Some(
                "use a token with that scope: `egret token create NAME --scope …` creates one"
                    .to_owned(),
            ),
            _ if details.is_some() => details,
            429 | 503 => retry_after.map(|seconds| format!("try again in {seconds} s")),
            _ => None,
        };
        Failure {
            hint,
            retryable: matches!(status.as_u16(), 429 | 502..=504),
            request_id: problem.request_id,
            position: problem.position,
            ..Failure::failed(code.as_deref().unwrap_or("failed"), message)
        }
    }
}

/// An answer; or the failure that it tells at its end, where it had begun before that was known.
fn check_problem(json: Json) -> Result<Json, Failure> {
    let is_problem = |kind: &str| kind.starts_with("/errors#");
    if !json["type"].as_str().is_some_and(is_problem) || !json["code"].is_string() {
        return Ok(json);
    }
    let retryable = json["retryable"] == true;
    let problem: Problem = serde_json::from_value(json).unwrap_or_default();
    let hint = problem.detail_lines();
    let message = problem.detail.or(problem.title).unwrap_or_default();
    let code = problem.code.unwrap_or_default();
    Err(Failure {
        hint,
        retryable,
        request_id: problem.request_id,
        ..Failure::failed(&code, message)
    })
}

/// A token as a file holds it: one line.
///
/// # Errors
/// When the file cannot be read or is empty.
pub fn read_token(path: &Path, opened: std::io::Result<File>) -> Result<String, Failure> {
    let text = opened
        .and_then(std::io::read_to_string)
        .map_err(|error| Failure::usage(format!("token file {}: {error}", path.display())))?;
    match text.trim() {
        "" => Err(Failure::usage(format!("token file {} is empty", path.display()))),
        token => Ok(token.to_owned()),
    }
}
