//! Trust in one certificate: the one that this machine's own configuration names.
//!
//! A client on the server's machine dials the address that the server listens on, say 127.0.0.1,
//! while the certificate names the host that others dial. It knows better than by name whom it
//! wants: whoever holds the key of the very certificate in `server.tls_certificate`.

use std::sync::Arc;

use anyhow::Context;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, SignatureScheme};

use super::ClientIdentity;

#[derive(Debug)]
struct OwnCertificate {
    certificate: CertificateDer<'static>,
    provider: Arc<CryptoProvider>,
}

/// TLS with the holder of the first certificate in `pem`, whatever it is called; `identity` is shown to a server that
/// asks for it.
///
/// # Errors
/// When a text holds no certificate or no key.
pub(super) fn trusting(
    pem: &[u8],
    identity: Option<&ClientIdentity>,
) -> anyhow::Result<ClientConfig> {
    let provider = Arc::new(ring::default_provider());
    let verifier = OwnCertificate {
        certificate: CertificateDer::from_pem_slice(pem).context("server.tls_certificate")?,
        provider: provider.clone(),
    };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .context("TLS")?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let Some(identity) = identity else {
        return Ok(builder.with_no_client_auth());
    };
    let chain = CertificateDer::pem_slice_iter(&identity.certificate)
        .collect::<Result<Vec<_>, _>>()
        .context("--client-cert")?;
    let key = PrivateKeyDer::from_pem_slice(&identity.key).context("--client-key")?;
    builder
        .with_client_auth_cert(chain, key)
        .context("--client-cert and --client-key")
}

impl ServerCertVerifier for OwnCertificate {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if *shown == self.certificate {
            return Ok(ServerCertVerified::assertion());
        }
        Err(Error::InvalidCertificate(
            CertificateError::ApplicationVerificationFailure,
        ))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
