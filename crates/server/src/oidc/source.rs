//! Where an issuer's keys come from: its discovery document, a URL of the settings, or a file.

use std::path::PathBuf;
use std::time::Duration;

use egret_outgoing::{
    Answer, ClientOptions, Destinations, OutgoingClient, OutgoingError, is_confidential,
};
use serde::Deserialize;

use super::config::OidcConfig;
use super::keys::KeySet;
use crate::error::ServerError;
use crate::trusted_file;

/// The discovery document below an issuer (OpenID Connect Discovery section 4).
const DISCOVERY_PATH: &str = "/.well-known/openid-configuration";

/// Most bytes of a discovery document.
const DISCOVERY_BYTES_MAX: u64 = 256 << 10;

/// Most bytes of a JWK Set.
const KEYS_BYTES_MAX: u64 = 512 << 10;

/// How long one answer of the issuer may take, its body included.
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);

/// Where the keys are.
enum KeyLocation {
    Discovered { issuer: String },
    Url(String),
    File(PathBuf),
}

/// Reads an issuer's keys.
pub(super) struct KeySource {
    location: KeyLocation,
    client: OutgoingClient,
}

#[derive(Deserialize)]
struct Discovery {
    issuer: String,
    jwks_uri: String,
}

fn setting_error(setting: &'static str, message: impl Into<String>) -> ServerError {
    ServerError::Setting { setting, message: message.into() }
}

impl KeySource {
    /// The source that the settings name.
    ///
    /// # Errors
    /// [`ServerError::Setting`] or [`ServerError::SettingFile`].
    pub(super) fn open(
        config: &OidcConfig,
        issuer: &str,
        destinations: Destinations,
    ) -> Result<Self, ServerError> {
        let location = match (&config.jwks_file, &config.jwks_url) {
            (Some(_), Some(_)) => {
                return Err(setting_error(
                    "oidc.jwks_file",
                    "it and oidc.jwks_url are both set: keep one",
                ));
            }
            (Some(path), None) => KeyLocation::File(path.clone()),
            (None, Some(url)) => {
                check_url("oidc.jwks_url", url)?;
                KeyLocation::Url(url.clone())
            }
            (None, None) => {
                check_url("oidc.issuer", issuer)?;
                KeyLocation::Discovered { issuer: issuer.to_owned() }
            }
        };
        let setting = "oidc.ca_file";
        let certificates = match &config.ca_file {
            Some(path) => Some(trusted_file::read(setting, path, KEYS_BYTES_MAX)?),
            None => None,
        };
        let options = ClientOptions {
            timeout: Some(FETCH_TIMEOUT),
            certificates,
            ..ClientOptions::default()
        };
        let client = OutgoingClient::new(destinations, &options)
            .map_err(|error| setting_error(setting, error.to_string()))?;
        Ok(Self { location, client })
    }

    /// Reads the keys now where they are in a file, so that a start fails with a file that cannot
    /// be used.
    ///
    /// # Errors
    /// [`ServerError::SettingFile`].
    pub(super) fn read_file(&self) -> Result<Option<KeySet>, ServerError> {
        let KeyLocation::File(path) = &self.location else {
            return Ok(None);
        };
        let setting = "oidc.jwks_file";
        let json = trusted_file::read(setting, path, KEYS_BYTES_MAX)?;
        let keys = KeySet::read(&json).map_err(|message| ServerError::SettingFile {
            setting,
            path: path.clone(),
            message,
        })?;
        Ok(Some(keys))
    }

    /// Reads the keys.
    ///
    /// # Errors
    /// A description of the failure, without a URL.
    pub(super) async fn fetch(&self) -> Result<KeySet, String> {
        match &self.location {
            KeyLocation::File(_) => match self.read_file() {
                Ok(keys) => Ok(keys.unwrap_or_default()),
                Err(error) => Err(error.to_string()),
            },
            KeyLocation::Url(url) => self.fetch_keys(url, url).await,
            KeyLocation::Discovered { issuer } => {
                let url = format!("{}{DISCOVERY_PATH}", issuer.trim_end_matches('/'));
                let answer = self.get(&url, &url).await;
                let json = read_success_body(answer, DISCOVERY_BYTES_MAX)
                    .await
                    .map_err(|error| format!("discovery document: {error}"))?;
                let found: Discovery = serde_json::from_slice(&json)
                    .map_err(|error| format!("discovery document: {error}"))?;
                if found.issuer != *issuer {
                    return Err("discovery document: `issuer` is not oidc.issuer".to_owned());
                }
                if !is_confidential(&found.jwks_uri).unwrap_or(false) {
                    return Err("discovery document: `jwks_uri` is not an https URL".to_owned());
                }
                self.fetch_keys(issuer, &found.jwks_uri).await
            }
        }
    }

    /// Keys from a URL, which the service at `named` may have named.
    async fn fetch_keys(&self, referrer_url: &str, url: &str) -> Result<KeySet, String> {
        let json = read_success_body(self.get(referrer_url, url).await, KEYS_BYTES_MAX).await;
        KeySet::read(&json.map_err(|error| format!("keys: {error}"))?)
    }

    async fn get(&self, referrer_url: &str, url: &str) -> Result<Answer, OutgoingError> {
        let prepare =
            |request: egret_outgoing::OutgoingRequest| request.header("accept", "application/json");
        self.client.get_linked(referrer_url, url, prepare).await
    }
}

async fn read_success_body(
    answer: Result<Answer, OutgoingError>,
    bytes_max: u64,
) -> Result<Vec<u8>, String> {
    let answer = answer.map_err(|error| error.to_string())?;
    if !answer.is_success() {
        return Err(format!("the response is {}", answer.status_text()));
    }
    let result = answer.read_body(bytes_max).await;
    result.map_err(|error| error.to_string())
}

/// Refuses URLs without TLS, except those of this machine: an attacker on the network could replace
/// the keys, and sign tokens that Egret accepts.
fn check_url(setting: &'static str, url: &str) -> Result<(), ServerError> {
    match is_confidential(url) {
        Ok(true) => Ok(()),
        Ok(false) => Err(setting_error(
            setting,
            "it must begin with https://, because keys could be replaced on the network",
        )),
        Err(error) => Err(setting_error(setting, error.to_string())),
    }
}
