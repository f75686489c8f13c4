//! Outboxes: `egret.enqueue` in users' databases, installed, looked at and removed.
//!
//! A service of its own, above PostgreSQL: the engine needs none of it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use egret_base::condition::ConditionSet;
use egret_base::lifecycle::{BoxFuture, FailedPart, Readiness, Service, StartError};
use egret_postgres::database_watch::DatabaseWatch;
use egret_postgres::databases::is_gone;
use egret_postgres::lock_owner::LockOwner;
use egret_postgres::tokio_postgres::Client;
use egret_postgres::tokio_postgres::error::SqlState;
use egret_postgres::{Databases, DatabasesError, PostgresError};
use prometheus_client::registry::Registry;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use super::{Queues, lock};
use crate::error::QueueError;
use crate::store::outbox::{self as store, Counts, SizeLimits};
use crate::worker::outbox::metrics::OutboxMetrics;
use crate::worker::outbox::{Reader, watch_over};

/// Is told before each step that changes something outside the process, so that tests can end it there.
pub trait OutboxSteps: Send + Sync {
    /// The step comes next: `enqueue`, `delete` or `reject`.
    fn before(&self, step: &'static str);
}

/// Nobody wants to know.
struct Unwatched;

impl OutboxSteps for Unwatched {
    fn before(&self, _: &'static str) {}
}

/// The outboxes of a server. Cheap to clone.
#[derive(Clone)]
pub struct Outbox {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub queues: Queues,
    pub databases: Databases,
    /// Who has the locks of the readers.
    pub lock_owner: LockOwner,
    pub metrics: OutboxMetrics,
    pub steps: Arc<dyn OutboxSteps>,
    /// Who reads which database.
    pub readers: Mutex<BTreeMap<String, Reader>>,
    /// Looks for outboxes.
    pub watch: DatabaseWatch,
    /// There may be a new outbox, or one less.
    pub changed: Notify,
    pub stopping: watch::Sender<bool>,
    watcher: Mutex<Option<JoinHandle<()>>>,
}

/// An outbox as people see it.
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
    /// The outboxes.
    pub outboxes: Vec<OutboxView>,
    /// Whether there are no others, in databases in which no session can be opened.
    pub are_all: bool,
}

impl Outbox {
    /// The outboxes in these databases, whose rows become tasks of `queues`.
    pub fn new(queues: Queues, databases: Databases, registry: &mut Registry) -> Self {
        Self::with_steps(queues, databases, registry, Arc::new(Unwatched))
    }

    /// The same, with somebody who is told of every step.
    pub fn with_steps(
        queues: Queues,
        databases: Databases,
        registry: &mut Registry,
        steps: Arc<dyn OutboxSteps>,
    ) -> Self {
        let faults = ConditionSet::new("outbox_databases_unreachable");
        let watch = DatabaseWatch::new(databases.clone(), faults, "outboxes");
        Self {
            inner: Arc::new(Inner {
                queues,
                databases,
                lock_owner: LockOwner::unique(),
                metrics: OutboxMetrics::new(registry),
                steps,
                readers: Mutex::default(),
                watch,
                changed: Notify::new(),
                stopping: watch::Sender::new(false),
                watcher: Mutex::default(),
            }),
        }
    }

    /// Makes `egret.enqueue` in a database, or brings it up to date, and lets roles use it (`public`:
    /// everybody). Without a name: in the only database there is. Returns the database.
    ///
    /// # Errors
    /// [`PostgresError::DatabaseNotFound`]; [`QueueError::Invalid`] for roles that do not exist, and where no database is
    /// named and there are several; the server's.
    pub async fn install(
        &self,
        database: Option<&str>,
        grant: &[String],
    ) -> Result<String, QueueError> {
        let database = self.inner.databases.choose(database).await?;
        let mut client = self.inner.databases.client(&database).await?;
        // Before anything is made.
        if let Some(unknown) = store::unknown_roles(&client, grant).await? {
            return Err(QueueError::Invalid {
                what: "grant",
                reason: format!("there is no role {unknown}"),
            });
        }
        store::install(&mut client).await?;
        store::set_limits(&client, self.size_limits()).await?;
        let granted = store::grant(&mut client, grant).await;
        granted.map_err(unknown_role)?;
        tracing::info!(database, "the outbox is installed");
        self.inner.changed.notify_one();
        Ok(database)
    }

    /// The names of the queues that exist and rows may be for.
    pub(crate) fn queue_names(&self) -> Vec<String> {
        let queues = &self.inner.queues.inner;
        let known = queues.queues.read().unwrap_or_else(PoisonError::into_inner);
        let own = known.get(queues.config.outbox_tenant.as_str());
        own.map_or_else(Vec::new, |own| {
            own.keys().map(ToString::to_string).collect()
        })
    }

    /// How many these are.
    pub(crate) fn queue_count(&self) -> usize {
        let queues = &self.inner.queues.inner;
        let known = queues.queues.read().unwrap_or_else(PoisonError::into_inner);
        let own = known.get(queues.config.outbox_tenant.as_str());
        own.map_or(0, |own| own.len())
    }

    pub(crate) fn size_limits(&self) -> SizeLimits {
        let config = self.inner.queues.config();
        SizeLimits {
            payload_bytes_max: config.payload_bytes_max.bytes(),
            chain_bytes_max: config.chain_bytes_max.bytes(),
        }
    }

    /// Removes the outbox of a database; with rows in it only when `force` says so. Returns the
    /// database and how many rows went with it.
    ///
    /// # Errors
    /// [`PostgresError::DatabaseNotFound`], [`QueueError::OutboxNotFound`] and [`QueueError::OutboxInUse`]; the server's.
    pub async fn remove(
        &self,
        database: Option<&str>,
        force: bool,
    ) -> Result<(String, u64), QueueError> {
        let (database, mut client) = self.installed(database).await?;
        let held = store::uninstall(&mut client, |held| {
            if force || held.waiting + held.rejected == 0 {
                return Ok(());
            }
            Err(QueueError::OutboxInUse {
                database: database.clone(),
                waiting: held.waiting,
                rejected: held.rejected,
            })
        });
        let held = held.await?;
        tracing::info!(database, "the outbox is removed");
        self.inner.changed.notify_one();
        Ok((database, held.waiting + held.rejected))
    }

    /// Hands rows over again that the queue had refused. Returns the database and how many.
    ///
    /// # Errors
    /// [`PostgresError::DatabaseNotFound`] and [`QueueError::OutboxNotFound`]; the server's.
    pub async fn retry_rejected(
        &self,
        database: Option<&str>,
    ) -> Result<(String, u64), QueueError> {
        let (database, client) = self.installed(database).await?;
        let rows = store::retry(&client).await?;
        Ok((database, rows))
    }

    /// Every outbox there is, in order of the databases' names.
    ///
    /// # Errors
    /// The server's.
    pub async fn list(&self) -> Result<OutboxViews, QueueError> {
        let databases = &self.inner.databases;
        let mut views = OutboxViews {
            are_all: databases.closed().await?.is_empty(),
            outboxes: Vec::new(),
        };
        for database in databases.names().await? {
            match self.show(&database).await {
                Ok(view) => views.outboxes.extend(view),
                Err(QueueError::Postgres(error))
                    if matches!(*error, PostgresError::NoSession { .. }) =>
                {
                    views.are_all = false;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(views)
    }

    /// The outbox of a database, if that has one.
    ///
    /// # Errors
    /// The server's.
    pub async fn show(&self, database: &str) -> Result<Option<OutboxView>, QueueError> {
        let Some(mut client) = self.outbox_in(database).await? else {
            return Ok(None);
        };
        let counts = match store::check(&client).await {
            Ok(()) => store::counts(&mut client).await?,
            // Its reader says why.
            Err(PostgresError::ForeignSchema { .. }) => Counts::default(),
            Err(error) => return Err(error.into()),
        };
        let (reader, held) = match lock(&self.inner.readers).get(database) {
            Some(reader) => reader.told(),
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
    async fn outbox_in(&self, database: &str) -> Result<Option<Client>, QueueError> {
        let client = match self.inner.databases.client(database).await {
            Ok(client) => client,
            // It was dropped meanwhile.
            Err(error) if is_gone(&error) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let installed = store::is_installed(&client).await?;
        Ok(installed.then_some(client))
    }

    /// The database of this name, or the only one with an outbox.
    async fn installed(&self, database: Option<&str>) -> Result<(String, Client), QueueError> {
        let databases = &self.inner.databases;
        let names = match database {
            Some(_) => vec![databases.choose(database).await?],
            None => databases.names().await?,
        };
        let mut found = Vec::new();
        for name in names {
            if let Some(client) = self.outbox_in(&name).await? {
                found.push((name, client));
            }
        }
        let names: Vec<String> = found.iter().map(|(name, _)| name.clone()).collect();
        match (found.pop(), found.is_empty()) {
            (Some((name, client)), true) => {
                store::check(&client).await?;
                Ok((name, client))
            }
            (Some(_), false) => Err(DatabasesError::Several { names }.into()),
            (None, _) => Err(QueueError::OutboxNotFound {
                database: database.map(str::to_owned),
            }),
        }
    }
}

/// A role that does not exist is the caller's mistake.
fn unknown_role(error: PostgresError) -> QueueError {
    if let PostgresError::Server { error: refusal, .. } = &error
        && let Some(answer) = refusal.as_db_error()
        && *answer.code() == SqlState::UNDEFINED_OBJECT
    {
        return QueueError::Invalid {
            what: "grant",
            reason: answer.message().to_owned(),
        };
    }
    error.into()
}

impl Service for Outbox {
    fn name(&self) -> &'static str {
        "outbox"
    }

    /// Outboxes are looked for and read behind; nothing waits for them.
    fn start(&self) -> BoxFuture<'_, Result<(), StartError>> {
        Box::pin(async move {
            let watcher = tokio::spawn(watch_over(self.clone()));
            *lock(&self.inner.watcher) = Some(watcher);
            Ok(())
        })
    }

    /// Tasks keep coming and going without it, rows of outboxes do not. The list of outboxes says what one of them lacks.
    fn ready(&self) -> Readiness {
        self.inner.databases.readiness()
    }

    /// Without a token one learns no more of a database than this.
    fn failed_parts(&self) -> Vec<FailedPart> {
        if !self.inner.watch.has_condition() {
            return Vec::new();
        }
        vec![FailedPart {
            part: "outbox/databases".to_owned(),
            reason: "it is not known which databases have an outbox, for PostgreSQL does not answer: rows of some may wait"
                .to_owned(),
            remedy: "look at PostgreSQL and at the condition outbox_databases_unreachable; Egret tries again by itself"
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
                tracing::error!(%error, "the watch over the outboxes ended badly");
            }
        })
    }
}
