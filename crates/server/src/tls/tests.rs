//! TLS files are refused by the setting that names them.

use super::*;

fn refused(certificate: Option<&Path>, key: Option<&Path>) -> String {
    let config = ServerConfig {
        tls_certificate: certificate.map(Path::to_owned),
        tls_key: key.map(Path::to_owned),
        ..ServerConfig::default()
    };
    configured(&config).unwrap_err().to_string()
}

#[test]
fn refuses_files_it_cannot_use() {
    let directory = tempfile::tempdir().unwrap();
    let absent = directory.path().join("absent.pem");
    let empty = directory.path().join("empty.pem");
    std::fs::write(&empty, "").unwrap();
    assert!(refused(Some(&absent), None).starts_with("server.tls_key: it is empty although"));
    assert!(refused(None, Some(&absent)).starts_with("server.tls_certificate: it is empty"));
    let message = refused(Some(&absent), Some(&absent));
    assert!(
        message.starts_with("server.tls_certificate") && message.contains("absent.pem"),
        "{message}"
    );
    let message = refused(Some(&empty), Some(&absent));
    assert!(
        message.contains("no certificate") || message.contains("empty.pem"),
        "{message}"
    );
}

#[test]
fn no_files_mean_no_tls() {
    assert!(configured(&ServerConfig::default()).unwrap().is_none());
}
