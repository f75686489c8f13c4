//! TLS from PEM files, with the `ring` provider and HTTP/2 offered by ALPN; and which clients may
//! speak it.

use std::path::Path;
use std::sync::{Arc, RwLock};

use egret_base::sync::{read_lock, write_lock};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;

use crate::config::ServerConfig;
use crate::error::ServerError;
use crate::trusted_file;

/// Most bytes of the file with the authorities of clients.
const CLIENT_CA_BYTES_MAX: u64 = 1 << 20;

/// The certificate of the listeners and the authorities of their clients; both can be reloaded
/// while the listeners are open. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Certificates {
    resolver: Arc<ShownCertificate>,
    /// For listeners that request no client certificate.
    config: Arc<rustls::ServerConfig>,
    api_tls: Arc<RwLock<ApiTls>>,
}

/// TLS of HTTP and gRPC.
#[derive(Debug)]
struct ApiTls {
    config: Arc<rustls::ServerConfig>,
    client_trust: ClientTrust,
}

/// Which certificates of clients are accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ClientTrust {
    /// No certificate is requested.
    Off,
    /// Certificates issued by these authorities are accepted.
    Authorities { certificates: Vec<CertificateDer<'static>>, is_required: bool },
}

/// What a reload has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CertificateChanges {
    /// Whether another certificate is shown now.
    pub has_new_certificate: bool,
    /// Whether certificates of other clients are accepted now.
    pub has_new_client_trust: bool,
}

/// The certificate of new connections; existing connections keep theirs.
#[derive(Debug)]
struct ShownCertificate(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for ShownCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(read_lock(&self.0).clone())
    }
}

impl Certificates {
    /// Reads the files that the settings name; `None` when they name none.
    ///
    /// # Errors
    /// [`ServerError::Setting`] when settings do not fit each other, [`ServerError::Tls`] and
    /// [`ServerError::SettingFile`] when a file cannot be used.
    pub fn open(config: &ServerConfig) -> Result<Option<Self>, ServerError> {
        let client_trust = ClientTrust::read(config)?;
        let Some(key) = read_key(config)? else {
            return match client_trust {
                ClientTrust::Off => Ok(None),
                ClientTrust::Authorities { .. } => {
                    Err(missing_setting_error("server.tls_certificate", "server.tls_client_auth"))
                }
            };
        };
        let resolver = Arc::new(ShownCertificate(RwLock::new(Arc::new(key))));
        let api_tls = ApiTls {
            config: server_config(resolver.clone(), client_trust.verifier()?),
            client_trust,
        };
        Ok(Some(Self {
            config: server_config(resolver.clone(), None),
            api_tls: Arc::new(RwLock::new(api_tls)),
            resolver,
        }))
    }

    /// TLS with this certificate, for a listener that requests no client certificate.
    pub fn server_config(&self) -> Arc<rustls::ServerConfig> {
        self.config.clone()
    }

    /// TLS of HTTP and gRPC for a new connection.
    pub(crate) fn api_config(&self) -> Arc<rustls::ServerConfig> {
        let api_tls = read_lock(&self.api_tls);
        api_tls.config.clone()
    }

    /// Reads the files again, for new connections.
    ///
    /// # Errors
    /// As [`Certificates::open`]; everything is as before then.
    pub fn reload(&self, config: &ServerConfig) -> Result<CertificateChanges, ServerError> {
        let client_trust = ClientTrust::read(config)?;
        let verifier = client_trust.verifier()?;
        let Some(key) = read_key(config)? else {
            return Ok(CertificateChanges {
                has_new_certificate: false,
                has_new_client_trust: false,
            });
        };
        let mut current_key = write_lock(&self.resolver.0);
        let has_new_certificate = current_key.cert != key.cert;
        *current_key = Arc::new(key);
        drop(current_key);
        let mut api_tls = write_lock(&self.api_tls);
        let has_new_client_trust = api_tls.client_trust != client_trust;
        if has_new_client_trust {
            // Replace the whole configuration, and with it the session cache: a resumed session
            // presents no certificate again.
            *api_tls =
                ApiTls { config: server_config(self.resolver.clone(), verifier), client_trust };
        }
        Ok(CertificateChanges { has_new_certificate, has_new_client_trust })
    }
}

fn server_config(
    resolver: Arc<ShownCertificate>,
    client_verifier: Option<Arc<dyn ClientCertVerifier>>,
) -> Arc<rustls::ServerConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the ring provider speaks the default versions");
    let builder = match client_verifier {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    };
    let mut tls = builder.with_cert_resolver(resolver);
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Arc::new(tls)
}

impl ClientTrust {
    fn read(config: &ServerConfig) -> Result<Self, ServerError> {
        let setting = "server.tls_client_auth";
        let is_required = match config.tls_client_auth.as_str() {
            "off" if config.tls_client_ca.is_none() => return Ok(ClientTrust::Off),
            "off" => {
                return Err(ServerError::Setting {
                    setting,
                    message: "it is `off` although server.tls_client_ca is set: write `optional` or `required`".to_owned(),
                });
            }
            "optional" => false,
            "required" => true,
            other => {
                return Err(ServerError::Setting {
                    setting,
                    message: format!("`{other}` is none of `off`, `optional` and `required`"),
                });
            }
        };
        let Some(path) = &config.tls_client_ca else {
            return Err(missing_setting_error("server.tls_client_ca", setting));
        };
        let setting = "server.tls_client_ca";
        let pem = trusted_file::read(setting, path, CLIENT_CA_BYTES_MAX)?;
        let certificates = read_chain(setting, path, CertificateDer::pem_slice_iter(&pem))?;
        let trust = ClientTrust::Authorities { certificates, is_required };
        trust.verifier().map_err(|error| tls_file_error(setting, path, error.to_string()))?;
        Ok(trust)
    }

    /// What verifies clients; `None` where they are asked for nothing.
    fn verifier(&self) -> Result<Option<Arc<dyn ClientCertVerifier>>, ServerError> {
        let ClientTrust::Authorities { certificates, is_required } = self else {
            return Ok(None);
        };
        let setting_error =
            |message: String| ServerError::Setting { setting: "server.tls_client_ca", message };
        let mut roots = RootCertStore::empty();
        for certificate in certificates {
            let added = roots.add(certificate.clone());
            added.map_err(|error| setting_error(error.to_string()))?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        if !is_required {
            builder = builder.allow_unauthenticated();
        }
        let built = builder.build();
        built.map(Some).map_err(|error| setting_error(error.to_string()))
    }
}

fn read_key(config: &ServerConfig) -> Result<Option<CertifiedKey>, ServerError> {
    let (certificate, key) = match (&config.tls_certificate, &config.tls_key) {
        (None, None) => return Ok(None),
        (Some(certificate), Some(key)) => (certificate, key),
        (Some(_), None) => {
            return Err(missing_setting_error("server.tls_key", "server.tls_certificate"));
        }
        (None, Some(_)) => {
            return Err(missing_setting_error("server.tls_certificate", "server.tls_key"));
        }
    };
    let setting = "server.tls_certificate";
    let pem = CertificateDer::pem_file_iter(certificate)
        .map_err(|error| tls_file_error(setting, certificate, error.to_string()))?;
    let chain = read_chain(setting, certificate, pem)?;
    let secret = PrivateKeyDer::from_pem_file(key)
        .map_err(|error| tls_file_error("server.tls_key", key, error.to_string()))?;
    let provider = rustls::crypto::ring::default_provider();
    // It is refused too where the key is another certificate's.
    CertifiedKey::from_der(chain, secret, &provider)
        .map(Some)
        .map_err(|error| tls_file_error(setting, certificate, error.to_string()))
}

fn read_chain(
    setting: &'static str,
    path: &Path,
    pem: impl Iterator<Item = Result<CertificateDer<'static>, rustls::pki_types::pem::Error>>,
) -> Result<Vec<CertificateDer<'static>>, ServerError> {
    let chain = pem
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| tls_file_error(setting, path, error.to_string()))?;
    if chain.is_empty() {
        let message = "it holds no certificate: it must be a PEM file".to_owned();
        return Err(tls_file_error(setting, path, message));
    }
    Ok(chain)
}

fn missing_setting_error(setting: &'static str, other: &str) -> ServerError {
    ServerError::Setting {
        setting,
        message: format!("it is empty although {other} is set: TLS needs both"),
    }
}

fn tls_file_error(setting: &'static str, path: &Path, message: String) -> ServerError {
    ServerError::Tls { setting, path: path.to_owned(), message }
}

#[cfg(test)]
mod tests;
