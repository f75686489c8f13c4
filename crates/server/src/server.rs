//! The server: wired by the binary, started and stopped as a service.

mod entrance;
mod upkeep;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::middleware::from_fn_with_state;
use egret_base::lifecycle::{BoxFuture, Readiness, Service, StartError};
use egret_base::sync::lock;
use egret_base::{Clock, Entropy};
use http::Method;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use utoipa_axum::router::OpenApiRouter;

use self::entrance::{FailedServices, RequestLayer, enter};
use self::upkeep::{end_expired_tokens, write_last_used};
use crate::access::{Authorizer, Requirement, Transfer};
use crate::admit::Admission;
use crate::audit::AuditLog;
use crate::config::ServerConfig;
use crate::error::ServerError;
use crate::grpc::GrpcService;
use crate::http::state::{Build, ReadinessProbe, RouterState, SERVICE_NAME, StatusSection};
use crate::listener::Listener;
use crate::metrics::{FailedParts, Metrics};
use crate::observe::Observer;
use crate::oidc::{Oidc, OidcOptions};
use crate::openapi::OpenApiDocument;
use crate::quota::{Quotas, ServerLimits};
use crate::tls::Certificates;
use crate::tokens::Tokens;
use crate::{grpc, http as routes};

/// Dependencies of the server.
pub struct Deps {
    /// What the program was built from.
    pub build: Build,
    /// Where the time comes from.
    pub clock: Arc<dyn Clock>,
    /// Where request ids come from.
    pub entropy: Arc<dyn Entropy>,
    /// The store of API tokens.
    pub tokens: Arc<Tokens>,
    /// Registry of the program's metrics.
    pub metrics: Arc<Metrics>,
    /// Returns the readiness of the other services.
    pub readiness: ReadinessProbe,
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
    /// Accepts the tokens of an OpenID Connect provider beside Egret's own, where the settings name
    /// one.
    pub fn oidc(mut self, options: OidcOptions) -> Self {
        self.oidc = Some(options);
        self
    }

    /// Records changes and refused attempts in an audit log.
    pub fn audit(mut self, log: Option<Arc<AuditLog>>) -> Self {
        self.audit = log;
        self
    }

    /// Serves this certificate, which can be reloaded, instead of reading the files that the
    /// settings name.
    pub fn certificates(mut self, certificates: Option<Certificates>) -> Self {
        self.certificates = certificates;
        self
    }

    /// Adds an engine's routes. Each operation's documentation says what its caller needs.
    pub fn route(mut self, routes: OpenApiRouter) -> Self {
        self.engines = self.engines.merge(routes);
        self
    }

    /// Cancelled when the server stops: streams and long polls must end then.
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
        let doors = Arc::new(RouterState {
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

struct Services {
    failed: FailedServices,
    grpc: Vec<GrpcService>,
    stopping: CancellationToken,
}

/// The router with the pages of its documentation, its fallback and the layer before every handler.
fn layered(
    collected: OpenApiRouter,
    services: Services,
    config: &ServerConfig,
    doors: &Arc<RouterState>,
    observer: Observer,
) -> Result<Router, ServerError> {
    let (router, api) = collected.split_for_parts();
    let OpenApiDocument {
        json,
        mut requirements,
    } = OpenApiDocument::complete(&api, doors.build.version, &doors.tokens)?;
    for path in routes::DOCS_ASSETS {
        let transfer = Transfer::default();
        requirements.insert(path, Method::GET, "", transfer, Requirement::Public);
    }
    let mut transfer = Transfer {
        is_lasting: false,
        is_piecemeal: true,
    };
    let public = Requirement::Public;
    requirements.insert(grpc::HEALTH_ROUTE, Method::POST, "", transfer, public);
    let mut calls = grpc::health(doors.clone(), services.stopping);
    for service in services.grpc {
        for (path, scopes) in service.scopes {
            transfer.is_lasting = service.lasting.contains(&path);
            let id = path.rsplit('/').next().unwrap_or_default();
            let requirement = Requirement::any_of(scopes);
            requirements.insert(&path, Method::POST, id, transfer, requirement);
        }
        calls = calls.merge(service.router);
    }
    let known = requirements.documented_paths();
    let gate = Authorizer {
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
            Arc::new(RequestLayer {
                observer: Arc::new(observer),
                admission: Admission::new(config, doors.quotas.clone(), doors.metrics.clone()),
                gate,
                failed: services.failed,
            }),
            enter,
        )))
}

/// The HTTP and gRPC server.
pub struct Server {
    doors: Arc<RouterState>,
    address: SocketAddr,
    listener: Mutex<Option<Listener>>,
    stopping: CancellationToken,
    running: Mutex<Option<ServerTasks>>,
}

struct ServerTasks {
    address: SocketAddr,
    tasks: Vec<JoinHandle<()>>,
}

impl Server {
    /// Starts to configure a server.
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

    /// The server's limits, which can be changed while it runs.
    pub fn limits(&self) -> ServerLimits {
        ServerLimits(self.doors.quotas.clone())
    }

    /// The verifier of an OpenID Connect provider's tokens; `None` where the settings name none.
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
                message: "it was already started: build a new one".to_owned(),
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
        *lock(&self.running) = Some(ServerTasks { address, tasks });
        self.doors.open.store(true, Ordering::Release);
        tracing::info!(%address, "server is open");
        Ok(())
    }
}

impl Service for Server {
    fn name(&self) -> &'static str {
        SERVICE_NAME
    }

    fn start(&self) -> BoxFuture<'_, Result<(), StartError>> {
        Box::pin(async move {
            self.open().await.map_err(|error| StartError {
                service: SERVICE_NAME,
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
                    tracing::error!(%error, "a background task of the server panicked");
                }
            }
        })
    }
}
