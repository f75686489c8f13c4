//! Changes of documents: page by page, or as server-sent events.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use egret_base::Timestamp;
use egret_documents::api::{Caller as Asking, Change, ChangesPage, ChangesQuery};
use egret_documents::model::FeedPosition;
use egret_documents::{Documents, DocumentsError};
use futures_util::{Stream, stream};
use http::{HeaderMap, header};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use utoipa::{IntoParams, ToSchema};

use super::answer::{to_problem, to_timestamp};
use super::request::{ReadScope, parse_collection};
use super::state::DocumentsState;
use crate::error::RequestError;
use crate::extract::{Json, Query};
use crate::problem::Problem;

/// Interval of keep-alive comments while there are no changes.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// The header in which a reconnecting browser names the last event that it received.
const LAST_EVENT_ID: &str = "last-event-id";

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct DocumentFollowParams {
    /// The database; when absent, the only one that has collections.
    #[serde(rename = "database")]
    _database: Option<String>,
    /// Return only changes of this collection.
    collection: Option<String>,
    /// Return changes after this position; when absent, changes after the present end of the feed.
    after: Option<i64>,
}

/// The changes to list, and how many.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct ChangePageParams {
    /// The database; when absent, the only one that has collections.
    database: Option<String>,
    /// Return only changes of this collection.
    collection: Option<String>,
    /// Return changes after this position; when absent, the response has no changes, only the
    /// current `position`.
    after: Option<i64>,
    /// The maximum number of changes in a page [default: 100].
    #[param(minimum = 1)]
    limit: Option<u32>,
}

impl ChangePageParams {
    fn into_query(self) -> Result<ChangesQuery, RequestError> {
        let Self { database, collection, after, limit: _ } = self;
        let start = DocumentFollowParams { _database: database, collection, after };
        start.into_query()
    }
}

impl DocumentFollowParams {
    fn into_query(self) -> Result<ChangesQuery, RequestError> {
        Ok(ChangesQuery {
            collection: self.collection.map(|name| parse_collection("query", &name)).transpose()?,
            after: self.after.map(FeedPosition),
        })
    }
}

/// A change of a document.
#[derive(Serialize, ToSchema)]
struct DocumentChange {
    /// The position of the change in the order of commits.
    #[schema(example = 4711)]
    position: i64,
    /// When the change was written, RFC 3339.
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    /// `create`, `update`, `delete` or `identity_change`.
    #[schema(example = "update")]
    kind: &'static str,
    /// Its collection.
    #[schema(example = "flights")]
    collection: String,
    /// The document.
    id: String,
    /// The document's version after the change.
    version: i32,
}

impl DocumentChange {
    fn from_change(change: &Change) -> Self {
        Self {
            position: change.position.0,
            at: to_timestamp(change.at),
            kind: change.kind.as_str(),
            collection: change.collection.to_string(),
            id: change.id.to_string(),
            version: change.version,
        }
    }
}

/// Changes, in the order of commits.
#[derive(Serialize, ToSchema)]
pub(super) struct DocumentChangeList {
    items: Vec<DocumentChange>,
    /// The position up to which changes were read: continue with it in `after`. There may be more
    /// changes even if `items` is empty.
    position: i64,
}

impl DocumentChangeList {
    fn from_page(changes: &ChangesPage) -> Self {
        Self {
            items: changes.items.iter().map(DocumentChange::from_change).collect(),
            position: changes.position.0,
        }
    }
}

/// List changes of documents
///
/// Changes are listed in the order of commits: a client that passes the `position` of each response
/// as `after` of the next request skips no change. Changes written with `durability=relaxed` are
/// listed once they are flushed, so that a crash of the server cannot undo them.
#[utoipa::path(get, path = "/v1/document-changes", operation_id = "listDocumentChanges", tag = "documents",
    security(("token" = ["documents:read"])), params(ChangePageParams),
    responses(
        (status = 200, description = "Changes.", body = DocumentChangeList),
        (status = 404, description = "The collection is not declared.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn list_document_changes(
    State(documents): State<Documents>,
    ReadScope(caller): ReadScope,
    Query(params): Query<ChangePageParams>,
) -> Result<Json<DocumentChangeList>, Problem> {
    let limit = params.limit;
    let changes = documents.changes(&caller, &params.into_query()?, limit).await;
    Ok(Json(DocumentChangeList::from_page(&changes.map_err(to_problem)?)))
}

/// Follow changes of documents
///
/// The response is a stream of server-sent events. The first is `following`, whose id is the
/// position at which the stream starts. Events `changes` follow in the order of commits; none is
/// lost or repeated. If the stream cannot continue, its last event is `problem`. A client that
/// reconnects sends the last id in `Last-Event-ID` or `after`. A comment is sent every 15 seconds
/// without events. Changes with `durability=relaxed` are sent once they are flushed, so that a
/// crash of the server cannot undo them.
#[utoipa::path(get, path = "/v1/document-changes/events", operation_id = "followDocuments", tag = "documents",
    extensions(("x-egret-lasting" = json!(true))), security(("token" = ["documents:read"])), params(DocumentFollowParams),
    responses(
        (status = 200, description = "The events. The data of `changes` is:", body = DocumentChangeList, content_type = "text/event-stream"),
        (status = 410, description = "`changes_gone`: the changes after this position are no longer kept, or the database has not reached it.", body = Problem,
            content_type = "application/problem+json"),
        (status = 404, description = "The collection is not declared.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn follow_documents(
    State(state): State<DocumentsState>,
    ReadScope(caller): ReadScope,
    Query(params): Query<DocumentFollowParams>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let mut query = params.into_query()?;
    if let Some(last_event_id) = headers.get(LAST_EVENT_ID) {
        query.after = Some(FeedPosition(parse_event_id(last_event_id)?));
    }
    let page = state.documents.changes(&caller, &query, Some(1)).await.map_err(to_problem)?;
    query.after.get_or_insert(page.position);
    let kind = [(header::CONTENT_TYPE, "text/event-stream")];
    let event_stream = ChangeEventStream {
        documents: state.documents,
        caller,
        query,
        stopping: state.stopping,
        has_started: false,
    };
    Ok((kind, Body::from_stream(event_stream.events())).into_response())
}

fn parse_event_id(value: &http::HeaderValue) -> Result<i64, RequestError> {
    let text = value.to_str().unwrap_or_default();
    text.parse().map_err(|_| RequestError::Parameter {
        place: "header",
        message: format!("{LAST_EVENT_ID}: `{text}` is not the position of a change"),
    })
}

struct ChangeEventStream {
    documents: Documents,
    caller: Asking,
    query: ChangesQuery,
    stopping: CancellationToken,
    has_started: bool,
}

impl ChangeEventStream {
    fn events(self) -> impl Stream<Item = Result<Bytes, Infallible>> {
        stream::unfold(Some(self), |follower| async move {
            let (event, follower) = follower?.next().await?;
            Some((Ok(event), follower))
        })
    }

    /// Returns the next event, and the stream unless that event is the last one.
    async fn next(mut self) -> Option<(Bytes, Option<Self>)> {
        if !self.has_started {
            self.has_started = true;
            let position = self.query.after.unwrap_or_default();
            let start_event =
                format!("event: following\nid: {position}\ndata: {{\"position\":{position}}}\n\n");
            return Some((start_event.into(), Some(self)));
        }
        let keep_alive_at = Instant::now() + KEEP_ALIVE_INTERVAL;
        let next = self.documents.next_changes(&self.caller, &mut self.query);
        let next = tokio::select! {
            () = self.stopping.cancelled() => return None,
            next = tokio::time::timeout_at(keep_alive_at, next) => next,
        };
        match next {
            Err(_) => Some((Bytes::from_static(b": egret\n\n"), Some(self))),
            Ok(Ok(changes)) => Some((changes_event(&changes), Some(self))),
            Ok(Err(error)) => Some((problem_event(error), None)),
        }
    }
}

fn changes_event(changes: &ChangesPage) -> Bytes {
    let list = DocumentChangeList::from_page(changes);
    let data = serde_json::to_string(&list).expect("changes are text and numbers");
    format!("event: changes\nid: {}\ndata: {data}\n\n", changes.position).into()
}

fn problem_event(error: DocumentsError) -> Bytes {
    let problem = serde_json::to_string(&to_problem(error)).expect("a problem is text and numbers");
    format!("event: problem\ndata: {problem}\n\n").into()
}
