//! Ends the open requests of a token, over HTTP and gRPC, when the token ends.
//!
//! Every request passes through here, so no route can forget it. A handler that waits gets a moment
//! to finish and is dropped then, as if its client had left; a body that is still being sent ends.
//! What a dropped stream held is released as on a disconnect: tasks return when their leases end.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderMap, header};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio_util::sync::WaitForCancellationFutureOwned;

use crate::access::Caller;
use crate::error::RequestError;
use crate::grpc::speaks_grpc;
use crate::problem::Problem;
use crate::tokens::TokenError;

/// The time that a handler has to finish after its token has ended. A request that revokes its own
/// token is answered within it.
const GRACE: Duration = Duration::from_millis(250);

/// Runs a handler for at most `timeout`, and for as long as the caller's token is valid; the body
/// of its response ends with the token as well.
///
/// # Errors
/// [`RequestError::TimedOut`].
pub(crate) async fn run_until_token_end(
    caller: Option<Caller>,
    timeout: Duration,
    handler: impl Future<Output = Response>,
) -> Result<Response, RequestError> {
    let mut handling = pin!(handler);
    // A handler has this long in any case, and most are done by then: these do not watch their
    // tokens.
    let grace = GRACE.min(timeout);
    let response = match tokio::time::timeout(grace, &mut handling).await {
        Ok(response) => Some(response),
        Err(_) => {
            let remaining = timeout - grace;
            Box::pin(run_watching_token(caller.as_ref(), remaining, handling)).await
        }
    };
    let response = response.ok_or_else(|| RequestError::TimedOut {
        timeout_ms: timeout.as_millis().try_into().unwrap_or(u64::MAX),
    })?;
    Ok(match caller {
        Some(caller) => bound_body(response, caller),
        None => response,
    })
}

/// Runs a handler for at most `timeout`, or until a moment after the end of the caller's token.
/// `None` when the time is over.
async fn run_watching_token(
    caller: Option<&Caller>,
    timeout: Duration,
    handler: Pin<&mut impl Future<Output = Response>>,
) -> Option<Response> {
    let token_end = async {
        match caller {
            Some(caller) => {
                caller.token().await_end().await;
                tokio::time::sleep(GRACE).await;
                Problem::from(token_refusal(caller)).into_response()
            }
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        response = handler => Some(response),
        refusal = token_end => Some(refusal),
        () = tokio::time::sleep(timeout) => None,
    }
}

fn token_refusal(caller: &Caller) -> TokenError {
    caller.token().refusal().unwrap_or(TokenError::Invalid)
}

/// Bounds a body of unknown length, which may be a stream, by the token. Other bodies are complete
/// but for their sending.
fn bound_body(response: Response, caller: Caller) -> Response {
    if response.body().is_end_stream() || response.body().size_hint().exact().is_some() {
        return response;
    }
    let termination = BodyTermination::from_headers(response.headers());
    response.map(|body| {
        Body::new(BoundedBody { body: Some(body), caller, token_end: None, termination })
    })
}

/// How a body ends when its token does.
enum BodyTermination {
    /// With trailers that carry the status.
    Grpc,
    /// Like the normal end of server-sent events: the client reconnects, and receives the reason.
    Events,
    /// With an error, so that the client does not take the body for complete.
    Broken,
}

impl BodyTermination {
    fn from_headers(headers: &HeaderMap) -> Self {
        let content_type = headers.get(header::CONTENT_TYPE);
        let is_events =
            content_type.is_some_and(|value| value.as_bytes().starts_with(b"text/event-stream"));
        if speaks_grpc(headers) {
            BodyTermination::Grpc
        } else if is_events {
            BodyTermination::Events
        } else {
            BodyTermination::Broken
        }
    }
}

/// A body that ends with the token of its receiver.
struct BoundedBody {
    /// `None` once it has been cut off: what it holds is released at once.
    body: Option<Body>,
    caller: Caller,
    /// Created when the body waits for the first time; short responses never do.
    token_end: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    termination: BodyTermination,
}

type Polled = Poll<Option<Result<Frame<Bytes>, axum::Error>>>;

impl BoundedBody {
    fn terminate(&mut self) -> Polled {
        self.body = None;
        let refusal = token_refusal(&self.caller);
        Poll::Ready(match self.termination {
            BodyTermination::Grpc => {
                let mut trailers = HeaderMap::new();
                let status = Problem::from_error(&refusal).to_grpc_status();
                let result = status.add_header(&mut trailers);
                result.ok().map(|()| Ok(Frame::trailers(trailers)))
            }
            BodyTermination::Events => None,
            BodyTermination::Broken => Some(Err(axum::Error::new(refusal))),
        })
    }
}

impl HttpBody for BoundedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Polled {
        let Self { body, caller, token_end: ended, .. } = &mut *self;
        let Some(body) = body else {
            return Poll::Ready(None);
        };
        // A stream that always has something to send would never come to wait below.
        if caller.token().refusal().is_some() {
            return self.terminate();
        }
        if let Poll::Ready(frame) = Pin::new(body).poll_frame(context) {
            return Poll::Ready(frame);
        }
        let token_end = ended.get_or_insert_with(|| Box::pin(caller.token().await_end()));
        ready!(token_end.as_mut().poll(context));
        self.terminate()
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(SizeHint::default, Body::size_hint)
    }
}
