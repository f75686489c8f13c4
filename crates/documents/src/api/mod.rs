//! What the doors call.

mod batch;
mod declare;
mod export;
mod find;
mod follow;
mod fsck;
mod history;
mod identity;
mod import;
mod look;
mod look_around;
mod patch;
mod subscribe;
mod write;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use egret_base::condition::ConditionSet;
use egret_base::lifecycle::{BoxFuture, Readiness, Service, StartError};
use egret_base::{Clock, Entropy, Signer, TaskSink};
use egret_outgoing::Destinations;
use egret_postgres::database_watch::DatabaseWatch;
use egret_postgres::{Databases, PostgresError};
use futures_util::future::join_all;
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

pub use self::batch::{Act, Operation, Refused};
pub use self::declare::{Applied, Outcome};
pub use self::export::Export;
pub use self::find::{Count, Find, Found, PAGE_USUAL, Page, Referring, Shape};
pub use self::follow::{Change, Changes, Following};
pub use self::fsck::{Checked, Finding, Kind as FindingKind};
pub use self::history::Versions;
pub use self::import::{IMPORT_LINES_MAX, Imported};
pub use self::look::Summary;
pub use self::patch::Patch;
pub use self::subscribe::{Subscribed, Subscribing};
pub use crate::store::subscriptions::Destination;

use crate::config::DocumentsConfig;
use crate::core::group::Declared;
use crate::core::rights::{Action, Rights};
use crate::error::DocumentsError;
use crate::metrics::Metrics;
use crate::model::{CollectionName, DocumentId, TenantId};
use crate::store::read::Stored;
use crate::store::{collections, install};
use crate::worker::asker::Asker;
use crate::worker::catalogue::Catalogue;
use crate::worker::follower::Follower;
use crate::worker::ids::Ids;
use crate::worker::keeper::{Keeper, Standing};
use crate::worker::reader::Reader;
use crate::worker::sweeper::Sweeper;
use crate::worker::teller::{Hands, Teller};
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
    /// Who takes tasks for queues, where there are any.
    pub tasks: Option<Arc<dyn TaskSink>>,
    /// Who signs what is posted to subscribers; none: it is not signed.
    pub signer: Option<Arc<dyn Signer>>,
    /// Where webhooks may be.
    pub destinations: Destinations,
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
    /// Looks for databases with documents, …
    watch: DatabaseWatch,
    /// … as long as this task runs.
    watcher: Mutex<Option<(watch::Sender<bool>, JoinHandle<()>)>>,
}

/// The documents of a database.
struct Kept {
    keeper: Arc<Keeper>,
    reader: Arc<Reader>,
    asker: Asker,
    follower: Arc<Follower>,
    teller: Arc<Teller>,
    patches: patch::Turns,
    tasks: Mutex<JoinSet<()>>,
    stopping: watch::Sender<bool>,
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
    /// What he may.
    pub rights: Arc<Rights>,
    /// The request is answered once, however often it comes with this.
    pub idempotency_key: Option<String>,
    /// Whether a crash of the server may take back what is written: it can be repeated.
    pub is_relaxed: bool,
}

/// Whether somebody may see a document of a collection that he may read.
fn is_seen(caller: &Caller, declared: &Declared, stored: &Stored) -> bool {
    let definition = declared.collection.definition();
    caller.rights.is_whole(definition)
        || stored
            .value()
            .is_ok_and(|body| caller.rights.missing(definition, &body).is_none())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Documents {
    /// Registers its metrics; nothing runs before it is started.
    pub fn new(options: Options, registry: &mut Registry) -> Self {
        let faults = ConditionSet::new("documents_databases_unreachable");
        Self {
            inner: Arc::new(Inner {
                watch: DatabaseWatch::new(options.databases.clone(), faults, "documents"),
                options,
                metrics: Metrics::new(registry),
                kept: Mutex::default(),
                watcher: Mutex::default(),
            }),
        }
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
        let declared = kept.declared(caller, Action::Read, collection)?;
        let tenant = self.tenant(&kept, &caller.tenant).await?;
        let found = kept.reader.read((tenant, declared.id), id).await?;
        let found = found.filter(|found| is_seen(caller, &declared, found));
        found.ok_or_else(|| DocumentsError::NotFound {
            collection: collection.clone(),
            id: Some(id),
        })
    }

    /// The number of a tenant in a database.
    async fn tenant(&self, kept: &Kept, name: &str) -> Result<TenantId, DocumentsError> {
        if let Some(known) = kept.keeper.tenants().get(name) {
            return Ok(*known);
        }
        // Rare: boxed, so that the future of every other request stays small.
        Box::pin(async {
            let lent = kept.asker.lend(name).await?;
            let found = collections::tenant(lent.client(), name).await;
            let tenant = lent.end(found).await?;
            kept.keeper.tenants().insert(name.to_owned(), tenant);
            Ok(tenant)
        })
        .await
    }

    /// The documents of the database that somebody means.
    async fn kept(&self, caller: &Caller) -> Result<Arc<Kept>, DocumentsError> {
        {
            let all = lock(&self.inner.kept);
            let mut meant = all.values().filter(|kept| {
                let asked = caller.database.as_ref();
                asked.is_none_or(|name| *name == kept.keeper.database)
            });
            if let (Some(kept), None) = (meant.next(), meant.next())
                && kept.keeper.standing() != Standing::Gone
            {
                return Ok(kept.clone());
            }
        }
        // Rare: boxed, so that the future of every other request stays small.
        Box::pin(self.open_database(caller)).await
    }

    /// Opens the documents of the database that a caller means.
    async fn open_database(&self, caller: &Caller) -> Result<Arc<Kept>, DocumentsError> {
        let _permit = self.inner.options.databases.admit(&caller.tenant).await?;
        let database = self
            .inner
            .options
            .databases
            .choose(caller.database.as_deref())
            .await?;
        let client = match self.inner.options.databases.client(&database).await {
            // As one that does not exist: who may not look into it is not told that it does.
            Err(PostgresError::NoSession { .. })
                if caller.database.is_some() && !self.inner.options.databases.is_remote() =>
            {
                return Err(DocumentsError::NoDocuments { database });
            }
            client => client?,
        };
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
            tasks,
            signer,
            destinations,
        } = &inner.options;
        let hands = Hands {
            tasks: tasks.clone(),
            signer: signer.clone(),
            clock: clock.clone(),
        };
        let client = databases.client(database).await?;
        let catalogue = match Catalogue::read(&client).await {
            Ok(catalogue) => Arc::new(catalogue),
            Err(error) => return Err(install::check_removal(error, databases, database).await),
        };
        let mut all = lock(&inner.kept);
        let known = all.get(database);
        if let Some(kept) = known.filter(|kept| kept.keeper.standing() != Standing::Gone) {
            return Ok(kept.clone());
        }
        let ids = Ids::new(clock.clone(), entropy.clone());
        let writer = Writer::new(config.clone(), inner.metrics.clone(), ids, catalogue);
        let keeper = Keeper::new(database, databases.clone(), config.clone(), writer);
        let reader = Reader::new(database, databases.clone(), config.waiting_max);
        let keeper = Arc::new(keeper);
        let follower = Arc::new(Follower::new(keeper.clone()));
        let kept = Arc::new(Kept {
            teller: Arc::new(Teller::new(
                keeper.clone(),
                follower.clone(),
                hands,
                destinations.clone(),
            )?),
            follower,
            keeper,
            reader: Arc::new(reader),
            asker: Asker::new(database, databases.clone(), config),
            patches: patch::Turns::new(),
            tasks: Mutex::default(),
            stopping: watch::Sender::new(false),
        });
        {
            let mut tasks = lock(&kept.tasks);
            let stopping = || kept.stopping.subscribe();
            tasks.spawn(kept.keeper.clone().keep(stopping()));
            let sweeper = Sweeper {
                keeper: kept.keeper.clone(),
                config: config.clone(),
                clock: clock.clone(),
            };
            tasks.spawn(sweeper.sweep(stopping()));
            tasks.spawn(kept.follower.clone().read(stopping()));
            tasks.spawn(kept.teller.clone().tell(stopping()));
            for _ in 0..config.readers.max(1) {
                tasks.spawn(kept.reader.clone().answer(stopping()));
            }
        }
        all.insert(database.to_owned(), kept.clone());
        Ok(kept)
    }

    /// How many documents a database has; none: it has no collections.
    ///
    /// # Errors
    /// What the server says.
    pub async fn count(&self, database: &str) -> Result<Option<i64>, DocumentsError> {
        let client = self.inner.options.databases.client(database).await?;
        collections::count(&client).await
    }

    /// Keeps a database's documents no more: they are about to go.
    ///
    /// # Errors
    /// [`DocumentsError::DocumentsExist`], unless that is meant; nothing has changed then.
    pub async fn leave(&self, database: &str, force: bool) -> Result<i64, DocumentsError> {
        let documents = self.count(database).await?.unwrap_or(0);
        if documents > 0 && !force {
            let database = database.to_owned();
            return Err(DocumentsError::DocumentsExist {
                database,
                documents,
            });
        }
        let kept = lock(&self.inner.kept).remove(database);
        if let Some(kept) = kept {
            kept.end().await;
        }
        Ok(documents)
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
    /// A collection in which somebody may do this.
    fn declared(
        &self,
        caller: &Caller,
        action: Action,
        collection: &CollectionName,
    ) -> Result<Arc<Declared>, DocumentsError> {
        if !caller.rights.may(action, collection) {
            let action = match action {
                Action::Read => "read",
                Action::Write => "write",
            };
            return Err(DocumentsError::AccessDenied {
                what: format!("the token may not {action} documents of collection `{collection}`"),
            });
        }
        let found = self.keeper.writer.catalogue().declared(collection);
        found.ok_or_else(|| DocumentsError::NoCollection {
            collection: collection.clone(),
        })
    }

    /// Ends what runs for it. What is under way is finished.
    async fn end(&self) {
        self.stopping.send_replace(true);
        let mut tasks = std::mem::take(&mut *lock(&self.tasks));
        while tasks.join_next().await.is_some() {}
    }
}

impl Service for Documents {
    fn name(&self) -> &'static str {
        "documents"
    }

    fn start(&self) -> BoxFuture<'_, Result<(), StartError>> {
        // Databases with documents are found when somebody asks, here those that there are already, and later all others.
        Box::pin(async move {
            self.begin_watch().await;
            Ok(())
        })
    }

    fn ready(&self) -> Readiness {
        self.inner.options.databases.readiness()
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.end_watch().await;
            let all = std::mem::take(&mut *lock(&self.inner.kept));
            join_all(all.values().map(|kept| kept.end())).await;
        })
    }
}
