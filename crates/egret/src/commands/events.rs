//! Server-sent events, followed over lost connections.

use std::pin::pin;
use std::time::Duration;

use futures_util::StreamExt;
use serde::Deserialize;

use super::queue::{ReconnectBackoff, interrupted, unexpected};
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
    fn read(text: &'a str) -> Self {
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
    fn begin(&mut self) {}

    /// Called with each event.
    ///
    /// # Errors
    /// A failure that ends the stream.
    fn tell(&mut self, event: &Event<'_>) -> Result<(), Failure>;

    /// Whether no further event is wanted.
    fn is_done(&self) -> bool;

    /// Says that the connection was lost, and what becomes of it.
    fn lose(&self, failure: &Failure);
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
        () = interrupted() => Ok(()),
        ended = follow_on(path, api, listener) => ended,
    }
}

async fn follow_on<L: Listener>(path: &[&str], api: &Api, listener: &mut L) -> Result<(), Failure> {
    let mut is_heard = false;
    let mut backoff = ReconnectBackoff::default();
    while !listener.is_done() {
        let begun = &mut |listener: &mut L| {
            (is_heard, backoff) = (true, ReconnectBackoff::default());
            listener.begin();
        };
        let failure = match listen(path, api, listener, begun).await {
            Ok(()) if listener.is_done() => break,
            Ok(()) => Failure {
                retryable: true,
                exit: Exit::Unreachable,
                ..Failure::failed("stream_ended", "the server closed the stream")
            },
            Err(failure) if failure.retryable && is_heard => failure,
            Err(failure) => return Err(failure),
        };
        listener.lose(&failure);
        backoff.wait().await;
    }
    Ok(())
}

async fn listen<L: Listener>(
    path: &[&str],
    api: &Api,
    listener: &mut L,
    begun: &mut impl FnMut(&mut L),
) -> Result<(), Failure> {
    let asked = listener.query();
    let asked: Vec<(&str, &str)> = asked
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    let stream = api.stream(path, &asked).await?;
    let mut stream = pin!(stream);
    begun(listener);
    let mut buffer: Vec<u8> = Vec::new();
    loop {
        let next = tokio::time::timeout(SILENCE_MAX, stream.next()).await;
        let Ok(Some(bytes)) = next else {
            return Ok(());
        };
        let mut searched = buffer.len().saturating_sub(1);
        buffer.extend_from_slice(&bytes?);
        while let Some(end) = buffer[searched..].windows(2).position(|two| two == b"\n\n") {
            let event: Vec<u8> = buffer.drain(..searched + end + 2).collect();
            searched = 0;
            listener.tell(&Event::read(&String::from_utf8_lossy(&event)))?;
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
pub(crate) fn problem(data: &str) -> Failure {
    match serde_json::from_str::<StreamProblem>(data) {
        Ok(problem) => Failure {
            retryable: problem.retryable,
            ..Failure::failed(&problem.code, problem.detail)
        },
        Err(error) => unexpected(&error),
    }
}
