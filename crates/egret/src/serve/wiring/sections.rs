//! The sections of the parts in `/v1/status`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use egret_base::SteadyClock;
use egret_base::clock::model::ClockState;
use egret_base::lifecycle::{Readiness, Service};
use egret_branches::Branches;
use egret_documents::{Documents, OwnershipState};
use egret_postgres::managed::ManagedServer;
use egret_postgres::tokio_postgres::Config;
use egret_postgres::tokio_postgres::config::Host;
use egret_postgres::{Databases, EmbeddedServer};
use egret_queue::Queues;
use egret_queue::model::TaskState;
use egret_series::Series;
use egret_server::{DEFAULT_TENANT, StatusSection};
use egret_views::Views;
use egret_views::model::State;
use serde_json::{Value, json};

/// How long the status waits for a server to say its version.
const ANSWER_MAX: Duration = Duration::from_secs(2);

pub(super) fn fixed_section(value: Value) -> StatusSection {
    Arc::new(move || {
        let value = value.clone();
        Box::pin(async move { value })
    })
}

pub(super) fn clock_section(clock: Arc<SteadyClock>) -> StatusSection {
    Arc::new(move || {
        let status = clock.status();
        let state = match status.state {
            ClockState::Following => "following",
            ClockState::Held => "held",
        };
        let section = json!({
            "state": state,
            "accepted_at": status.accepted,
            "wall_at": status.wall,
            "offset_ms": status.offset_us / 1_000,
        });
        Box::pin(async move { section })
    })
}

pub(super) fn postgres_section(server: Arc<EmbeddedServer>, databases: Databases) -> StatusSection {
    Arc::new(move || {
        let (server, databases) = (server.clone(), databases.clone());
        Box::pin(async move {
            let (state, version) = match server.ready() {
                Readiness::Ready => ("running".to_owned(), server_version(&databases).await),
                Readiness::NotReady(reason) | Readiness::Failed(reason) => (reason, String::new()),
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
pub(super) fn external_section(server: Arc<ManagedServer>, databases: Databases) -> StatusSection {
    Arc::new(move || {
        let (server, databases) = (server.clone(), databases.clone());
        Box::pin(async move {
            let connection = server.connection();
            let (state, version) = match server.ready() {
                Readiness::Ready => ("connected".to_owned(), server_version(&databases).await),
                Readiness::NotReady(reason) | Readiness::Failed(reason) => (reason, String::new()),
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
pub(super) fn hosts(connection: &Config) -> Vec<String> {
    let ports = connection.get_ports();
    let port = |position: usize| ports.get(position).or(ports.first()).copied();
    let host_names = connection.get_hosts().iter().map(|host| match host {
        Host::Tcp(name) => name.clone(),
        Host::Unix(directory) => directory.display().to_string(),
    });
    let mut names: Vec<String> = host_names.collect();
    if names.is_empty() {
        let addresses = connection.get_hostaddrs().iter();
        names.extend(addresses.map(ToString::to_string));
    }
    let pairs = names.into_iter().enumerate();
    pairs.map(|(position, name)| format!("{name}:{}", port(position).unwrap_or(5432))).collect()
}

/// The version that a server reports; empty when it does not answer soon.
async fn server_version(databases: &Databases) -> String {
    let query = async {
        let _permit = databases.admit(DEFAULT_TENANT).await.ok()?;
        let client = databases.client("postgres").await.ok()?;
        let row = client.query_one("SHOW server_version", &[]).await.ok()?;
        Some(row.get::<_, String>(0))
    };
    let answered = tokio::time::timeout(ANSWER_MAX, query).await;
    answered.ok().flatten().unwrap_or_default()
}

pub(super) fn queue_section(queues: Queues) -> StatusSection {
    Arc::new(move || {
        let queues = queues.clone();
        Box::pin(async move {
            match queues.summary().await {
                Ok(summary) => {
                    let states = TaskState::ALL.into_iter();
                    let tasks: BTreeMap<_, _> =
                        states.map(|state| (state.as_str(), summary.count(state))).collect();
                    json!({
                        "queues": summary.queues,
                        "tasks": tasks,
                        "oldest_ready_ms": summary.oldest_ready_ms,
                        "partitions": summary.partitions,
                        "partitions_stopped": summary.partitions_stopped,
                        "durability": queues.config().durability.name(),
                    })
                }
                Err(error) => json!({ "error": error.to_string() }),
            }
        })
    })
}

pub(super) fn series_section(series: Series) -> StatusSection {
    Arc::new(move || {
        let summary = series.summary();
        let durability = series.config().durability.name();
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

pub(super) fn volume_section(branches: Branches) -> StatusSection {
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

pub(super) fn branches_section(branches: Branches) -> StatusSection {
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

/// Counts of views by state, over all databases.
pub(super) fn views_section(views: Views) -> StatusSection {
    Arc::new(move || {
        let views = views.clone();
        Box::pin(async move {
            match tokio::time::timeout(ANSWER_MAX, views.list(None)).await {
                Ok(Ok(reports)) => {
                    let mut states = BTreeMap::new();
                    for state in [State::New, State::Active, State::Failing, State::Suspended] {
                        states.insert(state.as_str(), 0);
                    }
                    for report in &reports {
                        *states.entry(report.state.as_str()).or_insert(0) += 1;
                    }
                    json!({ "total": reports.len(), "by_state": states })
                }
                Ok(Err(error)) => json!({ "error": error.to_string() }),
                Err(_) => json!({ "error": "PostgreSQL does not answer in time" }),
            }
        })
    })
}

pub(super) fn documents_section(documents: Documents) -> StatusSection {
    Arc::new(move || {
        let documents = documents.clone();
        Box::pin(async move {
            let databases: BTreeMap<String, String> = documents
                .ownership_states()
                .into_iter()
                .map(|(name, standing)| {
                    let description = match standing {
                        OwnershipState::Owner => "written by this Egret".to_owned(),
                        OwnershipState::Elsewhere(holder) => {
                            format!("written by {}", holder.description)
                        }
                        OwnershipState::Removed => "gone".to_owned(),
                        OwnershipState::Unknown => "not to be written at the moment".to_owned(),
                    };
                    (name, description)
                })
                .collect();
            json!({ "databases": databases })
        })
    })
}
