//! What a target shows, by HTTP: asked for with the credentials of its job, unpacked, within its limits.

use std::io::Read;
use std::time::Duration;

use flate2::read::MultiGzDecoder;
use reqwest::header::{CONTENT_ENCODING, CONTENT_TYPE};

use crate::core::scrape::{Credentials, Held, ScrapeConfig};
use crate::store::files;
use crate::wire::exposition::TextFormat;

/// OpenMetrics first, then the older text.
const ACCEPT: &str = "application/openmetrics-text;version=1.0.0;q=0.6,\
    application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=0.0.4;q=0.4,*/*;q=0.2";

/// A body that was fetched.
pub(super) struct Fetched {
    pub text: String,
    pub format: TextFormat,
}

/// What all HTTP clients here have in common.
pub(super) fn client_builder() -> reqwest::ClientBuilder {
    // Another part of the program may have installed the same provider before.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .no_proxy()
        .user_agent(concat!("Egret/", env!("CARGO_PKG_VERSION")))
}

/// The client of a job.
pub(super) fn client(config: &ScrapeConfig) -> Result<reqwest::Client, String> {
    let mut builder = client_builder().redirect(match config.follows_redirects {
        true => reqwest::redirect::Policy::limited(10),
        false => reqwest::redirect::Policy::none(),
    });
    if config.trusts_anybody {
        builder = builder.tls_danger_accept_invalid_certs(true);
    }
    if let Some(path) = &config.ca_file {
        let pem = files::read_secret(path).map_err(|error| error.to_string())?;
        let certificates = reqwest::Certificate::from_pem_bundle(pem.as_bytes());
        builder = builder.tls_certs_merge(certificates.map_err(|error| error.to_string())?);
    }
    builder.build().map_err(|error| error.to_string())
}

/// Fetches what a target shows.
///
/// # Errors
/// Why not, for people.
pub(super) async fn fetch(
    client: &reqwest::Client,
    config: &ScrapeConfig,
    url: &str,
    timeout: Duration,
) -> Result<Fetched, String> {
    let mut request = client
        .get(url)
        .timeout(timeout)
        .header("accept", ACCEPT)
        .header(
            "accept-encoding",
            if config.is_compressed {
                "gzip"
            } else {
                "identity"
            },
        )
        .header(
            "x-prometheus-scrape-timeout-seconds",
            timeout.as_secs_f64().to_string(),
        );
    request = match &config.credentials {
        Credentials::None => request,
        Credentials::Basic { username, password } => {
            request.basic_auth(username, Some(secret(password).await?))
        }
        Credentials::Header { kind, credentials } => request.header(
            "authorization",
            format!("{kind} {}", secret(credentials).await?),
        ),
    };
    let said = |error: reqwest::Error| match error.is_timeout() {
        true => format!("no answer within {timeout:?}"),
        false => egret_base::error::chain(&error.without_url()),
    };
    let mut answer = request.send().await.map_err(said)?;
    let status = answer.status();
    if !status.is_success() {
        return Err(format!("server returned HTTP status {status}"));
    }
    let header = |name| {
        let value = answer.headers().get(name)?;
        value.to_str().ok().map(str::to_ascii_lowercase)
    };
    let format = match header(CONTENT_TYPE) {
        Some(kind) if kind.starts_with("application/openmetrics-text") => TextFormat::OpenMetrics,
        _ => TextFormat::Prometheus,
    };
    let is_packed = header(CONTENT_ENCODING).is_some_and(|encoding| encoding == "gzip");
    let most = config.limits.body_bytes;
    let mut body = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(said)? {
        if (body.len() + chunk.len()) as u64 > most {
            return Err(too_long(most));
        }
        body.extend_from_slice(&chunk);
    }
    let text = match is_packed {
        true => unpack(&body, most)?,
        false => String::from_utf8(body).map_err(|_| "the body is not UTF-8".to_owned())?,
    };
    Ok(Fetched { text, format })
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

async fn secret(held: &Held) -> Result<String, String> {
    let path = match held {
        Held::Here(secret) => return Ok(secret.0.clone()),
        Held::File(path) => path.clone(),
    };
    let read = tokio::task::spawn_blocking(move || files::read_secret(&path));
    let read = read.await.map_err(|error| error.to_string())?;
    read.map_err(|error| error.to_string())
}
