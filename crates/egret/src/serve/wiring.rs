//! The parts of an Egret, made from the configuration and tied together.

mod monitor;
mod postgres_backend;
mod sections;

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use anyhow::bail;
use egret_base::lifecycle::Stack;
use egret_base::{Clock, Entropy, SteadyClock};
use egret_documents::{Documents, DocumentsConfig, Options as DocumentsOptions};
use egret_outgoing::{Destinations, OutgoingConfig};
use egret_postgres::Databases;
use egret_postgres::databases::{RequestSessions, request_sessions};
use egret_queue::{Options as QueueOptions, Outbox, QueueConfig, Queues};
use egret_series::{EngineOptions as SeriesOptions, Monitor, Series, SeriesConfig};
use egret_server::proxy::{BranchDirectory, Proxy, ProxyConfig, ProxyOptions};
use egret_server::{
    AuditLog, Build, Builder, Certificates, DEFAULT_TENANT, Deps, Metrics, OidcConfig, OidcOptions,
    ProxyAddress, Server, ServerConfig, Tokens, branches_routes, clock_routes, document_routes,
    installation_routes, outbox_routes, queue_routes, queue_service, series_routes, series_service,
    view_routes, view_service,
};
use egret_views::{Options as ViewsOptions, TaskPublisher, Views, ViewsConfig};
use serde_json::json;

pub(super) use self::postgres_backend::PostgresBackend;
use self::sections::{
    branches_section, clock_section, documents_section, external_section, fixed_section,
    postgres_section, queue_section, series_section, views_section, volume_section,
};
use super::clock::ClockService;
use super::reload::Reloadable;
use super::{DataDir, EmbeddedParts, OpenedFrontends};
use crate::configuration::Configuration;

/// The version shown everywhere.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What the program was built from.
const BUILD: Build =
    Build { version: VERSION, commit: env!("BUILD_COMMIT"), profile: env!("BUILD_PROFILE") };

/// The engines but branches, which need the embedded server.
pub(super) struct Engines {
    pub(super) queues: Queues,
    pub(super) outbox: Outbox,
    pub(super) series: Series,
    pub(super) views: Views,
    pub(super) documents: Documents,
}

pub(super) struct Wiring {
    clock: Arc<dyn Clock>,
    /// The same clock, by its type, for the operations that only an operator uses.
    steady_clock: Arc<SteadyClock>,
    entropy: Arc<dyn Entropy>,
    metrics: Arc<Metrics>,
    server: ServerConfig,
    proxy: ProxyConfig,
    oidc: OidcConfig,
    /// Certificates of the frontends that speak TLS.
    certificates: Option<Certificates>,
    /// Addresses that requests caused by users may go to.
    destinations: Destinations,
    /// Limits on the PostgreSQL sessions of requests, over all engines.
    sessions: RequestSessions,
    /// URL by which a client on this machine reaches the server.
    own_url: String,
}

impl Wiring {
    pub(super) fn new(
        configuration: &Configuration,
        clock: Arc<SteadyClock>,
        entropy: Arc<dyn Entropy>,
    ) -> anyhow::Result<Self> {
        let outgoing: OutgoingConfig = configuration.section()?;
        let server: ServerConfig = configuration.section()?;
        Ok(Self {
            metrics: Arc::new(Metrics::new(VERSION, clock.now())),
            certificates: Certificates::open(&server)?,
            server,
            proxy: configuration.section()?,
            oidc: configuration.section()?,
            destinations: Destinations::new(&outgoing.allow).map_err(anyhow::Error::msg)?,
            sessions: request_sessions(&configuration.section()?),
            own_url: configuration.address()?.url.to_string(),
            clock: clock.clone(),
            steady_clock: clock,
            entropy,
        })
    }

    /// The service that watches the clock.
    pub(super) fn clock_service(&self) -> ClockService {
        ClockService::new(self.steady_clock.clone(), &self.metrics)
    }

    /// Address that the proxy listens on.
    pub(super) fn proxy_address(&self) -> String {
        format!("{}:{}", self.proxy.address, self.proxy.port)
    }

    /// Finds a port that is taken before anything is made or started on the way to it.
    ///
    /// # Errors
    /// The address and the setting that names it.
    pub(super) fn check_ports(&self, frontends: Frontends) -> anyhow::Result<()> {
        check_port_free(self.server.socket_address()?, "server.port")?;
        // An address that is none is the proxy's to refuse.
        if let (Frontends::ServerAndProxy, Ok(ip)) = (frontends, self.proxy.address.parse()) {
            check_port_free(SocketAddr::new(ip, self.proxy.port), "proxy.port")?;
        }
        Ok(())
    }

    pub(super) fn queues(&self, data_dir: &DataDir, config: QueueConfig) -> Queues {
        let options = QueueOptions {
            config,
            directory: data_dir.data_dir().join("queue"),
            clock: self.clock.clone(),
            entropy: self.entropy.clone(),
            destinations: self.destinations.clone(),
        };
        let mut engine = None;
        self.metrics.register(|registry| engine = Some(Queues::new(options, registry)));
        engine.expect("registering runs its closure")
    }

    pub(super) fn series(&self, data_dir: &DataDir, config: SeriesConfig) -> Series {
        let options = SeriesOptions {
            config,
            directory: data_dir.data_dir().join("series"),
            clock: self.clock.clone(),
            entropy: self.entropy.clone(),
        };
        let mut engine = None;
        self.metrics.register(|registry| engine = Some(Series::new(options, registry)));
        engine.expect("registering runs its closure")
    }

    /// The databases that an engine works in, with the shared limits on sessions.
    fn databases(&self, backend: &PostgresBackend, engine: &'static str) -> Databases {
        let databases = backend.databases(engine);
        databases.with_sessions(self.sessions.clone())
    }

    /// The outboxes in the databases of the server underneath.
    pub(super) fn outbox(&self, queues: &Queues, backend: &PostgresBackend) -> Outbox {
        let databases = self.databases(backend, "queue");
        let mut outbox = None;
        self.metrics.register(|registry| {
            outbox = Some(Outbox::new(queues.clone(), databases, registry));
        });
        outbox.expect("registering runs its closure")
    }

    /// The views engine, in the same databases.
    pub(super) fn views(
        &self,
        config: ViewsConfig,
        backend: &PostgresBackend,
        queues: &Queues,
    ) -> Views {
        let options = ViewsOptions {
            config,
            databases: self.databases(backend, "views"),
            clock: self.clock.clone(),
            task_publisher: Some(TaskPublisher {
                sink: Arc::new(queues.clone()),
                tenant: DEFAULT_TENANT.to_owned(),
            }),
        };
        let mut engine = None;
        self.metrics.register(|registry| engine = Some(Views::new(options, registry)));
        engine.expect("registering runs its closure")
    }

    /// The documents engine, in the same databases.
    pub(super) fn documents(
        &self,
        config: DocumentsConfig,
        backend: &PostgresBackend,
        queues: &Queues,
    ) -> Documents {
        let options = DocumentsOptions {
            config,
            databases: self.databases(backend, "documents"),
            clock: self.clock.clone(),
            entropy: self.entropy.clone(),
            tasks: Some(Arc::new(queues.clone())),
            signer: Some(Arc::new(queues.clone())),
            destinations: self.destinations.clone(),
        };
        let mut engine = None;
        self.metrics.register(|registry| engine = Some(Documents::new(options, registry)));
        engine.expect("registering runs its closure")
    }

    /// The frontends, on top of the stack.
    pub(super) fn add_frontends(
        &self,
        data_dir: &DataDir,
        stack: &mut Stack,
        engines: Engines,
        backend: PostgresBackend,
    ) -> anyhow::Result<OpenedFrontends> {
        let monitor = self.monitor(&engines, &backend)?;
        // The series need no PostgreSQL to begin, and do not ask it when they stop.
        stack.push_eager_dependent(Arc::new(monitor.clone()), "series");
        let tokens = Arc::new(Tokens::open(
            &data_dir.state_db(),
            &["branches", "documents", "queue", "series", "views"],
            self.clock.clone(),
            self.entropy.clone(),
        )?);
        let admin = tokens.ensure_admin(&data_dir.admin_token_file())?;
        let directory = data_dir.data_dir().join("audit");
        let audit = AuditLog::open(&self.server, directory, &self.metrics)?;
        let proxy = self.proxy(&backend, audit.clone());
        if let Some(proxy) = &proxy {
            stack.push(proxy.clone());
        }
        let (readiness_stack, failures_stack) = (stack.clone(), stack.clone());
        let server = Server::builder(
            self.server.clone(),
            Deps {
                build: BUILD,
                clock: self.clock.clone(),
                entropy: self.entropy.clone(),
                tokens,
                metrics: self.metrics.clone(),
                readiness: Arc::new(move || readiness_stack.readiness()),
            },
        )
        .audit(audit)
        .failures(stack.failures().clone(), Arc::new(move || failures_stack.failed_parts()));
        let server = self.add_identity_proofs(server);
        let databases = self.databases(&backend, "server");
        let status_databases = self.databases(&backend, "status");
        let mut server = self.add_engine_routes(server, engines, monitor.clone(), databases);
        match backend {
            PostgresBackend::Unmounted(_) => {
                server = server.refuse_prefix("branches", "/v1/branches");
            }
            PostgresBackend::External(external) => {
                server = server.status("postgres", external_section(external, status_databases));
            }
            PostgresBackend::Embedded(embedded) => {
                if let Some(proxy) = proxy {
                    let proxy_address = json!({ "address": self.proxy_address() });
                    server = add_branch_routes(server, embedded, proxy, status_databases)
                        .status("proxy", fixed_section(proxy_address));
                }
            }
        }
        // It answers for the queue while PostgreSQL still starts; the rest says that it is not
        // ready.
        let server = server.build()?;
        let reloadable = self.reloadable(monitor, &server);
        stack.push_eager(Arc::new(server));
        Ok(OpenedFrontends { admin_token: admin.map(|admin| admin.token), reloadable })
    }

    /// Adds proofs of identity other than Egret's tokens: certificates of clients, and tokens of an
    /// issuer.
    fn add_identity_proofs(&self, server: Builder) -> Builder {
        let oidc =
            OidcOptions { config: self.oidc.clone(), destinations: self.destinations.clone() };
        server.certificates(self.certificates.clone()).oidc(oidc)
    }

    /// The parts whose settings or files SIGHUP reads again.
    fn reloadable(&self, monitor: Monitor, server: &Server) -> Reloadable {
        Reloadable {
            certificates: self.certificates.clone(),
            monitor,
            limits: server.limits(),
            oidc: server.oidc(),
            destinations: self.destinations.clone(),
        }
    }

    /// Adds the routes of the engines that every Egret has.
    fn add_engine_routes(
        &self,
        server: Builder,
        engines: Engines,
        monitor: Monitor,
        databases: Databases,
    ) -> Builder {
        let Engines { queues, outbox, series, views, documents } = engines;
        let stopping = server.stopping();
        let views_grpc = view_service(views.clone(), stopping.clone());
        let series_http = series_routes(series.clone(), monitor, BUILD, self.clock.now());
        server
            .route(clock_routes(self.steady_clock.clone()))
            .route_of_service("queue", queue_routes(queues.clone(), stopping.clone()))
            .route_of_service("queue", outbox_routes(outbox.clone()))
            .route_of_service("series", series_http)
            .route(view_routes(views.clone(), self.clock.clone(), stopping.clone()))
            .route(installation_routes(databases, views.clone(), outbox, documents.clone()))
            .route(document_routes(documents.clone(), stopping.clone()))
            .status("clock", clock_section(self.steady_clock.clone()))
            .status("documents", documents_section(documents))
            .status("series", series_section(series.clone()))
            .status("queue", queue_section(queues.clone()))
            .status("views", views_section(views))
            .grpc_of_service("queue", queue_service(queues, stopping.clone()))
            .grpc_of_service("series", series_service(series, stopping.clone()))
            .grpc(views_grpc)
    }

    /// The proxy, where there are branches to reach.
    fn proxy(&self, backend: &PostgresBackend, audit: Option<Arc<AuditLog>>) -> Option<Arc<Proxy>> {
        let branches = backend.embedded()?.branches.clone();
        let options = ProxyOptions {
            config: self.proxy.clone(),
            directory: Arc::new(BranchDirectory::new(branches)),
            tls: self.certificates.as_ref().map(Certificates::server_config),
            clock: self.clock.clone(),
            entropy: self.entropy.clone(),
            audit,
        };
        let mut made = None;
        self.metrics.register(|registry| {
            made = Some(Arc::new(Proxy::new(options, registry)));
        });
        made
    }
}

/// Which ports are opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frontends {
    /// There are branches to reach.
    ServerAndProxy,
    Server,
}

/// Adds the routes of what only the embedded server has.
fn add_branch_routes(
    server: Builder,
    embedded: EmbeddedParts,
    proxy: Arc<Proxy>,
    databases: Databases,
) -> Builder {
    let routes = branches_routes(embedded.branches.clone(), ProxyAddress::from_proxy(proxy));
    server
        .route_of_service("branches", routes)
        .status("postgres", postgres_section(embedded.postgres, databases))
        .status("volume", volume_section(embedded.branches.clone()))
        .status("branches", branches_section(embedded.branches))
}

fn check_port_free(address: SocketAddr, setting: &str) -> anyhow::Result<()> {
    match TcpListener::bind(address) {
        Err(error) if error.kind() == ErrorKind::AddrInUse => bail!(
            "{address} is in use by another program: stop it, or set {setting} ({})",
            egret_base::settings::environment_name(setting)
        ),
        // Any other error is reported by the part whose port it is.
        _ => Ok(()),
    }
}
