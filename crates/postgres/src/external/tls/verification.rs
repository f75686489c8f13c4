//! Verifies the certificate that a server shows.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};

/// Verifies that a certificate was issued by a trusted authority, or is a trusted one itself, and that it names the
/// host, unless it may name another.
#[derive(Debug)]
pub(super) struct Verification {
    chain: Arc<dyn ServerCertVerifier>,
    /// The certificates of `sslrootcert`.
    pinned: Vec<CertificateDer<'static>>,
    any_host: bool,
}

impl Verification {
    pub(super) fn new(
        chain: Arc<dyn ServerCertVerifier>,
        pinned: Vec<CertificateDer<'static>>,
        any_host: bool,
    ) -> Self {
        Self {
            chain,
            pinned,
            any_host,
        }
    }

    fn pins(&self, shown: &CertificateDer<'_>) -> bool {
        self.pinned
            .iter()
            .any(|pinned| pinned.as_ref() == shown.as_ref())
    }
}

impl ServerCertVerifier for Verification {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        // A server may show a certificate of an authority (`CA:TRUE`), which `openssl req -x509` makes by default. The chain
        // refuses it, after it has looked at its validity; libpq accepts it where `sslrootcert` holds it.
        let verified = match self
            .chain
            .verify_server_cert(shown, intermediates, name, ocsp, now)
        {
            Err(Error::InvalidCertificate(CertificateError::Other(_))) if self.pins(shown) => {
                verify_server_name(&ParsedCertificate::try_from(shown)?, name)
                    .map(|()| ServerCertVerified::assertion())
            }
            verified => verified,
        };
        match verified {
            // The name is looked at last, when everything else is right.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if self.any_host => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chain.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests;
