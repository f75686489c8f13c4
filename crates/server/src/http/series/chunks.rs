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

/// So many bytes are sent together.
pub(super) const CHUNK_BYTES: usize = 256 << 10;

/// Chunks that may wait for a client that reads slowly; then writing them waits as well.
const CHUNKS_WAITING: usize = 4;

/// How long a chunk waits at most for a client to take one of those before it. Whoever writes an answer holds a list of
/// blocks and a place among the queries, which others need.
const CHUNK_WAIT_MAX: Duration = Duration::from_secs(30);

enum Chunk {
    More(Bytes),
    Last(Bytes),
}

/// Where the chunks of an answer go. The answer is broken off, which its client notices, when this is dropped before
/// [`Chunks::finish`].
pub(super) struct Chunks {
    /// None when the answer was broken off.
    to: Option<mpsc::Sender<Chunk>>,
    wait_max: Duration,
}

/// A body, and what fills it.
pub(super) fn body() -> (Chunks, Body) {
    body_waiting(CHUNK_WAIT_MAX)
}

fn body_waiting(wait_max: Duration) -> (Chunks, Body) {
    let (to, written) = mpsc::channel(CHUNKS_WAITING);
    let chunks = stream::try_unfold(Some(written), |written| async move {
        let Some(mut written) = written else {
            return Ok(None);
        };
        match written.recv().await {
            Some(Chunk::More(bytes)) => Ok(Some((bytes, Some(written)))),
            Some(Chunk::Last(bytes)) => Ok(Some((bytes, None))),
            None => Err(io::Error::other("the answer was broken off")),
        }
    });
    let to = Some(to);
    (Chunks { to, wait_max }, Body::from_stream(chunks))
}

impl Chunks {
    /// Hands a chunk over, from a thread that may wait. It breaks off when the client has left, or takes nothing.
    pub fn send(&mut self, chunk: Bytes) -> ControlFlow<()> {
        let Some(to) = &self.to else {
            return ControlFlow::Break(());
        };
        let sent = to.send_timeout(Chunk::More(chunk), self.wait_max);
        match Handle::current().block_on(sent) {
            Ok(()) => return ControlFlow::Continue(()),
            Err(SendTimeoutError::Closed(_)) => {}
            Err(SendTimeoutError::Timeout(_)) => {
                let seconds = self.wait_max.as_secs();
                let reason = format_args!("the client took nothing for {seconds} s");
                let message = "an answer with samples was broken off";
                condition::occur("answers_broken_off", "slow clients", reason, message);
            }
        }
        self.break_off()
    }

    /// Ends the answer, of which not all was sent.
    pub fn break_off(&mut self) -> ControlFlow<()> {
        self.to = None;
        ControlFlow::Break(())
    }

    /// Whether it was broken off.
    pub fn is_broken_off(&self) -> bool {
        self.to.is_none()
    }

    /// Hands over what is left: unless it was broken off, the answer is whole.
    pub async fn finish(self, rest: Bytes) {
        if let Some(to) = self.to {
            // The client may have left.
            let _ = to.send(Chunk::Last(rest)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn an_answer_that_is_finished_is_whole() {
        let (mut chunks, body) = body();
        let writing = tokio::task::spawn_blocking(move || {
            assert!(chunks.send("one, ".into()).is_continue());
            chunks
        });
        let chunks = writing.await.expect("it is written");
        chunks.finish("two".into()).await;
        let whole = body.collect().await.expect("it is whole").to_bytes();
        assert_eq!(whole, "one, two");
    }

    #[tokio::test]
    async fn a_client_that_takes_nothing_holds_nobody_up() {
        let (mut chunks, body) = body_waiting(Duration::ZERO);
        let writing = tokio::task::spawn_blocking(move || {
            for _ in 0..CHUNKS_WAITING {
                assert!(chunks.send("x".into()).is_continue());
            }
            assert!(chunks.send("x".into()).is_break());
            chunks
        });
        let chunks = writing.await.expect("it ends");
        assert!(chunks.is_broken_off());
        chunks.finish("the end".into()).await;
        let error = body.collect().await.expect_err("it is not whole");
        assert!(error.to_string().contains("broken off"), "{error}");
    }

    #[tokio::test]
    async fn nothing_is_written_for_a_client_that_has_left() {
        let (mut chunks, body) = body();
        drop(body);
        let writing = tokio::task::spawn_blocking(move || chunks.send("x".into()));
        assert!(writing.await.expect("it ends").is_break());
    }
}
