//! Documents are read and looked for.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use egret_documents::Documents;
use egret_documents::core::decide::Etag;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::Deserialize;
use utoipa::IntoParams;

use super::Place;
use super::answer::{Document, DocumentList, problem};
use super::condition::is_known;
use super::request::{At, In, Looking, Reader, Shaped};
use crate::extract::{Json, Query};
use crate::problem::Problem;

/// Look for documents
///
/// By their identity, or by the paths that the collection declares for that. Without a sort they come in the order in which they were made; with one, those without a
/// value come last.
#[utoipa::path(get, path = "/v1/documents/{collection}", operation_id = "findDocuments", tag = "documents",
    security(("token" = ["documents:read"])),
    params(("collection" = String, Path, description = "The collection."), Place,
        ("identity" = Option<String>, Query, description = "The identity of the one that is looked for, as JSON: an object that has it where documents do. Nothing else is asked beside it."),
        ("filter" = Option<Vec<String>>, Query, description = "A condition: a path, one of =, !=, <, <=, >, >=, in, prefix and exists, and a value. May be repeated."),
        ("sort" = Option<String>, Query, description = "A path; `-` before it: the largest first."),
        ("cursor" = Option<String>, Query, description = "The `next` of the page before."),
        ("limit" = Option<u32>, Query, minimum = 1, description = "Documents of a page [default: 100]."),
        ("count" = Option<String>, Query, description = "Whether all are counted: `exact`, `planned` (as the planner thinks) or `none`."),
        ("fields" = Option<String>, Query, description = "These paths of the documents alone, with commas between them."),
        ("embed" = Option<String>, Query, description = "What these references are to comes along, with commas between their names.")),
    responses(
        (status = 200, description = "A page of documents.", body = DocumentList),
        (status = 400, description = "`query_invalid`: a path is not declared, or a condition is none.", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "There is no such collection.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn find_documents(
    State(documents): State<Documents>,
    Reader(asking): Reader,
    In(collection): In,
    Looking(find): Looking,
) -> Result<Json<DocumentList>, Problem> {
    let page = documents.find(&asking, &collection, &find).await;
    let page = page.and_then(DocumentList::of);
    Ok(Json(page.map_err(problem)?))
}

/// Read a document
///
/// As it was sent, numbers in their normal form. With `embed` or `meta` it comes within an object that has these as well.
#[utoipa::path(get, path = "/v1/documents/{collection}/{id}", operation_id = "getDocument", tag = "documents",
    security(("token" = ["documents:read"])),
    params(("collection" = String, Path, description = "The collection."), ("id" = String, Path, description = "The document's id."), Place,
        ("fields" = Option<String>, Query, description = "These paths of the document alone, with commas between them."),
        ("embed" = Option<String>, Query, description = "What these references are to comes along, with commas between their names. Then there is no etag."),
        ("meta" = Option<bool>, Query, description = "Whether it comes with its version, when it was made and changed, and by whom."),
        ("If-None-Match" = Option<String>, Header, description = "Only if it does not have this version.")),
    responses(
        (status = 200, description = "The document.", body = Object),
        (status = 304, description = "It is as `If-None-Match` says it is known."),
        (status = 404, description = "There is no such document.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn get_document(
    State(documents): State<Documents>,
    Reader(asking): Reader,
    At(collection, id): At,
    Shaped { shape, meta }: Shaped,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    // What is embedded changes by itself: no version of this document stands for it.
    let is_whole = shape.embed.is_empty();
    let is_plain = shape.fields.is_empty() && shape.embed.is_empty() && !meta;
    let place = (&collection, id);
    let (version, body) = if is_plain {
        let stored = documents.get(&asking, place).await.map_err(problem)?;
        (stored.version, stored.body)
    } else {
        let found = documents.get_shaped(&asking, place, &shape).await;
        let found = found.map_err(problem)?;
        let version = found.stored.version;
        let fields = found.fields.clone();
        let body = match fields.filter(|_| shape.embed.is_empty() && !meta) {
            Some(fields) => fields.to_string(),
            None => {
                let document = Document::of(found, meta).map_err(problem)?;
                serde_json::to_string(&document).expect("a document is JSON")
            }
        };
        (version, body)
    };
    let json = HeaderValue::from_static("application/json");
    if !is_whole {
        return Ok(([(header::CONTENT_TYPE, json)], body).into_response());
    }
    let etag = Etag::new(id, version);
    let tag = HeaderValue::try_from(etag.to_string()).expect("it is ASCII");
    if is_known(&headers, etag) {
        return Ok((StatusCode::NOT_MODIFIED, [(header::ETAG, tag)]).into_response());
    }
    let headers = [(header::CONTENT_TYPE, json), (header::ETAG, tag)];
    Ok((headers, body).into_response())
}

/// Which page of those that refer to a document.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct ReferrersPage {
    /// The database; without it the only one that has collections.
    #[serde(rename = "database")]
    _database: Option<String>,
    /// The `next` of the page before.
    cursor: Option<String>,
    /// Documents of a page [default: 100].
    #[param(minimum = 1)]
    limit: Option<u32>,
}

/// List who refers to a document
///
/// Documents of all collections, in the order in which they were made.
#[utoipa::path(get, path = "/v1/documents/{collection}/{id}/referrers", operation_id = "getReferrers", tag = "documents",
    security(("token" = ["documents:read"])),
    params(("collection" = String, Path, description = "The collection."), ("id" = String, Path, description = "The document's id."), ReferrersPage),
    responses(
        (status = 200, description = "A page of documents, each with its `collection`.", body = DocumentList),
        (status = 404, description = "There is no such document.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn get_referrers(
    State(documents): State<Documents>,
    Reader(asking): Reader,
    At(collection, id): At,
    Query(page): Query<ReferrersPage>,
) -> Result<Json<DocumentList>, Problem> {
    let part = (page.cursor.as_deref(), page.limit);
    let page = documents.referrers(&asking, (&collection, id), part).await;
    let page = page.and_then(DocumentList::referring);
    Ok(Json(page.map_err(problem)?))
}
