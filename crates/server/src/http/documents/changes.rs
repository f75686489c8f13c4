//! What becomes of documents: page by page, or as server-sent events.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use egret_base::Timestamp;
use egret_documents::api::{Caller as Asking, Change, Changes, Following};
use egret_documents::{Documents, DocumentsError};
use futures_util::{Stream, stream};
use http::{HeaderMap, header};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use utoipa::{IntoParams, ToSchema};

use super::Door;
use super::answer::{moment, problem};
use super::request::{Reader, collection};
use crate::error::RequestError;
use crate::extract::{Json, Query};
use crate::problem::Problem;

/// How often a client that is told nothing hears that the server is there.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// What a browser says when it comes again.
const LAST_EVENT_ID: &str = "last-event-id";

/// Which changes.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Start {
    /// The database; without it the only one that has collections.
    #[serde(rename = "database")]
    _database: Option<String>,
    /// Of this collection alone.
    collection: Option<String>,
    /// Those after this position; without it, those after the last that there is.
    after: Option<i64>,
}

/// Which changes, and how many.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct StartOfPage {
    /// The database; without it the only one that has collections.
    database: Option<String>,
    /// Of this collection alone.
    collection: Option<String>,
    /// Those after this position; without it, those after the last that there is.
    after: Option<i64>,
    /// Changes of a page [default: 100].
    #[param(minimum = 1)]
    limit: Option<u32>,
}

impl StartOfPage {
    fn following(self) -> Result<Following, RequestError> {
        let Self {
            database,
            collection,
            after,
            limit: _,
        } = self;
        let start = Start {
            _database: database,
            collection,
            after,
        };
        start.following()
    }
}

impl Start {
    fn following(self) -> Result<Following, RequestError> {
        Ok(Following {
            collection: self
                .collection
                .map(|name| collection("query", &name))
                .transpose()?,
            after: self.after,
        })
    }
}

/// What became of a document.
#[derive(Serialize, ToSchema)]
struct DocumentChange {
    /// Its place in the order of commits.
    #[schema(example = 4711)]
    position: i64,
    /// When it was written, RFC 3339.
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
    /// Its version then.
    version: i32,
}

impl DocumentChange {
    fn of(change: &Change) -> Self {
        Self {
            position: change.position,
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
    /// Up to here all have been looked at: go on `after` this. There may be more though there are no items.
    position: i64,
}

impl DocumentChangeList {
    fn of(changes: &Changes) -> Self {
        Self {
            items: changes.items.iter().map(DocumentChange::of).collect(),
            position: changes.position,
        }
    }
}

/// List what became of documents
///
/// In the order in which it was committed: whoever goes on after the `position` of each answer misses nothing. What was written with
/// `durability=relaxed` is told when a crash of the server cannot take it back any more.
#[utoipa::path(get, path = "/v1/document-changes", operation_id = "listDocumentChanges", tag = "documents",
    security(("token" = ["documents:read"])), params(StartOfPage),
    responses(
        (status = 200, description = "Changes.", body = DocumentChangeList),
        (status = 404, description = "There is no such collection.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn list_document_changes(
    State(documents): State<Documents>,
    Reader(asking): Reader,
    Query(start): Query<StartOfPage>,
) -> Result<Json<DocumentChangeList>, Problem> {
    let limit = start.limit;
    let changes = documents.changes(&asking, &start.following()?, limit).await;
    Ok(Json(DocumentChangeList::of(&changes.map_err(problem)?)))
}

/// Follow what becomes of documents
///
/// Server-sent events: first `following`, whose number is where it begins, then `changes` in the order of commits, none lost and none twice.
/// `problem` comes before the end where it cannot go on. A client that comes again names the last number in `Last-Event-ID`, or `after`. A
/// comment comes every 15 seconds when there is nothing to tell. What was written with `durability=relaxed` is told when a crash of the server
/// cannot take it back any more.
#[utoipa::path(get, path = "/v1/document-changes/events", operation_id = "followDocuments", tag = "documents",
    extensions(("x-egret-lasting" = json!(true))), security(("token" = ["documents:read"])), params(Start),
    responses(
        (status = 200, description = "The events; the data of `changes`:", body = DocumentChangeList, content_type = "text/event-stream"),
        (status = 410, description = "`changes_gone`: what came after this position is forgotten already, or the database has not reached it.", body = Problem,
            content_type = "application/problem+json"),
        (status = 404, description = "There is no such collection.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn follow_documents(
    State(door): State<Door>,
    Reader(asking): Reader,
    Query(start): Query<Start>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let mut following = start.following()?;
    if let Some(last) = headers.get(LAST_EVENT_ID) {
        following.after = Some(number(last)?);
    }
    let now = door.documents.changes(&asking, &following, Some(1)).await;
    let now = now.map_err(problem)?;
    following.after.get_or_insert(now.position);
    let kind = [(header::CONTENT_TYPE, "text/event-stream")];
    let follower = Follower {
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

struct Follower {
    documents: Documents,
    asking: Asking,
    following: Following,
    stopping: CancellationToken,
    has_begun: bool,
}

impl Follower {
    fn events(self) -> impl Stream<Item = Result<Bytes, Infallible>> {
        stream::unfold(Some(self), |follower| async move {
            let (event, follower) = follower?.next().await?;
            Some((Ok(event), follower))
        })
    }

    /// The next event; the last where nothing follows it.
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

fn told(changes: &Changes) -> Bytes {
    let list = DocumentChangeList::of(changes);
    let data = serde_json::to_string(&list).expect("changes are text and numbers");
    format!("event: changes\nid: {}\ndata: {data}\n\n", changes.position).into()
}

fn failed(error: DocumentsError) -> Bytes {
    let problem = serde_json::to_string(&problem(error)).expect("a problem is text and numbers");
    format!("event: problem\ndata: {problem}\n\n").into()
}
