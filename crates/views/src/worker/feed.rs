//! Those who follow the views of a database: what wakes them, and what they read with.

use std::sync::Arc;
use std::time::{Duration, Instant};

use egret_base::TaskSink;
use tokio::sync::{Mutex, watch};

use super::keeper::{Keeper, lock};
use super::session::Session;
use crate::error::ViewsError;
use crate::store::follow::{self, Next, Place};

/// How often it is looked for change sets of which nobody here has told, as another Egret may have made them.
pub const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// How often it is looked for change sets whose time is over.
const FORGET: Duration = Duration::from_secs(60);

/// Who makes tasks of changes.
#[derive(Clone)]
pub struct TasksTo {
    /// It.
    pub sink: Arc<dyn TaskSink>,
    /// Whose queues these are.
    pub tenant: String,
}

/// See the module.
pub struct Feed {
    news: watch::Sender<()>,
    /// One for all: each takes a moment.
    session: Mutex<Option<Session>>,
    forgotten: std::sync::Mutex<Instant>,
}

impl Default for Feed {
    fn default() -> Self {
        Self {
            news: watch::Sender::new(()),
            session: Mutex::default(),
            forgotten: std::sync::Mutex::new(Instant::now()),
        }
    }
}

impl Feed {
    /// Tells that there may be a change set, or that one is gone.
    pub fn tell(&self) {
        self.news.send_replace(());
    }

    /// Closes the session, once what is being read in it has been read.
    pub(super) async fn close_session(&self) {
        *self.session.lock().await = None;
    }

    /// What changes whenever there may be one.
    pub fn news(&self) -> watch::Receiver<()> {
        self.news.subscribe()
    }
}

impl Keeper {
    /// What comes after a place in the change sets of a view.
    ///
    /// # Errors
    /// Those of [`follow::next`].
    pub async fn next_change(&self, view: (i64, &str), place: Place) -> Result<Next, ViewsError> {
        let bytes_max = self.shared.config.change_event_size.bytes();
        let bytes_max = i64::try_from(bytes_max.max(1)).unwrap_or(i64::MAX);
        self.next_change_of(view, place, bytes_max).await
    }

    /// The same, with about so many bytes at most.
    ///
    /// # Errors
    /// Those of [`follow::next`].
    pub async fn next_change_of(
        &self,
        view: (i64, &str),
        place: Place,
        bytes_max: i64,
    ) -> Result<Next, ViewsError> {
        let mut held = self.feed.session.lock().await;
        let session = match held.take() {
            Some(session) if !session.client.is_closed() => held.insert(session),
            _ => held.insert(self.session().await?),
        };
        let Session { client, statements } = session;
        let next = follow::next(client, statements, view, place, bytes_max).await;
        if next.is_err() || !self.is_installed() {
            *held = None;
        }
        next
    }

    /// Forgets change sets whose time is over, now and then. Returns whether this was such a time.
    ///
    /// # Errors
    /// What the server says.
    pub async fn forget_changes(self: &Arc<Self>, session: &Session) -> Result<bool, ViewsError> {
        {
            let mut forgotten = lock(&self.feed.forgotten);
            if forgotten.elapsed() < FORGET {
                return Ok(false);
            }
            *forgotten = Instant::now();
        }
        let bytes_max = self.shared.config.change_sets_size_max.bytes();
        let bytes_max = i64::try_from(bytes_max).unwrap_or(i64::MAX);
        let sets = follow::forget(&session.client, bytes_max).await?;
        if sets > 0 {
            let database = &self.database;
            tracing::debug!(database, sets, "change sets of views are forgotten");
        }
        Ok(true)
    }
}
