//! TLS towards a server as its connection string asks for it: `sslmode`, `sslrootcert`, `sslcert`,
//! `sslkey`.

use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use rustls_platform_verifier::{BuilderVerifierExt, Verifier};
use tokio_postgres::config::Host;

use super::parameters::Parameters;

/// What is verified of a server, and what it is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TlsSettings {
    /// A file with certificates that are trusted; none: those of this machine.
    root: Option<String>,
    /// Files with the certificate that the server is shown, and its key.
    client: Option<(String, String)>,
    /// Whether the certificate may name another host.
    any_host: bool,
}

impl TlsSettings {
    /// Takes the parameters of TLS that tokio-postgres does not know, and leaves `sslmode` as one that
    /// it does.
    ///
    /// # Errors
    /// Which parameter cannot be used.
    pub(super) fn take(parameters: &mut Parameters) -> Result<Self, String> {
        let root = parameters.remove("sslrootcert");
        let mode = match parameters.get("sslmode").map(String::as_str) {
            // With certificates to trust, trust is asked for: as libpq has it of `system`.
            None if root.as_deref() == Some("system") => "verify-full",
            None => "prefer",
            Some(mode) => mode,
        };
        let (known, any_host) = match mode {
            "disable" => ("disable", false),
            "allow" | "prefer" => ("prefer", false),
            "require" | "verify-full" => ("require", false),
            "verify-ca" => ("require", true),
            other => {
                return Err(format!(
                    "sslmode `{other}` is none of disable, allow, prefer, require, verify-ca and verify-full"
                ));
            }
        };
        parameters.insert("sslmode".to_owned(), known.to_owned());
        let client = match (parameters.remove("sslcert"), parameters.remove("sslkey")) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some((certificate, key)),
            _ => return Err("sslcert and sslkey are named together or not at all".to_owned()),
        };
        let settings = Self {
            root: root.filter(|root| root != "system"),
            client,
            any_host,
        };
        Ok(settings)
    }

    fn config(&self) -> Result<ClientConfig, String> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let verifier: Option<Arc<dyn ServerCertVerifier>> = match &self.root {
            None if self.any_host => {
                let verifier = Verifier::new(provider).map_err(|error| error.to_string())?;
                Some(Arc::new(verifier))
            }
            None => None,
            Some(path) => {
                let roots = Arc::new(read_roots(path)?);
                let built = WebPkiServerVerifier::builder_with_provider(roots, provider).build();
                Some(built.map_err(|error| format!("sslrootcert {path}: {error}"))?)
            }
        };
        let builder = match verifier {
            None => builder
                .with_platform_verifier()
                .map_err(|error| error.to_string())?,
            Some(verifier) => {
                builder
                    .dangerous()
                    .with_custom_certificate_verifier(if self.any_host {
                        Arc::new(AnyHost(verifier))
                    } else {
                        verifier
                    })
            }
        };
        let Some((certificate, key)) = &self.client else {
            return Ok(builder.with_no_client_auth());
        };
        let chain = CertificateDer::pem_file_iter(certificate)
            .and_then(Iterator::collect)
            .map_err(|error| format!("sslcert {certificate}: {error}"))?;
        let key = read_key(key)?;
        builder
            .with_client_auth_cert(chain, key)
            .map_err(|error| format!("sslcert {certificate}: {error}"))
    }
}

fn read_roots(path: &str) -> Result<RootCertStore, String> {
    let refused = |reason: String| format!("sslrootcert {path}: {reason}");
    let certificates: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|error| refused(error.to_string()))?;
    if certificates.is_empty() {
        return Err(refused("it holds no certificate".to_owned()));
    }
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        roots
            .add(certificate)
            .map_err(|error| refused(error.to_string()))?;
    }
    Ok(roots)
}

fn read_key(path: &str) -> Result<PrivateKeyDer<'static>, String> {
    use std::os::unix::fs::MetadataExt;
    let refused = |reason: String| format!("sslkey {path}: {reason}");
    let metadata =
        std::fs::metadata(Path::new(path)).map_err(|error| refused(error.to_string()))?;
    // As libpq: root's key may be readable by a group.
    let open = if metadata.uid() == 0 { 0o027 } else { 0o077 };
    if metadata.mode() & open != 0 {
        return Err(refused("other users can read it: chmod 600 it".to_owned()));
    }
    PrivateKeyDer::from_pem_file(path).map_err(|error| refused(error.to_string()))
}

/// Verifies that the certificate was issued by a trusted authority, whatever host it names.
#[derive(Debug)]
struct AnyHost(Arc<dyn ServerCertVerifier>);

impl ServerCertVerifier for AnyHost {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self
            .0
            .verify_server_cert(shown, intermediates, name, ocsp, now)
        {
            // The name is looked at last, when everything else is right.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// TLS with servers whose connection strings ask for something of their own. `tokio_postgres::Config`
/// has no place for it and is what engines pass on, so it is kept by what tells servers apart.
static KNOWN: RwLock<Vec<(Server, ClientConfig)>> = RwLock::new(Vec::new());

/// A server, and as whom.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Server {
    hosts: Vec<Host>,
    ports: Vec<u16>,
    user: Option<String>,
}

impl Server {
    fn of(connection: &tokio_postgres::Config) -> Self {
        Self {
            hosts: connection.get_hosts().to_vec(),
            ports: connection.get_ports().to_vec(),
            user: connection.get_user().map(str::to_owned),
        }
    }
}

/// Remembers how TLS with a server is to be. Files are read now, so that what is wrong with them is
/// known at once.
///
/// # Errors
/// Which file cannot be used.
pub(super) fn remember(
    connection: &tokio_postgres::Config,
    settings: &TlsSettings,
) -> Result<(), String> {
    let server = Server::of(connection);
    let is_usual = *settings == TlsSettings::default();
    let config = if is_usual {
        None
    } else {
        Some(settings.config()?)
    };
    let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
    known.retain(|(other, _)| *other != server);
    known.extend(config.map(|config| (server, config)));
    Ok(())
}

/// How TLS with a server is to be, where its connection string says it.
pub(super) fn known(connection: &tokio_postgres::Config) -> Option<ClientConfig> {
    let server = Server::of(connection);
    let known = KNOWN.read().unwrap_or_else(PoisonError::into_inner);
    let found = known.iter().find(|(other, _)| *other == server);
    found.map(|(_, config)| config.clone())
}
