//! The client: requests, responses, and errors that never contain the URL.

use std::error::Error;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use egret_tls::{CertificateVerifier, TrustedCertificates};
use reqwest::header::LOCATION;
use reqwest::{Method, Response, Url, redirect};
use rustls::{ALL_VERSIONS, ClientConfig};

use crate::destinations::{Destinations, Permission, parse_url};
use crate::resolve::{GuardedResolver, NoneAllowed, OpenResolver};

/// How long making a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Redirects that one request may follow.
const REDIRECTS_MAX: u32 = 10;

/// Options of a client.
#[derive(Clone, Debug, Default)]
pub struct ClientOptions {
    /// How long a request may take, the body of the response included; `None`: each request sets
    /// it.
    pub timeout: Option<Duration>,
    /// Certificates (PEM) that are trusted beside those of the machine.
    pub certificates: Option<Vec<u8>>,
    /// Whether any certificate of the server is accepted.
    pub accepts_any_certificate: bool,
    /// Whether a redirect of what the operator's configuration names is followed.
    pub follows_redirects: bool,
}

/// Why a request was not sent or not answered. No error contains the URL, which may hold a secret.
#[derive(Debug, thiserror::Error)]
pub enum OutgoingError {
    /// The text is no valid URL for a request.
    #[error("{reason}")]
    Url {
        /// What is wrong with it.
        reason: String,
    },
    /// Requests to this destination are not allowed.
    #[error("{destination} is not a public address: add it to outgoing.allow to permit it")]
    Refused {
        /// The address or name.
        destination: String,
    },
    /// There was no answer in time.
    #[error("no answer in time")]
    Timeout,
    /// The response is longer than the caller allows.
    #[error("body size limit exceeded (limit: {bytes_max} bytes)")]
    TooLong {
        /// Largest accepted body, in bytes.
        bytes_max: u64,
    },
    /// The connection or the exchange failed.
    #[error("{reason}")]
    Failed {
        /// What failed, with its causes.
        reason: String,
    },
}

impl OutgoingError {
    fn from_reqwest(error: reqwest::Error) -> Self {
        let error = error.without_url();
        if error.is_timeout() {
            return Self::Timeout;
        }
        let mut source = Some(&error as &dyn std::error::Error);
        while let Some(cause) = source {
            if let Some(rejection) = cause.downcast_ref::<NoneAllowed>() {
                return Self::Refused { destination: rejection.name.clone() };
            }
            source = cause.source();
        }
        Self::Failed { reason: egret_base::error::chain(&error) }
    }
}

/// Sends requests. Cheap to clone.
#[derive(Clone)]
pub struct OutgoingClient {
    destinations: Destinations,
    guarded_client: reqwest::Client,
    open_client: reqwest::Client,
    follows_redirects: bool,
}

impl OutgoingClient {
    /// A client for these destinations.
    ///
    /// # Errors
    /// [`OutgoingError::Failed`]: the certificates cannot be read, or TLS is not usable.
    pub fn new(destinations: Destinations, options: &ClientOptions) -> Result<Self, OutgoingError> {
        // Another part of the program may have installed the same provider before.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let tls = if options.accepts_any_certificate {
            None
        } else {
            Some(tls_config(options.certificates.as_deref())?)
        };
        let builder = || client_builder(options, tls.clone());
        let guarded = builder().dns_resolver(Arc::new(GuardedResolver(destinations.clone())));
        let open = builder().dns_resolver(Arc::new(OpenResolver(destinations.clone())));
        Ok(Self {
            destinations,
            guarded_client: guarded.build().map_err(OutgoingError::from_reqwest)?,
            open_client: open.build().map_err(OutgoingError::from_reqwest)?,
            follows_redirects: options.follows_redirects,
        })
    }

    /// A POST to an address that a user of Egret names.
    ///
    /// # Errors
    /// [`OutgoingError::Url`], [`OutgoingError::Refused`].
    pub fn post(&self, url: &str) -> Result<OutgoingRequest, OutgoingError> {
        let url = parse_url(url)?;
        let client = match self.destinations.check_permission(&url)? {
            Permission::ByName => &self.open_client,
            Permission::ByAddress => &self.guarded_client,
        };
        Ok(OutgoingRequest::new(client, Method::POST, url))
    }

    /// A POST to an address that the operator's configuration names.
    ///
    /// # Errors
    /// [`OutgoingError::Url`].
    pub fn post_configured(&self, url: &str) -> Result<OutgoingRequest, OutgoingError> {
        Ok(OutgoingRequest::new(&self.open_client, Method::POST, parse_url(url)?))
    }

    /// A GET from `configured_url`, an address that the operator's configuration names, or from a
    /// URL that the service there names. A URL on another host or port is checked like an address
    /// that a user names. No redirect is followed.
    ///
    /// # Errors
    /// [`OutgoingError`].
    pub async fn get_linked(
        &self,
        configured_url: &str,
        url: &str,
        prepare: impl FnOnce(OutgoingRequest) -> OutgoingRequest,
    ) -> Result<Answer, OutgoingError> {
        let (named, url) = (parse_url(configured_url)?, parse_url(url)?);
        let client = self.client_for(&named, &url)?;
        prepare(OutgoingRequest::new(client, Method::GET, url)).send().await
    }

    /// The client for a URL that was reached from an address of the operator's configuration.
    fn client_for(
        &self,
        configured_url: &Url,
        url: &Url,
    ) -> Result<&reqwest::Client, OutgoingError> {
        if is_same_origin(configured_url, url) {
            return Ok(&self.open_client);
        }
        Ok(match self.destinations.check_permission(url)? {
            Permission::ByName => &self.open_client,
            Permission::ByAddress => &self.guarded_client,
        })
    }

    /// GETs from an address that the operator's configuration names. `prepare` adds headers and the
    /// time limit to each request. A redirect is followed where the client's options say so: on the
    /// same host and port as before, else like an address that a user names and without the
    /// credentials that `authorize` adds.
    ///
    /// # Errors
    /// [`OutgoingError`].
    pub async fn get_configured(
        &self,
        url: &str,
        prepare: impl Fn(OutgoingRequest) -> OutgoingRequest,
        authorize: impl Fn(OutgoingRequest) -> OutgoingRequest,
    ) -> Result<Answer, OutgoingError> {
        let configured_url = parse_url(url)?;
        let mut url = configured_url.clone();
        for _ in 0..=REDIRECTS_MAX {
            let is_trusted = is_same_origin(&configured_url, &url);
            let client = self.client_for(&configured_url, &url)?;
            let mut request = prepare(OutgoingRequest::new(client, Method::GET, url.clone()));
            if is_trusted {
                request = authorize(request);
            }
            let answer = request.send().await?;
            let is_redirect = matches!(answer.status(), 301 | 302 | 303 | 307 | 308);
            let Some(target) = answer.header(LOCATION.as_str()) else {
                return Ok(answer);
            };
            if !is_redirect || !self.follows_redirects {
                return Ok(answer);
            }
            let joined = url.join(target).map_err(|error| OutgoingError::Url {
                reason: format!("the redirect leads nowhere: {error}"),
            })?;
            url = parse_url(joined.as_str())?;
        }
        Err(OutgoingError::Failed { reason: format!("more than {REDIRECTS_MAX} redirects") })
    }
}

/// Whether what is sent to a URL, and what comes back, can be neither read nor changed on the way:
/// `https`, or `http` to an address of this machine.
///
/// # Errors
/// [`OutgoingError::Url`].
pub fn is_confidential(url: &str) -> Result<bool, OutgoingError> {
    let url = parse_url(url)?;
    let host = url.host_str().unwrap_or_default();
    let literal = host.trim_start_matches('[').trim_end_matches(']');
    let is_loopback = literal == "localhost"
        || literal.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    Ok(url.scheme() == "https" || is_loopback)
}

fn is_same_origin(url: &Url, other: &Url) -> bool {
    url.scheme() == other.scheme()
        && url.host_str() == other.host_str()
        && url.port_or_known_default() == other.port_or_known_default()
}

/// TLS with servers whose certificates the machine trusts, or `certificates` (PEM).
fn tls_config(certificates: Option<&[u8]>) -> Result<ClientConfig, OutgoingError> {
    let to_error =
        |error: &dyn Error| OutgoingError::Failed { reason: egret_base::error::chain(error) };
    let mut trusted = TrustedCertificates::from_system();
    if let Some(pem) = certificates {
        trusted.add_pem(pem).map_err(|error| to_error(&error))?;
    }
    let verifier = CertificateVerifier::new(trusted).map_err(|error| to_error(&error))?;
    let builder = verifier.config_builder(ALL_VERSIONS);
    let mut config = builder.map_err(|error| to_error(&error))?.with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// The common options of both clients; without `tls` they accept any certificate.
fn client_builder(options: &ClientOptions, tls: Option<ClientConfig>) -> reqwest::ClientBuilder {
    let mut builder = reqwest::Client::builder()
        .no_proxy()
        .user_agent(concat!("Egret/", env!("CARGO_PKG_VERSION")))
        .redirect(redirect::Policy::none())
        .referer(false)
        .connect_timeout(CONNECT_TIMEOUT);
    if let Some(timeout) = options.timeout {
        builder = builder.timeout(timeout);
    }
    match tls {
        Some(tls) => builder.tls_backend_preconfigured(tls),
        None => builder.tls_danger_accept_invalid_certs(true),
    }
}

/// A request that is not sent yet.
pub struct OutgoingRequest(reqwest::RequestBuilder);

impl OutgoingRequest {
    fn new(client: &reqwest::Client, method: Method, url: Url) -> Self {
        Self(client.request(method, url))
    }

    /// Adds a header to the request.
    pub fn header(self, name: &str, value: impl AsRef<str>) -> Self {
        Self(self.0.header(name, value.as_ref()))
    }

    /// Adds a user name and a password.
    pub fn basic_auth(self, username: &str, password: &str) -> Self {
        Self(self.0.basic_auth(username, Some(password)))
    }

    /// Bounds the time until the end of the answer.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self(self.0.timeout(timeout))
    }

    /// Sets the body of the request.
    pub fn body(self, body: String) -> Self {
        Self(self.0.body(body))
    }

    /// Sends the request.
    ///
    /// # Errors
    /// [`OutgoingError`]: there is no answer.
    pub async fn send(self) -> Result<Answer, OutgoingError> {
        let sent = self.0.send().await;
        sent.map(Answer).map_err(OutgoingError::from_reqwest)
    }
}

/// Response of the receiver. Its body is read only as far as the caller allows.
pub struct Answer(Response);

impl Answer {
    /// Status code of the response.
    pub fn status(&self) -> u16 {
        self.0.status().as_u16()
    }

    /// The status as people write it: `404 Not Found`.
    pub fn status_text(&self) -> String {
        self.0.status().to_string()
    }

    /// Whether the status is one of success.
    pub fn is_success(&self) -> bool {
        self.0.status().is_success()
    }

    /// A header, if it is there and is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.0.headers().get(name)?.to_str().ok()
    }

    /// The body.
    ///
    /// # Errors
    /// [`OutgoingError::TooLong`] with more than `bytes_max` bytes.
    pub async fn read_body(mut self, bytes_max: u64) -> Result<Vec<u8>, OutgoingError> {
        let mut body = Vec::new();
        while let Some(chunk) = self.0.chunk().await.map_err(OutgoingError::from_reqwest)? {
            if (body.len() + chunk.len()) as u64 > bytes_max {
                return Err(OutgoingError::TooLong { bytes_max });
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }
}
