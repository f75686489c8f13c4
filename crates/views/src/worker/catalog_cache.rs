//! Cache of a database's registry of views, so that not every refresh queries it.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use egret_base::sync::lock;
use egret_postgres::tokio_postgres::Client;

use super::session::Session;
use crate::error::ViewsError;
use crate::model::ViewName;
use crate::store::install;
use crate::store::record::Record;
use crate::store::registry;

/// How long the check that schema `egret` is Egret's own stays valid. It is repeated twice as
/// often, with the list of views.
const REGISTRY_CHECK_TTL: Duration = Duration::from_secs(10);

/// How long the list of views stays valid: another Egret process may change it.
const VIEWS_TTL: Duration = Duration::from_secs(5);

/// Cached registry: the table of views, and its rows.
#[derive(Default)]
pub struct CatalogCache {
    /// Number of the table of views, with the time at which it was found to be Egret's own.
    registry_oid: Mutex<Option<(u32, Instant)>>,
    views: Mutex<ViewList>,
}

#[derive(Default)]
struct ViewList {
    /// Number of times the list was discarded.
    generation: u64,
    records: Option<(Instant, Arc<Vec<Record>>)>,
}

impl CatalogCache {
    /// The number of the table of views, if it exists; checks that it is Egret's own.
    ///
    /// # Errors
    /// [`ViewsError::Postgres`] if another program created schema `egret`.
    pub async fn check_registry(&self, client: &Client) -> Result<Option<u32>, ViewsError> {
        let checked = install::find_registry_oid(client).await;
        let registry_oid = checked.as_ref().ok().copied().flatten();
        *lock(&self.registry_oid) = registry_oid.map(|table| (table, Instant::now()));
        checked
    }

    /// The number of the table of views, if it was checked within the last seconds.
    pub(crate) fn cached_registry_oid(&self) -> Option<u32> {
        let cached = lock(&self.registry_oid).filter(|(_, at)| at.elapsed() < REGISTRY_CHECK_TTL);
        cached.map(|(table, _)| table)
    }

    /// The number of the table of views; checks it again if the last check is too old.
    ///
    /// # Errors
    /// [`ViewsError::Postgres`] if another program created schema `egret`.
    pub(crate) async fn registry_oid(&self, client: &Client) -> Result<Option<u32>, ViewsError> {
        match self.cached_registry_oid() {
            Some(table) => Ok(Some(table)),
            None => self.check_registry(client).await,
        }
    }

    /// Has the table of views checked before its next use.
    pub(crate) fn invalidate_registry_oid(&self) {
        *lock(&self.registry_oid) = None;
    }

    /// Discards the list of views after a change.
    pub(crate) fn invalidate_views(&self) {
        let mut views = lock(&self.views);
        views.generation += 1;
        views.records = None;
    }

    /// All views, from the cache if it has `view` among them. The other records may be seconds old:
    /// the refresh itself sees that a view has been suspended, and a new view that missed a refresh
    /// is rebuilt.
    pub(crate) async fn views_including(
        &self,
        session: &mut Session,
        view: i64,
    ) -> Result<Arc<Vec<Record>>, ViewsError> {
        let cached = lock(&self.views).records.clone();
        match cached {
            Some((at, views))
                if at.elapsed() < VIEWS_TTL && views.iter().any(|record| record.id == view) =>
            {
                Ok(views)
            }
            _ => self.read_views(session).await,
        }
    }

    /// The cached record of the view with this name, if there is one.
    pub(crate) fn cached_view(&self, name: &ViewName) -> Option<Record> {
        self.cached_registry_oid()?;
        let views = lock(&self.views);
        let (read_at, views) = views.records.as_ref()?;
        let found = views.iter().find(|record| record.name == *name);
        found.filter(|_| read_at.elapsed() < VIEWS_TTL).cloned()
    }

    /// Reads all views from the registry.
    pub async fn read_views(&self, session: &mut Session) -> Result<Arc<Vec<Record>>, ViewsError> {
        let generation = lock(&self.views).generation;
        let read_at = Instant::now();
        let Session { client, statements } = session;
        let records = Arc::new(registry::list_records_prepared(client, statements).await?);
        let mut views = lock(&self.views);
        // A change during the read may not be in the result.
        if views.generation == generation {
            views.records = Some((read_at, records.clone()));
        }
        Ok(records)
    }
}
