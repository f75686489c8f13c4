//! The server: wired by the binary, started and stopped as a service.

mod request_layer;
mod token_tasks;

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

use self::request_layer::{FailedServices, RequestLayer, run_request_layer};
use self::token_tasks::{end_expired_tokens, write_last_used};
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
    failed_services: FailedServices,
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
        deps.metrics.register_quotas(quotas.clone());
        let router_state = Arc::new(RouterState {
            build: deps.build,
            started_at: deps.clock.now(),
            clock: deps.clock.clone(),
            tokens: deps.tokens.clone(),
            oidc,
            metrics: deps.metrics.clone(),
            status_sections: self.sections,
            profile_duration_max: self.config.profile_duration_max.duration(),
            audit: audit.clone(),
            failed_parts: self.failed_parts,
            service_readiness: deps.readiness,
            quotas,
            is_open: AtomicBool::new(false),
        });
        let observer =
            Observer::new(deps.clock, &*deps.entropy, deps.metrics, self.config.access_log, audit);
        let stopping = self.stopping;
        let api_router = routes::server_routes(router_state.clone()).merge(self.engines);
        let services = Services {
            failed_services: self.failed_services,
            grpc: self.grpc,
            stopping: stopping.clone(),
        };
        let router = build_router(api_router, services, &self.config, &router_state, observer)?;
        Ok(Server {
            listener: Mutex::new(Some(Listener::new(
                self.config,
                router,
                tls,
                router_state.metrics.clone(),
            )?)),
            router_state,
            address,
            stopping,
            running: Mutex::new(None),
        })
    }
}

struct Services {
    failed_services: FailedServices,
    grpc: Vec<GrpcService>,
    stopping: CancellationToken,
}

/// The router with the pages of its documentation, its fallback and the layer before every handler.
fn build_router(
    api_router: OpenApiRouter,
    services: Services,
    config: &ServerConfig,
    router_state: &Arc<RouterState>,
    observer: Observer,
) -> Result<Router, ServerError> {
    let (router, api) = api_router.split_for_parts();
    let OpenApiDocument { json, mut requirements } =
        OpenApiDocument::complete(&api, router_state.build.version, &router_state.tokens)?;
    for path in routes::DOCS_ASSETS {
        let transfer = Transfer::default();
        requirements.insert(path, Method::GET, "", transfer, Requirement::Public);
    }
    let mut transfer = Transfer { is_long_lived: false, has_streamed_body: true };
    let public = Requirement::Public;
    requirements.insert(grpc::HEALTH_ROUTE, Method::POST, "", transfer, public);
    let mut grpc_routes = grpc::health_router(router_state.clone(), services.stopping);
    for service in services.grpc {
        for (path, scopes) in service.scopes {
            transfer.is_long_lived = service.long_lived_paths.contains(&path);
            let id = path.rsplit('/').next().unwrap_or_default();
            let requirement = Requirement::any_of(scopes);
            requirements.insert(&path, Method::POST, id, transfer, requirement);
        }
        grpc_routes = grpc_routes.merge(service.router);
    }
    let documented_paths = requirements.documented_paths();
    let authorizer = Authorizer {
        tokens: router_state.tokens.clone(),
        oidc: router_state.oidc.clone(),
        requirements,
        component_time: router_state.metrics.component_time("server.authorize"),
    };
    Ok(router
        .merge(routes::docs_routes(json))
        .merge(grpc_routes)
        .fallback_service(routes::not_found(documented_paths))
        .layer(from_fn_with_state(
            Arc::new(RequestLayer {
                observer: Arc::new(observer),
                admission: Admission::new(
                    config,
                    router_state.quotas.clone(),
                    router_state.metrics.clone(),
                ),
                authorizer,
                failed_services: services.failed_services,
            }),
            run_request_layer,
        )))
}

/// The HTTP and gRPC server.
pub struct Server {
    router_state: Arc<RouterState>,
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
            failed_services: FailedServices::default(),
            failed_parts: Arc::new(Vec::new),
            certificates: None,
            audit: None,
            oidc: None,
        }
    }

    /// The server's limits, which can be changed while it runs.
    pub fn limits(&self) -> ServerLimits {
        ServerLimits(self.router_state.quotas.clone())
    }

    /// The verifier of an OpenID Connect provider's tokens; `None` where the settings name none.
    pub fn oidc(&self) -> Option<Arc<Oidc>> {
        self.router_state.oidc.clone()
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
        let listening = listener.bind(self.address).await?;
        let address = listening.address();
        let accept_task = tokio::spawn(listening.run(self.stopping.clone()));
        let last_use_task =
            tokio::spawn(write_last_used(self.router_state.tokens.clone(), self.stopping.clone()));
        let expiry_task = tokio::spawn(end_expired_tokens(
            self.router_state.tokens.clone(),
            self.stopping.clone(),
        ));
        let mut tasks = vec![accept_task, last_use_task, expiry_task];
        if let Some(oidc) = &self.router_state.oidc {
            tasks.push(tokio::spawn(oidc.clone().run(self.stopping.clone())));
        }
        *lock(&self.running) = Some(ServerTasks { address, tasks });
        self.router_state.is_open.store(true, Ordering::Release);
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
        self.router_state.server_readiness()
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.router_state.is_open.store(false, Ordering::Release);
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
