//! Sessions on servers that run code of other users: the size of every answer is bounded.
//!
//! A superuser of a server decides what its catalogue contains, so that no query has an answer of
//! known size. The driver buffers whatever arrives until it is read; the bound is therefore on the
//! socket.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use futures_util::TryStreamExt;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio_postgres::config::Host;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Config, NoTls, Row};

use crate::error::{PostgresError, server_error};

/// Largest number of rows of one answer.
pub const ROWS_MAX: usize = 100_000;

/// The bytes that sessions accept from their server, and whether one was sent more.
#[derive(Debug)]
pub struct ReceiveLimit {
    bytes_max: u64,
    is_exceeded: AtomicBool,
}

impl ReceiveLimit {
    /// A limit of `bytes_max` bytes for each session.
    pub fn new(bytes_max: u64) -> Arc<Self> {
        Arc::new(Self { bytes_max, is_exceeded: AtomicBool::new(false) })
    }

    /// Whether a session ended because its server sent more.
    pub fn is_exceeded(&self) -> bool {
        self.is_exceeded.load(Ordering::Acquire)
    }
}

/// A socket that fails once more was received than its limit allows.
struct BoundedStream {
    stream: UnixStream,
    received: u64,
    limit: Arc<ReceiveLimit>,
}

impl AsyncRead for BoundedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.received += (buffer.filled().len() - before) as u64;
        if self.received > self.limit.bytes_max {
            self.limit.is_exceeded.store(true, Ordering::Release);
            let reason = "the server sent more data than the limit allows";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, reason)));
        }
        read
    }
}

impl AsyncWrite for BoundedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Opens a session over the socket that `connection` names and drives it on a task of its own. The
/// session ends when its server has sent more than `limit` allows.
///
/// # Errors
/// [`PostgresError::Server`]; [`PostgresError::Unreachable`] when nothing listens.
pub async fn connect(
    connection: &Config,
    limit: &Arc<ReceiveLimit>,
) -> Result<Client, PostgresError> {
    let [Host::Unix(directory)] = connection.get_hosts() else {
        panic!("a bounded session is opened over one socket");
    };
    let port = connection.get_ports().first().copied().unwrap_or(5432);
    let connected = crate::wire::connect_socket(directory, port).await;
    let stream = connected.map_err(|source| PostgresError::Unreachable {
        path: directory.join(crate::wire::socket_name(port)),
        source,
    })?;
    let stream = BoundedStream { stream, received: 0, limit: limit.clone() };
    let connected = connection.connect_raw(stream, NoTls).await;
    let (client, driver) = connected.map_err(server_error("connect"))?;
    tokio::spawn(async move {
        if let Err(error) = driver.await {
            tracing::debug!(error = crate::error::describe(&error), "a connection ended");
        }
    });
    Ok(client)
}

/// Runs a query on such a server and returns the rows.
///
/// # Errors
/// The server's; [`PostgresError::Answer`] when there are more than [`ROWS_MAX`].
pub async fn query(
    client: &Client,
    doing: &'static str,
    sql: &str,
    parameters: &[&(dyn ToSql + Sync)],
) -> Result<Vec<Row>, PostgresError> {
    let parameters = parameters.iter().copied();
    let rows = client.query_raw(sql, parameters).await.map_err(server_error(doing))?;
    let mut rows = std::pin::pin!(rows);
    let mut collected = Vec::new();
    while let Some(row) = rows.try_next().await.map_err(server_error(doing))? {
        if collected.len() == ROWS_MAX {
            return Err(PostgresError::Answer {
                doing,
                reason: format!("it has more than {ROWS_MAX} rows"),
            });
        }
        collected.push(row);
    }
    Ok(collected)
}

/// Reads a value of a row of such a server, which may have another type than expected.
///
/// # Errors
/// [`PostgresError::Server`] when it is of another type.
pub fn get_value<'a, T: tokio_postgres::types::FromSql<'a>>(
    row: &'a Row,
    column: usize,
    doing: &'static str,
) -> Result<T, PostgresError> {
    row.try_get(column).map_err(server_error(doing))
}
