//! Work that may take longer than a handler may take to begin its response.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use egret_documents::DocumentsError;
use futures_util::stream;
use http::{HeaderValue, header};
use serde::Serialize;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tracing::Instrument;

use super::answer::to_problem;
use crate::extract::Json;
use crate::problem::Problem;

/// How long work may take before the response begins without its result.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(60);

/// Interval at which a space is sent then, so that proxies on the way do not close the connection
/// as idle.
const SPACE_INTERVAL: Duration = Duration::from_secs(10);

/// Whitespace, any number of which may precede a JSON value.
const SPACE: Bytes = Bytes::from_static(b" ");

/// Runs work to its end even if its caller disconnects, and responds with its result. If the work
/// takes longer than a minute, the response begins with status 200 and spaces, and ends with the
/// result, or with a problem if the work failed.
pub(super) async fn respond_with_keepalive<T, A>(
    work: impl Future<Output = Result<T, DocumentsError>> + Send + 'static,
    to_answer: impl FnOnce(T) -> A + Send + 'static,
) -> Response
where
    T: Send + 'static,
    A: Serialize + Send + 'static,
{
    let task = async move { work.await.map(to_answer).map_err(to_problem) };
    respond_within(tokio::spawn(task.in_current_span()), BEGIN_TIMEOUT, SPACE_INTERVAL).await
}

async fn respond_within<A: Serialize + Send + 'static>(
    mut work: JoinHandle<Result<A, Problem>>,
    begin_timeout: Duration,
    space_interval: Duration,
) -> Response {
    if let Ok(result) = timeout(begin_timeout, &mut work).await {
        return match flatten_result(result) {
            Ok(answer) => Json(answer).into_response(),
            Err(problem) => (*problem).into_response(),
        };
    }
    let parts = stream::unfold(Some(work), move |work| async move {
        let mut work = work?;
        let (part, work) = match timeout(space_interval, &mut work).await {
            Err(_) => (SPACE, Some(work)),
            Ok(ended) => (Bytes::from(encode_result(flatten_result(ended))), None),
        };
        Some((Ok::<_, Infallible>(part), work))
    });
    let json = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, json)], Body::from_stream(parts)).into_response()
}

fn flatten_result<A>(
    result: Result<Result<A, Problem>, tokio::task::JoinError>,
) -> Result<A, Box<Problem>> {
    match result {
        Ok(outcome) => outcome.map_err(Box::new),
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // Only a runtime that shuts down drops a task.
            Err(_) => Err(Box::new(Problem::stopping())),
        },
    }
}

fn encode_result<A: Serialize>(result: Result<A, Box<Problem>>) -> Vec<u8> {
    let text = match result {
        Ok(answer) => serde_json::to_vec(&answer),
        Err(problem) => serde_json::to_vec(&problem),
    };
    text.expect("a response can be written as JSON")
}

#[cfg(test)]
mod tests;
