//! The port: accepts connections, speaks TLS where configured, and HTTP/1.1 or HTTP/2 on each.
//!
//! On a stop it accepts no more connections, lets requests in flight finish for a while, and then
//! closes what is left.

use std::convert::Infallible;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::response::IntoResponse;
use egret_base::Condition;
use http::Version;
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::config::ServerConfig;
use crate::error::{RequestError, ServerError};
use crate::forwarded::TrustedProxies;
use crate::metrics::Metrics;
use crate::outgoing_body::{OutgoingBody, StreamExecutor, TimedStream};
use crate::peer::{Peer, PeerKind, Peers};
use crate::problem::Problem;
use crate::tls::Certificates;

/// Connections beyond `connections_max` that still receive the reason of their refusal; further
/// ones are closed without a response.
const REFUSALS_MAX: usize = 64;

/// The least hyper takes as its buffer for a request's head.
const HEAD_BUFFER_MIN: usize = 8 << 10;

/// The default number of headers beyond which hyper responds by itself.
const HYPER_HEADERS_MAX: usize = 100;

/// The pause after a connection could not be accepted, for example for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Interval of pings to an HTTP/2 client that sends nothing.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(30);

/// How long an HTTP/2 client may take to answer a ping before its connection is closed.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// Resets before a request has been looked at, in multiples of the streams of a connection. A
/// client that cancels all its requests at once sends as many resets as it has streams, and then
/// opens new ones; h2's default of 20 would end its connection. A flood of resets costs no more
/// than that: their requests are never begun.
const PENDING_RESETS_PER_STREAM: usize = 2;

/// Everything needed to serve, before the port is taken.
pub(crate) struct Listener {
    config: ServerConfig,
    trusted_proxies: Arc<TrustedProxies>,
    router: Router,
    tls: Option<Certificates>,
    metrics: Arc<Metrics>,
}

/// A listener that is bound to its port.
pub(crate) struct BoundListener {
    socket: TcpListener,
    address: SocketAddr,
    shutdown_timeout: Duration,
    context: Arc<ConnectionContext>,
    connection_slots: Arc<Semaphore>,
    refusal_slots: Arc<Semaphore>,
    peers: Arc<Peers>,
    accept_condition: Condition,
}

/// What every connection's task needs.
struct ConnectionContext {
    router: Router,
    refusal_router: Router,
    tls: Option<Certificates>,
    metrics: Arc<Metrics>,
    config: ServerConfig,
    trusted_proxies: Arc<TrustedProxies>,
    header_timeout: Duration,
}

impl Listener {
    pub(crate) fn new(
        config: ServerConfig,
        router: Router,
        tls: Option<Certificates>,
        metrics: Arc<Metrics>,
    ) -> Result<Self, ServerError> {
        Ok(Self {
            trusted_proxies: Arc::new(config.trusted_proxies()?),
            config,
            router,
            tls,
            metrics,
        })
    }

    /// Takes the port.
    ///
    /// # Errors
    /// [`ServerError::PortTaken`] or [`ServerError::Listen`].
    pub(crate) async fn bind(self, address: SocketAddr) -> Result<BoundListener, ServerError> {
        let socket = TcpListener::bind(address).await.map_err(|source| match source.kind() {
            ErrorKind::AddrInUse => ServerError::PortTaken { address },
            _ => ServerError::Listen { address, source },
        })?;
        let address =
            socket.local_addr().map_err(|source| ServerError::Listen { address, source })?;
        let connections_max = self.config.connections_max;
        Ok(BoundListener {
            socket,
            address,
            shutdown_timeout: self.config.shutdown_timeout.duration(),
            connection_slots: Arc::new(Semaphore::new(connections_max as usize)),
            refusal_slots: Arc::new(Semaphore::new(REFUSALS_MAX)),
            peers: Peers::new(&self.config),
            accept_condition: Condition::new("connections_not_accepted", "server"),
            context: Arc::new(ConnectionContext {
                router: self.router,
                refusal_router: refusal_router(u64::from(connections_max)),
                tls: self.tls,
                metrics: self.metrics,
                trusted_proxies: self.trusted_proxies,
                header_timeout: self.config.header_timeout.duration(),
                config: self.config,
            }),
        })
    }
}

impl BoundListener {
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stopping`, then lets what is in flight finish.
    pub(crate) async fn run(self, stopping: CancellationToken) {
        let graceful = GracefulShutdown::new();
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                () = stopping.cancelled() => break,
                accepted = self.socket.accept() => match accepted {
                    Ok((stream, address)) => {
                        self.accept_condition.recover("the server accepts connections again");
                        let client = Client { stream, address };
                        self.spawn_connection(client, &mut connections, graceful.watcher());
                    }
                    Err(error) => self.handle_accept_error(&error).await,
                },
                // Reaped as they end, so that the set holds open connections only.
                Some(_) = connections.join_next() => {}
            }
        }
        drop(self.socket);
        tokio::select! {
            () = graceful.shutdown() => {}
            () = tokio::time::sleep(self.shutdown_timeout) => {
                tracing::warn!(
                    connections = connections.len(),
                    "server.shutdown_timeout has passed: closing connections with requests in flight"
                );
            }
        }
        connections.shutdown().await;
    }

    fn spawn_connection(&self, client: Client, connections: &mut JoinSet<()>, watcher: Watcher) {
        let context = self.context.clone();
        let limit = "server.connections_max";
        let (address, kind) = (client.address.ip(), context.peer_kind(client.address));
        if let Ok(slot) = self.connection_slots.clone().try_acquire_owned() {
            let peer = self.peers.register(address, kind);
            connections.spawn(async move {
                context.serve(client, watcher, peer).await;
                drop(slot);
            });
        } else if let Some(peer) = self.peers.register_by_eviction(address, kind) {
            context.metrics.count_refusal(limit);
            // The evicted connection ends at once, and its slot is free then.
            let acquire_slot = self.connection_slots.clone().acquire_owned();
            connections.spawn(async move {
                let freed = tokio::time::timeout(context.header_timeout, acquire_slot);
                let acquired = tokio::select! {
                    freed = freed => freed,
                    () = peer.await_eviction() => return,
                };
                if let Ok(Ok(slot)) = acquired {
                    context.serve(client, watcher, peer).await;
                    drop(slot);
                }
            });
        } else if let Ok(slot) = self.refusal_slots.clone().try_acquire_owned() {
            context.metrics.count_refusal(limit);
            connections.spawn(async move {
                context.refuse(client, watcher).await;
                drop(slot);
            });
        }
    }

    async fn handle_accept_error(&self, error: &std::io::Error) {
        // These concern one connection that is gone already.
        let harmless_kinds =
            [ErrorKind::ConnectionAborted, ErrorKind::ConnectionReset, ErrorKind::Interrupted];
        if !harmless_kinds.contains(&error.kind()) {
            let message = "cannot accept connections: is the limit on open files too low?";
            self.accept_condition.fail(error, message);
            tokio::time::sleep(ACCEPT_PAUSE).await;
        }
    }
}

/// A connection that was accepted.
struct Client {
    stream: TcpStream,
    address: SocketAddr,
}

impl ConnectionContext {
    /// Whether connections from an address are a trusted proxy's or a client's.
    fn peer_kind(&self, address: SocketAddr) -> PeerKind {
        if self.trusted_proxies.contains(address.ip()) { PeerKind::Proxy } else { PeerKind::Client }
    }

    /// Serves a connection until it ends or must make room for another.
    async fn serve(&self, client: Client, watcher: Watcher, peer: Arc<Peer>) {
        let _open = self.metrics.track_connection();
        let watched_peer = peer.clone();
        tokio::select! {
            () = self.handle_connection(client, watcher, &self.router, Some(peer)) => {}
            () = watched_peer.await_eviction() => {
                tracing::debug!("a connection without a token was closed to make room for another");
            }
        }
    }

    /// Responds to a connection beyond the limit, within the time allowed for a request head.
    async fn refuse(&self, client: Client, watcher: Watcher) {
        let response = self.handle_connection(client, watcher, &self.refusal_router, None);
        // Ignore the result: the connection is closed in either case.
        let _ = tokio::time::timeout(self.header_timeout, response).await;
    }

    async fn handle_connection(
        &self,
        client: Client,
        watcher: Watcher,
        router: &Router,
        peer: Option<Arc<Peer>>,
    ) {
        // A response is one small write; waiting for more to send would only delay it. A client
        // that has vanished while it waits for an answer is noticed by the kernel.
        let prepared = client
            .stream
            .set_nodelay(true)
            .and_then(|()| Ok(rustix::net::sockopt::set_socket_keepalive(&client.stream, true)?));
        if let Err(error) = prepared {
            tracing::debug!(%error, "a connection was closed before it could be prepared");
            return;
        }
        let stream = TimedStream::new(client.stream, self.config.pace_limit());
        let address = client.address;
        let Some(certificates) = &self.tls else {
            return self.serve_http(stream, address, peer, watcher, router).await;
        };
        let tls = TlsAcceptor::from(certificates.api_config());
        match tokio::time::timeout(self.header_timeout, tls.accept(stream)).await {
            Ok(Ok(stream)) => self.serve_http(stream, address, peer, watcher, router).await,
            Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
            Err(_) => tracing::debug!("a TLS handshake took longer than server.header_timeout"),
        }
    }

    async fn serve_http<S>(
        &self,
        stream: S,
        address: SocketAddr,
        peer: Option<Arc<Peer>>,
        watcher: Watcher,
        router: &Router,
    ) where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let first_request = CancellationToken::new();
        let on_first_request = first_request.clone();
        let executor = StreamExecutor::new(self.config.pace_limit());
        let streams = executor.clone();
        let router = TowerToHyperService::new(router.clone());
        let trusted_proxies = self.trusted_proxies.clone();
        let service = service_fn(move |mut request: http::Request<Incoming>| {
            if !on_first_request.is_cancelled() {
                on_first_request.cancel();
            }
            let client = trusted_proxies.client_address(address.ip(), request.headers());
            request.extensions_mut().insert(client);
            if let Some(peer) = &peer {
                request.extensions_mut().insert(peer.clone());
            }
            let is_http2 = request.version() == Version::HTTP_2;
            let progress = is_http2.then(|| streams.announce());
            let response = router.call(request);
            async move {
                let response = response.await?;
                Ok::<_, Infallible>(response.map(|body| OutgoingBody::new(body, progress)))
            }
        });
        let protocol = protocol_builder(&self.config, executor);
        let connection = protocol.serve_connection(TokioIo::new(stream), service);
        tokio::select! {
            // Protocol errors have already been reported to the client on the wire.
            result = watcher.watch(connection) => if let Err(error) = result {
                tracing::debug!(error, "a connection ended early");
            },
            // hyper applies its timeout for heads only once it knows the HTTP version.
            () = await_first_request_timeout(first_request, self.header_timeout) => {
                tracing::debug!("a connection sent no request within server.header_timeout");
            }
        }
    }
}

/// Completes when no request has arrived within `limit`; never completes otherwise.
async fn await_first_request_timeout(first_request: CancellationToken, limit: Duration) {
    if tokio::time::timeout(limit, first_request.cancelled()).await.is_ok() {
        std::future::pending::<()>().await;
    }
}

/// Both HTTP versions, with hyper's own limits a step above ours: ours answer with a problem.
fn protocol_builder(
    config: &ServerConfig,
    executor: StreamExecutor,
) -> auto::Builder<StreamExecutor> {
    let head_max = usize::try_from(config.header_bytes_max.bytes()).unwrap_or(usize::MAX);
    let head_buffer = head_max.saturating_mul(2).max(HEAD_BUFFER_MIN);
    let mut builder = auto::Builder::new(executor);
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(config.header_timeout.duration())
        .max_buf_size(head_buffer);
    let headers_max = config.headers_max as usize;
    if headers_max >= HYPER_HEADERS_MAX {
        builder.http1().max_headers(headers_max.saturating_mul(2));
    }
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        .max_pending_accept_reset_streams(
            config.http2_streams_max as usize * PENDING_RESETS_PER_STREAM,
        )
        .max_concurrent_streams(config.http2_streams_max)
        .max_header_list_size(u32::try_from(head_buffer).unwrap_or(u32::MAX));
    builder
}

/// The router that refuses requests on connections beyond the limit.
fn refusal_router(connections_max: u64) -> Router {
    Router::new().fallback(move || async move {
        let problem = Problem::from(RequestError::Busy {
            limit: "server.connections_max",
            max: connections_max,
        });
        ([(http::header::CONNECTION, "close")], problem).into_response()
    })
}
