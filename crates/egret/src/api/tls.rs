//! TLS of the command line: which certificate of the server is accepted, and which of its own is shown.

use std::sync::Arc;

use anyhow::Context;
use egret_tls::{CertificateVerifier, TrustedCertificates};
use rustls::client::WantsClientCert;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ALL_VERSIONS, ClientConfig, ConfigBuilder};

use super::address::{Address, ClientIdentity};
use super::own_certificate::OwnCertificate;

impl Address {
    /// TLS with the server.
    ///
    /// # Errors
    /// Which certificate or key cannot be used.
    pub fn tls(&self) -> anyhow::Result<ClientConfig> {
        let builder = self.begin()?;
        let mut config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some(identity) => show(builder, identity)?,
        };
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }

    fn begin(&self) -> anyhow::Result<ConfigBuilder<ClientConfig, WantsClientCert>> {
        if let Some(pem) = &self.certificate {
            let provider = Arc::new(ring::default_provider());
            let verifier = OwnCertificate::new(pem, provider.clone())?;
            let builder = ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .context("TLS")?;
            let builder = builder.dangerous();
            return Ok(builder.with_custom_certificate_verifier(Arc::new(verifier)));
        }
        let mut trusted = TrustedCertificates::of_machine();
        if let Some(pem) = &self.authorities {
            trusted.add_pem(pem).context("--ca-file")?;
        }
        let verifier = CertificateVerifier::new(trusted).context("TLS")?;
        verifier.begin(ALL_VERSIONS).context("TLS")
    }
}

/// Shows the client's certificate to a server that asks for one.
fn show(
    builder: ConfigBuilder<ClientConfig, WantsClientCert>,
    identity: &ClientIdentity,
) -> anyhow::Result<ClientConfig> {
    let chain = CertificateDer::pem_slice_iter(&identity.certificate)
        .collect::<Result<Vec<_>, _>>()
        .context("--client-cert")?;
    let key = PrivateKeyDer::from_pem_slice(&identity.key).context("--client-key")?;
    builder
        .with_client_auth_cert(chain, key)
        .context("--client-cert and --client-key")
}
