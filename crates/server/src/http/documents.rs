//! Documents over HTTP: collections declared, documents written, read, looked for.
//!
//! `request.rs` reads requests, `answer.rs` builds responses. Bodies go through as bytes: the
//! engine parses them.

mod answer;
mod bulk;
mod changes;
mod check;
mod condition;
mod history;
mod long_running;
mod read;
mod request;
mod state;
mod subscriptions;
mod write;

use axum::extract::State;
use axum::response::Response;
use egret_documents::Documents;
use egret_documents::api::Caller as Asking;
use tokio_util::sync::CancellationToken;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use self::answer::{AppliedList, Collection, CollectionList, to_problem};
use self::bulk::{
    __path_export_documents, __path_import_documents, export_documents, import_documents,
};
use self::changes::{
    __path_follow_documents, __path_list_document_changes, follow_documents, list_document_changes,
};
use self::check::{__path_check_documents, check_documents};
use self::history::{
    __path_list_deleted_documents, __path_list_versions, __path_restore_document,
    list_deleted_documents, list_versions, restore_document,
};
use self::long_running::respond_with_keepalive;
use self::read::{
    __path_find_documents, __path_get_document, __path_get_referrers, find_documents, get_document,
    get_referrers,
};
use self::request::{DatabaseParams, Definitions, RequestScope};
use self::state::DocumentsState;
use self::subscriptions::{
    __path_delete_document_subscription, __path_list_document_subscriptions,
    __path_put_document_subscription, delete_document_subscription, list_document_subscriptions,
    put_document_subscription,
};
use self::write::{
    __path_batch, __path_delete_document, __path_patch_document, __path_put_document,
    __path_upsert_document, batch, delete_document, patch_document, put_document, upsert_document,
};
use crate::extract::{Json, Path};
use crate::openapi::runtime_document;
use crate::problem::Problem;

/// The routes of the documents engine, for [`Builder::route`](crate::Builder::route). Streams of
/// changes end when `stopping` is cancelled.
pub fn routes(documents: Documents, stopping: CancellationToken) -> OpenApiRouter {
    documented().with_state(DocumentsState { documents, stopping })
}

/// The routes with their documentation.
pub(crate) fn documented() -> OpenApiRouter<DocumentsState> {
    OpenApiRouter::default()
        .routes(routes!(list_collections, apply_collections))
        .routes(routes!(describe_collections))
        .routes(routes!(get_collection))
        .routes(routes!(find_documents, upsert_document))
        .routes(routes!(get_document, put_document, patch_document, delete_document))
        .routes(routes!(get_referrers))
        .routes(routes!(list_versions))
        .routes(routes!(restore_document))
        .routes(routes!(list_deleted_documents))
        .routes(routes!(import_documents))
        .routes(routes!(export_documents))
        .routes(routes!(check_documents))
        .routes(routes!(list_document_subscriptions))
        .routes(routes!(put_document_subscription, delete_document_subscription))
        .routes(routes!(batch))
        .routes(routes!(list_document_changes))
        .routes(routes!(follow_documents))
}

/// Declare collections
///
/// The body has one definition, or several under `collections`, which are applied all or none.
/// Existing collections get the new definition if their documents match it. If checking that takes
/// more than a minute, the response has status 200 and begins with spaces, and in case of an error
/// it ends with a problem.
#[utoipa::path(post, path = "/v1/collections", operation_id = "applyCollections", tag = "documents",
    extensions(("x-egret-lasting" = json!(true))), security(("token" = ["admin"])), params(DatabaseParams),
    request_body(content = Object, description = "One definition, or several under `collections`."),
    responses(
        (status = 200, description = "The collections are declared.", body = AppliedList),
        (status = 400, description = "A definition is not valid: `violations` has a JSON pointer and a message for each reason.",
            body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "The database does not exist.", body = Problem,
            content_type = "application/problem+json"),
        (status = 409, description = "Existing documents do not match a changed definition.",
            body = Problem, content_type = "application/problem+json"),
    ))]
async fn apply_collections(
    State(documents): State<Documents>,
    scope: RequestScope,
    definitions: Definitions,
) -> Response {
    let caller: Asking = scope.0;
    tracing::info!(token = caller.author, "declaring collections");
    let apply = async move { documents.apply(&caller, &definitions.0).await };
    respond_with_keepalive(apply, AppliedList::from_results).await
}

/// List the collections
///
/// The collections are listed in the order of their names.
#[utoipa::path(get, path = "/v1/collections", operation_id = "listCollections", tag = "documents",
    security(("token" = ["documents:read"])), params(DatabaseParams),
    responses((status = 200, description = "The collections.", body = CollectionList)))]
async fn list_collections(
    State(documents): State<Documents>,
    RequestScope(caller): RequestScope,
) -> Result<Json<CollectionList>, Problem> {
    let summaries = documents.collections(&caller).await.map_err(to_problem)?;
    let items = summaries.into_iter().map(Collection::from_summary).collect();
    Ok(Json(CollectionList { items }))
}

/// Get a collection by name
#[utoipa::path(get, path = "/v1/collections/{name}", operation_id = "getCollection", tag = "documents",
    security(("token" = ["documents:read"])), params(("name" = String, Path, description = "The collection's name."), DatabaseParams),
    responses(
        (status = 200, description = "The collection.", body = Collection),
        (status = 404, description = "No collection has this name.", body = Problem, content_type = "application/problem+json"),
    ))]
async fn get_collection(
    State(documents): State<Documents>,
    RequestScope(caller): RequestScope,
    Path(name): Path<String>,
) -> Result<Json<Collection>, Problem> {
    let name = request::parse_collection("path", &name)?;
    let summary = documents.collection(&caller, &name).await.map_err(to_problem)?;
    Ok(Json(Collection::from_summary(summary)))
}

/// Describe the collections
///
/// The response is an OpenAPI 3.1 document with the paths of each collection and the schemas of
/// their documents.
#[utoipa::path(get, path = "/v1/collections/openapi.json", operation_id = "describeCollections", tag = "documents",
    security(("token" = ["documents:read"])), params(DatabaseParams),
    responses((status = 200, description = "The document.", body = Object)))]
async fn describe_collections(
    State(documents): State<Documents>,
    RequestScope(caller): RequestScope,
) -> Result<Json<serde_json::Value>, Problem> {
    let description = documents.describe_openapi(&caller).await.map_err(to_problem)?;
    Ok(Json(runtime_document(description.paths, description.components)))
}
