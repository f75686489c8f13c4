//! A self-signed certificate with `CA:TRUE` that a server shows and `sslrootcert` holds.

use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, date_time_ymd};
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;

use super::*;
use crate::tls_error::describe;

fn self_signed(end_year: i32) -> CertificateDer<'static> {
    let mut params = CertificateParams::new(vec!["db.example.net".to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.not_before = date_time_ymd(2000, 1, 1);
    params.not_after = date_time_ymd(end_year, 1, 1);
    let made = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
    made.der().clone()
}

fn verify(
    trusted: &CertificateDer<'static>,
    shown: &CertificateDer<'static>,
    host: &str,
    any_host: bool,
) -> Result<(), String> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let chain = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .unwrap();
    let verification = Verification::new(chain, vec![trusted.clone()], any_host);
    let name = ServerName::try_from(host.to_owned()).unwrap();
    let verified = verification.verify_server_cert(shown, &[], &name, &[], UnixTime::now());
    verified.map(|_| ()).map_err(|error| describe(&error))
}

#[test]
fn a_self_signed_certificate_of_an_authority_is_accepted_where_it_is_pinned() {
    let (pinned, other) = (self_signed(4000), self_signed(4000));
    assert_eq!(verify(&pinned, &pinned, "db.example.net", false), Ok(()));
    assert_eq!(verify(&pinned, &pinned, "other.example.net", true), Ok(()));
    let error = verify(&pinned, &pinned, "other.example.net", false).unwrap_err();
    assert_eq!(
        error,
        "the server's certificate is for db.example.net and not for other.example.net"
    );
    let error = verify(&pinned, &other, "db.example.net", true).unwrap_err();
    assert!(error.contains("CA:TRUE"), "{error}");
    let expired = self_signed(2001);
    let error = verify(&expired, &expired, "db.example.net", true).unwrap_err();
    assert_eq!(error, "the server's certificate has expired");
}
