//! `egret queue tail`: state changes of tasks, as they come (server-sent events).

use std::pin::pin;
use std::time::Duration;

use egret_base::Timestamp;
use futures_util::StreamExt;
use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::payload::unexpected;
use super::work::{Backoff, interrupted};
use crate::api::Api;
use crate::failure::{Exit, Failure};
use crate::output::Output;

/// An event longer than this is none of Egret's.
const EVENT_BYTES_MAX: usize = 1 << 20;

/// The server speaks more often than this, if only to say that it is there.
const SILENCE_MAX: Duration = Duration::from_secs(45);

#[derive(Debug, Deserialize)]
struct Change {
    id: String,
    queue: String,
    state: String,
    at: Timestamp,
    attempt: u32,
}

pub(super) async fn run(
    queues: &[String],
    states: &[String],
    limit: Option<u64>,
    api: &Api,
    output: Output,
) -> Result<(), Failure> {
    let mut tail = Tail {
        output,
        left: limit,
        heard: false,
        backoff: Backoff::default(),
    };
    let query: Vec<(&str, &str)> = queues
        .iter()
        .map(|name| ("queue", name.as_str()))
        .chain(states.iter().map(|state| ("state", state.as_str())))
        .collect();
    tokio::select! {
        () = interrupted() => Ok(()),
        ended = tail.follow(&query, api) => ended,
    }
}

struct Tail {
    output: Output,
    /// Changes still to show.
    left: Option<u64>,
    /// Whether the server has ever answered.
    heard: bool,
    backoff: Backoff,
}

impl Tail {
    /// Follows the events over lost connections; the first must work.
    async fn follow(&mut self, query: &[(&str, &str)], api: &Api) -> Result<(), Failure> {
        while self.left != Some(0) {
            let failure = match self.listen(query, api).await {
                Ok(()) if self.left == Some(0) => break,
                Ok(()) => Failure {
                    retryable: true,
                    exit: Exit::Unreachable,
                    ..Failure::failed("stream_ended", "the server has ended the stream")
                },
                Err(failure) if failure.retryable && self.heard => failure,
                Err(failure) => return Err(failure),
            };
            self.output.remark(&format!(
                "{failure}: trying again; what changes meanwhile is not shown"
            ));
            self.backoff.wait().await;
        }
        Ok(())
    }

    async fn listen(&mut self, query: &[(&str, &str)], api: &Api) -> Result<(), Failure> {
        let mut stream = pin!(api.stream(&["tasks", "events"], query).await?);
        self.heard = true;
        self.backoff = Backoff::default();
        let mut buffer = Vec::new();
        loop {
            let next = tokio::time::timeout(SILENCE_MAX, stream.next()).await;
            let Ok(Some(bytes)) = next else {
                return Ok(());
            };
            buffer.extend_from_slice(&bytes?);
            while let Some(end) = buffer.windows(2).position(|two| two == b"\n\n") {
                let event: Vec<u8> = buffer.drain(..end + 2).collect();
                self.tell(&String::from_utf8_lossy(&event))?;
                if self.left == Some(0) {
                    return Ok(());
                }
            }
            if buffer.len() > EVENT_BYTES_MAX {
                return Err(unexpected(&"an event does not end"));
            }
        }
    }

    /// Prints one event; comments say only that the server is there.
    fn tell(&mut self, event: &str) -> Result<(), Failure> {
        let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name));
        let (kind, data) = (field("event: "), field("data: ").unwrap_or_default());
        match kind {
            Some("change") => {
                self.left = self.left.map(|left| left.saturating_sub(1));
                self.change(data)
            }
            Some("missed") if self.output.is_json() => {
                let count: Json = serde_json::from_str(data).unwrap_or_default();
                self.output.json_line(&json!({"missed": count}))
            }
            Some("missed") => {
                self.output.remark(&format!("{data} changes were missed"));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn change(&self, data: &str) -> Result<(), Failure> {
        if self.output.is_json() {
            return self.output.text(data);
        }
        let change: Change = serde_json::from_str(data).map_err(|error| unexpected(&error))?;
        self.output.text(&format!(
            "{}  {}  {}  {:9}  attempt {}",
            change.at, change.queue, change.id, change.state, change.attempt
        ))
    }
}
