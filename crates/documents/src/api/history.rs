//! Earlier versions of documents: listing and restoring.

use egret_base::settings::ByteSize;

use super::batch::BatchWrite;
use super::caller::Caller;
use super::database::DatabaseHandle;
use super::engine::Documents;
use crate::core::collection::DeclaredCollection;
use crate::core::decision::Condition;
use crate::core::rights::Action;
use crate::core::write::WriteOp;
use crate::error::DocumentsError;
use crate::model::{CollectionName, DocumentId, DocumentNumber, TenantId, WriteReceipt};
use crate::store::history::{DELETED_SQL, VERSIONS_SQL, Version};
use crate::store::query::PageBudget;

/// One page of document versions.
#[derive(Clone, Debug, Default)]
pub struct Versions {
    /// Versions of one document, the latest first; or deleted documents, in order of creation.
    pub items: Vec<Version>,
    /// Cursor of the next page; none: this is the last one.
    pub next: Option<String>,
}

impl Documents {
    /// Returns the earlier versions of a document that its collection keeps, the latest first.
    ///
    /// # Errors
    /// [`DocumentsError::NotFound`]: there is no such document, neither current nor deleted and
    /// kept.
    pub async fn versions(
        &self,
        caller: &Caller,
        collection: &CollectionName,
        id: DocumentId,
        cursor: Option<&str>,
        limit: Option<u32>,
    ) -> Result<Versions, DocumentsError> {
        let mut budget = self.page_budget(limit)?;
        let handle = self.handle(caller).await?;
        let declared = handle.authorized_collection(caller, Action::Read, collection)?;
        let tenant = self.resolve_tenant(&handle, &caller.tenant).await?;
        let before = match cursor {
            Some(cursor) => cursor.parse().map_err(|_| cursor_invalid())?,
            None => i32::MAX,
        };
        let location = DocumentLocation { tenant, declared: declared.as_ref(), id };
        let page = read_versions(&handle, caller, location, before, &mut budget).await?;
        if page.is_empty() && cursor.is_none() {
            // Either the document exists without earlier versions, or `get` fails with `NotFound`.
            self.get(caller, collection, id).await?;
        }
        let last = page.last().filter(|_| budget.is_full());
        let next = last.map(|last| last.version.to_string());
        let shown = page.into_iter();
        let items = shown.filter(|version| is_version_visible(caller, &declared, version));
        Ok(Versions { items: items.collect(), next })
    }

    /// Returns deleted documents that can be restored, in order of creation.
    pub async fn deleted(
        &self,
        caller: &Caller,
        collection: &CollectionName,
        cursor: Option<&str>,
        limit: Option<u32>,
    ) -> Result<Versions, DocumentsError> {
        let mut budget = self.page_budget(limit)?;
        let handle = self.handle(caller).await?;
        let declared = handle.authorized_collection(caller, Action::Read, collection)?;
        let tenant = self.resolve_tenant(&handle, &caller.tenant).await?;
        let after = match cursor {
            Some(cursor) => DocumentNumber(cursor.parse().map_err(|_| cursor_invalid())?),
            None => DocumentNumber::MIN,
        };
        let rows_max = budget.rows_to_request();
        let rows = handle
            .queries
            .query_page(
                &caller.tenant,
                DELETED_SQL,
                &[&tenant, &declared.id, &after, &rows_max],
                &mut budget,
            )
            .await?;
        let page: Vec<Version> = rows.iter().map(Version::from_row).collect();
        let last = page.last().filter(|_| budget.is_full());
        let next = last.map(|last| last.id.number().to_string());
        let shown = page.into_iter();
        let items = shown.filter(|version| is_version_visible(caller, &declared, version));
        Ok(Versions { items: items.collect(), next })
    }

    /// Restores a version of a document: of a deleted one the last version or a given one, of a
    /// current one a given version.
    ///
    /// # Errors
    /// [`DocumentsError`]: nothing was written. The version may no longer be valid, for example
    /// because the target of a reference was deleted.
    pub async fn restore(
        &self,
        caller: &Caller,
        collection: &CollectionName,
        id: DocumentId,
        version: Option<i32>,
    ) -> Result<WriteReceipt, DocumentsError> {
        let handle = self.handle(caller).await?;
        let declared = handle.authorized_collection(caller, Action::Write, collection)?;
        let tenant = self.resolve_tenant(&handle, &caller.tenant).await?;
        let requested = version.map(|version| version.to_string());
        let content = format!("restore {collection} {id} {}", requested.unwrap_or_default());
        let options = caller.write_options_for([content.as_bytes()]);
        if let Some(request) = options.idempotency
            && let Some(receipt) = self.stored_reply(&handle, caller, request).await?
        {
            return Ok(receipt);
        }
        let location = DocumentLocation { tenant, declared: declared.as_ref(), id };
        let last = read_version_before(&handle, caller, location, i32::MAX).await?;
        let last = last.filter(|last| is_version_visible(caller, &declared, last));
        let not_found =
            || DocumentsError::NotFound { collection: collection.clone(), id: Some(id) };
        let target = match (version, &last) {
            (None, last) => last.clone(),
            (Some(version), _) => {
                let found =
                    read_version_before(&handle, caller, location, version.saturating_add(1))
                        .await?;
                found.filter(|found| {
                    found.version == version && is_version_visible(caller, &declared, found)
                })
            }
        };
        let Some(wanted) = target else {
            let is_current = version.is_none() && self.get(caller, collection, id).await.is_ok();
            return Err(if is_current { DocumentsError::NotDeleted } else { not_found() });
        };
        let body = wanted.body.into_bytes();
        let op = match last.filter(|last| last.is_deleted) {
            Some(deleted) => WriteOp::Restore { id, body, version: deleted.version },
            None if version.is_none() => return Err(DocumentsError::NotDeleted),
            None => WriteOp::Put(Some(id), body),
        };
        let write = BatchWrite { collection: collection.clone(), op, condition: Condition::Always };
        let request = self.prepare(&handle, caller, write).await?;
        handle.ownership.writer.write(request, options).await
    }
}

fn cursor_invalid() -> DocumentsError {
    DocumentsError::QueryInvalid {
        reason: "the cursor is not valid: send the `next` of the previous page unchanged"
            .to_owned(),
    }
}

/// Address of a document.
#[derive(Clone, Copy)]
struct DocumentLocation<'a> {
    tenant: TenantId,
    declared: &'a DeclaredCollection,
    id: DocumentId,
}

/// Reads the versions of a document before one, within the page budget.
async fn read_versions(
    handle: &DatabaseHandle,
    caller: &Caller,
    location: DocumentLocation<'_>,
    before: i32,
    budget: &mut PageBudget,
) -> Result<Vec<Version>, DocumentsError> {
    let rows_max = budget.rows_to_request();
    let (collection, number) = (location.declared.id, location.id.number());
    let rows = handle
        .queries
        .query_page(
            &caller.tenant,
            VERSIONS_SQL,
            &[&location.tenant, &collection, &number, &before, &rows_max],
            budget,
        )
        .await?;
    let all = rows.iter().map(Version::from_row);
    // The number is only half of the id: a caller must know the whole id, which is random.
    Ok(all.filter(|version| version.id == location.id).collect())
}

/// The latest kept version of a document before one.
async fn read_version_before(
    handle: &DatabaseHandle,
    caller: &Caller,
    location: DocumentLocation<'_>,
    before: i32,
) -> Result<Option<Version>, DocumentsError> {
    let mut budget = PageBudget::new(1, ByteSize::default());
    Ok(read_versions(handle, caller, location, before, &mut budget).await?.pop())
}

/// Whether the caller may see this version of a document: its body must satisfy the caller's
/// claims.
fn is_version_visible(caller: &Caller, declared: &DeclaredCollection, version: &Version) -> bool {
    let definition = declared.collection.definition();
    let body = || serde_json::from_str(&version.body);
    caller.rights.is_unrestricted(definition)
        || body().is_ok_and(|body| caller.rights.missing_claim(definition, &body).is_none())
}
