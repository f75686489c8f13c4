//! The parts of an Egret, made from the configuration and tied together.

use std::path::Path;
use std::sync::Arc;

use anyhow::bail;
use egret_base::lifecycle::{Readiness, Service, Stack};
use egret_base::{Clock, Entropy};
use egret_branches::{Branches, BranchesConfig, Mounted, Options};
use egret_postgres::embedded::check_port;
use egret_postgres::external::{Verdict, check, parse};
use egret_postgres::managed::ManagedServer;
use egret_postgres::{EmbeddedServer, PostgresConfig, pool};
use egret_server::proxy::{BranchDirectory, Proxy, ProxyConfig};
use egret_server::{
    Deps, Metrics, ProxyAddress, Server, ServerConfig, StatusSection, Tokens, branches_routes,
};
use serde_json::{Value, json};

use super::{Embedded, Home};
use crate::configuration::Configuration;

/// The version shown everywhere.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Makes the parts.
pub(super) struct Parts {
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    metrics: Arc<Metrics>,
    server: ServerConfig,
    proxy: ProxyConfig,
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
            clock,
            entropy,
        })
    }

    /// Where the proxy listens.
    pub(super) fn proxy_address(&self) -> String {
        format!("{}:{}", self.proxy.address, self.proxy.port)
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

    /// The doors, on top of the stack. Returns the admin token when it was made just now.
    pub(super) fn doors(
        &self,
        home: &Home,
        stack: &mut Stack,
        embedded: Option<Embedded>,
    ) -> anyhow::Result<Option<String>> {
        let tokens = Arc::new(Tokens::open(
            &home.state_db(),
            &["branches"],
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
        let mut server = Server::builder(
            self.server.clone(),
            Deps {
                version: VERSION,
                clock: self.clock.clone(),
                entropy: self.entropy.clone(),
                tokens,
                metrics: self.metrics.clone(),
                readiness: Arc::new(move || under.readiness()),
            },
        );
        if let (Some(embedded), Some(proxy)) = (embedded, proxy) {
            let routes = branches_routes(embedded.branches.clone(), ProxyAddress::of(proxy));
            server = server
                .route(routes)
                .status("postgres", postgres_section(embedded.postgres))
                .status("volume", volume_section(embedded.branches.clone()))
                .status("branches", branches_section(embedded.branches))
                .status(
                    "proxy",
                    fixed_section(json!({ "address": self.proxy_address() })),
                );
        }
        stack.push(Arc::new(server.build()?));
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

/// Opening may make and mount an image, which takes a while.
async fn open_volume(data_dir: &Path, config: &BranchesConfig) -> anyhow::Result<Mounted> {
    let (data_dir, config) = (data_dir.to_owned(), config.clone());
    let opened =
        tokio::task::spawn_blocking(move || egret_branches::open_volume(&data_dir, &config));
    Ok(opened.await??)
}

/// Examines a server of the user's own; started, it holds the lock that keeps other Egrets away.
pub(super) async fn examine_external(url: &str) -> anyhow::Result<(ManagedServer, String)> {
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
        ManagedServer::new(connection),
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
                "version": version,
                "state": state,
                "port": server.port(),
                "data_directory": server.layout().data,
                "socket_directory": server.layout().socket_dir,
            })
        })
    })
}

/// What the server itself says; empty when it does not answer.
async fn running_version(server: &EmbeddedServer) -> String {
    let ask = async {
        let client = pool::connect(&server.connection("postgres", "status"))
            .await
            .ok()?;
        let row = client.query_one("SHOW server_version", &[]).await.ok()?;
        Some(row.get::<_, String>(0))
    };
    ask.await.unwrap_or_default()
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
