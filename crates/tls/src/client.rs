//! TLS of a client that a person configures: which certificate of the server it accepts, and which
//! of its own it presents.

use std::fmt;

use rustls::client::WantsClientCert;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ALL_VERSIONS, ClientConfig, ConfigBuilder};
use serde::{Deserialize, Serialize};

use crate::{CertificateVerifier, TrustedCertificates};

/// A client's certificate with its chain, and its private key, both PEM.
#[derive(Clone, Serialize, Deserialize)]
pub struct ClientIdentity {
    /// The chain, the client's own certificate first.
    pub certificate: Vec<u8>,
    /// The private key (PEM) of the first certificate.
    pub key: Vec<u8>,
}

impl fmt::Debug for ClientIdentity {
    /// Shows nothing of the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientIdentity").finish_non_exhaustive()
    }
}

/// Certificates that cannot be used, named by the option or setting that they are from.
#[derive(Debug, thiserror::Error)]
#[error("{option}: {reason}")]
pub struct ClientTlsError {
    option: &'static str,
    reason: String,
}

impl ClientTlsError {
    fn new(option: &'static str, reason: &dyn fmt::Display) -> Self {
        Self { option, reason: reason.to_string() }
    }
}

/// Certificates of a connection to an Egret, all PEM.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClientTls<'a> {
    /// The server's own certificate, from its configuration: it alone is trusted then, whatever
    /// host it names.
    pub certificate: Option<&'a [u8]>,
    /// Certificates of authorities that are trusted beside those of the machine.
    pub authorities: Option<&'a [u8]>,
    /// What is presented to a server that asks for a certificate.
    pub identity: Option<&'a ClientIdentity>,
}

impl ClientTls<'_> {
    /// Configuration for HTTP/2 and HTTP/1.1 connections.
    ///
    /// # Errors
    /// [`ClientTlsError`]: which certificate or key cannot be used.
    pub fn config(&self) -> Result<ClientConfig, ClientTlsError> {
        let builder = self.config_builder()?;
        let mut config = match self.identity {
            None => builder.with_no_client_auth(),
            Some(identity) => add_client_certificate(builder, identity)?,
        };
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }

    fn config_builder(
        &self,
    ) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, ClientTlsError> {
        let verifier = if let Some(pem) = self.certificate {
            // A client on the server's machine dials the address that the server listens on, say
            // 127.0.0.1, while the certificate names the host that others dial.
            let pinned_certificate = CertificateDer::from_pem_slice(pem)
                .map_err(|error| ClientTlsError::new("server.tls_certificate", &error))?;
            CertificateVerifier::pinned(pinned_certificate)
        } else {
            let mut trusted = TrustedCertificates::from_system();
            if let Some(pem) = self.authorities {
                trusted.add_pem(pem).map_err(|error| ClientTlsError::new("--ca-file", &error))?;
            }
            CertificateVerifier::new(trusted).map_err(|error| ClientTlsError::new("TLS", &error))?
        };
        verifier.config_builder(ALL_VERSIONS).map_err(|error| ClientTlsError::new("TLS", &error))
    }
}

/// Presents the client's certificate to a server that asks for one.
fn add_client_certificate(
    builder: ConfigBuilder<ClientConfig, WantsClientCert>,
    identity: &ClientIdentity,
) -> Result<ClientConfig, ClientTlsError> {
    let chain = CertificateDer::pem_slice_iter(&identity.certificate)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| ClientTlsError::new("--client-cert", &error))?;
    let key = PrivateKeyDer::from_pem_slice(&identity.key)
        .map_err(|error| ClientTlsError::new("--client-key", &error))?;
    builder
        .with_client_auth_cert(chain, key)
        .map_err(|error| ClientTlsError::new("--client-cert and --client-key", &error))
}
