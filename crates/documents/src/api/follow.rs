//! Follows what becomes of documents.

use std::sync::Arc;
use std::time::SystemTime;

use super::{Caller, Documents, Kept};
use crate::core::rights::Action;
use crate::error::DocumentsError;
use crate::model::{ChangeKind, CollectionName, DocumentId, TenantId};
use crate::store::feed::Group;

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
    /// The next changes of a tenant's documents: `limit` at most, and perhaps none though there are more. What a crash of the server may take back is
    /// not told before the disk has it, which is waited for.
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
        kept.may_follow(caller, following)?;
        let Some(after) = following.after else {
            return Ok(Changes {
                items: Vec::new(),
                position: kept.follower.last().await?,
            });
        };
        let tenant = self.tenant(&kept, &caller.tenant).await?;
        let groups = kept.follower.page(after).await?;
        Ok(kept.told(caller, (tenant, following), (after, &groups[..]), limit))
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
        let limit = self.limit(None)? as usize;
        let kept = self.kept(caller).await?;
        kept.may_follow(caller, following)?;
        let tenant = self.tenant(&kept, &caller.tenant).await?;
        let mut after = match following.after {
            Some(after) => after,
            None => kept.follower.last().await?,
        };
        let mut listening = kept.follower.listen();
        loop {
            listening.begin();
            let groups = kept.follower.after(after).await?;
            let whose = (tenant, &*following);
            let changes = kept.told(caller, whose, (after, &groups[..]), limit);
            let has_moved = changes.position > after;
            after = changes.position;
            following.after = Some(after);
            if !changes.items.is_empty() {
                return Ok(changes);
            }
            if !has_moved {
                listening.wait().await?;
            }
        }
    }
}

impl Kept {
    fn may_follow(&self, caller: &Caller, following: &Following) -> Result<(), DocumentsError> {
        match &following.collection {
            Some(collection) => self.declared(caller, Action::Read, collection).map(|_| ()),
            None => Ok(()),
        }
    }

    /// What somebody is told of groups after a position.
    fn told(
        &self,
        caller: &Caller,
        (tenant, following): (TenantId, &Following),
        (after, groups): (i64, &[Arc<Group>]),
        limit: usize,
    ) -> Changes {
        let mut changes = Changes {
            items: Vec::new(),
            position: after,
        };
        let catalogue = self.keeper.writer.catalogue();
        let asked = following.collection.as_ref();
        for group in groups {
            let each = (group.before() + 1..).zip(&group.changes);
            for (position, &(kind, of, collection, id, version)) in each {
                if position <= after {
                    continue;
                }
                if changes.items.len() == limit {
                    return changes;
                }
                let declared = catalogue.by_number(collection);
                if declared.is_none() && of == tenant.0 {
                    // Another Egret has just declared it, and this one will know of it in a moment.
                    return changes;
                }
                changes.position = position;
                let (Some(declared), Some(kind)) = (declared, ChangeKind::of(kind)) else {
                    continue;
                };
                let collection = declared.collection.name();
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
        changes
    }
}
