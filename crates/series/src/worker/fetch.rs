//! What a target shows, by HTTP: asked for with the credentials of its job, unpacked, within its
//! limits.

use std::io::Read;
use std::time::Duration;

use egret_metrics_wire::exposition::TextFormat;
use egret_outgoing::{ClientOptions, Destinations, OutgoingClient, OutgoingError, OutgoingRequest};
use flate2::read::MultiGzDecoder;

use crate::core::scrape::{Credentials, ScrapeConfig, SecretSource};
use crate::store::files;

/// OpenMetrics first, then the older text.
const ACCEPT: &str = "application/openmetrics-text;version=1.0.0;q=0.6,\
    application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=0.0.4;q=0.4,*/*;q=0.2";

/// A body that was fetched.
pub(super) struct FetchedBody {
    pub text: String,
    pub format: TextFormat,
}

/// The client of a job. Its targets are the operator's; `destinations` says where they may redirect
/// to.
pub(super) fn client(
    config: &ScrapeConfig,
    destinations: &Destinations,
) -> Result<OutgoingClient, String> {
    let certificates = match &config.ca_file {
        Some(path) => Some(files::read_secret(path).map_err(|error| error.to_string())?),
        None => None,
    };
    let options = ClientOptions {
        timeout: None,
        certificates: certificates.map(String::into_bytes),
        accepts_any_certificate: config.trusts_anybody,
        follows_redirects: config.follows_redirects,
    };
    OutgoingClient::new(destinations.clone(), &options).map_err(|error| error.to_string())
}

/// Fetches what a target shows.
///
/// # Errors
/// Why not, for people.
pub(super) async fn fetch(
    client: &OutgoingClient,
    config: &ScrapeConfig,
    url: &str,
    timeout: Duration,
) -> Result<FetchedBody, String> {
    let encoding = if config.is_compressed {
        "gzip"
    } else {
        "identity"
    };
    let prepare = |request: OutgoingRequest| {
        request
            .timeout(timeout)
            .header("accept", ACCEPT)
            .header("accept-encoding", encoding)
            .header(
                "x-prometheus-scrape-timeout-seconds",
                timeout.as_secs_f64().to_string(),
            )
    };
    let authorization = Authorization::read(&config.credentials).await?;
    let failed = |error: OutgoingError| match error {
        OutgoingError::Timeout => format!("no answer within {timeout:?}"),
        error => error.to_string(),
    };
    let fetched = client.get_named(url, prepare, |request| authorization.add(request));
    // Redirects count as one request.
    let answer = tokio::time::timeout(timeout, fetched)
        .await
        .unwrap_or(Err(OutgoingError::Timeout))
        .map_err(failed)?;
    if !answer.is_success() {
        let status = answer.status_text();
        return Err(format!("server returned HTTP status {status}"));
    }
    let header = |name| answer.header(name).map(str::to_ascii_lowercase);
    let format = match header("content-type") {
        Some(kind) if kind.starts_with("application/openmetrics-text") => TextFormat::OpenMetrics,
        _ => TextFormat::Prometheus,
    };
    let is_packed = header("content-encoding").is_some_and(|encoding| encoding == "gzip");
    let most = config.limits.body_bytes;
    let body = answer.read(most).await.map_err(failed)?;
    let text = if is_packed {
        unpack(&body, most)?
    } else {
        String::from_utf8(body).map_err(|_| "the body is not UTF-8".to_owned())?
    };
    Ok(FetchedBody { text, format })
}

/// The credentials of a job, read from their files.
enum Authorization {
    None,
    Basic { username: String, password: String },
    Header(String),
}

impl Authorization {
    async fn read(credentials: &Credentials) -> Result<Self, String> {
        Ok(match credentials {
            Credentials::None => Self::None,
            Credentials::Basic { username, password } => Self::Basic {
                username: username.clone(),
                password: secret(password).await?,
            },
            Credentials::Header { kind, credentials } => {
                Self::Header(format!("{kind} {}", secret(credentials).await?))
            }
        })
    }

    fn add(&self, request: OutgoingRequest) -> OutgoingRequest {
        match self {
            Self::None => request,
            Self::Basic { username, password } => request.basic_auth(username, password),
            Self::Header(value) => request.header("authorization", value),
        }
    }
}

fn too_long(most: u64) -> String {
    format!("body size limit exceeded (limit: {most} bytes)")
}

/// Unpacks a body, which may be small and unfold to anything.
fn unpack(body: &[u8], most: u64) -> Result<String, String> {
    let mut text = Vec::new();
    MultiGzDecoder::new(body)
        .take(most + 1)
        .read_to_end(&mut text)
        .map_err(|error| format!("the body is not gzip: {error}"))?;
    if text.len() as u64 > most {
        return Err(too_long(most));
    }
    String::from_utf8(text).map_err(|_| "the body is not UTF-8".to_owned())
}

async fn secret(held: &SecretSource) -> Result<String, String> {
    let path = match held {
        SecretSource::Here(secret) => return Ok(secret.0.clone()),
        SecretSource::File(path) => path.clone(),
    };
    let read = tokio::task::spawn_blocking(move || files::read_secret(&path))
        .await
        .map_err(|error| error.to_string())?;
    read.map_err(|error| error.to_string())
}
