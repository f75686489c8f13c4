//! One client, from its first packet to its last.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use egret_base::error::chain;
use egret_branches::{Attempts, SessionFailure};
use egret_postgres::wire::{FirstPacket, RawSession, Session, Startup, StartupPacket, WireError};
use futures_util::FutureExt;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tracing::Instrument;

use super::authentication::{Claimant, authenticate, unless_evicted};
use super::branches::tenant_and_branch;
use super::cancels::Target;
use super::directory::{Backend, Entry, NO_SUCH_DATABASE, Refusal};
use super::handshakes::Handshake;
use super::metrics::Cause;
use super::negotiation::{ClientStream, negotiate};
use super::relay::{self, End};
use super::route::Wish;
use super::{Ending, Shared, reached, reply};
use crate::audit::{SessionAttempt, SessionRecord, SessionRefusal};
use crate::problem::redact_paths;

/// How long a client that was turned away gets to read why before its connection is closed.
const FAREWELL_TIME: Duration = Duration::from_secs(1);

/// How much a client may send before its session is ready, in bytes.
const EARLY_BYTES_MAX: usize = 8 << 10;

/// Why a connection ends before it is a session.
pub(super) enum Stop {
    /// The client is told, in an ErrorResponse.
    Told(Cause, BytesMut),
    /// There is nobody left to be told.
    Left(io::Error),
}

impl Stop {
    pub(super) fn refused(cause: Cause, refusal: Refusal) -> Self {
        tracing::info!(
            ?cause,
            sqlstate = refusal.sqlstate,
            message = refusal.message,
            "refused"
        );
        Stop::Told(cause, reply::fatal(&refusal))
    }

    pub(super) fn left(error: io::Error) -> Self {
        Stop::Left(error)
    }
}

/// A session that is ready for its client.
struct Opened {
    backend: Backend,
    session: RawSession,
    early: Bytes,
    _permit: OwnedSemaphorePermit,
}

/// Serves a connection to its end. `handshake` is given back once the client is authenticated.
pub(super) async fn serve(
    shared: Arc<Shared>,
    tcp: TcpStream,
    peer: SocketAddr,
    handshake: Handshake,
) {
    let mut ending = shared.ending.subscribe();
    let span = tracing::info_span!("proxy", %peer);
    tokio::select! {
        () = converse(&shared, tcp, peer, handshake).instrument(span) => {}
        () = reached(&mut ending, Ending::Dropping) => {}
    }
}

async fn converse(shared: &Arc<Shared>, tcp: TcpStream, peer: SocketAddr, handshake: Handshake) {
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
        // As in PostgreSQL, who has not even said what it wants is told nothing.
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
            let entrance = Entrance {
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
        Err((cause, refusal)) => Err(Stop::refused(cause, refusal)),
    };
    match opened {
        Ok(opened) => {
            let record = record_opening(shared, attempt);
            run_session(shared, stream, opened, accepted, record).await;
        }
        Err(Stop::Left(error)) => {
            tracing::debug!(%error, "the client left before its session was ready");
            shared.metrics.refused(Cause::ClientLeft);
        }
        Err(Stop::Told(cause, message)) => {
            shared.metrics.refused(cause);
            record_refusal(shared, attempt, cause);
            turn_away(shared, stream, cause, &message).await;
        }
    }
}

/// Records in the audit log that a session is open.
fn record_opening(shared: &Shared, attempt: Option<SessionAttempt>) -> Option<SessionRecord> {
    let (attempt, audit) = attempt.zip(shared.audit.as_ref())?;
    audit.opened(&attempt)
}

/// Records in the audit log that a session was refused. Without a role and a branch there is none that was asked for.
fn record_refusal(shared: &Shared, attempt: Option<SessionAttempt>, cause: Cause) {
    if let (Some(attempt), Some(audit)) = (attempt, &shared.audit) {
        let refusal = SessionRefusal {
            status: cause.http_status(),
            reason: cause.label(),
        };
        audit.refused(&attempt, refusal);
    }
}

/// Tells a client why it gets no session.
async fn turn_away(shared: &Shared, stream: ClientStream, cause: Cause, message: &[u8]) {
    // As many may be closed for others' sake as there are clients that come: few at a time are told.
    let permit = (cause == Cause::HandshakesMax).then(|| shared.refusing.try_acquire());
    if !matches!(permit, Some(Err(_))) {
        send_farewell(stream, message).await;
    }
}

/// A connection until it is a session.
struct Entrance<'a> {
    peer: SocketAddr,
    /// Until when the client must have proved its password.
    deadline: Instant,
    handshake: Handshake,
    /// What the client asks for, once it is known; for the audit log.
    attempt: &'a mut Option<SessionAttempt>,
}

/// From the startup packet to a session of the branch's server.
async fn open_session(
    shared: &Arc<Shared>,
    stream: &mut ClientStream,
    packet: StartupPacket,
    entrance: Entrance<'_>,
) -> Result<Opened, Stop> {
    let Entrance {
        peer,
        deadline,
        handshake,
        attempt,
    } = entrance;
    let opening = async {
        if packet.minor > 0 || !packet.protocol_options.is_empty() {
            let reply = reply::negotiate_version(&packet.protocol_options);
            stream.write_all(&reply).await.map_err(Stop::left)?;
        }
        let wish = Wish::read(packet.parameters)
            .map_err(|refusal| Stop::refused(Cause::Route, refusal))?;
        let attempt = attempt.insert(attempt_of(&wish, peer));
        let entering = enter(shared, stream, &wish, &handshake);
        let evicted = handshake.evicted();
        let entry = before(deadline, unless_evicted(&evicted, entering)).await;
        let entry = entry.unwrap_or_else(|| {
            let refusal = Refusal::new("57014", "canceling authentication due to timeout");
            Err(Stop::refused(Cause::AuthenticationTimeout, refusal))
        })?;
        drop(handshake);
        attempt.is_authenticated = true;
        let max = shared.config.sessions_max;
        let permit = shared.sessions.clone().try_acquire_owned().map_err(|_| {
            let refusal = Refusal::too_many("sessions", "sessions_max", max);
            Stop::refused(Cause::SessionsMax, refusal)
        })?;
        let mut early = BytesMut::new();
        let (backend, session) = attend(stream, &mut early, attach(shared, wish, entry)).await??;
        Ok(Opened {
            backend,
            session,
            early: early.freeze(),
            _permit: permit,
        })
    };
    unless_ending(shared, opening).await.unwrap_or_else(|| {
        let refusal = Refusal::new("57P03", "the database system is shutting down");
        Err(Stop::refused(Cause::Stopping, refusal))
    })
}

/// What a client asks for, for the audit log.
fn attempt_of(wish: &Wish, peer: SocketAddr) -> SessionAttempt {
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

/// Lets the client in, if it is who it says; returns where it may go.
async fn enter(
    shared: &Shared,
    stream: &mut ClientStream,
    wish: &Wish,
    handshake: &Handshake,
) -> Result<Entry, Stop> {
    let refuse = |refusal| Stop::refused(Cause::Lookup, refusal);
    // Made for everybody, so that it takes the same time.
    let decoy = shared.directory.decoy(&wish.route);
    let lookup = shared.directory.lookup(&wish.user, &wish.route);
    let found = match (lookup.await, &decoy) {
        (Err(refusal), Some(_)) if refusal.sqlstate == NO_SUCH_DATABASE => Err(refusal),
        (found, _) => Ok(found.map_err(refuse)?),
    };
    let decoy = decoy.ok_or_else(|| {
        let refusal = Refusal::new("57P03", "the branches are not ready yet");
        refuse(refusal.with_hint("try again in a moment"))
    })?;
    let entropy = shared.entropy.as_ref();
    let claimant = Claimant {
        stream,
        user: &wish.user,
        handshake,
    };
    authenticate(claimant, found.as_ref().ok(), decoy, entropy).await?;
    // No password fits a decoy: this is where the exchange has passed, and so there is an entry.
    found.map_err(refuse)
}

/// Wakes the branch and opens a session on its server with the client's own settings.
async fn attach(shared: &Shared, wish: Wish, entry: Entry) -> Result<(Backend, RawSession), Stop> {
    let attaching = async {
        let mut attempts = Attempts::default();
        loop {
            let (mut backend, session) = open_backend(shared, &wish, &entry).await?;
            // A session of a server that was stopped meanwhile ends before its client has had anything of it.
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
            Err(Stop::refused(Cause::Attach, Refusal::new("57P03", message)))
        }
    }
}

/// The branch's server with a session on it, or with the reason why it gave none.
async fn open_backend(
    shared: &Shared,
    wish: &Wish,
    entry: &Entry,
) -> Result<(Backend, Result<RawSession, WireError>), Stop> {
    let route = &wish.route;
    let backend = shared
        .directory
        .attach(route, entry, &wish.parameters)
        .await;
    let mut backend = backend.map_err(|refusal| Stop::refused(Cause::Attach, refusal))?;
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

/// What the branch's server says is passed on word for word.
fn backend_refused(error: WireError) -> Stop {
    if let Some(said) = error.server() {
        tracing::info!(
            sqlstate = said.sqlstate,
            message = said.message,
            "the branch refused"
        );
        return Stop::Told(Cause::Backend, BytesMut::from(&said.raw[..]));
    }
    let refusal = Refusal::new("08006", redact_paths(&chain(&error)))
        .with_hint("look at the branch with `egret branch list`, and at its server's log");
    Stop::refused(Cause::Backend, refusal)
}

async fn run_session(
    shared: &Arc<Shared>,
    mut stream: ClientStream,
    opened: Opened,
    accepted: Instant,
    mut record: Option<SessionRecord>,
) {
    let Opened {
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
    let ends = relay::Ends {
        client: stream,
        early,
        backend: session.stream,
        leftover: session.leftover,
    };
    let until = relay::Until {
        ending: shared.ending.subscribe(),
        closed: backend.closed,
        half_close: shared.config.half_close_timeout.duration(),
    };
    let end = relay::run(ends, until, &shared.metrics).await;
    tracing::debug!(pid = key.pid, ?end, "session ended");
    if let Some(mut record) = record.take() {
        record.note_end(end.label());
    }
    if end == End::Abandoned {
        // Nobody waits for the statement any more, and the backend would not notice until its end.
        let cancelling = shared.cancels.forward(key);
        let _ = tokio::time::timeout(FAREWELL_TIME, cancelling).await;
    }
    drop(backend.guard);
}

/// Waits for `work` while the client waits too: what it sends meanwhile is kept, and when it
/// leaves, `work` is dropped.
async fn attend<T>(
    stream: &mut ClientStream,
    early: &mut BytesMut,
    work: impl Future<Output = T>,
) -> Result<T, Stop> {
    let mut work = pin!(work);
    loop {
        let room = EARLY_BYTES_MAX - early.len();
        let mut buffer = (&mut *early).limit(room);
        tokio::select! {
            biased;
            done = &mut work => return Ok(done),
            read = stream.read_buf(&mut buffer), if room > 0 => match read {
                Ok(0) => return Err(Stop::left(io::ErrorKind::UnexpectedEof.into())),
                Ok(_) => {}
                Err(error) => return Err(Stop::left(error)),
            },
        }
    }
}

/// The result, or `None` once the deadline has passed.
async fn before<T>(deadline: Instant, work: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout_at(deadline.into(), work).await.ok()
}

/// The result, or `None` once the proxy lets nobody new in.
async fn unless_ending<T>(shared: &Shared, work: impl Future<Output = T>) -> Option<T> {
    let mut ending = shared.ending.subscribe();
    tokio::select! {
        done = work => Some(done),
        () = reached(&mut ending, Ending::Draining) => None,
    }
}

/// Sends a last message and closes so that it arrives: a socket closed with unread bytes is reset,
/// and a reset throws away what the client has not read yet.
pub(super) async fn send_farewell<S>(mut stream: S, message: &[u8])
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let farewell = async {
        stream.write_all(message).await?;
        stream.shutdown().await?;
        let mut sink = [0; 1024];
        while stream.read(&mut sink).await? > 0 {}
        io::Result::Ok(())
    };
    // The client may be gone, and need not be waited for long: it was told what there is to tell.
    let _ = tokio::time::timeout(FAREWELL_TIME, farewell).await;
}

/// Small messages go out at once, and clients that vanished are noticed in the end.
fn prepare_socket(tcp: &TcpStream) {
    let prepared = tcp
        .set_nodelay(true)
        .and_then(|()| Ok(rustix::net::sockopt::set_socket_keepalive(tcp, true)?));
    if let Err(error) = prepared {
        tracing::debug!(%error, "a client's socket could not be tuned");
    }
}
