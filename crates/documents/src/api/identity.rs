//! Lookup of a document by its identity.

use super::caller::{Caller, is_seen};
use super::database::DatabaseHandle;
use super::engine::Documents;
use super::query::{CountMode, FindPage, FindPageItem, FindQuery};
use crate::core::collection::DeclaredCollection;
use crate::core::json::{JsonError, read_document};
use crate::error::DocumentsError;
use crate::model::TenantId;
use crate::store::query::PageBudget;
use crate::store::read::{self, StoredDocument};

impl Documents {
    /// Finds the document of a collection with an identity, by its alias: one index lookup in one
    /// partition.
    pub(super) async fn find_named(
        &self,
        caller: &Caller,
        handle: &DatabaseHandle,
        tenant: TenantId,
        declared: &DeclaredCollection,
        identity: &str,
        find: &FindQuery,
    ) -> Result<FindPage, DocumentsError> {
        let invalid = |reason: String| DocumentsError::QueryInvalid { reason };
        if !find.filters.is_empty() || find.sort.is_some() || find.cursor.is_some() {
            let reason = "an identity finds one document: it cannot be combined with conditions, a sort or a cursor";
            return Err(invalid(reason.to_owned()));
        }
        let told = |what: String| invalid(format!("the identity is not valid: {what}"));
        // The server bounds the length of a URL, so no limit here.
        let body =
            read_document(identity.as_bytes(), usize::MAX).map_err(|refusal| match refusal {
                JsonError::Wrong { violation, .. } => told(violation.to_string()),
                JsonError::TooLarge { .. } => told("it is too long".to_owned()),
            })?;
        let own = &declared.collection.families()[0];
        let identity = own
            .identity(&body)
            .map_err(|wrong| told(wrong.to_string()))?;
        let alias = own.alias(&identity).0;
        let mut room = PageBudget::new(1, self.inner.options.config.page_bytes_max);
        let asked = (vec![tenant], vec![alias]);
        let rows = handle
            .queries
            .page(
                &caller.tenant,
                &read::by_alias_sql(),
                &[&asked.0, &asked.1],
                &mut room,
            )
            .await?;
        let found: Vec<StoredDocument> = read::stored(1, &rows).into_iter().flatten().collect();
        let is_one =
            |one: &StoredDocument| one.collection == declared.id && is_seen(caller, declared, one);
        let items: Vec<StoredDocument> = found.into_iter().filter(is_one).collect();
        let count = i64::try_from(items.len()).expect("an identity has at most one document");
        let items: Vec<FindPageItem> = self
            .shaped(caller, handle, declared, tenant, items, &find.shape)
            .await?;
        Ok(FindPage {
            items,
            next: None,
            count: (find.count != CountMode::None).then_some(count),
        })
    }
}
