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
pub(super) fn build_client(
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
        accepts_any_certificate: config.accepts_any_certificate,
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
    let encoding = if config.accepts_gzip { "gzip" } else { "identity" };
    let prepare_request = |request: OutgoingRequest| {
        request
            .timeout(timeout)
            .header("accept", ACCEPT)
            .header("accept-encoding", encoding)
            .header("x-prometheus-scrape-timeout-seconds", timeout.as_secs_f64().to_string())
    };
    let authorization = Authorization::read(&config.credentials).await?;
    let describe_error = |error: OutgoingError| match error {
        OutgoingError::Timeout => format!("no answer within {timeout:?}"),
        error => error.to_string(),
    };
    let fetching =
        client.get_configured(url, prepare_request, |request| authorization.authorize(request));
    // Redirects count as one request.
    let response = tokio::time::timeout(timeout, fetching)
        .await
        .unwrap_or(Err(OutgoingError::Timeout))
        .map_err(describe_error)?;
    if !response.is_success() {
        let status = response.status_text();
        return Err(format!("server returned HTTP status {status}"));
    }
    let header = |name| response.header(name).map(str::to_ascii_lowercase);
    let format = match header("content-type") {
        Some(kind) if kind.starts_with("application/openmetrics-text") => TextFormat::OpenMetrics,
        _ => TextFormat::Prometheus,
    };
    let is_gzip = header("content-encoding").is_some_and(|encoding| encoding == "gzip");
    let bytes_max = config.limits.body_bytes;
    let body = response.read_body(bytes_max).await.map_err(describe_error)?;
    let text = if is_gzip {
        decompress(&body, bytes_max)?
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
            Credentials::Basic { username, password } => {
                Self::Basic { username: username.clone(), password: read_secret(password).await? }
            }
            Credentials::Header { kind, credentials } => {
                Self::Header(format!("{kind} {}", read_secret(credentials).await?))
            }
        })
    }

    fn authorize(&self, request: OutgoingRequest) -> OutgoingRequest {
        match self {
            Self::None => request,
            Self::Basic { username, password } => request.basic_auth(username, password),
            Self::Header(value) => request.header("authorization", value),
        }
    }
}

fn too_long_message(bytes_max: u64) -> String {
    format!("body size limit exceeded (limit: {bytes_max} bytes)")
}

/// Unpacks a body, which may be small and unfold to anything.
fn decompress(body: &[u8], bytes_max: u64) -> Result<String, String> {
    let mut text = Vec::new();
    MultiGzDecoder::new(body)
        .take(bytes_max + 1)
        .read_to_end(&mut text)
        .map_err(|error| format!("the body is not gzip: {error}"))?;
    if text.len() as u64 > bytes_max {
        return Err(too_long_message(bytes_max));
    }
    String::from_utf8(text).map_err(|_| "the body is not UTF-8".to_owned())
}

async fn read_secret(source: &SecretSource) -> Result<String, String> {
    let path = match source {
        SecretSource::Here(secret) => return Ok(secret.0.clone()),
        SecretSource::File(path) => path.clone(),
    };
    let result = tokio::task::spawn_blocking(move || files::read_secret(&path))
        .await
        .map_err(|error| error.to_string())?;
    result.map_err(|error| error.to_string())
}
