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
use super::{ShutdownPhase, await_phase, reply};

/// How much is copied at a time, in bytes; each session holds two such buffers.
const BUFFER_BYTES: usize = 16 << 10;

/// The two connections, with what was read from them already.
pub(super) struct RelayStreams {
    pub client: ClientStream,
    pub early_bytes: Bytes,
    pub backend: UnixStream,
    pub leftover: Bytes,
}

/// Limits that end a session before either side closes.
pub(super) struct RelayLimits {
    pub phase_receiver: watch::Receiver<ShutdownPhase>,
    pub closed: BoxFuture<'static, ()>,
    pub half_close_timeout: Duration,
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
    streams: RelayStreams,
    limits: RelayLimits,
    metrics: &ProxyMetrics,
) -> RelayEnd {
    let half_close_timeout = limits.half_close_timeout;
    let is_busy = AtomicBool::new(!streams.early_bytes.is_empty());
    let (client_reader, client_writer) = tokio::io::split(streams.client);
    let (backend_reader, backend_writer) = streams.backend.into_split();
    let up = copy_upstream(
        client_reader,
        backend_writer,
        streams.early_bytes,
        &is_busy,
        &metrics.received_bytes,
    );
    let down = Downstream {
        reader: backend_reader,
        writer: client_writer,
        limits,
        is_busy: &is_busy,
        sent_bytes: &metrics.sent_bytes,
        messages: MessageLengths::default(),
    };
    let (mut up, mut down) = (pin!(up), pin!(down.run(streams.leftover)));
    let client_closed = tokio::select! {
        end = &mut down => return end,
        closed = &mut up => closed,
    };
    let timeout = match client_closed {
        ClientClose::HalfClosed => half_close_timeout,
        ClientClose::Broken => Duration::ZERO,
    };
    match tokio::time::timeout(timeout, down).await {
        Ok(end) => end,
        Err(_) if is_busy.load(Ordering::Relaxed) => RelayEnd::Abandoned,
        Err(_) => RelayEnd::Finished,
    }
}

/// How the client stopped sending.
enum ClientClose {
    /// It may still read.
    HalfClosed,
    /// The connection is broken.
    Broken,
}

async fn copy_upstream(
    mut reader: impl AsyncRead + Unpin,
    mut writer: impl AsyncWrite + Unpin,
    early_bytes: Bytes,
    is_busy: &AtomicBool,
    received_bytes: &Counter,
) -> ClientClose {
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut bytes_read = early_bytes.len();
    buffer[..bytes_read].copy_from_slice(&early_bytes);
    loop {
        if bytes_read > 0 {
            is_busy.store(true, Ordering::Relaxed);
            received_bytes.inc_by(bytes_read as u64);
            if writer.write_all(&buffer[..bytes_read]).await.is_err() {
                // The backend has closed; what it said last is on its way down.
                return ClientClose::HalfClosed;
            }
        }
        bytes_read = match reader.read(&mut buffer).await {
            Ok(0) => break,
            Ok(taken) => taken,
            // A TLS connection cut without goodbye; TCP cannot tell whether the client still reads.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
            Err(_) => return ClientClose::Broken,
        };
    }
    // A failure means that the backend is closed already.
    let _ = writer.shutdown().await;
    ClientClose::HalfClosed
}

struct Downstream<'a, R, W> {
    reader: R,
    writer: W,
    limits: RelayLimits,
    is_busy: &'a AtomicBool,
    sent_bytes: &'a Counter,
    messages: MessageLengths,
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Downstream<'_, R, W> {
    async fn run(mut self, leftover: Bytes) -> RelayEnd {
        let end = match self.copy(leftover).await {
            Ok(end) => end,
            // The client cannot be written to: it is gone.
            Err(_) if self.is_busy.load(Ordering::Relaxed) => return RelayEnd::Abandoned,
            Err(_) => return RelayEnd::Finished,
        };
        let last_message = match end {
            RelayEnd::Stopping => "terminating connection due to administrator command",
            RelayEnd::BranchClosed => "terminating connection because the branch went away",
            RelayEnd::Finished | RelayEnd::Abandoned => "",
        };
        if !last_message.is_empty() && self.messages.is_between_messages() {
            let message = reply::fatal_error(&ConnectionRefusal::new("57P01", last_message));
            // Whether it arrives or not, the session ends here.
            let _ = self.writer.write_all(&message).await;
        }
        let _ = self.writer.shutdown().await;
        end
    }

    async fn copy(&mut self, leftover: Bytes) -> io::Result<RelayEnd> {
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut awaited_phase = ShutdownPhase::Draining;
        self.forward_to_client(&leftover).await?;
        loop {
            if awaited_phase == ShutdownPhase::Closing && !self.is_busy.load(Ordering::Relaxed) {
                return Ok(RelayEnd::Stopping);
            }
            let RelayLimits { phase_receiver: ending, closed, .. } = &mut self.limits;
            tokio::select! {
                biased;
                // First, since a backend that never pauses would keep it from being heard.
                () = await_phase(ending, awaited_phase) => match awaited_phase {
                    ShutdownPhase::Draining => awaited_phase = ShutdownPhase::Closing,
                    _ => return Ok(RelayEnd::Stopping),
                },
                read = self.reader.read(&mut buffer) => match read {
                    // A backend that was killed resets the socket; the client sees it close.
                    Ok(0) | Err(_) => return Ok(RelayEnd::Finished),
                    Ok(bytes_read) => self.forward_to_client(&buffer[..bytes_read]).await?,
                },
                // Last, since the backend's own last words say more.
                () = closed => return Ok(RelayEnd::BranchClosed),
            }
        }
    }

    async fn forward_to_client(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.writer.write_all(bytes).await?;
        self.writer.flush().await?;
        self.sent_bytes.inc_by(bytes.len() as u64);
        self.messages.advance(bytes);
        if self.messages.is_idle() {
            self.is_busy.store(false, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Where the backend's stream stands: inside of a message or between two.
#[derive(Debug, Default)]
pub(super) struct MessageLengths {
    header: [u8; 5],
    header_bytes: usize,
    remaining_body_bytes: usize,
    /// The status of the last ReadyForQuery, when nothing but asynchronous messages followed.
    status: Option<u8>,
}

impl MessageLengths {
    /// Takes the next bytes of the stream, in pieces of any size.
    pub(super) fn advance(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let consumed = if self.remaining_body_bytes > 0 {
                self.advance_body(bytes)
            } else {
                self.advance_header(bytes)
            };
            bytes = &bytes[consumed..];
        }
    }

    fn advance_body(&mut self, bytes: &[u8]) -> usize {
        if self.header[0] == b'Z' {
            self.status = Some(bytes[0]);
        }
        let consumed = bytes.len().min(self.remaining_body_bytes);
        self.remaining_body_bytes -= consumed;
        consumed
    }

    fn advance_header(&mut self, bytes: &[u8]) -> usize {
        let consumed = bytes.len().min(self.header.len() - self.header_bytes);
        self.header[self.header_bytes..][..consumed].copy_from_slice(&bytes[..consumed]);
        self.header_bytes += consumed;
        if self.header_bytes == self.header.len() {
            let [tag, length @ ..] = self.header;
            self.remaining_body_bytes = u32::from_be_bytes(length).saturating_sub(4) as usize;
            self.header_bytes = 0;
            // ParameterStatus, NotificationResponse and NoticeResponse come at any time.
            if !matches!(tag, b'S' | b'A' | b'N') {
                self.status = None;
            }
        }
        consumed
    }

    /// Whether the last message is complete and no other has begun.
    pub(super) fn is_between_messages(&self) -> bool {
        self.header_bytes == 0 && self.remaining_body_bytes == 0
    }

    /// Whether the backend waits for a statement, outside of a transaction.
    pub(super) fn is_idle(&self) -> bool {
        self.is_between_messages() && self.status == Some(b'I')
    }
}

#[cfg(test)]
mod tests;
