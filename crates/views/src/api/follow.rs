//! Following views: what refreshes change in them, told in order.

use std::sync::Arc;

use egret_base::settings::Span;
use tokio::sync::{OwnedSemaphorePermit, watch};

use super::{Address, Views};
use crate::error::ViewsError;
use crate::model::{Alteration, ChangePage, Following, Mode, ViewReport};
use crate::store::follow::{Next, Place, forget};
use crate::store::registry::Record;
use crate::store::tell::{self, Keeping};
use crate::worker::feed::LOOK_AGAIN;
use crate::worker::keeper::{Keeper, Shared};

/// Whether somebody who follows a view has its changes kept where they are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begins {
    /// They are, from now on.
    Yes,
    /// They are not: somebody else is to have them kept.
    No,
}

/// Somebody who follows a view.
pub struct Follower {
    keeper: Arc<Keeper>,
    view: i64,
    name: String,
    place: Place,
    news: watch::Receiver<()>,
    _permit: OwnedSemaphorePermit,
}

impl Views {
    /// Follows a view: after a change set by its number, or from now on.
    ///
    /// # Errors
    /// Those of [`Self::show`]; [`ViewsError::NotFollowed`], [`ViewsError::ChangesGone`], [`ViewsError::Unsupported`] of a view in mode
    /// immediate, [`ViewsError::TooManyFollowers`].
    pub async fn follow(
        &self,
        at: &Address,
        after: Option<i64>,
        begins: Begins,
    ) -> Result<Follower, ViewsError> {
        let shared = &self.inner.shared;
        let permit = self.inner.followers.clone().try_acquire_owned();
        let permit = permit.map_err(|_| ViewsError::TooManyFollowers {
            max: shared.config.followers_max,
        })?;
        let session_permit = self.admit().await?;
        let mut found = self.find(at).await?;
        if !found.record.is_followed() {
            tell::check(&found.record)?;
            if begins == Begins::No {
                return Err(ViewsError::NotFollowed {
                    name: found.record.name.to_string(),
                });
            }
            let kept = shared.config.change_sets_kept;
            let keeping = Keeping {
                kept_ms: Some(Some(milliseconds(kept))),
                queue: None,
            };
            let client = &mut found.session.client;
            tell::keep(client, &found.record, keeping, found.keeper.patience()).await?;
            found.keeper.unload(found.record.id);
            found.keeper.tell();
        }
        let client = &found.session.client;
        let now = crate::store::registry::record_of(client, found.record.id).await?;
        found.keeper.give_back(found.session);
        drop(session_permit);
        let follower = Follower {
            news: found.keeper.feed.news(),
            keeper: found.keeper,
            view: now.id,
            name: now.name.to_string(),
            place: Place {
                sequence: after.unwrap_or(now.sequence),
                rows: 0,
            },
            _permit: permit,
        };
        follower.keeper.shared.metrics.followers.inc();
        follower.look().await?;
        Ok(follower)
    }

    /// Refuses an alteration that leaves a view in mode immediate followed, or names no queue.
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
            return tell::check(&Record {
                mode,
                ..record.clone()
            });
        }
        match alteration.queue.as_ref().and_then(Option::as_ref) {
            Some(queue) => check_queue(&self.inner.shared, queue),
            None => Ok(()),
        }
    }

    /// Has changes of a view kept, or not, as an alteration says.
    pub(super) async fn keep_changes(
        &self,
        at: &Address,
        alteration: &Alteration,
    ) -> Result<ViewReport, ViewsError> {
        let mut found = self.find(at).await?;
        let usual = self.inner.shared.config.change_sets_kept;
        // They have to be kept to become tasks.
        let is_fed = matches!(alteration.queue, Some(Some(_)));
        let kept = match alteration.kept {
            None if is_fed && !found.record.is_followed() => Some(Some(usual)),
            kept => kept,
        };
        let keeping = Keeping {
            kept_ms: kept.map(|kept| kept.map(milliseconds)),
            queue: alteration.queue.as_ref().map(Option::as_deref),
        };
        let patience = found.keeper.patience();
        let client = &mut found.session.client;
        tell::keep(client, &found.record, keeping, patience).await?;
        let bytes_max = self.inner.shared.config.change_sets_size_max.bytes();
        forget(client, i64::try_from(bytes_max).unwrap_or(i64::MAX)).await?;
        found.keeper.feed.tell();
        self.changed(found).await
    }
}

/// What is kept of the changes of a view that is to be made.
///
/// # Errors
/// [`ViewsError::Invalid`] for a queue that there cannot be.
pub fn usual(shared: &Shared, following: &Following) -> Result<Following, ViewsError> {
    if let Some(queue) = &following.queue {
        check_queue(shared, queue)?;
    }
    let usual = following
        .queue
        .as_ref()
        .map(|_| shared.config.change_sets_kept);
    Ok(Following {
        kept: following.kept.or(usual),
        queue: following.queue.clone(),
    })
}

fn check_queue(shared: &Shared, queue: &str) -> Result<(), ViewsError> {
    let reason = match &shared.tasks {
        None => "this Egret has no queues".to_owned(),
        Some(tasks) => match tasks.sink.check_queue(queue) {
            Ok(()) => return Ok(()),
            Err(refused) => refused.message,
        },
    };
    Err(ViewsError::Invalid {
        what: "queue",
        reason,
    })
}

/// In whole milliseconds.
pub fn milliseconds(span: Span) -> i64 {
    i64::try_from(span.duration().as_millis()).unwrap_or(i64::MAX)
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.keeper.shared.metrics.followers.dec();
    }
}

impl Follower {
    /// The view, as `schema.name`.
    pub fn view(&self) -> &str {
        &self.name
    }

    /// The database that it is in.
    pub fn database(&self) -> &str {
        &self.keeper.database
    }

    /// The number of the change set after which it goes on.
    pub fn sequence(&self) -> i64 {
        self.place.sequence
    }

    /// The next change set, or a part of it; waits for it. Nothing is lost of one that is waited for and given up.
    ///
    /// # Errors
    /// [`ViewsError::ChangesGone`], [`ViewsError::NotFound`] where the view was dropped; the server's.
    pub async fn next(&mut self) -> Result<ChangePage, ViewsError> {
        loop {
            self.news.borrow_and_update();
            if let Some(page) = self.look().await? {
                self.place = match page.has_more {
                    true => Place {
                        rows: self.place.rows + page.rows.len() as i64,
                        ..self.place
                    },
                    false => Place {
                        sequence: page.sequence,
                        rows: 0,
                    },
                };
                return Ok(page);
            }
            // Whoever tells lives as long as this does.
            _ = tokio::time::timeout(LOOK_AGAIN, self.news.changed()).await;
        }
    }

    async fn look(&self) -> Result<Option<ChangePage>, ViewsError> {
        let view = (self.view, self.name.as_str());
        match self.keeper.next_change(view, self.place).await? {
            Next::Nothing => Ok(None),
            Next::Page(page) => Ok(Some(page)),
            Next::Gone(first) => Err(ViewsError::ChangesGone {
                name: self.name.clone(),
                after: self.place.sequence,
                first,
            }),
        }
    }
}
