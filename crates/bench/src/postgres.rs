//! A connection that is driven by whoever uses it.
//!
//! tokio-postgres wants a task of its own for what is read and written. Then every statement crosses
//! between two tasks four times, which at tens of microseconds per statement is a good part of what
//! is measured. Here the one future polls both.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use anyhow::{Context, Result, anyhow};
use rustls_platform_verifier::BuilderVerifierExt;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::{Client, Config, Error, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::refusal;

/// One connection.
pub struct Session {
    client: Client,
    driver: Driver,
}

/// What reads and writes; ends when the connection does.
type Driver = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

/// How to connect: read once, used for every connection.
#[derive(Clone)]
pub struct Target {
    config: Config,
    tls: Option<MakeRustlsConnect>,
}

impl Target {
    /// Reads a connection string, of URL or keyword form.
    ///
    /// # Errors
    /// When it is none; the message does not repeat it, since it may hold a password.
    pub fn parse(url: &str) -> Result<Self> {
        let mut config: Config = url.parse().map_err(|error: Error| {
            refusal::usage(format!(
                "the connection string cannot be read: {}: write for example postgres://user@host:5432/database",
                chain(&error)
            ))
        })?;
        if config.get_application_name().is_none() {
            config.application_name("egret/bench");
        }
        let encrypted = match config.get_ssl_mode() {
            SslMode::Disable => false,
            // What stays on this machine needs no certificates, and there may be none here.
            SslMode::Prefer => !is_local(&config),
            _ => true,
        };
        let tls = if encrypted { Some(tls()?) } else { None };
        Ok(Self { config, tls })
    }

    /// Whether the server is reached through a socket or the loopback address.
    pub fn is_local(&self) -> bool {
        is_local(&self.config)
    }

    /// Connects for load.
    ///
    /// # Errors
    /// The server's, or that it cannot be reached.
    pub async fn session(&self) -> Result<Session, Error> {
        let (client, driver): (Client, Driver) = match &self.tls {
            None => {
                let (client, driver) = self.config.connect(NoTls).await?;
                (client, Box::pin(driver))
            }
            Some(tls) => {
                let (client, driver) = self.config.connect(tls.clone()).await?;
                (client, Box::pin(driver))
            }
        };
        Ok(Session { client, driver })
    }

    /// Connects for preparation, with a task that drives the connection.
    ///
    /// # Errors
    /// [`Refusal::Unreachable`](crate::Refusal), or the server's refusal.
    pub async fn client(&self) -> Result<Client> {
        let session = self.session().await.map_err(|error| self.lost(&error))?;
        // How it ended is told to the client.
        tokio::spawn(session.driver);
        Ok(session.client)
    }

    /// Why there is no connection, with an exit code of its own for a server that does not answer.
    pub fn lost(&self, error: &Error) -> anyhow::Error {
        let place = place(&self.config);
        match error.as_db_error() {
            Some(refused) => anyhow!("the PostgreSQL at {place} refuses: {}", refused.message()),
            None => refusal::unreachable(format!(
                "no PostgreSQL answers at {place}: {}",
                chain(error)
            )),
        }
    }
}

impl Session {
    /// Does something with the client while the connection is driven.
    ///
    /// # Errors
    /// What the work says; an end of the connection is told to the work by the client.
    pub async fn with<'a, T, F>(
        &'a mut self,
        work: impl FnOnce(&'a Client) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>> + 'a,
    {
        let Self { client, driver } = self;
        let mut work = pin!(work(client));
        let mut ended = false;
        poll_fn(|context| {
            // First the work, which may have something to send, then the connection, which sends it and
            // may have an answer, and then the work once more to take that.
            if let Poll::Ready(done) = work.as_mut().poll(context) {
                return Poll::Ready(done);
            }
            if !ended {
                ended = driver.as_mut().poll(context).is_ready();
            }
            work.as_mut().poll(context)
        })
        .await
    }

    /// Whether the server has gone away.
    pub fn is_closed(&self) -> bool {
        self.client.is_closed()
    }
}

/// Whether a server is reached through a socket or the loopback address.
fn is_local(config: &Config) -> bool {
    config.get_hosts().iter().all(|host| match host {
        Host::Tcp(name) => {
            name == "localhost"
                || name
                    .parse::<std::net::IpAddr>()
                    .is_ok_and(|ip| ip.is_loopback())
        }
        Host::Unix(_) => true,
    })
}

/// Host and port, without anything secret.
fn place(config: &Config) -> String {
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
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let all = std::iter::successors(Some(error), |error| error.source());
    let mut texts: Vec<String> = Vec::new();
    for text in all.map(ToString::to_string) {
        // Some errors repeat their cause.
        if texts.last().is_none_or(|last| !last.ends_with(&text)) {
            texts.push(text);
        }
    }
    texts.join(": ")
}

/// Certificates are verified against those this machine trusts.
fn tls() -> Result<MakeRustlsConnect> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_platform_verifier())
        .context("TLS is not usable")?;
    Ok(MakeRustlsConnect::new(config.with_no_client_auth()))
}
