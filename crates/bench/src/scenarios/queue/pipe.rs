//! A TCP connection polled by hand, for protocols that are a stream of replies.

use std::pin::Pin;
use std::task::{Context, Poll};

use anyhow::{Context as _, Result, bail};
use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

const READ_BYTES: usize = 64 << 10;

/// A connection with what is to be sent and what has come.
pub(super) struct Pipe {
    stream: TcpStream,
    inbox: BytesMut,
    /// Sent with the next poll.
    pub(super) outbox: BytesMut,
    chunk: Vec<u8>,
}

impl Pipe {
    /// Connects.
    ///
    /// # Errors
    /// If the connection cannot be established.
    pub(super) async fn open(port: u16) -> Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))
            .await
            .with_context(|| format!("connect to port {port}"))?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            inbox: BytesMut::new(),
            outbox: BytesMut::new(),
            chunk: vec![0; READ_BYTES],
        })
    }

    /// Sends, and calls `parse` with what has come for as long as it takes something off the front:
    /// it returns how many bytes. Ready when it took anything.
    ///
    /// # Errors
    /// When the connection is lost, or `parse` does not understand.
    pub(super) fn poll(
        &mut self,
        context: &mut Context<'_>,
        mut parse: impl FnMut(&[u8]) -> Result<Option<usize>>,
    ) -> Poll<Result<()>> {
        while !self.outbox.is_empty() {
            let stream = Pin::new(&mut self.stream);
            match stream.poll_write(context, &self.outbox)? {
                Poll::Ready(sent) => self.outbox.advance(sent),
                Poll::Pending => break,
            }
        }
        let mut has_consumed = false;
        loop {
            let mut buffer = ReadBuf::new(&mut self.chunk);
            match Pin::new(&mut self.stream).poll_read(context, &mut buffer)? {
                Poll::Ready(()) if buffer.filled().is_empty() => {
                    return Poll::Ready(Err(anyhow::anyhow!("the peer closed the connection")));
                }
                Poll::Ready(()) => self.inbox.extend_from_slice(buffer.filled()),
                Poll::Pending if has_consumed => return Poll::Ready(Ok(())),
                Poll::Pending => return Poll::Pending,
            }
            while let Some(consumed) = parse(&self.inbox)? {
                self.inbox.advance(consumed);
                has_consumed = true;
            }
        }
    }

    /// Sends a command and waits for its reply, which `parse` reads.
    ///
    /// # Errors
    /// As [`Pipe::poll`].
    pub(super) async fn exchange(
        &mut self,
        command: &[u8],
        mut parse: impl FnMut(&[u8]) -> Result<Option<usize>>,
    ) -> Result<()> {
        self.outbox.extend_from_slice(command);
        std::future::poll_fn(|context| self.poll(context, &mut parse)).await
    }
}

/// A line without its end, and how long it is with it.
#[inline]
pub(super) fn split_line(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let end = bytes.windows(2).position(|two| two == b"\r\n")?;
    Some((&bytes[..end], end + 2))
}

/// The number that a text is.
///
/// # Errors
/// When it is none.
pub(super) fn parse_number(text: &[u8]) -> Result<u64> {
    let parsed = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    match parsed {
        Some(number) => Ok(number),
        None => bail!("`{}` is not a number", String::from_utf8_lossy(text)),
    }
}

#[cfg(test)]
mod tests;
