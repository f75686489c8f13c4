//! Reads the change sets of a database's followed views, and removes old ones.

use std::sync::Arc;
use std::time::{Duration, Instant};

use egret_base::sync::lock;

use super::refresh_worker::ViewRefreshWorker;
use super::session::Session;
use crate::error::ViewsError;
use crate::store::follow::{self, FollowPosition, NextChanges};

/// How often change sets past their retention are removed.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(60);

impl ViewRefreshWorker {
    /// The next page of change sets after a follower's position.
    ///
    /// # Errors
    /// Those of [`follow::read_next`].
    pub(crate) async fn read_changes(
        &self,
        view: i64,
        name: &str,
        position: FollowPosition,
    ) -> Result<NextChanges, ViewsError> {
        let bytes_max = self.context.config.change_event_size.bytes();
        let bytes_max = i64::try_from(bytes_max.max(1)).unwrap_or(i64::MAX);
        self.read_changes_bounded(view, name, position, bytes_max).await
    }

    /// The next page after a position, of about `bytes_max` bytes at most.
    ///
    /// # Errors
    /// Those of [`follow::read_next`].
    pub(crate) async fn read_changes_bounded(
        &self,
        view: i64,
        name: &str,
        position: FollowPosition,
        bytes_max: i64,
    ) -> Result<NextChanges, ViewsError> {
        let mut session_slot = self.notifier.session.lock().await;
        let session = match session_slot.take() {
            Some(session) if !session.client.is_closed() => session_slot.insert(session),
            _ => session_slot.insert(self.session().await?),
        };
        let Session { client, statements } = session;
        let next =
            follow::read_next_page(client, statements, view, name, position, bytes_max).await;
        if next.is_err() || !self.is_installed() {
            *session_slot = None;
        }
        next
    }

    /// Removes change sets past their retention, once a minute. Returns whether it was time.
    pub(crate) async fn delete_expired_changes(
        self: &Arc<Self>,
        session: &Session,
    ) -> Result<bool, ViewsError> {
        {
            let mut deleted_at = lock(&self.notifier.expired_deleted_at);
            if deleted_at.elapsed() < EXPIRY_INTERVAL {
                return Ok(false);
            }
            *deleted_at = Instant::now();
        }
        let bytes_max = self.context.config.change_sets_size_max.bytes();
        let bytes_max = i64::try_from(bytes_max).unwrap_or(i64::MAX);
        let sets = follow::delete_expired(&session.client, bytes_max).await?;
        if sets > 0 {
            let database = &self.database;
            tracing::debug!(database, sets, "deleted old change sets of views");
        }
        Ok(true)
    }
}
