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

pub(super) use self::socket::send_last_message;
use self::socket::{LAST_MESSAGE_TIMEOUT, prepare_socket};
use super::authentication::{Claimant, authenticate, run_unless_evicted};
use super::branches::split_tenant_and_branch;
use super::cancel_keys::Target;
use super::directory::{Backend, ConnectionRefusal, Entry, NO_SUCH_DATABASE};
use super::handshakes::Handshake;
use super::metrics::Cause;
use super::negotiation::{ClientStream, negotiate};
use super::relay::{self, RelayEnd};
use super::route::SessionRequest;
use super::{ProxyContext, ShutdownPhase, await_phase, reply};
use crate::audit::{SessionAttempt, SessionRecord, SessionRefusal};
use crate::problem::redact_paths;

/// How much a client may send before its session is ready, in bytes.
const EARLY_BYTES_MAX: usize = 8 << 10;

/// Why a connection ends before it is a session.
pub(super) enum ConnectError {
    /// The client is sent this ErrorResponse.
    Refused(Cause, BytesMut),
    /// The client has disconnected, so nothing is sent.
    Disconnected(io::Error),
}

impl ConnectError {
    pub(super) fn refused(cause: Cause, refusal: ConnectionRefusal) -> Self {
        tracing::info!(?cause, sqlstate = refusal.sqlstate, message = refusal.message, "refused");
        ConnectError::Refused(cause, reply::fatal_error(&refusal))
    }

    pub(super) fn disconnected(error: io::Error) -> Self {
        ConnectError::Disconnected(error)
    }
}

/// A session that is ready for its client.
struct OpenSession {
    backend: Backend,
    session: RawSession,
    early_bytes: Bytes,
    _permit: OwnedSemaphorePermit,
}

/// Serves a connection to its end. `handshake` is given back once the client is authenticated.
pub(super) async fn serve(
    context: Arc<ProxyContext>,
    tcp: TcpStream,
    peer: SocketAddr,
    handshake: Handshake,
) {
    let mut phase_receiver = context.shutdown_phase.subscribe();
    let span = tracing::info_span!("proxy", %peer);
    tokio::select! {
        () = handle_connection(&context, tcp, peer, handshake).instrument(span) => {}
        () = await_phase(&mut phase_receiver, ShutdownPhase::Dropping) => {}
    }
}

async fn handle_connection(
    context: &Arc<ProxyContext>,
    tcp: TcpStream,
    peer: SocketAddr,
    handshake: Handshake,
) {
    let accepted_at = Instant::now();
    let deadline = accepted_at + context.config.authentication_timeout.duration();
    prepare_socket(&tcp);
    let startup_bytes_max = context.config.startup_bytes_max.bytes();
    let negotiation = negotiate(tcp, context.tls.as_ref(), startup_bytes_max);
    let timed_negotiation = run_before(deadline, negotiation);
    let eviction = handshake.eviction();
    let negotiated = tokio::select! {
        negotiated = run_unless_draining(context, timed_negotiation) => negotiated,
        () = eviction.cancelled() => return context.metrics.count_refused(Cause::HandshakesMax),
    };
    let (mut stream, first_packet) = match negotiated {
        Some(Some(Ok(negotiated))) => negotiated,
        Some(Some(Err((cause, error)))) => {
            tracing::debug!(?cause, %error, "connection ended before its startup packet");
            return context.metrics.count_refused(cause);
        }
        // As in PostgreSQL, a client that has not sent its startup packet in time gets no message.
        Some(None) => return context.metrics.count_refused(Cause::AuthenticationTimeout),
        None => return context.metrics.count_refused(Cause::Stopping),
    };
    handshake.mark_waiting(Instant::now());
    let mut attempt = None;
    let result = match first_packet {
        Ok(FirstPacket::Cancel(key)) => {
            context.metrics.count_cancel_request();
            // The client waits for the end of the connection to know that the request has arrived.
            let forwarding = run_before(deadline, context.cancel_keys.forward_request(key));
            tokio::select! {
                _ = forwarding => {}
                () = eviction.cancelled() => {}
            }
            return;
        }
        Ok(FirstPacket::Startup(packet)) => {
            let setup = SessionSetup { peer, deadline, handshake, attempt: &mut attempt };
            open_session(context, &mut stream, packet, setup).await
        }
        Ok(FirstPacket::Ssl | FirstPacket::GssEncryption) => {
            unreachable!("negotiation settles encryption")
        }
        Err((cause, refusal)) => Err(ConnectError::refused(cause, refusal)),
    };
    match result {
        Ok(opened) => {
            let record = record_opening(context, attempt);
            run_session(context, stream, opened, accepted_at, record).await;
        }
        Err(ConnectError::Disconnected(error)) => {
            tracing::debug!(%error, "the client left before its session was ready");
            context.metrics.count_refused(Cause::ClientLeft);
        }
        Err(ConnectError::Refused(cause, message)) => {
            context.metrics.count_refused(cause);
            record_refusal(context, attempt, cause);
            send_refusal(context, stream, cause, &message).await;
        }
    }
}

/// Records in the audit log that a session is open.
fn record_opening(
    context: &ProxyContext,
    attempt: Option<SessionAttempt>,
) -> Option<SessionRecord> {
    let (attempt, audit) = attempt.zip(context.audit.as_ref())?;
    audit.record_opening(&attempt)
}

/// Records in the audit log that a session was refused; nothing if the client has named no role and
/// branch yet.
fn record_refusal(context: &ProxyContext, attempt: Option<SessionAttempt>, cause: Cause) {
    if let (Some(attempt), Some(audit)) = (attempt, &context.audit) {
        let refusal = SessionRefusal { status: cause.http_status(), reason: cause.label() };
        audit.record_refusal(&attempt, refusal);
    }
}

/// Sends a client the reason why it gets no session, and closes its connection.
async fn send_refusal(context: &ProxyContext, stream: ClientStream, cause: Cause, message: &[u8]) {
    // Connections are evicted as fast as new ones arrive, so only some of them at a time receive a
    // message.
    let permit = (cause == Cause::HandshakesMax).then(|| context.refusal_slots.try_acquire());
    if !matches!(permit, Some(Err(_))) {
        send_last_message(stream, message).await;
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
    context: &Arc<ProxyContext>,
    stream: &mut ClientStream,
    packet: StartupPacket,
    setup: SessionSetup<'_>,
) -> Result<OpenSession, ConnectError> {
    let SessionSetup { peer, deadline, handshake, attempt } = setup;
    let opening = async {
        if packet.minor > 0 || !packet.protocol_options.is_empty() {
            let reply = reply::negotiate_version(&packet.protocol_options);
            stream.write_all(&reply).await.map_err(ConnectError::disconnected)?;
        }
        let request = SessionRequest::parse(packet.parameters)
            .map_err(|refusal| ConnectError::refused(Cause::Route, refusal))?;
        let attempt = attempt.insert(session_attempt(&request, peer));
        let entering = authenticate_client(context, stream, &request, &handshake);
        let eviction = handshake.eviction();
        let entry = run_before(deadline, run_unless_evicted(&eviction, entering)).await;
        let entry = entry.unwrap_or_else(|| {
            let refusal =
                ConnectionRefusal::new("57014", "canceling authentication due to timeout");
            Err(ConnectError::refused(Cause::AuthenticationTimeout, refusal))
        })?;
        drop(handshake);
        attempt.is_authenticated = true;
        let max = context.config.sessions_max;
        let permit = context.session_slots.clone().try_acquire_owned().map_err(|_| {
            let refusal = ConnectionRefusal::too_many("sessions", "sessions_max", max);
            ConnectError::refused(Cause::SessionsMax, refusal)
        })?;
        let mut early_bytes = BytesMut::new();
        let (backend, session) =
            wait_buffering(stream, &mut early_bytes, attach(context, request, entry)).await??;
        Ok(OpenSession { backend, session, early_bytes: early_bytes.freeze(), _permit: permit })
    };
    run_unless_draining(context, opening).await.unwrap_or_else(|| {
        let refusal = ConnectionRefusal::new("57P03", "the database system is shutting down");
        Err(ConnectError::refused(Cause::Stopping, refusal))
    })
}

/// What a client asks for, for the audit log.
fn session_attempt(request: &SessionRequest, peer: SocketAddr) -> SessionAttempt {
    let (tenant, branch) = split_tenant_and_branch(&request.route);
    SessionAttempt {
        address: peer.ip(),
        tenant: tenant.to_owned(),
        branch: branch.to_owned(),
        database: request.route.database.clone(),
        role: request.user.clone(),
        is_authenticated: false,
    }
}

/// Authenticates the client; returns the entry of the branch that it asked for.
async fn authenticate_client(
    context: &ProxyContext,
    stream: &mut ClientStream,
    request: &SessionRequest,
    handshake: &Handshake,
) -> Result<Entry, ConnectError> {
    let lookup_error = |refusal| ConnectError::refused(Cause::Lookup, refusal);
    // Computed for existing branches too, so that both cases take the same time.
    let decoy = context.directory.decoy_verifier(&request.route);
    let lookup = context.directory.lookup(&request.user, &request.route);
    let entry = match (lookup.await, &decoy) {
        (Err(refusal), Some(_)) if refusal.sqlstate == NO_SUCH_DATABASE => Err(refusal),
        (found, _) => Ok(found.map_err(lookup_error)?),
    };
    let decoy = decoy.ok_or_else(|| {
        let refusal = ConnectionRefusal::new("57P03", "the branches are not ready yet");
        lookup_error(refusal.with_hint("try again in a moment"))
    })?;
    let entropy = context.entropy.as_ref();
    let claimant = Claimant { stream, user: &request.user, handshake };
    authenticate(claimant, entry.as_ref().ok(), decoy, entropy).await?;
    // No password fits a decoy, so after a successful exchange `found` is an entry.
    entry.map_err(lookup_error)
}

/// Wakes the branch and opens a session on its server with the client's own settings.
async fn attach(
    context: &ProxyContext,
    request: SessionRequest,
    entry: Entry,
) -> Result<(Backend, RawSession), ConnectError> {
    let attaching = async {
        let mut attempts = Attempts::default();
        loop {
            let (mut backend, session) = open_backend(context, &request, &entry).await?;
            // A session of a server that was stopped meanwhile ends before its client has had
            // anything of it.
            let was_stopped = (&mut backend.closed).now_or_never().is_some();
            let failure = match &session {
                Ok(_) => was_stopped.then_some(SessionFailure::Stopped),
                Err(error) => SessionFailure::from_error(error, was_stopped),
            };
            let wait = failure.and_then(|failure| attempts.wait_after(failure));
            match (wait, session) {
                (None, Ok(session)) => return Ok((backend, session)),
                (None, Err(error)) => return Err(backend_error(error)),
                (Some(wait), _) => {
                    drop(backend);
                    tokio::time::sleep(wait).await;
                }
            }
        }
    };
    let timeout = context.config.attach_timeout;
    match tokio::time::timeout(timeout.duration(), attaching).await {
        Ok(attached) => attached,
        Err(_) => {
            let message = format!(
                "branch \"{}\" was not ready within proxy.attach_timeout, which is {timeout}",
                request.route.branch
            );
            Err(ConnectError::refused(Cause::Attach, ConnectionRefusal::new("57P03", message)))
        }
    }
}

/// The branch's server with a session on it, or with the reason why it gave none.
async fn open_backend(
    context: &ProxyContext,
    request: &SessionRequest,
    entry: &Entry,
) -> Result<(Backend, Result<RawSession, WireError>), ConnectError> {
    let route = &request.route;
    let backend = context.directory.attach(route, entry, &request.parameters).await;
    let mut backend = backend.map_err(|refusal| ConnectError::refused(Cause::Attach, refusal))?;
    if let Some(session) = backend.resident.take() {
        return Ok((backend, Ok(session)));
    }
    let mut startup = Startup {
        user: backend.role.clone(),
        database: route.database.clone(),
        parameters: request.parameters.clone(),
    };
    let target = Target { socket_dir: backend.socket_dir.clone(), port: backend.port };
    let mut session = connect(&target, &startup).await;
    if request.full_name != route.database && is_error(&session, NO_SUCH_DATABASE) {
        startup.database = request.full_name.clone();
        session = connect(&target, &startup).await.or(session);
    }
    Ok((backend, session))
}

fn is_error(session: &Result<RawSession, WireError>, sqlstate: &str) -> bool {
    let error = session.as_ref().err().and_then(WireError::server);
    error.is_some_and(|said| said.sqlstate == sqlstate)
}

async fn connect(target: &Target, startup: &Startup) -> Result<RawSession, WireError> {
    let session = Session::connect(&target.socket_dir, target.port, startup).await;
    session.and_then(Session::into_raw)
}

/// Converts an error of the branch's server, whose ErrorResponse is passed on unchanged.
fn backend_error(error: WireError) -> ConnectError {
    if let Some(server_error) = error.server() {
        tracing::info!(
            sqlstate = server_error.sqlstate,
            message = server_error.message,
            "the branch's server refused the session"
        );
        return ConnectError::Refused(Cause::Backend, BytesMut::from(&server_error.raw[..]));
    }
    let refusal = ConnectionRefusal::new("08006", redact_paths(&chain(&error)))
        .with_hint("check the branch with `egret branch list`, and its server's log");
    ConnectError::refused(Cause::Backend, refusal)
}

async fn run_session(
    context: &Arc<ProxyContext>,
    mut stream: ClientStream,
    opened: OpenSession,
    accepted_at: Instant,
    mut record: Option<SessionRecord>,
) {
    let OpenSession { backend, session, early_bytes: early, _permit } = opened;
    let target = Target { socket_dir: backend.socket_dir, port: backend.port };
    let key = session.key;
    let _cancel_key = context.cancel_keys.register(key, target);
    let greeting = reply::session_start(&session);
    let send_greeting = async {
        stream.write_all(&greeting).await?;
        stream.flush().await
    };
    if send_greeting.await.is_err() {
        if let Some(record) = &mut record {
            record.set_end_reason(Cause::ClientLeft.label());
        }
        return context.metrics.count_refused(Cause::ClientLeft);
    }
    let _session_guard = context.metrics.track_session(accepted_at.elapsed());
    tracing::debug!(pid = key.pid, "session opened");
    let streams = relay::RelayStreams {
        client: stream,
        early_bytes: early,
        backend: session.stream,
        leftover: session.leftover,
    };
    let limits = relay::RelayLimits {
        phase_receiver: context.shutdown_phase.subscribe(),
        closed: backend.closed,
        half_close_timeout: context.config.half_close_timeout.duration(),
    };
    let end = relay::run(streams, limits, &context.metrics).await;
    tracing::debug!(pid = key.pid, ?end, "session ended");
    if let Some(mut record) = record.take() {
        record.set_end_reason(end.label());
    }
    if end == RelayEnd::Abandoned {
        // Cancel the statement: its client is gone, and the backend would not notice before its
        // end.
        let cancelling = context.cancel_keys.forward_request(key);
        let _ = tokio::time::timeout(LAST_MESSAGE_TIMEOUT, cancelling).await;
    }
    drop(backend.guard);
}

/// Waits for `work` while reading from the client: bytes that arrive meanwhile are appended to
/// `early`, and `work` is dropped if the client disconnects.
async fn wait_buffering<T>(
    stream: &mut ClientStream,
    early_bytes: &mut BytesMut,
    work: impl Future<Output = T>,
) -> Result<T, ConnectError> {
    let mut work = pin!(work);
    loop {
        let capacity = EARLY_BYTES_MAX - early_bytes.len();
        let mut buffer = (&mut *early_bytes).limit(capacity);
        tokio::select! {
            biased;
            result = &mut work => return Ok(result),
            read = stream.read_buf(&mut buffer), if capacity > 0 => match read {
                Ok(0) => return Err(ConnectError::disconnected(io::ErrorKind::UnexpectedEof.into())),
                Ok(_) => {}
                Err(error) => return Err(ConnectError::disconnected(error)),
            },
        }
    }
}

/// The result, or `None` once the deadline has passed.
async fn run_before<T>(deadline: Instant, work: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout_at(deadline.into(), work).await.ok()
}

/// The result of `work`, or `None` once the proxy drains.
async fn run_unless_draining<T>(
    context: &ProxyContext,
    work: impl Future<Output = T>,
) -> Option<T> {
    let mut phase_receiver = context.shutdown_phase.subscribe();
    tokio::select! {
        result = work => Some(result),
        () = await_phase(&mut phase_receiver, ShutdownPhase::Draining) => None,
    }
}
