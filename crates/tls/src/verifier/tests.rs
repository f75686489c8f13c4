//! A self-signed certificate with `CA:TRUE` that a server shows and the client trusts.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};

use super::*;

const HOST: &str = "db.example.net";

fn authority(end_year: i32) -> CertificateParams {
    let mut params = CertificateParams::new(vec![HOST.to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.not_before = date_time_ymd(2000, 1, 1);
    params.not_after = date_time_ymd(end_year, 1, 1);
    params
}

fn self_signed(end_year: i32) -> rcgen::Certificate {
    let key = KeyPair::generate().unwrap();
    authority(end_year).self_signed(&key).unwrap()
}

fn verifier(trusted: &str) -> CertificateVerifier {
    let mut certificates = TrustedCertificates::empty();
    certificates.add_pem(trusted.as_bytes()).unwrap();
    CertificateVerifier::new(certificates).unwrap()
}

fn verify(
    verifier: &CertificateVerifier,
    shown: &CertificateDer<'_>,
    host: &str,
) -> Result<(), CertificateError> {
    let name = ServerName::try_from(host.to_owned()).unwrap();
    match verifier.verify_server_cert(shown, &[], &name, &[], UnixTime::now()) {
        Ok(_) => Ok(()),
        Err(Error::InvalidCertificate(reason)) => Err(reason),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_self_signed_certificate_of_an_authority_is_accepted_where_it_is_trusted() {
    let (trusted, other) = (self_signed(4000), self_signed(4000));
    let strict = verifier(&trusted.pem());
    assert_eq!(verify(&strict, trusted.der(), HOST), Ok(()));
    let error = verify(&strict, trusted.der(), "other.example.net").unwrap_err();
    assert!(matches!(error, CertificateError::NotValidForNameContext { .. }), "{error:?}");
    assert!(!is_ca_used_as_end_entity(&error));
    let lenient = verifier(&trusted.pem()).accept_any_host();
    assert_eq!(verify(&lenient, trusted.der(), "other.example.net"), Ok(()));
    let error = verify(&lenient, other.der(), HOST).unwrap_err();
    assert!(is_ca_used_as_end_entity(&error), "{error:?}");
    let expired = self_signed(2001);
    let error = verify(&verifier(&expired.pem()).accept_any_host(), expired.der(), HOST);
    assert!(matches!(error, Err(CertificateError::ExpiredContext { .. })), "{error:?}");
}

#[test]
fn a_pinned_certificate_is_accepted_whatever_it_names() {
    let (expired, other) = (self_signed(2001), self_signed(4000));
    let pinned = CertificateVerifier::pinned(expired.der().clone());
    assert_eq!(verify(&pinned, expired.der(), "127.0.0.1"), Ok(()));
    let error = verify(&pinned, other.der(), HOST);
    assert_eq!(error, Err(CertificateError::ApplicationVerificationFailure));
}

#[test]
fn what_a_trusted_authority_signed_is_accepted() {
    let key = KeyPair::generate().unwrap();
    let issuer = CertifiedIssuer::self_signed(authority(4000), key).unwrap();
    let params = CertificateParams::new(vec![HOST.to_owned()]).unwrap();
    let shown = params.signed_by(&KeyPair::generate().unwrap(), &issuer).unwrap();
    assert_eq!(verify(&verifier(&issuer.pem()), shown.der(), HOST), Ok(()));
    // The other authority has the same name.
    let error = verify(&verifier(&self_signed(4000).pem()), shown.der(), HOST);
    assert!(
        matches!(error, Err(CertificateError::UnknownIssuer | CertificateError::BadSignature)),
        "{error:?}"
    );
}

#[test]
fn what_cannot_be_trusted_is_said() {
    let add = |pem: &str| {
        let error = TrustedCertificates::empty().add_pem(pem.as_bytes());
        error.unwrap_err().to_string()
    };
    assert_eq!(add(""), "it holds no certificate");
    let broken = "-----BEGIN CERTIFICATE-----\n%\n-----END CERTIFICATE-----\n";
    assert_eq!(add(broken), "it is not PEM");
    let unreadable = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    assert_eq!(add(unreadable), "a certificate in it cannot be read");
    let error = CertificateVerifier::new(TrustedCertificates::empty()).unwrap_err();
    assert!(error.to_string().contains("ca-certificates"), "{error}");
}
