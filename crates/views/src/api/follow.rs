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
use crate::worker::change_notifier::POLL_INTERVAL;
use crate::worker::refresh_worker::ViewRefreshWorker;

/// Whether following a view starts the retention of its change sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowMode {
    /// Retention starts with this follower, if it is off.
    StartRetention,
    /// Following fails with [`ViewsError::NotFollowed`] if retention is off.
    RequireRetention,
}

/// A subscription to the change sets of a view, with its position.
pub struct Follower {
    worker: Arc<ViewRefreshWorker>,
    view: i64,
    name: String,
    position: FollowPosition,
    change_signal: watch::Receiver<()>,
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
        view_ref: &ViewRef,
        after: Option<i64>,
        follow_mode: FollowMode,
    ) -> Result<Follower, ViewsError> {
        let context = self.context();
        let permit = self.inner.followers.clone().try_acquire_owned();
        let permit = permit
            .map_err(|_| ViewsError::TooManyFollowers { max: context.config.followers_max })?;
        let session_permit = self.admit().await?;
        let mut handle = self.find(view_ref).await?;
        if !handle.record.is_followed() {
            change_sets::check_can_be_followed(&handle.record)?;
            if follow_mode == FollowMode::RequireRetention {
                return Err(ViewsError::NotFollowed { name: handle.record.name.to_string() });
            }
            let retention = context.config.change_sets_kept;
            let update = FollowUpdate {
                retention_ms: Some(Some(whole_milliseconds(retention))),
                queue: None,
            };
            let client = &mut handle.session.client;
            change_sets::set_retention(
                client,
                &handle.record,
                update,
                handle.worker.lock_retry_policy(),
            )
            .await?;
            handle.worker.unload(handle.record.id);
            handle.worker.announce_change();
        }
        let client = &handle.session.client;
        let record = registry::read_record(client, handle.record.id).await?;
        handle.worker.return_session(handle.session);
        drop(session_permit);
        let follower = Follower {
            change_signal: handle.worker.notifier.subscribe(),
            worker: handle.worker,
            view: record.id,
            name: record.name.to_string(),
            position: FollowPosition { sequence: after.unwrap_or(record.sequence), rows: 0 },
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
        let has_retention =
            alteration.retention.map_or(record.is_followed(), |retention| retention.is_some());
        if alteration.mode.unwrap_or(record.mode) == Mode::Immediate
            && (has_retention || queue.is_some())
        {
            let mode = Mode::Immediate;
            return change_sets::check_can_be_followed(&Record { mode, ..record.clone() });
        }
        match alteration.queue.as_ref().and_then(Option::as_ref) {
            Some(queue) => self.context().check_queue(queue),
            None => Ok(()),
        }
    }

    /// Applies retention and queue of an alteration to the change sets of a view.
    pub(super) async fn alter_retention(
        &self,
        view_ref: &ViewRef,
        alteration: &Alteration,
    ) -> Result<ViewReport, ViewsError> {
        let mut handle = self.find(view_ref).await?;
        let default_retention = self.context().config.change_sets_kept;
        // Change sets must be retained to become tasks.
        let sets_queue = matches!(alteration.queue, Some(Some(_)));
        let retention = match alteration.retention {
            None if sets_queue && !handle.record.is_followed() => Some(Some(default_retention)),
            kept => kept,
        };
        let update = FollowUpdate {
            retention_ms: retention.map(|kept| kept.map(whole_milliseconds)),
            queue: alteration.queue.as_ref().map(Option::as_deref),
        };
        let retries = handle.worker.lock_retry_policy();
        let client = &mut handle.session.client;
        change_sets::set_retention(client, &handle.record, update, retries).await?;
        let bytes_max = self.context().config.change_sets_size_max.bytes();
        delete_expired(client, i64::try_from(bytes_max).unwrap_or(i64::MAX)).await?;
        handle.worker.notifier.notify();
        self.report_changed(handle).await
    }
}

/// Duration in whole milliseconds, at most `i64::MAX`.
pub(crate) fn whole_milliseconds(span: ConfigDuration) -> i64 {
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
            self.change_signal.borrow_and_update();
            if let Some(page) = self.read_next().await? {
                self.position = if page.has_more {
                    FollowPosition {
                        rows: self.position.rows + page.rows.len() as i64,
                        ..self.position
                    }
                } else {
                    FollowPosition { sequence: page.sequence, rows: 0 }
                };
                return Ok(page);
            }
            // The sender is in the worker, which this follower holds: it cannot be gone.
            _ = tokio::time::timeout(POLL_INTERVAL, self.change_signal.changed()).await;
        }
    }

    async fn read_next(&self) -> Result<Option<ChangePage>, ViewsError> {
        let next = self.worker.read_changes(self.view, &self.name, self.position);
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
