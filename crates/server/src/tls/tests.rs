//! TLS files are refused by the setting that names them.

use super::*;

fn open_error(certificate: Option<&Path>, key: Option<&Path>) -> String {
    let config = ServerConfig {
        tls_certificate: certificate.map(Path::to_owned),
        tls_key: key.map(Path::to_owned),
        ..ServerConfig::default()
    };
    Certificates::open(&config).unwrap_err().to_string()
}

#[test]
fn refuses_files_it_cannot_use() {
    let directory = tempfile::tempdir().unwrap();
    let absent = directory.path().join("absent.pem");
    let empty = directory.path().join("empty.pem");
    std::fs::write(&empty, "").unwrap();
    assert!(open_error(Some(&absent), None).starts_with("server.tls_key: it is empty although"));
    assert!(open_error(None, Some(&absent)).starts_with("server.tls_certificate: it is empty"));
    let message = open_error(Some(&absent), Some(&absent));
    assert!(
        message.starts_with("server.tls_certificate") && message.contains("absent.pem"),
        "{message}"
    );
    let message = open_error(Some(&empty), Some(&absent));
    assert!(message.contains("no certificate") || message.contains("empty.pem"), "{message}");
}

#[test]
fn no_files_mean_no_tls() {
    assert!(Certificates::open(&ServerConfig::default()).unwrap().is_none());
}

#[test]
fn authorities_of_clients_need_tls_and_a_mode() {
    let directory = tempfile::tempdir().unwrap();
    let authority = directory.path().join("clients.pem");
    let made = rcgen::generate_simple_self_signed(["clients".to_owned()]).unwrap();
    std::fs::write(&authority, made.cert.pem()).unwrap();
    let refused = |mode: &str, path: Option<&Path>| {
        let config = ServerConfig {
            tls_client_auth: mode.to_owned(),
            tls_client_ca: path.map(Path::to_owned),
            ..ServerConfig::default()
        };
        Certificates::open(&config).unwrap_err().to_string()
    };
    let path = Some(authority.as_path());
    for (mode, path, beginning) in [
        ("off", path, "server.tls_client_auth: it is `off` although"),
        ("always", path, "server.tls_client_auth: `always` is none of"),
        ("required", None, "server.tls_client_ca: it is empty although"),
        ("required", path, "server.tls_certificate: it is empty although"),
        ("optional", Some(directory.path()), "server.tls_client_ca /"),
    ] {
        let error = refused(mode, path);
        assert!(error.starts_with(beginning), "{error}");
    }
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    std::fs::set_permissions(&authority, mode).unwrap();
    let error = refused("required", path);
    assert!(error.contains("can be written by other users"), "{error}");
}
