//! The change feed: polling and waiting for changes of documents.

use std::sync::Arc;
use std::time::SystemTime;

use super::caller::Caller;
use super::database::DatabaseHandle;
use super::engine::Documents;
use crate::core::rights::Action;
use crate::error::DocumentsError;
use crate::model::{ChangeKind, CollectionName, DocumentId, FeedPosition, TenantId};
use crate::store::feed::FeedGroup;

/// One change of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Position in the order of commits. Positions have no gaps, but those of other tenants and
    /// collections are not shown.
    pub position: FeedPosition,
    /// Time at which the change was written.
    pub at: SystemTime,
    /// How the document was changed.
    pub kind: ChangeKind,
    /// Collection of the changed document.
    pub collection: CollectionName,
    /// Id of the changed document.
    pub id: DocumentId,
    /// Version of the document after the change; for a deletion, its last version.
    pub version: i32,
}

/// Which changes to return.
#[derive(Clone, Debug, Default)]
pub struct ChangesQuery {
    /// Only changes of this collection; none: of all.
    pub collection: Option<CollectionName>,
    /// Changes after this position; none: after the current end of the feed.
    pub after: Option<FeedPosition>,
}

/// One page of changes.
#[derive(Clone, Debug, Default)]
pub struct ChangesPage {
    /// Changes in order of commit.
    pub items: Vec<Change>,
    /// Last position examined; continue after it.
    pub position: FeedPosition,
}

impl Documents {
    /// The next changes of a tenant's documents, at most `limit`; possibly none although there are
    /// more. Changes committed with relaxed durability are returned only once flushed, for which
    /// the call waits.
    pub async fn changes(
        &self,
        caller: &Caller,
        query: &ChangesQuery,
        limit: Option<u32>,
    ) -> Result<ChangesPage, DocumentsError> {
        let limit = self.page_limit(limit)? as usize;
        let handle = self.handle(caller).await?;
        handle.check_access(caller, query)?;
        let Some(after) = query.after else {
            return Ok(ChangesPage {
                items: Vec::new(),
                position: handle.feed.last_position().await?,
            });
        };
        let tenant = self.resolve_tenant(&handle, &caller.tenant).await?;
        let groups = handle.feed.read_page(after).await?;
        Ok(handle.visible_changes(caller, tenant, query, after, &groups, limit))
    }

    /// The next changes; waits until there are some. Advances `following.after` to the position
    /// reached.
    pub async fn next_changes(
        &self,
        caller: &Caller,
        query: &mut ChangesQuery,
    ) -> Result<ChangesPage, DocumentsError> {
        let limit = self.page_limit(None)? as usize;
        let handle = self.handle(caller).await?;
        handle.check_access(caller, query)?;
        let tenant = self.resolve_tenant(&handle, &caller.tenant).await?;
        let mut after = match query.after {
            Some(after) => after,
            None => handle.feed.last_position().await?,
        };
        let mut listener = handle.feed.listen();
        loop {
            listener.mark_seen();
            let groups = handle.feed.groups_after(after).await?;
            let changes = handle.visible_changes(caller, tenant, query, after, &groups, limit);
            let has_advanced = changes.position > after;
            after = changes.position;
            query.after = Some(after);
            if !changes.items.is_empty() {
                return Ok(changes);
            }
            if !has_advanced {
                listener.wait().await?;
            }
        }
    }
}

impl DatabaseHandle {
    fn check_access(&self, caller: &Caller, query: &ChangesQuery) -> Result<(), DocumentsError> {
        match &query.collection {
            Some(collection) => {
                self.authorized_collection(caller, Action::Read, collection).map(|_| ())
            }
            None => Ok(()),
        }
    }

    /// The changes of these groups after a position that the caller may see.
    fn visible_changes(
        &self,
        caller: &Caller,
        tenant: TenantId,
        query: &ChangesQuery,
        after: FeedPosition,
        groups: &[Arc<FeedGroup>],
        limit: usize,
    ) -> ChangesPage {
        let mut changes = ChangesPage { items: Vec::new(), position: after };
        let catalogue = self.ownership.writer.catalogue();
        let collection_filter = query.collection.as_ref();
        for group in groups {
            for (position, change) in group.changes_with_positions() {
                if position <= after {
                    continue;
                }
                if changes.items.len() == limit {
                    return changes;
                }
                let declared = catalogue.get(change.collection);
                let is_own = change.tenant == tenant;
                if declared.is_none() && is_own {
                    // Another Egret has just declared the collection; this one has not reloaded its
                    // catalogue yet.
                    return changes;
                }
                changes.position = position;
                let (Some(declared), Some(kind)) = (declared, change.kind) else {
                    continue;
                };
                let collection = declared.collection.name();
                // The body of a deleted document is not there to check claims on: claims must not
                // restrict the collection at all.
                let is_visible = caller.rights.allows(Action::Read, collection)
                    && caller.rights.is_unrestricted(declared.collection.definition());
                if is_own
                    && is_visible
                    && collection_filter.is_none_or(|wanted| wanted == collection)
                {
                    changes.items.push(Change {
                        position,
                        at: group.at,
                        kind,
                        collection: collection.clone(),
                        id: change.id,
                        version: change.version,
                    });
                }
            }
        }
        changes
    }
}
