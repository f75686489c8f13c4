//! TLS from two PEM files, with the `ring` provider and HTTP/2 offered by ALPN.

use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::config::ServerConfig;
use crate::error::ServerError;

/// The certificate that the doors show, which can be read again while they are open. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Certificates {
    config: Arc<rustls::ServerConfig>,
    shown: Arc<ShownCertificate>,
}

/// The certificate of new connections; those that there are keep theirs.
#[derive(Debug)]
struct ShownCertificate(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for ShownCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(
            self.0
                .read()
                .unwrap_or_else(PoisonError::into_inner)
                .clone(),
        )
    }
}

impl Certificates {
    /// Reads the files that the settings name; `None` when they name none.
    ///
    /// # Errors
    /// [`ServerError::Setting`] when only one of the two files is named, [`ServerError::Tls`] when one
    /// cannot be used.
    pub fn open(config: &ServerConfig) -> Result<Option<Self>, ServerError> {
        let Some(key) = read_key(config)? else {
            return Ok(None);
        };
        let shown = Arc::new(ShownCertificate(RwLock::new(Arc::new(key))));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the ring provider speaks the default versions")
            .with_no_client_auth()
            .with_cert_resolver(shown.clone());
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Some(Self {
            config: Arc::new(tls),
            shown,
        }))
    }

    /// TLS with this certificate, for any door.
    pub fn server_config(&self) -> Arc<rustls::ServerConfig> {
        self.config.clone()
    }

    /// Reads the files again; returns whether another certificate is shown now.
    ///
    /// # Errors
    /// As [`Certificates::open`]; the certificate of before is shown then.
    pub fn reload(&self, config: &ServerConfig) -> Result<bool, ServerError> {
        let Some(key) = read_key(config)? else {
            return Ok(false);
        };
        let mut shown = self.shown.0.write().unwrap_or_else(PoisonError::into_inner);
        let is_another = shown.cert != key.cert;
        *shown = Arc::new(key);
        Ok(is_another)
    }
}

/// The TLS configuration the settings ask for; `None` when they ask for none.
///
/// # Errors
/// As [`Certificates::open`].
pub(crate) fn configured(
    config: &ServerConfig,
) -> Result<Option<Arc<rustls::ServerConfig>>, ServerError> {
    Ok(Certificates::open(config)?.map(|certificates| certificates.config))
}

fn read_key(config: &ServerConfig) -> Result<Option<CertifiedKey>, ServerError> {
    let (certificate, key) = match (&config.tls_certificate, &config.tls_key) {
        (None, None) => return Ok(None),
        (Some(certificate), Some(key)) => (certificate, key),
        (Some(_), None) => return Err(missing("server.tls_key", "server.tls_certificate")),
        (None, Some(_)) => return Err(missing("server.tls_certificate", "server.tls_key")),
    };
    let chain = read_chain(certificate)?;
    let secret = PrivateKeyDer::from_pem_file(key)
        .map_err(|error| wrong("server.tls_key", key, error.to_string()))?;
    let provider = rustls::crypto::ring::default_provider();
    // It is refused too where the key is another certificate's.
    CertifiedKey::from_der(chain, secret, &provider)
        .map(Some)
        .map_err(|error| wrong("server.tls_certificate", certificate, error.to_string()))
}

fn read_chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, ServerError> {
    let refuse = |message| wrong("server.tls_certificate", path, message);
    let chain: Vec<_> = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|error| refuse(error.to_string()))?;
    if chain.is_empty() {
        return Err(refuse(
            "it holds no certificate: it must be a PEM file".to_owned(),
        ));
    }
    Ok(chain)
}

fn missing(setting: &'static str, other: &str) -> ServerError {
    ServerError::Setting {
        setting,
        message: format!("it is empty although {other} is set: TLS needs both"),
    }
}

fn wrong(setting: &'static str, path: &Path, message: String) -> ServerError {
    ServerError::Tls {
        setting,
        path: path.to_owned(),
        message,
    }
}

#[cfg(test)]
mod tests;
