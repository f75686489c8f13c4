//! What the command line says of a server whose certificate it does not accept.

use std::error::Error as StdError;
use std::io;

use rustls::{CertificateError, Error};

/// Why a certificate was refused, and what to do about it. `None` where the error is another one.
pub(super) fn describe(error: &(dyn StdError + 'static)) -> Option<&'static str> {
    let causes = std::iter::successors(Some(error), |error| (*error).source());
    let reason = causes.filter_map(tls_error).find_map(|error| match error {
        Error::InvalidCertificate(reason) => Some(reason),
        _ => None,
    })?;
    Some(match reason {
        CertificateError::ApplicationVerificationFailure => {
            "the server shows another certificate than the one in server.tls_certificate: send it SIGHUP if the file was renewed, or name it by --url"
        }
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "the issuer of the server's certificate is not trusted: name the issuer's certificate by --ca-file"
        }
        authority if egret_tls::is_ca_used_as_end_entity(authority) => {
            "the server's certificate is a CA certificate (CA:TRUE), as `openssl req -x509` \
             creates it, and is not trusted: name this certificate by --ca-file"
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "the server's certificate is for another host: use the host name of the certificate \
             in --url"
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "the server's certificate has expired: renew it and send the server SIGHUP"
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "the server's certificate is not valid yet: check the clock of this machine"
        }
        _ => "the server's certificate is not accepted",
    })
}

/// The TLS library's error is its own cause, or inside of errors of the operating system, which do
/// not name it as their source.
pub(super) fn tls_error<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a Error> {
    error.downcast_ref().or_else(|| {
        let inner = error.downcast_ref::<io::Error>()?.get_ref()?;
        tls_error(inner)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::OtherError;

    use super::*;

    fn refused(reason: CertificateError) -> Option<&'static str> {
        let refused = io::Error::other(Error::InvalidCertificate(reason));
        describe(&io::Error::other(refused))
    }

    #[test]
    fn each_reason_comes_with_what_to_do() {
        let authority = OtherError(Arc::new(io::Error::other("CaUsedAsEndEntity")));
        for (reason, advice) in [
            (CertificateError::UnknownIssuer, "--ca-file"),
            (CertificateError::Other(authority), "CA:TRUE"),
            (CertificateError::NotValidForName, "--url"),
            (CertificateError::Expired, "renew it"),
            (CertificateError::NotValidYet, "clock"),
            (CertificateError::BadSignature, "--ca-file"),
            (CertificateError::Revoked, "not accepted"),
        ] {
            let message = refused(reason).unwrap();
            assert!(message.contains(advice), "{message}");
        }
    }

    #[test]
    fn other_errors_are_none_of_certificates() {
        assert_eq!(describe(&io::Error::other(Error::DecryptError)), None);
        assert_eq!(describe(&io::Error::from(io::ErrorKind::NotFound)), None);
    }
}
