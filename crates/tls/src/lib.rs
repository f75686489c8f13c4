//! Which certificates of servers Egret accepts as a client of TLS.

mod certificates;
mod client;
mod verifier;

pub use certificates::{CertificatesError, TrustedCertificates};
pub use client::{ClientIdentity, ClientTls, ClientTlsError};
pub use verifier::{CertificateVerifier, is_ca_used_as_end_entity};
