//! Followers of views: each receives the change sets of refreshes, in order.

use std::sync::Arc;

use egret_base::settings::ConfigDuration;
use tokio::sync::{OwnedSemaphorePermit, watch};

use super::{ViewRef, Views};
use crate::error::ViewsError;
use crate::model::{Alteration, ChangePage, Mode, ViewReport};
use crate::store::change_sets::{self, FollowUpdate};
use crate::store::follow::{FollowPosition, NextChanges, delete_expired};
use crate::store::record::Record;
use crate::store::registry;
use crate::worker::change_notifier::LOOK_AGAIN;
use crate::worker::refresh_worker::ViewRefreshWorker;

/// Whether following a view starts the retention of its change sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowMode {
    /// Retention starts with this follower, if it is off.
    Yes,
    /// Following fails with [`ViewsError::NotFollowed`] if retention is off.
    No,
}

/// A subscription to the change sets of a view, with its position.
pub struct Follower {
    worker: Arc<ViewRefreshWorker>,
    view: i64,
    name: String,
    position: FollowPosition,
    changes: watch::Receiver<()>,
    _permit: OwnedSemaphorePermit,
}

impl Views {
    /// Follows a view from after change set `after`, or from now on if there is none.
    ///
    /// # Errors
    /// Those of [`Self::show`]; [`ViewsError::NotFollowed`], [`ViewsError::ChangesGone`],
    /// [`ViewsError::Unsupported`] of a view in mode immediate, [`ViewsError::TooManyFollowers`].
    pub async fn follow(
        &self,
        at: &ViewRef,
        after: Option<i64>,
        begins: FollowMode,
    ) -> Result<Follower, ViewsError> {
        let context = self.context();
        let permit = self.inner.followers.clone().try_acquire_owned();
        let permit = permit.map_err(|_| ViewsError::TooManyFollowers {
            max: context.config.followers_max,
        })?;
        let session_permit = self.admit().await?;
        let mut found = self.find(at).await?;
        if !found.record.is_followed() {
            change_sets::check_mode(&found.record)?;
            if begins == FollowMode::No {
                return Err(ViewsError::NotFollowed {
                    name: found.record.name.to_string(),
                });
            }
            let kept = context.config.change_sets_kept;
            let update = FollowUpdate {
                kept_ms: Some(Some(milliseconds(kept))),
                queue: None,
            };
            let client = &mut found.session.client;
            change_sets::set_retention(
                client,
                &found.record,
                update,
                found.worker.lock_retry_policy(),
            )
            .await?;
            found.worker.unload(found.record.id);
            found.worker.announce_change();
        }
        let client = &found.session.client;
        let record = registry::record_of(client, found.record.id).await?;
        found.worker.return_session(found.session);
        drop(session_permit);
        let follower = Follower {
            changes: found.worker.notifier.subscribe(),
            worker: found.worker,
            view: record.id,
            name: record.name.to_string(),
            position: FollowPosition {
                sequence: after.unwrap_or(record.sequence),
                rows: 0,
            },
            _permit: permit,
        };
        follower.worker.context.metrics.followers.inc();
        follower.read_next().await?;
        Ok(follower)
    }

    /// Refuses an alteration that leaves a view in mode immediate followed, or names an unknown
    /// queue.
    pub(super) fn check_following(
        &self,
        record: &Record,
        alteration: &Alteration,
    ) -> Result<(), ViewsError> {
        let queue = alteration.queue.as_ref().unwrap_or(&record.queue);
        let is_kept = alteration
            .kept
            .map_or(record.is_followed(), |kept| kept.is_some());
        if alteration.mode.unwrap_or(record.mode) == Mode::Immediate && (is_kept || queue.is_some())
        {
            let mode = Mode::Immediate;
            return change_sets::check_mode(&Record {
                mode,
                ..record.clone()
            });
        }
        match alteration.queue.as_ref().and_then(Option::as_ref) {
            Some(queue) => self.context().check_queue(queue),
            None => Ok(()),
        }
    }

    /// Applies retention and queue of an alteration to the change sets of a view.
    pub(super) async fn alter_retention(
        &self,
        at: &ViewRef,
        alteration: &Alteration,
    ) -> Result<ViewReport, ViewsError> {
        let mut found = self.find(at).await?;
        let default = self.context().config.change_sets_kept;
        // Change sets must be retained to become tasks.
        let is_fed = matches!(alteration.queue, Some(Some(_)));
        let kept = match alteration.kept {
            None if is_fed && !found.record.is_followed() => Some(Some(default)),
            kept => kept,
        };
        let update = FollowUpdate {
            kept_ms: kept.map(|kept| kept.map(milliseconds)),
            queue: alteration.queue.as_ref().map(Option::as_deref),
        };
        let retries = found.worker.lock_retry_policy();
        let client = &mut found.session.client;
        change_sets::set_retention(client, &found.record, update, retries).await?;
        let bytes_max = self.context().config.change_sets_size_max.bytes();
        delete_expired(client, i64::try_from(bytes_max).unwrap_or(i64::MAX)).await?;
        found.worker.notifier.notify();
        self.report_changed(found).await
    }
}

/// Duration in whole milliseconds, at most `i64::MAX`.
pub fn milliseconds(span: ConfigDuration) -> i64 {
    i64::try_from(span.duration().as_millis()).unwrap_or(i64::MAX)
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.worker.context.metrics.followers.dec();
    }
}

impl Follower {
    /// The view, as `schema.name`.
    pub fn view(&self) -> &str {
        &self.name
    }

    /// The database that it is in.
    pub fn database(&self) -> &str {
        &self.worker.database
    }

    /// Number of the last change set that was delivered as a whole.
    pub fn sequence(&self) -> i64 {
        self.position.sequence
    }

    /// Waits for the next change set, or the next page of one. Cancelling the wait loses nothing.
    ///
    /// # Errors
    /// [`ViewsError::ChangesGone`]; [`ViewsError::NotFound`] where the view was dropped.
    pub async fn next(&mut self) -> Result<ChangePage, ViewsError> {
        loop {
            self.changes.borrow_and_update();
            if let Some(page) = self.read_next().await? {
                self.position = if page.has_more {
                    FollowPosition {
                        rows: self.position.rows + page.rows.len() as i64,
                        ..self.position
                    }
                } else {
                    FollowPosition {
                        sequence: page.sequence,
                        rows: 0,
                    }
                };
                return Ok(page);
            }
            // The sender is in the worker, which this follower holds: it cannot be gone.
            _ = tokio::time::timeout(LOOK_AGAIN, self.changes.changed()).await;
        }
    }

    async fn read_next(&self) -> Result<Option<ChangePage>, ViewsError> {
        let next = self
            .worker
            .read_changes(self.view, &self.name, self.position);
        match next.await? {
            NextChanges::Nothing => Ok(None),
            NextChanges::Page(page) => Ok(Some(page)),
            NextChanges::Gone(first) => Err(ViewsError::ChangesGone {
                name: self.name.clone(),
                after: self.position.sequence,
                first,
            }),
        }
    }
}
