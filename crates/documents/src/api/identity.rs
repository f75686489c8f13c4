//! Lookup of a document by its identity.

use super::caller::{Caller, is_visible};
use super::database::DatabaseHandle;
use super::engine::Documents;
use super::query::{CountMode, FindPage, FindPageItem, FindQuery};
use crate::core::collection::DeclaredCollection;
use crate::core::json::{JsonError, parse_document};
use crate::error::DocumentsError;
use crate::model::TenantId;
use crate::store::query::PageBudget;
use crate::store::read::{self, StoredDocument};

impl Documents {
    /// Finds the document of a collection with an identity, by its alias: one index lookup in one
    /// partition.
    pub(super) async fn find_by_identity(
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
        let invalid_identity = |what: String| invalid(format!("the identity is not valid: {what}"));
        // The server bounds the length of a URL, so no limit here.
        let body =
            parse_document(identity.as_bytes(), usize::MAX).map_err(|error| match error {
                JsonError::Malformed { violation, .. } => invalid_identity(violation.to_string()),
                JsonError::TooLarge { .. } => invalid_identity("it is too long".to_owned()),
            })?;
        let family = &declared.collection.identity_scopes()[0];
        let identity =
            family.identity(&body).map_err(|wrong| invalid_identity(wrong.to_string()))?;
        let alias = family.alias(&identity).0;
        let mut budget = PageBudget::new(1, self.inner.options.config.page_bytes_max);
        let keys = (vec![tenant], vec![alias]);
        let rows = handle
            .queries
            .query_page(&caller.tenant, &read::by_alias_sql(), &[&keys.0, &keys.1], &mut budget)
            .await?;
        let documents: Vec<StoredDocument> =
            read::parse_documents(1, &rows).into_iter().flatten().collect();
        let is_match = |one: &StoredDocument| {
            one.collection == declared.id && is_visible(caller, declared, one)
        };
        let items: Vec<StoredDocument> = documents.into_iter().filter(is_match).collect();
        let count = i64::try_from(items.len()).expect("an identity has at most one document");
        let items: Vec<FindPageItem> = self
            .project_documents(caller, handle, declared, tenant, items, &find.projection)
            .await?;
        Ok(FindPage { items, next: None, count: (find.count != CountMode::None).then_some(count) })
    }
}
