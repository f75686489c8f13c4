//! TLS from two PEM files, with the `ring` provider and HTTP/2 offered by ALPN.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::config::ServerConfig;
use crate::error::ServerError;

impl ServerConfig {
    /// TLS as the settings ask for it, for the other doors; `None` when they ask for none.
    ///
    /// # Errors
    /// [`ServerError`] when a file is missing or cannot be used.
    pub fn tls(&self) -> Result<Option<Arc<rustls::ServerConfig>>, ServerError> {
        configured(self)
    }
}

/// The TLS configuration the settings ask for; `None` when they ask for none.
///
/// # Errors
/// [`ServerError::Setting`] when only one of the two files is named, [`ServerError::Tls`] when one
/// cannot be used.
pub(crate) fn configured(
    config: &ServerConfig,
) -> Result<Option<Arc<rustls::ServerConfig>>, ServerError> {
    let (certificate, key) = match (&config.tls_certificate, &config.tls_key) {
        (None, None) => return Ok(None),
        (Some(certificate), Some(key)) => (certificate, key),
        (Some(_), None) => return Err(missing("server.tls_key", "server.tls_certificate")),
        (None, Some(_)) => return Err(missing("server.tls_certificate", "server.tls_key")),
    };
    let chain = read_chain(certificate)?;
    let secret = PrivateKeyDer::from_pem_file(key)
        .map_err(|error| wrong("server.tls_key", key, error.to_string()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the ring provider speaks the default versions")
        .with_no_client_auth()
        .with_single_cert(chain, secret)
        .map_err(|error| wrong("server.tls_certificate", certificate, error.to_string()))?;
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Some(Arc::new(tls)))
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
