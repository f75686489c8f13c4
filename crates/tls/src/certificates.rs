//! The certificates that a client trusts.

use std::collections::HashSet;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{Error, RootCertStore};
use sha2::{Digest, Sha256};

/// Why certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificatesError {
    /// The text holds no PEM.
    #[error("it is not PEM")]
    Encoding,
    /// The text holds something else.
    #[error("it holds no certificate")]
    Empty,
    /// A certificate cannot be read.
    #[error("a certificate in it cannot be read")]
    Certificate(#[source] Error),
    /// Neither the machine nor the caller names a certificate to trust.
    #[error(
        "there is no certificate to trust: install those of your operating system (ca-certificates)"
    )]
    NoneTrusted,
}

/// Certificates of authorities, and of servers that are trusted themselves.
#[derive(Debug)]
pub struct TrustedCertificates {
    pub(crate) roots: RootCertStore,
    /// The SHA-256 of each: some two hundred certificates of a machine are held by every client.
    pub(crate) digests: HashSet<[u8; 32]>,
}

impl TrustedCertificates {
    /// A set without any certificate.
    pub fn empty() -> Self {
        Self { roots: RootCertStore::empty(), digests: HashSet::new() }
    }

    /// The certificates that this machine trusts, or those that `SSL_CERT_FILE` and `SSL_CERT_DIR`
    /// name. A certificate that cannot be read is left out: old ones are found on many machines.
    pub fn from_system() -> Self {
        let mut trusted = Self::empty();
        for certificate in rustls_native_certs::load_native_certs().certs {
            // Only a certificate that cannot be read fails.
            let _ = trusted.add(&certificate);
        }
        trusted
    }

    /// Adds a certificate.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn add(&mut self, certificate: &CertificateDer<'_>) -> Result<(), Error> {
        self.roots.add(certificate.clone())?;
        self.digests.insert(digest(certificate));
        Ok(())
    }

    /// Adds the certificates of a text in PEM.
    ///
    /// # Errors
    /// [`CertificatesError`]: it holds none, or one that cannot be read.
    pub fn add_pem(&mut self, pem: &[u8]) -> Result<(), CertificatesError> {
        let certificates = CertificateDer::pem_slice_iter(pem)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|_| CertificatesError::Encoding)?;
        if certificates.is_empty() {
            return Err(CertificatesError::Empty);
        }
        for certificate in &certificates {
            self.add(certificate).map_err(CertificatesError::Certificate)?;
        }
        Ok(())
    }
}

/// The SHA-256 of a certificate.
pub(crate) fn digest(certificate: &CertificateDer<'_>) -> [u8; 32] {
    Sha256::digest(certificate).into()
}
