//! Tasks' changes as server-sent events.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use egret_queue::TaskChange;
use egret_queue::model::TaskState;
use futures_util::Stream;
use http::header;
use tokio::time::{Instant, Interval};
use tokio_util::sync::WaitForCancellationFutureOwned;
use utoipa::IntoParams;

use super::QueuesState;
use super::task::Change;
use crate::access::Caller;
use crate::error::RequestError;
use crate::extract::Query;
use crate::problem::Problem;
use crate::queue::Changes;

/// Interval of keep-alive comments while there are no changes.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// The changes to send. `EventFilter` parses them, because both may be repeated.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code, reason = "only documents the parameters that `Filter` reads")]
pub(super) struct EventFilterParams {
    /// Send only changes of tasks of this queue. The parameter may be repeated.
    queue: Option<Vec<String>>,
    /// Send only changes to this state. The parameter may be repeated.
    state: Option<Vec<String>>,
}

#[derive(Default)]
struct EventFilter {
    queues: Vec<String>,
    states: Vec<TaskState>,
}

impl EventFilter {
    fn parse(parameters: Vec<(String, String)>) -> Result<Self, RequestError> {
        let place = "query";
        let mut filter = Self::default();
        for (name, value) in parameters {
            let message = match name.as_str() {
                "queue" => {
                    filter.queues.push(value);
                    continue;
                }
                "state" => match value.parse() {
                    Ok(state) => {
                        filter.states.push(state);
                        continue;
                    }
                    Err(text) => format!("state: {text}"),
                },
                other => format!("unknown field `{other}`, expected `queue` or `state`"),
            };
            return Err(RequestError::Parameter { place, message });
        }
        Ok(filter)
    }
}

/// Watch changes of tasks
///
/// The response is a stream of server-sent events from now on: `change` with a task's new state,
/// and `missed` with the number of changes that were skipped because the client read too slowly. A
/// comment is sent every 15 seconds without events. The stream ends when the server stops.
#[utoipa::path(get, path = "/v1/tasks/events", operation_id = "watchTasks", tag = "queue",
    extensions(("x-egret-parts" = json!(true)), ("x-egret-lasting" = json!(true))),
    security(("token" = ["queue:read"])), params(EventFilterParams),
    responses(
        (status = 200, description = "The events. The data of a `change` is:", body = Change,
            content_type = "text/event-stream"),
        (status = 404, description = "No queue has this name.", body = Problem,
            content_type = "application/problem+json"),
        (status = 429, description = "The limit of subscribers `queue.watchers_max` is reached.", body = Problem,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn watch_tasks(
    State(state): State<QueuesState>,
    caller: Caller,
    Query(parameters): Query<Vec<(String, String)>>,
) -> Result<Response, Problem> {
    let filter = EventFilter::parse(parameters)?;
    let subscription = Changes::subscribe(&state.queues, &caller, &filter.queues, &filter.states);
    let events = Events {
        changes: subscription.await?,
        keep_alive: tokio::time::interval_at(Instant::now(), KEEP_ALIVE_INTERVAL),
        stopping: Box::pin(state.stopping.clone().cancelled_owned()),
    };
    let kind = [(header::CONTENT_TYPE, "text/event-stream")];
    Ok((kind, Body::from_stream(events)).into_response())
}

/// The body. Its first comment is sent at once, so that the client knows that it is subscribed.
struct Events {
    changes: Changes,
    keep_alive: Interval,
    stopping: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl Stream for Events {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.stopping.as_mut().poll(context).is_ready() {
            return Poll::Ready(None);
        }
        match self.changes.poll_next(context) {
            Poll::Ready(Ok((changes, missed))) => {
                self.keep_alive.reset();
                return Poll::Ready(Some(Ok(encode_changes(&changes, missed))));
            }
            Poll::Ready(Err(_)) => return Poll::Ready(None),
            Poll::Pending => {}
        }
        let tick = self.keep_alive.poll_tick(context);
        tick.map(|_| Some(Ok(Bytes::from_static(b": egret\n\n"))))
    }
}

fn encode_changes(changes: &[TaskChange], missed: u64) -> Bytes {
    let mut text = Vec::new();
    if missed > 0 {
        text.extend_from_slice(b"event: missed\ndata: ");
        text.extend_from_slice(missed.to_string().as_bytes());
        text.extend_from_slice(b"\n\n");
    }
    for change in changes {
        text.extend_from_slice(b"event: change\ndata: ");
        serde_json::to_writer(&mut text, &Change::from(change))
            .expect("a change holds only text and numbers");
        text.extend_from_slice(b"\n\n");
    }
    text.into()
}
