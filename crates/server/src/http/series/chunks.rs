//! Answers that are written while they are sent: the whole is never in memory.

use std::io;
use std::ops::ControlFlow;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use egret_base::condition;
use futures_util::stream;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::SendTimeoutError;

/// Bytes that are sent together.
pub(super) const CHUNK_BYTES: usize = 256 << 10;

/// Chunks that may wait for a client that reads slowly; then writing them waits as well.
const QUEUED_CHUNKS_MAX: usize = 4;

/// How long a chunk waits at most for the client to take an earlier one. The thread that writes the
/// answer holds a list of blocks and a query slot, which other queries need.
const CHUNK_WAIT_MAX: Duration = Duration::from_secs(30);

enum Chunk {
    More(Bytes),
    Last(Bytes),
}

/// The sending side of a streamed body. The response is aborted, which its client notices, when
/// this is dropped before [`Chunks::finish`].
pub(super) struct Chunks {
    /// `None` once the response was aborted.
    sender: Option<mpsc::Sender<Chunk>>,
    wait_max: Duration,
}

/// Creates a streamed body and its sending side.
pub(super) fn streamed_body() -> (Chunks, Body) {
    streamed_body_with_wait(CHUNK_WAIT_MAX)
}

fn streamed_body_with_wait(wait_max: Duration) -> (Chunks, Body) {
    let (sender, receiver) = mpsc::channel(QUEUED_CHUNKS_MAX);
    let chunks = stream::try_unfold(Some(receiver), |written| async move {
        let Some(mut written) = written else {
            return Ok(None);
        };
        match written.recv().await {
            Some(Chunk::More(bytes)) => Ok(Some((bytes, Some(written)))),
            Some(Chunk::Last(bytes)) => Ok(Some((bytes, None))),
            None => Err(io::Error::other("the response was aborted")),
        }
    });
    let to = Some(sender);
    (Chunks { sender: to, wait_max }, Body::from_stream(chunks))
}

impl Chunks {
    /// Sends a chunk; blocks the thread while too many chunks wait. Breaks if the client has
    /// disconnected, or reads nothing.
    pub(crate) fn send(&mut self, chunk: Bytes) -> ControlFlow<()> {
        let Some(to) = &self.sender else {
            return ControlFlow::Break(());
        };
        let sent = to.send_timeout(Chunk::More(chunk), self.wait_max);
        match Handle::current().block_on(sent) {
            Ok(()) => return ControlFlow::Continue(()),
            Err(SendTimeoutError::Closed(_)) => {}
            Err(SendTimeoutError::Timeout(_)) => {
                let seconds = self.wait_max.as_secs();
                let reason = format_args!("the client read nothing for {seconds} s");
                let message = "a response with samples was aborted";
                condition::occur("answers_broken_off", "slow clients", reason, message);
            }
        }
        self.abort()
    }

    /// Aborts an incomplete response.
    pub(crate) fn abort(&mut self) -> ControlFlow<()> {
        self.sender = None;
        ControlFlow::Break(())
    }

    /// Whether the response was aborted.
    pub(crate) fn is_aborted(&self) -> bool {
        self.sender.is_none()
    }

    /// Sends the last chunk, which completes the response unless it was aborted.
    pub(crate) async fn finish(self, rest: Bytes) {
        if let Some(to) = self.sender {
            // The client may have left.
            let _ = to.send(Chunk::Last(rest)).await;
        }
    }
}

#[cfg(test)]
mod tests;
