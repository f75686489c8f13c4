//! The engine: the open databases, and start and stop.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use egret_base::condition::ConditionSet;
use egret_base::lifecycle::{BoxFuture, Readiness, Service, StartError};
use egret_base::sync::lock;
use egret_base::{Clock, Entropy, Signer, TaskSink};
use egret_outgoing::Destinations;
use egret_postgres::database_watch::DatabaseWatch;
use egret_postgres::{Databases, PostgresError};
use futures_util::future::join_all;
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::caller::{Caller, is_visible};
use super::database::DatabaseHandle;
use super::patch_locks::PatchLocks;
use crate::config::DocumentsConfig;
use crate::core::rights::Action;
use crate::error::DocumentsError;
use crate::metrics::Metrics;
use crate::model::{CollectionName, DocumentId, TenantId};
use crate::store::read::StoredDocument;
use crate::store::{collections, install};
use crate::worker::batched_reader::BatchedReader;
use crate::worker::catalogue::Catalogue;
use crate::worker::commit::writer::Writer;
use crate::worker::feed_tailer::FeedTailer;
use crate::worker::ids::IdGenerator;
use crate::worker::ownership::{OwnershipManager, OwnershipState};
use crate::worker::query_sessions::QuerySessionPool;
use crate::worker::subscription_dispatch::{DeliveryChannels, SubscriptionDispatcher};

/// Settings and dependencies of the engine.
pub struct Options {
    /// Settings of section `documents`.
    pub config: DocumentsConfig,
    /// Databases that may have documents.
    pub databases: Databases,
    /// Source of wall-clock time.
    pub clock: Arc<dyn Clock>,
    /// Source of random bytes for ids.
    pub entropy: Arc<dyn Entropy>,
    /// Queue engine that takes changes as tasks; none: deliveries to queues fail.
    pub tasks: Option<Arc<dyn TaskSink>>,
    /// Signer of webhook requests; none: they are not signed.
    pub signer: Option<Arc<dyn Signer>>,
    /// Addresses to which webhooks may be sent.
    pub destinations: Destinations,
}

/// Handle of the documents engine; clones share one engine.
#[derive(Clone)]
pub struct Documents {
    pub(super) inner: Arc<EngineState>,
}

pub(super) struct EngineState {
    pub(super) options: Options,
    metrics: Metrics,
    pub(super) handles: Mutex<BTreeMap<String, Arc<DatabaseHandle>>>,
    /// Finds databases with documents.
    pub(super) watch: DatabaseWatch,
    /// Stop signal and task of `watch`, while it runs.
    pub(super) watcher: Mutex<Option<(watch::Sender<bool>, JoinHandle<()>)>>,
}

impl Documents {
    /// Creates the engine and registers its metrics. It does no work before it is started.
    pub fn new(options: Options, registry: &mut Registry) -> Self {
        let conditions = ConditionSet::new("documents_databases_unreachable");
        Self {
            inner: Arc::new(EngineState {
                watch: DatabaseWatch::new(options.databases.clone(), conditions, "documents"),
                options,
                metrics: Metrics::new(registry),
                handles: Mutex::default(),
                watcher: Mutex::default(),
            }),
        }
    }

    /// Returns a document by its id.
    ///
    /// # Errors
    /// [`DocumentsError::NotFound`]: there is no such document, or the caller may not see it.
    pub async fn get(
        &self,
        caller: &Caller,
        collection: &CollectionName,
        id: DocumentId,
    ) -> Result<StoredDocument, DocumentsError> {
        let handle = self.handle(caller).await?;
        let declared = handle.authorized_collection(caller, Action::Read, collection)?;
        let tenant = self.resolve_tenant(&handle, &caller.tenant).await?;
        let stored = handle.reader.read(tenant, declared.id, id).await?;
        let found = stored.filter(|found| is_visible(caller, &declared, found));
        found.ok_or_else(|| DocumentsError::NotFound {
            collection: collection.clone(),
            id: Some(id),
        })
    }

    /// Number of a tenant in a database, from the cache if possible.
    pub(super) async fn resolve_tenant(
        &self,
        handle: &DatabaseHandle,
        name: &str,
    ) -> Result<TenantId, DocumentsError> {
        if let Some(known) = handle.ownership.tenants().get(name) {
            return Ok(*known);
        }
        // Rare: boxed, so that the future of every other request stays small.
        Box::pin(async {
            let session = handle.queries.acquire(name).await?;
            let result = collections::get_or_create_tenant(session.client(), name).await;
            let tenant = session.finish(result).await?;
            handle.ownership.tenants().insert(name.to_owned(), tenant);
            Ok(tenant)
        })
        .await
    }

    /// Handle of the database that the caller addresses, which is opened if necessary.
    pub(super) async fn handle(
        &self,
        caller: &Caller,
    ) -> Result<Arc<DatabaseHandle>, DocumentsError> {
        {
            let handles = lock(&self.inner.handles);
            let mut matching = handles.values().filter(|handle| {
                let requested = caller.database.as_ref();
                requested.is_none_or(|name| *name == handle.ownership.database)
            });
            if let (Some(handle), None) = (matching.next(), matching.next())
                && handle.ownership.state() != OwnershipState::Removed
            {
                return Ok(handle.clone());
            }
        }
        // Rare: boxed, so that the future of every other request stays small.
        Box::pin(self.open_database(caller)).await
    }

    /// Opens the documents of the database that the caller addresses.
    async fn open_database(&self, caller: &Caller) -> Result<Arc<DatabaseHandle>, DocumentsError> {
        let _permit = self.inner.options.databases.admit(&caller.tenant).await?;
        let database = self.inner.options.databases.choose(caller.database.as_deref()).await?;
        let client = match self.inner.options.databases.client(&database).await {
            // Answered like a database without documents: a caller without access must not learn
            // that the database exists.
            Err(PostgresError::NoSession { .. })
                if caller.database.is_some() && !self.inner.options.databases.is_remote() =>
            {
                return Err(DocumentsError::NoDocuments { database });
            }
            client => client?,
        };
        if install::is_installed(&client).await? {
            self.open_handle(&database).await
        } else {
            Err(DocumentsError::NoDocuments { database })
        }
    }

    /// Returns the handle of a database in which the engine's part of schema `egret` is installed,
    /// and starts its tasks if it is new.
    pub(super) async fn open_handle(
        &self,
        database: &str,
    ) -> Result<Arc<DatabaseHandle>, DocumentsError> {
        let inner = &self.inner;
        let Options { config, databases, clock, entropy, tasks, signer, destinations } =
            &inner.options;
        let channels =
            DeliveryChannels { tasks: tasks.clone(), signer: signer.clone(), clock: clock.clone() };
        let mut client = databases.client(database).await?;
        install::upgrade(&mut client).await?;
        let catalogue = match Catalogue::read(&client).await {
            Ok(catalogue) => Arc::new(catalogue),
            Err(error) => return Err(install::check_removal(error, databases, database).await),
        };
        let mut handles = lock(&inner.handles);
        let existing = handles.get(database);
        if let Some(handle) =
            existing.filter(|handle| handle.ownership.state() != OwnershipState::Removed)
        {
            return Ok(handle.clone());
        }
        let ids = IdGenerator::new(clock.clone(), entropy.clone());
        let writer = Writer::new(config.clone(), inner.metrics.clone(), ids, catalogue);
        let ownership = OwnershipManager::new(database, databases.clone(), config.clone(), writer);
        let ownership = Arc::new(ownership);
        let reader = BatchedReader::new(database, databases.clone(), config.waiting_max);
        let feed = Arc::new(FeedTailer::new(ownership.clone()));
        let subscriptions = SubscriptionDispatcher::new(
            ownership.clone(),
            feed.clone(),
            channels,
            destinations.clone(),
        )?;
        let handle = Arc::new(DatabaseHandle {
            subscriptions: Arc::new(subscriptions),
            feed,
            ownership,
            reader: Arc::new(reader),
            queries: QuerySessionPool::new(database, databases.clone(), config),
            patch_locks: PatchLocks::new(),
            tasks: Mutex::default(),
            stopping: watch::Sender::new(false),
        });
        handle.start_tasks(config, clock);
        handles.insert(database.to_owned(), handle.clone());
        Ok(handle)
    }

    /// Number of documents in a database; none: it has no collections.
    pub async fn count(&self, database: &str) -> Result<Option<i64>, DocumentsError> {
        let client = self.inner.options.databases.client(database).await?;
        collections::count(&client).await
    }

    /// Closes the documents of a database that is about to be dropped. Returns how many there are.
    ///
    /// # Errors
    /// [`DocumentsError::DocumentsExist`]: there are documents and `force` is not set; nothing was
    /// closed.
    pub async fn close_database(&self, database: &str, force: bool) -> Result<i64, DocumentsError> {
        let documents = self.count(database).await?.unwrap_or(0);
        if documents > 0 && !force {
            let database = database.to_owned();
            return Err(DocumentsError::DocumentsExist { database, documents });
        }
        let handle = lock(&self.inner.handles).remove(database);
        if let Some(handle) = handle {
            handle.stop().await;
        }
        Ok(documents)
    }

    /// Ownership of the open databases: whether this Egret writes their documents.
    pub fn ownership_states(&self) -> BTreeMap<String, OwnershipState> {
        let handles = lock(&self.inner.handles);
        let states = handles.iter().map(|(name, handle)| (name.clone(), handle.ownership.state()));
        states.collect()
    }
}

impl Service for Documents {
    fn name(&self) -> &'static str {
        "documents"
    }

    fn start(&self) -> BoxFuture<'_, Result<(), StartError>> {
        // Finds the databases that have documents now; others are opened on request or by the
        // periodic search.
        Box::pin(async move {
            self.start_watch().await;
            Ok(())
        })
    }

    fn ready(&self) -> Readiness {
        self.inner.options.databases.readiness()
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.stop_watch().await;
            let handles = std::mem::take(&mut *lock(&self.inner.handles));
            join_all(handles.values().map(|handle| handle.stop())).await;
        })
    }
}
