//! Follows what becomes of documents.

use std::time::{Duration, SystemTime};

use tokio::sync::watch;

use super::{Caller, Documents};
use crate::core::rights::Action;
use crate::error::DocumentsError;
use crate::model::{ChangeKind, CollectionName, DocumentId};
use crate::store::feed::{FORGOTTEN, GROUPS, Group, POSITION};

/// Groups that are read at a time.
const GROUPS_TOGETHER: i64 = 100;

/// How soon is looked again where nobody says that there is more: another Egret may write.
const LOOK: Duration = Duration::from_secs(1);

/// What became of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Its place in the order of commits; no place is left out, but those of others.
    pub position: i64,
    /// When it was written.
    pub at: SystemTime,
    /// What became of it.
    pub kind: ChangeKind,
    /// Its collection.
    pub collection: CollectionName,
    /// The document.
    pub id: DocumentId,
    /// Its version then.
    pub version: i32,
}

/// Which changes.
#[derive(Clone, Debug, Default)]
pub struct Following {
    /// Of this collection alone.
    pub collection: Option<CollectionName>,
    /// Those after this position; none: those after the last that there is.
    pub after: Option<i64>,
}

/// Changes, in order.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// They.
    pub items: Vec<Change>,
    /// Up to where all have been looked at: go on after this.
    pub position: i64,
}

impl Documents {
    /// The next changes of a tenant's documents: `limit` at most, and perhaps none though there are more.
    ///
    /// # Errors
    /// [`DocumentsError`].
    pub async fn changes(
        &self,
        caller: &Caller,
        following: &Following,
        limit: Option<u32>,
    ) -> Result<Changes, DocumentsError> {
        let limit = self.limit(limit)? as usize;
        let kept = self.kept(caller).await?;
        if let Some(collection) = &following.collection {
            kept.declared(caller, Action::Read, collection)?;
        }
        let Some(after) = following.after else {
            let rows = kept.asker.run(POSITION, &[]).await?;
            let position = rows.first().map_or(0, |row| row.get(0));
            return Ok(Changes {
                items: Vec::new(),
                position,
            });
        };
        let tenant = self.tenant(&kept, &caller.tenant).await?;
        let rows = kept.asker.run(GROUPS, &[&after, &GROUPS_TOGETHER]).await?;
        let begins = rows.first().map(Group::of).map(|group| group.before());
        if begins.is_none_or(|begins| begins > after) {
            let told = kept.asker.run(FORGOTTEN, &[]).await?;
            let forgotten = told.first().map_or(0, |row| row.get(0));
            if after < forgotten {
                return Err(DocumentsError::ChangesGone { forgotten });
            }
        }
        let mut changes = Changes {
            items: Vec::new(),
            position: after,
        };
        let catalogue = kept.keeper.writer.catalogue();
        for group in rows.iter().map(Group::of) {
            let first = group.position - group.changes.len() as i64 + 1;
            for (position, (kind, of, collection, id, version)) in (first..).zip(group.changes) {
                if position <= after || changes.items.len() == limit {
                    continue;
                }
                changes.position = position;
                let declared = catalogue.by_number(collection);
                let (Some(declared), Some(kind)) = (declared, ChangeKind::of(kind)) else {
                    continue;
                };
                let collection = declared.collection.name();
                let asked = following.collection.as_ref();
                // Of what has gone nobody can tell whether it was within the claims.
                let is_seen = caller.rights.may(Action::Read, collection)
                    && caller.rights.is_whole(declared.collection.definition());
                if of == tenant.0 && is_seen && asked.is_none_or(|asked| asked == collection) {
                    changes.items.push(Change {
                        position,
                        at: group.at,
                        kind,
                        collection: collection.clone(),
                        id: DocumentId::stored(id),
                        version,
                    });
                }
            }
        }
        Ok(changes)
    }

    /// The next changes, as soon as there are some.
    ///
    /// # Errors
    /// [`DocumentsError`].
    pub async fn next_changes(
        &self,
        caller: &Caller,
        following: &mut Following,
    ) -> Result<Changes, DocumentsError> {
        let kept = self.kept(caller).await?;
        let mut reached = kept.keeper.writer.reached();
        loop {
            reached.mark_unchanged();
            let changes = self.changes(caller, following, None).await?;
            let has_moved = following.after != Some(changes.position);
            following.after = Some(changes.position);
            if !changes.items.is_empty() {
                return Ok(changes);
            }
            if !has_moved {
                wait(&mut reached).await;
            }
        }
    }
}

async fn wait(reached: &mut watch::Receiver<i64>) {
    tokio::select! {
        _ = reached.changed() => {}
        () = tokio::time::sleep(LOOK) => {}
    }
}
