//! Copying bytes between a client and its backend until one of them ends.
//!
//! Bytes pass unchanged and unlooked at, with one exception: the lengths of the backend's messages
//! are followed, because a last message to the client ("terminating connection …") may only be put
//! between two of them, and because a ReadyForQuery tells that the session is idle.

use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use egret_base::lifecycle::BoxFuture;
use prometheus_client::metrics::counter::Counter;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::watch;

use super::directory::ConnectionRefusal;
use super::metrics::ProxyMetrics;
use super::negotiation::ClientStream;
use super::{ShutdownPhase, reached, reply};

/// How much is copied at a time, in bytes; each session holds two such buffers.
const BUFFER_BYTES: usize = 16 << 10;

/// The two connections, with what was read from them already.
pub(super) struct RelayStreams {
    pub client: ClientStream,
    pub early: Bytes,
    pub backend: UnixStream,
    pub leftover: Bytes,
}

/// Limits that end a session before either side closes.
pub(super) struct RelayLimits {
    pub ending: watch::Receiver<ShutdownPhase>,
    pub closed: BoxFuture<'static, ()>,
    pub half_close: Duration,
}

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RelayEnd {
    /// The backend closed, or the client did and the backend followed.
    Finished,
    /// The client is gone while its statement still runs.
    Abandoned,
    /// The branch went away.
    BranchClosed,
    Stopping,
}

impl RelayEnd {
    /// The word in the audit log.
    pub(super) fn label(self) -> &'static str {
        match self {
            RelayEnd::Finished => "finished",
            RelayEnd::Abandoned => "abandoned",
            RelayEnd::BranchClosed => "branch_closed",
            RelayEnd::Stopping => "stopping",
        }
    }
}

/// Copies both ways until the session ends.
pub(super) async fn run(
    ends: RelayStreams,
    until: RelayLimits,
    metrics: &ProxyMetrics,
) -> RelayEnd {
    let half_close = until.half_close;
    let busy = AtomicBool::new(!ends.early.is_empty());
    let (client_reader, client_writer) = tokio::io::split(ends.client);
    let (backend_reader, backend_writer) = ends.backend.into_split();
    let up = upstream(
        client_reader,
        backend_writer,
        ends.early,
        &busy,
        &metrics.received_bytes,
    );
    let down = Downstream {
        reader: backend_reader,
        writer: client_writer,
        until,
        busy: &busy,
        sent_bytes: &metrics.sent_bytes,
        messages: MessageLengths::default(),
    };
    let (mut up, mut down) = (pin!(up), pin!(down.run(ends.leftover)));
    let client_closed = tokio::select! {
        end = &mut down => return end,
        closed = &mut up => closed,
    };
    let patience = match client_closed {
        ClientClose::Sending => half_close,
        ClientClose::Entirely => Duration::ZERO,
    };
    match tokio::time::timeout(patience, down).await {
        Ok(end) => end,
        Err(_) if busy.load(Ordering::Relaxed) => RelayEnd::Abandoned,
        Err(_) => RelayEnd::Finished,
    }
}

/// How the client stopped sending.
enum ClientClose {
    /// It may still read.
    Sending,
    /// The connection is broken.
    Entirely,
}

async fn upstream(
    mut reader: impl AsyncRead + Unpin,
    mut writer: impl AsyncWrite + Unpin,
    early: Bytes,
    busy: &AtomicBool,
    received_bytes: &Counter,
) -> ClientClose {
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut taken = early.len();
    buffer[..taken].copy_from_slice(&early);
    loop {
        if taken > 0 {
            busy.store(true, Ordering::Relaxed);
            received_bytes.inc_by(taken as u64);
            if writer.write_all(&buffer[..taken]).await.is_err() {
                // The backend has closed; what it said last is on its way down.
                return ClientClose::Sending;
            }
        }
        taken = match reader.read(&mut buffer).await {
            Ok(0) => break,
            Ok(taken) => taken,
            // A TLS connection cut without goodbye; TCP cannot tell whether the client still reads.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
            Err(_) => return ClientClose::Entirely,
        };
    }
    // A failure means that the backend is closed already.
    let _ = writer.shutdown().await;
    ClientClose::Sending
}

struct Downstream<'a, R, W> {
    reader: R,
    writer: W,
    until: RelayLimits,
    busy: &'a AtomicBool,
    sent_bytes: &'a Counter,
    messages: MessageLengths,
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Downstream<'_, R, W> {
    async fn run(mut self, leftover: Bytes) -> RelayEnd {
        let end = match self.copy(leftover).await {
            Ok(end) => end,
            // The client cannot be written to: it is gone.
            Err(_) if self.busy.load(Ordering::Relaxed) => return RelayEnd::Abandoned,
            Err(_) => return RelayEnd::Finished,
        };
        let last = match end {
            RelayEnd::Stopping => "terminating connection due to administrator command",
            RelayEnd::BranchClosed => "terminating connection because the branch went away",
            RelayEnd::Finished | RelayEnd::Abandoned => "",
        };
        if !last.is_empty() && self.messages.between() {
            let message = reply::fatal(&ConnectionRefusal::new("57P01", last));
            // Whether it arrives or not, the session ends here.
            let _ = self.writer.write_all(&message).await;
        }
        let _ = self.writer.shutdown().await;
        end
    }

    async fn copy(&mut self, leftover: Bytes) -> io::Result<RelayEnd> {
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut awaited = ShutdownPhase::Draining;
        self.forward(&leftover).await?;
        loop {
            if awaited == ShutdownPhase::Closing && !self.busy.load(Ordering::Relaxed) {
                return Ok(RelayEnd::Stopping);
            }
            let RelayLimits { ending, closed, .. } = &mut self.until;
            tokio::select! {
                biased;
                // First, since a backend that never pauses would keep it from being heard.
                () = reached(ending, awaited) => match awaited {
                    ShutdownPhase::Draining => awaited = ShutdownPhase::Closing,
                    _ => return Ok(RelayEnd::Stopping),
                },
                read = self.reader.read(&mut buffer) => match read {
                    // A backend that was killed resets the socket; the client sees it close.
                    Ok(0) | Err(_) => return Ok(RelayEnd::Finished),
                    Ok(taken) => self.forward(&buffer[..taken]).await?,
                },
                // Last, since the backend's own last words say more.
                () = closed => return Ok(RelayEnd::BranchClosed),
            }
        }
    }

    async fn forward(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.writer.write_all(bytes).await?;
        self.writer.flush().await?;
        self.sent_bytes.inc_by(bytes.len() as u64);
        self.messages.follow(bytes);
        if self.messages.idle() {
            self.busy.store(false, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Where the backend's stream stands: inside of a message or between two.
#[derive(Debug, Default)]
pub(super) struct MessageLengths {
    header: [u8; 5],
    header_bytes: usize,
    body_bytes_left: usize,
    /// The status of the last ReadyForQuery, when nothing but asynchronous messages followed.
    status: Option<u8>,
}

impl MessageLengths {
    /// Takes the next bytes of the stream, in pieces of any size.
    pub(super) fn follow(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let taken = if self.body_bytes_left > 0 {
                self.follow_body(bytes)
            } else {
                self.follow_header(bytes)
            };
            bytes = &bytes[taken..];
        }
    }

    fn follow_body(&mut self, bytes: &[u8]) -> usize {
        if self.header[0] == b'Z' {
            self.status = Some(bytes[0]);
        }
        let taken = bytes.len().min(self.body_bytes_left);
        self.body_bytes_left -= taken;
        taken
    }

    fn follow_header(&mut self, bytes: &[u8]) -> usize {
        let taken = bytes.len().min(self.header.len() - self.header_bytes);
        self.header[self.header_bytes..][..taken].copy_from_slice(&bytes[..taken]);
        self.header_bytes += taken;
        if self.header_bytes == self.header.len() {
            let [tag, length @ ..] = self.header;
            self.body_bytes_left = u32::from_be_bytes(length).saturating_sub(4) as usize;
            self.header_bytes = 0;
            // ParameterStatus, NotificationResponse and NoticeResponse come at any time.
            if !matches!(tag, b'S' | b'A' | b'N') {
                self.status = None;
            }
        }
        taken
    }

    /// Whether the last message is complete and no other has begun.
    pub(super) fn between(&self) -> bool {
        self.header_bytes == 0 && self.body_bytes_left == 0
    }

    /// Whether the backend waits for a statement, outside of a transaction.
    pub(super) fn idle(&self) -> bool {
        self.between() && self.status == Some(b'I')
    }
}

#[cfg(test)]
mod tests;
