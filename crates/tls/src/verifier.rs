//! Verifies the certificate that a server shows.

use std::collections::HashSet;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WantsClientCert, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{
    WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, ConfigBuilder, DigitallySignedStruct, Error, SignatureScheme,
    SupportedProtocolVersion,
};

use crate::certificates::{CertificatesError, TrustedCertificates, digest};

/// Verifies that a certificate was issued by a trusted authority, or is a trusted one itself, and
/// that it names the host, unless it may name another.
#[derive(Debug)]
pub struct CertificateVerifier {
    trust: Trust,
    accepts_any_host: bool,
    algorithms: WebPkiSupportedAlgorithms,
}

/// Which certificates are accepted.
#[derive(Debug)]
enum Trust {
    Trusted { chain: Arc<WebPkiServerVerifier>, digests: HashSet<[u8; 32]> },
    Pinned(CertificateDer<'static>),
}

impl CertificateVerifier {
    /// A verifier that trusts these certificates.
    ///
    /// # Errors
    /// [`CertificatesError::NoneTrusted`].
    pub fn new(trusted: TrustedCertificates) -> Result<Self, CertificatesError> {
        let TrustedCertificates { roots, digests } = trusted;
        let provider = Arc::new(ring::default_provider());
        let built = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
        // Without lists of revoked certificates, it fails for nothing else.
        let chain = built.map_err(|_| CertificatesError::NoneTrusted)?;
        Ok(Self::with_trust(Trust::Trusted { chain, digests }))
    }

    /// A verifier that accepts one certificate, whatever host and time it names: the client wants
    /// the server that holds the key of this very certificate.
    pub fn pinned(certificate: CertificateDer<'static>) -> Self {
        Self::with_trust(Trust::Pinned(certificate))
    }

    fn with_trust(trust: Trust) -> Self {
        Self {
            trust,
            accepts_any_host: false,
            algorithms: ring::default_provider().signature_verification_algorithms,
        }
    }

    /// Accepts a certificate that names another host.
    #[must_use]
    pub fn accept_any_host(mut self) -> Self {
        self.accepts_any_host = true;
        self
    }

    /// Begins the configuration of a client that speaks these versions.
    ///
    /// # Errors
    /// The versions do not fit what Egret speaks.
    pub fn config_builder(
        self,
        versions: &[&'static SupportedProtocolVersion],
    ) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, Error> {
        let provider = Arc::new(ring::default_provider());
        let builder =
            ClientConfig::builder_with_provider(provider).with_protocol_versions(versions)?;
        Ok(builder.dangerous().with_custom_certificate_verifier(Arc::new(self)))
    }
}

/// Whether a certificate was refused because it is one of an authority (`CA:TRUE`) and not a
/// trusted one itself.
pub fn is_ca_used_as_end_entity(reason: &CertificateError) -> bool {
    // The library's own type is not exported.
    matches!(reason, CertificateError::Other(cause) if cause.to_string() == "CaUsedAsEndEntity")
}

impl ServerCertVerifier for CertificateVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let (chain, digests) = match &self.trust {
            Trust::Trusted { chain, digests } => (chain, digests),
            Trust::Pinned(certificate) if end_entity == certificate => {
                return Ok(ServerCertVerified::assertion());
            }
            Trust::Pinned(_) => {
                let reason = CertificateError::ApplicationVerificationFailure;
                return Err(Error::InvalidCertificate(reason));
            }
        };
        let verified = chain.verify_server_cert(end_entity, intermediates, name, ocsp, now);
        // A server may show a certificate of an authority (`CA:TRUE`), which `openssl req -x509`
        // makes by default. The chain refuses it, after it has looked at its validity; OpenSSL
        // accepts it where it is trusted.
        let verified = match verified {
            Err(Error::InvalidCertificate(reason))
                if is_ca_used_as_end_entity(&reason) && digests.contains(&digest(end_entity)) =>
            {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, name)
                    .map(|()| ServerCertVerified::assertion())
            }
            verified => verified,
        };
        match verified {
            // The name is looked at last, when everything else is right.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if self.accepts_any_host => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests;
