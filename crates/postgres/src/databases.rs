//! The databases that an engine may work in: every one of a server of Egret's own, or the one that
//! a connection string names.

mod session_health;

use std::sync::Arc;
use std::time::Duration;

use egret_base::lifecycle::{BoxFuture, Readiness};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config};

use crate::config::PostgresConfig;
use crate::error::{PostgresError, server_error};
use crate::external;
use crate::hosts::MAINTENANCE;
use crate::listen::{self, ListeningSession};
use crate::pool;
use crate::slots::{Slot, TenantSlots};
use session_health::SessionHealth;

/// Databases that can be connected to, templates left out.
pub const CONNECTABLE_DATABASES: &str = "SELECT datname::text FROM pg_catalog.pg_database \
     WHERE datallowconn AND NOT datistemplate ORDER BY 1";

/// Databases that do not accept connections, templates left out.
const CLOSED_DATABASES: &str = "SELECT datname::text FROM pg_catalog.pg_database \
     WHERE NOT datallowconn AND NOT datistemplate ORDER BY 1";

/// How long a request waits for a session.
const SESSION_WAIT_MAX: Duration = Duration::from_secs(5);

/// What requests of tenants may have of sessions. All engines share it.
pub type RequestSessions = TenantSlots<String>;

/// A request's right to work in sessions until it is dropped.
pub type SessionPermit = Slot<String>;

/// Slots for the sessions of requests, as many as the settings allow.
pub fn request_sessions(config: &PostgresConfig) -> RequestSessions {
    TenantSlots::new("postgres.pool_connections_max", config.pool_connections_max)
}

/// The databases that an engine may work in. Cheap to clone.
///
/// Each engine has its own value, because the `application_name` of its sessions is the engine's
/// name.
#[derive(Clone)]
pub struct Databases {
    connect: Arc<dyn Fn(&str) -> Config + Send + Sync>,
    /// The only database, if there is just one.
    only_database: Option<String>,
    /// Whether the server can be reached.
    readiness: Arc<dyn Fn() -> Readiness + Send + Sync>,
    /// Returns when the server does not answer any more.
    loss: Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>,
    /// Whether the server opens sessions.
    health: Arc<SessionHealth>,
    sessions: RequestSessions,
}

/// Why there is no database to work in. Messages about a name are meant to follow `database:`, and
/// name no other one: not every caller may know the other names.
#[derive(Debug, thiserror::Error)]
pub enum DatabasesError {
    /// No database has this name.
    #[error("`{asked}` does not exist")]
    Unknown {
        /// The name that was asked for.
        asked: String,
        /// Names of the existing databases.
        names: Vec<String>,
    },
    /// No name was given, and there are several databases.
    #[error("there are several databases: choose one with --database, in the API with `database`")]
    Several {
        /// Names of the databases to choose from.
        names: Vec<String>,
    },
    /// The databases could not be listed.
    #[error(transparent)]
    Postgres(#[from] PostgresError),
}

impl DatabasesError {
    /// The message for callers that may know all databases of the server.
    pub fn with_names(&self) -> String {
        match self {
            Self::Unknown { names, .. } => format!("{self}; there are: {}", names.join(", ")),
            Self::Several { names } => format!("{self}: {}", names.join(", ")),
            Self::Postgres(_) => self.to_string(),
        }
    }
}

impl Databases {
    /// Every database of a server of Egret's own; `connect` makes the connection settings of one.
    pub fn all(connect: impl Fn(&str) -> Config + Send + Sync + 'static) -> Self {
        Self {
            connect: Arc::new(connect),
            only_database: None,
            readiness: Arc::new(|| Readiness::Ready),
            loss: Arc::new(never_lost),
            health: Arc::default(),
            sessions: request_sessions(&PostgresConfig::default()),
        }
    }

    /// The database that a connection string names, of an external server.
    pub fn single(connection: Config) -> Self {
        let configured = connection.get_dbname().or(connection.get_user());
        let name = configured.unwrap_or(MAINTENANCE).to_owned();
        Self {
            connect: Arc::new(move |_| connection.clone()),
            only_database: Some(name),
            readiness: Arc::new(|| Readiness::Ready),
            loss: Arc::new(never_lost),
            health: Arc::default(),
            sessions: request_sessions(&PostgresConfig::default()),
        }
    }

    /// Reports the readiness of the server by `readiness`.
    #[must_use]
    pub fn with_readiness(
        mut self,
        readiness: impl Fn() -> Readiness + Send + Sync + 'static,
    ) -> Self {
        self.readiness = Arc::new(readiness);
        self
    }

    /// Adds a future that completes when the server no longer answers: its sessions then end, with
    /// all that waits in them. No limit of the server's own ends a wait for a server that is
    /// frozen.
    #[must_use]
    pub fn with_loss<F>(mut self, loss: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.loss = Arc::new(move || -> BoxFuture<'static, ()> { Box::pin(loss()) });
        self
    }

    /// Uses slots for the sessions of requests that other engines share.
    #[must_use]
    pub fn with_sessions(mut self, sessions: RequestSessions) -> Self {
        self.sessions = sessions;
        self
    }

    /// Waits for a slot and lets a request of a tenant work in sessions. One slot is enough for any
    /// number of sessions that are opened one after the other.
    ///
    /// # Errors
    /// [`PostgresError::SessionsTaken`].
    pub async fn admit(&self, tenant: &str) -> Result<SessionPermit, PostgresError> {
        let permit = self.sessions.take(tenant.to_owned(), SESSION_WAIT_MAX);
        Ok(permit.await?)
    }

    /// Whether the server can be reached and opens sessions, for parts that do nothing without it.
    pub fn readiness(&self) -> Readiness {
        let reason = match (self.readiness)() {
            Readiness::Ready => match self.health.refusal() {
                None => return Readiness::Ready,
                Some(refusal) => format!("it opens no session: {refusal}"),
            },
            Readiness::NotReady(reason) | Readiness::Failed(reason) => reason,
        };
        Readiness::NotReady(format!("PostgreSQL: {reason}"))
    }

    /// Connection settings for one of the databases.
    pub fn connection(&self, database: &str) -> Config {
        (self.connect)(database)
    }

    /// Whether a pooler that swaps sessions may be between Egret and the server.
    pub fn is_remote(&self) -> bool {
        self.only_database.is_some()
    }

    /// Names of all databases that accept connections, sorted.
    pub async fn names(&self) -> Result<Vec<String>, PostgresError> {
        match &self.only_database {
            Some(only) => Ok(vec![only.clone()]),
            None => list(&self.maintenance_client().await?).await,
        }
    }

    /// Names of the databases that accept no connections, sorted.
    pub async fn closed_names(&self) -> Result<Vec<String>, PostgresError> {
        match self.only_database {
            Some(_) => Ok(Vec::new()),
            None => query_names(&self.maintenance_client().await?, CLOSED_DATABASES).await,
        }
    }

    /// Whether a database exists and accepts no connections.
    pub async fn is_closed(&self, database: &str) -> Result<bool, PostgresError> {
        Ok(self.closed_names().await?.iter().any(|name| name == database))
    }

    /// The database asked for, also one that accepts no connections; else the only one besides the
    /// server's own.
    ///
    /// # Errors
    /// [`DatabasesError`].
    pub async fn choose(&self, requested: Option<&str>) -> Result<String, DatabasesError> {
        let names = self.names().await?;
        if let Some(asked) = requested
            && !names.iter().any(|name| name == asked)
            && self.is_closed(asked).await?
        {
            return Ok(asked.to_owned());
        }
        choose(requested, names)
    }

    /// Opens a session in one of the databases, with Egret's settings.
    ///
    /// # Errors
    /// [`PostgresError::NotRunning`] while an external server is not ready;
    /// [`PostgresError::NoSession`]; the server's; [`is_database_missing`] tells whether there is
    /// no such database.
    pub async fn client(&self, database: &str) -> Result<Client, PostgresError> {
        let loss = (self.loss)();
        self.check_reachable()?;
        let opened = pool::connect_until(&self.connection(database), loss).await;
        self.observe_session(&opened);
        let named = self.only_database.as_deref().unwrap_or(database);
        opened.map_err(|error| error.in_database(named))
    }

    /// Opens a session in one of the databases that listens on a channel.
    ///
    /// # Errors
    /// Those of [`Self::client`]; [`PostgresError::TransactionMode`] behind a pooler in that mode.
    pub async fn connect_listening(
        &self,
        database: &str,
        channel: &str,
    ) -> Result<ListeningSession, PostgresError> {
        let loss = (self.loss)();
        self.check_reachable()?;
        let connection = self.connection(database);
        let opening = async {
            if self.is_remote() {
                // A pooler in transaction mode passes on no notification.
                external::connect(&connection).await?;
            }
            listen::connect_listening(&connection, channel, loss).await
        };
        let opened = opening.await;
        self.observe_session(&opened);
        opened
    }

    /// Reacts to a failed attempt to open a session: a probe then checks whether the server opens
    /// sessions at all.
    fn observe_session<T>(&self, opened: &Result<T, PostgresError>) {
        let Err(error) = opened else { return };
        let is_missing_database = !self.is_remote() && is_database_missing(error);
        if !is_missing_database {
            let (connect, readiness) = (self.connect.clone(), self.readiness.clone());
            let connection = move || match readiness() {
                Readiness::Ready => Some(connect(MAINTENANCE)),
                Readiness::NotReady(_) | Readiness::Failed(_) => None,
            };
            session_health::start_probe(&self.health, connection);
        }
    }

    /// Opens a session as [`Self::client`] does; `None` if the database does not exist, for
    /// instance because it was dropped meanwhile.
    ///
    /// # Errors
    /// Those of [`Self::client`].
    pub async fn client_if_exists(&self, database: &str) -> Result<Option<Client>, PostgresError> {
        match self.client(database).await {
            Err(error) if is_database_missing(&error) => Ok(None),
            client => client.map(Some),
        }
    }

    /// Opens a session for work on the whole server: in the only database, or in the one that every
    /// server has.
    ///
    /// # Errors
    /// Those of [`Self::client`].
    pub async fn maintenance_client(&self) -> Result<Client, PostgresError> {
        self.client(MAINTENANCE).await
    }

    /// Refuses sessions on an external server while Egret has not taken its lock: what stands
    /// between may have changed, and be a pooler that gives sessions with Egret's settings to
    /// others.
    fn check_reachable(&self) -> Result<(), PostgresError> {
        match (self.readiness)() {
            Readiness::NotReady(reason) | Readiness::Failed(reason) if self.is_remote() => {
                Err(PostgresError::NotRunning { reason })
            }
            _ => Ok(()),
        }
    }
}

/// Loss of a server that is not watched: never completes.
fn never_lost() -> BoxFuture<'static, ()> {
    Box::pin(std::future::pending())
}

fn choose(requested: Option<&str>, mut names: Vec<String>) -> Result<String, DatabasesError> {
    if let Some(asked) = requested {
        let asked = asked.to_owned();
        return if names.contains(&asked) {
            Ok(asked)
        } else {
            Err(DatabasesError::Unknown { asked, names })
        };
    }
    if names.len() > 1 {
        names.retain(|name| name != MAINTENANCE);
    }
    match names.len() {
        1 => Ok(names.remove(0)),
        _ => Err(DatabasesError::Several { names }),
    }
}

/// The names of all databases of a server that can be connected to, in order; templates are left
/// out.
pub async fn list(client: &Client) -> Result<Vec<String>, PostgresError> {
    query_names(client, CONNECTABLE_DATABASES).await
}

async fn query_names(client: &Client, sql: &str) -> Result<Vec<String>, PostgresError> {
    let rows = client.query(sql, &[]).await.map_err(server_error("list the databases"))?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// Whether a connection failed because the database is not there.
pub fn is_database_missing(error: &PostgresError) -> bool {
    let (PostgresError::Server { error, .. } | PostgresError::NoHost { error, .. }) = error else {
        return false;
    };
    error.code() == Some(&SqlState::UNDEFINED_DATABASE)
}

#[cfg(test)]
mod tests;
