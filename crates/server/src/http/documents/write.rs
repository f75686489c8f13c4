//! Writing documents.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use egret_documents::Documents;
use egret_documents::model::{CollectionName, WriteReceipt};
use http::{HeaderName, HeaderValue, StatusCode, header};

use super::answer::{
    BatchAnswer, WrittenDocument, batch_problem, etag_header, to_problem, write_status,
};
use super::request::{
    Batch, Body, CollectionPath, DocumentPatch, DocumentPath, Preconditions, WriteParams,
    WriteScope,
};
use crate::extract::Json;
use crate::problem::Problem;

fn location_header(
    collection: &CollectionName,
    written: &WriteReceipt,
) -> (HeaderName, HeaderValue) {
    let place = format!("/v1/documents/{collection}/{}", written.id);
    let place = HeaderValue::try_from(place).expect("an id and an etag are ASCII");
    (header::LOCATION, place)
}

/// Create or replace a document by its identity
///
/// An existing document with the same identity is replaced; an unchanged one is not written.
#[utoipa::path(post, path = "/v1/documents/{collection}", operation_id = "upsertDocument", tag = "documents",
    security(("token" = ["documents:write"])),
    params(("collection" = String, Path, description = "The collection."), WriteParams,
        ("Idempotency-Key" = Option<String>, Header, description = "The request is carried out once, even if it is sent several times with this key within a day."),
        ("If-Match" = Option<String>, Header, description = "The request is carried out only if the document has this version; with `*`, only if it exists."),
        ("If-None-Match" = Option<String>, Header, description = "The request is carried out only if the document does not have this version; with `*`, only if it does not exist.")),
    request_body(content = Object, description = "The document."),
    responses(
        (status = 200, description = "The document existed, and now has the content that was sent.", body = WrittenDocument),
        (status = 201, description = "The document was created.", body = WrittenDocument),
        (status = 400, description = "The document does not match the collection's definition: `violations` has a JSON pointer and a message for each reason.",
            body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "The collection is not declared.", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`unresolved_reference`: `references` lists the references \
            without a target. `identity_conflict`: another document has one of its identities.", body = Problem, content_type = "application/problem+json"),
        (status = 412, description = "The version does not satisfy `If-Match` or `If-None-Match`.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn upsert_document(
    State(documents): State<Documents>,
    WriteScope(caller): WriteScope,
    CollectionPath(collection): CollectionPath,
    Preconditions(condition): Preconditions,
    Body(body): Body,
) -> Result<Response, Problem> {
    let written =
        documents.upsert(&caller, &collection, &body, condition).await.map_err(to_problem)?;
    let headers = [etag_header(&written), location_header(&collection, &written)];
    let written_document = WrittenDocument { id: written.id.to_string() };
    Ok((write_status(&written), headers, Json(written_document)).into_response())
}

/// Replace a document
#[utoipa::path(put, path = "/v1/documents/{collection}/{id}", operation_id = "putDocument", tag = "documents",
    security(("token" = ["documents:write"])),
    params(("collection" = String, Path, description = "The collection."), ("id" = String, Path, description = "The document's id."), WriteParams,
        ("Idempotency-Key" = Option<String>, Header, description = "The request is carried out once, even if it is sent several times with this key within a day."),
        ("If-Match" = Option<String>, Header, description = "The request is carried out only if the document has this version."),
        ("If-None-Match" = Option<String>, Header, description = "The request is carried out only if the document does not have this version.")),
    request_body(content = Object, description = "The document."),
    responses(
        (status = 204, description = "The document has the content that was sent. If its identity changed, the documents that refer to it were updated."),
        (status = 400, description = "The document does not match the collection's definition, or its identity differs and cannot be changed.",
            body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "The document does not exist.", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`unresolved_reference`: a reference has no target. `identity_conflict`: another document has one of its identities.", body = Problem, content_type = "application/problem+json"),
        (status = 412, description = "The version does not satisfy `If-Match` or `If-None-Match`.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn put_document(
    State(documents): State<Documents>,
    WriteScope(caller): WriteScope,
    DocumentPath(collection, id): DocumentPath,
    Preconditions(condition): Preconditions,
    Body(body): Body,
) -> Result<Response, Problem> {
    let written =
        documents.replace(&caller, &collection, id, &body, condition).await.map_err(to_problem)?;
    Ok((StatusCode::NO_CONTENT, [etag_header(&written)]).into_response())
}

/// Patch a document
///
/// The body is a merge patch (RFC 7386) or a JSON patch (RFC 6902). If another write is committed
/// first, the patch is applied to the result of that write.
#[utoipa::path(patch, path = "/v1/documents/{collection}/{id}", operation_id = "patchDocument", tag = "documents",
    security(("token" = ["documents:write"])),
    params(("collection" = String, Path, description = "The collection."), ("id" = String, Path, description = "The document's id."), WriteParams,
        ("Idempotency-Key" = Option<String>, Header, description = "The request is carried out once, even if it is sent several times with this key within a day."),
        ("If-Match" = Option<String>, Header, description = "The request is carried out only if the document has this version."),
        ("If-None-Match" = Option<String>, Header, description = "The request is carried out only if the document does not have this version.")),
    request_body(content((Object = "application/merge-patch+json"), (Vec<Object> = "application/json-patch+json"))),
    responses(
        (status = 204, description = "The document was patched."),
        (status = 400, description = "The patch cannot be applied, or its result does not match the collection's definition.",
            body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "The document does not exist.", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`unresolved_reference`: a reference has no target. `identity_conflict`: another document has one of its identities.", body = Problem, content_type = "application/problem+json"),
        (status = 412, description = "The version does not satisfy `If-Match` or `If-None-Match`.", body = Problem, content_type = "application/problem+json"),
        (status = 415, description = "The content type is not that of a supported patch.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn patch_document(
    State(documents): State<Documents>,
    WriteScope(caller): WriteScope,
    DocumentPath(collection, id): DocumentPath,
    Preconditions(condition): Preconditions,
    DocumentPatch(kind, patch): DocumentPatch,
) -> Result<Response, Problem> {
    let written = documents
        .patch(&caller, &collection, id, kind, &patch, condition)
        .await
        .map_err(to_problem)?;
    Ok((StatusCode::NO_CONTENT, [etag_header(&written)]).into_response())
}

/// Delete a document
#[utoipa::path(delete, path = "/v1/documents/{collection}/{id}", operation_id = "deleteDocument", tag = "documents",
    security(("token" = ["documents:write"])),
    params(("collection" = String, Path, description = "The collection."), ("id" = String, Path, description = "The document's id."), WriteParams,
        ("Idempotency-Key" = Option<String>, Header, description = "The request is carried out once, even if it is sent several times with this key within a day."),
        ("If-Match" = Option<String>, Header, description = "The request is carried out only if the document has this version."),
        ("If-None-Match" = Option<String>, Header, description = "The request is carried out only if the document does not have this version.")),
    responses(
        (status = 204, description = "The document was deleted."),
        (status = 404, description = "The document does not exist.", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`still_referenced`: `referrers` has the number of documents that refer to the document, and the first of them.",
            body = Problem, content_type = "application/problem+json"),
        (status = 412, description = "The version does not satisfy `If-Match` or `If-None-Match`.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn delete_document(
    State(documents): State<Documents>,
    WriteScope(caller): WriteScope,
    DocumentPath(collection, id): DocumentPath,
    Preconditions(condition): Preconditions,
) -> Result<StatusCode, Problem> {
    let result = documents.delete(&caller, &collection, id, condition).await;
    result.map_err(to_problem)?;
    Ok(StatusCode::NO_CONTENT)
}

/// Write several documents
///
/// The operations may concern any collections. With `atomic`, all or none are done, and each may
/// refer to documents that others create. Otherwise each is done separately, in the given order
/// where one depends on another.
#[utoipa::path(post, path = "/v1/batch", operation_id = "batchDocuments", tag = "documents",
    security(("token" = ["documents:write"])), params(WriteParams,
        ("Idempotency-Key" = Option<String>, Header, description = "The request is carried out once, even if it is sent several times with this key within a day.")),
    request_body = Batch,
    responses(
        (status = 200, description = "The outcome of each operation.", body = BatchAnswer),
        (status = 400, description = "With `atomic`: an operation is not valid, and none was done; `operation` is its index.", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "With `atomic`: an operation cannot be done, and none was done; `operation` is its index.", body = Problem, content_type = "application/problem+json"),
        (status = 413, description = "The batch has too many operations.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn batch(
    State(documents): State<Documents>,
    WriteScope(caller): WriteScope,
    Json(batch): Json<Batch>,
) -> Result<Json<BatchAnswer>, Problem> {
    let is_atomic = batch.atomic;
    let operations = batch.into_operations()?;
    if is_atomic {
        let receipts = documents.batch_atomic(&caller, operations).await.map_err(batch_problem)?;
        return Ok(Json(BatchAnswer::from_outcomes(receipts.into_iter().map(Ok))));
    }
    let outcomes = documents.batch_each(&caller, operations).await;
    Ok(Json(BatchAnswer::from_outcomes(outcomes.map_err(to_problem)?)))
}
