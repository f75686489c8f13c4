//! What the doors call.

mod batch;
mod declare;
mod find;
mod follow;
mod look;
mod patch;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use egret_base::lifecycle::{BoxFuture, Readiness, Service, StartError};
use egret_base::{Clock, Entropy};
use egret_postgres::Databases;
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tokio::task::JoinSet;

pub use self::batch::{Act, Operation, Refused};
pub use self::declare::{Applied, Outcome};
pub use self::find::{Count, Find, Found, PAGE_USUAL, Page, Referring, Shape};
pub use self::follow::{Change, Changes, Following};
pub use self::look::Summary;
pub use self::patch::Patch;

use crate::config::DocumentsConfig;
use crate::core::decide::Condition;
use crate::core::group::{Asked, Declared, What};
use crate::error::DocumentsError;
use crate::metrics::Metrics;
use crate::model::{CollectionName, DocumentId, TenantId, Written};
use crate::store::read::Stored;
use crate::store::{collections, install};
use crate::worker::asker::Asker;
use crate::worker::catalogue::Catalogue;
use crate::worker::ids::Ids;
use crate::worker::keeper::{Keeper, Standing};
use crate::worker::reader::Reader;
use crate::worker::writer::Writer;

/// What the engine is made of.
pub struct Options {
    /// The settings.
    pub config: DocumentsConfig,
    /// Where documents may be.
    pub databases: Databases,
    /// Wall-clock time.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub entropy: Arc<dyn Entropy>,
}

/// The engine. Cheap to clone.
#[derive(Clone)]
pub struct Documents {
    inner: Arc<Inner>,
}

struct Inner {
    options: Options,
    metrics: Metrics,
    kept: Mutex<BTreeMap<String, Arc<Kept>>>,
    tasks: Mutex<JoinSet<()>>,
    stopping: watch::Sender<bool>,
}

/// The documents of a database.
struct Kept {
    keeper: Arc<Keeper>,
    reader: Arc<Reader>,
    asker: Asker,
    tenants: Mutex<BTreeMap<String, TenantId>>,
}

/// Who asks, and where.
#[derive(Clone, Debug, Default)]
pub struct Caller {
    /// The database; without it the only one that has documents.
    pub database: Option<String>,
    /// Whose documents.
    pub tenant: String,
    /// Who asks.
    pub author: Option<String>,
    /// The request, as its trace calls it.
    pub trace: Option<String>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Documents {
    /// Registers its metrics; nothing runs before it is started.
    pub fn new(options: Options, registry: &mut Registry) -> Self {
        Self {
            inner: Arc::new(Inner {
                options,
                metrics: Metrics::new(registry),
                kept: Mutex::default(),
                tasks: Mutex::default(),
                stopping: watch::Sender::new(false),
            }),
        }
    }

    /// Puts a document where one of its identity is, or as a new one.
    ///
    /// # Errors
    /// [`DocumentsError`]: nothing has changed then.
    pub async fn upsert(
        &self,
        caller: &Caller,
        collection: &CollectionName,
        body: &[u8],
        condition: Condition,
    ) -> Result<Written, DocumentsError> {
        self.put(caller, (collection, None), body, condition).await
    }

    /// Puts a document in the place of another.
    ///
    /// # Errors
    /// [`DocumentsError`]: nothing has changed then.
    pub async fn replace(
        &self,
        caller: &Caller,
        (collection, id): (&CollectionName, DocumentId),
        body: &[u8],
        condition: Condition,
    ) -> Result<Written, DocumentsError> {
        self.put(caller, (collection, Some(id)), body, condition)
            .await
    }

    async fn put(
        &self,
        caller: &Caller,
        (collection, id): (&CollectionName, Option<DocumentId>),
        body: &[u8],
        condition: Condition,
    ) -> Result<Written, DocumentsError> {
        let kept = self.kept(caller).await?;
        let declared = kept.declared(collection)?;
        let draft = declared.collection.read(body, self.document_bytes_max())?;
        let what = What::Put(id, Box::new(draft));
        self.write(&kept, caller, declared, what, condition).await
    }

    fn document_bytes_max(&self) -> usize {
        self.inner.options.config.document_bytes_max.bytes() as usize
    }

    /// Deletes a document to which nothing refers.
    ///
    /// # Errors
    /// [`DocumentsError`]: nothing has changed then.
    pub async fn delete(
        &self,
        caller: &Caller,
        (collection, id): (&CollectionName, DocumentId),
        condition: Condition,
    ) -> Result<Written, DocumentsError> {
        let kept = self.kept(caller).await?;
        let declared = kept.declared(collection)?;
        self.write(&kept, caller, declared, What::Remove(id), condition)
            .await
    }

    async fn write(
        &self,
        kept: &Kept,
        caller: &Caller,
        declared: Arc<Declared>,
        what: What,
        condition: Condition,
    ) -> Result<Written, DocumentsError> {
        let asked = Asked {
            tenant: self.tenant(kept, &caller.tenant).await?,
            declared,
            what,
            condition,
            author: caller.author.clone(),
            trace: caller.trace.clone(),
        };
        kept.keeper.writer.write(asked).await
    }

    /// A document.
    ///
    /// # Errors
    /// [`DocumentsError::NotFound`], and what the server says.
    pub async fn get(
        &self,
        caller: &Caller,
        (collection, id): (&CollectionName, DocumentId),
    ) -> Result<Stored, DocumentsError> {
        let kept = self.kept(caller).await?;
        let declared = kept.declared(collection)?;
        let tenant = self.tenant(&kept, &caller.tenant).await?;
        let found = kept.reader.read((tenant, declared.id), id).await?;
        found.ok_or_else(|| DocumentsError::NotFound {
            collection: collection.clone(),
            id: Some(id),
        })
    }

    /// The number of a tenant in a database.
    async fn tenant(&self, kept: &Kept, name: &str) -> Result<TenantId, DocumentsError> {
        if let Some(known) = lock(&kept.tenants).get(name) {
            return Ok(*known);
        }
        let client = self
            .inner
            .options
            .databases
            .client(&kept.keeper.database)
            .await?;
        let tenant = collections::tenant(&client, name).await?;
        lock(&kept.tenants).insert(name.to_owned(), tenant);
        Ok(tenant)
    }

    /// The documents of the database that somebody means.
    async fn kept(&self, caller: &Caller) -> Result<Arc<Kept>, DocumentsError> {
        {
            let all = lock(&self.inner.kept);
            let mut meant = all.values().filter(|kept| {
                let asked = caller.database.as_ref();
                asked.is_none_or(|name| *name == kept.keeper.database)
            });
            if let (Some(kept), None) = (meant.next(), meant.next()) {
                return Ok(kept.clone());
            }
        }
        let database = self
            .inner
            .options
            .databases
            .choose(caller.database.as_deref())
            .await?;
        let client = self.inner.options.databases.client(&database).await?;
        match install::is_installed(&client).await? {
            true => self.keep(&database).await,
            false => Err(DocumentsError::NoDocuments { database }),
        }
    }

    /// Begins to keep the documents of a database in which the engine's part of schema `egret` is.
    async fn keep(&self, database: &str) -> Result<Arc<Kept>, DocumentsError> {
        let inner = &self.inner;
        let Options {
            config,
            databases,
            clock,
            entropy,
        } = &inner.options;
        let client = databases.client(database).await?;
        let catalogue = Arc::new(Catalogue::read(&client).await?);
        let tenants = collections::tenants(&client).await?;
        let mut all = lock(&inner.kept);
        if let Some(kept) = all.get(database) {
            return Ok(kept.clone());
        }
        let ids = Ids::new(clock.clone(), entropy.clone());
        let writer = Writer::new(config.clone(), inner.metrics.clone(), ids, catalogue);
        let keeper = Keeper::new(database, databases.clone(), config.clone(), writer);
        let reader = Reader::new(database, databases.clone(), config.waiting_max);
        let kept = Arc::new(Kept {
            keeper: Arc::new(keeper),
            reader: Arc::new(reader),
            asker: Asker::new(
                database,
                databases.clone(),
                (config.queries, config.query_timeout),
            ),
            tenants: Mutex::new(tenants),
        });
        let mut tasks = lock(&inner.tasks);
        tasks.spawn(kept.keeper.clone().keep(inner.stopping.subscribe()));
        for _ in 0..config.readers.max(1) {
            tasks.spawn(kept.reader.clone().answer(inner.stopping.subscribe()));
        }
        all.insert(database.to_owned(), kept.clone());
        Ok(kept)
    }

    /// Whether this Egret writes the documents of the databases that it knows.
    pub fn standings(&self) -> BTreeMap<String, Standing> {
        let all = lock(&self.inner.kept);
        let each = all
            .iter()
            .map(|(name, kept)| (name.clone(), kept.keeper.standing()));
        each.collect()
    }
}

impl Kept {
    fn declared(&self, collection: &CollectionName) -> Result<Arc<Declared>, DocumentsError> {
        let found = self.keeper.writer.catalogue().declared(collection);
        found.ok_or_else(|| DocumentsError::NoCollection {
            collection: collection.clone(),
        })
    }
}

impl Service for Documents {
    fn name(&self) -> &'static str {
        "documents"
    }

    fn start(&self) -> BoxFuture<'_, Result<(), StartError>> {
        // Databases with documents are found when somebody asks, and here those that there are already.
        Box::pin(async move {
            let databases = &self.inner.options.databases;
            let names = databases.names().await.unwrap_or_default();
            for name in names {
                let found = async {
                    let client = databases.client(&name).await?;
                    match install::is_installed(&client).await? {
                        true => self.keep(&name).await.map(|_| ()),
                        false => Ok(()),
                    }
                };
                if let Err(error) = found.await {
                    tracing::warn!(%error, database = name, "it cannot be seen whether there are documents");
                }
            }
            Ok(())
        })
    }

    fn ready(&self) -> Readiness {
        Readiness::Ready
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.inner.stopping.send_replace(true);
            let mut tasks = std::mem::take(&mut *lock(&self.inner.tasks));
            while tasks.join_next().await.is_some() {}
        })
    }
}
