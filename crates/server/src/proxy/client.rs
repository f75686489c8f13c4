//! One client, from its first packet to its last.

mod socket;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use bytes::{BufMut, Bytes, BytesMut};
use egret_base::error::chain;
use egret_branches::{Attempts, SessionFailure};
use egret_postgres::wire::{FirstPacket, RawSession, Session, Startup, StartupPacket, WireError};
use futures_util::FutureExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tracing::Instrument;

pub(super) use self::socket::send_farewell;
use self::socket::{FAREWELL_TIME, prepare_socket};
use super::authentication::{Claimant, authenticate, unless_evicted};
use super::branches::tenant_and_branch;
use super::cancels::Target;
use super::directory::{Backend, ConnectionRefusal, Entry, NO_SUCH_DATABASE};
use super::handshakes::Handshake;
use super::metrics::Cause;
use super::negotiation::{ClientStream, negotiate};
use super::relay::{self, RelayEnd};
use super::route::SessionRequest;
use super::{ProxyContext, ShutdownPhase, reached, reply};
use crate::audit::{SessionAttempt, SessionRecord, SessionRefusal};
use crate::problem::redact_paths;

/// How much a client may send before its session is ready, in bytes.
const EARLY_BYTES_MAX: usize = 8 << 10;

/// Why a connection ends before it is a session.
pub(super) enum ConnectError {
    /// The client is sent this ErrorResponse.
    Told(Cause, BytesMut),
    /// The client has disconnected, so nothing is sent.
    Left(io::Error),
}

impl ConnectError {
    pub(super) fn refused(cause: Cause, refusal: ConnectionRefusal) -> Self {
        tracing::info!(
            ?cause,
            sqlstate = refusal.sqlstate,
            message = refusal.message,
            "refused"
        );
        ConnectError::Told(cause, reply::fatal(&refusal))
    }

    pub(super) fn left(error: io::Error) -> Self {
        ConnectError::Left(error)
    }
}

/// A session that is ready for its client.
struct OpenSession {
    backend: Backend,
    session: RawSession,
    early: Bytes,
    _permit: OwnedSemaphorePermit,
}

/// Serves a connection to its end. `handshake` is given back once the client is authenticated.
pub(super) async fn serve(
    shared: Arc<ProxyContext>,
    tcp: TcpStream,
    peer: SocketAddr,
    handshake: Handshake,
) {
    let mut ending = shared.ending.subscribe();
    let span = tracing::info_span!("proxy", %peer);
    tokio::select! {
        () = handle_connection(&shared, tcp, peer, handshake).instrument(span) => {}
        () = reached(&mut ending, ShutdownPhase::Dropping) => {}
    }
}

async fn handle_connection(
    shared: &Arc<ProxyContext>,
    tcp: TcpStream,
    peer: SocketAddr,
    handshake: Handshake,
) {
    let accepted = Instant::now();
    let deadline = accepted + shared.config.authentication_timeout.duration();
    prepare_socket(&tcp);
    let startup_bytes_max = shared.config.startup_bytes_max.bytes();
    let negotiation = negotiate(tcp, shared.tls.as_ref(), startup_bytes_max);
    let timed = before(deadline, negotiation);
    let evicted = handshake.evicted();
    let negotiated = tokio::select! {
        negotiated = unless_ending(shared, timed) => negotiated,
        () = evicted.cancelled() => return shared.metrics.refused(Cause::HandshakesMax),
    };
    let (mut stream, wanted) = match negotiated {
        Some(Some(Ok(negotiated))) => negotiated,
        Some(Some(Err((cause, error)))) => {
            tracing::debug!(?cause, %error, "connection ended before its startup packet");
            return shared.metrics.refused(cause);
        }
        // As in PostgreSQL, a client that has not sent its startup packet in time gets no message.
        Some(None) => return shared.metrics.refused(Cause::AuthenticationTimeout),
        None => return shared.metrics.refused(Cause::Stopping),
    };
    handshake.note_turn(Instant::now());
    let mut attempt = None;
    let opened = match wanted {
        Ok(FirstPacket::Cancel(key)) => {
            shared.metrics.cancel_requested();
            // The client waits for the end of the connection to know that the request has arrived.
            let forwarding = before(deadline, shared.cancels.forward(key));
            tokio::select! {
                _ = forwarding => {}
                () = evicted.cancelled() => {}
            }
            return;
        }
        Ok(FirstPacket::Startup(packet)) => {
            let entrance = SessionSetup {
                peer,
                deadline,
                handshake,
                attempt: &mut attempt,
            };
            open_session(shared, &mut stream, packet, entrance).await
        }
        Ok(FirstPacket::Ssl | FirstPacket::GssEncryption) => {
            unreachable!("negotiation settles encryption")
        }
        Err((cause, refusal)) => Err(ConnectError::refused(cause, refusal)),
    };
    match opened {
        Ok(opened) => {
            let record = record_opening(shared, attempt);
            run_session(shared, stream, opened, accepted, record).await;
        }
        Err(ConnectError::Left(error)) => {
            tracing::debug!(%error, "the client left before its session was ready");
            shared.metrics.refused(Cause::ClientLeft);
        }
        Err(ConnectError::Told(cause, message)) => {
            shared.metrics.refused(cause);
            record_refusal(shared, attempt, cause);
            turn_away(shared, stream, cause, &message).await;
        }
    }
}

/// Records in the audit log that a session is open.
fn record_opening(shared: &ProxyContext, attempt: Option<SessionAttempt>) -> Option<SessionRecord> {
    let (attempt, audit) = attempt.zip(shared.audit.as_ref())?;
    audit.opened(&attempt)
}

/// Records in the audit log that a session was refused; nothing if the client has named no role and
/// branch yet.
fn record_refusal(shared: &ProxyContext, attempt: Option<SessionAttempt>, cause: Cause) {
    if let (Some(attempt), Some(audit)) = (attempt, &shared.audit) {
        let refusal = SessionRefusal {
            status: cause.http_status(),
            reason: cause.label(),
        };
        audit.refused(&attempt, refusal);
    }
}

/// Sends a client the reason why it gets no session, and closes its connection.
async fn turn_away(shared: &ProxyContext, stream: ClientStream, cause: Cause, message: &[u8]) {
    // Connections are evicted as fast as new ones arrive, so only some of them at a time receive a
    // message.
    let permit = (cause == Cause::HandshakesMax).then(|| shared.refusing.try_acquire());
    if !matches!(permit, Some(Err(_))) {
        send_farewell(stream, message).await;
    }
}

/// What opening a session needs beside the stream and the startup packet.
struct SessionSetup<'a> {
    peer: SocketAddr,
    /// Until when the client must have proved its password.
    deadline: Instant,
    handshake: Handshake,
    /// What the client asks for, once it is known; for the audit log.
    attempt: &'a mut Option<SessionAttempt>,
}

/// From the startup packet to a session of the branch's server.
async fn open_session(
    shared: &Arc<ProxyContext>,
    stream: &mut ClientStream,
    packet: StartupPacket,
    entrance: SessionSetup<'_>,
) -> Result<OpenSession, ConnectError> {
    let SessionSetup {
        peer,
        deadline,
        handshake,
        attempt,
    } = entrance;
    let opening = async {
        if packet.minor > 0 || !packet.protocol_options.is_empty() {
            let reply = reply::negotiate_version(&packet.protocol_options);
            stream.write_all(&reply).await.map_err(ConnectError::left)?;
        }
        let wish = SessionRequest::read(packet.parameters)
            .map_err(|refusal| ConnectError::refused(Cause::Route, refusal))?;
        let attempt = attempt.insert(attempt_of(&wish, peer));
        let entering = admit_client(shared, stream, &wish, &handshake);
        let evicted = handshake.evicted();
        let entry = before(deadline, unless_evicted(&evicted, entering)).await;
        let entry = entry.unwrap_or_else(|| {
            let refusal =
                ConnectionRefusal::new("57014", "canceling authentication due to timeout");
            Err(ConnectError::refused(Cause::AuthenticationTimeout, refusal))
        })?;
        drop(handshake);
        attempt.is_authenticated = true;
        let max = shared.config.sessions_max;
        let permit = shared.sessions.clone().try_acquire_owned().map_err(|_| {
            let refusal = ConnectionRefusal::too_many("sessions", "sessions_max", max);
            ConnectError::refused(Cause::SessionsMax, refusal)
        })?;
        let mut early = BytesMut::new();
        let (backend, session) =
            wait_buffering(stream, &mut early, attach(shared, wish, entry)).await??;
        Ok(OpenSession {
            backend,
            session,
            early: early.freeze(),
            _permit: permit,
        })
    };
    unless_ending(shared, opening).await.unwrap_or_else(|| {
        let refusal = ConnectionRefusal::new("57P03", "the database system is shutting down");
        Err(ConnectError::refused(Cause::Stopping, refusal))
    })
}

/// What a client asks for, for the audit log.
fn attempt_of(wish: &SessionRequest, peer: SocketAddr) -> SessionAttempt {
    let (tenant, branch) = tenant_and_branch(&wish.route);
    SessionAttempt {
        address: peer.ip(),
        tenant: tenant.to_owned(),
        branch: branch.to_owned(),
        database: wish.route.database.clone(),
        role: wish.user.clone(),
        is_authenticated: false,
    }
}

/// Authenticates the client; returns the entry of the branch that it asked for.
async fn admit_client(
    shared: &ProxyContext,
    stream: &mut ClientStream,
    wish: &SessionRequest,
    handshake: &Handshake,
) -> Result<Entry, ConnectError> {
    let refuse = |refusal| ConnectError::refused(Cause::Lookup, refusal);
    // Computed for existing branches too, so that both cases take the same time.
    let decoy = shared.directory.decoy(&wish.route);
    let lookup = shared.directory.lookup(&wish.user, &wish.route);
    let found = match (lookup.await, &decoy) {
        (Err(refusal), Some(_)) if refusal.sqlstate == NO_SUCH_DATABASE => Err(refusal),
        (found, _) => Ok(found.map_err(refuse)?),
    };
    let decoy = decoy.ok_or_else(|| {
        let refusal = ConnectionRefusal::new("57P03", "the branches are not ready yet");
        refuse(refusal.with_hint("try again in a moment"))
    })?;
    let entropy = shared.entropy.as_ref();
    let claimant = Claimant {
        stream,
        user: &wish.user,
        handshake,
    };
    authenticate(claimant, found.as_ref().ok(), decoy, entropy).await?;
    // No password fits a decoy, so after a successful exchange `found` is an entry.
    found.map_err(refuse)
}

/// Wakes the branch and opens a session on its server with the client's own settings.
async fn attach(
    shared: &ProxyContext,
    wish: SessionRequest,
    entry: Entry,
) -> Result<(Backend, RawSession), ConnectError> {
    let attaching = async {
        let mut attempts = Attempts::default();
        loop {
            let (mut backend, session) = open_backend(shared, &wish, &entry).await?;
            // A session of a server that was stopped meanwhile ends before its client has had
            // anything of it.
            let was_stopped = (&mut backend.closed).now_or_never().is_some();
            let failure = match &session {
                Ok(_) => was_stopped.then_some(SessionFailure::Stopped),
                Err(error) => SessionFailure::of(error, was_stopped),
            };
            let wait = failure.and_then(|failure| attempts.wait_after(failure));
            match (wait, session) {
                (None, Ok(session)) => return Ok((backend, session)),
                (None, Err(error)) => return Err(backend_refused(error)),
                (Some(wait), _) => {
                    drop(backend);
                    tokio::time::sleep(wait).await;
                }
            }
        }
    };
    let timeout = shared.config.attach_timeout;
    match tokio::time::timeout(timeout.duration(), attaching).await {
        Ok(attached) => attached,
        Err(_) => {
            let message = format!(
                "branch \"{}\" was not ready within proxy.attach_timeout, which is {timeout}",
                wish.route.branch
            );
            Err(ConnectError::refused(
                Cause::Attach,
                ConnectionRefusal::new("57P03", message),
            ))
        }
    }
}

/// The branch's server with a session on it, or with the reason why it gave none.
async fn open_backend(
    shared: &ProxyContext,
    wish: &SessionRequest,
    entry: &Entry,
) -> Result<(Backend, Result<RawSession, WireError>), ConnectError> {
    let route = &wish.route;
    let backend = shared
        .directory
        .attach(route, entry, &wish.parameters)
        .await;
    let mut backend = backend.map_err(|refusal| ConnectError::refused(Cause::Attach, refusal))?;
    if let Some(session) = backend.resident.take() {
        return Ok((backend, Ok(session)));
    }
    let mut startup = Startup {
        user: backend.role.clone(),
        database: route.database.clone(),
        parameters: wish.parameters.clone(),
    };
    let socket = Target {
        socket_dir: backend.socket_dir.clone(),
        port: backend.port,
    };
    let mut session = connect(&socket, &startup).await;
    if wish.whole_name != route.database && says(&session, NO_SUCH_DATABASE) {
        startup.database = wish.whole_name.clone();
        session = connect(&socket, &startup).await.or(session);
    }
    Ok((backend, session))
}

fn says(session: &Result<RawSession, WireError>, sqlstate: &str) -> bool {
    let error = session.as_ref().err().and_then(WireError::server);
    error.is_some_and(|said| said.sqlstate == sqlstate)
}

async fn connect(socket: &Target, startup: &Startup) -> Result<RawSession, WireError> {
    let session = Session::connect(&socket.socket_dir, socket.port, startup).await;
    session.and_then(Session::into_raw)
}

/// Converts an error of the branch's server, whose ErrorResponse is passed on unchanged.
fn backend_refused(error: WireError) -> ConnectError {
    if let Some(said) = error.server() {
        tracing::info!(
            sqlstate = said.sqlstate,
            message = said.message,
            "the branch's server refused the session"
        );
        return ConnectError::Told(Cause::Backend, BytesMut::from(&said.raw[..]));
    }
    let refusal = ConnectionRefusal::new("08006", redact_paths(&chain(&error)))
        .with_hint("check the branch with `egret branch list`, and its server's log");
    ConnectError::refused(Cause::Backend, refusal)
}

async fn run_session(
    shared: &Arc<ProxyContext>,
    mut stream: ClientStream,
    opened: OpenSession,
    accepted: Instant,
    mut record: Option<SessionRecord>,
) {
    let OpenSession {
        backend,
        session,
        early,
        _permit,
    } = opened;
    let target = Target {
        socket_dir: backend.socket_dir,
        port: backend.port,
    };
    let key = session.key;
    let _registered = shared.cancels.register(key, target);
    let welcome = reply::welcome(&session);
    let greeted = async {
        stream.write_all(&welcome).await?;
        stream.flush().await
    };
    if greeted.await.is_err() {
        if let Some(record) = &mut record {
            record.note_end(Cause::ClientLeft.label());
        }
        return shared.metrics.refused(Cause::ClientLeft);
    }
    let _open = shared.metrics.session_open(accepted.elapsed());
    tracing::debug!(pid = key.pid, "session opened");
    let ends = relay::RelayStreams {
        client: stream,
        early,
        backend: session.stream,
        leftover: session.leftover,
    };
    let until = relay::RelayLimits {
        ending: shared.ending.subscribe(),
        closed: backend.closed,
        half_close: shared.config.half_close_timeout.duration(),
    };
    let end = relay::run(ends, until, &shared.metrics).await;
    tracing::debug!(pid = key.pid, ?end, "session ended");
    if let Some(mut record) = record.take() {
        record.note_end(end.label());
    }
    if end == RelayEnd::Abandoned {
        // Cancel the statement: its client is gone, and the backend would not notice before its
        // end.
        let cancelling = shared.cancels.forward(key);
        let _ = tokio::time::timeout(FAREWELL_TIME, cancelling).await;
    }
    drop(backend.guard);
}

/// Waits for `work` while reading from the client: bytes that arrive meanwhile are appended to
/// `early`, and `work` is dropped if the client disconnects.
async fn wait_buffering<T>(
    stream: &mut ClientStream,
    early: &mut BytesMut,
    work: impl Future<Output = T>,
) -> Result<T, ConnectError> {
    let mut work = pin!(work);
    loop {
        let room = EARLY_BYTES_MAX - early.len();
        let mut buffer = (&mut *early).limit(room);
        tokio::select! {
            biased;
            done = &mut work => return Ok(done),
            read = stream.read_buf(&mut buffer), if room > 0 => match read {
                Ok(0) => return Err(ConnectError::left(io::ErrorKind::UnexpectedEof.into())),
                Ok(_) => {}
                Err(error) => return Err(ConnectError::left(error)),
            },
        }
    }
}

/// The result, or `None` once the deadline has passed.
async fn before<T>(deadline: Instant, work: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout_at(deadline.into(), work).await.ok()
}

/// The result of `work`, or `None` once the proxy drains.
async fn unless_ending<T>(shared: &ProxyContext, work: impl Future<Output = T>) -> Option<T> {
    let mut ending = shared.ending.subscribe();
    tokio::select! {
        done = work => Some(done),
        () = reached(&mut ending, ShutdownPhase::Draining) => None,
    }
}
