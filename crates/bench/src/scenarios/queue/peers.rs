//! `--peer`: other task queues, each under the same load with the same durability, right after
//! Egret's.
//!
//! Each is started here in a directory of its own on a free port. None of them keeps results, so a
//! completion is the removal of the task, which is less work than Egret's.

mod beanstalkd;
mod nats;
mod redis;

use anyhow::{Context, Result};
use egret_bench_cli::{Durability, Peer};

use super::cycle::{CyclePlan, END_TO_END};
use super::drive::{self, Lengths, LoadResult};
use super::figures::{self, ResourceSampler};
use crate::record::scalar;
use crate::result::Better;
use crate::scenario::Measurement;
use crate::server_process::{self, ServerProcess};
use crate::stage::Stage;

/// The program of a peer, and the package that has it.
fn program_and_package(peer: Peer) -> (&'static str, &'static str) {
    match peer {
        Peer::Beanstalkd => ("beanstalkd", "beanstalkd"),
        Peer::Redis => ("redis-server", "redis-server"),
        Peer::Nats => ("nats-server", "nats-server"),
    }
}

/// Refuses a peer that is not there, or does not have the durability.
///
/// # Errors
/// What is missing and how to get it.
pub(super) fn check_peer(peer: Peer, durability: Durability) -> Result<()> {
    let (program, package) = program_and_package(peer);
    let flag = match peer {
        Peer::Nats => "--version",
        _ => "-v",
    };
    let version = server_process::program_version(peer.name(), program, package, flag)?;
    match peer {
        Peer::Nats => nats::check_version(durability, &version),
        _ => Ok(()),
    }
}

async fn start_peer(peer: Peer, durability: Durability) -> Result<ServerProcess> {
    ServerProcess::start(peer.name(), program_and_package(peer).0, |command, path, port| {
        match peer {
            Peer::Beanstalkd => beanstalkd::add_arguments(command, path, port, durability),
            Peer::Redis => redis::add_arguments(command, path, port, durability),
            Peer::Nats => nats::add_arguments(command, path, port, durability)?,
        }
        Ok(())
    })
    .await
}

/// Puts a peer under the load and adds its figures to Egret's.
pub(super) async fn measure(
    stage: &mut Stage,
    peer: Peer,
    plan: &CyclePlan,
    lengths: Lengths,
    durability: Durability,
    measurement: &mut Measurement,
) -> Result<()> {
    let process = start_peer(peer, durability).await?;
    let (port, pid) = (process.port, process.pid());
    let sampler = ResourceSampler::new(Some(pid), Some(process.directory.path().to_owned()));
    let egret_processes = std::mem::replace(&mut stage.subject.processes, vec![pid]);
    let result = match peer {
        Peer::Beanstalkd => {
            let connect = move || beanstalkd::Beanstalkd::open(port);
            run_load(stage, plan, lengths, sampler, connect).await
        }
        Peer::Redis => {
            let connect = move || redis::Redis::open(port);
            run_load(stage, plan, lengths, sampler, connect).await
        }
        Peer::Nats => {
            let connect = move || nats::Nats::open(port);
            run_load(stage, plan, lengths, sampler, connect).await
        }
    };
    stage.subject.processes = egret_processes;
    let peer_measurement =
        figures::into_measurement(result.with_context(|| format!("measure {}", peer.name()))?);
    let kept_metrics = [
        "cycles_per_second",
        "server_cpu_us_per_cycle",
        "generator_cpu_us_per_cycle",
        "lost",
        "duplicated",
        "rss_bytes",
        "disk_bytes",
    ];
    let mut metrics = peer_measurement.metrics;
    metrics.extend(peer_measurement.recording.metrics());
    for name in kept_metrics.into_iter().chain([END_TO_END]) {
        if let Some(metric) = metrics.remove(name) {
            let name = format!("{}_{name}", peer.name());
            measurement.metrics.insert(name, metric);
        }
    }
    let rate = |name: &str| measurement.metrics.get(name).map_or(0.0, |metric| metric.value);
    let peer_rate = rate(&format!("{}_cycles_per_second", peer.name()));
    if peer_rate > 0.0 {
        let ratio = scalar("ratio", Better::Higher, rate("cycles_per_second") / peer_rate, 1);
        let name = format!("{}_ratio", peer.name());
        measurement.metrics.insert(name, ratio);
    }
    measurement.warnings.extend(
        peer_measurement.warnings.into_iter().map(|warning| format!("{}: {warning}", peer.name())),
    );
    Ok(())
}

async fn run_load<B, C, F>(
    stage: &mut Stage,
    plan: &CyclePlan,
    lengths: Lengths,
    sampler: ResourceSampler,
    connect: C,
) -> Result<LoadResult>
where
    B: super::broker::Broker,
    C: FnOnce() -> F + Send + 'static,
    F: Future<Output = Result<B>>,
{
    drive::run_load(stage, plan, lengths, sampler, connect, std::future::ready(Ok(()))).await
}
