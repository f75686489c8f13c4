//! Server-sent events, followed over lost connections.

use std::pin::pin;
use std::time::Duration;

use futures_util::StreamExt;
use serde::Deserialize;

use super::queue::{ReconnectBackoff, unexpected, wait_for_interrupt};
use crate::api::Api;
use crate::failure::{Exit, Failure};

/// The server speaks more often than this, if only to say that it is there.
const SILENCE_MAX: Duration = Duration::from_secs(45);

/// One server-sent event. All is empty for a comment, which only shows that the server is there.
pub(crate) struct Event<'a> {
    pub(crate) kind: Option<&'a str>,
    pub(crate) id: Option<&'a str>,
    pub(crate) data: &'a str,
}

impl<'a> Event<'a> {
    fn parse(text: &'a str) -> Self {
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
        Self {
            kind: field("event: "),
            id: field("id: "),
            data: field("data: ").unwrap_or_default(),
        }
    }
}

/// Receiver of the events of a stream.
pub(crate) trait Listener {
    /// Longest event in bytes: a longer one does not come from Egret.
    const EVENT_BYTES_MAX: usize;

    /// Query parameters of each connection.
    fn query(&self) -> Vec<(&str, String)>;

    /// Called when the server has answered: events follow.
    fn on_connected(&mut self) {}

    /// Called with each event.
    ///
    /// # Errors
    /// A failure that ends the stream.
    fn handle_event(&mut self, event: &Event<'_>) -> Result<(), Failure>;

    /// Whether no further event is wanted.
    fn is_done(&self) -> bool;

    /// Says that the connection was lost, and what becomes of it.
    fn on_disconnected(&self, failure: &Failure);
}

/// Passes the events of a path to a listener, until it wants no more or the user interrupts. The
/// first connection must work.
///
/// # Errors
/// What the server says, and the listener.
pub(crate) async fn follow(
    path: &[&str],
    api: &Api,
    listener: &mut impl Listener,
) -> Result<(), Failure> {
    tokio::select! {
        () = wait_for_interrupt() => Ok(()),
        result = follow_with_reconnects(path, api, listener) => result,
    }
}

async fn follow_with_reconnects<L: Listener>(
    path: &[&str],
    api: &Api,
    listener: &mut L,
) -> Result<(), Failure> {
    let mut has_connected = false;
    let mut backoff = ReconnectBackoff::default();
    while !listener.is_done() {
        let on_connected = &mut |listener: &mut L| {
            (has_connected, backoff) = (true, ReconnectBackoff::default());
            listener.on_connected();
        };
        let failure = match read_events(path, api, listener, on_connected).await {
            Ok(()) if listener.is_done() => break,
            Ok(()) => Failure {
                retryable: true,
                exit: Exit::Unreachable,
                ..Failure::failed("stream_ended", "the server closed the stream")
            },
            Err(failure) if failure.retryable && has_connected => failure,
            Err(failure) => return Err(failure),
        };
        listener.on_disconnected(&failure);
        backoff.wait().await;
    }
    Ok(())
}

async fn read_events<L: Listener>(
    path: &[&str],
    api: &Api,
    listener: &mut L,
    on_connected: &mut impl FnMut(&mut L),
) -> Result<(), Failure> {
    let query = listener.query();
    let asked: Vec<(&str, &str)> =
        query.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let stream = api.stream(path, &asked).await?;
    let mut stream = pin!(stream);
    on_connected(listener);
    let mut buffer: Vec<u8> = Vec::new();
    loop {
        let next = tokio::time::timeout(SILENCE_MAX, stream.next()).await;
        let Ok(Some(bytes)) = next else {
            return Ok(());
        };
        let mut searched = buffer.len().saturating_sub(1);
        buffer.extend_from_slice(&bytes?);
        while let Some(end) = buffer[searched..].windows(2).position(|pair| pair == b"\n\n") {
            let event: Vec<u8> = buffer.drain(..searched + end + 2).collect();
            searched = 0;
            listener.handle_event(&Event::parse(&String::from_utf8_lossy(&event)))?;
            if listener.is_done() {
                return Ok(());
            }
        }
        if buffer.len() > L::EVENT_BYTES_MAX {
            return Err(unexpected(&"an event is larger than the limit"));
        }
    }
}

#[derive(Debug, Deserialize)]
struct StreamProblem {
    code: String,
    detail: String,
    retryable: bool,
}

/// What the server says where it cannot go on.
pub(crate) fn parse_problem(data: &str) -> Failure {
    match serde_json::from_str::<StreamProblem>(data) {
        Ok(problem) => Failure {
            retryable: problem.retryable,
            ..Failure::failed(&problem.code, problem.detail)
        },
        Err(error) => unexpected(&error),
    }
}
