//! A connection for load: one statement, one round trip, no task beside it.
//!
//! tokio-postgres connects and logs in; then its stream is taken over. Its own way of running a
//! statement goes through two channels and several allocations, which costs as much as half of what
//! a short statement takes, and would be measured as the server's.
//! See the chapter "Frontend/Backend Protocol" of PostgreSQL's manual.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_postgres::config::Host;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::{Config, NoTls, config::SslMode};
use tokio_postgres_rustls::MakeRustlsConnect;

/// Room for an answer; longer ones come in pieces.
const READ_BYTES: usize = 16 << 10;

/// A stream that carries the protocol, encrypted or not.
trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// A connection after the login.
pub struct Wire {
    stream: Box<dyn ByteStream>,
    output: Vec<u8>,
    input: BytesMut,
    is_broken: bool,
}

/// Why a statement or a connection failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The server's SQLSTATE; `None` when it was not the server that refused.
    pub code: Option<String>,
    /// Message of the error.
    pub message: String,
}

impl Fault {
    fn connection_lost(error: &io::Error) -> Self {
        Self { code: None, message: format!("connection lost: {}", error.kind()) }
    }
}

impl From<tokio_postgres::Error> for Fault {
    fn from(error: tokio_postgres::Error) -> Self {
        match error.as_db_error() {
            Some(db_error) => Self {
                code: Some(db_error.code().code().to_owned()),
                message: db_error.message().to_owned(),
            },
            None => Self { code: None, message: super::error_chain(&error) },
        }
    }
}

impl Wire {
    /// Connects to the first host that answers, and logs in.
    ///
    /// # Errors
    /// Why the last one did not.
    pub(super) async fn connect(
        config: &Config,
        tls: Option<&MakeRustlsConnect>,
    ) -> Result<Self, Fault> {
        let mut fault =
            Fault { code: None, message: "the connection string names no host".to_owned() };
        for (index, host) in config.get_hosts().iter().enumerate() {
            // One port stands for all hosts.
            let ports = config.get_ports();
            let port = ports.get(index).or(ports.first()).copied().unwrap_or(5432);
            match open_stream(host, port, tls, config.get_ssl_mode()).await {
                Ok(stream) => return log_in(config, stream).await,
                Err(error) => fault = error,
            }
        }
        Err(fault)
    }

    /// Whether the connection is unusable.
    pub fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Parses a statement under a name.
    pub async fn prepare(&mut self, name: &str, sql: &str) -> Result<(), Fault> {
        self.push_message(b'P', |out| {
            push_cstring(out, name);
            push_cstring(out, sql);
            out.extend_from_slice(&0_i16.to_be_bytes());
        });
        self.push_message(b'S', |_| {});
        self.round_trip().await
    }

    /// Executes a prepared statement with values as text and throws its rows away.
    pub async fn execute<'a>(
        &mut self,
        name: &str,
        values: impl ExactSizeIterator<Item = &'a str>,
    ) -> Result<(), Fault> {
        self.push_message(b'B', |out| {
            push_cstring(out, "");
            push_cstring(out, name);
            // No format codes: everything is text.
            out.extend_from_slice(&0_i16.to_be_bytes());
            let count = i16::try_from(values.len()).expect("a statement has few parameters");
            out.extend_from_slice(&count.to_be_bytes());
            for value in values {
                let length = i32::try_from(value.len()).expect("values are short");
                out.extend_from_slice(&length.to_be_bytes());
                out.extend_from_slice(value.as_bytes());
            }
            out.extend_from_slice(&0_i16.to_be_bytes());
        });
        // As libpq does, and with it pgbench: the columns are described anew for each execution.
        self.push_message(b'D', |out| {
            out.push(b'P');
            push_cstring(out, "");
        });
        self.push_message(b'E', |out| {
            push_cstring(out, "");
            out.extend_from_slice(&0_i32.to_be_bytes());
        });
        self.push_message(b'S', |_| {});
        self.round_trip().await
    }

    /// Runs a text of one statement.
    pub async fn simple_query(&mut self, sql: &str) -> Result<(), Fault> {
        self.push_message(b'Q', |out| push_cstring(out, sql));
        self.round_trip().await
    }

    /// Ends the session with a Terminate message.
    pub async fn close(mut self) {
        self.push_message(b'X', |_| {});
        // A server that is gone already needs no goodbye.
        let _ = self.stream.write_all(&self.output).await;
        let _ = self.stream.shutdown().await;
    }

    fn push_message(&mut self, tag: u8, body: impl FnOnce(&mut Vec<u8>)) {
        self.output.push(tag);
        let length_offset = self.output.len();
        self.output.extend_from_slice(&[0; 4]);
        body(&mut self.output);
        let length =
            i32::try_from(self.output.len() - length_offset).expect("statements are below 2 GB");
        self.output[length_offset..length_offset + 4].copy_from_slice(&length.to_be_bytes());
    }

    /// Sends what was put together, and reads until the server is ready again.
    async fn round_trip(&mut self) -> Result<(), Fault> {
        // Until the end is reached: a caller that gives up in between leaves it broken.
        self.is_broken = true;
        let sent = self.stream.write_all(&self.output).await;
        self.output.clear();
        sent.map_err(|error| Fault::connection_lost(&error))?;
        let mut fault = None;
        loop {
            while let Some((tag, body)) = next_message(&mut self.input) {
                match tag {
                    b'Z' => {
                        self.is_broken = false;
                        return fault.map_or(Ok(()), Err);
                    }
                    // The first one counts; a fatal one is the last message.
                    b'E' if fault.is_none() => fault = Some(parse_error_response(&body)),
                    b'G' => {
                        // COPY FROM STDIN would wait for ever.
                        self.push_message(b'f', |out| {
                            push_cstring(out, "nothing is copied during a load")
                        });
                        let sent = self.stream.write_all(&self.output).await;
                        self.output.clear();
                        sent.map_err(|error| Fault::connection_lost(&error))?;
                    }
                    _ => {}
                }
            }
            self.input.reserve(READ_BYTES);
            match self.stream.read_buf(&mut self.input).await {
                Ok(1..) => {}
                Ok(0) => {
                    let end = io::Error::from(io::ErrorKind::UnexpectedEof);
                    return Err(fault.unwrap_or_else(|| Fault::connection_lost(&end)));
                }
                Err(error) => return Err(fault.unwrap_or_else(|| Fault::connection_lost(&error))),
            }
        }
    }
}

/// Appends a string with its terminating zero.
fn push_cstring(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
    out.push(0);
}

/// Takes a whole message off the input.
fn next_message(input: &mut BytesMut) -> Option<(u8, BytesMut)> {
    let head: [u8; 5] = input.get(..5)?.try_into().ok()?;
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
    if input.len() < 1 + length {
        return None;
    }
    let mut message = input.split_to(1 + length.max(4));
    let body = message.split_off(5);
    Some((head[0], body))
}

/// Reads an ErrorResponse: fields of a type byte and a string each.
fn parse_error_response(body: &[u8]) -> Fault {
    let mut fault = Fault { code: None, message: String::new() };
    for field in body.split(|byte| *byte == 0) {
        match field.split_first() {
            Some((b'C', code)) => fault.code = Some(String::from_utf8_lossy(code).into_owned()),
            Some((b'M', text)) => fault.message = String::from_utf8_lossy(text).into_owned(),
            _ => {}
        }
    }
    fault
}

/// Connects, and encrypts where `tls` is given. A server without TLS is used as it is when the mode
/// is only to prefer it; anything else that goes wrong with TLS is an error.
async fn open_stream(
    host: &Host,
    port: u16,
    tls: Option<&MakeRustlsConnect>,
    mode: SslMode,
) -> Result<Box<dyn ByteStream>, Fault> {
    let name = match host {
        Host::Unix(directory) => {
            let path = directory.join(format!(".s.PGSQL.{port}"));
            let stream = UnixStream::connect(path).await;
            return Ok(Box::new(stream.map_err(|error| unreachable_fault(&error))?));
        }
        Host::Tcp(name) => name,
    };
    let stream = TcpStream::connect((name.as_str(), port)).await;
    let mut stream = stream.map_err(|error| unreachable_fault(&error))?;
    stream.set_nodelay(true).map_err(|error| Fault::connection_lost(&error))?;
    let Some(tls) = tls else {
        return Ok(Box::new(stream));
    };
    // SSLRequest: eight bytes, answered by one.
    let request = [8_i32.to_be_bytes(), 80_877_103_i32.to_be_bytes()].concat();
    let mut answer = [0];
    let handshake = async {
        stream.write_all(&request).await?;
        stream.read_exact(&mut answer).await
    };
    handshake.await.map_err(|error| Fault::connection_lost(&error))?;
    let tls_fault = |message: String| Fault { code: None, message };
    if answer == *b"N" && mode == SslMode::Prefer {
        return Ok(Box::new(stream));
    }
    if answer != *b"S" {
        return Err(tls_fault("the server does not speak TLS".to_owned()));
    }
    let mut make_connect = tls.clone();
    let connect = MakeTlsConnect::<TcpStream>::make_tls_connect(&mut make_connect, name)
        .map_err(|error| tls_fault(error.to_string()))?;
    let stream = connect.connect(stream).await;
    Ok(Box::new(stream.map_err(|error| tls_fault(error.to_string()))?))
}

fn unreachable_fault(error: &io::Error) -> Fault {
    Fault { code: None, message: error.to_string() }
}

async fn log_in(config: &Config, stream: Box<dyn ByteStream>) -> Result<Wire, Fault> {
    let borrowed = BorrowedStream(Arc::new(Mutex::new(Some(stream))));
    let mut config = config.clone();
    // It is encrypted already, where it is.
    config.ssl_mode(SslMode::Disable);
    // Neither is used: nothing was sent that they would have to answer.
    let _unused = config.connect_raw(borrowed.clone(), NoTls).await?;
    let stream = borrowed.take_back().expect("it was put there above");
    Ok(Wire { stream, output: Vec::new(), input: BytesMut::new(), is_broken: false })
}

/// A stream that can be taken back.
#[derive(Clone)]
struct BorrowedStream(Arc<Mutex<Option<Box<dyn ByteStream>>>>);

impl BorrowedStream {
    fn take_back(&self) -> Option<Box<dyn ByteStream>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn poll_stream<T>(
        &self,
        work: impl FnOnce(Pin<&mut dyn ByteStream>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let mut stream = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match stream.as_mut() {
            Some(stream) => work(Pin::new(stream.as_mut())),
            None => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }
}

impl AsyncRead for BorrowedStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll_stream(|stream| stream.poll_read(context, buffer))
    }
}

impl AsyncWrite for BorrowedStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_stream(|stream| stream.poll_write(context, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_stream(|stream| stream.poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_stream(|stream| stream.poll_shutdown(context))
    }
}

#[cfg(test)]
mod tests;
