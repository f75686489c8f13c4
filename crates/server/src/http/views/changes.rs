//! Changes of views, as server-sent events.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use egret_base::{Timestamp, condition};
use egret_views::model::ChangePage;
use egret_views::{FollowMode, Follower, ViewsError};
use futures_util::{Stream, stream};
use http::{HeaderMap, header};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use utoipa::{IntoParams, ToSchema};

use super::answer::{to_problem, to_timestamp};
use super::{DefaultTenantCaller, ViewPath, ViewsState};
use crate::access::part_name;
use crate::error::RequestError;
use crate::extract::{Path, Query};
use crate::problem::Problem;

/// Interval of keep-alive comments while there are no changes.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// The header in which a reconnecting browser names the last event that it received.
const LAST_EVENT_ID: &str = "last-event-id";

/// The position from which a view is followed.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct ViewFollowParams {
    /// The database; when absent, the only one that has a view of this name.
    database: Option<String>,
    /// The number of the change set after which to start; without it and the header
    /// `Last-Event-ID`, the stream starts now.
    after: Option<i64>,
}

/// The change set of a refresh, or a part of it.
#[derive(Serialize, ToSchema)]
pub(super) struct ViewChanges {
    /// The view, with its schema.
    #[schema(example = "public.late_by_carrier")]
    view: String,
    /// The number of the change set; the numbers of a view only increase.
    #[schema(example = 1_764_000_000_001_i64)]
    sequence: i64,
    /// When the change set was created, RFC 3339.
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    /// The snapshot that the view reflects with this change set, as PostgreSQL writes a
    /// `pg_snapshot`.
    #[schema(example = "812:812:")]
    snapshot: String,
    /// For a `reset`, why the whole view must be read again. `begun`: its changes are kept from
    /// here on. `repaired`: the view was rebuilt. `restored`: the database was restored from a
    /// dump. `too_much`: more than `views.change_set_rows_max` rows changed, or more than fits into
    /// `views.change_sets_size_max`.
    #[serde(skip_serializing_if = "Option::is_none")]
    reset: Option<String>,
    /// The rows, deleted ones first. An updated row is deleted and inserted.
    rows: Vec<ViewChangedRow>,
    /// Whether more parts of the same change set follow. The last part has the id of the event.
    more: bool,
}

/// A row whose number of occurrences changed.
#[derive(Serialize, ToSchema)]
struct ViewChangedRow {
    /// The change of the number of occurrences; negative for deletions.
    #[schema(example = 1)]
    weight: i64,
    /// The row: a JSON object of the view's columns.
    #[schema(value_type = Object, example = json!({"carrier": "UA", "flights": 3}))]
    row: Box<RawValue>,
}

impl ViewChanges {
    fn from_page(view: &str, page: ChangePage) -> Result<Self, serde_json::Error> {
        let rows = page.rows.into_iter().map(|row| {
            Ok(ViewChangedRow { weight: row.weight, row: RawValue::from_string(row.content)? })
        });
        Ok(Self {
            view: view.to_owned(),
            sequence: page.sequence,
            at: to_timestamp(page.at_ms),
            snapshot: page.snapshot,
            reset: page.reset,
            rows: rows.collect::<Result<_, _>>()?,
            more: page.has_more,
        })
    }
}

/// Follow a view
///
/// The response is a stream of server-sent events. The first is `following`, whose id is the
/// position at which the stream starts. Each refresh that changed something sends `changes` with
/// deleted and inserted rows, in order; none is lost or repeated. An event `reset` means that the
/// whole view must be read again. Large change sets are sent in parts, of which the last has the
/// id. If the stream cannot continue, its last event is `problem`. A client that reconnects sends
/// the last id in `Last-Event-ID` or `after`. The first follower of a view turns on the recording
/// of its changes, which requires the scope `views:write`. A comment is sent every 15 seconds
/// without events.
#[utoipa::path(get, path = "/v1/views/{name}/changes", operation_id = "followView", tag = "views",
    extensions(("x-egret-lasting" = json!(true))), security(("token" = ["views:read"])),
    params(("name" = String, Path, description = "The view's name, as `schema.name` outside of schema `public`."), ViewFollowParams),
    responses(
        (status = 200, description = "The events. The data of `changes` and `reset` is:", body = ViewChanges,
            content_type = "text/event-stream"),
        (status = 400, description = "The view is in mode `immediate`, which has no change sets.", body = Problem,
            content_type = "application/problem+json"),
        (status = 404, description = "No view has this name.", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "The view's changes are not kept, and the token may not turn that on.", body = Problem,
            content_type = "application/problem+json"),
        (status = 410, description = "The changes after this number are no longer kept: read the view, and follow it from there.",
            body = Problem, content_type = "application/problem+json"),
        (status = 429, description = "The limit `views.followers_max` is reached.", body = Problem,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn follow_view(
    State(state): State<ViewsState>,
    DefaultTenantCaller(caller): DefaultTenantCaller,
    Path(name): Path<String>,
    Query(ViewFollowParams { database, after }): Query<ViewFollowParams>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let can_start_tracking = caller.require_part("views", &part_name("views", &name), &["write"]);
    let ViewPath(view_ref) = ViewPath::parse(name, database)?;
    let after = match headers.get(LAST_EVENT_ID) {
        None => after,
        Some(last_event_id) => Some(parse_event_id(last_event_id)?),
    };
    let follow_mode = match can_start_tracking {
        Ok(()) => FollowMode::StartRetention,
        Err(_) => FollowMode::RequireRetention,
    };
    let follower = state.views.follow(&view_ref, after, follow_mode).await.map_err(to_problem)?;
    let kind = [(header::CONTENT_TYPE, "text/event-stream")];
    let events = change_events(follower, state.stopping.clone());
    Ok((kind, Body::from_stream(events)).into_response())
}

fn parse_event_id(value: &http::HeaderValue) -> Result<i64, RequestError> {
    let text = value.to_str().unwrap_or_default();
    text.parse().map_err(|_| RequestError::Parameter {
        place: "header",
        message: format!("{LAST_EVENT_ID}: `{text}` is not the number of a change set"),
    })
}

/// The body. Its first event is sent at once, with the number at which the stream begins.
fn change_events(
    follower: Follower,
    stopping: CancellationToken,
) -> impl Stream<Item = Result<Bytes, Infallible>> {
    let start = Some((follower, stopping, true));
    stream::unfold(start, |state| async move {
        let (mut follower, stopping, is_first) = state?;
        if is_first {
            let begun = following_event(&follower);
            return Some((Ok(begun), Some((follower, stopping, false))));
        }
        let keep_alive_at = Instant::now() + KEEP_ALIVE_INTERVAL;
        let next = tokio::select! {
            () = stopping.cancelled() => return None,
            next = tokio::time::timeout_at(keep_alive_at, follower.next()) => next,
        };
        match next {
            Err(_) => {
                let comment = Bytes::from_static(b": egret\n\n");
                Some((Ok(comment), Some((follower, stopping, false))))
            }
            Ok(Ok(page)) => match changes_event(follower.view(), page) {
                Ok(event) => Some((Ok(event), Some((follower, stopping, false)))),
                Err(error) => {
                    let reason = format_args!("view {}: {error}", follower.view());
                    let message = "a row of a change set is not JSON";
                    condition::occur("answers_broken_off", "changes of views", reason, message);
                    None
                }
            },
            Ok(Err(error)) => Some((Ok(problem_event(error)), None)),
        }
    })
}

fn following_event(follower: &Follower) -> Bytes {
    let (view, sequence) = (follower.view(), follower.sequence());
    let database = follower.database();
    let data = serde_json::json!({"view": view, "database": database, "sequence": sequence});
    format!("event: following\nid: {sequence}\ndata: {data}\n\n").into()
}

fn changes_event(view: &str, page: ChangePage) -> Result<Bytes, serde_json::Error> {
    let mut text = match page.reset {
        Some(_) => b"event: reset\n".to_vec(),
        None => b"event: changes\n".to_vec(),
    };
    if !page.has_more {
        text.extend_from_slice(format!("id: {}\n", page.sequence).as_bytes());
    }
    text.extend_from_slice(b"data: ");
    serde_json::to_writer(&mut text, &ViewChanges::from_page(view, page)?)?;
    text.extend_from_slice(b"\n\n");
    Ok(text.into())
}

fn problem_event(error: ViewsError) -> Bytes {
    let problem = serde_json::to_string(&to_problem(error)).expect("a problem is text and numbers");
    format!("event: problem\ndata: {problem}\n\n").into()
}
