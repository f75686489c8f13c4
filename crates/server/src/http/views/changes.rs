//! What refreshes change in views, as server-sent events.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use egret_base::{Timestamp, condition};
use egret_views::model::ChangePage;
use egret_views::{Begins, Follower, ViewsError};
use futures_util::{Stream, stream};
use http::{HeaderMap, header};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use utoipa::{IntoParams, ToSchema};

use super::answer::{moment, problem};
use super::{At, Door, Member};
use crate::access::part_name;
use crate::error::RequestError;
use crate::extract::{Path, Query};
use crate::problem::Problem;

/// How often a client that is told nothing hears that the server is there.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// What a browser says when it comes again.
const LAST_EVENT_ID: &str = "last-event-id";

/// From where a view is followed.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Start {
    /// The database; without it the only one that has such a view.
    database: Option<String>,
    /// The number of the change set after which to go on; without it, and without the header `Last-Event-ID`, from now on.
    after: Option<i64>,
}

/// What a refresh changed in a view, or a part of that.
#[derive(Serialize, ToSchema)]
pub(super) struct ViewChanges {
    /// The view, with its schema.
    #[schema(example = "public.late_by_carrier")]
    view: String,
    /// The number of the change set; each view has its own, which only rise.
    #[schema(example = 1_764_000_000_001_i64)]
    sequence: i64,
    /// When it was made, RFC 3339.
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    /// The snapshot that the view shows with it, as PostgreSQL writes a `pg_snapshot`.
    #[schema(example = "812:812:")]
    snapshot: String,
    /// Of a `reset`: why the view is to be read anew. `begun`: its changes are kept from here on. `repaired`: it was made anew.
    /// `restored`: so was the database, from a dump. `too_much`: more changed than `views.change_set_rows_max` rows, or than fits in
    /// `views.change_sets_size_max`.
    #[serde(skip_serializing_if = "Option::is_none")]
    reset: Option<String>,
    /// The rows, those that went first. A row that changed went, and came.
    rows: Vec<ViewChangedRow>,
    /// Whether more of the same change set follows. The number of the event comes with the last part.
    more: bool,
}

/// A row that there is more often than before, or less.
#[derive(Serialize, ToSchema)]
struct ViewChangedRow {
    /// How much more often; below zero: less.
    #[schema(example = 1)]
    weight: i64,
    /// The row: a JSON object of the view's columns.
    #[schema(value_type = Object, example = json!({"carrier": "UA", "flights": 3}))]
    row: Box<RawValue>,
}

impl ViewChanges {
    fn of(view: &str, page: ChangePage) -> Result<Self, serde_json::Error> {
        let rows = page.rows.into_iter().map(|row| {
            Ok(ViewChangedRow {
                weight: row.weight,
                row: RawValue::from_string(row.content)?,
            })
        });
        Ok(Self {
            view: view.to_owned(),
            sequence: page.sequence,
            at: moment(page.at_ms),
            snapshot: page.snapshot,
            reset: page.reset,
            rows: rows.collect::<Result<_, _>>()?,
            more: page.has_more,
        })
    }
}

/// Follow a view
///
/// Server-sent events: first `following`, whose number is where it begins; then for each refresh that changed something `changes` with
/// rows that went and came, in order, none lost and none twice; or `reset` where the view is to be read anew. Large ones come in parts, of
/// which the last has the number. `problem` comes before the end where it cannot go on. A client that comes again names the last number
/// in `Last-Event-ID`, or `after`. The first that follows a view has its changes kept from then on, which takes the scope
/// `views:write`. A comment comes every 15 seconds when there is nothing to tell.
#[utoipa::path(get, path = "/v1/views/{name}/changes", operation_id = "followView", tag = "views",
    extensions(("x-egret-lasting" = json!(true))), security(("token" = ["views:read"])),
    params(("name" = String, Path, description = "Its name; `schema.name` outside of `public`."), Start),
    responses(
        (status = 200, description = "The events; the data of `changes` and `reset`:", body = ViewChanges,
            content_type = "text/event-stream"),
        (status = 400, description = "It is in mode `immediate`: nobody is told what changes in it.", body = Problem,
            content_type = "application/problem+json"),
        (status = 404, description = "No view has this name.", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "Its changes are not kept, and the token may not have them kept.", body = Problem,
            content_type = "application/problem+json"),
        (status = 410, description = "The changes after this number are not kept any more: read the view, and follow it from now on.",
            body = Problem, content_type = "application/problem+json"),
        (status = 429, description = "`views.followers_max` follow views.", body = Problem,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn follow_view(
    State(door): State<Door>,
    Member(caller): Member,
    Path(name): Path<String>,
    Query(Start { database, after }): Query<Start>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let may_begin = caller.require_part("views", &part_name("views", &name), &["write"]);
    let At(at) = At::read(name, database)?;
    let after = match headers.get(LAST_EVENT_ID) {
        None => after,
        Some(last) => Some(number(last)?),
    };
    let begins = match may_begin {
        Ok(()) => Begins::Yes,
        Err(_) => Begins::No,
    };
    let follower = door
        .views
        .follow(&at, after, begins)
        .await
        .map_err(problem)?;
    let kind = [(header::CONTENT_TYPE, "text/event-stream")];
    let events = events(follower, door.stopping.clone());
    Ok((kind, Body::from_stream(events)).into_response())
}

fn number(value: &http::HeaderValue) -> Result<i64, RequestError> {
    let text = value.to_str().unwrap_or_default();
    text.parse().map_err(|_| RequestError::Parameter {
        place: "header",
        message: format!("{LAST_EVENT_ID}: `{text}` is not the number of a change set"),
    })
}

/// The body. Its first event comes at once, so that a client knows where it is.
fn events(
    follower: Follower,
    stopping: CancellationToken,
) -> impl Stream<Item = Result<Bytes, Infallible>> {
    let start = Some((follower, stopping, true));
    stream::unfold(start, |state| async move {
        let (mut follower, stopping, is_first) = state?;
        if is_first {
            let begun = begun(&follower);
            return Some((Ok(begun), Some((follower, stopping, false))));
        }
        let quiet = Instant::now() + KEEP_ALIVE;
        let next = tokio::select! {
            () = stopping.cancelled() => return None,
            next = tokio::time::timeout_at(quiet, follower.next()) => next,
        };
        match next {
            Err(_) => {
                let comment = Bytes::from_static(b": egret\n\n");
                Some((Ok(comment), Some((follower, stopping, false))))
            }
            Ok(Ok(page)) => match told(follower.view(), page) {
                Ok(event) => Some((Ok(event), Some((follower, stopping, false)))),
                Err(error) => {
                    let reason = format_args!("view {}: {error}", follower.view());
                    let message = "a row of a change set is no JSON";
                    condition::occur("answers_broken_off", "changes of views", reason, message);
                    None
                }
            },
            Ok(Err(error)) => Some((Ok(failed(error)), None)),
        }
    })
}

fn begun(follower: &Follower) -> Bytes {
    let (view, sequence) = (follower.view(), follower.sequence());
    let database = follower.database();
    let data = serde_json::json!({"view": view, "database": database, "sequence": sequence});
    format!("event: following\nid: {sequence}\ndata: {data}\n\n").into()
}

fn told(view: &str, page: ChangePage) -> Result<Bytes, serde_json::Error> {
    let mut text = match page.reset {
        Some(_) => b"event: reset\n".to_vec(),
        None => b"event: changes\n".to_vec(),
    };
    if !page.has_more {
        text.extend_from_slice(format!("id: {}\n", page.sequence).as_bytes());
    }
    text.extend_from_slice(b"data: ");
    serde_json::to_writer(&mut text, &ViewChanges::of(view, page)?)?;
    text.extend_from_slice(b"\n\n");
    Ok(text.into())
}

fn failed(error: ViewsError) -> Bytes {
    let problem = serde_json::to_string(&problem(error)).expect("a problem is text and numbers");
    format!("event: problem\ndata: {problem}\n\n").into()
}
