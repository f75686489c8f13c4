//! Documents are written.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use egret_documents::Documents;
use egret_documents::core::decide::Etag;
use egret_documents::model::{CollectionName, Done, Written};
use http::{HeaderName, HeaderValue, StatusCode, header};

use super::answer::{BatchAnswer, WrittenDocument, batch_problem, problem};
use super::request::{At, Batch, Body, Change, If, In, Writer, Writing};
use crate::extract::Json;
use crate::problem::Problem;

/// What a write is answered by.
pub(super) fn status(written: &Written) -> StatusCode {
    match written.done {
        Done::Created => StatusCode::CREATED,
        Done::Changed | Done::Unchanged => StatusCode::OK,
        Done::Removed => StatusCode::NO_CONTENT,
    }
}

pub(super) fn etag(written: &Written) -> (HeaderName, HeaderValue) {
    let etag = Etag::new(written.id, written.version).to_string();
    let etag = HeaderValue::try_from(etag).expect("it is ASCII");
    (header::ETAG, etag)
}

fn location(collection: &CollectionName, written: &Written) -> (HeaderName, HeaderValue) {
    let place = format!("/v1/documents/{collection}/{}", written.id);
    let place = HeaderValue::try_from(place).expect("it is ASCII");
    (header::LOCATION, place)
}

/// Write a document by its identity
///
/// Where one with the same identity is, it is replaced; one that is as it was sent is not written.
#[utoipa::path(post, path = "/v1/documents/{collection}", operation_id = "upsertDocument", tag = "documents",
    security(("token" = ["documents:write"])),
    params(("collection" = String, Path, description = "The collection."), Writing,
        ("Idempotency-Key" = Option<String>, Header, description = "The request is done once, however often it comes with this within a day."),
        ("If-Match" = Option<String>, Header, description = "Only if it has this version; `*`: only if it is there."),
        ("If-None-Match" = Option<String>, Header, description = "Only if it does not have this version; `*`: only if it is not there.")),
    request_body(content = Object, description = "The document."),
    responses(
        (status = 200, description = "It was there, and is as it was sent.", body = WrittenDocument),
        (status = 201, description = "It is new.", body = WrittenDocument),
        (status = 400, description = "It is not what the collection allows: `violations` has a JSON pointer and a message for each reason.",
            body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "There is no such collection.", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`unresolved_reference`: `references` has what is not there. `identity_conflict`: another document \
            has one of its identities.", body = Problem, content_type = "application/problem+json"),
        (status = 412, description = "It is not as the condition wants it.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn upsert_document(
    State(documents): State<Documents>,
    Writer(asking): Writer,
    In(collection): In,
    If(condition): If,
    Body(body): Body,
) -> Result<Response, Problem> {
    let written = documents
        .upsert(&asking, &collection, &body, condition)
        .await;
    let written = written.map_err(problem)?;
    let headers = [etag(&written), location(&collection, &written)];
    let told = WrittenDocument {
        id: written.id.to_string(),
    };
    Ok((status(&written), headers, Json(told)).into_response())
}

/// Replace a document
#[utoipa::path(put, path = "/v1/documents/{collection}/{id}", operation_id = "putDocument", tag = "documents",
    security(("token" = ["documents:write"])),
    params(("collection" = String, Path, description = "The collection."), ("id" = String, Path, description = "The document's id."), Writing,
        ("Idempotency-Key" = Option<String>, Header, description = "The request is done once, however often it comes with this within a day."),
        ("If-Match" = Option<String>, Header, description = "Only if it has this version."),
        ("If-None-Match" = Option<String>, Header, description = "Only if it does not have this version.")),
    request_body(content = Object, description = "The document."),
    responses(
        (status = 204, description = "It is as it was sent. Where the collection allows another identity, all that refer to it do so by that."),
        (status = 400, description = "It is not what the collection allows, or has another identity where that does not change.",
            body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "There is no such document.", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`unresolved_reference` or `identity_conflict`.", body = Problem, content_type = "application/problem+json"),
        (status = 412, description = "It is not as the condition wants it.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn put_document(
    State(documents): State<Documents>,
    Writer(asking): Writer,
    At(collection, id): At,
    If(condition): If,
    Body(body): Body,
) -> Result<Response, Problem> {
    let written = documents
        .replace(&asking, (&collection, id), &body, condition)
        .await;
    let written = written.map_err(problem)?;
    Ok((StatusCode::NO_CONTENT, [etag(&written)]).into_response())
}

/// Change parts of a document
///
/// A merge patch (RFC 7386) or a JSON patch (RFC 6902). Where another write comes between, the patch is applied to what that one wrote.
#[utoipa::path(patch, path = "/v1/documents/{collection}/{id}", operation_id = "patchDocument", tag = "documents",
    security(("token" = ["documents:write"])),
    params(("collection" = String, Path, description = "The collection."), ("id" = String, Path, description = "The document's id."), Writing,
        ("Idempotency-Key" = Option<String>, Header, description = "The request is done once, however often it comes with this within a day."),
        ("If-Match" = Option<String>, Header, description = "Only if it has this version."),
        ("If-None-Match" = Option<String>, Header, description = "Only if it does not have this version.")),
    request_body(content((Object = "application/merge-patch+json"), (Vec<Object> = "application/json-patch+json"))),
    responses(
        (status = 204, description = "It is changed."),
        (status = 400, description = "The patch cannot be applied, or what comes of it is not what the collection allows.",
            body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "There is no such document.", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`unresolved_reference` or `identity_conflict`.", body = Problem, content_type = "application/problem+json"),
        (status = 412, description = "It is not as the condition wants it.", body = Problem, content_type = "application/problem+json"),
        (status = 415, description = "It is no patch that is read here.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn patch_document(
    State(documents): State<Documents>,
    Writer(asking): Writer,
    At(collection, id): At,
    If(condition): If,
    Change(kind, patch): Change,
) -> Result<Response, Problem> {
    let change = (kind, patch.as_ref());
    let written = documents
        .patch(&asking, (&collection, id), change, condition)
        .await;
    let written = written.map_err(problem)?;
    Ok((StatusCode::NO_CONTENT, [etag(&written)]).into_response())
}

/// Delete a document
#[utoipa::path(delete, path = "/v1/documents/{collection}/{id}", operation_id = "deleteDocument", tag = "documents",
    security(("token" = ["documents:write"])),
    params(("collection" = String, Path, description = "The collection."), ("id" = String, Path, description = "The document's id."), Writing,
        ("Idempotency-Key" = Option<String>, Header, description = "The request is done once, however often it comes with this within a day."),
        ("If-Match" = Option<String>, Header, description = "Only if it has this version."),
        ("If-None-Match" = Option<String>, Header, description = "Only if it does not have this version.")),
    responses(
        (status = 204, description = "It is not there any more."),
        (status = 404, description = "There is no such document.", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`still_referenced`: `referrers` has how many refer to it, and the first of them.",
            body = Problem, content_type = "application/problem+json"),
        (status = 412, description = "It is not as the condition wants it.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn delete_document(
    State(documents): State<Documents>,
    Writer(asking): Writer,
    At(collection, id): At,
    If(condition): If,
) -> Result<StatusCode, Problem> {
    let gone = documents
        .delete(&asking, (&collection, id), condition)
        .await;
    gone.map_err(problem)?;
    Ok(StatusCode::NO_CONTENT)
}

/// Write several documents
///
/// Over any collections: all or none (`atomic`), where each may refer to what another one makes; or each for itself, in this order where one needs
/// another.
#[utoipa::path(post, path = "/v1/batch", operation_id = "batchDocuments", tag = "documents",
    security(("token" = ["documents:write"])), params(Writing,
        ("Idempotency-Key" = Option<String>, Header, description = "The request is done once, however often it comes with this within a day.")),
    request_body = Batch,
    responses(
        (status = 200, description = "What became of each.", body = BatchAnswer),
        (status = 400, description = "One is not valid, and so none was done: `operation` says which.", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "One cannot be done, and so none was: `operation` says which.", body = Problem, content_type = "application/problem+json"),
        (status = 413, description = "There are too many.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn batch(
    State(documents): State<Documents>,
    Writer(asking): Writer,
    Json(batch): Json<Batch>,
) -> Result<Json<BatchAnswer>, Problem> {
    let is_atomic = batch.atomic;
    let operations = batch.operations()?;
    if is_atomic {
        let done = documents.batch_atomic(&asking, operations).await;
        let done = done.map_err(batch_problem)?;
        return Ok(Json(BatchAnswer::of(done.into_iter().map(Ok))));
    }
    let each = documents.batch_each(&asking, operations).await;
    Ok(Json(BatchAnswer::of(each.map_err(problem)?)))
}
