//! What documents were: looked at, and restored.

use egret_base::settings::Size;

use super::{Act, Caller, Documents, Kept, Operation};
use crate::core::decide::Condition;
use crate::core::group::{Declared, What};
use crate::core::rights::Action;
use crate::error::DocumentsError;
use crate::model::{CollectionName, DocumentId, TenantId, Written};
use crate::store::history::{DELETED, VERSIONS, Version};
use crate::store::query::Room;

/// What documents were.
#[derive(Clone, Debug, Default)]
pub struct Versions {
    /// Of one document the last first, of several in the order in which they were made.
    pub items: Vec<Version>,
    /// Where the next page begins; none: there is none.
    pub next: Option<String>,
}

impl Documents {
    /// Earlier versions of a document, as many as its collection keeps, the last first.
    ///
    /// # Errors
    /// [`DocumentsError::NotFound`]: there is no such document, and none that was deleted and is kept.
    pub async fn versions(
        &self,
        caller: &Caller,
        (collection, id): (&CollectionName, DocumentId),
        (cursor, limit): (Option<&str>, Option<u32>),
    ) -> Result<Versions, DocumentsError> {
        let mut room = self.room(limit)?;
        let kept = self.kept(caller).await?;
        let declared = kept.declared(caller, Action::Read, collection)?;
        let tenant = self.tenant(&kept, &caller.tenant).await?;
        let before = match cursor {
            Some(cursor) => cursor.parse().map_err(|_| cursor_invalid())?,
            None => i32::MAX,
        };
        let of = (tenant, declared.as_ref(), id);
        let page = versions(&kept, caller, of, (before, &mut room)).await?;
        if page.is_empty() && cursor.is_none() {
            // It is there and was never anything else, or it is not there.
            self.get(caller, (collection, id)).await?;
        }
        let last = page.last().filter(|_| room.is_full());
        let next = last.map(|last| last.version.to_string());
        let shown = page.into_iter();
        let items = shown.filter(|version| is_seen(caller, &declared, version));
        Ok(Versions {
            items: items.collect(),
            next,
        })
    }

    /// Documents that were deleted and can be restored, in the order in which they were made.
    ///
    /// # Errors
    /// [`DocumentsError`].
    pub async fn deleted(
        &self,
        caller: &Caller,
        collection: &CollectionName,
        (cursor, limit): (Option<&str>, Option<u32>),
    ) -> Result<Versions, DocumentsError> {
        let mut room = self.room(limit)?;
        let kept = self.kept(caller).await?;
        let declared = kept.declared(caller, Action::Read, collection)?;
        let tenant = self.tenant(&kept, &caller.tenant).await?;
        let after = match cursor {
            Some(cursor) => cursor.parse().map_err(|_| cursor_invalid())?,
            None => i64::MIN,
        };
        let asked = room.asked();
        let rows = kept
            .asker
            .page(
                &caller.tenant,
                DELETED,
                &[&tenant.0, &declared.id.0, &after, &asked],
                &mut room,
            )
            .await?;
        let page: Vec<Version> = rows.iter().map(Version::of).collect();
        let last = page.last().filter(|_| room.is_full());
        let next = last.map(|last| last.id.number().to_string());
        let shown = page.into_iter();
        let items = shown.filter(|version| is_seen(caller, &declared, version));
        Ok(Versions {
            items: items.collect(),
            next,
        })
    }

    /// Makes a document again what it was: one that was deleted as it was at last, or any at a version that is kept.
    ///
    /// # Errors
    /// [`DocumentsError`]: nothing has changed then. What was right once need not be so any more: what it refers to may be gone.
    pub async fn restore(
        &self,
        caller: &Caller,
        (collection, id): (&CollectionName, DocumentId),
        version: Option<i32>,
    ) -> Result<Written, DocumentsError> {
        let kept = self.kept(caller).await?;
        let declared = kept.declared(caller, Action::Write, collection)?;
        let tenant = self.tenant(&kept, &caller.tenant).await?;
        let how = version.map(|version| version.to_string());
        let how = format!("restore {collection} {id} {}", how.unwrap_or_default());
        let manner = caller.manner_of([how.as_bytes()]);
        if let Some(request) = manner.request
            && let Some(written) = self.answered(&kept, caller, request).await?
        {
            return Ok(written);
        }
        let of = (tenant, declared.as_ref(), id);
        let last = version_before(&kept, caller, of, i32::MAX).await?;
        let last = last.filter(|last| is_seen(caller, &declared, last));
        let none = || DocumentsError::NotFound {
            collection: collection.clone(),
            id: Some(id),
        };
        let wanted = match (version, &last) {
            (None, last) => last.clone(),
            (Some(version), _) => {
                let found = version_before(&kept, caller, of, version.saturating_add(1)).await?;
                found.filter(|found| found.version == version && is_seen(caller, &declared, found))
            }
        };
        let Some(wanted) = wanted else {
            let is_there = version.is_none() && self.get(caller, (collection, id)).await.is_ok();
            return Err(match is_there {
                true => DocumentsError::NotDeleted,
                false => none(),
            });
        };
        let deleted = last.filter(|last| last.is_deleted);
        let asked = match deleted {
            Some(deleted) => {
                let draft = declared
                    .collection
                    .read(wanted.body.as_bytes(), usize::MAX)?;
                let what = What::Restore(id, Box::new(draft), deleted.version);
                self.asked_for(&kept, caller, declared, what, Condition::Always)
                    .await?
            }
            None if version.is_none() => return Err(DocumentsError::NotDeleted),
            None => {
                let operation = Operation {
                    collection: collection.clone(),
                    what: Act::Put(Some(id), wanted.body.into_bytes()),
                    condition: Condition::Always,
                };
                self.asked(&kept, caller, operation).await?
            }
        };
        kept.keeper.writer.write(asked, manner).await
    }
}

fn cursor_invalid() -> DocumentsError {
    DocumentsError::QueryInvalid {
        reason: "the cursor is the `next` of the page before, as it was given".to_owned(),
    }
}

/// A document of a tenant.
type Place<'a> = (TenantId, &'a Declared, DocumentId);

/// Versions of a document before one, as many as there is room for.
async fn versions(
    kept: &Kept,
    caller: &Caller,
    (tenant, declared, id): Place<'_>,
    (before, room): (i32, &mut Room),
) -> Result<Vec<Version>, DocumentsError> {
    let asked = room.asked();
    let (collection, number) = (declared.id.0, id.number());
    let rows = kept
        .asker
        .page(
            &caller.tenant,
            VERSIONS,
            &[&tenant.0, &collection, &number, &before, &asked],
            room,
        )
        .await?;
    let all = rows.iter().map(Version::of);
    // The other half of an id is a secret that the number does not tell.
    Ok(all.filter(|version| version.id == id).collect())
}

/// The last version of a document before one.
async fn version_before(
    kept: &Kept,
    caller: &Caller,
    of: Place<'_>,
    before: i32,
) -> Result<Option<Version>, DocumentsError> {
    let mut room = Room::new(1, Size::default());
    Ok(versions(kept, caller, of, (before, &mut room)).await?.pop())
}

/// Whether somebody may see what a document was.
fn is_seen(caller: &Caller, declared: &Declared, version: &Version) -> bool {
    let definition = declared.collection.definition();
    let body = || serde_json::from_str(&version.body);
    caller.rights.is_whole(definition)
        || body().is_ok_and(|body| caller.rights.missing(definition, &body).is_none())
}
