//! Connections to a server, shared and checked; requests on one connection are pipelined.
//!
//! tokio-postgres sends a request without waiting for the answer of the one before, so that
//! futures joined on one connection travel in one round trip.

use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, RecyclingMethod, Runtime};
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, NoTls, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::error::PostgresError;
use crate::external;

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
        let recycling = ManagerConfig {
            recycling_method: RecyclingMethod::Fast,
        };
        let manager = match connection.get_ssl_mode() {
            // A socket of this machine needs no certificates, and there may be none here.
            SslMode::Disable => Manager::from_config(connection, NoTls, recycling),
            _ => {
                let tls = MakeRustlsConnect::new(external::tls(&connection)?);
                Manager::from_config(connection, tls, recycling)
            }
        };
        let inner = deadpool_postgres::Pool::builder(manager)
            .max_size(connections_max as usize)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(WAIT_MAX))
            .create_timeout(Some(WAIT_MAX))
            .build()
            .map_err(|error| PostgresError::Pool {
                reason: error.to_string(),
            })?;
        Ok(Self { inner })
    }

    /// A connection that was alive when last used.
    ///
    /// # Errors
    /// [`PostgresError::Server`] when the server refuses, [`PostgresError::Pool`] when all are busy
    /// for ten seconds; both are retryable over a restart (see [`crate::retry`]).
    pub async fn get(&self) -> Result<Connection, PostgresError> {
        self.inner.get().await.map_err(|error| match error {
            deadpool_postgres::PoolError::Backend(source) => PostgresError::Server {
                doing: "connect",
                source,
            },
            other => PostgresError::Pool {
                reason: other.to_string(),
            },
        })
    }

    /// Closes every connection; later calls of [`Pool::get`] fail.
    pub fn close(&self) {
        self.inner.close();
    }
}

/// Opens a single connection and drives it on a task of its own.
///
/// # Errors
/// [`PostgresError::Server`].
pub async fn connect(connection: &tokio_postgres::Config) -> Result<Client, PostgresError> {
    match connection.get_ssl_mode() {
        SslMode::Disable => open(connection, NoTls).await,
        _ => {
            open(
                connection,
                MakeRustlsConnect::new(external::tls(connection)?),
            )
            .await
        }
    }
}

async fn open<T>(connection: &tokio_postgres::Config, tls: T) -> Result<Client, PostgresError>
where
    T: MakeTlsConnect<Socket>,
    T::Stream: Send + 'static,
{
    let connected = connection.connect(tls).await;
    let (client, driver) = connected.map_err(crate::error::server("connect"))?;
    tokio::spawn(async move {
        if let Err(error) = driver.await {
            tracing::debug!(error = crate::error::describe(&error), "a connection ended");
        }
    });
    Ok(client)
}
