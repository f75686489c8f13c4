//! TLS towards a server as its connection string asks for it: `sslmode`, `sslrootcert`, `sslcert`,
//! `sslkey`, and the versions of TLS.

use std::path::Path;
use std::sync::{OnceLock, RwLock};

use egret_base::sync::{read_lock, write_lock};
use egret_tls::{CertificateVerifier, TrustedCertificates};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::version::{TLS12, TLS13};
use rustls::{ALL_VERSIONS, ClientConfig, SupportedProtocolVersion};
use tokio_postgres::config::Host;

use super::parameters::Parameters;
use crate::error::PostgresError;
use crate::tls_error::{describe, describe_file};

/// How a server is verified, and which certificate the client presents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TlsSettings {
    /// A file with certificates that are trusted; none: those of this machine.
    root_file: Option<String>,
    /// Files with the certificate that the server is shown, and its key.
    client_files: Option<(String, String)>,
    /// Whether the certificate may name another host.
    accepts_any_host: bool,
    versions: Versions,
}

/// The versions of TLS that are spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Versions {
    #[default]
    All,
    Tls12,
    Tls13,
}

impl Versions {
    /// Takes `ssl_min_protocol_version` and `ssl_max_protocol_version`.
    fn take_from(parameters: &mut Parameters) -> Result<Self, String> {
        let mut take = |name: &str, accepted: &[&str], restricting: &str| {
            let Some(value) = parameters.remove(name) else {
                return Ok(false);
            };
            let value = value.to_ascii_lowercase();
            if value == restricting {
                return Ok(true);
            }
            if accepted.contains(&value.as_str()) {
                return Ok(false);
            }
            Err(format!(
                "{name} is `{value}`, but Egret speaks TLSv1.2 and TLSv1.3: use one of these"
            ))
        };
        let is_new = take("ssl_min_protocol_version", &["tlsv1", "tlsv1.1", "tlsv1.2"], "tlsv1.3")?;
        let is_old = take("ssl_max_protocol_version", &["tlsv1.3"], "tlsv1.2")?;
        match (is_new, is_old) {
            (true, true) => Err(
                "ssl_min_protocol_version is above ssl_max_protocol_version: no version of TLS is left"
                    .to_owned(),
            ),
            (true, false) => Ok(Self::Tls13),
            (false, true) => Ok(Self::Tls12),
            (false, false) => Ok(Self::All),
        }
    }

    fn protocol_versions(self) -> &'static [&'static SupportedProtocolVersion] {
        static OLD: &[&SupportedProtocolVersion] = &[&TLS12];
        static NEW: &[&SupportedProtocolVersion] = &[&TLS13];
        match self {
            Self::All => ALL_VERSIONS,
            Self::Tls12 => OLD,
            Self::Tls13 => NEW,
        }
    }
}

impl TlsSettings {
    /// Takes the parameters of TLS that tokio-postgres does not know, and leaves `sslmode` as one
    /// that it does.
    ///
    /// # Errors
    /// Which parameter cannot be used.
    pub(super) fn take_from(parameters: &mut Parameters) -> Result<Self, String> {
        let root = parameters.remove("sslrootcert");
        let mode = match parameters.get("sslmode").map(String::as_str) {
            // With certificates to trust, trust is asked for: as libpq has it of `system`.
            None if root.as_deref() == Some("system") => "verify-full",
            None => "prefer",
            Some(mode) => mode,
        };
        let (driver_mode, any_host) = match mode {
            "disable" => ("disable", false),
            "allow" | "prefer" => ("prefer", false),
            "require" | "verify-full" => ("require", false),
            "verify-ca" => ("require", true),
            other => {
                return Err(format!(
                    "sslmode `{other}` is not one of disable, allow, prefer, require, verify-ca \
                     and verify-full"
                ));
            }
        };
        parameters.insert("sslmode".to_owned(), driver_mode.to_owned());
        let client = match (parameters.remove("sslcert"), parameters.remove("sslkey")) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some((certificate, key)),
            _ => return Err("sslcert and sslkey must be set together".to_owned()),
        };
        let settings = Self {
            root_file: root.filter(|root| root != "system"),
            client_files: client,
            accepts_any_host: any_host,
            versions: Versions::take_from(parameters)?,
        };
        Ok(settings)
    }

    pub(super) fn client_config(&self) -> Result<ClientConfig, String> {
        let trusted = match &self.root_file {
            None => TrustedCertificates::from_system(),
            Some(path) => read_certificates(path)?,
        };
        let mut verifier = CertificateVerifier::new(trusted).map_err(|error| error.to_string())?;
        if self.accepts_any_host {
            verifier = verifier.accept_any_host();
        }
        let builder = verifier
            .config_builder(self.versions.protocol_versions())
            .map_err(|error| describe(&error))?;
        let Some((certificate, key)) = &self.client_files else {
            return Ok(builder.with_no_client_auth());
        };
        let chain = CertificateDer::pem_file_iter(certificate)
            .and_then(Iterator::collect)
            .map_err(|error| format!("sslcert {certificate}: {}", describe_file(&error)))?;
        let key = read_key(key)?;
        builder
            .with_client_auth_cert(chain, key)
            .map_err(|error| format!("sslcert {certificate}: {}", describe(&error)))
    }
}

fn read_certificates(path: &str) -> Result<TrustedCertificates, String> {
    let certificates_error = |reason: String| format!("sslrootcert {path}: {reason}");
    let pem = std::fs::read(path).map_err(|error| certificates_error(error.to_string()))?;
    let mut trusted = TrustedCertificates::empty();
    let added = trusted.add_pem(&pem);
    added.map_err(|error| certificates_error(error.to_string()))?;
    Ok(trusted)
}

fn read_key(path: &str) -> Result<PrivateKeyDer<'static>, String> {
    use std::os::unix::fs::MetadataExt;
    let key_error = |reason: String| format!("sslkey {path}: {reason}");
    let metadata =
        std::fs::metadata(Path::new(path)).map_err(|error| key_error(error.to_string()))?;
    // As libpq: root's key may be readable by a group.
    let forbidden_bits = if metadata.uid() == 0 { 0o027 } else { 0o077 };
    if metadata.mode() & forbidden_bits != 0 {
        return Err(key_error("other users can read it: chmod 600 it".to_owned()));
    }
    PrivateKeyDer::from_pem_file(path).map_err(|error| key_error(describe_file(&error)))
}

/// TLS configurations of servers whose connection strings set TLS options.
/// `tokio_postgres::Config`, which engines pass on, cannot hold them, so they are kept by host,
/// port and user.
static CONFIGS: RwLock<Vec<(Server, ClientConfig)>> = RwLock::new(Vec::new());

/// A server and the user of its sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Server {
    hosts: Vec<Host>,
    ports: Vec<u16>,
    user: Option<String>,
}

impl Server {
    fn from_connection(connection: &tokio_postgres::Config) -> Self {
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
pub(super) fn register_config(
    connection: &tokio_postgres::Config,
    settings: &TlsSettings,
) -> Result<(), String> {
    let server = Server::from_connection(connection);
    let is_default = *settings == TlsSettings::default();
    let config = if is_default { None } else { Some(settings.client_config()?) };
    let mut configs = write_lock(&CONFIGS);
    configs.retain(|(other, _)| *other != server);
    configs.extend(config.map(|config| (server, config)));
    Ok(())
}

/// How TLS with a server is to be, where its connection string says it.
pub(super) fn find_config(connection: &tokio_postgres::Config) -> Option<ClientConfig> {
    let server = Server::from_connection(connection);
    let configs = read_lock(&CONFIGS);
    let found = configs.iter().find(|(other, _)| *other == server);
    found.map(|(_, config)| config.clone())
}

/// Certificates are verified against those this machine trusts, unless the connection string names
/// others.
pub(crate) fn tls_config(
    connection: &tokio_postgres::Config,
) -> Result<ClientConfig, PostgresError> {
    if let Some(registered) = find_config(connection) {
        return Ok(registered);
    }
    static CONFIG: OnceLock<Result<ClientConfig, String>> = OnceLock::new();
    let default_config = CONFIG.get_or_init(|| TlsSettings::default().client_config());
    default_config
        .clone()
        .map_err(|reason| PostgresError::Pool { reason: format!("TLS is not usable: {reason}") })
}
