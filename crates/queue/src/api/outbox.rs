//! Outboxes: `egret.enqueue` in users' databases, which is installed, shown and removed.
//!
//! A service of its own that depends on PostgreSQL; the engine does not.

use std::collections::BTreeMap;

use egret_base::lifecycle::{BoxFuture, FailedPart, Readiness, Service, StartError};
use egret_base::sync::lock;
use egret_postgres::databases::is_database_missing;
use egret_postgres::tokio_postgres::Client;
use egret_postgres::tokio_postgres::error::SqlState;
use egret_postgres::{DatabasesError, PostgresError};

use crate::error::QueueError;
use crate::store::outbox::{self as store, OutboxCounts};
use crate::worker::outbox::handle::Outbox;
use crate::worker::outbox::run_readers;

/// An outbox as operators see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxView {
    /// The database that it is in.
    pub database: String,
    /// Rows of committed transactions that are no tasks yet.
    pub waiting: u64,
    /// How long the oldest of them has waited, in milliseconds.
    pub oldest_ms: Option<u64>,
    /// Rows that the queue refused for good.
    pub rejected: u64,
    /// What its reader does: `reading`, or why it does not.
    pub reader: String,
    /// Queues whose rows are held back, with the reason.
    pub held: BTreeMap<String, String>,
}

/// The outboxes of a server, in order of the databases' names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutboxViews {
    /// One entry for each outbox.
    pub outboxes: Vec<OutboxView>,
    /// Whether there are no others, in databases in which no session can be opened.
    pub is_complete: bool,
}

impl Outbox {
    /// Installs or upgrades `egret.enqueue` in a database, and grants it to roles (`public`: all
    /// roles). Without a name: in the only database there is. Returns the database.
    ///
    /// # Errors
    /// [`PostgresError::DatabaseNotFound`]; [`QueueError::Invalid`] for roles that do not exist,
    /// and where no database is named and there are several; the server's.
    pub async fn install(
        &self,
        database: Option<&str>,
        grant: &[String],
    ) -> Result<String, QueueError> {
        let database = self.inner.databases.choose(database).await?;
        let mut client = self.inner.databases.client(&database).await?;
        // Checked first, so that an unknown role changes nothing.
        if let Some(unknown) = store::find_unknown_roles(&client, grant).await? {
            return Err(QueueError::Invalid {
                what: "grant",
                reason: format!("there is no role {unknown}"),
            });
        }
        store::install(&mut client).await?;
        store::set_limits(&client, self.size_limits()).await?;
        let granted = store::grant(&mut client, grant).await;
        granted.map_err(map_role_error)?;
        tracing::info!(database, "the outbox is installed");
        self.inner.outboxes_changed.notify_one();
        Ok(database)
    }

    /// Removes the outbox of a database; with rows in it only when `force` says so. Returns the
    /// database and how many rows went with it.
    ///
    /// # Errors
    /// [`PostgresError::DatabaseNotFound`], [`QueueError::OutboxNotFound`] and
    /// [`QueueError::OutboxInUse`]; the server's.
    pub async fn remove(
        &self,
        database: Option<&str>,
        force: bool,
    ) -> Result<(String, u64), QueueError> {
        let (database, mut client) = self.connect_to_installed(database).await?;
        let held = store::uninstall(&mut client, |held| {
            if force || held.waiting + held.rejected == 0 {
                return Ok(());
            }
            Err(QueueError::OutboxInUse {
                database: database.clone(),
                waiting: held.waiting,
                rejected: held.rejected,
            })
        })
        .await?;
        tracing::info!(database, "the outbox is removed");
        self.inner.outboxes_changed.notify_one();
        Ok((database, held.waiting + held.rejected))
    }

    /// Queues rows again that the queue had rejected. Returns the database and the number of rows.
    ///
    /// # Errors
    /// [`PostgresError::DatabaseNotFound`] and [`QueueError::OutboxNotFound`]; the server's.
    pub async fn retry_rejected(
        &self,
        database: Option<&str>,
    ) -> Result<(String, u64), QueueError> {
        let (database, client) = self.connect_to_installed(database).await?;
        let rows = store::retry_rejected_rows(&client).await?;
        Ok((database, rows))
    }

    /// Every outbox there is, in order of the databases' names.
    pub async fn list(&self) -> Result<OutboxViews, QueueError> {
        let databases = &self.inner.databases;
        let mut views = OutboxViews {
            is_complete: databases.closed_names().await?.is_empty(),
            outboxes: Vec::new(),
        };
        for database in databases.names().await? {
            match self.view(&database).await {
                Ok(view) => views.outboxes.extend(view),
                Err(QueueError::Postgres(error))
                    if matches!(*error, PostgresError::NoSession { .. }) =>
                {
                    views.is_complete = false;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(views)
    }

    /// The outbox of a database, if that has one.
    pub async fn view(&self, database: &str) -> Result<Option<OutboxView>, QueueError> {
        let Some(mut client) = self.connect_if_installed(database).await? else {
            return Ok(None);
        };
        let counts = match store::check_outbox_owner(&client).await {
            Ok(()) => store::count_rows(&mut client).await?,
            // The status of its reader says why.
            Err(PostgresError::ForeignSchema { .. }) => OutboxCounts::default(),
            Err(error) => return Err(error.into()),
        };
        let (reader, held) = match lock(&self.inner.readers).get(database) {
            Some(reader) => reader.status(),
            None => ("starting".to_owned(), BTreeMap::new()),
        };
        Ok(Some(OutboxView {
            database: database.to_owned(),
            waiting: counts.waiting,
            oldest_ms: counts.oldest_ms,
            rejected: counts.rejected,
            reader,
            held,
        }))
    }

    /// A session in a database, if that has an outbox.
    async fn connect_if_installed(&self, database: &str) -> Result<Option<Client>, QueueError> {
        let client = match self.inner.databases.client(database).await {
            Ok(client) => client,
            // It was dropped meanwhile.
            Err(error) if is_database_missing(&error) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let installed = store::is_installed(&client).await?;
        Ok(installed.then_some(client))
    }

    /// The database of this name, or the only one with an outbox.
    async fn connect_to_installed(
        &self,
        database: Option<&str>,
    ) -> Result<(String, Client), QueueError> {
        let databases = &self.inner.databases;
        let names = match database {
            Some(_) => vec![databases.choose(database).await?],
            None => databases.names().await?,
        };
        let mut found = Vec::new();
        for name in names {
            if let Some(client) = self.connect_if_installed(&name).await? {
                found.push((name, client));
            }
        }
        let names: Vec<String> = found.iter().map(|(name, _)| name.clone()).collect();
        match (found.pop(), found.is_empty()) {
            (Some((name, client)), true) => {
                store::check_outbox_owner(&client).await?;
                Ok((name, client))
            }
            (Some(_), false) => Err(DatabasesError::Several { names }.into()),
            (None, _) => Err(QueueError::OutboxNotFound { database: database.map(str::to_owned) }),
        }
    }
}

/// A role that does not exist is the caller's mistake.
fn map_role_error(error: PostgresError) -> QueueError {
    if let PostgresError::Server { error: server_error, .. } = &error
        && let Some(db_error) = server_error.as_db_error()
        && *db_error.code() == SqlState::UNDEFINED_OBJECT
    {
        return QueueError::Invalid { what: "grant", reason: db_error.message().to_owned() };
    }
    error.into()
}

impl Service for Outbox {
    fn name(&self) -> &'static str {
        "outbox"
    }

    /// Outboxes are found and read in the background; a start does not wait for them.
    fn start(&self) -> BoxFuture<'_, Result<(), StartError>> {
        Box::pin(async move {
            let watcher = tokio::spawn(run_readers(self.clone()));
            *lock(&self.inner.watcher) = Some(watcher);
            Ok(())
        })
    }

    /// Tasks are processed without it, rows of outboxes are not. The list of outboxes says why one
    /// of them is not read.
    fn ready(&self) -> Readiness {
        self.inner.databases.readiness()
    }

    /// Readable without a token: it names no database.
    fn failed_parts(&self) -> Vec<FailedPart> {
        if !self.inner.watch.has_condition() {
            return Vec::new();
        }
        vec![FailedPart {
            part: "outbox/databases".to_owned(),
            reason: "cannot find out which databases have an outbox, because PostgreSQL does not answer: rows may wait in some of them"
                .to_owned(),
            remedy: "check PostgreSQL and the condition outbox_databases_unreachable; Egret retries by itself"
                .to_owned(),
        }]
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.inner.stopping.send_replace(true);
            let watcher = lock(&self.inner.watcher).take();
            if let Some(watcher) = watcher
                && let Err(error) = watcher.await
            {
                tracing::error!(%error, "the outbox watcher panicked");
            }
        })
    }
}
