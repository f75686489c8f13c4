//! What is known of the views of a database for a moment, so that it is not asked for with every refresh.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use egret_postgres::tokio_postgres::Client;

use super::keeper::{Keeper, lock};
use super::session::Session;
use crate::error::ViewsError;
use crate::model::ViewName;
use crate::store::install::{self, install};
use crate::store::registry::{self, Record};

/// For so long nobody is expected to have changed whose schema `egret` is: it is looked at twice as often.
const SEEN: Duration = Duration::from_secs(10);

/// For so long the list of views is taken for what it was, where no other Egret changes it.
const READ: Duration = Duration::from_secs(5);

/// See the module.
#[derive(Default)]
pub struct Known {
    /// The table of views, of which it was seen then that it is Egret's own.
    table: Mutex<Option<(u32, Instant)>>,
    views: Mutex<List>,
}

#[derive(Default)]
struct List {
    /// How often it was given up.
    given_up: u64,
    read: Option<(Instant, Arc<Vec<Record>>)>,
}

impl Known {
    /// The table of views, if there is one: looks whether it is Egret's own.
    ///
    /// # Errors
    /// What the server says, and that somebody else has made schema `egret`.
    pub async fn inspect(&self, client: &Client) -> Result<Option<u32>, ViewsError> {
        let found = install::is_installed(client).await;
        let seen = found.as_ref().ok().copied().flatten();
        *lock(&self.table) = seen.map(|table| (table, Instant::now()));
        found
    }

    /// The table of views, of which it was seen a moment ago that it is Egret's own.
    pub fn table(&self) -> Option<u32> {
        let seen = lock(&self.table).filter(|(_, at)| at.elapsed() < SEEN);
        seen.map(|(table, _)| table)
    }

    /// The same; looks for it where that was too long ago.
    ///
    /// # Errors
    /// What the server says, and that somebody else has made schema `egret`.
    pub async fn table_now(&self, client: &Client) -> Result<Option<u32>, ViewsError> {
        match self.table() {
            Some(table) => Ok(Some(table)),
            None => self.inspect(client).await,
        }
    }

    /// Has it looked for before it is used again.
    pub fn doubt(&self) {
        *lock(&self.table) = None;
    }

    /// Gives up the list of views: something has changed.
    pub fn give_up(&self) {
        let mut views = lock(&self.views);
        views.given_up += 1;
        views.read = None;
    }

    /// All views, with this one among them if it is there. Others may be as they were a moment ago: that one has been suspended since is
    /// seen where it is refreshed, and one that is new is computed anew if it was not told of a refresh.
    ///
    /// # Errors
    /// What the server says.
    pub async fn views_with(
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

    /// The view with a name, as it was a moment ago, if it was there.
    pub fn view_named(&self, name: &ViewName) -> Option<Record> {
        self.table()?;
        let views = lock(&self.views);
        let (at, views) = views.read.as_ref()?;
        let found = views.iter().find(|record| record.name == *name);
        found.filter(|_| at.elapsed() < READ).cloned()
    }

    /// All views.
    ///
    /// # Errors
    /// What the server says.
    pub async fn views(&self, session: &mut Session) -> Result<Arc<Vec<Record>>, ViewsError> {
        let given_up = lock(&self.views).given_up;
        let at = Instant::now();
        let Session { client, statements } = session;
        let read = Arc::new(registry::prepared_records(client, statements).await?);
        let mut views = lock(&self.views);
        // What changed while it was read may not be in it.
        if views.given_up == given_up {
            views.read = Some((at, read.clone()));
        }
        Ok(read)
    }
}

impl Keeper {
    /// Looks whether the database has views.
    ///
    /// # Errors
    /// What the server says.
    pub async fn look(&self) -> Result<bool, ViewsError> {
        let mut session = self.session().await?;
        let is_installed = self.known.inspect(&session.client).await?.is_some();
        if is_installed && !self.is_installed() {
            // An older Egret may have made it.
            install(&mut session.client).await?;
        }
        if is_installed {
            self.set_installed();
            self.give_back(session);
        } else {
            self.leave().await;
        }
        Ok(is_installed)
    }
}
