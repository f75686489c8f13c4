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
const SEEN: Duration = Duration::from_secs(10);

/// How long the list of views stays valid: another Egret process may change it.
const READ: Duration = Duration::from_secs(5);

/// Cached registry: the table of views, and its rows.
#[derive(Default)]
pub struct CatalogCache {
    /// Number of the table of views, with the time at which it was found to be Egret's own.
    table: Mutex<Option<(u32, Instant)>>,
    views: Mutex<ViewList>,
}

#[derive(Default)]
struct ViewList {
    /// Number of times the list was discarded.
    generation: u64,
    read: Option<(Instant, Arc<Vec<Record>>)>,
}

impl CatalogCache {
    /// The number of the table of views, if it exists; checks that it is Egret's own.
    ///
    /// # Errors
    /// [`ViewsError::Postgres`] if another program created schema `egret`.
    pub async fn inspect(&self, client: &Client) -> Result<Option<u32>, ViewsError> {
        let found = install::is_installed(client).await;
        let seen = found.as_ref().ok().copied().flatten();
        *lock(&self.table) = seen.map(|table| (table, Instant::now()));
        found
    }

    /// The number of the table of views, if it was checked within the last seconds.
    pub fn table(&self) -> Option<u32> {
        let seen = lock(&self.table).filter(|(_, at)| at.elapsed() < SEEN);
        seen.map(|(table, _)| table)
    }

    /// The number of the table of views; checks it again if the last check is too old.
    ///
    /// # Errors
    /// [`ViewsError::Postgres`] if another program created schema `egret`.
    pub(crate) async fn table_now(&self, client: &Client) -> Result<Option<u32>, ViewsError> {
        match self.table() {
            Some(table) => Ok(Some(table)),
            None => self.inspect(client).await,
        }
    }

    /// Has the table of views checked before its next use.
    pub(crate) fn invalidate_table(&self) {
        *lock(&self.table) = None;
    }

    /// Discards the list of views after a change.
    pub fn invalidate(&self) {
        let mut views = lock(&self.views);
        views.generation += 1;
        views.read = None;
    }

    /// All views, from the cache if it has `view` among them. The other records may be seconds old:
    /// the refresh itself sees that a view has been suspended, and a new view that missed a refresh
    /// is rebuilt.
    pub(crate) async fn views_with(
        &self,
        session: &mut Session,
        view: i64,
    ) -> Result<Arc<Vec<Record>>, ViewsError> {
        let read = lock(&self.views).read.clone();
        match read {
            Some((at, views))
                if at.elapsed() < READ && views.iter().any(|record| record.id == view) =>
            {
                Ok(views)
            }
            _ => self.views(session).await,
        }
    }

    /// The cached record of the view with this name, if there is one.
    pub(crate) fn view_named(&self, name: &ViewName) -> Option<Record> {
        self.table()?;
        let views = lock(&self.views);
        let (at, views) = views.read.as_ref()?;
        let found = views.iter().find(|record| record.name == *name);
        found.filter(|_| at.elapsed() < READ).cloned()
    }

    /// Reads all views from the registry.
    pub async fn views(&self, session: &mut Session) -> Result<Arc<Vec<Record>>, ViewsError> {
        let generation = lock(&self.views).generation;
        let at = Instant::now();
        let Session { client, statements } = session;
        let read = Arc::new(registry::records_prepared(client, statements).await?);
        let mut views = lock(&self.views);
        // A change during the read may not be in the result.
        if views.generation == generation {
            views.read = Some((at, read.clone()));
        }
        Ok(read)
    }
}
