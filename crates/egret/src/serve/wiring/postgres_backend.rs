//! The PostgreSQL under Egret: the embedded server on its volume, or an external server.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::bail;
use egret_base::lifecycle::{Service, Stack};
use egret_base::{CodedError, Kind};
use egret_branches::{
    Branches, BranchesConfig, BranchesError, MountedVolume, Options, VolumeService,
};
use egret_postgres::embedded::check_port;
use egret_postgres::external::{CheckStatus, check, parse_with_timeout};
use egret_postgres::managed::ManagedServer;
use egret_postgres::{Databases, EmbeddedServer, PostgresConfig};

use super::Wiring;
use crate::configuration::Configuration;
use crate::serve::{DataDir, EmbeddedParts};

/// The PostgreSQL under Egret.
#[derive(Clone)]
pub(in crate::serve) enum PostgresBackend {
    /// A server of its own, with branches of it.
    Embedded(EmbeddedParts),
    /// A server of its own whose volume cannot be used: it is not started.
    Unmounted(Arc<EmbeddedServer>),
    /// A server that Egret does not start or stop.
    External(Arc<ManagedServer>),
}

impl PostgresBackend {
    /// The parts that only a server of its own has.
    pub(in crate::serve) fn embedded(&self) -> Option<&EmbeddedParts> {
        match self {
            Self::Embedded(embedded) => Some(embedded),
            Self::Unmounted(_) | Self::External(_) => None,
        }
    }

    /// Every database of the embedded server, or the one that the connection string names; sessions
    /// there say which engine they are of.
    pub(super) fn databases(&self, engine: &'static str) -> Databases {
        match self {
            Self::Embedded(EmbeddedParts { postgres, .. }) | Self::Unmounted(postgres) => {
                let server = postgres.clone();
                let (watched, lost) = (server.clone(), server.clone());
                Databases::all(move |database| server.connection(database, engine))
                    .with_readiness(move || watched.ready())
                    .with_loss(move || lost.await_loss())
            }
            Self::External(server) => {
                let mut connection = server.connection().clone();
                connection.application_name(format!("egret/{engine}"));
                let (watched, lost) = (server.clone(), server.clone());
                Databases::single(connection)
                    .with_readiness(move || watched.ready())
                    .with_loss(move || lost.await_loss())
            }
        }
    }
}

impl Wiring {
    /// The PostgreSQL under Egret, pushed on the stack, and its description in one line.
    ///
    /// # Errors
    /// Why it cannot.
    pub(in crate::serve) async fn open_backend(
        &self,
        configuration: &Configuration,
        data_dir: &DataDir,
        postgres: PostgresConfig,
        stack: &mut Stack,
    ) -> anyhow::Result<(PostgresBackend, String)> {
        if let Some(url) = &postgres.url {
            let (server, description) = examine_external(url, &postgres).await?;
            stack.push(server.clone());
            return Ok((PostgresBackend::External(server), description));
        }
        let told = format!("embedded, 127.0.0.1:{}", postgres.port);
        stack.push(Arc::new(VolumeService::new(data_dir.data_dir())));
        let branches = configuration.section()?;
        let is_first = !data_dir.data_dir().join("volume").exists() && !data_dir.had_database();
        if is_first {
            // Before anything is made; later the port may be held by the server to take over.
            check_port(postgres.port)?;
        }
        let mounted = match open_volume(data_dir.data_dir(), &branches).await? {
            Ok(mounted) => mounted,
            Err(error) if is_first || error.kind() == Kind::Invalid => return Err(error.into()),
            Err(error) => {
                let failures = stack.failures();
                failures.record("volume", egret_base::error::chain(&error));
                for service in ["postgres", "branches"] {
                    let reason = "it needs volume, which cannot start".to_owned();
                    failures.record(service, reason);
                }
                let source = data_dir.data_dir().join("volume").join("source");
                let server = self.embedded_server(data_dir, postgres, source);
                return Ok((PostgresBackend::Unmounted(server), told));
            }
        };
        if let Some(reason) = data_dir.missing_database(&mounted.source()) {
            stack.failures().record("postgres", reason);
        }
        let embedded = self.embedded_parts(data_dir, postgres, branches, mounted);
        stack.push_dependent(embedded.postgres.clone(), "volume");
        stack.push_dependent(Arc::new(embedded.branches.clone()), "postgres");
        Ok((PostgresBackend::Embedded(embedded), told))
    }

    fn embedded_server(
        &self,
        data_dir: &DataDir,
        config: PostgresConfig,
        source: PathBuf,
    ) -> Arc<EmbeddedServer> {
        Arc::new(EmbeddedServer::new(
            config,
            data_dir.layout(source),
            self.clock.clone(),
            self.entropy.clone(),
        ))
    }

    /// The server on the volume, and the engine.
    fn embedded_parts(
        &self,
        data_dir: &DataDir,
        postgres: PostgresConfig,
        branches: BranchesConfig,
        mounted: MountedVolume,
    ) -> EmbeddedParts {
        let postgres = self.embedded_server(data_dir, postgres, mounted.source());
        let options = Options {
            config: branches,
            mounted,
            data_dir: data_dir.data_dir().to_owned(),
            run_dir: data_dir.branch_sockets(),
            source: postgres.clone(),
            clock: self.clock.clone(),
            entropy: self.entropy.clone(),
        };
        let mut engine = None;
        self.metrics.register(|registry| engine = Some(Branches::new(options, registry)));
        let branches = engine.expect("registering runs its closure");
        EmbeddedParts { postgres, branches }
    }
}

/// Opening may make and mount an image, which takes a while.
async fn open_volume(
    data_dir: &Path,
    config: &BranchesConfig,
) -> anyhow::Result<Result<MountedVolume, BranchesError>> {
    let (data_dir, config) = (data_dir.to_owned(), config.clone());
    let opened =
        tokio::task::spawn_blocking(move || egret_branches::open_volume(&data_dir, &config));
    Ok(opened.await?)
}

/// Examines a server of the user's own; started, it holds the lock that keeps other Egrets away.
async fn examine_external(
    url: &str,
    config: &PostgresConfig,
) -> anyhow::Result<(Arc<ManagedServer>, String)> {
    let connection = parse_with_timeout(url, "serve", config.connect_timeout.duration())?;
    let report = match check(&connection).await {
        Ok(report) => report,
        Err(error) if error.kind() == Kind::Unavailable => {
            let description = format!("external, not reachable yet: {error}");
            return Ok((Arc::new(ManagedServer::new(connection)), description));
        }
        Err(error) => return Err(error.into()),
    };
    for finding in &report.checks {
        if finding.status != CheckStatus::Met {
            tracing::warn!(
                subject = finding.subject,
                detail = finding.detail,
                "the PostgreSQL server does not meet a requirement"
            );
        }
    }
    if !report.is_usable() {
        let missing: Vec<&str> = report
            .checks
            .iter()
            .filter(|finding| finding.status == CheckStatus::Missing)
            .map(|finding| finding.detail.as_str())
            .collect();
        bail!("the server of postgres.url cannot be used: {}", missing.join("; "));
    }
    Ok((
        Arc::new(ManagedServer::new(connection)),
        format!("external, PostgreSQL {}; branches need the embedded server", report.version),
    ))
}
