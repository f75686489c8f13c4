//! Reading and finding documents.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use egret_documents::Documents;
use egret_documents::model::Etag;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::Deserialize;
use utoipa::IntoParams;

use super::answer::{Document, DocumentList, to_problem};
use super::condition::is_not_modified;
use super::request::{
    CollectionPath, DatabaseParams, DocumentPath, FindParams, Projection, ReadScope,
};
use crate::extract::{Json, Query};
use crate::problem::Problem;

/// Find documents
///
/// Documents are found by their identity, or by the paths that the collection declares in `query`.
/// Without `sort` they are listed in the order of their creation; with `sort`, documents without a
/// value are last.
#[utoipa::path(get, path = "/v1/documents/{collection}", operation_id = "findDocuments", tag = "documents",
    security(("token" = ["documents:read"])),
    params(("collection" = String, Path, description = "The collection."), DatabaseParams,
        ("identity" = Option<String>, Query, description = "The identity of the document to find, as a JSON object with its parts at the same paths as in the document. It cannot be combined with conditions, a sort or a cursor."),
        ("filter" = Option<Vec<String>>, Query, description = "A condition: a path, one of =, !=, <, <=, >, >=, in, prefix and exists, and a value. The parameter may be repeated; conditions are combined with AND."),
        ("sort" = Option<String>, Query, description = "The path to sort by, with `-` before it for descending order."),
        ("cursor" = Option<String>, Query, description = "The `next` of the previous page."),
        ("limit" = Option<u32>, Query, minimum = 1, description = "The maximum number of documents in a page [default: 100]."),
        ("count" = Option<String>, Query, description = "Whether to return the number of all matches: `exact`, `planned` (the planner's estimate) or `none`."),
        ("fields" = Option<String>, Query, description = "The paths of the documents to return, separated by commas."),
        ("embed" = Option<String>, Query, description = "The references whose targets are embedded, by names separated by commas.")),
    responses(
        (status = 200, description = "A page of documents.", body = DocumentList),
        (status = 400, description = "`query_invalid`: a path is not declared, or a condition is not valid.", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "The collection is not declared.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn find_documents(
    State(documents): State<Documents>,
    ReadScope(caller): ReadScope,
    CollectionPath(collection): CollectionPath,
    FindParams(query): FindParams,
) -> Result<Json<DocumentList>, Problem> {
    let page = documents.find(&caller, &collection, &query).await.and_then(DocumentList::from_page);
    Ok(Json(page.map_err(to_problem)?))
}

/// Get a document
///
/// The document is returned as it was sent, with numbers normalized. With `embed` or `meta` it is
/// wrapped in an object that also has the embedded documents or the metadata.
#[utoipa::path(get, path = "/v1/documents/{collection}/{id}", operation_id = "getDocument", tag = "documents",
    security(("token" = ["documents:read"])),
    params(("collection" = String, Path, description = "The collection."), ("id" = String, Path, description = "The document's id."), DatabaseParams,
        ("fields" = Option<String>, Query, description = "The paths of the document to return, separated by commas."),
        ("embed" = Option<String>, Query, description = "The references whose targets are embedded, by names separated by commas. The response then has no etag."),
        ("meta" = Option<bool>, Query, description = "Whether to return the document's version, times of creation and last change, and the ids of the tokens that created and changed it."),
        ("If-None-Match" = Option<String>, Header, description = "The request is carried out only if the document does not have this version.")),
    responses(
        (status = 200, description = "The document.", body = Object),
        (status = 304, description = "The document's version matches `If-None-Match`."),
        (status = 404, description = "The document does not exist.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn get_document(
    State(documents): State<Documents>,
    ReadScope(caller): ReadScope,
    DocumentPath(collection, id): DocumentPath,
    Projection { projection, meta }: Projection,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    // What is embedded changes by itself: no version of this document stands for it.
    let has_etag = projection.embed.is_empty();
    let is_plain = projection.fields.is_empty() && projection.embed.is_empty() && !meta;
    let (version, body) = if is_plain {
        let stored = documents.get(&caller, &collection, id).await.map_err(to_problem)?;
        (stored.version, stored.body)
    } else {
        // Boxed, so that the future of plain reads stays small.
        let item = Box::pin(documents.get_projected(&caller, &collection, id, &projection))
            .await
            .map_err(to_problem)?;
        let version = item.stored.version;
        let fields = item.fields.clone();
        let body = match fields.filter(|_| projection.embed.is_empty() && !meta) {
            Some(fields) => fields.to_string(),
            None => {
                let document = Document::from_item(item, meta).map_err(to_problem)?;
                serde_json::to_string(&document).expect("a document can be written as JSON")
            }
        };
        (version, body)
    };
    let json = HeaderValue::from_static("application/json");
    if !has_etag {
        return Ok(([(header::CONTENT_TYPE, json)], body).into_response());
    }
    let etag = Etag::new(id, version);
    let tag = HeaderValue::try_from(etag.to_string()).expect("an etag is ASCII");
    if is_not_modified(&headers, etag) {
        return Ok((StatusCode::NOT_MODIFIED, [(header::ETAG, tag)]).into_response());
    }
    let headers = [(header::CONTENT_TYPE, json), (header::ETAG, tag)];
    Ok((headers, body).into_response())
}

/// The page of referring documents to list.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct ReferrersPage {
    /// The database; when absent, the only one that has collections.
    #[serde(rename = "database")]
    _database: Option<String>,
    /// The `next` of the previous page.
    cursor: Option<String>,
    /// The maximum number of documents in a page [default: 100].
    #[param(minimum = 1)]
    limit: Option<u32>,
}

/// List the documents that refer to a document
///
/// The list has documents of all collections, in the order of their creation.
#[utoipa::path(get, path = "/v1/documents/{collection}/{id}/referrers", operation_id = "getReferrers", tag = "documents",
    security(("token" = ["documents:read"])),
    params(("collection" = String, Path, description = "The collection."), ("id" = String, Path, description = "The document's id."), ReferrersPage),
    responses(
        (status = 200, description = "A page of documents, each with its `collection`.", body = DocumentList),
        (status = 404, description = "The document does not exist.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn get_referrers(
    State(documents): State<Documents>,
    ReadScope(caller): ReadScope,
    DocumentPath(collection, id): DocumentPath,
    Query(page): Query<ReferrersPage>,
) -> Result<Json<DocumentList>, Problem> {
    let page = documents
        .referrers(&caller, &collection, id, page.cursor.as_deref(), page.limit)
        .await
        .and_then(DocumentList::from_referring);
    Ok(Json(page.map_err(to_problem)?))
}
