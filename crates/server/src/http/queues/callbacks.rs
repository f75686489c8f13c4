//! The callbacks that have not arrived: those that are still to be sent, and those that were given
//! up.

use axum::extract::State;
use egret_base::Timestamp;
use egret_queue::{CallbackView, Queues};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::task::{optional_timestamp, state_schema};
use crate::access::Caller;
use crate::extract::{Json, Query};
use crate::problem::Problem;
use crate::queue::{self, invalid, rights};

/// The callbacks to list.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct CallbackListParams {
    /// List only callbacks in this state; when absent, those in `ready`, `leased`, `delayed` and
    /// `dead`.
    state: Option<String>,
    /// The maximum number of callbacks in a page.
    #[param(minimum = 1, maximum = 1_000, default = 100)]
    limit: Option<u32>,
    /// The `next_cursor` of the previous page.
    #[serde(default)]
    #[param(value_type = Option<String>)]
    cursor: String,
}

/// A callback, without the path of its URL, which may hold a secret.
#[derive(Serialize, ToSchema)]
pub(super) struct Callback {
    /// Its own id.
    id: String,
    /// The task whose end it reports.
    task: String,
    /// How that task ended.
    #[schema(schema_with = state_schema)]
    task_state: &'static str,
    /// The queue of that task.
    queue: String,
    /// Host and port of the receiver.
    #[schema(example = "hooks.example.org:443")]
    receiver: String,
    /// The state of the callback; `dead` if it was given up.
    #[schema(schema_with = state_schema)]
    state: &'static str,
    /// Attempts begun.
    attempts: u16,
    /// Attempts before it is given up.
    max_attempts: u16,
    /// When a delayed callback is retried, RFC 3339.
    #[schema(value_type = Option<String>, format = DateTime)]
    next_attempt_at: Option<Timestamp>,
    /// When it was delivered or given up, RFC 3339.
    #[schema(value_type = Option<String>, format = DateTime)]
    ended_at: Option<Timestamp>,
    /// Why the last attempt failed.
    error: Option<String>,
}

/// A page of callbacks.
#[derive(Serialize, ToSchema)]
pub(super) struct CallbackList {
    /// The callbacks. A page may have fewer than requested, or none, even if there are more.
    items: Vec<Callback>,
    /// The cursor of the next page; null at the end.
    next_cursor: Option<String>,
    /// Partitions that have failed, whose callbacks are missing here; absent when there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Option<Vec<usize>>)]
    unavailable_partitions: Vec<usize>,
}

impl From<CallbackView> for Callback {
    fn from(view: CallbackView) -> Self {
        Self {
            id: view.id.to_string(),
            task: view.task.to_string(),
            task_state: view.task_state.as_str(),
            queue: view.queue,
            receiver: view.receiver,
            state: view.state.as_str(),
            attempts: view.attempts,
            max_attempts: view.max_attempts,
            next_attempt_at: optional_timestamp(view.next_ms),
            ended_at: optional_timestamp(view.ended_ms),
            error: (!view.error.is_empty()).then_some(view.error),
        }
    }
}

/// List callbacks
///
/// The list has the callbacks of tasks in queues that the token may read, ordered by state and then
/// by partition. Without a state, it has the callbacks that have not been delivered.
#[utoipa::path(get, path = "/v1/callbacks", operation_id = "listCallbacks", tag = "queue",
    extensions(("x-egret-parts" = json!(true))), security(("token" = ["queue:read"])), params(CallbackListParams),
    responses((status = 200, description = "A page of callbacks.", body = CallbackList)))]
pub(super) async fn list_callbacks(
    State(queues): State<Queues>,
    caller: Caller,
    Query(params): Query<CallbackListParams>,
) -> Result<Json<CallbackList>, Problem> {
    let state = params.state.map(|state| state.parse()).transpose();
    let state = state.map_err(|reason: String| invalid("state", reason))?;
    let limit = match params.limit {
        Some(0) => return Err(invalid("limit", "it must be at least 1").into()),
        limit => queue::page_limit(limit.unwrap_or(0))?,
    };
    let filter = rights::watch_filter(&caller);
    let found = queues.callbacks(caller.tenant(), filter, state, limit, &params.cursor).await?;
    Ok(Json(CallbackList {
        items: found.callbacks.into_iter().map(Callback::from).collect(),
        next_cursor: found.next,
        unavailable_partitions: found.unavailable,
    }))
}
