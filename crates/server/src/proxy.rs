//! The PostgreSQL proxy: one port for all branches.
//!
//! A client names its branch in the database (`app@pr-42`) and proves itself with SCRAM. The proxy
//! then opens a session on that branch's socket and copies bytes both ways, unchanged, so whatever
//! PostgreSQL's protocol can do works through it. What it needs to know of branches it asks of a
//! [`Directory`]; [`BranchDirectory`] is the engine's.
//!
//! One task serves one connection: [`client`] handles it from the first packet to the last,
//! [`negotiation`], [`route`] and [`authentication`] are its beginning, [`relay`] the rest.

mod authentication;
mod branches;
mod cancel_keys;
mod client;
mod config;
mod directory;
mod handshakes;
mod metrics;
mod negotiation;
mod relay;
mod reply;
mod route;

pub use branches::{BranchDirectory, database_name};
pub use config::ProxyConfig;
pub use directory::{Backend, ConnectionRefusal, Directory, Entry};
pub use route::Route;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use egret_base::lifecycle::{BoxFuture, Readiness, Service, StartError};
use egret_base::sync::lock;
use egret_base::{Clock, Condition, Entropy};
use prometheus_client::registry::Registry;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;
use tokio_util::task::TaskTracker;

use cancel_keys::CancelKeys;
use handshakes::Handshakes;
use metrics::{Cause, ProxyMetrics};

use crate::audit::{AuditLog, SessionAudit};

/// How long sessions get to send their last message once their time is up.
const LAST_MESSAGE_TIME: Duration = Duration::from_secs(1);

/// How long accepting pauses when the process has no file descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Connections that receive an error response at the same time: those beyond `proxy.handshakes_max`
/// or `proxy.connections_per_address_max`, and those that are evicted. Further ones are closed
/// without a message.
const REFUSALS_MAX: usize = 64;

/// Phase of the proxy's shutdown, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ShutdownPhase {
    Open,
    /// No new connections; idle sessions end, others may finish their transaction.
    Draining,
    Closing,
    /// Connections that are still open are dropped.
    Dropping,
}

/// What every connection shares.
struct ProxyContext {
    config: ProxyConfig,
    directory: Arc<dyn Directory>,
    tls: Option<TlsAcceptor>,
    entropy: Arc<dyn Entropy>,
    metrics: ProxyMetrics,
    /// `None` where no audit log is kept.
    audit: Option<SessionAudit>,
    cancel_keys: Arc<CancelKeys>,
    session_slots: Arc<Semaphore>,
    handshakes: Arc<Handshakes>,
    refusal_slots: Arc<Semaphore>,
    shutdown_phase: watch::Sender<ShutdownPhase>,
}

/// Dependencies of the proxy.
pub struct ProxyOptions {
    /// The settings of section `proxy`.
    pub config: ProxyConfig,
    /// Looks up branches and attaches sessions to them.
    pub directory: Arc<dyn Directory>,
    /// With it clients may (not must) encrypt; its ALPN list is replaced by PostgreSQL's.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// Where the time in the audit log comes from.
    pub clock: Arc<dyn Clock>,
    /// Where nonces and ids of sessions come from.
    pub entropy: Arc<dyn Entropy>,
    /// Where sessions are recorded.
    pub audit: Option<Arc<AuditLog>>,
}

/// The PostgreSQL proxy, a service with its own port.
pub struct Proxy {
    context: Arc<ProxyContext>,
    tasks: TaskTracker,
    address: Mutex<Option<SocketAddr>>,
}

impl Proxy {
    /// A proxy that is not started yet. Metrics go into `registry`.
    pub fn new(options: ProxyOptions, registry: &mut Registry) -> Self {
        let ProxyOptions { config, directory, tls, clock, entropy, audit } = options;
        let context = ProxyContext {
            audit: audit.map(|log| SessionAudit::new(log, clock, entropy.clone())),
            directory,
            tls: tls.map(negotiation::tls_acceptor),
            entropy,
            metrics: ProxyMetrics::register(registry),
            cancel_keys: Arc::default(),
            session_slots: Arc::new(Semaphore::new(config.sessions_max as usize)),
            handshakes: Handshakes::new(&config),
            refusal_slots: Arc::new(Semaphore::new(REFUSALS_MAX)),
            shutdown_phase: watch::Sender::new(ShutdownPhase::Open),
            config,
        };
        Self { context: Arc::new(context), tasks: TaskTracker::new(), address: Mutex::default() }
    }

    /// Where the proxy listens, once it has started; with the real port when 0 was asked for.
    pub fn address(&self) -> Option<SocketAddr> {
        *lock(&self.address)
    }

    async fn bind(&self) -> Result<(), StartError> {
        let start_error = |message| StartError { service: "proxy", is_fatal: true, message };
        let config = &self.context.config;
        let ip: IpAddr = config.address.parse().map_err(|_| {
            start_error(format!(
                "proxy.address: `{}` is not an IP address: write for example 127.0.0.1 or ::1",
                config.address
            ))
        })?;
        let requested_address = SocketAddr::new(ip, config.port);
        let bound = TcpListener::bind(requested_address).await;
        let listening = bound.and_then(|listener| Ok((listener.local_addr()?, listener)));
        let (address, listener) = listening.map_err(|error| {
            start_error(match error.kind() {
                io::ErrorKind::AddrInUse => format!(
                    "{requested_address} is in use by another program: stop it, or set proxy.port \
                     (EGRET_PROXY_PORT)"
                ),
                _ => format!(
                    "cannot listen on {requested_address}: {error}: check proxy.address and proxy.port"
                ),
            })
        })?;
        *lock(&self.address) = Some(address);
        if !ip.is_loopback() && self.context.tls.is_none() {
            tracing::warn!(%address, "the proxy is reachable from other machines without TLS");
        }
        tracing::info!(%address, "proxy listens");
        self.tasks.spawn(accept_connections(self.context.clone(), listener, self.tasks.clone()));
        Ok(())
    }

    async fn shut_down(&self) {
        self.tasks.close();
        let config = &self.context.config;
        let phase_timeouts = [
            (ShutdownPhase::Draining, config.stop_timeout.duration()),
            (ShutdownPhase::Closing, LAST_MESSAGE_TIME),
        ];
        for (phase, time) in phase_timeouts {
            self.context.shutdown_phase.send_replace(phase);
            if tokio::time::timeout(time, self.tasks.wait()).await.is_ok() {
                return;
            }
        }
        self.context.shutdown_phase.send_replace(ShutdownPhase::Dropping);
        self.tasks.wait().await;
    }
}

impl Service for Proxy {
    fn name(&self) -> &'static str {
        "proxy"
    }

    fn start(&self) -> BoxFuture<'_, Result<(), StartError>> {
        Box::pin(self.bind())
    }

    fn ready(&self) -> Readiness {
        if *self.context.shutdown_phase.borrow() != ShutdownPhase::Open {
            return Readiness::NotReady("the proxy is stopping".to_owned());
        }
        match self.address() {
            Some(_) => Readiness::Ready,
            None => Readiness::NotReady("the proxy has not started".to_owned()),
        }
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.shut_down())
    }
}

/// Waits until the shutdown has reached at least this phase.
async fn await_phase(phase_receiver: &mut watch::Receiver<ShutdownPhase>, phase: ShutdownPhase) {
    // The sender outlives every connection, so waiting cannot fail.
    let _ = phase_receiver.wait_for(|current| *current >= phase).await;
}

async fn accept_connections(context: Arc<ProxyContext>, listener: TcpListener, tasks: TaskTracker) {
    let mut phase_receiver = context.shutdown_phase.subscribe();
    let accept_condition = Condition::new("connections_not_accepted", "proxy");
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = await_phase(&mut phase_receiver, ShutdownPhase::Draining) => return,
        };
        match accepted {
            Ok((stream, peer)) => {
                accept_condition.recover("the proxy accepts connections again");
                spawn_connection(&context, stream, peer, &tasks);
            }
            Err(error) => {
                accept_condition.fail(&error, "the proxy cannot accept connections");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Starts the connection's task, or one that only refuses when too many are still unauthenticated.
fn spawn_connection(
    context: &Arc<ProxyContext>,
    stream: TcpStream,
    peer: SocketAddr,
    tasks: &TaskTracker,
) {
    let limit = match context.handshakes.register(peer.ip(), Instant::now()) {
        Ok(handshake) => {
            tasks.spawn(client::serve(context.clone(), stream, peer, handshake));
            return;
        }
        Err(limit) => limit,
    };
    let waiting = "connections waiting for authentication";
    let refusal = ConnectionRefusal::too_many(waiting, limit.setting, limit.max);
    context.metrics.count_refused(Cause::HandshakesMax);
    if let Ok(permit) = context.refusal_slots.clone().try_acquire_owned() {
        tasks.spawn(async move {
            client::send_last_message(stream, &reply::fatal_error(&refusal)).await;
            drop(permit);
        });
    }
}
