//! One Unix socket with the bytes that were read from it but not yet understood.

use std::io;
use std::path::{Path, PathBuf};

use bytes::{Buf, Bytes, BytesMut};
use egret_linux::socket::SocketPath;
use postgres_protocol::message::backend::{Header, Message};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::error::{ServerError, WireError};

/// The largest message other than a row that is read into memory, in bytes. Rows have the caller's
/// limit; what else a server sends (descriptions, errors) stays far below this.
const MESSAGE_BYTES_MAX: usize = 16 << 20;

/// How much is read from the socket at a time, in bytes.
const READ_BYTES: usize = 16 << 10;

/// The tag and the length of the message that comes next.
#[derive(Clone, Copy)]
pub(super) struct MessageHeader {
    pub tag: u8,
    /// Length of the body without tag and length field, in bytes.
    pub body_bytes: usize,
}

pub(super) struct Connection {
    pub stream: UnixStream,
    pub inbound: BytesMut,
}

/// The socket of the server that listens on `port` in `socket_dir`.
pub(super) fn socket_path(socket_dir: &Path, port: u16) -> PathBuf {
    socket_dir.join(socket_name(port))
}

/// The name of the socket of the server that listens on `port`.
pub(crate) fn socket_name(port: u16) -> String {
    format!(".s.PGSQL.{port}")
}

/// Connects to the server that listens on `port` in `socket_dir`. The directory may belong to a
/// hostile user of that server: no link in it leads to another one.
///
/// # Errors
/// The kernel's; `PermissionDenied` when the name does not lead to that server.
pub(crate) async fn connect_socket(socket_dir: &Path, port: u16) -> io::Result<UnixStream> {
    let socket = SocketPath::find(socket_dir, socket_name(port).as_ref())?;
    let stream = UnixStream::connect(socket.path()).await?;
    socket.check_peer(&stream)?;
    Ok(stream)
}

impl Connection {
    pub(super) async fn open(socket_dir: &Path, port: u16) -> Result<Self, WireError> {
        match connect_socket(socket_dir, port).await {
            Ok(stream) => Ok(Self { stream, inbound: BytesMut::new() }),
            Err(source) => {
                Err(WireError::Unreachable { path: socket_path(socket_dir, port), source })
            }
        }
    }

    pub(super) async fn send(&mut self, bytes: &[u8]) -> Result<(), WireError> {
        self.stream.write_all(bytes).await.map_err(WireError::Lost)
    }

    /// Waits for the next message's header; the message stays unread.
    pub(super) async fn next_header(&mut self) -> Result<MessageHeader, WireError> {
        loop {
            match Header::parse(&self.inbound).map_err(protocol_error)? {
                Some(header) => {
                    let total =
                        usize::try_from(header.len()).expect("the parser refuses less than 4");
                    return Ok(MessageHeader { tag: header.tag(), body_bytes: total - 4 });
                }
                None => self.fill().await?,
            }
        }
    }

    /// Reads the next message, whose size the caller has accepted.
    pub(super) async fn read_message(
        &mut self,
        header: MessageHeader,
    ) -> Result<Message, WireError> {
        self.fill_message(header).await?;
        Message::parse(&mut self.inbound)
            .map_err(protocol_error)?
            .ok_or_else(|| WireError::Protocol("a message ended early".to_owned()))
    }

    /// Reads the next message, which must be one of bounded size, that is anything but a row.
    pub(super) async fn read_small_message(
        &mut self,
        header: MessageHeader,
    ) -> Result<Message, WireError> {
        check_size(header)?;
        self.read_message(header).await
    }

    /// Reads the next message as an error or a notice of the server.
    pub(super) async fn read_server_error(
        &mut self,
        header: MessageHeader,
    ) -> Result<ServerError, WireError> {
        let raw = self.take_raw_message(header).await?;
        let read = match Message::parse(&mut BytesMut::from(&raw[..])).map_err(protocol_error)? {
            Some(Message::ErrorResponse(body)) => ServerError::parse(body.fields(), raw),
            Some(Message::NoticeResponse(body)) => ServerError::parse(body.fields(), raw),
            _ => return Err(WireError::Protocol("an error was expected".to_owned())),
        };
        read.map_err(protocol_error)
    }

    /// Takes the next message as it came, header included.
    pub(super) async fn take_raw_message(
        &mut self,
        header: MessageHeader,
    ) -> Result<Bytes, WireError> {
        check_size(header)?;
        self.fill_message(header).await?;
        Ok(self.inbound.split_to(header.body_bytes + 5).freeze())
    }

    /// Throws the next message away without ever holding it in memory.
    pub(super) async fn skip_message(&mut self, header: MessageHeader) -> Result<(), WireError> {
        let mut left = header.body_bytes + 5;
        while left > 0 {
            if self.inbound.is_empty() {
                self.fill().await?;
            }
            let step = left.min(self.inbound.len());
            self.inbound.advance(step);
            left -= step;
        }
        Ok(())
    }

    async fn fill_message(&mut self, header: MessageHeader) -> Result<(), WireError> {
        while self.inbound.len() < header.body_bytes + 5 {
            self.fill().await?;
        }
        Ok(())
    }

    async fn fill(&mut self) -> Result<(), WireError> {
        self.inbound.reserve(READ_BYTES);
        match self.stream.read_buf(&mut self.inbound).await {
            Ok(0) => Err(WireError::Lost(io::ErrorKind::UnexpectedEof.into())),
            Ok(_) => Ok(()),
            Err(error) => Err(WireError::Lost(error)),
        }
    }
}

fn check_size(header: MessageHeader) -> Result<(), WireError> {
    if header.body_bytes <= MESSAGE_BYTES_MAX {
        return Ok(());
    }
    Err(WireError::Protocol(format!(
        "received a message `{}` of {} bytes, but at most {MESSAGE_BYTES_MAX} are accepted",
        header.tag.escape_ascii(),
        header.body_bytes
    )))
}

pub(super) fn protocol_error(error: io::Error) -> WireError {
    WireError::Protocol(error.to_string())
}
