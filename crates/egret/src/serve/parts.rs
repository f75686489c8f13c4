//! The parts of an Egret, made from the configuration and tied together.

mod monitor;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use egret_base::lifecycle::{Readiness, Service, Stack};
use egret_base::{Clock, Entropy};
use egret_branches::{Branches, BranchesConfig, Mounted, Options};
use egret_postgres::embedded::check_port;
use egret_postgres::external::{Verdict, check, parse};
use egret_postgres::managed::ManagedServer;
use egret_postgres::tokio_postgres::Config;
use egret_postgres::tokio_postgres::config::Host;
use egret_postgres::{Databases, EmbeddedServer, PostgresConfig, pool};
use egret_queue::model::TaskState;
use egret_queue::{Options as QueueOptions, Outbox, QueueConfig, Queues};
use egret_series::{Options as SeriesOptions, Series, SeriesConfig};
use egret_server::proxy::{BranchDirectory, Proxy, ProxyConfig};
use egret_server::{
    Build, Builder, Deps, Metrics, ProxyAddress, Server, ServerConfig, StatusSection, Tokens,
    branches_routes, outbox_routes, queue_routes, queue_service, series_routes, series_service,
};
use serde_json::{Value, json};

use super::{Embedded, Home};
use crate::configuration::Configuration;

/// The version shown everywhere.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What the program was built from.
const BUILD: Build = Build {
    version: VERSION,
    commit: egret_bench::COMMIT,
    profile: egret_bench::BUILD_PROFILE,
};

/// How long the status waits for a server to say its version.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// The engines that need no PostgreSQL to answer.
pub(super) struct Engines {
    pub(super) queues: Queues,
    pub(super) outbox: Outbox,
    pub(super) series: Series,
}

/// Makes the parts.
pub(super) struct Parts {
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    metrics: Arc<Metrics>,
    server: ServerConfig,
    proxy: ProxyConfig,
    /// How a client on this machine reaches the server.
    own_url: String,
}

impl Parts {
    pub(super) fn new(
        configuration: &Configuration,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            metrics: Arc::new(Metrics::new(VERSION, clock.now())),
            server: configuration.section()?,
            proxy: configuration.section()?,
            own_url: configuration.address()?.url.to_string(),
            clock,
            entropy,
        })
    }

    /// Where the proxy listens.
    pub(super) fn proxy_address(&self) -> String {
        format!("{}:{}", self.proxy.address, self.proxy.port)
    }

    /// Finds a port that is taken before anything is made or started on the way to it.
    ///
    /// # Errors
    /// The address and the setting that names it.
    pub(super) fn check_ports(&self, doors: Doors) -> anyhow::Result<()> {
        check_free(self.server.socket_address()?, "server.port")?;
        // An address that is none is the proxy's to refuse.
        if let (Doors::ServerAndProxy, Ok(ip)) = (doors, self.proxy.address.parse()) {
            check_free(SocketAddr::new(ip, self.proxy.port), "proxy.port")?;
        }
        Ok(())
    }

    /// The volume, the server on it, and the engine.
    pub(super) async fn embedded(
        &self,
        home: &Home,
        postgres: PostgresConfig,
        branches: BranchesConfig,
    ) -> anyhow::Result<Embedded> {
        if !home.data_dir().join("volume").exists() {
            // Before anything is made; later the port may be held by the server to take over.
            check_port(postgres.port)?;
        }
        let mounted = open_volume(home.data_dir(), &branches).await?;
        let postgres = Arc::new(EmbeddedServer::new(
            postgres,
            home.layout(mounted.source()),
            self.clock.clone(),
            self.entropy.clone(),
        ));
        let options = Options {
            config: branches,
            mounted,
            data_dir: home.data_dir().to_owned(),
            run_dir: home.branch_sockets(),
            source: postgres.clone(),
            clock: self.clock.clone(),
            entropy: self.entropy.clone(),
        };
        let mut engine = None;
        self.metrics
            .register(|registry| engine = Some(Branches::new(options, registry)));
        let branches = engine.expect("registering runs its closure");
        Ok(Embedded { postgres, branches })
    }

    /// The queue engine.
    pub(super) fn queues(&self, home: &Home, config: QueueConfig) -> Queues {
        let options = QueueOptions {
            config,
            directory: home.data_dir().join("queue"),
            clock: self.clock.clone(),
            entropy: self.entropy.clone(),
        };
        let mut engine = None;
        self.metrics
            .register(|registry| engine = Some(Queues::new(options, registry)));
        engine.expect("registering runs its closure")
    }

    /// The series engine.
    pub(super) fn series(&self, home: &Home, config: SeriesConfig) -> Series {
        let options = SeriesOptions {
            config,
            directory: home.data_dir().join("series"),
            clock: self.clock.clone(),
            entropy: self.entropy.clone(),
        };
        let mut engine = None;
        self.metrics
            .register(|registry| engine = Some(Series::new(options, registry)));
        engine.expect("registering runs its closure")
    }

    /// The outboxes of the source, or of the one database that a connection string names.
    pub(super) fn outbox(
        &self,
        queues: &Queues,
        embedded: Option<&Embedded>,
        external: Option<&ManagedServer>,
    ) -> Outbox {
        let databases = databases("queue", embedded, external);
        let mut outbox = None;
        self.metrics.register(|registry| {
            outbox = Some(Outbox::new(queues.clone(), databases, registry));
        });
        outbox.expect("registering runs its closure")
    }

    /// The doors, on top of the stack. Returns the admin token when it was made just now.
    pub(super) fn doors(
        &self,
        home: &Home,
        stack: &mut Stack,
        engines: Engines,
        embedded: Option<Embedded>,
        external: Option<Arc<ManagedServer>>,
    ) -> anyhow::Result<Option<String>> {
        let monitor = self.monitor(&engines, embedded.as_ref(), external.as_deref())?;
        // It needs no PostgreSQL to begin, and asks it no more when it stops.
        stack.push_eager(Arc::new(monitor.clone()));
        let Engines {
            queues,
            outbox,
            series,
        } = engines;
        let tokens = Arc::new(Tokens::open(
            &home.state_db(),
            &["branches", "queue", "series"],
            self.clock.clone(),
            self.entropy.clone(),
        )?);
        let admin = tokens.ensure_admin(&home.admin_token())?;
        let proxy = match &embedded {
            Some(embedded) => Some(Arc::new(self.proxy(embedded.branches.clone())?)),
            None => None,
        };
        if let Some(proxy) = &proxy {
            stack.push(proxy.clone());
        }
        let under = stack.clone();
        let series_door = series_routes(series.clone(), monitor, BUILD, self.clock.now());
        let mut server = Server::builder(
            self.server.clone(),
            Deps {
                build: BUILD,
                clock: self.clock.clone(),
                entropy: self.entropy.clone(),
                tokens,
                metrics: self.metrics.clone(),
                readiness: Arc::new(move || under.readiness()),
            },
        );
        let stopping = server.stopping();
        server = server
            .route(queue_routes(queues.clone(), stopping.clone()))
            .route(outbox_routes(outbox))
            .route(series_door)
            .status("series", series_section(series.clone()))
            .status("queue", queue_section(queues.clone()))
            .grpc(queue_service(queues, stopping.clone()))
            .grpc(series_service(series, stopping));
        if let (Some(embedded), Some(proxy)) = (embedded, proxy) {
            let proxied = json!({ "address": self.proxy_address() });
            server = with_branches(server, embedded, proxy).status("proxy", fixed_section(proxied));
        }
        if let Some(external) = external {
            server = server.status("postgres", external_section(external));
        }
        // It answers for the queue while PostgreSQL still starts; the rest says that it is not ready.
        stack.push_eager(Arc::new(server.build()?));
        Ok(admin.map(|admin| admin.token))
    }

    fn proxy(&self, branches: Branches) -> anyhow::Result<Proxy> {
        let directory = Arc::new(BranchDirectory::new(branches));
        let (config, entropy) = (self.proxy.clone(), self.entropy.clone());
        let tls = self.server.tls()?;
        let mut made = None;
        self.metrics.register(|registry| {
            made = Some(Proxy::new(config, directory, tls, entropy, registry));
        });
        Ok(made.expect("registering runs its closure"))
    }
}

/// Which ports are opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doors {
    /// There are branches to reach.
    ServerAndProxy,
    /// There are none.
    Server,
}

/// The doors of what only the embedded server has.
fn with_branches(server: Builder, embedded: Embedded, proxy: Arc<Proxy>) -> Builder {
    let routes = branches_routes(embedded.branches.clone(), ProxyAddress::of(proxy));
    server
        .route(routes)
        .status("postgres", postgres_section(embedded.postgres))
        .status("volume", volume_section(embedded.branches.clone()))
        .status("branches", branches_section(embedded.branches))
}

/// Every database of the source, or the one that a connection string names, as an engine comes to them.
fn databases(
    engine: &'static str,
    embedded: Option<&Embedded>,
    external: Option<&ManagedServer>,
) -> Databases {
    match (embedded, external) {
        (Some(embedded), _) => {
            let server = embedded.postgres.clone();
            Databases::every(move |database| server.connection(database, engine))
        }
        (None, Some(server)) => {
            let mut connection = server.connection().clone();
            connection.application_name(format!("egret/{engine}"));
            Databases::one(connection)
        }
        (None, None) => unreachable!("egret stands on one server or the other"),
    }
}

fn check_free(address: SocketAddr, setting: &str) -> anyhow::Result<()> {
    match TcpListener::bind(address) {
        Err(error) if error.kind() == ErrorKind::AddrInUse => bail!(
            "{address} is in use by another program: stop it, or set {setting} ({})",
            egret_base::settings::environment_name(setting)
        ),
        // Whatever else is wrong is told by the part whose port it is.
        _ => Ok(()),
    }
}

/// Opening may make and mount an image, which takes a while.
async fn open_volume(data_dir: &Path, config: &BranchesConfig) -> anyhow::Result<Mounted> {
    let (data_dir, config) = (data_dir.to_owned(), config.clone());
    let opened =
        tokio::task::spawn_blocking(move || egret_branches::open_volume(&data_dir, &config));
    Ok(opened.await??)
}

/// Examines a server of the user's own; started, it holds the lock that keeps other Egrets away.
pub(super) async fn examine_external(url: &str) -> anyhow::Result<(Arc<ManagedServer>, String)> {
    let connection = parse(url, "serve")?;
    let report = check(&connection).await?;
    for finding in &report.findings {
        if finding.verdict != Verdict::Met {
            tracing::warn!(
                subject = finding.subject,
                detail = finding.detail,
                "the server falls short"
            );
        }
    }
    if !report.usable() {
        let missing: Vec<&str> = report
            .findings
            .iter()
            .filter(|finding| finding.verdict == Verdict::Missing)
            .map(|finding| finding.detail.as_str())
            .collect();
        bail!(
            "the server of postgres.url cannot be used: {}",
            missing.join("; ")
        );
    }
    Ok((
        Arc::new(ManagedServer::new(connection)),
        format!(
            "external, PostgreSQL {}; branches need the embedded server",
            report.version
        ),
    ))
}

fn fixed_section(value: Value) -> StatusSection {
    Arc::new(move || {
        let value = value.clone();
        Box::pin(async move { value })
    })
}

fn postgres_section(server: Arc<EmbeddedServer>) -> StatusSection {
    Arc::new(move || {
        let server = server.clone();
        Box::pin(async move {
            let (state, version) = match server.ready() {
                Readiness::Ready => ("running".to_owned(), running_version(&server).await),
                Readiness::NotReady(reason) => (reason, String::new()),
            };
            json!({
                "kind": "embedded",
                "version": version,
                "state": state,
                "port": server.port(),
                "data_directory": server.layout().data,
                "socket_directory": server.layout().socket_dir,
            })
        })
    })
}

/// Where an external server is; never the connection string itself, which may hold a password.
fn external_section(server: Arc<ManagedServer>) -> StatusSection {
    Arc::new(move || {
        let server = server.clone();
        Box::pin(async move {
            let connection = server.connection();
            let (state, version) = match server.ready() {
                Readiness::Ready => ("connected".to_owned(), version_of(connection).await),
                Readiness::NotReady(reason) => (reason, String::new()),
            };
            json!({
                "kind": "external",
                "version": version,
                "state": state,
                "hosts": hosts(connection),
                "database": connection.get_dbname().or(connection.get_user()),
            })
        })
    })
}

/// `host:port` of each server that a connection string names.
fn hosts(connection: &Config) -> Vec<String> {
    let ports = connection.get_ports();
    let port = |position: usize| ports.get(position).or(ports.first()).copied();
    let named = connection.get_hosts().iter().map(|host| match host {
        Host::Tcp(name) => name.clone(),
        Host::Unix(directory) => directory.display().to_string(),
    });
    let mut names: Vec<String> = named.collect();
    if names.is_empty() {
        let addresses = connection.get_hostaddrs().iter();
        names.extend(addresses.map(ToString::to_string));
    }
    let pairs = names.into_iter().enumerate();
    pairs
        .map(|(position, name)| format!("{name}:{}", port(position).unwrap_or(5432)))
        .collect()
}

async fn running_version(server: &EmbeddedServer) -> String {
    version_of(&server.connection("postgres", "status")).await
}

/// What the server itself says; empty when it does not answer soon.
async fn version_of(connection: &Config) -> String {
    let ask = async {
        let client = pool::connect(connection).await.ok()?;
        let row = client.query_one("SHOW server_version", &[]).await.ok()?;
        Some(row.get::<_, String>(0))
    };
    let answered = tokio::time::timeout(ANSWER_MAX, ask).await;
    answered.ok().flatten().unwrap_or_default()
}

fn queue_section(queues: Queues) -> StatusSection {
    Arc::new(move || {
        let queues = queues.clone();
        Box::pin(async move {
            match queues.summary().await {
                Ok(summary) => {
                    let states = TaskState::ALL.into_iter();
                    let tasks: BTreeMap<_, _> = states
                        .map(|state| (state.as_str(), summary.count(state)))
                        .collect();
                    json!({
                        "queues": summary.queues,
                        "tasks": tasks,
                        "oldest_ready_ms": summary.oldest_ready_ms,
                        "partitions": summary.partitions,
                        "partitions_stopped": summary.partitions_stopped,
                        "durability": queues.config().durability,
                    })
                }
                Err(error) => json!({ "error": error.to_string() }),
            }
        })
    })
}

fn series_section(series: Series) -> StatusSection {
    Arc::new(move || {
        let summary = series.summary();
        let durability = series.config().durability.clone();
        Box::pin(async move {
            match summary {
                Ok(summary) => json!({
                    "series": summary.series,
                    "shards": summary.shards,
                    "shards_failed": summary.shards_failed,
                    "durability": durability,
                }),
                Err(error) => json!({ "error": error.to_string() }),
            }
        })
    })
}

fn volume_section(branches: Branches) -> StatusSection {
    Arc::new(move || {
        let volume = branches.volume();
        Box::pin(async move {
            match volume {
                Ok(volume) => serde_json::to_value(volume).unwrap_or(Value::Null),
                Err(error) => json!({ "error": error.to_string() }),
            }
        })
    })
}

fn branches_section(branches: Branches) -> StatusSection {
    Arc::new(move || {
        let counts = branches.count_by_state();
        Box::pin(async move {
            match counts {
                Ok(counts) => {
                    json!({ "total": counts.values().sum::<usize>(), "by_state": counts })
                }
                Err(error) => json!({ "error": error.to_string() }),
            }
        })
    })
}
