//! Connections to the PostgreSQL that is measured: for load and for preparation.

mod session;
mod wire;

use anyhow::{Context, Result, anyhow};
use egret_tls::{CertificateVerifier, TrustedCertificates};
use rustls::ALL_VERSIONS;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::{Client, Config, Error};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::refusal;

pub use session::Session;
pub use wire::{Fault, Wire};

/// How to connect: read once, used for every connection.
#[derive(Clone)]
pub(crate) struct ConnectionTarget {
    config: Config,
    tls: Option<MakeRustlsConnect>,
}

impl ConnectionTarget {
    /// Reads a connection string, of URL or keyword form.
    ///
    /// # Errors
    /// When it is none; the message does not repeat it, since it may hold a password.
    pub(crate) fn parse(url: &str) -> Result<Self> {
        let mut config: Config = url.parse().map_err(|error: Error| {
            refusal::usage(format!(
                "the connection string cannot be read: {}: write for example postgres://user@host:5432/database",
                error_chain(&error)
            ))
        })?;
        if config.get_application_name().is_none() {
            config.application_name("egret/bench");
        }
        let is_encrypted = match config.get_ssl_mode() {
            SslMode::Disable => false,
            // What stays on this machine needs no certificates, and there may be none here.
            SslMode::Prefer => !is_local(&config),
            _ => true,
        };
        let tls = if is_encrypted { Some(tls_connector()?) } else { None };
        Ok(Self { config, tls })
    }

    /// Whether the server is reached through a socket or the loopback address.
    pub(crate) fn is_local(&self) -> bool {
        is_local(&self.config)
    }

    /// Connects for load.
    ///
    /// # Errors
    /// The server's, or that it cannot be reached.
    pub(crate) async fn connect_for_load(&self) -> Result<Wire, Fault> {
        Wire::connect(&self.config, self.tls.as_ref()).await
    }

    /// Connects for preparation, with a task that drives the connection.
    ///
    /// # Errors
    /// [`Refusal::Unreachable`](crate::Refusal), or the server's refusal.
    pub(crate) async fn connect_client(&self) -> Result<Client> {
        let session = self.connect_session().await;
        Ok(session.map_err(|error| self.connection_error(&error.into()))?.into_client())
    }

    /// Why there is no connection, with an exit code of its own for a server that does not answer.
    pub(crate) fn connection_error(&self, fault: &Fault) -> anyhow::Error {
        let (address, message) = (address_of(&self.config), &fault.message);
        match fault.code {
            Some(_) => anyhow!("the PostgreSQL at {address} refuses: {message}"),
            None => refusal::unreachable(format!("no PostgreSQL answers at {address}: {message}")),
        }
    }
}

/// Whether a server is reached through a socket or the loopback address.
fn is_local(config: &Config) -> bool {
    config.get_hosts().iter().all(|host| match host {
        Host::Tcp(name) => {
            name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
        }
        Host::Unix(_) => true,
    })
}

/// Host and port, without anything secret.
fn address_of(config: &Config) -> String {
    let hosts: Vec<String> = config
        .get_hosts()
        .iter()
        .map(|host| match host {
            Host::Tcp(name) => name.clone(),
            Host::Unix(path) => path.display().to_string(),
        })
        .collect();
    let port = config.get_ports().first().copied().unwrap_or(5432);
    format!("{}:{port}", hosts.join(","))
}

/// An error with its causes in one line.
pub(crate) fn error_chain(error: &(dyn std::error::Error + 'static)) -> String {
    let errors = std::iter::successors(Some(error), |error| error.source());
    let mut texts: Vec<String> = Vec::new();
    for text in errors.map(ToString::to_string) {
        // Some errors repeat their cause.
        if !texts.iter().any(|earlier| earlier.contains(&text)) {
            texts.push(text);
        }
    }
    texts.join(": ")
}

/// Certificates are verified against those this machine trusts.
fn tls_connector() -> Result<MakeRustlsConnect> {
    let verifier = CertificateVerifier::new(TrustedCertificates::from_system());
    let builder = verifier.context("TLS is not usable")?.config_builder(ALL_VERSIONS);
    let config = builder.context("TLS is not usable")?.with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}
