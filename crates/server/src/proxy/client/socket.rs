//! Sockets of clients: their options, and how a connection is closed with a last message.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

/// How long a client that was turned away gets to read why before its connection is closed.
pub(super) const LAST_MESSAGE_TIMEOUT: Duration = Duration::from_secs(1);

/// Sends a last message and closes so that it arrives: a socket closed with unread bytes is reset,
/// and a reset throws away what the client has not read yet.
pub(in crate::proxy) async fn send_last_message<S>(mut stream: S, message: &[u8])
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let closing = async {
        stream.write_all(message).await?;
        stream.shutdown().await?;
        let mut sink = [0; 1024];
        while stream.read(&mut sink).await? > 0 {}
        io::Result::Ok(())
    };
    // Ignore errors and the timeout: the client may be gone, and the message has been sent.
    let _ = tokio::time::timeout(LAST_MESSAGE_TIMEOUT, closing).await;
}

/// Sends small messages without delay (TCP_NODELAY), and detects vanished clients (keepalive).
pub(super) fn prepare_socket(tcp: &TcpStream) {
    let prepared = tcp
        .set_nodelay(true)
        .and_then(|()| Ok(rustix::net::sockopt::set_socket_keepalive(tcp, true)?));
    if let Err(error) = prepared {
        tracing::debug!(%error, "cannot set options of a client's socket");
    }
}
