//! Opening a session, giving it away, and cancelling what it does.

use std::path::{Path, PathBuf};

use bytes::{Bytes, BytesMut};
use postgres_protocol::message::backend::{self, Message};
use postgres_protocol::message::frontend;
use rustix::net::RecvFlags;
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;

use super::Startup;
use super::connection::{Connection, MessageHeader};
use super::error::WireError;

/// Contents of a cancel request: the process id of the backend and its secret.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct BackendKey {
    /// The backend's process id.
    pub pid: i32,
    /// The secret the backend gave to its client.
    pub secret: i32,
}

impl std::fmt::Debug for BackendKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BackendKey(pid {})", self.pid)
    }
}

/// A connected, authenticated session that waits for a statement.
pub struct Session {
    pub(super) connection: Connection,
    pub(super) socket_dir: PathBuf,
    pub(super) port: u16,
    pub(super) key: BackendKey,
    pub(super) parameters: Vec<(String, String)>,
    pub(super) notices: Vec<Bytes>,
    /// The status of the last ReadyForQuery; `None` while a statement is under way, and for ever
    /// after when the call that ran it was dropped.
    pub(super) ready_status: Option<Transaction>,
}

/// Transaction state of a session between two statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transaction {
    Idle,
    Open,
    Failed,
}

impl Transaction {
    pub(super) fn from_status(status: u8) -> Self {
        match status {
            b'I' => Transaction::Idle,
            b'T' => Transaction::Open,
            _ => Transaction::Failed,
        }
    }
}

/// A session's socket and everything that was received on it.
pub struct RawSession {
    /// The connected socket of the session.
    pub stream: UnixStream,
    /// Bytes received after ReadyForQuery and not consumed yet.
    pub leftover: Bytes,
    /// What the server reported with ParameterStatus, in its order.
    pub parameters: Vec<(String, String)>,
    /// Identifies the session in a cancel request.
    pub key: BackendKey,
    /// Notices that came while connecting, as whole messages.
    pub notices: Vec<Bytes>,
}

impl Session {
    /// Connects to `<socket_dir>/.s.PGSQL.<port>` and waits until the server is ready for a query.
    ///
    /// # Errors
    /// [`WireError::Unreachable`] when no process listens, [`WireError::Authentication`] when the
    /// server asks for more than the identity of this process, [`WireError::Server`] when it
    /// refuses (no such database, too many connections, still starting).
    pub async fn connect(
        socket_dir: &Path,
        port: u16,
        startup: &Startup,
    ) -> Result<Session, WireError> {
        let greeting = startup_message(startup)?;
        let mut connection = Connection::open(socket_dir, port).await?;
        connection.send(&greeting).await?;
        let mut session = Session {
            connection,
            socket_dir: socket_dir.to_owned(),
            port,
            key: BackendKey { pid: 0, secret: 0 },
            parameters: Vec::new(),
            notices: Vec::new(),
            ready_status: None,
        };
        while session.ready_status.is_none() {
            session.handle_startup_message().await?;
        }
        Ok(session)
    }

    /// What the server reported with ParameterStatus, in its order.
    pub fn parameters(&self) -> &[(String, String)] {
        &self.parameters
    }

    /// What [`cancel`] needs to know.
    pub fn key(&self) -> BackendKey {
        self.key
    }

    /// Gives the socket away, with everything that was received on it.
    ///
    /// # Errors
    /// [`WireError::Broken`] when a statement was left unfinished or a transaction is open.
    pub fn into_raw(self) -> Result<RawSession, WireError> {
        if self.ready_status != Some(Transaction::Idle) {
            return Err(WireError::Broken);
        }
        Ok(RawSession {
            stream: self.connection.stream,
            leftover: self.connection.inbound.freeze(),
            parameters: self.parameters,
            key: self.key,
            notices: self.notices,
        })
    }

    /// Whether it waits for a statement, outside of a transaction.
    pub fn is_idle(&self) -> bool {
        self.ready_status == Some(Transaction::Idle)
    }

    /// Whether it is idle and nothing has come from the server since: neither its end nor a message
    /// that was not requested. Looks at the socket and does not wait.
    pub fn is_quiet(&self) -> bool {
        let mut byte = [0; 1];
        let look = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        self.is_idle()
            && self.connection.inbound.is_empty()
            && rustix::net::recv(&self.connection.stream, &mut byte[..], look)
                .is_err_and(|error| error == rustix::io::Errno::AGAIN)
    }

    /// Says goodbye, so that the server does not log a lost connection.
    pub async fn close(mut self) {
        let mut terminate_message = BytesMut::new();
        frontend::terminate(&mut terminate_message);
        // The socket is closed in any case; a server that is gone needs no goodbye.
        let _ = self.connection.send(&terminate_message).await;
    }

    async fn handle_startup_message(&mut self) -> Result<(), WireError> {
        let header = self.connection.next_header().await?;
        match header.tag {
            backend::ERROR_RESPONSE_TAG => {
                let error = self.connection.read_server_error(header).await?;
                return Err(WireError::Server(Box::new(error)));
            }
            backend::NOTICE_RESPONSE_TAG => {
                self.notices.push(self.connection.take_raw_message(header).await?);
                return Ok(());
            }
            backend::PARAMETER_STATUS_TAG => return self.record_parameter(header).await,
            _ => {}
        }
        let message = self.connection.read_small_message(header).await?;
        match message {
            Message::AuthenticationOk => Ok(()),
            Message::BackendKeyData(body) => {
                self.key = BackendKey { pid: body.process_id(), secret: body.secret_key() };
                Ok(())
            }
            Message::ReadyForQuery(body) => {
                self.ready_status = Some(Transaction::from_status(body.status()));
                Ok(())
            }
            other => match authentication_method(&other) {
                Some(method) => Err(WireError::Authentication { method }),
                None => Err(WireError::Protocol("received an unexpected message".to_owned())),
            },
        }
    }

    /// Notes a ParameterStatus message, whose value need not be UTF-8.
    pub(super) async fn record_parameter(
        &mut self,
        header: MessageHeader,
    ) -> Result<(), WireError> {
        let raw = self.connection.take_raw_message(header).await?;
        let mut texts = raw[5..].split(|byte| *byte == 0);
        let mut text = || String::from_utf8_lossy(texts.next().unwrap_or_default()).into_owned();
        let (name, value) = (text(), text());
        match self.parameters.iter_mut().find(|(known_name, _)| *known_name == name) {
            Some((_, known)) => *known = value,
            None => self.parameters.push((name, value)),
        }
        Ok(())
    }
}

/// Asks the server to stop what the backend with `key` is doing, and returns when it has passed
/// the request on. Whether anything was cancelled shows in the session itself.
///
/// # Errors
/// [`WireError::Unreachable`] and [`WireError::Lost`] when the server cannot be asked.
pub async fn cancel(socket_dir: &Path, port: u16, key: BackendKey) -> Result<(), WireError> {
    let mut request = BytesMut::new();
    frontend::cancel_request(key.pid, key.secret, &mut request);
    let mut connection = Connection::open(socket_dir, port).await?;
    connection.send(&request).await?;
    // The server answers by closing, and does so only after the signal was sent.
    let mut buffer = [0; 1];
    match connection.stream.read(&mut buffer).await {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => Ok(()),
        Err(error) => Err(WireError::Lost(error)),
    }
}

fn startup_message(startup: &Startup) -> Result<BytesMut, WireError> {
    let mut greeting = BytesMut::new();
    let identity = [("user", startup.user.as_str()), ("database", startup.database.as_str())];
    let settings = startup.parameters.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    frontend::startup_message(identity.into_iter().chain(settings), &mut greeting)
        .map_err(|_| WireError::Unsendable("a startup parameter holds a zero byte"))?;
    Ok(greeting)
}

fn authentication_method(message: &Message) -> Option<&'static str> {
    match message {
        Message::AuthenticationCleartextPassword => Some("clear-text password"),
        Message::AuthenticationMd5Password(_) => Some("md5 password"),
        Message::AuthenticationSasl(_) => Some("SCRAM password"),
        Message::AuthenticationGss | Message::AuthenticationSspi => Some("GSSAPI"),
        Message::AuthenticationKerberosV5 | Message::AuthenticationScmCredential => {
            Some("obsolete")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
