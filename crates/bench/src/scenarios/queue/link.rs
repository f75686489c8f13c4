//! A gRPC stream over an HTTP/2 connection of its own, polled by hand: no task, channel or lock
//! between the load and the socket.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use anyhow::{Context as _, Result, bail};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use h2::client::{Builder, Connection, ResponseFuture};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Method, Request, Version, header};
use tokio::net::TcpStream;

/// So much may be under way to this program before it says that it has read it: more than ever is.
const WINDOW_BYTES: u32 = 16 << 20;

/// The largest frame taken: a message of several thousand tasks is one.
const FRAME_BYTES: u32 = 1 << 20;

/// Flag and length before each message; see the gRPC protocol over HTTP/2.
const PREFIX_BYTES: usize = 5;

pub(super) struct GrpcLink {
    connection: Connection<TcpStream, Bytes>,
    response: Option<ResponseFuture>,
    sender: SendStream<Bytes>,
    receiver: Option<RecvStream>,
    inbox: BytesMut,
    outbox: BytesMut,
}

impl GrpcLink {
    /// Connects and asks for the stream; the answer comes later.
    ///
    /// # Errors
    /// If the connection cannot be established.
    pub(super) async fn open(host: &str, path: &str, token: &str) -> Result<Self> {
        let stream =
            TcpStream::connect(host).await.with_context(|| format!("connect to {host}"))?;
        stream.set_nodelay(true)?;
        let (mut requests, mut connection) = Builder::new()
            .initial_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .max_frame_size(FRAME_BYTES)
            .enable_push(false)
            .handshake(stream)
            .await
            .context("speak HTTP/2")?;
        poll_fn(|context| {
            // It moves only while it is polled.
            if let Poll::Ready(Err(error)) = Pin::new(&mut connection).poll(context) {
                return Poll::Ready(Err(error));
            }
            requests.poll_ready(context)
        })
        .await?;
        let request = Request::builder()
            .method(Method::POST)
            .version(Version::HTTP_2)
            .uri(format!("http://{host}{path}"))
            .header(header::TE, "trailers")
            .header(header::CONTENT_TYPE, "application/grpc")
            .header(header::AUTHORIZATION, format!("Bearer {token}"))
            .body(())?;
        let (response, sender) = requests.send_request(request, false)?;
        Ok(Self {
            connection,
            response: Some(response),
            sender,
            receiver: None,
            inbox: BytesMut::new(),
            outbox: BytesMut::new(),
        })
    }

    /// Adds a message to what is sent next.
    pub(super) fn push_message(&mut self, message: &[u8]) {
        self.outbox.put_u8(0);
        self.outbox.put_u32(message.len() as u32);
        self.outbox.put_slice(message);
    }

    /// Whether everything put before is on its way, as far as the peer can take it: what is put
    /// then goes out at once.
    pub(super) fn is_flushed(&self) -> bool {
        self.outbox.is_empty()
    }

    /// Sends what was put and calls `on_message` with each message that has come; ready when there
    /// was one.
    ///
    /// # Errors
    /// When the stream has ended, with what the server said.
    pub(super) fn poll(
        &mut self,
        context: &mut Context<'_>,
        mut on_message: impl FnMut(&[u8]) -> Result<()>,
    ) -> Poll<Result<()>> {
        if !self.outbox.is_empty() {
            self.sender.reserve_capacity(self.outbox.len());
            if self.sender.capacity() > 0 {
                self.sender.send_data(self.outbox.split().freeze(), false)?;
            } else if let Poll::Ready(Some(Err(error))) = self.sender.poll_capacity(context) {
                return Poll::Ready(Err(error.into()));
            }
        }
        if let Poll::Ready(result) = Pin::new(&mut self.connection).poll(context) {
            result?;
            return Poll::Ready(Err(anyhow::anyhow!("the server closed the connection")));
        }
        if self.receiver.is_none() {
            ready!(self.poll_response(context))?;
        }
        let Some(receiver) = &mut self.receiver else {
            unreachable!("there is a response");
        };
        let mut has_message = false;
        loop {
            match receiver.poll_data(context) {
                Poll::Ready(Some(chunk)) => {
                    let chunk = chunk?;
                    receiver.flow_control().release_capacity(chunk.len())?;
                    has_message |= process_chunk(&mut self.inbox, chunk, &mut on_message)?;
                }
                Poll::Ready(None) => {
                    let trailers = ready!(receiver.poll_trailers(context))?;
                    return Poll::Ready(Err(stream_error(&trailers.unwrap_or_default())));
                }
                Poll::Pending if has_message => return Poll::Ready(Ok(())),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn poll_response(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        let Some(response) = &mut self.response else {
            return Poll::Ready(Ok(()));
        };
        let (head, body) = ready!(Pin::new(response).poll(context))?.into_parts();
        self.response = None;
        if head.status != http::StatusCode::OK || head.headers.contains_key("grpc-status") {
            return Poll::Ready(Err(stream_error(&head.headers)
                .context(format!("the server responded {}", head.status.as_u16()))));
        }
        self.receiver = Some(body);
        Poll::Ready(Ok(()))
    }
}

/// Calls `on_message` with each message that is whole now; whether there was one.
fn process_chunk(
    inbox: &mut BytesMut,
    chunk: Bytes,
    on_message: &mut impl FnMut(&[u8]) -> Result<()>,
) -> Result<bool> {
    if !inbox.is_empty() {
        inbox.extend_from_slice(&chunk);
        let consumed = process_messages(inbox, on_message)?;
        inbox.advance(consumed);
        return Ok(consumed > 0);
    }
    let taken = process_messages(&chunk, on_message)?;
    inbox.extend_from_slice(&chunk[taken..]);
    Ok(taken > 0)
}

/// How many bytes of whole messages there were.
fn process_messages(
    bytes: &[u8],
    on_message: &mut impl FnMut(&[u8]) -> Result<()>,
) -> Result<usize> {
    let mut consumed = 0;
    while let Some((prefix, rest)) = bytes[consumed..].split_first_chunk::<PREFIX_BYTES>() {
        let [compressed, length @ ..] = prefix;
        if *compressed != 0 {
            bail!("the server sent a compressed message, although none was requested");
        }
        let length = u32::from_be_bytes(*length) as usize;
        let Some(message) = rest.get(..length) else {
            break;
        };
        on_message(message)?;
        consumed += PREFIX_BYTES + length;
    }
    Ok(consumed)
}

/// Why a stream has ended.
fn stream_error(trailers: &HeaderMap) -> anyhow::Error {
    let header_text = |name: &str| {
        let value = trailers.get(name).map(|value| value.as_bytes());
        String::from_utf8_lossy(value.unwrap_or_default()).into_owned()
    };
    anyhow::anyhow!(
        "the server ended the stream: status {}, {} ({})",
        header_text("grpc-status"),
        header_text("grpc-message").replace("%20", " "),
        header_text("egret-code"),
    )
}

#[cfg(test)]
mod tests;
