//! Answers that are written while they are sent: the whole is never in memory.

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use tokio::sync::mpsc;

/// So many bytes are sent together.
pub(super) const CHUNK_BYTES: usize = 256 << 10;

/// Chunks that may wait for a client that reads slowly; then writing them waits as well.
const CHUNKS_WAITING: usize = 4;

/// Where the pieces of an answer go; an error breaks it off.
pub(super) type Chunks = mpsc::Sender<Result<Bytes, std::io::Error>>;

/// A body, and what fills it.
pub(super) fn body() -> (Chunks, Body) {
    let (chunks, mut written) = mpsc::channel(CHUNKS_WAITING);
    let written = stream::poll_fn(move |context| written.poll_recv(context));
    (chunks, Body::from_stream(written))
}
