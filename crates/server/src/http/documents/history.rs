//! Earlier versions of documents: listed and restored.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use egret_base::Timestamp;
use egret_documents::api::Versions;
use egret_documents::{Documents, DocumentsError, Version};
use http::{StatusCode, header};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

use super::answer::{
    WrittenDocument, damaged_error, etag_header, parameter_error, to_problem, to_timestamp,
    write_status,
};
use super::request::{CollectionPath, DocumentPath, ReadScope, idempotency_key};
use crate::extract::{Json, Query};
use crate::problem::Problem;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct VersionsPage {
    /// The database; when absent, the only one that has collections.
    #[serde(rename = "database")]
    _database: Option<String>,
    /// The `next` of the previous page.
    cursor: Option<String>,
    /// The maximum number of versions in a page [default: 100].
    #[param(minimum = 1)]
    limit: Option<u32>,
}

/// An earlier version of a document.
#[derive(Serialize, ToSchema)]
struct DocumentVersion {
    /// The document.
    id: String,
    /// Number of this version.
    #[schema(example = 3)]
    version: i32,
    /// When this version was written, RFC 3339.
    #[schema(value_type = String, format = DateTime)]
    modified_at: Timestamp,
    /// Id of the token that wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    modified_by: Option<String>,
    /// The id of the request that wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<String>,
    /// When this version was replaced or deleted, RFC 3339.
    #[schema(value_type = String, format = DateTime)]
    replaced_at: Timestamp,
    /// Id of the token that replaced or deleted it; `retention` if it was deleted because of its
    /// age.
    #[serde(skip_serializing_if = "Option::is_none")]
    replaced_by: Option<String>,
    /// Whether the document was deleted.
    is_deleted: bool,
    /// The document at this version.
    #[schema(value_type = Object)]
    document: Box<RawValue>,
}

/// A page of earlier versions.
#[derive(Serialize, ToSchema)]
pub(super) struct DocumentVersionList {
    items: Vec<DocumentVersion>,
    /// The cursor of the next page, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

impl DocumentVersionList {
    fn from_versions(page: Versions) -> Result<Self, DocumentsError> {
        let convert = |version: Version| -> Result<DocumentVersion, DocumentsError> {
            let id = version.id;
            let document = RawValue::from_string(version.body);
            Ok(DocumentVersion {
                id: id.to_string(),
                version: version.version,
                modified_at: to_timestamp(version.modified_at),
                modified_by: version.modified_by,
                request_id: version.trace,
                replaced_at: to_timestamp(version.replaced_at),
                replaced_by: version.replaced_by,
                is_deleted: version.is_deleted,
                document: document.map_err(|error| damaged_error(id, &error))?,
            })
        };
        Ok(Self {
            items: page.items.into_iter().map(convert).collect::<Result<_, _>>()?,
            next: page.next,
        })
    }
}

/// List earlier versions of a document
///
/// The list has as many earlier versions as the collection keeps, the latest first. It is also
/// available for a deleted document.
#[utoipa::path(get, path = "/v1/documents/{collection}/{id}/versions", operation_id = "listDocumentVersions", tag = "documents",
    security(("token" = ["documents:read"])),
    params(("collection" = String, Path, description = "The collection."), ("id" = String, Path, description = "The document's id."), VersionsPage),
    responses(
        (status = 200, description = "A page of versions.", body = DocumentVersionList),
        (status = 404, description = "The document does not exist, and no deleted version of it is kept.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn list_versions(
    State(documents): State<Documents>,
    ReadScope(caller): ReadScope,
    DocumentPath(collection, id): DocumentPath,
    Query(page): Query<VersionsPage>,
) -> Result<Json<DocumentVersionList>, Problem> {
    let page = documents
        .versions(&caller, &collection, id, page.cursor.as_deref(), page.limit)
        .await
        .and_then(DocumentVersionList::from_versions);
    Ok(Json(page.map_err(to_problem)?))
}

/// List deleted documents
///
/// The list has the deleted documents that can be restored, in the order of their creation.
#[utoipa::path(get, path = "/v1/collections/{name}/deleted", operation_id = "listDeletedDocuments", tag = "documents",
    security(("token" = ["documents:read"])), params(("name" = String, Path, description = "The collection."), VersionsPage),
    responses(
        (status = 200, description = "A page of documents in their last version.", body = DocumentVersionList),
        (status = 404, description = "The collection is not declared.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn list_deleted_documents(
    State(documents): State<Documents>,
    ReadScope(caller): ReadScope,
    CollectionPath(collection): CollectionPath,
    Query(page): Query<VersionsPage>,
) -> Result<Json<DocumentVersionList>, Problem> {
    let page = documents
        .deleted(&caller, &collection, page.cursor.as_deref(), page.limit)
        .await
        .and_then(DocumentVersionList::from_versions);
    Ok(Json(page.map_err(to_problem)?))
}

/// The parameters of a restore.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct RestoreParams {
    /// The database; when absent, the only one that has collections.
    #[serde(rename = "database")]
    _database: Option<String>,
    /// The version to restore; when absent, a deleted document is restored in its last version.
    version: Option<i32>,
}

/// Restore a document
///
/// A deleted document is restored with its id, if all documents that it refers to exist. An
/// existing document gets the content of an earlier version.
#[utoipa::path(post, path = "/v1/documents/{collection}/{id}/restore", operation_id = "restoreDocument", tag = "documents",
    security(("token" = ["documents:write"])),
    params(("collection" = String, Path, description = "The collection."), ("id" = String, Path, description = "The document's id."), RestoreParams,
        ("Idempotency-Key" = Option<String>, Header, description = "The request is carried out once, even if it is sent several times with this key within a day.")),
    responses(
        (status = 200, description = "The document existed, and now has the content of that version.", body = WrittenDocument),
        (status = 201, description = "The deleted document was restored.", body = WrittenDocument),
        (status = 404, description = "No version of the document is kept, or not this one.", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`not_deleted`: the document exists, and no version to restore is given. `unresolved_reference`, `identity_conflict`: as for any write.",
            body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn restore_document(
    State(documents): State<Documents>,
    ReadScope(mut caller): ReadScope,
    DocumentPath(collection, id): DocumentPath,
    Query(params): Query<RestoreParams>,
    headers: http::HeaderMap,
) -> Result<Response, Problem> {
    caller.idempotency_key = idempotency_key(&headers)?;
    let conditions = [header::IF_MATCH, header::IF_NONE_MATCH];
    if conditions.iter().any(|name| headers.contains_key(name)) {
        let message = "a restore takes no precondition: leave out If-Match and If-None-Match";
        return Err(parameter_error("header", message).into());
    }
    let written =
        documents.restore(&caller, &collection, id, params.version).await.map_err(to_problem)?;
    let written_document = WrittenDocument { id: written.id.to_string() };
    let status: StatusCode = write_status(&written);
    Ok((status, [etag_header(&written)], Json(written_document)).into_response())
}
