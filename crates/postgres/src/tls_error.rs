//! Errors of TLS in plain words, without the names that the libraries have for them.

use std::error::Error as _;

use rustls::pki_types::pem;
use rustls::{AlertDescription, CertificateError, Error};

/// Egret speaks both versions unless the connection string restricts them.
const NOTHING_IN_COMMON: &str = "the server and Egret have no version of TLS or cipher in common: Egret speaks TLS 1.2 and 1.3, within ssl_min_protocol_version and ssl_max_protocol_version";

/// What went wrong in a handshake or with a certificate.
pub(crate) fn describe(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(reason) => describe_certificate(reason),
        Error::AlertReceived(alert) => describe_alert(*alert),
        Error::PeerIncompatible(_) => NOTHING_IN_COMMON.to_owned(),
        Error::PeerMisbehaved(_) | Error::DecryptError => {
            "the server, or a proxy in between, violated the TLS protocol, so its identity \
             cannot be verified"
                .to_owned()
        }
        Error::InvalidMessage(_)
        | Error::InappropriateMessage { .. }
        | Error::InappropriateHandshakeMessage { .. } => {
            "the server's answer is not TLS".to_owned()
        }
        Error::InconsistentKeys(_) => "the key does not belong to the certificate".to_owned(),
        other => other.to_string(),
    }
}

fn describe_certificate(reason: &CertificateError) -> String {
    let reason = match reason {
        CertificateError::UnknownIssuer => {
            "has an issuer that is not trusted: name the issuer's certificate by sslrootcert"
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "has expired",
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "is not valid yet: check the clock of this machine"
        }
        CertificateError::NotValidForNameContext { expected, presented } => {
            let presented: Vec<&str> = presented.iter().map(|name| bare_name(name)).collect();
            let presented =
                if presented.is_empty() { "no host".to_owned() } else { presented.join(", ") };
            let expected = expected.to_str();
            return format!("the server's certificate is for {presented} and not for {expected}");
        }
        CertificateError::NotValidForName => "is for another host",
        CertificateError::BadEncoding => "cannot be read",
        CertificateError::BadSignature => "is not signed by the issuer that it names",
        CertificateError::Revoked => "is revoked",
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "is not for servers (extended key usage)"
        }
        authority if egret_tls::is_ca_used_as_end_entity(authority) => {
            "is a CA certificate (CA:TRUE) and not in sslrootcert: name this certificate there, \
             or give the server a certificate that is not a CA's"
        }
        CertificateError::Other(_) => {
            "or that of one of its issuers violates the rules for certificates"
        }
        _ => "is signed with an algorithm that Egret does not accept, or has an unknown extension",
    };
    format!("the server's certificate {reason}")
}

/// The name in `DnsName("db.example.net")` or `IpAddress(127.0.0.1)`.
fn bare_name(name: &str) -> &str {
    let inner = name.split_once('(').map_or(name, |(_, inner)| inner);
    inner.trim_end_matches(')').trim_matches('"')
}

fn describe_alert(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::CertificateRequired => {
            "the server requires a client certificate: name it by sslcert and sslkey".to_owned()
        }
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateRevoked
        | AlertDescription::CertificateExpired
        | AlertDescription::CertificateUnknown
        | AlertDescription::UnknownCA => {
            "the server does not accept the client certificate (sslcert)".to_owned()
        }
        AlertDescription::ProtocolVersion
        | AlertDescription::HandshakeFailure
        | AlertDescription::InsufficientSecurity => NOTHING_IN_COMMON.to_owned(),
        other => format!("the server ended TLS with alert {}", u8::from(other)),
    }
}

/// Why a file with certificates or a key cannot be used.
pub(crate) fn describe_file(error: &pem::Error) -> String {
    match error {
        pem::Error::Io(error) => error.to_string(),
        pem::Error::NoItemsFound => "it contains no PEM block of the expected kind".to_owned(),
        _ => "it is not PEM".to_owned(),
    }
}

/// The error of TLS for which the driver failed, in plain words.
pub(crate) fn describe_driver_error(error: &tokio_postgres::Error) -> Option<String> {
    // The library's own is inside of an error of the operating system, which does not name it as
    // its source.
    let cause = error.source()?.downcast_ref::<std::io::Error>()?;
    Some(format!("TLS: {}", describe(rustls_error(cause)?)))
}

fn rustls_error(error: &std::io::Error) -> Option<&Error> {
    error.get_ref()?.downcast_ref::<Error>()
}

/// Whether one side does not accept the other's certificate, which stays so until a certificate or
/// a setting is changed.
pub(crate) fn is_refused_certificate(error: &std::io::Error) -> bool {
    rustls_error(error).is_some_and(|error| {
        matches!(
            error,
            Error::InvalidCertificate(_)
                | Error::AlertReceived(
                    AlertDescription::CertificateRequired
                        | AlertDescription::BadCertificate
                        | AlertDescription::UnsupportedCertificate
                        | AlertDescription::CertificateRevoked
                        | AlertDescription::CertificateExpired
                        | AlertDescription::CertificateUnknown
                        | AlertDescription::UnknownCA
                )
        )
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::OtherError;
    use rustls::pki_types::ServerName;

    use super::*;

    #[test]
    fn a_refused_certificate_is_described_with_what_to_do() {
        let refused = |reason| describe(&Error::InvalidCertificate(reason));
        let names = CertificateError::NotValidForNameContext {
            expected: ServerName::try_from("other.example.net").unwrap(),
            presented: vec!["DnsName(\"db.example.net\")".to_owned()],
        };
        assert_eq!(
            refused(names),
            "the server's certificate is for db.example.net and not for other.example.net"
        );
        let cause = std::io::Error::other("CaUsedAsEndEntity");
        let authority = refused(CertificateError::Other(OtherError(Arc::new(cause))));
        assert!(authority.contains("not in sslrootcert"), "{authority}");
        assert_eq!(refused(CertificateError::Expired), "the server's certificate has expired");
    }
}
