//! Which errors are worth another attempt, and when.

use super::*;

#[test]
fn a_restart_is_transient_and_a_mistake_is_not() {
    for code in ["57P01", "57P02", "57P03", "08006", "25006", "53300"] {
        assert!(is_transient_code(&SqlState::from_code(code)), "{code}");
    }
    for code in ["42601", "23505", "40001", "28P01"] {
        assert!(!is_transient_code(&SqlState::from_code(code)), "{code}");
    }
}

#[test]
fn a_refused_certificate_is_no_lost_connection() {
    let refused = |error: rustls::Error| {
        tls_error::is_refused_certificate(&std::io::Error::new(
            std::io::ErrorKind::InvalidData,
            error,
        ))
    };
    for reason in [rustls::CertificateError::Expired, rustls::CertificateError::UnknownIssuer] {
        assert!(refused(rustls::Error::InvalidCertificate(reason)));
    }
    let alert = rustls::AlertDescription::UnknownCA;
    assert!(refused(rustls::Error::AlertReceived(alert)));
    let alert = rustls::AlertDescription::InternalError;
    assert!(!refused(rustls::Error::AlertReceived(alert)));
    let lost = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
    assert!(!tls_error::is_refused_certificate(&lost));
}

#[test]
fn waits_double_up_to_a_bound() {
    let policy = Policy::default();
    assert_eq!(policy.wait_after(1), Duration::from_millis(50));
    assert_eq!(policy.wait_after(3), Duration::from_millis(200));
    assert_eq!(policy.wait_after(1_000), policy.longest_wait);
}
