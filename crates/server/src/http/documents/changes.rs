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

use super::answer::{moment, problem};
use super::request::{ReadScope, collection};
use super::state::DocumentsState;
use crate::error::RequestError;
use crate::extract::{Json, Query};
use crate::problem::Problem;

/// Interval of keep-alive comments while there are no changes.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

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
    fn following(self) -> Result<ChangesQuery, RequestError> {
        let Self {
            database,
            collection,
            after,
            limit: _,
        } = self;
        let start = DocumentFollowParams {
            _database: database,
            collection,
            after,
        };
        start.following()
    }
}

impl DocumentFollowParams {
    fn following(self) -> Result<ChangesQuery, RequestError> {
        Ok(ChangesQuery {
            collection: self
                .collection
                .map(|name| collection("query", &name))
                .transpose()?,
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
    fn of(change: &Change) -> Self {
        Self {
            position: change.position.0,
            at: moment(change.at),
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
    fn of(changes: &ChangesPage) -> Self {
        Self {
            items: changes.items.iter().map(DocumentChange::of).collect(),
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
    ReadScope(asking): ReadScope,
    Query(start): Query<ChangePageParams>,
) -> Result<Json<DocumentChangeList>, Problem> {
    let limit = start.limit;
    let changes = documents.changes(&asking, &start.following()?, limit).await;
    Ok(Json(DocumentChangeList::of(&changes.map_err(problem)?)))
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
    State(door): State<DocumentsState>,
    ReadScope(asking): ReadScope,
    Query(start): Query<DocumentFollowParams>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let mut following = start.following()?;
    if let Some(last) = headers.get(LAST_EVENT_ID) {
        following.after = Some(FeedPosition(number(last)?));
    }
    let now = door
        .documents
        .changes(&asking, &following, Some(1))
        .await
        .map_err(problem)?;
    following.after.get_or_insert(now.position);
    let kind = [(header::CONTENT_TYPE, "text/event-stream")];
    let follower = ChangeEventStream {
        documents: door.documents,
        asking,
        following,
        stopping: door.stopping,
        has_begun: false,
    };
    Ok((kind, Body::from_stream(follower.events())).into_response())
}

fn number(value: &http::HeaderValue) -> Result<i64, RequestError> {
    let text = value.to_str().unwrap_or_default();
    text.parse().map_err(|_| RequestError::Parameter {
        place: "header",
        message: format!("{LAST_EVENT_ID}: `{text}` is not the position of a change"),
    })
}

struct ChangeEventStream {
    documents: Documents,
    asking: Asking,
    following: ChangesQuery,
    stopping: CancellationToken,
    has_begun: bool,
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
        if !self.has_begun {
            self.has_begun = true;
            let position = self.following.after.unwrap_or_default();
            let begun =
                format!("event: following\nid: {position}\ndata: {{\"position\":{position}}}\n\n");
            return Some((begun.into(), Some(self)));
        }
        let quiet = Instant::now() + KEEP_ALIVE;
        let next = self
            .documents
            .next_changes(&self.asking, &mut self.following);
        let next = tokio::select! {
            () = self.stopping.cancelled() => return None,
            next = tokio::time::timeout_at(quiet, next) => next,
        };
        match next {
            Err(_) => Some((Bytes::from_static(b": egret\n\n"), Some(self))),
            Ok(Ok(changes)) => Some((told(&changes), Some(self))),
            Ok(Err(error)) => Some((failed(error), None)),
        }
    }
}

fn told(changes: &ChangesPage) -> Bytes {
    let list = DocumentChangeList::of(changes);
    let data = serde_json::to_string(&list).expect("changes are text and numbers");
    format!("event: changes\nid: {}\ndata: {data}\n\n", changes.position).into()
}

fn failed(error: DocumentsError) -> Bytes {
    let problem = serde_json::to_string(&problem(error)).expect("a problem is text and numbers");
    format!("event: problem\ndata: {problem}\n\n").into()
}
