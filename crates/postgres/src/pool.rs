//! Connections to a server, shared and checked; requests on one connection are pipelined.
//!
//! tokio-postgres sends a request without waiting for the answer of the one before, so that
//! futures joined on one connection travel in one round trip.

use std::time::Duration;

use deadpool_postgres::{Hook, HookError, Manager, ManagerConfig, RecyclingMethod, Runtime};
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, NoTls, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::error::PostgresError;
use crate::external::tls;
use crate::hosts;
use crate::session_settings;

/// How long opening a session may take where the connection does not say.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a caller waits for a connection to become free.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// A pool of connections to one database.
#[derive(Clone)]
pub struct Pool {
    inner: deadpool_postgres::Pool,
}

/// A connection on loan from a [`Pool`].
pub type Connection = deadpool_postgres::Object;

impl Pool {
    /// A pool of at most `connections_max` connections, opened as they are needed.
    ///
    /// # Errors
    /// [`PostgresError::Pool`] when it cannot be built.
    pub fn new(
        connection: tokio_postgres::Config,
        connections_max: u32,
    ) -> Result<Self, PostgresError> {
        let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let pin_config = connection.clone();
        let manager = match connection.get_ssl_mode() {
            // A socket of this machine needs no certificates, and there may be none here.
            SslMode::Disable => Manager::from_config(connection, NoTls, recycling),
            _ => {
                let tls = MakeRustlsConnect::new(tls::tls_config(&connection)?);
                Manager::from_config(connection, tls, recycling)
            }
        };
        let inner = deadpool_postgres::Pool::builder(manager)
            .max_size(connections_max as usize)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(WAIT_MAX))
            .create_timeout(Some(WAIT_MAX))
            .post_create(Hook::async_fn(move |client, _| {
                let connection = pin_config.clone();
                Box::pin(async move {
                    let set = session_settings::apply(&connection, client).await;
                    set.map_err(|error| HookError::message(error.to_string()))
                })
            }))
            .build()
            .map_err(|error| PostgresError::Pool { reason: error.to_string() })?;
        Ok(Self { inner })
    }

    /// A connection that was alive when last used.
    ///
    /// # Errors
    /// [`PostgresError::Server`] when the server refuses, [`PostgresError::Pool`] when all are busy
    /// for ten seconds; both are retryable over a restart (see [`crate::retry`]).
    pub async fn get(&self) -> Result<Connection, PostgresError> {
        self.inner.get().await.map_err(|error| match error {
            deadpool_postgres::PoolError::Backend(error) => {
                PostgresError::Server { doing: "connect", error }
            }
            other => PostgresError::Pool { reason: other.to_string() },
        })
    }

    /// Closes every connection; later calls of [`Pool::get`] fail.
    pub fn close(&self) {
        self.inner.close();
    }
}

/// Opens a session with Egret's settings, whatever its database's owner has set, and drives it on a
/// task of its own.
///
/// # Errors
/// [`PostgresError::Server`]; [`PostgresError::NoHost`] of several hosts;
/// [`PostgresError::ConnectTimeout`].
pub async fn connect(connection: &tokio_postgres::Config) -> Result<Client, PostgresError> {
    connect_until(connection, std::future::pending()).await
}

/// Opens a session as [`connect`] does, whose connection is dropped as soon as `end` is over: what
/// waits for an answer fails then. The driver alone keeps the connection of a server that gives
/// none, also when the session is dropped.
///
/// # Errors
/// Those of [`connect`].
pub(crate) async fn connect_until(
    connection: &tokio_postgres::Config,
    end: impl Future<Output = ()> + Send + 'static,
) -> Result<Client, PostgresError> {
    within_timeout(connection, async {
        let client = open(connection, end).await?;
        session_settings::apply(connection, &client).await?;
        Ok(client)
    })
    .await
}

/// Opens a session with the settings that its database and role have for every user: names mean
/// there what they mean to users. Statements of Egret do not belong into one.
///
/// # Errors
/// Those of [`connect`].
pub async fn connect_with_defaults(
    connection: &tokio_postgres::Config,
) -> Result<Client, PostgresError> {
    connect_with_defaults_until(connection, std::future::pending()).await
}

/// Opens a session as [`connect_with_defaults`] does, whose connection ends as that of
/// [`connect_until`].
///
/// # Errors
/// Those of [`connect`].
pub(crate) async fn connect_with_defaults_until(
    connection: &tokio_postgres::Config,
    end: impl Future<Output = ()> + Send + 'static,
) -> Result<Client, PostgresError> {
    within_timeout(connection, open(connection, end)).await
}

/// Bounds the time in which a session is opened: `connect_timeout` of the connection for each
/// address of its hosts, as the driver tries one after the other, and once more for what follows.
///
/// # Errors
/// What `opening` answers; [`PostgresError::ConnectTimeout`].
pub(crate) async fn within_timeout<T>(
    connection: &tokio_postgres::Config,
    opening: impl Future<Output = Result<T, PostgresError>>,
) -> Result<T, PostgresError> {
    let per_address = connection.get_connect_timeout().copied().unwrap_or(CONNECT_TIMEOUT);
    let addresses = tokio::time::timeout(per_address, count_addresses(connection)).await;
    let timeout = per_address * addresses.unwrap_or(1).saturating_add(1);
    match tokio::time::timeout(timeout, opening).await {
        Ok(result) => result,
        Err(_) => Err(PostgresError::ConnectTimeout { timeout }),
    }
}

/// Bounds the time of a request to a server, which may freeze at any moment.
///
/// # Errors
/// Those of `asking`; [`PostgresError::AnswerTimeout`].
pub async fn within_answer_time<T, E: From<PostgresError>>(
    timeout: Duration,
    doing: &'static str,
    request: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    match tokio::time::timeout(timeout, request).await {
        Ok(answer) => answer,
        Err(_) => Err(PostgresError::AnswerTimeout { doing, timeout }.into()),
    }
}

/// How many addresses the hosts of a connection have; one for a name that cannot be resolved.
async fn count_addresses(connection: &tokio_postgres::Config) -> u32 {
    let address_count = connection.get_hostaddrs().len();
    if address_count > 0 {
        return u32::try_from(address_count).unwrap_or(u32::MAX);
    }
    let mut count = 0_u32;
    for host in connection.get_hosts() {
        let addresses = match host {
            Host::Tcp(name) => tokio::net::lookup_host((name.as_str(), 0)).await,
            Host::Unix(_) => {
                count = count.saturating_add(1);
                continue;
            }
        };
        let addresses = addresses.map_or(1, |addresses| addresses.count().max(1));
        count = count.saturating_add(u32::try_from(addresses).unwrap_or(u32::MAX));
    }
    count.max(1)
}

async fn open(
    connection: &tokio_postgres::Config,
    end: impl Future<Output = ()> + Send + 'static,
) -> Result<Client, PostgresError> {
    match connection.get_ssl_mode() {
        SslMode::Disable => open_over(connection, NoTls, end).await,
        _ => {
            let tls = MakeRustlsConnect::new(tls::tls_config(connection)?);
            open_over(connection, tls, end).await
        }
    }
}

async fn open_over<T>(
    connection: &tokio_postgres::Config,
    tls: T,
    end: impl Future<Output = ()> + Send + 'static,
) -> Result<Client, PostgresError>
where
    T: MakeTlsConnect<Socket> + Clone,
    T::Stream: Send + 'static,
{
    let (client, driver) = hosts::connect(connection, tls).await?;
    tokio::spawn(async move {
        tokio::select! {
            ended = driver => {
                if let Err(error) = ended {
                    tracing::debug!(error = crate::error::describe(&error), "a connection ended");
                }
            }
            () = end => tracing::debug!("a connection is dropped"),
        }
    });
    Ok(client)
}
