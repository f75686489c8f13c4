//! What documents were: looked at, and restored.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use egret_base::Timestamp;
use egret_documents::api::Versions;
use egret_documents::{Documents, DocumentsError, Version};
use http::{StatusCode, header};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

use super::answer::{WrittenDocument, damaged, moment, problem};
use super::request::{At, In, Reader, idempotency_key, refused};
use super::write::{etag, status};
use crate::extract::{Json, Query};
use crate::problem::Problem;

/// Which page.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct VersionsPage {
    /// The database; without it the only one that has collections.
    #[serde(rename = "database")]
    _database: Option<String>,
    /// The `next` of the page before.
    cursor: Option<String>,
    /// Versions of a page [default: 100].
    #[param(minimum = 1)]
    limit: Option<u32>,
}

/// What a document was.
#[derive(Serialize, ToSchema)]
struct DocumentVersion {
    /// The document.
    id: String,
    /// At which version.
    #[schema(example = 3)]
    version: i32,
    /// When that was written, RFC 3339.
    #[schema(value_type = String, format = DateTime)]
    modified_at: Timestamp,
    /// Who wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    modified_by: Option<String>,
    /// The id of the request that did.
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<String>,
    /// Until when the document was so, RFC 3339.
    #[schema(value_type = String, format = DateTime)]
    replaced_at: Timestamp,
    /// Who changed or deleted it.
    #[serde(skip_serializing_if = "Option::is_none")]
    replaced_by: Option<String>,
    /// Whether it was deleted.
    is_deleted: bool,
    /// What it was.
    #[schema(value_type = Object)]
    document: Box<RawValue>,
}

/// What documents were.
#[derive(Serialize, ToSchema)]
pub(super) struct DocumentVersionList {
    items: Vec<DocumentVersion>,
    /// The cursor of the next page, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

impl DocumentVersionList {
    fn of(page: Versions) -> Result<Self, DocumentsError> {
        let one = |version: Version| -> Result<DocumentVersion, DocumentsError> {
            let id = version.id;
            let document = RawValue::from_string(version.body);
            Ok(DocumentVersion {
                id: id.to_string(),
                version: version.version,
                modified_at: moment(version.modified_at),
                modified_by: version.modified_by,
                request_id: version.trace,
                replaced_at: moment(version.replaced_at),
                replaced_by: version.replaced_by,
                is_deleted: version.is_deleted,
                document: document.map_err(|error| damaged(id, &error))?,
            })
        };
        Ok(Self {
            items: page.items.into_iter().map(one).collect::<Result<_, _>>()?,
            next: page.next,
        })
    }
}

/// List what a document was
///
/// As many earlier versions as its collection keeps, the last first; of one that was deleted as well.
#[utoipa::path(get, path = "/v1/documents/{collection}/{id}/versions", operation_id = "listDocumentVersions", tag = "documents",
    security(("token" = ["documents:read"])),
    params(("collection" = String, Path, description = "The collection."), ("id" = String, Path, description = "The document's id."), VersionsPage),
    responses(
        (status = 200, description = "A page of versions.", body = DocumentVersionList),
        (status = 404, description = "There is no such document, and none that was deleted and is kept.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn list_versions(
    State(documents): State<Documents>,
    Reader(asking): Reader,
    At(collection, id): At,
    Query(page): Query<VersionsPage>,
) -> Result<Json<DocumentVersionList>, Problem> {
    let part = (page.cursor.as_deref(), page.limit);
    let page = documents.versions(&asking, (&collection, id), part).await;
    let page = page.and_then(DocumentVersionList::of);
    Ok(Json(page.map_err(problem)?))
}

/// List deleted documents
///
/// Those that can be restored, in the order in which they were made.
#[utoipa::path(get, path = "/v1/collections/{name}/deleted", operation_id = "listDeletedDocuments", tag = "documents",
    security(("token" = ["documents:read"])), params(("name" = String, Path, description = "The collection."), VersionsPage),
    responses(
        (status = 200, description = "A page of documents as they were at last.", body = DocumentVersionList),
        (status = 404, description = "There is no such collection.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn list_deleted_documents(
    State(documents): State<Documents>,
    Reader(asking): Reader,
    In(collection): In,
    Query(page): Query<VersionsPage>,
) -> Result<Json<DocumentVersionList>, Problem> {
    let part = (page.cursor.as_deref(), page.limit);
    let page = documents.deleted(&asking, &collection, part).await;
    let page = page.and_then(DocumentVersionList::of);
    Ok(Json(page.map_err(problem)?))
}

/// What is to be restored.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Restoring {
    /// The database; without it the only one that has collections.
    #[serde(rename = "database")]
    _database: Option<String>,
    /// The document as it was at this version; without it, as it was when it was deleted.
    version: Option<i32>,
}

/// Restore a document
///
/// One that was deleted comes back with its id, if all that it refers to is there; one that is there becomes again what it was.
#[utoipa::path(post, path = "/v1/documents/{collection}/{id}/restore", operation_id = "restoreDocument", tag = "documents",
    security(("token" = ["documents:write"])),
    params(("collection" = String, Path, description = "The collection."), ("id" = String, Path, description = "The document's id."), Restoring,
        ("Idempotency-Key" = Option<String>, Header, description = "The request is done once, however often it comes with this within a day.")),
    responses(
        (status = 200, description = "It was there, and is what it was at that version.", body = WrittenDocument),
        (status = 201, description = "It is there again.", body = WrittenDocument),
        (status = 404, description = "Nothing is kept of such a document, or not at this version.", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`not_deleted`: it is there, and no version was named. `unresolved_reference`, `identity_conflict`: as for any write.",
            body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn restore_document(
    State(documents): State<Documents>,
    Reader(mut asking): Reader,
    At(collection, id): At,
    Query(restoring): Query<Restoring>,
    headers: http::HeaderMap,
) -> Result<Response, Problem> {
    asking.idempotency_key = idempotency_key(&headers)?;
    let conditions = [header::IF_MATCH, header::IF_NONE_MATCH];
    if conditions.iter().any(|name| headers.contains_key(name)) {
        let what = "a document is restored whatever it is: there is no If-Match or If-None-Match";
        return Err(refused("header", what).into());
    }
    let written = documents
        .restore(&asking, (&collection, id), restoring.version)
        .await;
    let written = written.map_err(problem)?;
    let told = WrittenDocument {
        id: written.id.to_string(),
    };
    let status: StatusCode = status(&written);
    Ok((status, [etag(&written)], Json(told)).into_response())
}
