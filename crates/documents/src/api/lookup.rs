//! Lookup of collections and their descriptions.

use std::time::SystemTime;

use serde_json::Value;

use super::caller::Caller;
use super::engine::Documents;
use super::query::PAGE_DOCUMENTS_DEFAULT;
use crate::core::openapi::{OpenApiContext, OpenApiFragment, describe};
use crate::core::rights::Action;
use crate::error::DocumentsError;
use crate::model::CollectionName;
use crate::store::collections;

/// A declared collection with its definition.
#[derive(Clone, Debug)]
pub struct CollectionSummary {
    /// Name of the collection.
    pub collection: CollectionName,
    /// Definition as declared, as JSON.
    pub definition: Value,
    /// Version of the definition, from 1.
    pub version: i32,
    /// Time of the first declaration.
    pub created_at: SystemTime,
    /// Time of the last change of the definition.
    pub changed_at: SystemTime,
}

impl Documents {
    /// The collections of a database that the caller may read or write, by name.
    pub async fn collections(
        &self,
        caller: &Caller,
    ) -> Result<Vec<CollectionSummary>, DocumentsError> {
        let handle = self.handle(caller).await?;
        let session = handle.queries.acquire(&caller.tenant).await?;
        let rows = collections::read_collections(session.client()).await;
        let mut summaries = Vec::new();
        for row in session.finish(rows).await? {
            let name = row.definition["collection"].as_str().unwrap_or_default();
            let collection: CollectionName =
                name.parse().map_err(|reason| DocumentsError::Database { reason })?;
            if !is_visible(caller, &collection) {
                continue;
            }
            summaries.push(CollectionSummary {
                collection,
                definition: row.definition,
                version: row.version,
                created_at: row.created_at,
                changed_at: row.changed_at,
            });
        }
        summaries.sort_by(|a, b| a.collection.cmp(&b.collection));
        Ok(summaries)
    }

    /// One collection by its name.
    ///
    /// # Errors
    /// [`DocumentsError::NoCollection`]: there is none, or the caller may neither read nor write
    /// it.
    pub async fn collection(
        &self,
        caller: &Caller,
        name: &CollectionName,
    ) -> Result<CollectionSummary, DocumentsError> {
        let summaries = self.collections(caller).await?;
        let found = summaries.into_iter().find(|summary| summary.collection == *name);
        found.ok_or_else(|| DocumentsError::NoCollection { collection: name.clone() })
    }

    /// OpenAPI description of the collections that the caller may read or write.
    pub async fn describe_openapi(
        &self,
        caller: &Caller,
    ) -> Result<OpenApiFragment, DocumentsError> {
        let handle = self.handle(caller).await?;
        let catalogue = handle.ownership.writer.catalogue();
        let collections = catalogue.iter().map(|declared| &declared.collection);
        let visible = collections.filter(|collection| is_visible(caller, collection.name()));
        let config = &self.inner.options.config;
        let context = OpenApiContext {
            database: &handle.ownership.database,
            page_max: config.page_max,
            page_default: PAGE_DOCUMENTS_DEFAULT.min(config.page_max),
            batch_max: config.batch_max,
        };
        Ok(describe(&context, visible))
    }
}

/// Whether the caller may read or write documents of a collection. If not, the existence of the
/// collection is hidden from the caller.
fn is_visible(caller: &Caller, collection: &CollectionName) -> bool {
    let may = |action| caller.rights.allows(action, collection);
    may(Action::Read) || may(Action::Write)
}
