//! The server: wired by the binary, started and stopped as a service.

mod entrance;
mod upkeep;

use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::middleware::from_fn_with_state;
use egret_base::lifecycle::{BoxFuture, FailedPart, Readiness, Service, StartError};
use egret_base::{Clock, Entropy, Timestamp};
use http::Method;
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use utoipa_axum::router::OpenApiRouter;

use self::entrance::{Entrance, FailedServices, enter};
use self::upkeep::{end_expired_tokens, write_last_used};
use crate::access::{Gate, Requirement};
use crate::admit::{Admission, Routes};
use crate::audit::AuditLog;
use crate::config::ServerConfig;
use crate::error::ServerError;
use crate::grpc::GrpcService;
use crate::listener::Listener;
use crate::metrics::Metrics;
use crate::observe::Observer;
use crate::oidc::{Oidc, OidcOptions};
use crate::openapi::Document;
use crate::quota::{Quotas, ServerLimits};
use crate::tls::Certificates;
use crate::tokens::Tokens;
use crate::{grpc, http as routes};

/// The service's name in `/readyz` and the logs.
const NAME: &str = "server";

/// Tells how the other services are; usually [`egret_base::lifecycle::Stack::readiness`] of a copy
/// of the stack taken before the server was pushed onto it.
pub type ReadinessProbe = Arc<dyn Fn() -> Vec<(&'static str, Readiness)> + Send + Sync>;

/// Tells what does not work; usually [`egret_base::lifecycle::Stack::failed_parts`] of the same copy.
pub type FailedParts = Arc<dyn Fn() -> Vec<FailedPart> + Send + Sync>;

/// Tells one section of `/v1/status`.
pub type StatusSection = Arc<dyn Fn() -> BoxFuture<'static, Value> + Send + Sync>;

/// What the program was built from.
#[derive(Clone, Copy, Debug)]
pub struct Build {
    /// The program's version.
    pub version: &'static str,
    /// The git commit, with `+dirty` behind it for a changed tree; `unknown` outside a checkout.
    pub commit: &'static str,
    /// `release`, `dev` or the name of another build profile.
    pub profile: &'static str,
}

/// What the server stands on.
pub struct Deps {
    /// What the program was built from.
    pub build: Build,
    /// Where the time comes from.
    pub clock: Arc<dyn Clock>,
    /// Where request ids come from.
    pub entropy: Arc<dyn Entropy>,
    /// The token store.
    pub tokens: Arc<Tokens>,
    /// The program's metrics.
    pub metrics: Arc<Metrics>,
    /// How the other services are.
    pub readiness: ReadinessProbe,
}

/// What the server's own handlers hold.
pub(crate) struct Doors {
    pub(crate) build: Build,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) started_at: Timestamp,
    pub(crate) tokens: Arc<Tokens>,
    /// `None` where tokens of Egret's own are the only ones.
    oidc: Option<Arc<Oidc>>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) sections: BTreeMap<&'static str, StatusSection>,
    pub(crate) profile_duration_max: Duration,
    /// `None` where no audit log is kept.
    pub(crate) audit: Option<Arc<AuditLog>>,
    pub(crate) failed_parts: FailedParts,
    others: ReadinessProbe,
    quotas: Arc<Quotas>,
    open: AtomicBool,
}

impl Doors {
    /// Every service with its readiness, the server last, as it is started.
    pub(crate) fn readiness(&self) -> Vec<(&'static str, Readiness)> {
        let mut readiness = (self.others)();
        readiness.push((NAME, self.own_readiness()));
        readiness
    }

    fn own_readiness(&self) -> Readiness {
        if !self.open.load(Ordering::Acquire) {
            return Readiness::NotReady("the server is not open".to_owned());
        }
        match self.quotas.exhausted() {
            Some((limit, max)) => Readiness::NotReady(format!(
                "{limit} is {max} and as much is in progress: further requests are refused"
            )),
            None => Readiness::Ready,
        }
    }
}

/// Puts a server together: `Server::builder(config, deps).route(…).status(…).build()?`.
pub struct Builder {
    stopping: CancellationToken,
    config: ServerConfig,
    deps: Deps,
    engines: OpenApiRouter,
    grpc: Vec<GrpcService>,
    sections: BTreeMap<&'static str, StatusSection>,
    failed: FailedServices,
    failed_parts: FailedParts,
    certificates: Option<Certificates>,
    audit: Option<Arc<AuditLog>>,
    oidc: Option<OidcOptions>,
}

impl Builder {
    /// Accepts the tokens of an OpenID Connect provider beside Egret's own, where the settings name one.
    pub fn oidc(mut self, options: OidcOptions) -> Self {
        self.oidc = Some(options);
        self
    }

    /// Records changes and refused attempts in an audit log.
    pub fn audit(mut self, log: Option<Arc<AuditLog>>) -> Self {
        self.audit = log;
        self
    }

    /// Shows a certificate that others can read again, instead of reading the files by itself.
    pub fn certificates(mut self, certificates: Option<Certificates>) -> Self {
        self.certificates = certificates;
        self
    }

    /// Adds an engine's routes. Each operation's documentation says what its caller needs.
    pub fn route(mut self, routes: OpenApiRouter) -> Self {
        self.engines = self.engines.merge(routes);
        self
    }

    /// Cancelled when the server stops: what lasts as long as its client wants must end then.
    pub fn stopping(&self) -> CancellationToken {
        self.stopping.clone()
    }

    /// Adds an engine's gRPC service.
    pub fn grpc(mut self, service: GrpcService) -> Self {
        self.grpc.push(service);
        self
    }

    /// Adds a section to `/v1/status`.
    pub fn status(mut self, name: &'static str, section: StatusSection) -> Self {
        self.sections.insert(name, section);
        self
    }

    /// Checks everything that can be checked before the start.
    ///
    /// # Errors
    /// [`ServerError`] when a setting cannot be used or a route asks for an unknown scope.
    pub fn build(self) -> Result<Server, ServerError> {
        self.config.check()?;
        let address = self.config.socket_address()?;
        let tls = match &self.certificates {
            Some(certificates) => Some(certificates.clone()),
            None => Certificates::open(&self.config)?,
        };
        if tls.is_none() && !address.ip().is_loopback() {
            tracing::warn!(%address, "tokens will cross the network unencrypted: set server.tls_certificate and server.tls_key");
        }
        let deps = self.deps;
        let audit = self.audit;
        let oidc = match self.oidc {
            Some(options) => {
                let (tokens, clock) = (deps.tokens.clone(), deps.clock.clone());
                Oidc::open(options, tokens, clock, &deps.metrics)?.map(Arc::new)
            }
            None => None,
        };
        let quotas = Quotas::new(&self.config);
        deps.metrics.observe_quotas(quotas.clone());
        let doors = Arc::new(Doors {
            build: deps.build,
            started_at: deps.clock.now(),
            clock: deps.clock.clone(),
            tokens: deps.tokens.clone(),
            oidc,
            metrics: deps.metrics.clone(),
            sections: self.sections,
            profile_duration_max: self.config.profile_duration_max.duration(),
            audit: audit.clone(),
            failed_parts: self.failed_parts,
            others: deps.readiness,
            quotas,
            open: AtomicBool::new(false),
        });
        let observer = Observer::new(
            deps.clock,
            &*deps.entropy,
            deps.metrics,
            self.config.access_log,
            audit,
        );
        let stopping = self.stopping;
        let collected = routes::own_routes(doors.clone()).merge(self.engines);
        let services = Services {
            failed: self.failed,
            grpc: self.grpc,
            stopping: stopping.clone(),
        };
        let router = layered(collected, services, &self.config, &doors, observer)?;
        Ok(Server {
            listener: Mutex::new(Some(Listener::new(
                self.config,
                router,
                tls,
                doors.metrics.clone(),
            )?)),
            doors,
            address,
            stopping,
            running: Mutex::new(None),
        })
    }
}

/// What answers gRPC.
struct Services {
    failed: FailedServices,
    grpc: Vec<GrpcService>,
    stopping: CancellationToken,
}

/// The router with its documentation's pages, its fallback and what stands before every handler.
fn layered(
    collected: OpenApiRouter,
    services: Services,
    config: &ServerConfig,
    doors: &Arc<Doors>,
    observer: Observer,
) -> Result<Router, ServerError> {
    let (router, api) = collected.split_for_parts();
    let Document {
        json,
        mut requirements,
        lasting,
        piecemeal,
    } = Document::complete(&api, doors.build.version, &doors.tokens)?;
    for path in routes::DOCS_ASSETS {
        requirements.insert(path, Method::GET, "", Requirement::Public);
    }
    requirements.insert(grpc::HEALTH_ROUTE, Method::POST, "", Requirement::Public);
    let mut lasting: HashSet<String> = lasting.into_iter().collect();
    let mut piecemeal: HashSet<String> = piecemeal.into_iter().collect();
    piecemeal.insert(grpc::HEALTH_ROUTE.to_owned());
    let mut calls = grpc::health(doors.clone(), services.stopping);
    for service in services.grpc {
        for (path, scopes) in service.scopes {
            piecemeal.insert(path.clone());
            let id = path.rsplit('/').next().unwrap_or_default();
            requirements.insert(&path, Method::POST, id, Requirement::any_of(scopes));
        }
        calls = calls.merge(service.router);
        lasting.extend(service.lasting);
    }
    let known = requirements.documented_paths();
    let gate = Gate {
        tokens: doors.tokens.clone(),
        oidc: doors.oidc.clone(),
        requirements,
        time: doors.metrics.component("server.authorize"),
    };
    Ok(router
        .merge(routes::docs_routes(json))
        .merge(calls)
        .fallback_service(routes::not_found(known))
        .layer(from_fn_with_state(
            Arc::new(Entrance {
                observer: Arc::new(observer),
                admission: Admission::new(
                    config,
                    Routes { lasting, piecemeal },
                    doors.quotas.clone(),
                    doors.metrics.clone(),
                ),
                gate,
                failed: services.failed,
            }),
            enter,
        )))
}

/// The HTTP and gRPC door.
pub struct Server {
    doors: Arc<Doors>,
    address: SocketAddr,
    listener: Mutex<Option<Listener>>,
    stopping: CancellationToken,
    running: Mutex<Option<Running>>,
}

struct Running {
    address: SocketAddr,
    tasks: Vec<JoinHandle<()>>,
}

impl Server {
    /// Begins to put a server together.
    pub fn builder(config: ServerConfig, deps: Deps) -> Builder {
        Builder {
            stopping: CancellationToken::new(),
            config,
            deps,
            engines: OpenApiRouter::default(),
            grpc: Vec::new(),
            sections: BTreeMap::new(),
            failed: FailedServices::default(),
            failed_parts: Arc::new(Vec::new),
            certificates: None,
            audit: None,
            oidc: None,
        }
    }

    /// Its limits, to change them while it runs.
    pub fn limits(&self) -> ServerLimits {
        ServerLimits(self.doors.quotas.clone())
    }

    /// What verifies the tokens of an OpenID Connect provider; `None` where the settings name none.
    pub fn oidc(&self) -> Option<Arc<Oidc>> {
        self.doors.oidc.clone()
    }

    /// Where the server listens; `None` unless it is started. With port 0 the port is known here.
    pub fn local_address(&self) -> Option<SocketAddr> {
        lock(&self.running).as_ref().map(|running| running.address)
    }

    async fn open(&self) -> Result<(), ServerError> {
        let Some(listener) = lock(&self.listener).take() else {
            return Err(ServerError::Setting {
                setting: "server",
                message: "it was started before: build a new one".to_owned(),
            });
        };
        let bound = listener.bind(self.address).await?;
        let address = bound.address();
        let accepting = tokio::spawn(bound.run(self.stopping.clone()));
        let writing = tokio::spawn(write_last_used(
            self.doors.tokens.clone(),
            self.stopping.clone(),
        ));
        let ending = tokio::spawn(end_expired_tokens(
            self.doors.tokens.clone(),
            self.stopping.clone(),
        ));
        let mut tasks = vec![accepting, writing, ending];
        if let Some(oidc) = &self.doors.oidc {
            tasks.push(tokio::spawn(oidc.clone().run(self.stopping.clone())));
        }
        *lock(&self.running) = Some(Running { address, tasks });
        self.doors.open.store(true, Ordering::Release);
        tracing::info!(%address, "server is open");
        Ok(())
    }
}

impl Service for Server {
    fn name(&self) -> &'static str {
        NAME
    }

    fn start(&self) -> BoxFuture<'_, Result<(), StartError>> {
        Box::pin(async move {
            self.open().await.map_err(|error| StartError {
                service: NAME,
                is_fatal: true,
                message: error.to_string(),
            })
        })
    }

    fn ready(&self) -> Readiness {
        self.doors.own_readiness()
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.doors.open.store(false, Ordering::Release);
            self.stopping.cancel();
            let running = lock(&self.running).take();
            for task in running.into_iter().flat_map(|running| running.tasks) {
                if let Err(error) = task.await {
                    tracing::error!(%error, "a task of the server failed");
                }
            }
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // What is held is replaced whole, so a panic elsewhere leaves it sound.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
